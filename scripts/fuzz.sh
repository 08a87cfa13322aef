#!/usr/bin/env bash
# Runs every fuzz target for a while: the readers of untrusted text and bytes (docs/fuzzing.md).
#
#   scripts/fuzz.sh                 every target for 60 seconds
#   scripts/fuzz.sh 600             every target for 600 seconds
#   scripts/fuzz.sh 600 cpulist     only the named targets
#
# Each starts from its committed seeds (fuzz/seeds/NAME) and from the findings of earlier runs
# (fuzz/corpus/NAME, not committed). Exit code: 0 if every target passed, 1 if one failed, 2 if it could not
# run. Installs cargo-fuzz if it is missing. A stable toolchain is enough, because the readers are safe
# Rust and need no sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'fuzz: %s\n' "$*"; }
die() {
    printf 'fuzz: %s\n' "$*" >&2
    exit 2
}

seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "'$seconds' is not a number of seconds; usage: scripts/fuzz.sh [seconds] [target...]"
shift || true

command -v c++ >/dev/null || die "libFuzzer is built from C++ source and there is no c++ here: install the package g++"
if ! cargo fuzz --version >/dev/null 2>&1; then
    say "installing cargo-fuzz (once, about two minutes)"
    cargo install cargo-fuzz --locked --debug --quiet ||
        die "cargo-fuzz could not be installed; the message above says why"
fi

known=$(cargo fuzz list)
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets <<<"$known"
for target in "${targets[@]}"; do
    grep -qxF -- "$target" <<<"$known" || die "there is no target '$target'; the targets are: ${known//$'\n'/ }"
    [ -d "fuzz/seeds/$target" ] || die "$target has no seeds: put a few small inputs into fuzz/seeds/$target"
done

say "building ${#targets[@]} targets"
cargo fuzz build --sanitizer none || die "the targets do not build; the message above says why"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target"
    # Inputs up to 8 KiB. An input that takes over 10 s or 1 GiB counts as a failure, like a panic. The
    # shell's limit stops an input that allocates all memory at once, before libFuzzer checks.
    if (
        ulimit -v $((8 << 20))
        cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
            -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
            -print_final_stats=1
    ) >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        say "$target passed with ${runs:-an unknown number of} inputs in $seconds s"
    else
        say "$target FAILED:"
        # The panic with its backtrace, or libFuzzer's message (out of memory, too slow), and how to
        # reproduce it. The input itself may be long and is in the file.
        grep -a -A 25 -m 1 -e panicked -e 'ERROR: libFuzzer' -e 'memory allocation of' "$log" || tail -n 25 "$log"
        grep -a 'cargo fuzz run .*artifacts' "$log" || true
        failed+=("$target")
    fi
done

if [ ${#failed[@]} -gt 0 ]; then
    say "failed: ${failed[*]}. Each input is kept in fuzz/artifacts/NAME/; run it again with"
    say "    cargo fuzz run --sanitizer none NAME fuzz/artifacts/NAME/FILE"
    exit 1
fi
say "all ${#targets[@]} targets passed"
