#!/usr/bin/env bash
# Measures speed and memory, each compared with an alternative in the same run, and writes docs/bench.md. Machines
# differ and are noisy: look at the ratios.
#
#   scripts/bench.sh            all parts, in this order
#   scripts/bench.sh PART...    these; the page keeps the other parts as they were measured last
#
#   decide     dino, di and adaptive deciding, for growing numbers of threads (target 0.5 ms for 1,000, 50 ms for 100,000;
#              for adaptive ten times as long)
#   n_mass     n-mass deciding, for growing numbers of threads and domains
#   mapping    EagerMap beside the refined mapper, 64 to 4,096 threads
#   brm        brm's penalties, plain and sharded, 2 to 4,096 vCPUs
#   epochs     the contention model: an hour of eight programs (target 50 ms), an epoch of 10,000 threads
#              on 64 nodes (target 100 ms)
#   tick       one tick of `run` over 1,000 live threads, beside a refresh of `top` and `pidstat` (target 2 ms of CPU
#              for threads that sleep, 20 ms for threads that wake)
#   memory     memory of `run` for each thread (target 512 MB for 100,000)
#   rest       what leaving `run` on costs over 1,001 threads, asleep and waking, for two minutes each, beside `top` and
#              `pidstat` (target 0.2 % of a core and 20 MB of ledger an hour, 1 % of a core)
#   interval   one interval of the loop, with and without a ledger
#   accesses   the hardware model, accesses per second
#   residency  residency simulation beside cachegrind and lackey (target 50 million accesses per second)
#   speed      the lab: accesses modelled per second of CPU time, beside cachegrind; what a modelled second costs
#   replay     three policies on the ledger of an hour of 200 threads (target 3.6 s: 1,000 times real time)
#   top        a redraw of 5,000 threads, compared with reading their line and a table of all (target 16 ms)
#   pages      page moves compared with `migratepages`, in the lab (target 95 % of its throughput, p99 5 ms)
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/bench.md
parts=(decide n_mass mapping brm epochs tick memory rest interval accesses residency speed replay top pages)
declare -A crates=(
    [decide]=numaherd-policy [n_mass]=numaherd-policy [mapping]=numaherd-policy [brm]=numaherd-policy
    [epochs]=numaherd-model [tick]=numaherd-host [memory]=numaherd [rest]=numaherd [interval]=numaherd-herd
    [accesses]=numaherd-hardware [residency]=numaherd-hardware [speed]=numaherd-lab-launcher
    [replay]=numaherd-show [top]=numaherd-show [pages]=numaherd-host
)

# What a part is, from the list above.
about() {
    awk -v part="$1" '
        /^#   [a-z]/ { of = $2 }
        /^#   / && of == part { sub("^# *(" part " +)?", ""); print }
        /^set/ { exit }
    ' scripts/bench.sh | paste -sd' '
}

# Measures a part; what it prints goes to the page.
measure() {
    local bench=(cargo bench --locked -p "${crates[$1]}" --bench "$1")
    case $1 in
        decide | n_mass | epochs | interval | accesses | replay | top) "${bench[@]}" -- --output-format bencher ;;
        pages)
            # Runs in the guest, because page moves need two nodes. Cargo reports the path of the program.
            local program
            program=$("${bench[@]}" --no-run --message-format json |
                sed -n 's/.*"name":"pages".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
            [ -n "$program" ] || { echo "bench: cargo did not report the path of the page benchmark" >&2; exit 1; }
            "${NUMAHERD:-${CARGO_TARGET_DIR:-target}/release/numaherd}" lab run -- "$program" --bench
            ;;
        *) "${bench[@]}" ;;
    esac
}

# A part's section as the page has it.
kept() {
    [ ! -f "$page" ] || awk -v part="$1" '/^## / { of = $2 } of == part' "$page"
}

# Measures a part, and gives its section.
section() {
    local load output commit
    commit=$(git log -1 --format=%h --abbrev=12 -- . ':!docs' ':!*.md')
    [ -z "$(git status --porcelain --untracked-files=no -- . ':!docs' ':!*.md')" ] || commit+=' and changes'
    load=$(cut -d' ' -f1 /proc/loadavg)
    output=$(measure "$1" | tee /dev/stderr)
    printf '## %s\n\n%s.\n\n' "$1" "$(about "$1")"
    printf 'Measured on %s at commit %s: %s, %s CPUs, load of the host before %s.\n\n' "$(date -u +%F)" "$commit" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sed -n 1p)" "$(nproc)" "$load"
    printf '```\n%s\n```\n' "$(sed 's/ *$//' <<<"$output" | cat -s)"
}

# Writes the page with a new section of a part, and the others as they are.
write_page() {
    local name text sections=() missing=()
    for name in "${parts[@]}"; do
        text=$(kept "$name")
        [ "$name" != "$1" ] || text=$2
        if [ -n "$text" ]; then sections+=("$text"); else missing+=("\`$name\`"); fi
    done
    {
        cat <<'HEAD'
# Speed and memory

This page is the last output of `make bench`. Each part stands beside an alternative in the same run, since machines
differ and are noisy: look at the ratios. [scripts/bench.sh](../scripts/bench.sh) writes the page; `scripts/bench.sh
PART...` measures parts again and keeps the others. The load says how busy the host was with other work.
HEAD
        [ ${#missing[@]} -eq 0 ] || printf '\nNot measured yet: %s.\n' "$(sed 's/ /, /g' <<<"${missing[*]}")"
        printf '\n%s\n' "${sections[@]}"
    } >"$page.new"
    mv "$page.new" "$page"
}

for name; do
    [ -n "${crates[$name]:-}" ] || { echo "bench: there is no part '$name': ${parts[*]}" >&2; exit 2; }
done
# After each part, so that nothing measured is lost.
[ $# -gt 0 ] || set -- "${parts[@]}"
for name; do
    new=$(section "$name")
    write_page "$name" "$new"
done
