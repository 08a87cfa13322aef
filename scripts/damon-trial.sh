#!/usr/bin/env bash
# Tries DAMON as what moves the pages that `tiered` orders, beside move_pages, and prints a transcript. It needs Linux 6.17 or
# newer and a memory node without CPUs, so it runs in the lab's guest:
#
#   scripts/setup.sh linux 7.3
#   scripts/damon-trial.sh [PROGRAMS]
#
# PROGRAMS is the folder of numaherd and numaherd-lab; default target/release. LIMIT: how long the guest may take (15m).
#
# A program takes node 0 up to 60 MiB and rests, but for 16 MiB that it touches every 80 ms. Node 1 has memory alone. The guest
# has the host's time and samples nothing, so all memory of the program counts as cold; what it touches should stay.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(realpath "${1:-target/release}")

die() {
    echo "damon-trial: $*" >&2
    exit 1
}

if [ "$(uname -n)" != lab ]; then
    machine=$(mktemp --suffix .toml)
    trap 'rm -f "$machine"' EXIT
    sed -e 's/^name = .*/name = "apart"/' -e 's/^nodes = 2/&\ndomains_per_node = [1, 0]/' -e 's/^cores_per_domain = .*/cores_per_domain = 2/' \
        -e 's/^memory_per_node_mib = .*/memory_per_node_mib = 1536/' data/machines/lab-2x4.toml >"$machine"
    "$programs/numaherd-lab" lab run --machine "$machine" --real-time --kernel 7.3 --limit "${LIMIT:-15m}" -- "$0" "$programs"
    exit
fi

kdamonds=/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
[ -e "$kdamonds" ] || die "this kernel has no $kdamonds"
# The kernel's own statistics keep DAMON to themselves.
[ ! -e /sys/module/damon_stat ] || echo N >/sys/module/damon_stat/parameters/enabled
mountpoint -q /run || mount -t tmpfs none /run
work=$(mktemp -d)
numaherd=$programs/numaherd
cat >"$work/rests.py" <<'END'
import mmap, sys, time
block = 2 << 20
def filled(size):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, block):
        memory[at:at + block] = b"x" * block
    return memory
used = filled(16 << 20)
free = next(int(line.split()[3]) for line in open("/sys/devices/system/node/node0/meminfo") if "MemFree" in line)
cold = filled((free - 60 * 1024) // 2048 * block)
open(sys.argv[1], "w").write("ready")
while True:
    for at in range(0, len(used), block):
        used[at]
    time.sleep(0.08)
END

# The pages of the program's two mappings on each node.
pages() { awk '/anon=/ { for (i = 1; i <= NF; i++) if ($i ~ /^anon=/) { split($i, a, "="); if (a[2] >= 4096) print } }' "/proc/$program/numa_maps" |
    grep -o 'anon=[0-9]*\|N[01]=[0-9]*' | tr '\n' ' '; }
begin() { # begin [KEY...]
    rm -f "$work/ready"
    python3 "$work/rests.py" "$work/ready" &
    program=$!
    until [ -s "$work/ready" ]; do sleep 0.2; done
    printf '%s\n' 'policy = "tiered"' "$@" '[policies.tiered]' 'cold_after_s = 2' >"$work/config.toml"
    echo "the program's pages: $(pages)"
}

echo "Linux $(uname -r); $("$numaherd" doctor | grep -A1 'ways to move' | tr -s ' \n' ' ')"
for damon in false true; do
    printf '\n== damon = %s\n' "$damon"
    begin "damon = $damon"
    "$numaherd" run --config "$work/config.toml" --pid "$program" --ledger "$work/ledger" --for 25s >"$work/out" 2>&1 &
    herd=$!
    sleep 22
    read -r -a stat <"/proc/$herd/stat"
    echo "after 22 s the herd has used $(((stat[13] + stat[14]) * 10)) ms of a CPU, its program $(awk '{ print ($14 + $15) * 10 }' "/proc/$program/stat") ms"
    wait "$herd" || true
    cat "$work/out"
    echo "the program's pages: $(pages)"
    "$numaherd" explain "$work/ledger" | grep -i 'tiered\|moved\|used' | head -n 20 || true
    echo "nr_kdamonds: $(cat "$kdamonds")"
    kill "$program"
    wait "$program" 2>/dev/null || true
done

printf '\n== kill -9 in a round\n'
begin "damon = true"
"$numaherd" run --config "$work/config.toml" --pid "$program" >"$work/out" 2>&1 &
herd=$!
# The first are those with which it tries whether it can.
# The first are those with which it tries whether it can.
for want in some none some; do
    while read -r n <"$kdamonds"; do
        [ -e "/proc/$herd" ] || die "the herd has ended: $(cat "$work/out")"
        case $want in some) [ "$n" = 0 ] || break ;; none) [ "$n" != 0 ] || break ;; esac
    done
done
kill -9 "$herd"
wait "$herd" 2>/dev/null || true
echo "killed; nr_kdamonds: $(cat "$kdamonds")"
"$numaherd" doctor | grep -A1 'ways to move' | tr -s ' \n' ' '
echo
"$numaherd" release
echo "nr_kdamonds: $(cat "$kdamonds")"

printf "\n== somebody else's kdamonds\n"
echo 2 >"$kdamonds"
"$numaherd" run --config "$work/config.toml" --pid "$program" --for 3s 2>&1
"$numaherd" release
echo "nr_kdamonds: $(cat "$kdamonds")"
kill "$program"
