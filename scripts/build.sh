#!/usr/bin/env bash
# Builds what the lab boots and runs: the program (with the guest's first process in it), the static
# workloads and the QEMU plugin. Cargo decides what is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked -p numaherd -p numaherd-lab
cargo build --profile lab --locked -p numaherd-lab-plugin
# Static, so that they run in any guest: glibc's own static form, no other target is needed.
RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --target x86_64-unknown-linux-gnu -p menagerie
