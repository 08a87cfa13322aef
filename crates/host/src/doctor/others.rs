//! Who else steers threads or pages on a machine: one function each, over files under a root.
//!
//! Each says what it does, what that means for a herd, and what to do. The verdict is `Bad` where it
//! undoes what is decided, `Weak` where it narrows or disturbs it. What is looked for, and where:
//!
//! | who | by what |
//! |---|---|
//! | the kernel: NUMA balancing, memory tiering, demotion, DAMON, KSM | sysctls, `/sys/kernel/mm` |
//! | the kernel's command line: CPUs that are set apart | `/sys/devices/system/cpu/isolated` |
//! | sched_ext | `/sys/kernel/sched_ext` |
//! | daemons: numad, irqbalance, tuned, slurmd | names of processes |
//! | kubelet's static CPU and memory managers | its state files |
//! | libvirt's pinned vCPUs; other cpusets | `cpuset.cpus` of cgroups |
//! | systemd's CPUAffinity= and NUMAPolicy= | its configuration and units of the user's own |

use std::path::PathBuf;

use super::{Finding, Verdict, finding};
use crate::files::Root;

/// All of them, in the order they are shown.
pub(super) fn others(root: &Root) -> Vec<Finding> {
    let single = [
        numa_balancing,
        sched_ext,
        numad,
        irqbalance,
        tuned,
        slurm,
        kubelet,
        kubelet_memory,
    ];
    let mut others: Vec<Finding> = single.iter().filter_map(|look| look(root)).collect();
    others.extend(cpusets(root));
    let later = [systemd, isolated, demotion, damon, ksm];
    others.extend(later.iter().filter_map(|look| look(root)));
    others
}

/// Bits of `kernel.numa_balancing` (Documentation/admin-guide/sysctl/kernel.rst).
const BALANCING: u32 = 1;
const TIERING: u32 = 2;

fn numa_balancing(root: &Root) -> Option<Finding> {
    let mode: u32 = root.number("proc/sys/kernel/numa_balancing")?;
    if mode & BALANCING != 0 {
        Some(finding(
            "kernel NUMA balancing",
            Verdict::Bad,
            format!("it moves threads and pages by itself (kernel.numa_balancing is {mode})"),
            Some("sysctl kernel.numa_balancing=0 while numaherd runs"),
        ))
    } else if mode & TIERING != 0 {
        Some(finding(
            "kernel NUMA balancing",
            Verdict::Weak,
            format!(
                "it moves hot pages from slow memory to fast (kernel.numa_balancing is {mode}), \
                 and \
                 may take pages from where numaherd has put them"
            ),
            Some("keep numaherd to the fast nodes: --nodes, or herd.limits.nodes"),
        ))
    } else {
        None
    }
}

fn sched_ext(root: &Root) -> Option<Finding> {
    let state = root.text("sys/kernel/sched_ext/state")?;
    if state == "disabled" {
        return None;
    }
    let name = root.text("sys/kernel/sched_ext/root/ops");
    let name = name.unwrap_or_else(|| "unnamed".to_owned());
    Some(finding(
        "sched_ext",
        Verdict::Weak,
        format!("scheduler {name} is {state}: it may place threads within their affinity"),
        Some("stop it, or let it be if it keeps to affinities"),
    ))
}

fn numad(root: &Root) -> Option<Finding> {
    let what = "it moves processes and their pages between nodes";
    daemon(
        root,
        "numad",
        Verdict::Bad,
        what,
        "systemctl disable --now numad",
    )
}

fn irqbalance(root: &Root) -> Option<Finding> {
    let what = "it moves interrupts between CPUs, not threads: it does no harm beyond noise";
    let remedy = "systemctl stop irqbalance, if the noise matters";
    daemon(root, "irqbalance", Verdict::Weak, what, remedy)
}

fn tuned(root: &Root) -> Option<Finding> {
    let profile = root.text("etc/tuned/active_profile");
    let profile = profile.map_or("a profile".to_owned(), |name| format!("profile {name}"));
    let what = format!(
        "by {profile} it may set kernel.numa_balancing, isolate CPUs and give threads affinities, \
         and does so again at each start"
    );
    let remedy = "`tuned-adm active` shows the profile; choose one that does not change threads \
                  and kernel.numa_balancing, or run `tuned-adm off`";
    daemon(root, "tuned", Verdict::Weak, &what, remedy)
}

fn slurm(root: &Root) -> Option<Finding> {
    let what = "with TaskPlugin=task/affinity or task/cgroup it gives each job CPUs of its own; \
                numaherd keeps to cpusets, and leaves threads with an affinity of their own alone";
    let remedy =
        "let only one of them place threads: use no --cpu-bind in jobs that numaherd should herd";
    daemon(root, "slurmd", Verdict::Weak, what, remedy)
}

fn daemon(root: &Root, name: &str, verdict: Verdict, what: &str, remedy: &str) -> Option<Finding> {
    let pid = running(root, name)?;
    let found = format!("{name} runs (process {pid}): {what}");
    Some(finding(name, verdict, found, Some(remedy)))
}

/// The lowest process of this name.
fn running(root: &Root, name: &str) -> Option<u32> {
    let pids = root.numbers("proc", "").unwrap_or_default();
    pids.into_iter()
        .find(|pid| root.text(&format!("proc/{pid}/comm")).as_deref() == Some(name))
}

fn kubelet(root: &Root) -> Option<Finding> {
    state_of(root, "cpu_manager_state", "static")?;
    Some(finding(
        "kubelet",
        Verdict::Weak,
        "its static CPU manager gives containers CPUs of their own, by cpuset",
        Some("numaherd keeps to cpusets; leave guaranteed pods out of the selection"),
    ))
}

fn kubelet_memory(root: &Root) -> Option<Finding> {
    state_of(root, "memory_manager_state", "Static")?;
    Some(finding(
        "kubelet memory",
        Verdict::Weak,
        "its static memory manager binds containers to nodes, by cpuset",
        Some("numaherd keeps to cpusets; leave guaranteed pods out of the selection"),
    ))
}

/// Whether a state file of kubelet's names this policy; spaces in its JSON mean nothing.
fn state_of(root: &Root, file: &str, policy: &str) -> Option<()> {
    let state = root.text(&format!("var/lib/kubelet/{file}"))?;
    let bare: String = state.chars().filter(|c| !c.is_whitespace()).collect();
    bare.contains(&format!("\"policyName\":\"{policy}\""))
        .then_some(())
}

/// Control groups whose CPUs are a choice of somebody's: libvirt's for vCPUs, and others.
fn cpusets(root: &Root) -> Vec<Finding> {
    let mut found = Cpusets::default();
    found.look(root, PathBuf::from("sys/fs/cgroup"));
    let mut findings = Vec::new();
    if let Some(first) = found.vcpus.first() {
        let count = found.vcpus.len();
        findings.push(finding(
            "libvirt",
            Verdict::Weak,
            format!("it keeps {count} vCPUs or their emulators to CPUs of their own ({first})"),
            Some(
                "numaherd keeps to that; for more freedom take <vcpupin> and placement='auto' out \
                 of \
                 the machine's XML",
            ),
        ));
    }
    if let Some(first) = found.others.first() {
        let count = found.others.len();
        findings.push(finding(
            "cpusets",
            Verdict::Weak,
            format!("{count} control groups have CPUs of their own ({first})"),
            Some(
                "numaherd keeps to them; for more freedom take away AllowedCPUs= (systemd) or \
                 --cpuset-cpus (containers)",
            ),
        ));
    }
    findings
}

/// Groups with `cpuset.cpus` of their own, each as path and CPUs.
#[derive(Default)]
struct Cpusets {
    vcpus: Vec<String>,
    others: Vec<String>,
}

impl Cpusets {
    fn look(&mut self, root: &Root, top: PathBuf) {
        let online = root.text("sys/devices/system/cpu/online");
        let mut folders = vec![top];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(root.path(&folder.to_string_lossy())) else {
                // It has gone meanwhile, or is not for us: then its cpuset is not known.
                continue;
            };
            let mut below: Vec<PathBuf> = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| folder.join(entry.file_name()))
                .collect();
            below.sort();
            for group in &below {
                self.count(root, &group.to_string_lossy(), online.as_ref());
            }
            // The last comes out first.
            folders.extend(below.into_iter().rev());
        }
    }

    /// Empty are CPUs that nobody chose, and in the first version of control groups all that there are.
    fn count(&mut self, root: &Root, group: &str, online: Option<&String>) {
        let cpus = root.text(&format!("{group}/cpuset.cpus"));
        let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty() && Some(cpus) != online) else {
            return;
        };
        let shown = format!("/{group}: {cpus}");
        if group.contains("/libvirt/") {
            self.vcpus.push(shown);
        } else {
            self.others.push(shown);
        }
    }
}

/// Folders of systemd's configuration that are a person's own, and of its manager.
const MANAGER: &[&str] = &["etc/systemd/system.conf", "etc/systemd/system.conf.d"];
const UNITS: &str = "etc/systemd/system";

fn systemd(root: &Root) -> Option<Finding> {
    let mut files = Vec::new();
    for place in MANAGER.iter().chain([&UNITS]) {
        let from = files.len();
        gather(root, place, 1, &mut files);
        files[from..].sort();
    }
    let mut told: Vec<String> = files
        .iter()
        .filter_map(|file| Some(format!("{}: {}", shown(file), setting(root, file)?)))
        .collect();
    let count = told.len();
    let first = (count > 0).then(|| told.swap_remove(0))?;
    let more = if count > 1 {
        format!(" and {} more", count - 1)
    } else {
        String::new()
    };
    Some(finding(
        "systemd",
        Verdict::Weak,
        format!("it starts services with CPUs or nodes of their own ({first}{more})"),
        Some(
            "numaherd leaves threads with an affinity of their own alone; remove the setting, or \
             allow them to be placed: --take-over, herd.limits.take_over",
        ),
    ))
}

fn shown(file: &std::path::Path) -> String {
    format!("/{}", file.display())
}

/// Configuration files at a place and so many folders below; links (units that are switched on) are
/// left out.
fn gather(root: &Root, place: &str, below: u32, files: &mut Vec<PathBuf>) {
    let path = root.path(place);
    if path.is_file() {
        files.push(PathBuf::from(place));
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let inner = format!("{place}/{name}");
        if kind.is_file() && (name.ends_with(".conf") || name.ends_with(".service")) {
            files.push(PathBuf::from(inner));
        } else if kind.is_dir() && below > 0 {
            gather(root, &inner, below - 1, files);
        }
    }
}

/// The first setting of a file that places something.
fn setting(root: &Root, file: &std::path::Path) -> Option<String> {
    let text = root.text(&file.to_string_lossy())?;
    let keys = [
        "CPUAffinity",
        "NUMAPolicy",
        "AllowedCPUs",
        "AllowedMemoryNodes",
    ];
    text.lines().map(str::trim).find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let is_set = keys.contains(&key.trim()) && !value.trim().is_empty();
        is_set.then(|| line.to_owned())
    })
}

fn isolated(root: &Root) -> Option<Finding> {
    let cpus = root.text("sys/devices/system/cpu/isolated")?;
    if cpus.is_empty() {
        return None;
    }
    Some(finding(
        "isolated CPUs",
        Verdict::Weak,
        format!(
            "the kernel does not balance threads on CPUs {cpus} (isolcpus): threads placed there \
             stay, possibly several on one CPU"
        ),
        Some("keep numaherd off them: --cpus, or herd.limits.cpus"),
    ))
}

fn demotion(root: &Root) -> Option<Finding> {
    let enabled = root.text("sys/kernel/mm/numa/demotion_enabled")?;
    matches!(enabled.as_str(), "true" | "1").then(|| {
        finding(
            "demotion",
            Verdict::Weak,
            "under pressure the kernel moves pages to slower nodes in place of swapping",
            Some("echo false > /sys/kernel/mm/numa/demotion_enabled, or --nodes for the fast ones"),
        )
    })
}

fn damon(root: &Root) -> Option<Finding> {
    let folder = "sys/kernel/mm/damon/admin/kdamonds";
    let state = |number: &u32| root.text(&format!("{folder}/{number}/state"));
    let working = root.numbers(folder, "").unwrap_or_default();
    let working = working
        .iter()
        .filter(|number| state(number).as_deref() == Some("on"))
        .count();
    (working > 0).then(|| {
        finding(
            "DAMON",
            Verdict::Weak,
            format!("{working} of its threads watch memory, and may move pages by its schemes"),
            Some("damo stop, where a scheme of it moves or reclaims pages"),
        )
    })
}

fn ksm(root: &Root) -> Option<Finding> {
    let run: u32 = root.number("sys/kernel/mm/ksm/run")?;
    let across: u32 = root.number("sys/kernel/mm/ksm/merge_across_nodes")?;
    (run == 1 && across == 1).then(|| {
        finding(
            "KSM",
            Verdict::Weak,
            "it merges equal pages of different nodes into one, which then is far from someone and \
             stays where it is",
            Some(
                "echo 2 > /sys/kernel/mm/ksm/run, echo 0 > /sys/kernel/mm/ksm/merge_across_nodes, \
                 echo 1 > /sys/kernel/mm/ksm/run: then it merges within nodes",
            ),
        )
    })
}

#[cfg(test)]
mod tests;
