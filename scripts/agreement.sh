#!/usr/bin/env bash
# Writes scenarios/agreement/measured/*.json: what the scenarios that the lab and the contention model
# have in common take in the lab. tests/profile_agreement.rs holds the model against it. Each repeat
# has a guest of its own: in one that has run before, streams that fill a controller come out slower
# than in a fresh one. Anew:
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
