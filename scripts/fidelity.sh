#!/bin/sh
# Renews docs/fidelity.json and docs/FIDELITY.md: checks every claim of the papers on model and traces. Traces that are
# not there are recorded; `scripts/fidelity.sh --fresh-traces` records all of them again.
set -eu
cd "$(dirname "$0")/.."
scripts/build.sh
program="${CARGO_TARGET_DIR:-target}/release/numaherd-lab"
exec "$program" reproduce all --record docs/fidelity.json --markdown docs/FIDELITY.md "$@"
