#!/usr/bin/env bash
# Writes docs/results.md: the comparisons of the built-in scenarios, run on this machine.
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
    printf 'The output of the commands below; `scripts/results.sh` runs them again. The lab models time: rely on\n'
    printf 'the order of the policies and the reasons for it, not on the seconds.\n'
    compare devils-on-one-node linux,linux-balancing,numad,di-plain,di-migrate,dino "$repeat"
    compare changing-phases linux,di-migrate,dino 1
} >docs/results.md.new
mv docs/results.md.new docs/results.md
