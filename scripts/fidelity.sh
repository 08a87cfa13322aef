#!/bin/sh
# Renews docs/fidelity.json and docs/FIDELITY.md: checks every claim of the papers on model and traces. Traces that are
# not there are recorded.
#
#   scripts/fidelity.sh                        all papers
#   scripts/fidelity.sh brm                    only this one; the lines of the others stay as they are
#   scripts/fidelity.sh ipm --fresh-traces     this one, with all its traces recorded again
set -eu
cd "$(dirname "$0")/.."
scripts/build.sh
program="${CARGO_TARGET_DIR:-target}/release/numaherd-lab"
paper=${1:-all}
[ $# -eq 0 ] || shift
# The record and what is made of it do not change what is measured.
commit=$(git log -1 --format=%h -- . ':!docs')
git diff --quiet HEAD -- . ':!docs' || commit=$commit-dirty
exec "$program" reproduce "$paper" --record docs/fidelity.json --commit "$commit" --markdown docs/FIDELITY.md "$@"
