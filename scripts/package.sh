#!/usr/bin/env bash
# Builds the Debian packages numaherd-numad (the program under numad's name), numaherd-lab (the laboratory)
# and numaherd (the program and its service): target/package/PACKAGE_VERSION_ARCHITECTURE.deb. Beside them: what is linked
# into each program, as an SBOM (PACKAGE_VERSION_ARCHITECTURE.cdx.json, CycloneDX), and SHA256SUMS of all that is there.
#
# Reproducible: the same sources, toolchain and SOURCE_DATE_EPOCH (by default the date of the last entry
# in packaging/debian/changelog) give the same bytes. Needs nothing but cargo, dpkg-dev, gzip and
# strip (binutils); cargo-cyclonedx for the SBOM, which is left out where it is missing. What goes where, and what the
# scripts of the package do: packaging/README.md.
#
#   scripts/package.sh [--arch ARCH] [FOLDER]
#                                       the packages' paths are the last three lines printed, in this order;
#                                       --arch arm64: built on amd64 with what `scripts/setup.sh arm64` installs
#
#   PROGRAMS=FOLDER                     take the programs in this folder instead of building them
#   COMPRESSION=none|zstd|xz            of the packages; default xz
#   DEBFULLNAME, DEBEMAIL               whoever publishes them; default as in the changelog
#   SIGN=COMMAND                        run with SHA256SUMS as its last argument, for example
#                                       SIGN='gpg --batch --yes --armor --detach-sign'
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/release.sh
needs "dpkg-dev and binutils" dpkg-deb dpkg-parsechangelog dpkg-shlibdeps strip gzip
for_architecture "$(dpkg --print-architecture)"
if [ "${1:-}" = --arch ]; then
    for_architecture "${2:?--arch: which? For example: --arch arm64}"
    shift 2
fi

folder=${1:-$target/package}
debian=packaging/debian
field() { dpkg-parsechangelog -l "$debian/changelog" -S "$1"; }
version=$(field Version)
maintainer=$(field Maintainer)
if [ -n "${DEBEMAIL:-}" ]; then maintainer="${DEBFULLNAME:-The Numaherd authors} <$DEBEMAIL>"; fi
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(field Timestamp)}
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)

[ "${version%-*}" = "$crate" ] ||
    die "$debian/changelog is of ${version%-*}, the program of $crate: add an entry to the changelog"

programs=${PROGRAMS:-}
if [ -z "$programs" ]; then
    say "building numaherd and numaherd-lab $crate for $architecture"
    RUSTFLAGS="$remap" \
        cargo build --release --locked -p numaherd -p numaherd-lab --target-dir "$target/package/build" \
        ${triple:+--target "$triple"}
    programs=$target/package/build/${triple:+$triple/}release
fi
# A program that does not start here is not packed.
[ "$("${run[@]}" "$programs/numaherd" --version)" = "numaherd $crate" ] ||
    die "$programs/numaherd is not that of $crate for $architecture"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files that every package has: changelog, licences.
begin() {
    name=$1 root=$work/$1 doc=$work/$1/usr/share/doc/$1
    install -d "$root/usr/bin" "$root/DEBIAN" "$doc"
    gzip -9nc "$debian/changelog" >"$doc/changelog.Debian.gz"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    {
        cat "$debian/copyright"
        # The licence's own text, indented by one.
        sed -n '5,$p' LICENSE-MIT | sed 's/^\(.\)/ \1/'
    } >"$doc/copyright"
}

# A package of a program: with its manual pages and the licences of its crates.
begin_program() {
    begin "$1"
    install -d "$root/usr/share/man/man1"
    strip_program "$programs/$name" "$root/usr/bin/$name"
    install -m 644 "$work/manual/$name"/man1/*.1 "$root/usr/share/man/man1/"
    gzip -9n "$root"/usr/share/man/man1/*.1
    # The crates that are linked in, each with its licence.
    cargo tree --locked --offline -p "$name" ${triple:+--target "$triple"} --edges normal --prefix none --format '{p} {l}' |
        sed 's# (/[^)]*)##; s# (\*)$##' | sort -u | gzip -9n >"$doc/crates.gz"
}

# Packs what begin_program and the lines after it have put together.
finish_program() {
    # dpkg finds out which shared libraries the program needs.
    mkdir -p "$work/debian"
    printf 'Source: numaherd\n\nPackage: %s\nArchitecture: any\n' "$name" >"$work/debian/control"
    depends=$(cd "$work" && dpkg-shlibdeps ${libraries:+"-l$libraries/lib"} -O "$name/usr/bin/$name" 2>"$work/warnings") || {
        cat "$work/warnings" >&2
        die "dpkg-shlibdeps failed"
    }
    # The names that the libraries have on a machine of that architecture, where they are not of a cross compiler.
    depends=$(sed "s/:$architecture\\b//g; s/-$architecture-cross\\b//g" <<<"$depends")
    finish "$architecture" "${depends#shlibs:Depends=}"
    sbom
}

# Packs a package of this architecture, which depends on these others.
finish() {
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' |
        awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
    sed -e "s|@VERSION@|$version|; s|@ARCHITECTURE@|$1|; s|@MAINTAINER@|$maintainer|" \
        -e "s|@SIZE@|$size|; s|@DEPENDS@|${2:-}|" "$debian/$name.control.in" >"$root/DEBIAN/control"
    chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/md5sums"
    mkdir -p "$folder"
    package=$folder/${name}_${version}_$1.deb
    # In one thread: their number would change the bytes.
    dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --threads-max=1 --build "$root" "$package" >/dev/null
    say "$package: $(du -h "$package" | cut -f 1), installs $((size / 1024)) MiB"
    packages+=("$package")
}

# What is linked into each program: crates with versions, licences and checksums of their sources. cargo-cyclonedx writes
# beside the manifests of all crates, so it is given a copy of them.
make_sboms() {
    if ! command -v cargo-cyclonedx >/dev/null; then
        say "no SBOM: cargo-cyclonedx is missing (scripts/setup.sh release)"
        return
    fi
    mkdir "$work/tree"
    cp -r Cargo.toml Cargo.lock crates fuzz menagerie tests "$work/tree/"
    CARGO_NET_OFFLINE=true cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --override-filename sbom \
        --target "${triple:-$(rustc -vV | sed -n 's/^host: //p')}" --manifest-path "$work/tree/Cargo.toml"
}

# The SBOM of the program that is packed, without the name of the copy.
sbom() {
    [ -d "$work/tree" ] || return 0
    local file=$folder/${name}_${version}_$architecture.cdx.json
    sed "s|file://$work/tree|file:///numaherd|g" "$work/tree/crates/$name/sbom.json" >"$file"
    say "$file"
}

make_sboms
packages=()
"${run[@]}" "$programs/numaherd-lab" manual "$work/manual" --date "$date"
begin numaherd-numad
ln -s numaherd "$root/usr/bin/numad"
finish all

begin_program numaherd-lab
finish_program

begin_program numaherd
install -D -m 644 contrib/systemd/numaherd.service "$root/usr/lib/systemd/system/numaherd.service"
install -D -m 755 contrib/slurm/numaherd-job "$root/usr/share/numaherd/slurm/numaherd-job"
# As documented, but the service keeps a ledger: it answers questions about last night.
install -d "$root/etc/numaherd"
sed 's|^#\(ledger = "/var/lib/numaherd/ledger.zst"\).*|\1|' contrib/numaherd.toml >"$root/etc/numaherd/numaherd.toml"
chmod 644 "$root/etc/numaherd/numaherd.toml"
completions=$work/manual
install -D -m 644 "$completions/bash/numaherd" "$root/usr/share/bash-completion/completions/numaherd"
install -D -m 644 "$completions/zsh/_numaherd" "$root/usr/share/zsh/vendor-completions/_numaherd"
install -D -m 644 "$completions/fish/numaherd.fish" "$root/usr/share/fish/vendor_completions.d/numaherd.fish"
# Documents, the dashboard and the rules, under the names they have in the sources.
install -m 644 "$debian/README.Debian" README.md "$doc/"
while IFS= read -r file; do
    install -D -m 644 "$file" "$doc/$file"
done < <(find docs -name '*.md' -type f; find docs/figures -type f)
for part in grafana prometheus; do
    while IFS= read -r file; do
        install -D -m 644 "$file" "$doc/${file#contrib/}"
    done < <(find "contrib/$part" -type f)
done
install -m 755 "$debian"/{postinst,prerm,postrm} "$root/DEBIAN/"
echo /etc/numaherd/numaherd.toml >"$root/DEBIAN/conffiles"
chmod 644 "$root/DEBIAN/conffiles"
finish_program

# Of all packages in the folder, those of other architectures too.
(cd "$folder" && find . -maxdepth 1 -type f \( -name '*.deb' -o -name '*.cdx.json' \) -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS)
if [ -n "${SIGN:-}" ]; then
    # shellcheck disable=SC2086 # a command with its arguments
    $SIGN "$folder/SHA256SUMS"
fi

printf '%s\n' "${packages[@]}"
