#!/usr/bin/env bash
# Tries contrib/slurm/numaherd-job with the real slurmctld, slurmd and munge of Debian on this machine as one node, and
# prints a transcript: what a user types, what Slurm says, and the reports that jobs have at their ends.
#
#   sudo apt install --no-install-recommends slurmctld slurmd slurm-client munge
#   sudo scripts/slurm-trial.sh [PROGRAMS]     the folder of numaherd and menagerie; default target/release
#
# Everything that it writes is in a folder of its own, and every daemon has its own sockets and ends with the trial: no
# Slurm that this machine is part of is touched. Jobs have control groups, so it must be root. SECONDS_BUSY is how long
# the busy jobs run (8); STEPS, which of the steps below (all).
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(realpath "${1:-${PROGRAMS:-target/release}}")
busy=${SECONDS_BUSY:-8}
steps=${STEPS:-placed away once array bound asked comment missing killed slurmd}

die() {
    echo "slurm-trial: $*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || die "control groups of jobs need root: run it with sudo"
for tool in slurmctld slurmd munged sbatch; do
    PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || die "$tool is missing: apt install slurmctld slurmd munge"
done
for tool in numaherd menagerie; do
    [ -x "$programs/$tool" ] || die "$programs/$tool is missing: cargo build --release -p numaherd -p menagerie"
done
export PATH=$programs:$PATH:/usr/sbin

work=$(mktemp -d /tmp/slurm-trial.XXXXXX)
chmod 755 "$work"
node=$(uname -n)
declare -A daemons=()
finish() {
    for name in slurmd slurmctld munged; do
        [ -z "${daemons[$name]:-}" ] || kill "${daemons[$name]}" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    for file in "$work"/run/*/pid; do
        [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null || true
    done
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap finish EXIT

# Waits for up to a minute until a command succeeds.
until_true() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    tail -n 20 "$work"/*.log >&2
    die "waited for a minute: $*"
}

head_of() { printf '\n== %s\n' "$*"; }
typed() {
    printf '$ %s\n' "$*"
    "$@"
}

mkdir -p "$work"/{state,spool,run,reports,munge}
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 700 "$work/munge" && chmod 400 "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge.socket" --num-threads=1 \
    --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" --log-file="$work/munge.log" 2>/dev/null &
daemons[munged]=$!

# The script as it is, with the settings of the trial.
sed "s|^settings=.*|settings=$work/settings|" contrib/slurm/numaherd-job >"$work/numaherd-job"
chmod 755 "$work/numaherd-job"
settings() {
    {
        echo "PATH=$PATH NUMAHERD=$programs/numaherd RUN=$work/run REPORTS=$work/reports"
        printf '%s\n' "$@"
    } >"$work/settings"
}
settings
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    # Without a systemd, slurmd makes its scope itself.
    printf 'CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n' >"$work/cgroup.conf"
else
    printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n' >"$work/cgroup.conf"
fi
cat >"$work/slurm.conf" <<END
ClusterName=trial
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
InactiveLimit=0
MpiDefault=none
PrologFlags=Alloc
Prolog=$work/numaherd-job
Epilog=$work/numaherd-job
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=trial Nodes=ALL Default=YES MaxTime=10 OverSubscribe=FORCE:4
END
export SLURM_CONF=$work/slurm.conf
slurmctld -D -L "$work/slurmctld.log" 2>/dev/null &
daemons[slurmctld]=$!
start_slurmd() {
    slurmd -D -L "$work/slurmd.log" 2>/dev/null &
    daemons[slurmd]=$!
}
until_true test -S "$work/munge.socket"
start_slurmd
is_up() { sinfo -h -o %T | grep -qE '^(idle|mixed|allocated)$'; }
until_true is_up
cd "$work"

# A job, by number, until it has ended and its Epilog, too.
ended() { ! squeue -h -j "$1" 2>/dev/null | grep -q .; }
job=
submit() {
    printf '$ sbatch %s\n' "$*"
    job=$(sbatch --parsable -o "$work/out-%j" "$@")
}
# The report is there once the Epilog has taken the job's directory away.
epilogue() { [ ! -e "$work/run/$job" ]; }
show() {
    until_true ended "$job"
    until_true epilogue
    cat "$work/reports/job-$job-$node.txt" 2>/dev/null || echo "(no report)"
}
observed() { [ "$(find "$work/run" -name ledger.zst | wc -l)" -ge "$1" ]; }
state() { printf 'node: %s\n' "$(sinfo -h -o %T)"; }

nodes=$(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' | wc -l)
head_of "$(slurmd -V), numaherd $(numaherd --version | cut -d ' ' -f 2), $(nproc) CPUs, nodes: $nodes"
last=$((nodes - 1))

step_placed() {
    head_of "A job of two tasks, each with its memory where it runs"
    submit --ntasks=2 --wrap "srun --cpu-bind=none menagerie chase --seconds $busy"
    show
}
step_away() {
    head_of "A job of two tasks, whose memory a first step has left on node $last"
    submit --ntasks=2 --wrap "srun --cpu-bind=none menagerie chase --home $last --start-cpu any --seconds $busy"
    show
}
step_once() {
    head_of "A job that ends at once"
    submit --wrap true
    show
    state
}
step_array() {
    head_of "An array of six"
    submit --array=1-6 --wrap "menagerie compute --seconds $busy"
    until_true ended "$job"
    ls "$work/reports" | wc -l | sed 's/$/ reports so far/'
    state
}
step_bound() {
    head_of "A job that binds its tasks and has every CPU"
    submit --exclusive --ntasks="$(nproc)" --wrap "srun --cpu-bind=cores menagerie chase --seconds $busy"
    until_true ended "$job"
    cat "$work/reports/job-$job-$node.txt" 2>/dev/null || echo "(no report: it decided itself where its threads run)"
}
step_asked() {
    head_of "The same with PINNED=report"
    settings PINNED=report
    submit --exclusive --ntasks="$(nproc)" --wrap "srun --cpu-bind=cores menagerie chase --seconds $busy"
    show
    settings
}
step_comment() {
    head_of "ONLY_ASKED=yes: a job that does not ask, and one that does"
    settings ONLY_ASKED=yes
    submit --wrap "menagerie compute --seconds $busy"
    show
    submit --comment=numaherd --wrap "menagerie compute --seconds $busy"
    show
    settings
}
step_missing() {
    head_of "numaherd is not installed: the node must not be drained"
    settings NUMAHERD=/nonexistent/numaherd
    submit --wrap true
    until_true ended "$job"
    state
    settings
}
step_killed() {
    head_of "The observer is killed in the middle"
    submit --wrap "menagerie compute --seconds $busy"
    until_true observed 1
    sleep 2
    kill -KILL "$(cat "$work"/run/*/pid)"
    show
    state
}
step_slurmd() {
    head_of "slurmd is killed in the middle, and started again"
    submit --wrap "menagerie compute --seconds $busy"
    until_true observed 1
    kill -KILL "${daemons[slurmd]}"
    sleep 1
    start_slurmd
    show
    state
}
for step in $steps; do
    "step_$step"
done

head_of "Afterwards"
until_true bash -c "! ls -d '$work'/run/*/ >/dev/null 2>&1"
left=$(pgrep -c -f "$work/run" || true)
printf 'observers left: %s; job directories left: %s\n' "$left" "$(find "$work/run" -mindepth 1 | wc -l)"
# From the start of the Prolog to its end, as slurmd's own log has it, is too coarse: the script itself, timed.
SLURM_JOB_ID=999999 SLURM_SCRIPT_CONTEXT=prolog_slurmd bash -c "TIMEFORMAT='Prolog: %R s'; time '$work/numaherd-job'"
sleep 1
SLURM_JOB_ID=999999 SLURM_SCRIPT_CONTEXT=epilog_slurmd bash -c "TIMEFORMAT='Epilog: %R s'; time '$work/numaherd-job'"
