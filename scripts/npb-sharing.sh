#!/usr/bin/env bash
# Prints how many lines another thread wrote last and still has in its cache, for each 1000 instructions of the menagerie's
# NAS kernels with four threads: `shared_written` in data/programs/npb.toml rests on it. Each kernel is recorded in the lab
# and played on cores with a cache of 4 MiB each. What the second of two loops adds to the first is without the set-up.
#
#   scripts/npb-sharing.sh                 classes S and W: about 4 minutes on 2 cores
#   scripts/npb-sharing.sh lu-W cg-S       some of them
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/programs.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first figure of that name in JSON.
figure() { grep -o "\"$2\": *[0-9]*" "$1" | head -n 1 | grep -o '[0-9]*$'; }

[ $# -gt 0 ] || set -- {bt,cg,ft,is,lu,sp}-{S,W} mg-S ep-S
for kernel; do
    "$numaherd" trace record -o "$work/trace" -- "$menagerie" kernel "${kernel%-*}" --class "${kernel#*-}" \
        --iterations 1 --threads 4 >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
    for loops in 1 2; do
        "$numaherd" trace simulate "$work/trace" --machine itanium-9030-4s --policies first-touch --loops $loops --json \
            >"$work/$loops"
    done
    of() { echo $(($(figure "$work/2" "$1") - $(figure "$work/1" "$1"))); }
    awk -v name="$kernel" -v lines="$(of dirty_transfers)" -v instructions="$(of instructions)" \
        'BEGIN { printf "%-6s %.3f\n", name, 1000 * lines / instructions }'
done
