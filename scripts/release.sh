# What image.sh and package.sh share: messages, tools that must be there, other architectures, and what makes their
# archives the same wherever they are built. Sourced at the root of the repository.
# shellcheck shell=bash
umask 022
export LC_ALL=C TZ=UTC

script=$(basename "$0" .sh)
say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Exit code 5: something is not installed.
lacks() {
    say "$*"
    exit 5
}

needs() { # needs PACKAGES TOOL...: ends the script if a tool of these packages is missing
    local packages=$1 tool
    shift
    for tool in "$@"; do
        command -v "$tool" >/dev/null || lacks "$tool is missing: install $packages"
    done
}

# What programs of an architecture (Debian's name) are built, stripped and run with; of this machine's, as any program.
# Sets architecture, triple (Rust's name, empty for this machine's), gnu (the tools' prefix), libraries, run (a command
# that starts programs of it).
for_architecture() { # for_architecture ARCH
    architecture=$1 triple="" gnu="" libraries="" run=()
    [ "$architecture" != "$(dpkg --print-architecture)" ] || return 0
    case $(dpkg --print-architecture)-$architecture in
        amd64-arm64) triple=aarch64-unknown-linux-gnu gnu=aarch64-linux-gnu- ;;
        *) die "there is no cross build of $architecture on $(dpkg --print-architecture): there is one of arm64 on amd64" ;;
    esac
    needs "the cross tools: scripts/setup.sh arm64" "${gnu}gcc" "${gnu}strip" qemu-aarch64-static
    [ -d "$(rustc --print target-libdir --target "$triple")" ] ||
        lacks "Rust's library for $triple is missing: scripts/setup.sh arm64"
    libraries=/usr/${gnu%-}
    run=(qemu-aarch64-static -L "$libraries")
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=${gnu}gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="${run[*]}"
}

target=${CARGO_TARGET_DIR:-target}
# The version of all crates.
crate=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Strips a program to its last form: FROM TO.
strip_program() {
    "${gnu:-}strip" --strip-all --remove-section=.comment --remove-section=.note -o "$2" "$1"
    chmod 755 "$2"
}
# The builder's paths would otherwise be in the messages of panics.
remap="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
