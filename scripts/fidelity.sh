#!/bin/sh
# Renews docs/fidelity.json and docs/FIDELITY.md: checks every claim of the papers on model and traces.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --package numaherd-lab --package menagerie
program="${CARGO_TARGET_DIR:-target}/release/numaherd-lab"
exec "$program" reproduce all --record docs/fidelity.json --markdown docs/FIDELITY.md
