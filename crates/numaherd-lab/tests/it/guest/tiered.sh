# In a guest with a node that has memory and no CPUs, in modelled time: what rests goes there while node 0 is short of memory,
# what is used there comes back, and what its user gave a place stays. Says what held, a line each; what did not is shown.
say() { [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] && echo "$1" || echo "NOT: $1 ($2, not from $3 to $4)"; }
pages() { grep -o " N$2=[0-9]*" "/proc/$1/numa_maps" | cut -d= -f2 | awk '{ all += $1 } END { print all + 0 }'; }
mib() { awk "/$1/ { print int(\$4 / 1024) }" /sys/devices/system/node/node0/meminfo; }
folder=$(mktemp -d); cd "$folder" || exit 1
mkfifo go
echo 0 >/proc/sys/kernel/numa_balancing
for node in /sys/devices/system/node/node[0-9]*; do
    [ -n "$(cat "$node/cpulist")" ] || apart=${node##*node}
done

# Each has set its memory up when it is ready; the first two then wait.
"$MENAGERIE" chase --working-set 96m --home 0 --ready-file a --go-file go >/dev/null & rests=$!
numactl --membind 0 "$MENAGERIE" chase --working-set 64m --ready-file b --go-file go >/dev/null & bound=$!
"$MENAGERIE" chase --working-set 16m --home "$apart" --seconds 600 --ready-file c >/dev/null & used=$!
until [ -e a ] && [ -e b ] && [ -e c ]; do sleep 0.1; done
say "before, what is used is apart" "$(pages $used "$apart")" 4096 5000

# 20 MiB more than are free now are to be free, and what comes back takes 16.
share=$(awk "BEGIN { print ($(mib MemFree) + $(mib 'Inactive.file.') + 20) / $(mib MemTotal) }")
printf '[policies.tiered]\ncold_after_s = 1\nkeep_free = %s\n' "$share" >config
"$NUMAHERD" run --policy tiered --config config --for 6s --pid "$rests,$bound,$used" --ledger ledger >out 2>&1 ||
    { echo "NOT: it ran:"; cat out; }

say "of what rests, a part is apart" "$(pages $rests "$apart")" $((10 * 512)) $((40 * 512))
say "what its user gave a place stays" "$(pages $bound "$apart")" 0 0
say "what is used is near" "$(pages $used "$apart")" 0 512
for rule in 'tiered: cold' 'tiered: used'; do
    grep -q "\"$rule\"" ledger && echo "$rule" || { echo "NOT: $rule:"; "$NUMAHERD" explain ledger; }
done
kill $rests $bound $used
exit 0
