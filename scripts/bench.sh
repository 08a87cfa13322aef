#!/usr/bin/env bash
# Measures speed and memory, each compared with an alternative in the same run. Machines differ and are
# noisy: look at the ratios.
#
#   decide     dino deciding, for growing numbers of threads (target 0.5 ms for 1,000, 50 ms for 100,000)
#   tick       one tick of `run` over 1,000 live threads, beside a refresh of `top` and `pidstat` (target 2 ms of CPU
#              for threads that sleep, 20 ms for threads that wake)
#   rest       what leaving `run` on costs over 1,001 threads, asleep and waking, for two minutes each, beside `top` and
#              `pidstat` (target 0.2 % of a core and 20 MB of ledger an hour, 1 % of a core)
#   memory     memory of `run` for each thread (target 512 MB for 100,000)
#   interval   one interval of the loop, with and without a ledger
#   accesses   the hardware model, accesses per second
#   speed      the lab: accesses modelled per second of CPU time, beside cachegrind; what a modelled second costs
#   n_mass     n-mass deciding, for growing numbers of threads and domains
#   epochs     the contention model: an hour of eight programs (target 50 ms), an epoch of 10,000 threads
#              on 64 nodes (target 100 ms)
#   top        a redraw of 5,000 threads, compared with reading their line and a table of all (target 16 ms)
#   replay     three policies on the ledger of an hour of 200 threads (target 3.6 s: 1,000 times real time)
#   pages      page moves compared with `migratepages`, in the lab (target 95 % of its throughput, p99 5 ms)
set -euo pipefail
cd "$(dirname "$0")/.."

cargo bench --locked -p numaherd-policy --bench decide
cargo bench --locked -p numaherd-policy --bench n_mass
cargo bench --locked -p numaherd-model --bench epochs
cargo bench --locked -p numaherd-host --bench tick
cargo bench --locked -p numaherd --bench memory
cargo bench --locked -p numaherd --bench rest
cargo bench --locked -p numaherd-herd --bench interval
cargo bench --locked -p numaherd-hardware --bench accesses
cargo bench --locked -p numaherd-lab-launcher --bench speed
cargo bench --locked -p numaherd-show --bench replay
cargo bench --locked -p numaherd-show --bench top

# Runs in the guest, because page moves need two nodes. Cargo reports the path of the program.
program=$(cargo bench --locked -p numaherd-host --bench pages --no-run --message-format json |
    sed -n 's/.*"name":"pages".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
[ -n "$program" ] || { echo "bench: cargo did not report the path of the page benchmark" >&2; exit 1; }
target/release/numaherd lab run -- "$program" --bench
