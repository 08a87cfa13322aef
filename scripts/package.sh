#!/usr/bin/env bash
# Builds the Debian package: target/package/numaherd_VERSION_ARCHITECTURE.deb.
#
# Reproducible: the same sources, toolchain and SOURCE_DATE_EPOCH (by default the date of the last entry
# in packaging/debian/changelog) give the same bytes. Needs nothing but cargo, dpkg-dev, gzip and
# strip (binutils). What goes where, and what the scripts of the package do: packaging/README.md.
#
#   scripts/package.sh [FOLDER]         the package's path is the last line printed
#
#   NUMAHERD=PROGRAM                    take this program instead of building one
#   COMPRESSION=none|zstd|xz            of the package; default xz
#   DEBFULLNAME, DEBEMAIL               whoever publishes it; default as in the changelog
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC

say() { printf 'package: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

for tool in dpkg-deb dpkg-parsechangelog dpkg-shlibdeps strip gzip; do
    command -v "$tool" >/dev/null || die "$tool is missing: install dpkg-dev and binutils"
done

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/package}
debian=packaging/debian
field() { dpkg-parsechangelog -l "$debian/changelog" -S "$1"; }
version=$(field Version)
architecture=$(dpkg --print-architecture)
maintainer=$(field Maintainer)
if [ -n "${DEBEMAIL:-}" ]; then maintainer="${DEBFULLNAME:-The Numaherd authors} <$DEBEMAIL>"; fi
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(field Timestamp)}
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)

crate=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[ "${version%-*}" = "$crate" ] ||
    die "$debian/changelog is of ${version%-*}, the program of $crate: add an entry to the changelog"

program=${NUMAHERD:-}
if [ -z "$program" ]; then
    say "building numaherd $crate"
    # Paths of whoever builds it would be in the messages of panics.
    RUSTFLAGS="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" \
        cargo build --release --locked -p numaherd --target-dir "$target/package/build"
    program=$target/package/build/release/numaherd
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/numaherd

install -d "$root/usr/bin" "$root/DEBIAN" "$doc"
strip --strip-all --remove-section=.comment --remove-section=.note -o "$root/usr/bin/numaherd" "$program"
chmod 755 "$root/usr/bin/numaherd"
install -D -m 644 contrib/systemd/numaherd.service "$root/usr/lib/systemd/system/numaherd.service"
# As documented, but a service keeps a record: whoever looks at three in the morning wants to know why.
install -d "$root/etc/numaherd"
sed 's|^#\(ledger = "/var/lib/numaherd/ledger"\).*|\1|' contrib/numaherd.toml >"$root/etc/numaherd/numaherd.toml"
chmod 644 "$root/etc/numaherd/numaherd.toml"

# Manual pages and completions: the program's own.
"$program" manual "$work/manual" --date "$date"
install -d "$root/usr/share/man/man1"
install -m 644 "$work"/manual/man1/*.1 "$root/usr/share/man/man1/"
gzip -9n "$root"/usr/share/man/man1/*.1
install -D -m 644 "$work/manual/bash/numaherd" "$root/usr/share/bash-completion/completions/numaherd"
install -D -m 644 "$work/manual/zsh/_numaherd" "$root/usr/share/zsh/vendor-completions/_numaherd"
install -D -m 644 "$work/manual/fish/numaherd.fish" "$root/usr/share/fish/vendor_completions.d/numaherd.fish"

# Documents, the dashboard and the rules, by the names they have in the sources.
install -m 644 "$debian/README.Debian" README.md "$doc/"
while IFS= read -r file; do
    install -D -m 644 "$file" "$doc/$file"
done < <(find docs -name '*.md' -type f; find docs/figures -type f)
for part in grafana prometheus; do
    while IFS= read -r file; do
        install -D -m 644 "$file" "$doc/${file#contrib/}"
    done < <(find "contrib/$part" -type f)
done
gzip -9nc "$debian/changelog" >"$doc/changelog.Debian.gz"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
{
    cat "$debian/copyright"
    # The licence's own text, set in by one.
    sed -n '5,$p' LICENSE-MIT | sed 's/^\(.\)/ \1/'
} >"$doc/copyright"
# What is linked in, and under which licence each is.
cargo tree --locked --offline -p numaherd --edges normal --prefix none --format '{p} {l}' |
    sed 's# (/[^)]*)##; s# (\*)$##' | sort -u | gzip -9n >"$doc/crates.gz"

# Which shared libraries it needs, by dpkg's own reckoning.
mkdir "$work/debian"
printf 'Source: numaherd\n\nPackage: numaherd\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/numaherd 2>"$work/told") || {
    cat "$work/told" >&2
    die "dpkg-shlibdeps failed"
}
depends=${depends#shlibs:Depends=}

install -m 755 "$debian"/{postinst,prerm,postrm} "$root/DEBIAN/"
echo /etc/numaherd/numaherd.toml >"$root/DEBIAN/conffiles"
(cd "$root" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
size=$(find "$root/usr" "$root/etc" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
sed -e "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@MAINTAINER@|$maintainer|" \
    -e "s|@SIZE@|$size|; s|@DEPENDS@|$depends|" "$debian/control.in" >"$root/DEBIAN/control"
chmod 644 "$root"/DEBIAN/{control,conffiles,md5sums}

mkdir -p "$folder"
package=$folder/numaherd_${version}_$architecture.deb
# One thread: how many there are would change the bytes.
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --threads-max=1 --build "$root" "$package" >/dev/null
say "$(du -h "$package" | cut -f 1), installs $((size / 1024)) MiB"
echo "$package"
