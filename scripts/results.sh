#!/usr/bin/env bash
# Writes docs/results.md and docs/figures/results.svg: scenarios of the lab under the kernel, programs of others and
# policies of ours, on this machine.
#
#   scripts/results.sh   one stage of some ten minutes: makes trials that were not made yet, and writes the page with
#                        those that were. Run it again until it no longer says that trials were not made.
#
# Trials are kept in target/results, by the last commit that changed more than documents; one that failed is made again
# if its file is removed. `make setup`, `scripts/setup.sh linux 7.3` and `scripts/setup.sh peers` come first; a peer that is
# missing says so on the page. These can be set (their values here are the defaults), and stay the same for all stages:
#
#   SCENARIOS="scenarios/table.toml …"   all in scenarios, scenarios/kernels and scenarios/programs, but the demo
#   CONTENDERS=linux,…                   as below; ipm is left out, which needs a machine with its unit
#   KERNELS=7.3  REPEAT=3  STAGE=7m      the kernels, the repeats, and how long trials may begin
set -euo pipefail
cd "$(dirname "$0")/.."

shopt -s nullglob
all=(scenarios/*.toml scenarios/{kernels,programs}/*.toml)
read -ra scenarios <<<"${SCENARIOS:-${all[*]/scenarios\/demo.toml/}}"
contenders=${CONTENDERS:-linux,linux-balancing,linux-cache-aware,interleave,weighted-interleave,numad,scx_layered,scx_rusty,scx_cosmos,n-mass,di-migrate,dino,brm,adaptive}
kernels=${KERNELS:-7.3} repeat=${REPEAT:-3}
page=docs/results.md chart=docs/figures/results.svg

[ -z "$(git status --porcelain --untracked-files=no -- . ':!docs' ':!*.md')" ] || {
    echo "results: commit your changes first: trials are kept by commit" >&2
    exit 1
}
commit=$(git log -1 --format=%h --abbrev=12 -- . ':!docs' ':!*.md')
[ -n "${NUMAHERD:-}" ] || scripts/build.sh
numaherd=${NUMAHERD:-${CARGO_TARGET_DIR:-target}/release/numaherd}

compared=(lab compare "${scenarios[@]}" --kernel "$kernels" --policies "$contenders" --repeat "$repeat")
status=0
output=$("$numaherd" "${compared[@]}" --keep "target/results/$commit" --for "${STAGE:-7m}" --chart "$chart") ||
    status=$?
[ -n "$output" ] || exit "$status"
overview=${output##*$'\nAll scenarios\n'}
{
    printf '# Results\n\n'
    printf 'This page compares the kernel, other programs and policies of Numaherd in scenarios of [the lab](lab.md), with the\n'
    printf 'worst case of each first. `scripts/results.sh` writes it in stages. Time is modelled, but the load of the host\n'
    printf 'influences it. Tables give the number of trials; no figure contains a trial that was not run.\n\n'
    printf '* Machine: %s, %s CPUs\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sed -n 1p)" "$(nproc)"
    printf '* Commit: %s\n* Date: %s\n\n' "$commit" "$(date -u +%F)"
    printf '![Time of each contender as a share of that of Linux](figures/results.svg)\n\n'
    printf '```\n$ numaherd %s\n```\n\n' "${compared[*]}"
    printf '## All scenarios\n\n```\n%s\n```\n\n' "$overview"
    printf '## Each scenario\n\n```\n%s\n```\n' "${output%%$'\nAll scenarios\n'*}"
} >"$page.new"
mv "$page.new" "$page"
exit "$status"
