#!/usr/bin/env bash
# Writes scenarios/agreement/measured/*.json: the times in the lab of the scenarios that run both in the lab
# and on the contention model. crates/experiment/tests/agreement.rs compares the model with them. Each repeat has a
# fresh guest: in a used one, streams that saturate a controller are slower.
#
#   scripts/agreement.sh            all, twice each, about 10 minutes on 2 cores
#   scripts/agreement.sh NAME...    some of them
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
if [ -z "${NUMAHERD:-}" ]; then
    scripts/setup.sh >/dev/null
    scripts/build.sh
fi
numaherd=${NUMAHERD:-$target/release/numaherd}

folder=scenarios/agreement
mkdir -p "$folder/measured"
if [ $# -eq 0 ]; then
    for file in "$folder"/*.toml; do
        set -- "$@" "$(basename "$file" .toml)"
    done
fi
for name; do
    for repeat in $(seq "${REPEAT:-2}"); do
        "$numaherd" lab compare "$folder/$name.toml" --policies linux --repeat 1 \
            --json "$folder/measured/$name.$repeat.json"
    done
done
