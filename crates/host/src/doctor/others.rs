//! What else steers threads or pages on a machine: one function each, over files under a root.
//!
//! Each finding says what it does, what that means for a herd, and what to do. The verdict is `Bad`
//! if it undoes decisions, `Weak` if it narrows or disturbs them. What is checked, and where:
//!
//! | who | by what |
//! |---|---|
//! | the kernel: NUMA balancing, memory tiering, demotion, DAMON, KSM | sysctls, `/sys/kernel/mm` |
//! | the kernel's command line: isolated CPUs | `/sys/devices/system/cpu/isolated` |
//! | sched_ext | `/sys/kernel/sched_ext` |
//! | daemons: numad, irqbalance, tuned, slurmd | names of processes |
//! | kubelet's static CPU and memory managers | its state files |
//! | libvirt's pinned vCPUs; other cpusets | `cpuset.cpus` of cgroups |
//! | systemd's CPUAffinity= and NUMAPolicy= | its configuration and units of the user's own |

use super::{Finding, Verdict};
use crate::files::Root;
use crate::scx::{self, State};

/// All of them, in the order they are shown.
pub(super) fn others(root: &Root) -> Vec<Finding> {
    let mut others = Vec::new();
    others.extend(numa_balancing(root));
    others.extend(sched_ext(root));
    others.extend(daemons(root));
    others.extend(kubelet(root));
    others.extend(cpusets(root));
    let settings = [systemd, isolated, demotion, damon, ksm];
    others.extend(settings.iter().filter_map(|look| look(root)));
    others
}

/// Bits of `kernel.numa_balancing` (Documentation/admin-guide/sysctl/kernel.rst).
const BALANCING: u32 = 1;
const TIERING: u32 = 2;

fn numa_balancing(root: &Root) -> Option<Finding> {
    const SUBJECT: &str = "kernel NUMA balancing";
    let mode: u32 = root.number("proc/sys/kernel/numa_balancing")?;
    if mode & BALANCING != 0 {
        Some(Finding::weak(
            SUBJECT,
            format!(
                "it moves threads and pages by itself (kernel.numa_balancing is {mode}); in the lab, adaptive is as fast \
                 beside it; other policies and it may undo each other's work"
            ),
            "none under adaptive; else sysctl kernel.numa_balancing=0 while numaherd runs",
        ))
    } else if mode & TIERING != 0 {
        Some(Finding::weak(
            SUBJECT,
            format!(
                "it moves hot pages from slow memory to fast (kernel.numa_balancing is {mode}), and \
                 may take pages from where numaherd has put them"
            ),
            "keep numaherd to the fast nodes: --nodes, or herd.limits.nodes",
        ))
    } else {
        None
    }
}

fn sched_ext(root: &Root) -> Option<Finding> {
    match scx::state(root) {
        State::Other(name) => Some(Finding::weak(
            "sched_ext",
            format!(
                "scheduler {name} runs: it may place threads within their affinity, and kernel NUMA balancing does not \
                 act on the threads that it schedules"
            ),
            "stop it, or leave it running if it respects affinities",
        )),
        State::Missing | State::Free | State::Ours => None,
    }
}

/// Programs that run as processes of these names.
fn daemons(root: &Root) -> Vec<Finding> {
    let profile = root.text("etc/tuned/active_profile");
    let profile = profile.map_or("a profile".to_owned(), |name| format!("profile {name}"));
    let tuned = format!(
        "by {profile} it may set kernel.numa_balancing, isolate CPUs and give threads affinities, \
         and does so again at each start"
    );
    let daemons = [
        (
            "numad",
            Verdict::Bad,
            "it moves processes and their pages between nodes",
            "systemctl disable --now numad",
        ),
        (
            "irqbalance",
            Verdict::Weak,
            "it moves interrupts between CPUs, not threads: it does no harm beyond noise",
            "systemctl stop irqbalance, if the noise matters",
        ),
        (
            "tuned",
            Verdict::Weak,
            &tuned,
            "`tuned-adm active` shows the profile; choose one that does not change threads and \
             kernel.numa_balancing, or run `tuned-adm off`",
        ),
        (
            "slurmd",
            Verdict::Weak,
            "with TaskPlugin=task/affinity or task/cgroup it gives each job CPUs of its own; \
             numaherd keeps to cpusets, and leaves threads with an affinity of their own alone",
            "let only one of them place threads: use no --cpu-bind in jobs that numaherd should \
             herd",
        ),
    ];
    let finding = |(name, verdict, what, remedy)| {
        let pid = running(root, name)?;
        let found = format!("{name} runs (process {pid}): {what}");
        Some(Finding::new(name, verdict, found, Some(remedy)))
    };
    daemons.into_iter().filter_map(finding).collect()
}

/// The lowest process of this name.
fn running(root: &Root, name: &str) -> Option<u32> {
    let pids = root.numbers("proc", "").unwrap_or_default();
    pids.into_iter()
        .find(|pid| root.text(&format!("proc/{pid}/comm")).as_deref() == Some(name))
}

/// Kubelet's managers whose state files name a policy that binds containers.
fn kubelet(root: &Root) -> impl Iterator<Item = Finding> {
    let managers = [
        (
            "kubelet",
            "cpu_manager_state",
            "static",
            "its static CPU manager gives containers CPUs of their own, by cpuset",
        ),
        (
            "kubelet memory",
            "memory_manager_state",
            "Static",
            "its static memory manager binds containers to nodes, by cpuset",
        ),
    ];
    managers
        .into_iter()
        .filter_map(|(subject, file, policy, what)| {
            let state = root.text(&format!("var/lib/kubelet/{file}"))?;
            // Spaces in its JSON mean nothing.
            let bare: String = state.chars().filter(|c| !c.is_whitespace()).collect();
            let remedy = "numaherd keeps to cpusets; leave guaranteed pods out of the selection";
            bare.contains(&format!("\"policyName\":\"{policy}\""))
                .then(|| Finding::weak(subject, what, remedy))
        })
}

/// Control groups with chosen CPUs: libvirt's for vCPUs, and others.
fn cpusets(root: &Root) -> Vec<Finding> {
    let mut chosen = Vec::new();
    let online = root.text("sys/devices/system/cpu/online");
    gather_cpusets(root, "sys/fs/cgroup", online.as_ref(), &mut chosen);
    let (vcpus, others): (Vec<String>, Vec<String>) = chosen
        .into_iter()
        .partition(|group| group.contains("/libvirt/"));
    let libvirt = vcpus.first().map(|first| {
        Finding::weak(
            "libvirt",
            format!(
                "it keeps {} vCPUs or their emulators to CPUs of their own ({first})",
                vcpus.len()
            ),
            "numaherd keeps to that; for more freedom take <vcpupin> and placement='auto' out of \
             the machine's XML",
        )
    });
    let cpusets = others.first().map(|first| {
        Finding::weak(
            "cpusets",
            format!(
                "{} control groups have CPUs of their own ({first})",
                others.len()
            ),
            "numaherd keeps to them; for more freedom take away AllowedCPUs= (systemd) or \
             --cpuset-cpus (containers)",
        )
    });
    libvirt.into_iter().chain(cpusets).collect()
}

/// Groups below a folder with a `cpuset.cpus` of their own, as path and CPUs; each level comes before
/// those below it. An empty file is no choice, nor are all online CPUs, the default of cgroups
/// version 1.
fn gather_cpusets(root: &Root, folder: &str, online: Option<&String>, chosen: &mut Vec<String>) {
    // The cpusets of a folder that is gone or unreadable are unknown.
    let entries = std::fs::read_dir(root.path(folder)).into_iter().flatten();
    let mut below: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()))
        .collect();
    below.sort();
    for group in &below {
        let cpus = root.text(&format!("{group}/cpuset.cpus"));
        if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty() && Some(cpus) != online) {
            chosen.push(format!("/{group}: {cpus}"));
        }
    }
    for group in &below {
        gather_cpusets(root, group, online, chosen);
    }
}

/// Folders of the administrator's own configuration of systemd's manager.
const MANAGER: &[&str] = &["etc/systemd/system.conf", "etc/systemd/system.conf.d"];
const UNITS: &str = "etc/systemd/system";

fn systemd(root: &Root) -> Option<Finding> {
    let mut files = Vec::new();
    for place in MANAGER.iter().chain([&UNITS]) {
        let from = files.len();
        gather(root, place, 1, &mut files);
        files[from..].sort();
    }
    let mut settings = files
        .iter()
        .filter_map(|file| Some(format!("/{file}: {}", setting(root, file)?)));
    let first = settings.next()?;
    let more = match settings.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Finding::weak(
        "systemd",
        format!("it starts services with CPUs or nodes of their own ({first}{more})"),
        "numaherd leaves threads with an affinity of their own alone; remove the setting, or allow \
         them to be placed: --take-over, herd.limits.take_over",
    ))
}

/// Configuration files at a place and so many folders below; links (units that are switched on) are
/// left out.
fn gather(root: &Root, place: &str, below: u32, files: &mut Vec<String>) {
    let path = root.path(place);
    if path.is_file() {
        files.push(place.to_owned());
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let inner = format!("{place}/{}", entry.file_name().to_string_lossy());
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_file() && (inner.ends_with(".conf") || inner.ends_with(".service")) {
            files.push(inner);
        } else if kind.is_dir() && below > 0 {
            gather(root, &inner, below - 1, files);
        }
    }
}

/// The first setting in a file that places something.
fn setting(root: &Root, file: &str) -> Option<String> {
    const KEYS: [&str; 4] = [
        "CPUAffinity",
        "NUMAPolicy",
        "AllowedCPUs",
        "AllowedMemoryNodes",
    ];
    let text = root.text(file)?;
    let is_set = |line: &&str| {
        line.split_once('=')
            .is_some_and(|(key, value)| KEYS.contains(&key.trim()) && !value.trim().is_empty())
    };
    text.lines().map(str::trim).find(is_set).map(str::to_owned)
}

fn isolated(root: &Root) -> Option<Finding> {
    let cpus = root.text("sys/devices/system/cpu/isolated")?;
    (!cpus.is_empty()).then(|| {
        Finding::weak(
            "isolated CPUs",
            format!(
                "the kernel does not balance threads on CPUs {cpus} (isolcpus): threads placed \
                 there stay, possibly several on one CPU"
            ),
            "keep numaherd off them: --cpus, or herd.limits.cpus",
        )
    })
}

fn demotion(root: &Root) -> Option<Finding> {
    let enabled = root.text("sys/kernel/mm/numa/demotion_enabled")?;
    matches!(enabled.as_str(), "true" | "1").then(|| {
        Finding::weak(
            "demotion",
            "under pressure the kernel moves pages to slower nodes in place of swapping",
            "echo false > /sys/kernel/mm/numa/demotion_enabled, or --nodes for the fast ones",
        )
    })
}

fn damon(root: &Root) -> Option<Finding> {
    let folder = "sys/kernel/mm/damon/admin/kdamonds";
    let numbers = root.numbers(folder, "").unwrap_or_default();
    let is_on = |number: &&u32| {
        let state = root.text(&format!("{folder}/{number}/state"));
        state.as_deref() == Some("on")
    };
    let working = numbers.iter().filter(is_on).count();
    (working > 0).then(|| {
        Finding::weak(
            "DAMON",
            format!("{working} of its threads watch memory, and may move pages by its schemes"),
            "damo stop, where a scheme of it moves or reclaims pages",
        )
    })
}

fn ksm(root: &Root) -> Option<Finding> {
    let run: u32 = root.number("sys/kernel/mm/ksm/run")?;
    let across: u32 = root.number("sys/kernel/mm/ksm/merge_across_nodes")?;
    (run == 1 && across == 1).then(|| {
        Finding::weak(
            "KSM",
            "it merges equal pages of different nodes into one, which then is far from someone and \
             stays where it is",
            "echo 2 > /sys/kernel/mm/ksm/run, echo 0 > /sys/kernel/mm/ksm/merge_across_nodes, echo 1 \
             > /sys/kernel/mm/ksm/run: then it merges within nodes",
        )
    })
}

#[cfg(test)]
mod tests;
