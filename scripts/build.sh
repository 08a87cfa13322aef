#!/usr/bin/env bash
# Builds what the lab boots and runs. Cargo decides what is up to date.
#
#   scripts/build.sh         both programs, the static workloads and the QEMU plugin
#   scripts/build.sh guest   only the workloads and the plugin: the tests build the programs themselves
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-all} in
    all) cargo build --release --locked -p numaherd -p numaherd-lab ;;
    guest) ;;
    *)
        echo "build: unknown part '$1': guest, or nothing for all" >&2
        exit 2
        ;;
esac
# Beside each other: each ends with a step that one core does alone.
cargo build --profile lab --locked -p numaherd-lab-plugin &
plugin=$!
# Static, so they run in any guest. glibc's own static form needs no other target.
RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --target x86_64-unknown-linux-gnu -p menagerie
wait "$plugin"
