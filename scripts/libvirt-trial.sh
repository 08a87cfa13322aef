#!/usr/bin/env bash
# Tries numaherd-numad and the herd with Debian's real libvirtd and QEMU, and prints a transcript. It is meant for the
# lab's guest of four nodes, where memory really moves; it writes to /etc/libvirt and starts a libvirtd, so it runs nowhere
# else:
#
#   sudo apt install --no-install-recommends libvirt-daemon-system libvirt-clients qemu-system-x86
#   numaherd lab run --real-time --limit 10m -- scripts/libvirt-trial.sh [PROGRAMS]
#
# PROGRAMS is the folder of numaherd and menagerie; default target/release. Virtual machines are emulated (no KVM in the
# guest): each has one vCPU that spins in a boot sector, and memory that is there from the start.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(realpath "${1:-${PROGRAMS:-target/release}}")

die() {
    echo "libvirt-trial: $*" >&2
    exit 1
}
[ "$(uname -n)" = lab ] || die "it changes libvirt's configuration: run it in the lab's guest, numaherd lab run -- $0"
for tool in libvirtd virsh qemu-system-x86_64; do
    PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || die "$tool is missing: apt install libvirt-daemon-system"
done
export PATH=$programs:$PATH:/usr/sbin
export LIBVIRT_DEFAULT_URI=qemu:///system

head_of() { printf '\n== %s\n' "$*"; }
until_true() {
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    tail -n 20 /tmp/libvirtd.log >&2 || true
    die "waited for a minute: $*"
}

work=$(mktemp -d /tmp/libvirt-trial.XXXXXX)
chmod 755 "$work"
mountpoint -q /run || mount -t tmpfs none /run
mkdir -p /run/lock /run/libvirt
# A boot sector that spins: jmp $.
{ printf '\353\376'; head -c 508 /dev/zero; printf '\125\252'; } >"$work/spin.img"

# The package's link, beside what it replaces.
real=/usr/bin/numad
[ ! -x "$real" ] || cp "$real" "$work/real-numad"
rm -f /usr/bin/numad
ln -s "$programs/numaherd" /usr/bin/numad

mkdir -p /etc/libvirt
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
namespaces = []
remember_owner = 0
END
printf 'log_outputs="2:file:/tmp/libvirtd.log"\nauth_unix_rw="none"\n' >/etc/libvirt/libvirtd.conf
start_libvirtd() {
    libvirtd --config /etc/libvirt/libvirtd.conf >/dev/null 2>&1 &
    libvirtd=$!
    until_true virsh list
}

domain() {
    cp "$work/spin.img" "$work/$1.img"
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
      <target dev='hda' bus='ide'/></disk>
    <memballoon model='none'/>
  </devices>
</domain>
END
    printf '$ virsh define %s.xml; virsh start %s    # %s MiB, placement=%s\n' "$1" "$1" "$2" "$3"
    virsh -q define "$work/$1.xml" && virsh -q start "$1"
}
pid_of() { cat "/run/libvirt/qemu/$1.pid"; }
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

head_of "$(virsh --version | sed 's/^/libvirt /'), $(qemu-system-x86_64 --version | head -n 1), Linux $(uname -r)"
numactl --hardware | grep -E '^(available|node [0-9]+ cpus)'

head_of "numad's answers: the real one, the package's"
for want in 1 2 3 5 8 2:200 2:900 4:1500; do
    printf 'numad -w %-7s %-6s %s\n' "$want" "$("$work/real-numad" -w "$want" 2>&1 || true)" "$(numad -w "$want" 2>/dev/null)"
done

head_of "placement='auto' with numaherd-numad"
start_libvirtd
domain one 128 auto
where one
domain two 128 auto
where two

head_of "A third, not bound, beside programs that are bound to the CPUs where it is"
domain three 128 static
pid=$(pid_of three)
node=$(numactl --hardware | sed -n 's/^node \([0-9]*\) cpus:.*/\1/p' | head -n 1)
cpus=$(cat "/sys/devices/system/node/node$node/cpulist")
migratepages "$pid" all "$node"
taskset -a -p -c "$cpus" "$pid" >/dev/null
menagerie compute --threads 2 --cpus "$cpus" --seconds 600 >/dev/null 2>&1 &
hogs=$!
sleep 2
where three
taskset -a -p -c 0-$(($(nproc) - 1)) "$pid" >/dev/null
echo '$ numaherd run --policy adaptive'
numaherd run --config none --policy adaptive --ledger "$work/ledger.jsonl" --journal "$work/journal" >"$work/said" 2>&1 &
herd=$!
for _ in 1 2 3 4; do
    sleep 5
    where three
done

head_of "libvirtd is restarted meanwhile"
kill "$libvirtd"
wait "$libvirtd" || true
start_libvirtd
virsh -q list

head_of "The QEMU of three is killed"
kill -KILL "$pid"
until_true bash -c "virsh domstate three | grep -q 'shut off'"
virsh domstate three
sleep 2
kill -0 "$herd" && echo "the herd goes on"

head_of "Destroyed"
virsh -q destroy one
virsh -q destroy two
virsh -q list --all
kill "$hogs" || true
kill -INT "$herd"
wait "$herd" || true
cat "$work/said"
numaherd explain "$work/ledger.jsonl" | head -n 40
kill "$libvirtd"
