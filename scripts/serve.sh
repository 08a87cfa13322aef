#!/bin/sh
# How late the loop's intervals are without and with an attack on what `numaherd serve` listens at: malformed
# requests from four sides and 200 slow clients. The attackers run on the same machine.
set -eu
cd "$(dirname "$0")/.."
cargo test --release --package numaherd --test serve -- --ignored --nocapture lateness_of_the_loop
