#!/usr/bin/env bash
# Writes the times in the lab of the scenarios that run both in the lab and on the contention model, to
# scenarios/agreement/measured and scenarios/agreement/free/measured, each under the policies that its file names.
# crates/experiment/tests/agreement.rs compares the model with them. Each trial has a fresh guest: in a used one,
# streams that saturate a controller are slower.
#
#   scripts/agreement.sh            all, twice each, about 40 minutes on 2 cores
#   scripts/agreement.sh FILE...    some of them
#
# REPEAT=1 makes one repeat, POLICIES=dino,n-mass only these policies, LEDGERS=DIR keeps the ledgers.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/programs.sh

[ $# -gt 0 ] || set -- scenarios/agreement/*.toml scenarios/agreement/free/*.toml
for file; do
    measured=$(dirname "$file")/measured name=$(basename "$file" .toml)
    mkdir -p "$measured"
    policies=${POLICIES:-$(sed -n 's/^policies = \[\(.*\)\]$/\1/p' "$file" | tr -d '" ')}
    for policy in ${policies//,/ }; do
        for repeat in $(seq "${REPEAT:-2}"); do
            "$numaherd" lab compare "$file" --policies "$policy" --repeat 1 \
                --json "$measured/$name.$policy.$repeat.json" ${LEDGERS:+--ledgers "$LEDGERS/$name.$policy.$repeat"}
        done
    done
done
