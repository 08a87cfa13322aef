#!/usr/bin/env bash
# Installs what the lab needs and prepares its kernel. Safe to repeat: a step whose result is
# already there is skipped.
#
#   scripts/setup.sh            everything
#   scripts/setup.sh packages   only the system packages
#   scripts/setup.sh kernel     only the guest's kernel, its modules and headers
#   scripts/setup.sh pmu        only the PMU module
#   scripts/setup.sh linux 7.3  a newer kernel beside it, for `--kernel 7.3`: Debian only, 700 MB
#   scripts/setup.sh peers      sched_ext's schedulers, which `lab compare` compares with on that kernel;
#                               `peers scx_rusty` only that one: some 5 minutes each on two cores
#   scripts/setup.sh programs   the programs of scenarios/programs, which nothing else needs: 500 MB
#   scripts/setup.sh arm64      what `scripts/package.sh --arch arm64` needs: Debian's cross compiler, qemu-user, and Rust's
#                               library for arm64
#   scripts/setup.sh release    cargo-cyclonedx, with which package.sh writes the SBOM
#
# What it changes on the system: it installs the packages below, and where the release's own QEMU
# is older than 10 it adds the release's backports suite at priority 100, so that nothing else is
# ever upgraded from it. The guest's kernel is never installed: it is downloaded and unpacked into
# the lab directory, .lab at the root of the repository or $NUMAHERD_LAB_DIR. A newer kernel is Debian 13's,
# from its backports; the compiler that its module wants is in a root directory of its own, linux-7.3/root.
#
# The programs are installed as any package is, because they need the users, links and libraries that their packages
# bring, and the guest sees those of this machine. Their servers are neither started nor enabled, and PostgreSQL makes no
# cluster: only a server that was there before goes on.
#
# NUMAHERD_OS_RELEASE names a file that is read in place of /etc/os-release, for tests.
#
# Layout of the lab directory, as crates/lab/src/files.rs reads it:
#   kernel/vmlinuz, kernel/vmlinux (the same, unpacked), kernel/release, kernel/config, kernel/lab_pmu.ko,
#   kernel/modules/NN-name.ko (in load order)
#   headers/                    what the PMU module is built against
#   linux-7.3/                  the same of a newer kernel
#   peers/bin/                  programs that policies are compared with

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lab=${NUMAHERD_LAB_DIR:-$here/.lab}
qemu_oldest=10

# Modules of the stock kernel that the guest loads, each after what it depends on. One that the
# kernel has built in is left out.
guest_modules="netfs 9pnet 9pnet_virtio 9p overlay virtio_console"

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "'$*' needs root and there is no sudo here; run it as root, then run this again"
    fi
}

# shellcheck disable=SC1090,SC1091
system_release() {
    local release=${NUMAHERD_OS_RELEASE:-/etc/os-release}
    [ -r "$release" ] || die "$release is missing: only Debian and Ubuntu are supported"
    . "$release"
    distribution=${ID:-unknown}
    codename=${VERSION_CODENAME:-unknown}
    case $distribution in
        debian | ubuntu) ;;
        *) die "$distribution is not supported: the lab takes its kernel and QEMU from Debian or Ubuntu packages" ;;
    esac
    [ "$(dpkg --print-architecture)" = amd64 ] ||
        die "the lab's PMU module and clock hook are for amd64, this machine is $(dpkg --print-architecture)"
}

refreshed=no
refresh_lists() {
    [ "$refreshed" = yes ] && return
    say "refreshing the package lists"
    as_root apt-get update -qq
    refreshed=yes
}

# The major version of the first word that looks like a version, epoch and Debian revision removed.
major() { sed -n 's/^\([0-9]*:\)\{0,1\}\([0-9]\{1,\}\)\..*/\2/p' <<<"$1"; }

installed_qemu() {
    command -v qemu-system-x86_64 >/dev/null || return 0
    qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9][0-9.]*\).*/\1/p'
}

# Every version of a package that the configured suites offer, newest first.
offered() { apt-cache madison "$1" 2>/dev/null | awk -F'|' '{gsub(/ /, "", $2); print $2}' | sort -rVu; }

# The version of QEMU that apt-get installs with these options: apt's candidate, which is not the
# newest that is offered where a suite such as backports has a low priority.
candidate_qemu() {
    # apt refuses a suite that it does not know.
    { apt-cache "$@" policy qemu-system-x86 2>/dev/null || true; } |
        awk '/Candidate:/ && $2 != "(none)" {print $2}'
}

is_new_enough() {
    local number
    number=$(major "$1")
    [ -n "$number" ] && [ "$number" -ge $qemu_oldest ]
}

# Copies the machine's own entry for this release with the backports suite in place of the main
# one, so that the mirror, the proxy and the key are the ones the machine already uses.
add_backports() {
    local suite=$codename-backports list=/etc/apt/sources.list.d/numaherd-backports entry=""
    if [ -e "$list.sources" ] || [ -e "$list.list" ]; then return; fi
    local source
    for source in /etc/apt/sources.list.d/*.sources; do
        [ -r "$source" ] || continue
        entry=$(awk -v RS= -v release="$codename" -v suite="$suite" '
            { n = split($0, line, "\n"); main = 0
              for (i = 1; i <= n; i++) if (line[i] ~ /^Suites:/) {
                  m = split(line[i], word, " ")
                  for (j = 2; j <= m; j++) if (word[j] == release) main = 1
                  line[i] = "Suites: " suite
              }
              if (main) { for (i = 1; i <= n; i++) if (line[i] !~ /^#/) print line[i]; exit } }' "$source")
        if [ -n "$entry" ]; then
            say "adding the suite $suite at priority 100 ($list.sources)"
            as_root tee "$list.sources" >/dev/null <<<"$entry"
            break
        fi
    done
    if [ -z "$entry" ]; then
        entry=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
            awk -v release="$codename" -v suite="$suite" '
                $1 == "deb" { for (i = 2; i <= NF; i++) if ($i == release) { $i = suite; print; exit } }')
        [ -n "$entry" ] || die "found no package source for $codename to copy: add $suite by hand, then run this again"
        say "adding the suite $suite at priority 100 ($list.list)"
        as_root tee "$list.list" >/dev/null <<<"$entry"
    fi
    as_root tee /etc/apt/preferences.d/numaherd-backports >/dev/null <<END
Package: *
Pin: release n=$suite
Pin-Priority: 100
END
    refreshed=no
    refresh_lists
}

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
    done
}

install_packages() {
    local missing
    # numad, numactl and valgrind are what `lab compare` and the benchmarks of page moves and of the lab's speed
    # compare with; with dpkg-dev, groff-base and systemd the package is built and tested.
    missing=$(missing_packages gcc make libc6-dev libelf1 xz-utils zstd numad numactl valgrind dpkg-dev groff-base systemd)
    # Names changed with the 64-bit time transition.
    if grep -qx libelf1 <<<"$missing" && [ -n "$(dpkg-query -W -f '${Version}' libelf1t64 2>/dev/null)" ]; then
        missing=$(grep -vx libelf1 <<<"$missing" || true)
    fi
    if [ -n "$missing" ]; then
        refresh_lists
        if grep -qx libelf1 <<<"$missing" && [ -z "$(offered libelf1)" ]; then
            missing=${missing/libelf1/libelf1t64}
        fi
        say "installing ${missing//$'\n'/ }"
        # shellcheck disable=SC2086 # one word per package
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
        # numad is compared with inside the guest; on the machine itself it must not steer anything.
        if grep -qx numad <<<"$missing" && [ -d /run/systemd/system ]; then
            as_root systemctl disable --now --quiet numad.service || true
        fi
    fi

    local have
    have=$(installed_qemu)
    if is_new_enough "$have"; then
        say "QEMU $have is installed"
        return
    fi
    refresh_lists
    local offer from=()
    offer=$(candidate_qemu)
    if [ "$distribution" = debian ] && ! is_new_enough "$offer"; then
        from=(-o "APT::Default-Release=$codename-backports")
        if ! is_new_enough "$(candidate_qemu "${from[@]}")"; then add_backports; fi
        offer=$(candidate_qemu "${from[@]}")
    fi
    is_new_enough "$offer" ||
        die "the lab needs QEMU $qemu_oldest or newer, $distribution $codename offers ${offer:-none}: use Debian 12 or newer, or Ubuntu 25.10 or newer"
    say "installing QEMU $offer"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        "${from[@]}" qemu-system-x86 >/dev/null
}

# Does something while no package may start a server, and PostgreSQL makes no cluster.
without_servers() (
    policy=/usr/sbin/policy-rc.d clusters=/etc/postgresql-common/createcluster.d/numaherd.conf
    ours=("$clusters")
    trap 'as_root rm -f "${ours[@]}"' EXIT
    if [ ! -e $policy ]; then
        ours+=("$policy")
        printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin $policy
    fi
    echo 'create_main_cluster = false' | as_root install -D -m 644 /dev/stdin $clusters
    "$@"
)

install_programs() {
    local missing java=default-jdk-headless
    # The scenario needs a compiler and a runtime, whatever the version.
    if command -v javac >/dev/null; then java=""; fi
    # shellcheck disable=SC2086 # one word or none
    missing=$(missing_packages postgresql redis-server redis-tools zstd sqlite3 gcc libc6-dev python3-numpy $java)
    if [ -z "$missing" ]; then
        say "the programs of scenarios/programs are installed"
        return
    fi
    refresh_lists
    say "installing ${missing//$'\n'/ }"
    # shellcheck disable=SC2086 # one word per package
    without_servers as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends $missing >/dev/null
    if grep -qx redis-server <<<"$missing"; then as_root update-rc.d redis-server disable; fi
}

# The version of the package whose kernel the guest runs, and the kernel's release name.
choose_kernel() {
    local meta=linux-image-amd64 versions
    [ "$distribution" = ubuntu ] && meta=linux-image-generic
    versions=$(offered $meta)
    if [ "$distribution" = debian ]; then
        # 6.12 is the line the lab is tested with; Debian 13 has it in main, Debian 12 in backports.
        if ! grep -q '^6\.12\.' <<<"$versions"; then
            refresh_lists
            versions=$(offered $meta)
            if ! grep -q '^6\.12\.' <<<"$versions" && [ "$codename" = bookworm ]; then
                add_backports
                versions=$(offered $meta)
            fi
        fi
        versions=$(grep '^6\.12\.' <<<"$versions" || true)
        [ -n "$versions" ] || die "no Linux 6.12 package is offered to $distribution $codename; the lab is tested with that one"
    elif [ -z "$versions" ]; then
        refresh_lists
        versions=$(offered $meta)
    fi
    kernel_version=$(head -n 1 <<<"$versions")
    kernel_release=$(apt-cache show "$meta=$kernel_version" |
        sed -n 's/^Depends:.*linux-image-\([0-9][^ ,]*\).*/\1/p' | head -n 1)
    [ -n "$kernel_release" ] || die "$meta $kernel_version names no kernel image package"
}

download() { # download DIR PACKAGE...: the .deb files land in DIR, nothing is installed
    local directory=$1
    shift
    (cd "$directory" && apt-get download -qq "$@" 2>"$directory/log")
}

# What to download for the kernel: `packages` hold image and modules, `headers` what the PMU module
# is built against.
kernel_packages() {
    if [ "$distribution" = ubuntu ]; then
        packages="linux-image-$kernel_release linux-modules-$kernel_release"
        if [ -n "$(offered "linux-modules-extra-$kernel_release")" ]; then
            packages+=" linux-modules-extra-$kernel_release"
        fi
        headers="linux-headers-$kernel_release linux-headers-${kernel_release%-generic}"
    else
        packages="linux-image-$kernel_release"
        headers="linux-headers-$kernel_release $(apt-cache show "linux-headers-$kernel_release" |
            sed -n 's/^Depends: //p' | head -n 1 | tr ',' '\n' |
            sed -n 's/^ *\(linux-headers-[^ ]*-common\).*/\1/p; s/^ *\(linux-kbuild-[^ ]*\).*/\1/p' | tr '\n' ' ')"
    fi
}

take_kernel() { # take_kernel IMAGE DIR: the kernel and the guest's modules of unpacked packages land in DIR
    local tree number=10 name file
    tree=$(find "$1" -type d -path "*/lib/modules/$kernel_release" | head -n 1)
    # Since 7.2 the kernel is beside its modules.
    cp "$(find "$1/boot/vmlinuz-$kernel_release" "$tree/vmlinuz" 2>/dev/null | head -n 1)" "$2/vmlinuz"
    mkdir -p "$2/modules"
    for name in $guest_modules; do
        file=$(find "$tree/kernel" -name "$name.ko*" | head -n 1)
        if [ -z "$file" ]; then
            grep -q "/$name\.ko\$" "$tree/modules.builtin" 2>/dev/null || die "Linux $kernel_release has no module $name"
            continue
        fi
        case $file in
            *.xz) xz -dc "$file" >"$2/modules/$number-$name.ko" ;;
            *.zst) zstd -qdc "$file" >"$2/modules/$number-$name.ko" ;;
            *) cp "$file" "$2/modules/$number-$name.ko" ;;
        esac
        number=$((number + 1))
    done
    echo "$kernel_release" >"$2/release"
}

prepare_kernel() {
    choose_kernel
    local stamp="$kernel_release $kernel_version $guest_modules"
    if [ "$(cat "$lab/kernel/stamp" 2>/dev/null)" = "$stamp" ]; then
        say "Linux $kernel_release is ready"
        return
    fi
    say "downloading Linux $kernel_release (about 120 MB) into $lab"
    mkdir -p "$lab"
    local work
    work=$(mktemp -d "$lab/work.XXXXXX")
    # shellcheck disable=SC2064 # the directory's name is fixed now
    trap "rm -rf '$work'" EXIT
    mkdir "$work/debs" "$work/image" "$work/headers" "$work/kernel"
    local packages headers
    kernel_packages
    # shellcheck disable=SC2086 # one word per package
    if ! download "$work/debs" $packages $headers; then
        # The lists may be older than what the mirror still has.
        refresh_lists
        choose_kernel
        stamp="$kernel_release $kernel_version $guest_modules"
        kernel_packages
        if ! download "$work/debs" $packages $headers; then
            cat "$work/debs/log" >&2
            die "could not download $packages $headers"
        fi
    fi
    local deb
    for deb in "$work"/debs/*.deb; do
        case $(basename "$deb") in
            linux-image-* | linux-modules-*) dpkg -x "$deb" "$work/image" ;;
            *) dpkg -x "$deb" "$work/headers" ;;
        esac
    done
    take_kernel "$work/image" "$work/kernel"
    echo "$stamp" >"$work/kernel/stamp"
    # The headers name each other by absolute paths, as installed.
    local build="usr/src/linux-headers-$kernel_release"
    sed -i "s#/usr/src/#$lab/headers/usr/src/#g; s#/usr/lib/linux-kbuild#$lab/headers/usr/lib/linux-kbuild#g" \
        "$work/headers/$build/Makefile"
    local link target
    while IFS= read -r link; do
        target=$(readlink "$link")
        case $target in /usr/*) ln -sfn "$lab/headers$target" "$link" ;; esac
    done < <(find "$work/headers" -type l)
    rm -rf "$lab/kernel" "$lab/headers"
    mv "$work/headers" "$lab/headers"
    mv "$work/kernel" "$lab/kernel"
    rm -rf "$work"
    trap - EXIT
}

# The kernel without its decompressor, which an emulated boot would spend a tenth of its time in. The header's fields
# are those of Documentation/arch/x86/boot.rst; four bytes with the kernel's size follow what was compressed.
unpack_kernel() {
    local image=$lab/kernel/vmlinuz
    if [ "$lab/kernel/vmlinux" -nt "$image" ]; then return; fi
    field() { od -An -v -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '; }
    local start length
    start=$((($(field 0x1f1 1) + 1) * 512 + $(field 0x248 4)))
    length=$(($(field 0x24c 4) - 4))
    say "unpacking Linux $(cat "$lab/kernel/release")"
    dd if="$image" iflag=skip_bytes,count_bytes skip=$start count=$length bs=1M status=none |
        zstd -dqc >"$lab/kernel/vmlinux.new" ||
        die "$image is not compressed with zstd"
    mv "$lab/kernel/vmlinux.new" "$lab/kernel/vmlinux"
}

# Runs a command in a root directory, which sees this machine's processes: objtool reads its own limits.
in_root() { # in_root DIR COMMAND...
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_root unshare --mount sh -c 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"' "$@"
}

# A newer kernel than this release offers, of Debian 13's backports, in $lab.
prepare_newer() { # prepare_newer VERSION
    if [ -e "$lab/kernel/stamp" ]; then
        say "Linux $(cat "$lab/kernel/release") is ready"
        return
    fi
    [ "$distribution" = debian ] || die "Linux $1 comes from Debian's packages: this is $distribution"
    local wanted=(mmdebstrap) mirror work
    if [ -n "$(missing_packages "${wanted[@]}")" ]; then
        refresh_lists
        say "installing ${wanted[*]}"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${wanted[@]}" >/dev/null
    fi
    # shellcheck disable=SC2016 # expanded by apt-get
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $codename" | head -n 1)
    [ -n "$mirror" ] || die "found no package source for $codename to take Linux $1 from"
    say "making a root directory of Debian 13 in $lab (some minutes; 250 MB to download)"
    mkdir -p "$lab"
    work=$(mktemp -d "$lab/work.XXXXXX")
    # shellcheck disable=SC2064 # the directory's name is fixed now
    trap "as_root rm -rf '$work'" EXIT
    chmod 755 "$work"
    mkdir "$work/image" "$work/kernel"
    local root=$work/root image=linux-image-amd64 deb
    {
        as_root mmdebstrap --variant=apt --include=make,gcc-14 trixie "$root" \
            "deb $mirror trixie main" "deb $mirror trixie-backports main" &&
            as_root cp -L /etc/resolv.conf "$root/etc/" &&
            in_root "$root" apt-get update -qq &&
            kernel_release=$(in_root "$root" apt-cache madison $image | sed -n "s/^[^|]*| *\($1\.[0-9.]*\)-.*/\1/p" | head -n 1) &&
            kernel_release+=+deb13-amd64 &&
            in_root "$root" env DEBIAN_FRONTEND=noninteractive \
                apt-get install -qq -y --no-install-recommends "linux-headers-$kernel_release" &&
            in_root "$root" sh -c 'mkdir /debs && cd /debs && apt-get download -qq "$@"' \
                sh "linux-binary-$kernel_release" "linux-modules-$kernel_release"
    } >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        [ ! -d "$root" ] || in_root "$root" apt-cache madison $image >&2 || true
        die "could not make a root directory with Linux $1; the last lines say what Debian 13 and its backports offer"
    }
    for deb in "$root"/debs/*.deb; do dpkg -x "$deb" "$work/image"; done
    as_root rm -r "$root/debs"
    # Of what it has built in, the headers' packages know.
    cp "$root/usr/lib/modules/$kernel_release/modules.builtin" "$work/image/usr/lib/modules/$kernel_release/"
    take_kernel "$work/image" "$work/kernel"
    echo "$kernel_release" >"$work/kernel/stamp"
    as_root rm -rf "$lab/root" "$lab/kernel"
    as_root mv "$root" "$lab/root"
    mv "$work/kernel" "$lab/kernel"
    as_root rm -rf "$work"
    trap - EXIT
}

# A compiler fit for the kernel: the one it was built with where that is here, else the default.
module_compiler() {
    local wanted
    wanted=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*gcc-[0-9]*\).*/\1/p' "$1/.config" 2>/dev/null | sed 's/^x86_64-linux-gnu-//')
    if [ -n "$wanted" ] && command -v "$wanted" >/dev/null; then echo "$wanted"; else echo gcc; fi
}

build_pmu() {
    [ -r "$lab/kernel/release" ] || die "there is no kernel in $lab yet: run 'scripts/setup.sh kernel'"
    local release source="$here/crates/lab/pmu" stamp build compiler tree config
    release=$(cat "$lab/kernel/release")
    build="$lab/headers/usr/src/linux-headers-$release"
    # Programs in the guest look for the kernel's configuration in /boot: sched_ext's do.
    for tree in headers root; do
        config="$lab/$tree/usr/src/linux-headers-$release/.config"
        [ ! -e "$config" ] || cp "$config" "$lab/kernel/config"
    done
    stamp="$release $(cat "$source"/*.c "$source"/*.h "$source"/Kbuild | sha256sum | cut -d' ' -f1)"
    if [ "$(cat "$lab/kernel/pmu-stamp" 2>/dev/null)" = "$stamp" ] && [ -e "$lab/kernel/lab_pmu.ko" ]; then
        say "the PMU module is up to date"
        return
    fi
    if [ -d "$lab/root" ]; then compiler=gcc-14; else compiler=$(module_compiler "$build"); fi
    say "building the PMU module against Linux $release with $compiler"
    # With the kernel's own image there, the build would want pahole, for type information that
    # nobody here reads.
    rm -f "$build/vmlinux"
    local work
    work=$(mktemp -d "$lab/work.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    cp "$source"/*.c "$source"/*.h "$source"/Kbuild "$work/"
    if [ -d "$lab/root" ]; then
        as_root rm -rf "$lab/root/pmu"
        as_root cp -r "$work" "$lab/root/pmu"
        in_root "$lab/root" make -C "/usr/src/linux-headers-$release" M=/pmu CC="$compiler" modules >"$work/log" 2>&1 &&
            cp "$lab/root/pmu/lab_pmu.ko" "$work/"
    else
        make -C "$build" M="$work" CC="$compiler" modules >"$work/log" 2>&1
    fi || {
        cat "$work/log" >&2
        die "the PMU module did not build"
    }
    grep -n 'warning:' "$work/log" | grep -v 'compiler differs\|BTF' >&2 || true
    strip --strip-debug "$work/lab_pmu.ko"
    mv "$work/lab_pmu.ko" "$lab/kernel/lab_pmu.ko"
    echo "$stamp" >"$lab/kernel/pmu-stamp"
    rm -rf "$work"
    trap - EXIT
}

# sched_ext's schedulers: programs of their own under the GPL, of which nothing here is linked with anything of ours.
schedulers="scx_rusty@1.1.4 scx_layered@1.1.4 scx_cosmos@1.1.7"

prepare_peers() { # prepare_peers [NAME...]
    local name one wanted=() clang missing log
    for name in "$@"; do
        one=$(tr ' ' '\n' <<<"$schedulers" | grep "^$name@" || true)
        [ -n "$one" ] || die "there is no peer $name; there are: $schedulers"
        wanted+=("$one")
    done
    # shellcheck disable=SC2206 # one word per scheduler
    [ ${#wanted[@]} -gt 0 ] || wanted=($schedulers)
    command -v cargo >/dev/null || die "cargo builds the peers and is not in PATH: install Rust"
    for clang in clang-19 clang-18 clang-20 none; do
        [ -z "$(missing_packages "$clang")" ] || [ -n "$(offered "$clang")" ] && break
    done
    [ "$clang" != none ] || die "the peers need clang 18 or newer, which $distribution $codename does not offer"
    missing=$(missing_packages "$clang" "lib$clang-dev" libelf-dev zlib1g-dev pkg-config libseccomp-dev)
    if [ -n "$missing" ]; then
        refresh_lists
        say "installing ${missing//$'\n'/ }"
        # shellcheck disable=SC2086 # one word per package
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
    fi
    mkdir -p "$lab/peers"
    log=$lab/peers/log
    for one in "${wanted[@]}"; do
        say "building $one"
        BPF_CLANG=$clang cargo install --quiet --root "$lab/peers" --locked "$one" >"$log" 2>&1 || {
            tail -n 20 "$log" >&2
            die "$one did not build; all that was said is in $log"
        }
    done
}

prepare_arm64() {
    local missing triple=aarch64-unknown-linux-gnu
    missing=$(missing_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
    if [ -n "$missing" ]; then
        refresh_lists
        say "installing ${missing//$'\n'/ }"
        # shellcheck disable=SC2086 # one word per package
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
    fi
    command -v rustc >/dev/null || die "Rust is not in PATH: install it"
    if [ ! -d "$(rustc --print target-libdir --target "$triple")" ]; then
        command -v rustup >/dev/null || die "rustup is not in PATH: install Rust's library for $triple by what installed Rust"
        say "adding Rust's library for $triple"
        rustup --quiet target add "$triple"
    fi
}

# The version is fixed: what it writes is compared.
prepare_release() {
    local wanted=0.5.9
    command -v cargo >/dev/null || die "cargo is not in PATH: install Rust"
    if [ "$(cargo cyclonedx --version 2>/dev/null | sed 's/.* //')" != "$wanted" ]; then
        say "building cargo-cyclonedx $wanted"
        cargo install --quiet --locked "cargo-cyclonedx@$wanted"
    fi
}

system_release
case ${1:-all} in
    packages) install_packages ;;
    kernel)
        prepare_kernel
        unpack_kernel
        ;;
    pmu) build_pmu ;;
    programs) install_programs ;;
    arm64) prepare_arm64 ;;
    release) prepare_release ;;
    linux)
        [[ ${2:-} =~ ^[0-9]+\.[0-9]+$ ]] || die "which Linux? For example: scripts/setup.sh linux 7.3"
        lab=$lab/linux-$2
        prepare_newer "$2"
        unpack_kernel
        build_pmu
        say "Linux $2 is ready in $lab"
        ;;
    peers)
        shift
        prepare_peers "$@"
        say "the peers are ready in $lab/peers"
        ;;
    all)
        install_packages
        prepare_kernel
        unpack_kernel
        build_pmu
        say "the lab is ready in $lab"
        ;;
    *) die "unknown step '$1': packages, kernel, pmu, linux VERSION, peers, programs, arm64, release, or nothing for all" ;;
esac
