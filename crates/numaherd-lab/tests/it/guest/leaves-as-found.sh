# In a guest with four nodes of two CPUs. Says what held, a line each; what did not is shown as it is.
journal=/run/numaherd/journal
mask() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
# Waits until a process has another mask than this; the kernel is asked over and over, for at most
# so many times.
changed() {
    tries=0
    while [ "$(mask "$1")" = "$2" ]; do
        tries=$((tries + 1))
        [ $tries -lt 20000 ] || { echo "the affinity of $1 is still $2"; return 1; }
    done
}
say() { [ "$2" = "$3" ] && echo "$1" || echo "NOT: $1 ($2, not $3)"; }
run() { "$NUMAHERD" run --policy random --interval 50ms "$@"; }

sh -c 'while :; do :; done' & p=$!
found=$(mask $p)

"$NUMAHERD" run --policy random --interval 50ms --pid $p >/dev/null 2>&1 & h=$!
changed $p "$found"
kill -TERM $h; wait $h
say "after SIGTERM the affinity is as found" "$(mask $p)" "$found"

"$NUMAHERD" run --policy random --interval 50ms --pid $p >/dev/null 2>&1 & h=$!
changed $p "$found"
"$NUMAHERD" run --policy linux --pid $p; say "a second numaherd is refused with 6" $? 6
kill -KILL $h; wait $h 2>/dev/null
[ "$(mask $p)" != "$found" ] && echo "after kill -9 the affinity was ours"
"$NUMAHERD" release
say "after release the affinity is as found" "$(mask $p)" "$found"

# A thread that does not run keeps its mask when the CPUs in it go.
"$NUMAHERD" run --policy random --interval 50ms --cpus 2-7 --pid $p >/dev/null 2>&1 & h=$!
changed $p "$found"
kill -KILL $h; wait $h 2>/dev/null
kill -STOP $p
until grep -q '^State:[[:space:]]*T' /proc/$p/status; do :; done
online() { for cpu in 1 2 3 4 5 6 7; do echo "$1" >/sys/devices/system/cpu/cpu$cpu/online; done; }
online 0
"$NUMAHERD" release
online 1
kill -CONT $p
say "released while all its CPUs were offline, the affinity is as found" "$(mask $p)" "$found"

run --dry-run --for 500ms --pid $p >/dev/null
say "a dry run changed nothing" "$(mask $p)" "$found"

sh -c 'while :; do :; done' & q=$!
taskset -pc 1 $q >/dev/null
run --for 500ms --pid $q >/dev/null
say "a pinned thread was left alone" "$(mask $q)" 1
kill $q

mkdir -p /tmp/cg && mount -t cgroup2 none /tmp/cg 2>/dev/null
echo +cpuset > /tmp/cg/cgroup.subtree_control
mkdir /tmp/cg/small
echo 2-3 > /tmp/cg/small/cpuset.cpus
echo $p > /tmp/cg/small/cgroup.procs
run --for 500ms --pid $p >/dev/null
say "a cpuset that forbids the rest was obeyed" "$(mask $p)" 2-3

echo 3 > /proc/sys/kernel/perf_event_paranoid
setpriv --reuid 65534 --regid 65534 --clear-groups \
    "$NUMAHERD" run --policy dino --journal /tmp/nobody/journal -- true
say "without permission dino is refused with 3" $? 3
kill $p
exit 0
