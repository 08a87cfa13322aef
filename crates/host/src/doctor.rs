//! What this machine offers, what is missing, what would help, and what else steers threads or
//! pages: as data, which the program prints.

mod events;
mod others;
mod walk;

use std::path::Path;

use numaherd_quantity::counted;
use numaherd_topology::{CpuSet, Topology};
use numaherd_world::SignalReport;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

pub use self::events::EventCheck;

use self::events::{Machinery, MakeLoad};
use crate::damon;
use crate::events::EventTable;
use crate::files::Root;
use crate::host::{Equipment, processor};
use crate::kernel::{Kernel, of_root};
use crate::options::{HostOptions, Selection};
use crate::perf_errors::Reasons;
use crate::scx::{self, SCX_LAYERED, State};

/// The subject of what says whether threads can be placed.
pub const PLACING: &str = "placing threads";
/// The subject of what says whether pages can be moved.
pub const MOVING: &str = "moving pages";

/// How far something is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, but less well.
    Weak,
    /// It is in the way.
    Bad,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was checked, as a short and stable name.
    pub subject: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found, in one sentence.
    pub found: String,
    /// What would help; `None` if nothing needs help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// What this machine offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doctor {
    /// The kernel's release; `None` if the tree does not say.
    pub kernel: Option<String>,
    /// The processor's name; empty if the tree does not say.
    pub processor: String,
    /// Whether the machine is virtual.
    pub virtual_machine: bool,
    /// Its nodes, memory domains and online CPUs.
    pub shape: String,
    /// Nodes with memory.
    pub nodes: usize,
    /// Memory domains.
    pub domains: usize,
    /// Each signal, measured or missing, in the order of [`numaherd_world::Signal::ALL`].
    pub signals: Vec<SignalReport>,
    /// The events counted here, each tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventCheck>,
    /// Rights, limits and the kernel's abilities.
    pub abilities: Vec<Finding>,
    /// What else steers threads or pages here.
    pub others: Vec<Finding>,
}

/// Examines the machine (root `/`) or a captured tree. On the machine, it tries the events on a
/// walk over memory, which takes some hundredths of a second.
pub fn doctor(root: &Path, topology: &Topology, events: &EventTable) -> Doctor {
    let files = Root::new(root);
    let walk = || events::walk(topology);
    let load = files.is_live().then_some::<MakeLoad<'_>>(&walk);
    examine(&files, topology, &*of_root(&files), events, load)
}

/// Only the doctor's signals: what can be measured on the machine or in a captured tree.
pub fn signals(root: &Path, topology: &Topology, events: &EventTable) -> Vec<SignalReport> {
    let files = Root::new(root);
    let kernel = of_root(&files);
    let processor = processor(&files);
    Equipment::find(&files, &options(events), topology, &*kernel, &processor).signals
}

fn options(events: &EventTable) -> HostOptions {
    let mut options = HostOptions::new(Selection::Machine);
    options.events = events.clone();
    options
}

fn examine(
    root: &Root,
    topology: &Topology,
    kernel: &dyn Kernel,
    events: &EventTable,
    load: Option<MakeLoad<'_>>,
) -> Doctor {
    let processor = processor(root);
    let equipment = Equipment::find(root, &options(events), topology, kernel, &processor);
    let machinery = Machinery {
        root,
        kernel,
        processor: &processor,
        reasons: &equipment.reasons,
        choice: equipment.counters.as_ref().map(|counters| &counters.choice),
    };
    let events = events::check(&machinery, events, load);
    let nodes = topology.memory_nodes().len();
    let reasons = &equipment.reasons;
    let mut abilities = vec![nodes_finding(root, nodes), perf_finding(root, reasons)];
    abilities.extend(rights(reasons));
    if root.is_live() {
        abilities.extend([
            placing(kernel),
            ways(&scx::state(root), on_path(SCX_LAYERED)),
            moving(kernel),
            ways_to_move(&damon::state(root, kernel)),
            open_files(),
        ]);
    }
    Doctor {
        kernel: root.text("proc/sys/kernel/osrelease"),
        virtual_machine: processor.hypervisor,
        processor: processor.name,
        shape: format!(
            "{} with memory, {}, {} online",
            counted(nodes, "node"),
            counted(topology.domains().len(), "memory domain"),
            counted(topology.online_cpus().len(), "CPU")
        ),
        nodes,
        domains: topology.domains().len(),
        signals: equipment.signals,
        events,
        abilities,
        others: others::others(root),
    }
}

impl Finding {
    fn new(subject: &str, verdict: Verdict, found: String, remedy: Option<&str>) -> Self {
        Self {
            subject: subject.to_owned(),
            verdict,
            found,
            remedy: remedy.map(str::to_owned),
        }
    }

    fn good(subject: &str, found: impl Into<String>) -> Self {
        Self::new(subject, Verdict::Good, found.into(), None)
    }

    fn weak(subject: &str, found: impl Into<String>, remedy: &str) -> Self {
        Self::new(subject, Verdict::Weak, found.into(), Some(remedy))
    }

    fn bad(subject: &str, found: impl Into<String>, remedy: &str) -> Self {
        Self::new(subject, Verdict::Bad, found.into(), Some(remedy))
    }
}

fn nodes_finding(root: &Root, nodes: usize) -> Finding {
    let has_numa = root.path("sys/devices/system/node").exists();
    match (has_numa, nodes) {
        (false, _) => Finding::bad(
            "nodes",
            "the kernel has no NUMA support: no /sys/devices/system/node",
            "use a kernel built with CONFIG_NUMA",
        ),
        (true, 0 | 1) => Finding::weak(
            "nodes",
            "there is one memory node, so no page can be moved to a better one",
            "placement by memory domain still works; for nodes, turn off interleaving in the \
             firmware, give the virtual machine several nodes, or use the lab",
        ),
        (true, nodes) => Finding::good("nodes", format!("{nodes} memory nodes")),
    }
}

fn perf_finding(root: &Root, reasons: &Reasons) -> Finding {
    let Some(paranoid) = reasons.paranoid else {
        return Finding::bad(
            "perf events",
            "the kernel has no perf events (no kernel.perf_event_paranoid)",
            "use a kernel built with CONFIG_PERF_EVENTS",
        );
    };
    let locked: Option<u64> = root.number("proc/sys/kernel/perf_event_mlock_kb");
    let locked = locked.map_or("unknown".to_owned(), |kib| format!("{kib} KiB"));
    let found = format!(
        "kernel.perf_event_paranoid is {paranoid}, kernel.perf_event_mlock_kb {locked} for each CPU"
    );
    if paranoid <= 0 || reasons.may_watch_all() {
        Finding::good("perf events", found)
    } else {
        Finding::bad(
            "perf events",
            found + ", and the program lacks CAP_PERFMON",
            "run as root, give CAP_PERFMON, or set sysctl kernel.perf_event_paranoid=0",
        )
    }
}

fn rights(reasons: &Reasons) -> Vec<Finding> {
    let rights = [
        (
            "CAP_SYS_NICE",
            reasons.may_steer_others(),
            "to place threads of other users and move pages that several processes map",
            "run as root, or setcap cap_sys_nice+ep",
        ),
        (
            "CAP_SYS_PTRACE",
            reasons.may_look_into_others(),
            "to move pages of other users' processes and see where they are",
            "run as root, or setcap cap_sys_ptrace+ep",
        ),
    ];
    let finding = |(subject, has, what, remedy)| match has {
        true => Finding::good(subject, format!("present, needed {what}")),
        false => Finding::weak(subject, format!("missing, needed {what}"), remedy),
    };
    let mut findings: Vec<Finding> = rights.map(finding).into();
    if reasons.filtered {
        findings.push(Finding::weak(
            "system call filter",
            "system calls go through a seccomp filter, as in most containers; it may refuse \
             perf_event_open, move_pages and sched_setaffinity whatever the capabilities",
            "run outside the container, or allow the three in its profile",
        ));
    }
    findings
}

/// Whether the kernel lets threads be placed at all: this one, on the CPUs that it has.
fn placing(kernel: &dyn Kernel) -> Finding {
    let mut words = Vec::new();
    // 0 is the thread that asks.
    let tried = kernel
        .affinity(0, &mut words)
        .and_then(|()| kernel.set_affinity(0, &CpuSet::of_words(words.clone())));
    match tried {
        Ok(()) => Finding::good(PLACING, "the kernel lets threads be placed"),
        Err(errno) => Finding::bad(
            PLACING,
            format!("sched_setaffinity is refused, for this very thread: {errno}"),
            "run outside the container, or allow sched_setaffinity in its seccomp profile",
        ),
    }
}

/// In which ways placements can be carried out (`--enforce`).
fn ways(state: &State, has_program: bool) -> Finding {
    let hints = match (state, has_program) {
        (State::Missing, _) => "no hints to a scheduler: the kernel has no sched_ext".to_owned(),
        (State::Ours, _) => "hints to the scx_layered that runs (scx)".to_owned(),
        (State::Other(name), _) => {
            format!("no hints to a scheduler while {name} runs: stop it first")
        }
        (State::Free, true) => {
            "hints to scx_layered, which is started when needed (scx)".to_owned()
        }
        (State::Free, false) => format!("no hints to a scheduler: {SCX_LAYERED} is not installed"),
    };
    let balancing = match state {
        State::Missing => "",
        _ => {
            "; while a sched_ext scheduler runs, kernel NUMA balancing does not act on its threads"
        }
    };
    Finding::good(
        "ways to place threads",
        format!("affinity masks (affinity), {hints}{balancing}"),
    )
}

/// Whether `PATH` has a program of this name.
fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Whether the kernel says where pages are, which is half of moving them; tried on one of our own.
fn moving(kernel: &dyn Kernel) -> Finding {
    let here = 0_u8;
    let address = std::ptr::from_ref(&here).addr() as u64;
    match kernel.where_are(0, &[address], &mut [0]) {
        Ok(()) => Finding::good(MOVING, "the kernel lets pages be moved"),
        Err(errno) => Finding::bad(
            MOVING,
            format!("move_pages is refused, for a page of this program's own: {errno}"),
            "use a kernel built with CONFIG_NUMA and CONFIG_MIGRATION; in a container, allow \
             move_pages in its seccomp profile (Docker: --cap-add SYS_NICE)",
        ),
    }
}

/// In which ways pages can be moved (`damon = true`).
fn ways_to_move(state: &damon::State) -> Finding {
    let by_damon = match state {
        damon::State::Missing => {
            "not by DAMON: the kernel has none (CONFIG_DAMON_SYSFS), or this user may not use it".to_owned()
        }
        damon::State::TooOld => "not by DAMON, which does not move pages of a process before Linux 6.17".to_owned(),
        damon::State::Kept(module) => format!(
            "not by DAMON while {module} keeps it to itself: echo N > /sys/module/{module}/parameters/enabled"
        ),
        damon::State::Free => "by DAMON, which leaves what is used meanwhile (damon = true)".to_owned(),
        damon::State::Left => {
            "by DAMON (damon = true), of which a run that was killed has left threads: numaherd release takes them down".to_owned()
        }
        damon::State::Others(n) => {
            let threads = counted(*n, "thread");
            format!("not by DAMON while somebody uses {threads} of it: stop them first")
        }
    };
    Finding::good("ways to move pages", format!("by move_pages; {by_damon}"))
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).maximum;
    // A thread takes two files of /proc, up to five counters, and two more of the uncore penalty.
    let threads = limit.map(|files| files.saturating_sub(100) / 9);
    match threads {
        Some(threads) if threads < 10_000 => Finding::weak(
            "open files",
            format!("the hard limit lets about {threads} threads be counted"),
            "raise it (ulimit -Hn, LimitNOFILE= in a systemd unit)",
        ),
        _ => Finding::good(
            "open files",
            "the limit is enough for 10000 threads and more",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_to_move_pages_are_named_with_what_damon_lacks() {
        let states = [
            damon::State::Missing,
            damon::State::TooOld,
            damon::State::Kept("damon_stat"),
            damon::State::Free,
            damon::State::Left,
            damon::State::Others(2),
        ];
        let told = states.map(|state| ways_to_move(&state).found);
        let expected = [
            "by move_pages; not by DAMON: the kernel has none (CONFIG_DAMON_SYSFS), or this user may not use it",
            "by move_pages; not by DAMON, which does not move pages of a process before Linux 6.17",
            "by move_pages; not by DAMON while damon_stat keeps it to itself: echo N > \
             /sys/module/damon_stat/parameters/enabled",
            "by move_pages; by DAMON, which leaves what is used meanwhile (damon = true)",
            "by move_pages; by DAMON (damon = true), of which a run that was killed has left threads: numaherd release \
             takes them down",
            "by move_pages; not by DAMON while somebody uses 2 threads of it: stop them first",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_ways_to_place_threads_are_named_with_what_each_lacks() {
        let told = |state: State, has_program| ways(&state, has_program).found;
        let balancing =
            "; while a sched_ext scheduler runs, kernel NUMA balancing does not act on its threads";
        let expected = [
            (
                State::Missing,
                true,
                "no hints to a scheduler: the kernel has no sched_ext",
                "",
            ),
            (
                State::Free,
                false,
                "no hints to a scheduler: scx_layered is not installed",
                balancing,
            ),
            (
                State::Free,
                true,
                "hints to scx_layered, which is started when needed (scx)",
                balancing,
            ),
            (
                State::Ours,
                false,
                "hints to the scx_layered that runs (scx)",
                balancing,
            ),
            (
                State::Other("lavd".to_owned()),
                true,
                "no hints to a scheduler while lavd runs: stop it first",
                balancing,
            ),
        ];
        for (state, has_program, hints, balancing) in expected {
            let expected = format!("affinity masks (affinity), {hints}{balancing}");
            assert_eq!(told(state, has_program), expected);
        }
    }
}
