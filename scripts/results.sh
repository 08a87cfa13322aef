#!/usr/bin/env bash
# Writes docs/results.md: the comparisons of the built-in scenarios as they come out here.
#
#   scripts/results.sh          both scenarios, about 20 minutes on 2 cores
#   REPEAT=5 scripts/results.sh more repeats of each
set -euo pipefail
cd "$(dirname "$0")/.."

repeat=${REPEAT:-5}
scripts/setup.sh >/dev/null
scripts/build.sh

compare() { # compare SCENARIO POLICIES REPEAT
    local command="numaherd lab compare $1 --policies $2 --repeat $3"
    printf '\n## %s\n\n```\n$ %s\n' "$1" "$command"
    target/release/numaherd lab compare "$1" --policies "$2" --repeat "$3"
    printf '```\n'
}

{
    printf '# Results\n\n'
    printf 'What the commands below print; `scripts/results.sh` runs them anew. The lab is a model: what\n'
    printf 'counts is who comes before whom and why, not the seconds.\n'
    compare devils-on-one-node linux,linux-balancing,numad,di-plain,di-migrate,dino "$repeat"
    compare changing-phases linux,di-migrate,dino 1
} >docs/results.md.new
mv docs/results.md.new docs/results.md
