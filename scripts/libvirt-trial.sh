#!/usr/bin/env bash
# Tries numaherd-numad and the herd with Debian's real libvirtd and QEMU, beside Debian's numad, and prints a transcript.
# It is meant for the lab's guest of four nodes, where memory really moves and counters count; it writes to /etc/libvirt
# and starts libvirtds, so it runs nowhere else:
#
#   sudo apt install --no-install-recommends libvirt-daemon-system libvirt-clients qemu-system-x86 numad numactl binutils
#   scripts/build.sh
#   target/release/numaherd lab run --limit 60m -- scripts/libvirt-trial.sh
#
# STEPS: which of the steps below (all).
#
# Virtual machines are emulated (no KVM in the guest): each has one vCPU, whose boot sector reads 16 MiB here and there for
# ever and counts its reads, and memory that is there from the start. The hardware model is on while figures are taken;
# libvirt's own work is done in real time.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/target/release
steps=${STEPS:-answers auto numad herd restart hook midmove migrate}

die() {
    echo "libvirt-trial: $*" >&2
    exit 1
}
[ "$(uname -n)" = lab ] || die "it changes libvirt's configuration: run it in the lab's guest, numaherd lab run -- $0"
export PATH=$programs:$PWD/target/x86_64-unknown-linux-gnu/release:$PATH:/usr/sbin
for tool in libvirtd virsh qemu-system-x86_64 numad numactl as numaherd menagerie; do
    command -v "$tool" >/dev/null || die "$tool is missing: see the head of this script"
done
export LIBVIRT_DEFAULT_URI=qemu:///system

# What answers late is not dead: the guest is slow.
virsh() { command virsh --keepalive-interval 0 "$@"; }
head_of() { printf '\n== %s\n' "$*"; }
typed() {
    printf '$ %s\n' "$*"
    "$@"
}
until_true() {
    for _ in $(seq 3000); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    tail -n 20 /tmp/libvirtd*.log >&2 || true
    die "waited for five minutes: $*"
}
# The hardware model, with its counters and its time. A guest in real time (`lab run --real-time`) has none.
modelled() { [ ! -e /sys/module/lab_pmu/parameters/gate ] || echo "$1" >/sys/module/lab_pmu/parameters/gate; }

modelled 0
work=$(mktemp -d /tmp/libvirt-trial.XXXXXX)
chmod 755 "$work"
mountpoint -q /run || mount -t tmpfs none /run
mkdir -p /run/lock /run/libvirt

# Protected mode; 16 MiB are filled, and then each line is read in an order that no prefetcher foresees, counted at 0x8000.
cat >"$work/boot.s" <<'END'
        .code16
        cli
        xorw %ax, %ax
        movw %ax, %ds
        inb $0x92, %al          # A20
        orb $2, %al
        outb %al, $0x92
        lgdtl table
        movl %cr0, %eax
        orb $1, %al
        movl %eax, %cr0
        ljmpl $8, $flat
        .code32
flat:   movw $16, %ax
        movw %ax, %ds
        movw %ax, %es
        movl $0x1000000, %edi
        movl $0x400000, %ecx
        cld
        rep stosl
        xorl %esi, %esi
next:   addl $0x41040, %esi
        andl $0xffffc0, %esi
        movl 0x1000000(%esi), %eax
        incl 0x8000
        jmp next
        .align 8
gdt:    .quad 0, 0x00cf9a000000ffff, 0x00cf92000000ffff
table:  .word 23
        .long gdt
        .org 510
        .word 0xaa55
END
as --32 -o "$work/boot.o" "$work/boot.s"
ld -m elf_i386 -e 0x7c00 -Ttext 0x7c00 --oformat binary -o "$work/boot.img" "$work/boot.o"
truncate -s 1M "$work/boot.img"

# The package's link, beside what it replaces.
cp /usr/bin/numad "$work/real-numad"
rm -f /usr/bin/numad
ln -s "$programs/numaherd" /usr/bin/numad

mkdir -p /etc/libvirt
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
namespaces = []
cgroup_controllers = []
remember_owner = 0
END
# Starts libvirtd as that of a host by name and UUID; it says so to others.
libvirtd_of() {
    printf '%s\n' "log_outputs=\"2:file:/tmp/libvirtd-$1.log\"" 'auth_unix_rw="none"' "host_uuid=\"$2\"" \
        keepalive_interval=-1 >"$work/$1.conf"
    exec libvirtd --config "$work/$1.conf" >/dev/null 2>&1
}
start_libvirtd() {
    libvirtd_of here 11111111-2222-4333-8444-555555555555 &
    libvirtd=$!
    until_true virsh list
}
end_libvirtd() {
    kill "$libvirtd"
    wait "$libvirtd" || true
}

domain() { # domain NAME MIB PLACEMENT: defines and starts it
    cp "$work/boot.img" "$work/$1.img"
    cat >"$work/$1.xml" <<END
<domain type='qemu'>
  <name>$1</name>
  <memory unit='MiB'>$2</memory>
  <vcpu placement='$3'>1</vcpu>
  <memoryBacking><allocation mode='immediate'/></memoryBacking>
  <features><acpi/></features>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='$work/$1.img'/>
      <shareable/><target dev='hda' bus='ide'/></disk>
    <memballoon model='none'/>
  </devices>
</domain>
END
    printf '$ virsh define %s.xml; virsh start %s    # %s MiB, placement=%s\n' "$1" "$1" "$2" "$3"
    virsh -q define "$work/$1.xml" && virsh -q start "$1"
}
# A machine's QEMU; of the libvirtd that sees that /run.
pid_of() { cat "${run:-/run}/libvirt/qemu/$1.pid"; }
# Where a machine's vCPU may run and last ran, and where its pages are.
where() {
    local pid task
    pid=$(pid_of "$1")
    for task in /proc/"$pid"/task/*; do
        case $(cat "$task/comm") in CPU*) break ;; esac
    done
    awk -v name="$1" -v cpu="$(sed 's/.*) //' "$task/stat" | cut -d ' ' -f 37)" \
        -v may="$(sed -n 's/^Cpus_allowed_list:\t//p' "$task/status")" \
        '{ for (i = 2; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split($i, p, "="); pages[p[1]] += p[2] } }
        END { printf "%s: vCPU on CPU %s, may use %s; pages", name, cpu, may
              for (node = 0; node < 16; node++) if (("N" node) in pages) printf " %s=%d", "N" node, pages["N" node]
              print "" }' "/proc/$pid/numa_maps"
}
# What a machine's vCPU has read, in thousands.
reads() { virsh qemu-monitor-command "$1" --hmp 'xp /1uw 0x8000' | tr -d '\r' | sed -n 's/.*: *//p' | head -n 1; }
# Whether this percentage of a process's pages is on other nodes than the one that was overloaded last.
has_left() { # has_left PID PERCENTAGE
    awk -v least="$2" -v node="N$overloaded" \
        '{ for (i = 2; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split($i, p, "="); all += p[2]; if (p[1] != node) left += p[2] } }
        END { exit left * 100 < all * least }' "/proc/$1/numa_maps"
}
# Shows machines every so many seconds: where they are, and what they read in each; until once after the memory of all has
# left its node, and at most so many times.
watch_them() { # watch_them SECONDS TIMES NAME...
    local name now at begun stay=yes
    declare -A was=() then=()
    begun=$(date +%s%N)
    for name in "${@:3}"; do
        was[$name]=$(reads "$name") then[$name]=$(date +%s%N)
    done
    for _ in $(seq "$2"); do
        sleep "$1"
        for name in "${@:3}"; do
            now=$(reads "$name") at=$(date +%s%N)
            printf '%4.1f s: %s; %d thousand reads a second\n' "$(((at - begun) / 100000000))e-1" "$(where "$name")" \
                $((((now - ${was[$name]}) & 0xffffffff) * 1000000 / (at - ${then[$name]})))
            was[$name]=$now then[$name]=$at
        done
        [ -n "$stay" ] || break
        stay=""
        for name in "${@:3}"; do has_left "$(pid_of "$name")" 75 || stay=yes; done
    done
}
# Puts a machine's memory on a node, beside two programs that keep the CPUs there busy.
declare -A hogs=()
overload() { # overload NAME NODE
    local pid cpus
    pid=$(pid_of "$1")
    cpus=$(cat "/sys/devices/system/node/node$2/cpulist")
    migratepages "$pid" all "$2"
    overloaded=$2
    [ -n "${hogs[$2]:-}" ] || {
        menagerie compute --threads 2 --cpus "$cpus" --seconds 36000 >/dev/null 2>&1 &
        hogs[$2]=$!
        sleep 1
    }
    where "$1"
}
start_herd() { # start_herd LEDGER [OPTION...]
    local name=$1
    shift
    echo "\$ numaherd run $*"
    numaherd run --config none --ledger "$work/$name.jsonl" --journal "$work/$name.journal" "$@" >"$work/$name.said" 2>&1 &
    herd=$!
}
end_herd() { # end_herd LEDGER [PID]
    kill -INT "${2:-$herd}"
    wait "${2:-$herd}" || true
    cat "$work/$1.said"
}
# What was done and why.
explained() {
    printf '$ numaherd explain %s.jsonl %s\n' "$1" "${*:2}"
    numaherd explain "$work/$1.jsonl" "${@:2}"
}
# Its end, as libvirt does it and as it says.
gone() {
    virsh -q destroy "$1"
    virsh -q undefine "$1"
}

step_answers() {
    head_of "numad's answers: the real one, the package's"
    for want in 1 2 3 5 8 2:200 2:900 4:1500; do
        printf 'numad -w %-7s %-6s %s\n' "$want" "$("$work/real-numad" -w "$want" 2>&1 || true)" "$(numad -w "$want" 2>/dev/null)"
    done
}

step_auto() {
    head_of "placement='auto' with numaherd-numad"
    for name in one two; do
        domain $name 128 auto
        where $name
    done
    gone one
    gone two
}

# Two machines whose memory is on a node with busy CPUs, a large and a small one: numad leaves alone what has less than
# 300 MB.
begin_overload() {
    head_of "$1"
    domain large 384 static
    domain small 96 static
    overload large 0
    overload small 0
}

step_numad() {
    begin_overload "Two machines on an overloaded node, with Debian's numad"
    modelled 1
    echo '$ numad'
    "$work/real-numad"
    watch_them 4 12 large small
    "$work/real-numad" -i 0
    modelled 0
    cat /var/log/numad.log
    gone large
    gone small
}

step_herd() {
    begin_overload "The same, with the herd"
    modelled 1
    start_herd herd
    watch_them 4 12 large small
    modelled 0
    end_herd herd
    explained herd
    gone large
    gone small
}

step_restart() {
    head_of "libvirtd is restarted while the herd runs"
    domain three 96 static
    overload three 0
    modelled 1
    start_herd restart
    end_libvirtd
    echo "libvirtd has ended"
    start_libvirtd
    typed virsh -q list
    watch_them 2 2 three
    modelled 0
    end_herd restart
    gone three
}

step_hook() {
    local starts sleeper
    head_of "A hook of libvirt that never ends"
    mkdir -p /etc/libvirt/hooks
    printf '#!/bin/sh\n[ "$1-$2" != five-started ] || exec sleep 100000\n' >/etc/libvirt/hooks/qemu
    chmod 755 /etc/libvirt/hooks/qemu
    end_libvirtd # it looks for hooks when it starts
    start_libvirtd
    domain four 96 static
    overload four 0
    domain five 96 auto &
    starts=$!
    until_true pgrep -f 'sleep 100000'
    sleeper=$(pgrep -f 'sleep 100000')
    modelled 1
    start_herd hook
    watch_them 2 3 four
    modelled 0
    where five
    ! kill -0 "$starts" || echo "virsh start five still waits for the hook"
    echo '$ the hook is killed'
    kill "$sleeper"
    wait "$starts" || true
    typed virsh -q list --all
    end_herd hook
    rm /etc/libvirt/hooks/qemu
    gone four
    virsh -q undefine five
}

step_midmove() {
    local pid
    head_of "QEMU is killed while its memory moves (without huge pages, which move too fast for that)"
    echo never >/sys/kernel/mm/transparent_hugepage/enabled
    domain six 96 static
    overload six 0
    pid=$(pid_of six)
    modelled 1
    start_herd midmove
    for _ in $(seq 300); do ! has_left "$pid" 12 || break; done
    where six
    echo '$ kill -KILL QEMU'
    kill -KILL "$pid"
    until_true bash -c "virsh domstate six | grep -q 'shut off'"
    typed virsh -q domstate six --reason
    domain seven 96 static
    overload seven 0
    watch_them 2 3 seven
    modelled 0
    end_herd midmove
    explained midmove
    echo '$ numaherd release'
    numaherd release --journal "$work/midmove.journal"
    virsh -q undefine six
    gone seven
    echo always >/sys/kernel/mm/transparent_hugepage/enabled
}

# Two hosts of two nodes each: a libvirtd and a herd for each, in control groups of their own.
step_migrate() {
    local there uri migrates
    head_of "Two hosts: nodes 0 and 3, and nodes 1 and 2, each with its libvirtd and its herd"
    cd /sys/fs/cgroup
    echo +cpuset >cgroup.subtree_control
    mkdir -p here there
    echo 0,1,6,7 >here/cpuset.cpus && echo 0,3 >here/cpuset.mems
    echo 2-5 >there/cpuset.cpus && echo 1-2 >there/cpuset.mems
    end_libvirtd
    start_libvirtd
    echo "$libvirtd" >here/cgroup.procs
    export -f libvirtd_of
    export work
    unshare -m -u bash -c 'hostname there; mount -t tmpfs none /run; mkdir /run/lock /run/libvirt
        mount -t tmpfs none /var/lib/libvirt; echo $$ >there/cgroup.procs
        libvirtd_of there 66666666-7777-4888-8999-aaaaaaaaaaaa' &
    there=$!
    cd "$OLDPWD"
    uri="qemu+unix:///system?socket=/proc/$there/root/run/libvirt/libvirt-sock"
    until_true virsh -c "$uri" list
    domain nine 96 static
    overload nine 0
    modelled 1
    start_herd here --cgroup /here
    local here=$herd
    start_herd there --cgroup /there
    watch_them 2 3 nine
    modelled 0
    echo '$ virsh migrate --live --bandwidth 1 nine there; QEMU there is killed when some MiB are there'
    virsh migrate --live --unsafe --bandwidth 1 nine "$uri" --migrateuri tcp://127.0.0.1 &
    migrates=$!
    until_true bash -c "virsh domjobinfo nine | grep -q 'Memory processed: .*[0-9] MiB'"
    virsh domjobinfo nine | grep 'Memory'
    kill -KILL "$(run=/proc/$there/root/run pid_of nine)"
    wait "$migrates" || true
    modelled 1
    watch_them 2 2 nine
    modelled 0
    typed virsh migrate --live --unsafe nine "$uri" --migrateuri tcp://127.0.0.1
    typed virsh -q list
    export LIBVIRT_DEFAULT_URI=$uri run=/proc/$there/root/run
    typed virsh -q list
    overload nine 2
    modelled 1
    watch_them 2 5 nine
    modelled 0
    head_of "What the herd here says"
    end_herd here "$here"
    head_of "What the herd there says"
    end_herd there "$herd"
    explained there
    virsh -q destroy nine
    kill "$there"
}

head_of "$(virsh --version | sed 's/^/libvirt /'), $(qemu-system-x86_64 --version | head -n 1), Linux $(uname -r)"
numactl --hardware | grep -E '^(available|node [0-9]+ cpus)'
typed sysctl kernel.numa_balancing
start_libvirtd
for step in $steps; do
    "step_$step"
done
kill "$libvirtd" "${hogs[@]}" 2>/dev/null || true
