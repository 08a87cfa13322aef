//! One machine over time: how it was started, when to look at it again, what is shown of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numaherd_world::{Agent, ProcessId, Thread, ThreadId, VirtualCpu, VirtualMachine};

use super::command_line::{self, CommandLine, Socket};
use super::inquiry::{Answers, Inquiry, PATIENCE, Unheard};
use super::libvirt;
use super::qmp::NoAnswer;
use super::sockets::{listening_at, reachable};
use super::threads::{by_cgroup, by_name, paths};
use super::{SECOND_NS, SELDOM_NS};
use crate::files::Root;
use crate::proc::cgroup;

/// Least time between two looks at a machine whose threads come and go.
const SOON_NS: u64 = 2 * SECOND_NS;
/// Longest time between two inquiries at a monitor that does not answer.
const RARELY_NS: u64 = 300 * SECOND_NS;
/// Characters of a name that are shown.
const NAME_CHARACTERS: usize = 255;

/// Why a monitor of libvirt's is not asked.
const LIBVIRTS: &str = "its monitor belongs to libvirt and is left alone";

#[derive(Debug)]
pub(super) struct Machine {
    line: CommandLine,
    /// Its name where it has given itself none.
    spare_name: String,
    /// Whether it is in a cgroup of libvirt's.
    is_libvirts: bool,
    pub(super) monitor: Monitor,
    /// When it is next asked, and its cgroups read.
    pub(super) due_ns: u64,
    /// When that was last done.
    looked_ns: u64,
    /// Its threads at that time.
    looked_at: Vec<ThreadId>,
    /// What its monitor last told.
    pub(super) told: Option<Answers>,
    by_cgroup: Vec<VirtualCpu>,
    /// When it was found.
    since_ns: u64,
    /// Notes of its monitor that people were told and that still hold: each is told once.
    said: Vec<String>,
    /// Whether people were told that its vCPUs cannot be found.
    said_none: bool,
    /// The host's end of its agent's port.
    pub(super) agent_port: Option<PathBuf>,
    shown: Arc<VirtualMachine>,
}

/// What a look at a process found.
pub(super) enum Found {
    /// Too early to say.
    NotYet,
    /// A machine, or none.
    Is(Option<Box<Machine>>),
}

/// A machine's monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Monitor {
    /// Where it can be asked.
    pub(super) paths: Vec<PathBuf>,
    /// Why it is left alone, if it is.
    pub(super) left_alone: Option<&'static str>,
    /// Whether QEMU may be waiting for a first connection.
    pub(super) waits: bool,
    /// Inquiries without an answer since the last answer.
    pub(super) failures: u32,
    /// Whether an inquiry is under way, or waits for its turn.
    pub(super) asked: bool,
}

impl Machine {
    /// The machine that a process is, if any.
    pub(super) fn find(root: &Root, process: ProcessId, name: &str, now_ns: u64) -> Found {
        let folder = format!("proc/{}", process.pid);
        let executable = std::fs::read_link(root.path(&format!("{folder}/exe"))).ok();
        let text = match executable.as_deref() {
            Some(path) if !is_qemu(path) => return Found::Is(None),
            _ => root.read(&format!("{folder}/cmdline")).unwrap_or_default(),
        };
        let first = text.split(|byte| *byte == 0).next().unwrap_or_default();
        match (&executable, first) {
            // It is being replaced by the program: its words are not there yet.
            (Some(_), b"") => return Found::NotYet,
            // If the link may not be read, the first word must do.
            (None, first) if !is_qemu(Path::new(OsStr::from_bytes(first))) => {
                return Found::Is(None);
            }
            _ => {}
        }
        let line = command_line::parse(&text);
        let cgroups = root.read(&format!("{folder}/cgroup")).unwrap_or_default();
        let domain = paths(&cgroup::parse(&cgroups)).find_map(libvirt::domain);
        let given = line.name.clone().filter(|name| !name.is_empty());
        let spare_name = match &domain {
            Some(domain) => domain.clone(),
            None => format!("{name} {}", process.pid),
        };
        let shown = VirtualMachine {
            name: printable(&given.unwrap_or_else(|| spare_name.clone())),
            vcpus: Vec::new(),
            memory_bytes: line.memory_bytes,
            source: String::new(),
            agent: Agent::Silent,
            fixed_memory: line.fixed_memory,
        };
        let agent_port = line.agent.as_ref().and_then(|socket| match socket {
            Socket::Path { path, .. } => Some(reachable(root, process.pid, path)),
            Socket::Descriptor(number) => listening_at(root, process.pid, *number),
        });
        let monitor = match domain {
            Some(_) => Monitor {
                left_alone: Some(LIBVIRTS),
                ..Monitor::default()
            },
            None => Monitor::of(root, &line),
        };
        Found::Is(Some(Box::new(Self {
            monitor,
            line,
            spare_name,
            is_libvirts: domain.is_some(),
            due_ns: now_ns,
            looked_ns: 0,
            looked_at: Vec::new(),
            told: None,
            by_cgroup: Vec::new(),
            since_ns: now_ns,
            said: Vec::new(),
            said_none: false,
            agent_port,
            shown: Arc::new(shown),
        })))
    }

    /// Whether another look at the process found the same machine.
    pub(super) fn is_started_as(&self, other: &Self) -> bool {
        self.line == other.line && self.is_libvirts == other.is_libvirts
    }

    /// What is shown of it, as of the last look.
    pub(super) fn shown(&self) -> Arc<VirtualMachine> {
        self.shown.clone()
    }

    /// Looks at the cgroups of its threads when due; returns whether to ask its monitor.
    pub(super) fn look(
        &mut self,
        root: &Root,
        process: ProcessId,
        threads: &[&mut Thread],
        now_ns: u64,
    ) -> bool {
        // QEMU's pool of workers changes all the time.
        let lasting = threads.iter().filter(|thread| thread.name != "worker");
        let changed = !lasting.clone().map(|thread| &thread.id).eq(&self.looked_at);
        let monitor = &self.monitor;
        let soon = changed && monitor.failures == 0 && now_ns >= self.looked_ns + SOON_NS;
        if now_ns < self.due_ns && !soon {
            return false;
        }
        self.looked_at = lasting.map(|thread| thread.id).collect();
        self.looked_ns = now_ns;
        self.due_ns = now_ns + SELDOM_NS;
        if self.is_libvirts {
            self.by_cgroup = by_cgroup(root, process, threads);
        }
        let has_vcpus = !by_name(threads).is_empty() || !self.by_cgroup.is_empty();
        let may_be_asked = monitor.left_alone.is_none() && !monitor.asked;
        may_be_asked && (!monitor.waits || has_vcpus)
    }

    /// The next inquiry at its monitor.
    pub(super) fn inquiry(&mut self, process: ProcessId) -> Option<Inquiry> {
        let Monitor {
            paths, failures, ..
        } = &self.monitor;
        // If there are several, another may answer.
        let monitor = paths.get(*failures as usize % paths.len().max(1))?.clone();
        self.monitor.asked = true;
        Some(Inquiry {
            process,
            monitor,
            patience: PATIENCE,
        })
    }

    /// Takes what its monitor said.
    pub(super) fn hear(
        &mut self,
        result: Result<Answers, Unheard>,
        now_ns: u64,
        gaps: &mut Vec<String>,
    ) {
        let monitor = &mut self.monitor;
        monitor.asked = false;
        match result {
            Ok(told) => {
                monitor.failures = 0;
                self.said.retain(|said| told.notes.contains(said));
                for note in &told.notes {
                    if !self.said.contains(note) {
                        gaps.push(format!("virtual machine {}: {note}", self.shown.name));
                        self.said.push(note.clone());
                    }
                }
                self.told = Some(told);
            }
            Err(unheard) => {
                let is_lie = matches!(unheard.why, NoAnswer::Impossible(_));
                // QEMU makes its sockets some time after it starts, and serves them later still.
                if now_ns < self.since_ns + SOON_NS && !is_lie {
                    self.due_ns = now_ns + SOON_NS;
                    return;
                }
                let pause = SELDOM_NS << monitor.failures.min(5);
                monitor.failures = monitor.failures.saturating_add(1);
                if is_lie {
                    monitor.left_alone = Some("its monitor gave an impossible answer");
                }
                self.due_ns = now_ns + pause.min(RARELY_NS);
                let told_before = self.told.take().is_some();
                if monitor.failures == 1 || told_before {
                    let name = &self.shown.name;
                    let by = match self.is_libvirts {
                        true => "cgroup",
                        false => "its threads' names",
                    };
                    gaps.push(format!(
                        "virtual machine {name}: {unheard}; its vCPUs are found by {by}"
                    ));
                }
            }
        }
    }

    /// Updates what is shown, and names the threads that run vCPUs.
    pub(super) fn show(
        &mut self,
        threads: &mut [&mut Thread],
        now_ns: u64,
        gaps: &mut Vec<String>,
    ) {
        let told = self.told.as_ref();
        let alive = |vcpu: &&VirtualCpu| threads.iter().any(|thread| thread.id == vcpu.thread);
        let of = |vcpus: &[VirtualCpu]| vcpus.iter().filter(alive).copied().collect::<Vec<_>>();
        let monitor = self.monitor.why_not();
        let by_monitor = told
            .map(|told| of(&told.vcpus))
            .filter(|vcpus| !vcpus.is_empty());
        let by_cgroup = Some(of(&self.by_cgroup)).filter(|vcpus| !vcpus.is_empty());
        let (vcpus, source) = match (by_monitor, by_cgroup) {
            (Some(vcpus), _) => (vcpus, "its monitor (query-cpus-fast)".to_owned()),
            (None, Some(vcpus)) => (vcpus, format!("libvirt's cgroups ({monitor})")),
            (None, None) => (by_name(threads), format!("its threads' names ({monitor})")),
        };
        // It may only just have begun, or been asked.
        let is_settled = now_ns >= self.since_ns + SOON_NS && !self.monitor.may_tell();
        if vcpus.is_empty() && is_settled && !self.said_none {
            gaps.push(format!(
                "virtual machine {}: cannot find its vCPU threads ({monitor}); start it with \
                 -name {},debug-threads=on, or with a separate monitor: -qmp \
                 unix:PATH,server=on,wait=off",
                self.shown.name, self.shown.name
            ));
        }
        self.said_none = vcpus.is_empty() && (is_settled || self.said_none);
        let given = told
            .and_then(|told| told.name.as_ref())
            .or(self.line.name.as_ref());
        let name = given
            .filter(|name| !name.is_empty())
            .unwrap_or(&self.spare_name);
        let now = VirtualMachine {
            name: printable(name),
            vcpus,
            memory_bytes: told
                .and_then(|told| told.memory_bytes)
                .or(self.line.memory_bytes),
            source,
            agent: Agent::Silent,
            fixed_memory: self.line.fixed_memory,
        };
        if *self.shown != now {
            self.shown = Arc::new(now);
        }
        // One thread runs them all in single-threaded emulation.
        let vcpus = &self.shown.vcpus;
        let is_shared = vcpus.len() > 1 && vcpus[0].thread == vcpus[1].thread;
        for thread in threads {
            match self.shown.vcpu_of(thread.id) {
                Some(_) if is_shared => "all vCPUs".clone_into(&mut thread.name),
                Some(index) => thread.name = format!("vCPU {index}"),
                None => {}
            }
        }
    }
}

impl Monitor {
    /// The monitor of a machine outside libvirt, from its command line.
    fn of(root: &Root, line: &CommandLine) -> Self {
        let mut monitor = Self::default();
        let mut why = "it has no monitor in the file system";
        for socket in &line.monitors {
            match socket {
                Socket::Path { path, .. }
                    if path.components().any(|p| p.as_os_str() == "libvirt") =>
                {
                    why = LIBVIRTS;
                }
                Socket::Path { path, waits } => {
                    monitor.waits |= waits;
                    monitor.paths.push(path.clone());
                }
                Socket::Descriptor(_) => {
                    why = "its monitor belongs to the program that started it, and is left alone";
                }
            }
        }
        monitor.left_alone = match root.is_live() {
            true => monitor.paths.is_empty().then_some(why),
            false => Some("nobody answers in a captured tree"),
        };
        monitor
    }

    /// Whether its first answer may still come.
    fn may_tell(&self) -> bool {
        self.left_alone.is_none() && self.failures == 0 && !self.waits
    }

    /// Why it does not supply the vCPUs.
    fn why_not(&self) -> &'static str {
        match (self.left_alone, self.failures) {
            (Some(why), _) => why,
            (None, 0) if self.waits => {
                "its monitor has not answered yet; where QEMU waits for someone to connect \
                 (wait=on), it is left to do so"
            }
            (None, 0) => "its monitor has not answered yet",
            (None, _) => "its monitor does not answer",
        }
    }
}

/// Whether a program is a QEMU that runs machines, by its file name: `qemu-system-…`, or `qemu-kvm`
/// and `kvm` in some distributions. Replaced files appear as `… (deleted)`.
fn is_qemu(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| {
        let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
        // NixOS wraps its programs as `.NAME-wrapped`.
        let name = name.strip_prefix('.').unwrap_or(name);
        let name = name.strip_suffix("-wrapped").unwrap_or(name);
        name.starts_with("qemu-system-") || name == "qemu-kvm" || name == "kvm"
    })
}

/// A name that a machine's owner chose, fit to be shown.
pub(super) fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    name.chars().take(NAME_CHARACTERS).map(shown).collect()
}
