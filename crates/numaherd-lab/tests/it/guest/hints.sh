# In a guest with four nodes of two CPUs. Files in place of the kernel's say that a scheduler for hints runs; only its map,
# made by $HINTS, is real. Says what held, a line each; what did not is shown as it is.
map=/sys/fs/bpf/numaherd/hints
hint() { "$HINTS" of $map "$1"; }
mask() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
say() { [ "$2" = "$3" ] && echo "$1" || echo "NOT: $1 ($2, not $3)"; }
hinted() { "$HINTS" wait $map "$1" || { echo "NOT: $1 has a hint"; return 1; }; }
set -- "$NUMAHERD" run --policy random --interval 50ms --enforce scx

sh -c 'while :; do :; done' & p=$!
sleep 1000 & q=$!
found=$(mask $p)
"$@" --pid $p 2>&1 | sed -n 's/.*\(no sched_ext\).*/without sched_ext, hints are refused: \1/p'

mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /sys/kernel
mkdir -p /sys/kernel/sched_ext/root "${map%/*}"
echo enabled >/sys/kernel/sched_ext/state
echo lavd >/sys/kernel/sched_ext/root/ops
"$HINTS" make $map
"$@" --pid $p 2>&1 | sed -n 's/.*\(the sched_ext scheduler lavd runs\).*/beside another scheduler, hints are refused: \1/p'
say "nothing was done until then" "$(hint $p)" none
echo layered_1.1.4 >/sys/kernel/sched_ext/root/ops

"$@" --pid $p >/dev/null 2>&1 & h=$!
hinted $p && echo "a placed thread has a hint"
say "its affinity is as found" "$(mask $p)" "$found"
say "the thread of another has none" "$(hint $q)" none
kill -TERM $h; wait $h
say "after SIGTERM it prefers no place" "$(hint $p)" 0

"$@" --pid $p >/dev/null 2>&1 & h=$!
hinted $p
kill -KILL $h; wait $h 2>/dev/null
hinted $p && echo "after kill -9 it has its hint still"
"$NUMAHERD" release
say "after release it prefers no place" "$(hint $p)" 0

"$@" --pid $p >/dev/null 2>&1 & h=$!
hinted $p
kill -KILL $h; wait $h 2>/dev/null
"$@" --pid $q --for 500ms >/dev/null 2>&1
say "the next run takes hints back that were left" "$(hint $p)" 0

rm $map
mkdir $map
"$@" --pid $p 2>&1 | sed -n 's/.*\(cannot open the map of hints\).*/what is no map is refused: \1/p'
kill $p $q
exit 0
