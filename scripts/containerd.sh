#!/usr/bin/env bash
# Runs the plugin with containerd 1.7 of Debian 13 and prints what becomes of pods: several are run and removed, containerd
# and the plugin are killed. containerd lives in a root directory of its own (target/containerd) and touches nothing
# else; below it, packaging/kubernetes/containerd/oci-runtime.sh plays the OCI runtime, so that this runs without kernel
# features for containers. Needs root, mmdebstrap, python3, a C compiler, and the network the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/containerd root=$work/root own=$work/root/tmp/numaherd parts=packaging/kubernetes/containerd

say() { printf '\n=== %s\n' "$*"; }
prepare() {
    mkdir -p "$work"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" | head -n 1)
    [ -d "$root/usr/bin" ] || mmdebstrap --variant=apt --include=containerd,runc trixie "$root" "deb $mirror trixie main"
    [ -x "$work/python/bin/python" ] || { python3 -m venv "$work/python" && "$work/python/bin/pip" install -q grpcio; }
    rm -rf "$own" && mkdir -p "$own/plugins" "$own/conf.d" "$work/programs" "$own/groups.d"
    printf '#include <unistd.h>\nint main(void) { for (;;) pause(); }\n' >"$work/sleep.c"
    cc -static -o "$work/programs/numaherd" "$work/sleep.c"
    cp "$work/programs/numaherd" "$work/programs/numaherd-nri"
    PROGRAMS=$work/programs scripts/image.sh "$own" >/dev/null 2>&1
    install -m 755 $parts/oci-runtime.sh "$own/"
    echo "127.0.0.1 localhost" >"$root/etc/hosts" && touch "$root/etc/resolv.conf"
    cat >"$own/config.toml" <<EOF
version = 2
root = "/tmp/numaherd/root"
state = "/tmp/numaherd/state"
[grpc]
  address = "/tmp/numaherd/containerd.sock"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "/tmp/numaherd/nri.sock"
  plugin_path = "/tmp/numaherd/plugins"
  plugin_config_path = "/tmp/numaherd/conf.d"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/numaherd:0.1.0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "/tmp/numaherd/oci-runtime.sh"
EOF
}
containerd() {
    rm -f "$own/containerd.sock"
    unshare -m sh -c 'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
        exec chroot "$0" containerd --config /tmp/numaherd/config.toml' "$root" >>"$work/log" 2>&1 &
    containerd=$!
    for _ in $(seq 60); do [ ! -S "$own/containerd.sock" ] || return 0; sleep 1; done
    echo "containerd did not start: $work/log says why" >&2
    exit 1
}
plugin() {
    "$target/debug/numaherd-nri" --socket "$own/nri.sock" --control "$own/none.sock" \
        --groups "$own/groups.d/kubernetes.toml" &
    plugin=$!
    sleep 3
}
cri() { "$work/python/bin/python" $parts/cri.py "$own/containerd.sock" "$@"; }
shown() {
    sleep 3
    say "$1"
    sed -n 's/^name = //p; s/^policy = /    policy /p' "$own/groups.d/kubernetes.toml"
}

prepare
cargo build -q --locked -p numaherd-nri
# Whatever runs in that root directory was started here: containerd, its shims and what plays containers.
end() {
    [ -z "$plugin" ] || kill "$plugin" 2>/dev/null || true
    for process in /proc/[0-9]*; do
        if [ "$(readlink "$process/root")" = "$root" ]; then kill -9 "${process#/proc/}" 2>/dev/null || true; fi
    done
}
trap end EXIT
plugin='' containerd=''
containerd
chroot "$root" ctr -a /tmp/numaherd/containerd.sock -n k8s.io images import --snapshotter native \
    "$(ls "$own"/*.tar | sed "s#^$root##")"
web=$(cri run web shop /kubepods/burstable/podweb '{}' app/512/)
plugin
shown "a pod that was there before the plugin"
cri run db shop kubepods-burstable-poddb.slice '{"numaherd.io/policy":"none"}' app/512/ >/dev/null
cri run odd shop /kubepods/besteffort/pododd '{"numaherd.io/policy":"adaptve"}' app/2/ >/dev/null
cri run fast shop /kubepods/podfast '{"numaherd.io/policy":"adaptive"}' app/2048/0-1 side/512/ >/dev/null
shown "one left alone, one that asks for what there is not, one with CPUs of kubelet's static manager"
cri remove "$web"
shown "the first is removed"
kill -9 "$plugin"
time cri run late shop /kubepods/burstable/podlate '{}' app/512/ >/dev/null
plugin
shown "the plugin was killed, a pod came without it, and it is back"
kill -9 "$containerd"
sleep 2
containerd
cri run after shop /kubepods/burstable/podafter '{}' app/512/ >/dev/null
shown "containerd was killed and is back"
