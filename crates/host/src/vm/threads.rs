//! Which threads of a machine run vCPUs, found without its monitor.

use numaherd_world::{ProcessId, Thread, VirtualCpu};

use super::libvirt;
use crate::files::Root;
use crate::proc::cgroup::{self, Cgroups};

/// The vCPUs by QEMU's names of their threads.
pub(super) fn by_name(threads: &[&mut Thread]) -> Vec<VirtualCpu> {
    collected(threads.iter().filter_map(|thread| {
        Some(VirtualCpu {
            index: vcpu_named(&thread.name)?,
            thread: thread.id,
        })
    }))
}

/// The vCPU in a thread's name: `CPU 3/KVM`, `CPU 3/TCG`; `ALL CPUs/TCG` runs them all and is shown
/// as the first.
fn vcpu_named(name: &str) -> Option<u32> {
    if name == "ALL CPUs/TCG" {
        return Some(0);
    }
    let (number, accelerator) = name.strip_prefix("CPU ")?.split_once('/')?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    let known = !accelerator.is_empty() && accelerator.bytes().all(|b| b.is_ascii_uppercase());
    (plain && known).then(|| number.parse().ok()).flatten()
}

/// The vCPUs by the cgroups that libvirt put their threads in.
pub(super) fn by_cgroup(
    root: &Root,
    process: ProcessId,
    threads: &[&mut Thread],
) -> Vec<VirtualCpu> {
    collected(threads.iter().filter_map(|thread| {
        let path = format!("proc/{}/task/{}/cgroup", process.pid, thread.id.tid);
        let cgroups = cgroup::parse(&root.read(&path).ok()?);
        Some(VirtualCpu {
            index: paths(&cgroups).find_map(libvirt::vcpu)?,
            thread: thread.id,
        })
    }))
}

/// Ascending by index; an index that two claim goes to neither.
fn collected(vcpus: impl Iterator<Item = VirtualCpu>) -> Vec<VirtualCpu> {
    let mut vcpus: Vec<VirtualCpu> = vcpus.collect();
    vcpus.sort_unstable_by_key(|vcpu| vcpu.index);
    let groups = vcpus.chunk_by(|one, next| one.index == next.index);
    groups
        .filter(|group| group.len() == 1)
        .flatten()
        .copied()
        .collect()
}

/// All paths of a thread's cgroups.
pub(super) fn paths(cgroups: &Cgroups) -> impl Iterator<Item = &str> {
    cgroups.paths().map(String::as_str)
}
