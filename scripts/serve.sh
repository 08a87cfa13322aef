#!/bin/sh
# Measures how late the loop's intervals are with and without an attack on the sockets of `numaherd serve`:
# malformed requests from four clients, and 200 slow clients. The attackers run on the same machine.
set -eu
cd "$(dirname "$0")/.."
cargo test --release --package numaherd --test it -- --ignored --nocapture lateness_of_the_loop
