# What image.sh and package.sh share: messages, tools that must be there, and what makes their archives the same wherever
# they are built. Sourced at the root of the repository.
# shellcheck shell=bash
umask 022
export LC_ALL=C TZ=UTC

script=$(basename "$0" .sh)
say() { printf '%s: %s\n' "$script" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

needs() { # needs PACKAGES TOOL...: ends the script if a tool of these packages is missing
    local packages=$1 tool
    shift
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is missing: install $packages"
    done
}

target=${CARGO_TARGET_DIR:-target}
# The version of all crates.
crate=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Strips a program to its last form: FROM TO.
strip_program() {
    strip --strip-all --remove-section=.comment --remove-section=.note -o "$2" "$1"
    chmod 755 "$2"
}
# The builder's paths would otherwise be in the messages of panics.
remap="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
