#!/usr/bin/env bash
# Runs fuzz targets: the readers of untrusted text and bytes (docs/fuzzing.md).
#
#   scripts/fuzz.sh                 every target for 60 seconds
#   scripts/fuzz.sh 600             every target for 600 seconds
#   scripts/fuzz.sh 600 cpulist     only the named targets
#   scripts/fuzz.sh --all           one after another, the one with the fewest inputs first, until each has had 10^8;
#                                   can be stopped at any time, and goes on where it stopped
#   scripts/fuzz.sh --keep cpulist FILE
#                                   makes an input on which a target fails as small as possible and puts it among the
#                                   seeds, which `cargo test -p numaherd-fuzz` replays
#   scripts/fuzz.sh --inputs        how many inputs each target has had, as the table of docs/fuzzing.md
#   scripts/fuzz.sh --coverage      how much of each reader the seeds and findings reach, as the table of docs/fuzzing.md
#
# Each target starts from its committed seeds (fuzz/seeds/NAME) and from the findings of earlier runs
# (fuzz/corpus/NAME, not committed). fuzz/inputs counts the inputs of each, on all machines: commit it. Exit code: 0 if
# every target passed, 1 if one failed, 2 if it could not run. Installs cargo-fuzz if it is missing. A stable toolchain
# is enough, because the readers are safe Rust and need no sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."

# What every reader gets in all, and how long a target runs before another has its turn.
enough=100000000
turn=120

counts=fuzz/inputs
# Names would be of no use in a backtrace without lines; the rest is as fast as it can be.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=${CARGO_PROFILE_RELEASE_OPT_LEVEL:-3} CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
options=(--sanitizer none --features fuzz)

say() { printf 'fuzz: %s\n' "$*"; }
die() {
    printf 'fuzz: %s\n' "$*" >&2
    exit 2
}

# The inputs that a target has had.
inputs() { awk -v name="$1" '$1 == name { count = $2 } END { print count + 0 }' "$counts"; }

# Adds to them.
add_inputs() {
    local sum=$(($(inputs "$1") + $2))
    { grep -v "^$1 " "$counts" || true; echo "$1 $sum"; } | sort >"$counts.new"
    mv "$counts.new" "$counts"
}

# Runs a target for some seconds; says what came of it.
run() {
    local target=$1 seconds=$2 passed=true
    mkdir -p "fuzz/corpus/$target"
    # Inputs up to 8 KiB. An input that takes over 10 s or 1 GiB counts as a failure, like a panic. The
    # shell's limit stops an input that allocates all memory at once, before libFuzzer checks.
    (
        ulimit -v $((8 << 20))
        cargo fuzz run "${options[@]}" "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
            -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
            -print_final_stats=1
    ) >"$log" 2>&1 || passed=false
    local had
    had=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    add_inputs "$target" "${had:-0}"
    if $passed; then
        say "$target passed with ${had:-an unknown number of} inputs in $seconds s ($(inputs "$target") in all)"
        return 0
    fi
    say "$target FAILED:"
    # The panic with its backtrace, or libFuzzer's message (out of memory, too slow), and how to
    # reproduce it. The input itself may be long and is in the file.
    grep -a -A 25 -m 1 -e panicked -e 'ERROR: libFuzzer' -e 'memory allocation of' "$log" || tail -n 25 "$log"
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    [ -z "$input" ] || say "mend the reader, and keep the input as a test: scripts/fuzz.sh --keep $target $input"
    return 1
}

keep() {
    local target=$1 input=$2 small seed
    small=$(mktemp)
    cp "$input" "$small"
    # Fails where the input does no harm: then it is as small as it was.
    cargo fuzz tmin "${options[@]}" "$target" "$input" -- -exact_artifact_path="$small" >"$log" 2>&1 ||
        say "$target does not fail on $input; it is kept as it is"
    seed=fuzz/seeds/$target/failed-$(sha1sum "$small" | cut -c 1-8)
    mv "$small" "$seed"
    chmod 644 "$seed"
    say "kept as $seed ($(wc -c <"$seed") bytes): add it to the commit that mends the reader"
}

# How many inputs each target has had.
print_inputs() {
    local target
    printf '| target | inputs | | target | inputs |\n|---|---:|---|---|---:|\n'
    for target in "${targets[@]}"; do
        printf '| `%s` | %s |\n' "$target" "$(inputs "$target" | sed ':a; s/\B[0-9]\{3\}\>/,&/; ta')"
    done | paste -d ' ' - -
}

# Replays seeds and findings in the test that has all targets, built so that it counts what it reaches, and prints how much
# of each reader that is.
coverage() {
    local tools into=target/coverage program target profile
    tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
    [ -x "$tools/llvm-cov" ] || die "there is no llvm-cov of Rust's own version here: rustup component add llvm-tools"
    # What runs while it is built is not counted.
    program=$(LLVM_PROFILE_FILE=/dev/null RUSTFLAGS="-C instrument-coverage" \
        cargo test --locked -p numaherd-fuzz --lib --no-run --target-dir "$into" --message-format json |
        sed -n 's/.*"name":"numaherd_fuzz".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -n "$program" ] || die "the targets do not build; the message above says why"
    printf 'At %s, %s:\n\n| target | replayed | lines of its reader | reached |\n|---|---|---|---|\n' \
        "$(git describe --always --dirty '--exclude=*')" "$(date -u +%F)"
    for target in "${targets[@]}"; do
        local -a files replayed
        profile=$into/$target.profraw
        rm -f "$profile"
        NUMAHERD_FUZZ_CORPUS=$PWD/fuzz/corpus LLVM_PROFILE_FILE="$profile" "$program" --exact "fuzz_targets::inputs::$target" >"$log" 2>&1 ||
            die "$target fails on a seed or on what was found: $(grep -a -A 3 -m 1 panicked "$log")"
        "$tools/llvm-profdata" merge -sparse "$profile" -o "$into/$target.profdata"
        mapfile -t replayed < <(find "fuzz/seeds/$target" "fuzz/corpus/$target" -type f 2>/dev/null)
        # The target names the files of its reader in its first lines; a folder stands for all files in it.
        mapfile -t files < <(sed -n 's/^\/\/! Reader: //p' "fuzz/fuzz_targets/$target.rs" | tr ' ' '\n' |
            while read -r path; do find "$PWD/$path" -name '*.rs'; done)
        "$tools/llvm-cov" report "$program" -instr-profile="$into/$target.profdata" "${files[@]}" |
            awk -v target="$target" -v replayed=${#replayed[@]} \
                '$1 == "TOTAL" { printf "| `%s` | %d | %d | %s |\n", target, replayed, $8, $10 }'
    done
}

seconds=60
all=false
keeps=false
covers=false
tells=false
case ${1:-} in
    --all) all=true ;;
    --coverage) covers=true ;;
    --inputs) tells=true ;;
    --keep)
        if [ $# != 3 ] || [ ! -f "$3" ]; then die "usage: scripts/fuzz.sh --keep TARGET FILE"; fi
        keeps=true
        ;;
    '') ;;
    *)
        seconds=$1
        [[ $seconds =~ ^[1-9][0-9]*$ ]] ||
            die "'$seconds' is not a number of seconds; usage: scripts/fuzz.sh [seconds] [target...]"
        ;;
esac
shift || true

command -v c++ >/dev/null || die "libFuzzer is built from C++ source and there is no c++ here: install the package g++"
if ! cargo fuzz --version >/dev/null 2>&1; then
    say "installing cargo-fuzz (once, about two minutes)"
    cargo install cargo-fuzz --locked --debug --quiet ||
        die "cargo-fuzz could not be installed; the message above says why"
fi

mapfile -t known < <(cargo fuzz list)
targets=("$@")
$keeps && targets=("$1")
[ ${#targets[@]} -gt 0 ] || targets=("${known[@]}")
for target in "${targets[@]}"; do
    [[ " ${known[*]} " == *" $target "* ]] || die "there is no target '$target'; the targets are: ${known[*]}"
done
mkdir -p fuzz/corpus

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if $tells; then
    print_inputs
    exit 0
fi
if $covers; then
    coverage
    exit 0
fi

say "building ${#targets[@]} targets"
cargo fuzz build "${options[@]}" || die "the targets do not build; the message above says why"

if $keeps; then
    keep "$1" "$2"
    exit 0
fi

while $all; do
    next=$(for target in "${targets[@]}"; do echo "$(inputs "$target") $target"; done | sort -n | head -n 1)
    if [ "${next%% *}" -ge $enough ]; then
        say "every target has had $enough inputs"
        exit 0
    fi
    run "${next#* }" $turn || exit 1
done

failed=()
for target in "${targets[@]}"; do
    run "$target" "$seconds" || failed+=("$target")
done
[ ${#failed[@]} -eq 0 ] || {
    say "failed: ${failed[*]}"
    exit 1
}
say "all ${#targets[@]} targets passed"
