#!/usr/bin/env bash
# Builds the container image of Kubernetes' DaemonSet (packaging/kubernetes) as an OCI layout in a tar file:
# target/image/numaherd-VERSION-ARCHITECTURE.tar. It holds numaherd and numaherd-nri, linked statically, their licences, and
# nothing else: no shell, no package manager, no libraries. Needs cargo, GNU tar, gzip and strip; no daemon, no network, no
# root.
#
# Reproducible: the same sources, toolchain and SOURCE_DATE_EPOCH (by default the date of the last entry in
# packaging/debian/changelog) give the same digest, which is printed last.
#
#   scripts/image.sh [--arch ARCH] [FOLDER]
#                                    default target/image; --arch arm64: built on amd64 with what `scripts/setup.sh arm64`
#                                    installs
#
#   PROGRAMS=FOLDER                  take the programs in this folder instead of building them
#
# To load it: `ctr -n k8s.io images import FILE`, `podman load -i FILE`, or `skopeo copy oci-archive:FILE docker://NAME`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/release.sh
needs "tar, gzip, binutils and coreutils" tar gzip strip sha256sum

if [ "${1:-}" = --arch ]; then
    for_architecture "${2:?--arch: which? For example: --arch arm64}"
    shift 2
else
    case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) die "there is no image for $(uname -m): amd64 and arm64 only" ;;
    esac
fi
folder=${1:-$target/image}
triple=${triple:-$(uname -m)-unknown-linux-gnu}
date=$(sed -n 's/^ -- .*>  //p' packaging/debian/changelog | head -1)
epoch=${SOURCE_DATE_EPOCH:-$(date -d "$date" +%s)}

programs=${PROGRAMS:-}
if [ -z "$programs" ]; then
    say "building numaherd and numaherd-nri $crate"
    RUSTFLAGS="-C target-feature=+crt-static $remap" \
        cargo build --release --locked --target "$triple" --target-dir "$target/image/build" -p numaherd -p numaherd-nri
    programs=$target/image/build/$triple/release
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root doc=$work/root/usr/share/doc/numaherd
install -d "$root/usr/bin" "$doc"
for name in numaherd numaherd-nri; do
    strip_program "$programs/$name" "$root/usr/bin/$name"
    ! readelf -d "$root/usr/bin/$name" 2>/dev/null | grep -q NEEDED || die "$name is not linked statically"
done
install -m 644 packaging/debian/copyright LICENSE-APACHE LICENSE-MIT "$doc/"

# Names, times and owners in archives are the same wherever they are made.
pack() { tar --format=ustar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$1" -cf - .; }
digest() { sha256sum "$1" | cut -d' ' -f1; }

layout=$work/layout blobs=$work/layout/blobs/sha256
install -d "$blobs"
# Puts a file among the blobs; prints its descriptor of this media type.
blob() {
    local sum
    sum=$(digest "$1")
    install -m 644 "$1" "$blobs/$sum"
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%d' "$2" "$sum" "$(stat -c %s "$1")"
}

pack "$root" >"$work/layer.tar"
gzip -9nc "$work/layer.tar" >"$work/layer.tar.gz"
layer="$(blob "$work/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip)}"
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
labels='"org.opencontainers.image.title":"numaherd","org.opencontainers.image.version":"'$crate'"'
labels=$labels',"org.opencontainers.image.licenses":"Apache-2.0 OR MIT"'
printf '{"created":"%s","architecture":"%s","os":"linux","config":{"Entrypoint":["/usr/bin/numaherd"],"Labels":{%s}},' \
    "$created" "$architecture" "$labels" >"$work/config.json"
printf '"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$(digest "$work/layer.tar")" >>"$work/config.json"
config="$(blob "$work/config.json" application/vnd.oci.image.config.v1+json)}"
media=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' "$media" "$config" "$layer" >"$work/manifest.json"
manifest="$(blob "$work/manifest.json" $media)"
# The annotations by which importers name an image: containerd takes the first, others the second.
names='"io.containerd.image.name":"docker.io/library/numaherd:'$crate'","org.opencontainers.image.ref.name":"'$crate'"'
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s,"platform":%s,"annotations":{%s}}]}' \
    "$manifest" "{\"architecture\":\"$architecture\",\"os\":\"linux\"}" "$names" >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"

mkdir -p "$folder"
file=$folder/numaherd-$crate-$architecture.tar
pack "$layout" >"$file"
say "$file: $(stat -c %s "$file") bytes; layer $(stat -c %s "$work/layer.tar") bytes unpacked"
printf 'sha256:%s\n' "$(digest "$work/manifest.json")"
