#!/usr/bin/env bash
# Compares scenarios of the lab on this machine, under the kernel, programs of others and policies of ours, and writes the
# page and the chart of a table:
#
#   scripts/results.sh [TABLE]
#
#   peers      (default) real programs and known cases, all contenders, Linux 7.3: docs/results.md
#   adaptive   what the default policy must gain and must leave alone, beside Linux with and without NUMA balancing, Linux 6.12:
#              docs/results-adaptive.md
#
# Each call is one stage of some ten minutes: it makes trials that were not made yet, and writes the page with those that were.
# Run it again until it no longer says that trials were not made. What the page has under "Notes" is written by hand, and stays.
#
# Trials are kept in docs/trials, a file each, in a folder for the last commit that changed more than documents, and are there to
# be committed. One is made again when its scenario, the lab or the workloads have changed, and one of our policies also when what
# decides and acts has, comments aside. One that failed is made again if its file is removed.
#
# `make setup`, `scripts/setup.sh linux 7.3` and `scripts/setup.sh peers` come first; a peer that is missing says so on the page.
# These can be set, and stay the same for all stages:
#
#   SCENARIOS="scenarios/table.toml …"   as of the table
#   CONTENDERS=linux,…                   as of the table
#   KERNELS=7.3                          as of the table
#   REPEAT=3  STAGE=7m                   the repeats, and how long trials may begin
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."

table=${1:-peers}
case $table in
    peers)
        page=docs/results.md title=Results kernels=7.3
        about='This page compares the kernel, other programs and policies of Numaherd in cases that are known to be hard, and with
programs that people run.'
        # ipm is left out, which needs a machine with its unit.
        contenders=linux,linux-balancing,linux-cache-aware,interleave,weighted-interleave,numad,scx_layered,scx_rusty,scx_cosmos,n-mass,di-migrate,dino,brm,adaptive
        scenarios=(scenarios/{devils-on-one-node,table,unlucky-order,nothing-to-gain}.toml
            scenarios/programs/*.toml)
        ;;
    adaptive)
        page=docs/results-adaptive.md title='What the default policy gains and leaves alone' kernels=6.12
        about='This page has the scenarios in which `adaptive` is held to two promises: it is never behind the better of Linux with and
without NUMA balancing, whether the kernel balances beside it or not, and ahead of it where there is something to gain.'
        contenders=linux,linux-balancing,adaptive,adaptive@balancing
        scenarios=(scenarios/{devils-on-one-node,table,unlucky-order,changing-phases,shared-table,four-streams,pairs,growing}.toml
            scenarios/{short-jobs,pinned,spread-by-user,nothing-to-gain,programs/stream,agreement/turtles-and-devils}.toml
            scenarios/kernels/{cg,mg,sp,stencil}.toml scenarios/brm/{caches-apart,memory-near,beside-others}.toml)
        ;;
    *)
        echo "results: unknown table '$table': peers or adaptive" >&2
        exit 2
        ;;
esac
[ -z "${SCENARIOS:-}" ] || read -ra scenarios <<<"$SCENARIOS"
contenders=${CONTENDERS:-$contenders} kernels=${KERNELS:-$kernels} repeat=${REPEAT:-3}
name=$(basename "$page" .md)
chart=docs/figures/$name.svg

[ -z "$(git status --porcelain --untracked-files=no -- . ':!docs' ':!*.md')" ] || {
    echo "results: commit your changes first: trials are kept by commit" >&2
    exit 1
}
commit=$(git log -1 --format=%h --abbrev=12 -- . ':!docs' ':!*.md')
[ -n "${NUMAHERD:-}" ] || scripts/build.sh
numaherd=${NUMAHERD:-${CARGO_TARGET_DIR:-target}/release/numaherd}

# What is known of the trials of earlier commits, with what this commit has.
trials=docs/trials kept=target/results/$commit
lab=(crates/{experiment,hardware,lab,topology}/src crates/lab/*/src crates/lab/pmu data/machines menagerie
    crates/numaherd-lab/src/{cli,compare,guest,held,lab}*
    # What only prints, or is of other experiments.
    ':!crates/experiment/src/'{chart,claims,penalties,playback,statistics,table}'*'
    ':!crates/numaherd-lab/src/compare/'{overview,table}.rs
    ':!crates/hardware/src/ipm*' ':!**/tests/**' ':!**/tests.rs' ':!**/snapshots/**' ':!*.md')
ours=(crates/{contention,files,herd,host,numaherd,policy,quantity,world}/src crates/show/src/run*
    # What only adds up and tells.
    ':!crates/herd/src/summary.rs' ':!crates/policy/src/losses.rs')
# What `adaptive` decides by; its search also estimates what is lost under the others.
not_adaptive=(':!crates/policy/src/placement/adaptive.rs' ':!crates/policy/src/placement/adaptive/[!s]*')
mkdir -p "$kept" "$trials/$commit"
find "$trials" -name '*.json' | while read -r file; do
    # SCENARIO.KERNEL.CONTENDER.REPEAT.json; a scenario's name need not be that of its file. Its own comes before those of its
    # programs.
    trial=$(basename "$file") contender=${file%.*.json} changed=0
    mapfile -t paths < <(grep -rm1 '^name = ' scenarios | sed -n "s/:name = \"${trial%%.*}\"$//p")
    paths+=("${lab[@]}")
    case ${contender##*.} in
        linux | linux-* | interleave | weighted-interleave | numad | scx_*) ;;
        adaptive*) paths+=("${ours[@]}") ;;
        *) paths+=("${ours[@]}" "${not_adaptive[@]}") ;;
    esac
    git diff --quiet -I'^\s*//' "$(basename "$(dirname "$file")")" HEAD -- "${paths[@]}" || changed=$?
    case $changed in
        0) cp -n "$file" "$kept" ;;
        1) rm "$file" ;;
        # Of a commit that this repository does not have, such as a shallow one.
        *) echo "results: what has changed since $file is not known: it is left out" >&2 ;;
    esac
done

compared=(lab compare "${scenarios[@]}" --kernel "$kernels" --policies "$contenders" --repeat "$repeat")
status=0
output=$("$numaherd" "${compared[@]}" --keep "$kept" --limit 9m --for "${STAGE:-7m}" --chart "$chart") ||
    status=$?
host="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sed -n 1p), $(nproc) CPUs, $(. /etc/os-release && echo "$PRETTY_NAME")"
for file in "$kept"/*.json; do
    [ -z "$(find "$trials" -name "$(basename "$file")")" ] || continue
    cp "$file" "$trials/$commit"
    grep -qsxF "$host" "$trials/$commit/hosts" || echo "$host" >>"$trials/$commit/hosts"
done
for folder in "$trials"/*/; do
    compgen -G "$folder*.json" >/dev/null || rm -r "$folder"
done
commits=$(find "$trials" -regextype egrep -regex ".*\.(${kernels//,/|})\..*" -printf '%h\n' | sort -u | sed 's|.*/||' | paste -sd ' ')
[ -n "$output" ] || exit "$status"
overview=${output##*$'\nAll scenarios\n'}
notes=$([ ! -f "$page" ] || sed -n '/^## Notes$/,/^## Each scenario$/p' "$page" | sed '$d')
{
    printf '# %s\n\n%s\n\n' "$title" "$about"
    printf 'It has the worst case of each first. `scripts/results.sh %s` writes it in stages; [the lab](lab.md) is where trials are\n' "$table"
    printf 'made. Time is modelled, but the load of the host influences it. Tables give the number of trials; no figure contains a\n'
    printf 'trial that was not run.\n\n'
    printf '* Trials are of commits: %s ([docs/trials](trials))\n' "$commits"
    printf '* They were made on: %s\n' "$(cat /dev/null "$trials"/*/hosts | sort -u | paste -sd ';' | sed 's/;/; /g')"
    printf '* Written: %s\n\n' "$(date -u +%F)"
    printf '![Time of each contender as a share of that of Linux](figures/%s.svg)\n\n' "$name"
    printf '```\n$ numaherd %s\n```\n\n' "${compared[*]}"
    printf '## All scenarios\n\n```\n%s\n```\n\n' "$overview"
    [ -z "$notes" ] || printf '%s\n\n' "$notes"
    printf '## Each scenario\n\n```\n%s\n```\n' "${output%%$'\nAll scenarios\n'*}"
} >"$page.new"
mv "$page.new" "$page"
exit "$status"
