# In a guest whose nodes differ: 0 is large, 1 has CPUs and no memory, 2 has memory and no CPUs, 3 is
# small. Says what held, a line each; what did not is shown as it is.
mask() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
say() { [ "$2" = "$3" ] && echo "$1" || echo "NOT: $1 ($2, not $3)"; }
has() { grep -q "$2" "$3" && echo "$1" || { echo "NOT: $1:"; cat "$3"; }; }
folder=$(mktemp -d); cd "$folder" || exit 1

"$NUMAHERD" topology >topology
has "a node without memory is shown" 'no memory' topology
has "a node without CPUs is shown" 'no CPUs' topology
"$NUMAHERD" doctor >doctor
has "the doctor counts the nodes with memory" '3 memory nodes' doctor

# One with its memory where no CPUs are, one started where no memory is, one as any.
numactl --membind 2 sh -c 'while :; do :; done' & far=$!
taskset -c 4 sh -c 'taskset -pc 0-7 $$ >/dev/null; while :; do :; done' & poor=$!
sh -c 'while :; do :; done' & any=$!
all="$far $poor $any"
pids=$(echo "$all" | tr ' ' ,)
found=$(for p in $all; do mask "$p"; done)

ran=0 missing=0
for policy in $("$NUMAHERD" policies --json | sed -n 's/^    "name": "\([a-z-]*\)",$/\1/p') random+whole-set; do
    # For programs that it starts, and for modelled worlds.
    case $policy in interleave | random-mapping | *oracle) continue ;; esac
    "$NUMAHERD" run --policy "$policy" --interval 100ms --for 500ms --pid "$pids" --ledger "$policy" --json >out 2>&1
    case $? in
    0) ran=$((ran + 1)) ;;
    3) missing=$((missing + 1)) ;;
    *) echo "NOT: $policy ran:"; cat out ;;
    esac
    grep -q '"by": "failed"' out && { echo "NOT: $policy ran to its end:"; cat out; }
    [ "$(for p in $all; do mask "$p"; done)" = "$found" ] || echo "NOT: $policy gave all affinities back"
done
echo "ran $ran, missing signals for $missing"
"$NUMAHERD" run --policy interleave -- cat /proc/self/numa_maps >maps 2>/dev/null
say "new pages are spread over the nodes with memory" "$(grep -o ' N[0-9]=' maps | sort -u | tr -d '\n')" " N0= N2= N3="
for p in $all; do grep -h -o ' N1=[0-9]*' "/proc/$p/numa_maps"; done >stray
say "no page is on the node without memory" "$(cat stray)" ""
for ledger in random homeward; do
    "$NUMAHERD" explain $ledger >explained || echo "NOT: $ledger is explained"
    "$NUMAHERD" top --once $ledger >shown || echo "NOT: $ledger is shown"
    "$NUMAHERD" report $ledger -o report.html || echo "NOT: $ledger is reported"
done
has "a run is explained, shown and reported" ' 3 threads on lab' explained
kill $all
exit 0
