# In a guest with four nodes of two CPUs: what each capability is for, by taking it away. Says what held, a
# line each; what did not is shown as it is.
mask() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status"; }
say() { [ "$2" = "$3" ] && echo "$1" || echo "NOT: $1 ($2, not $3)"; }
tells() { grep -q "$2" "$3" && echo "$1" || { echo "NOT: $1:"; cat "$3"; }; }
# Asks over and over, for at most so many times.
until_holds() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 20000 ] || { echo "never held: $*"; return 1; }
    done
}
# Runs a command as root with these capabilities and no others.
only="setpriv --inh-caps=-all --bounding-set=-all"
echo 3 >/proc/sys/kernel/perf_event_paranoid

# Somebody else's busy program.
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'while :; do :; done' & p=$!
found=$(mask $p)

# A draw may be where the program is already, and then nothing moves: another seed draws again.
for seed in 1 2 3 4 5 6 7 8 9 10; do
    $only,+sys_nice,+sys_ptrace,+perfmon "$NUMAHERD" run --policy random+whole-set --seed $seed --interval 50ms --for 1s \
        --pid $p --json >/tmp/out 2>&1
    ended=$?
    [ $ended = 0 ] || break
    if grep -q '"pages_moved": [1-9]' /tmp/out; then break; fi
done
say "with the service's three it ran" $ended 0
tells "with the service's three threads were moved" '"thread_moves": [1-9]' /tmp/out
tells "with the service's three pages were moved" '"pages_moved": [1-9]' /tmp/out

$only,+sys_ptrace,+perfmon "$NUMAHERD" run --policy random --pid $p >/tmp/out 2>&1
say "without CAP_SYS_NICE others' threads are refused with 4" $? 4
tells "that it is CAP_SYS_NICE is said" 'give numaherd CAP_SYS_NICE' /tmp/out
$only,+sys_ptrace,+perfmon "$NUMAHERD" run --policy random --interval 50ms --for 1s >/tmp/out 2>&1
tells "without CAP_SYS_NICE one's own are herded, which is said" 'only processes of this user (0)' /tmp/out
say "without CAP_SYS_NICE nothing was done" "$(mask $p)" "$found"

$only,+sys_nice,+perfmon "$NUMAHERD" run --policy homeward --pid $p >/tmp/out 2>&1
say "without CAP_SYS_PTRACE others' memory is refused with 4" $? 4
tells "that it is CAP_SYS_PTRACE is said" 'give numaherd CAP_SYS_PTRACE' /tmp/out
say "without CAP_SYS_PTRACE nothing was done" "$(mask $p)" "$found"
$only,+sys_nice,+perfmon "$NUMAHERD" serve --policy random --interval 50ms --pid $p --listen none >/tmp/out 2>&1 & h=$!
changed() { [ "$(mask $p)" != "$found" ]; }
until_holds changed && echo "without CAP_SYS_PTRACE threads alone are placed"
"$NUMAHERD" ctl policy random+whole-set >/tmp/ctl 2>&1
tells "a later policy that would move pages is refused as well" 'give numaherd CAP_SYS_PTRACE' /tmp/ctl
kill -TERM $h; wait $h
say "without CAP_SYS_PTRACE the affinity is given back" "$? $(mask $p)" "0 $found"

$only,+sys_nice,+sys_ptrace "$NUMAHERD" run --policy dino --pid $p >/tmp/out 2>&1
say "without CAP_PERFMON counts are refused with 3" $? 3
tells "that it is CAP_PERFMON is said" 'give it CAP_PERFMON' /tmp/out
say "without CAP_PERFMON nothing was done" "$(mask $p)" "$found"

# What root keeps of all that it has, and what the program that it starts has.
"$NUMAHERD" serve --policy random --interval 50ms --pid $p --listen none >/tmp/out 2>&1 & h=$!
until_holds changed
say "root's herd keeps five capabilities" "$(sed -n 's/^CapPrm:[[:space:]]*//p' /proc/$h/status)" 0000004000884002
say "nothing that it starts gets any" "$(sed -n 's/^CapBnd:[[:space:]]*//p; s/^NoNewPrivs:[[:space:]]*//p' /proc/$h/status | tr '\n' ' ')" \
    "0000000000000000 1 "
kill -TERM $h; wait $h
"$NUMAHERD" run --policy random -- grep '^Cap\|^NoNewPrivs' /proc/self/status 2>/dev/null |
    grep '^Cap\|^NoNewPrivs' >/tmp/started
grep '^Cap\|^NoNewPrivs' /proc/self/status >/tmp/own
say "the program that a run starts has all of root's" "$(diff /tmp/own /tmp/started)" ""
kill $p
exit 0
