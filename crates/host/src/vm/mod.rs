//! Virtual machines among the watched processes: which they are, which of their threads run vCPUs.
//!
//! A machine is a process whose program is QEMU's (`/proc/PID/exe`, or its command line where that
//! cannot be read). Its vCPUs are found, best first,
//!
//! 1. by its monitor: `query-cpus-fast` over a QMP socket on its command line ([`inquiry`]);
//! 2. by libvirt's cgroups: `…/vcpuN` for each vCPU's thread ([`libvirt`]);
//! 3. by its threads' names: `CPU N/KVM`, which QEMU gives with `-name …,debug-threads=on`.
//!
//! A monitor serves one program at a time. One that is libvirt's is never connected to, nor is one
//! that QEMU was handed open (`fd=`): whoever started it holds the other end. One that QEMU waits
//! for (`wait=on`) is left alone until vCPUs are seen, since connecting would start the machine.
//!
//! Asking never holds up the loop: each inquiry has a thread of its own, a few at a time, and what
//! it says is taken when it is there. It is asked anew when threads of the process have come or gone,
//! and else every ten seconds; less and less often where it does not answer, never again where it
//! told what cannot be.
//!
//! Guest memory is memory of the process, and page orders reach it as any other: anonymous memory,
//! huge pages of both kinds, and shared mappings (`memory-backend-memfd`, `-file`) as long as QEMU
//! alone maps them. The kernel keeps what another process maps too (vhost-user, virtiofsd), unless
//! shared pages are moved as well, and what is pinned for a device (VFIO).
//!
//! Not found: machines of other programs than QEMU, monitors given by `-readconfig`, and monitors at
//! TCP or abstract addresses (their vCPUs are still found by cgroup or name).

mod answers;
mod command_line;
mod inquiry;
mod libvirt;
mod qmp;
mod sockets;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use numaherd_world::{Agent, ProcessId, Thread, ThreadId, VirtualCpu, VirtualMachine};

use crate::files::Root;
use crate::proc::cgroup::{self, Cgroups};
use command_line::{CommandLine, Socket};
use inquiry::{Inquiry, PATIENCE, Told, Unheard};
use sockets::{listening_at, reachable};

/// Inquiries at the same time; the next ones wait for their turn.
const AT_ONCE: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// Between two looks at a machine whose threads stay the same, and at whether a process is one.
const SELDOM_NS: u64 = 10 * SECOND_NS;
/// Least time between two looks at a machine whose threads come and go.
const SOON_NS: u64 = 2 * SECOND_NS;
/// Longest time between two inquiries at a monitor that does not answer.
const RARELY_NS: u64 = 300 * SECOND_NS;
/// Characters of a name that are shown.
const NAME_CHARACTERS: usize = 255;

/// What is known of the machines.
#[derive(Debug)]
pub(crate) struct Machines {
    root: Root,
    processes: HashMap<ProcessId, Known>,
    /// Machines whose turn to be asked has not come.
    waiting: VecDeque<ProcessId>,
    asking: usize,
    tell: Sender<(ProcessId, Result<Told, Unheard>)>,
    told: Receiver<(ProcessId, Result<Told, Unheard>)>,
    look: u64,
}

/// A process that has been looked at.
#[derive(Debug)]
struct Known {
    /// Its name when it was looked at: a new one means another program.
    name: String,
    /// The last look at all processes in which it was there.
    look: u64,
    /// When to look again whether it is a machine.
    again_ns: u64,
    machine: Option<Box<Machine>>,
}

/// A machine.
#[derive(Debug)]
struct Machine {
    line: CommandLine,
    /// Its name where it has given itself none.
    spare_name: String,
    /// Whether it is in a cgroup of libvirt's.
    is_libvirts: bool,
    monitor: Monitor,
    /// When it is asked, and its cgroups read, next.
    due_ns: u64,
    /// When that was done last.
    looked_ns: u64,
    /// Its threads at that time.
    looked_at: Vec<ThreadId>,
    /// What its monitor told last.
    told: Option<Told>,
    by_cgroup: Vec<VirtualCpu>,
    /// When it was found.
    since_ns: u64,
    /// What its monitor said that people were told and that still holds: each is told once.
    said: Vec<String>,
    /// Whether people were told that its vCPUs are not to be found.
    said_none: bool,
    /// The host's end of its agent's port.
    agent_port: Option<PathBuf>,
    shown: Arc<VirtualMachine>,
}

/// What a look at a process found.
enum Found {
    /// Too early to say.
    NotYet,
    /// A machine, or none.
    Is(Option<Box<Machine>>),
}

/// What is to be done about a machine's monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Monitor {
    /// It is left alone; why.
    LeftAlone(&'static str),
    /// It can be asked.
    Ready {
        paths: Vec<PathBuf>,
        /// Whether QEMU may be waiting for the first to connect.
        waits: bool,
        /// Inquiries without an answer since the last answer.
        failures: u32,
        asked: bool,
    },
    /// It told what cannot be.
    Liar,
}

impl Machines {
    pub(crate) fn new(root: Root) -> Self {
        let (tell, told) = channel();
        Self {
            root,
            processes: HashMap::new(),
            waiting: VecDeque::new(),
            asking: 0,
            tell,
            told,
            look: 0,
        }
    }

    /// Looks at the processes of a scan and their threads, gives vCPUs' threads the name of what they
    /// are, and says what could not be found out, once.
    pub(crate) fn observe<'p>(
        &mut self,
        processes: impl Iterator<Item = (ProcessId, &'p str)>,
        threads: &mut [Thread],
        now_ns: u64,
        gaps: &mut Vec<String>,
    ) {
        self.look += 1;
        for (process, name) in processes {
            self.consider(process, name, now_ns);
        }
        let look = self.look;
        self.processes.retain(|_, known| known.look == look);
        while let Ok((process, result)) = self.told.try_recv() {
            self.hear(process, result, now_ns, gaps);
        }
        let mut of_machines: HashMap<ProcessId, Vec<&mut Thread>> = HashMap::new();
        for thread in threads {
            let known = self.processes.get(&thread.process);
            if known.is_some_and(|known| known.machine.is_some()) {
                of_machines.entry(thread.process).or_default().push(thread);
            }
        }
        for (process, mut threads) in of_machines {
            let Some(machine) = self.processes.get_mut(&process).and_then(Known::machine) else {
                continue;
            };
            if machine.look(&self.root, process, &threads, now_ns)
                && !self.waiting.contains(&process)
            {
                self.waiting.push_back(process);
            }
            machine.show(&mut threads, now_ns, gaps);
        }
        self.ask();
    }

    /// The machine that a process runs, if it runs one.
    pub(crate) fn of(&self, process: ProcessId) -> Option<Arc<VirtualMachine>> {
        let machine = self.processes.get(&process)?.machine.as_ref()?;
        Some(machine.shown.clone())
    }

    /// The host's ends of the agents' ports, as this program can open them, by their machines'
    /// processes.
    pub(crate) fn agent_ports(&self) -> impl Iterator<Item = (ProcessId, PathBuf)> {
        self.processes.iter().filter_map(|(process, known)| {
            let port = known.machine.as_ref()?.agent_port.clone()?;
            Some((*process, port))
        })
    }

    /// Finds out whether a process is a machine, where that is not known.
    fn consider(&mut self, process: ProcessId, name: &str, now_ns: u64) {
        let known = self.processes.entry(process).or_insert_with(|| Known {
            name: String::new(),
            look: 0,
            again_ns: 0,
            machine: None,
        });
        known.look = self.look;
        let is_new = known.name != name;
        let is_due = known.machine.is_none() && now_ns >= known.again_ns;
        if !is_new && !is_due {
            return;
        }
        name.clone_into(&mut known.name);
        // Spread over time: they were not all started at once, but first seen at once.
        known.again_ns = now_ns + SELDOM_NS / 2 + u64::from(process.pid) % 64 * SELDOM_NS / 128;
        let Found::Is(found) = Machine::find(&self.root, process, name, now_ns) else {
            known.again_ns = now_ns;
            return;
        };
        match (&mut known.machine, found) {
            // A machine that only changed its name.
            (Some(machine), Some(found)) if machine.line == found.line => {}
            (machine, found) => *machine = found,
        }
    }

    /// Takes what an inquiry has found out.
    fn hear(
        &mut self,
        process: ProcessId,
        result: Result<Told, Unheard>,
        now_ns: u64,
        gaps: &mut Vec<String>,
    ) {
        self.asking -= 1;
        let Some(machine) = self.processes.get_mut(&process).and_then(Known::machine) else {
            return;
        };
        machine.hear(result, now_ns, gaps);
    }

    /// Begins as many inquiries as may run at once.
    fn ask(&mut self) {
        while self.asking < AT_ONCE {
            let Some(process) = self.waiting.pop_front() else {
                return;
            };
            let machine = self.processes.get_mut(&process).and_then(Known::machine);
            let Some(inquiry) = machine.and_then(|machine| machine.inquiry(process)) else {
                continue;
            };
            let (root, tell) = (self.root.clone(), self.tell.clone());
            let begun = std::thread::Builder::new()
                .name("monitor".to_owned())
                .spawn(move || {
                    // Nobody listens any more when the world has ended.
                    let _ = tell.send((process, inquiry.run(&root)));
                });
            match begun {
                Ok(_) => self.asking += 1,
                // No thread to be had now: the machine is asked when it is due again.
                Err(error) => tracing::debug!(%error, "no thread to ask {process}'s monitor"),
            }
        }
    }
}

impl Known {
    fn machine(&mut self) -> Option<&mut Machine> {
        self.machine.as_deref_mut()
    }
}

impl Machine {
    /// What a process is as a machine, if it is one.
    fn find(root: &Root, process: ProcessId, name: &str, now_ns: u64) -> Found {
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
            // Without the right to read the link, its first word must do.
            (None, first) if !is_qemu(Path::new(OsStr::from_bytes(first))) => {
                return Found::Is(None);
            }
            _ => {}
        }
        let line = command_line::parse(&text);
        let cgroups = root.read(&format!("{folder}/cgroup")).unwrap_or_default();
        let domain = paths(&cgroup::parse(&cgroups)).find_map(libvirt::domain);
        let given = line.name.clone().filter(|name| !name.is_empty());
        let spare_name = domain
            .clone()
            .unwrap_or_else(|| format!("{name} {}", process.pid));
        let shown = VirtualMachine {
            name: printable(&given.unwrap_or_else(|| spare_name.clone())),
            vcpus: Vec::new(),
            memory_bytes: line.memory_bytes,
            source: String::new(),
            agent: Agent::Silent,
        };
        let agent_port = line.agent.as_ref().and_then(|socket| match socket {
            Socket::Path { path, .. } => Some(reachable(root, process.pid, path)),
            Socket::Descriptor(number) => listening_at(root, process.pid, *number),
        });
        Found::Is(Some(Box::new(Self {
            monitor: Monitor::of(root, &line, domain.is_some()),
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

    /// Looks at the cgroups of its threads when due; whether its monitor is to be asked.
    fn look(
        &mut self,
        root: &Root,
        process: ProcessId,
        threads: &[&mut Thread],
        now_ns: u64,
    ) -> bool {
        // QEMU's pool of workers comes and goes all the time.
        let lasting = threads.iter().filter(|thread| thread.name != "worker");
        let changed = !lasting.clone().map(|thread| &thread.id).eq(&self.looked_at);
        let fails = matches!(self.monitor, Monitor::Ready { failures, .. } if failures > 0);
        let soon = changed && !fails && now_ns >= self.looked_ns + SOON_NS;
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
        match &self.monitor {
            Monitor::Ready { waits, asked, .. } => !asked && (!waits || has_vcpus),
            Monitor::LeftAlone(_) | Monitor::Liar => false,
        }
    }

    /// The next inquiry at its monitor.
    fn inquiry(&mut self, process: ProcessId) -> Option<Inquiry> {
        let Monitor::Ready {
            paths,
            failures,
            asked,
            ..
        } = &mut self.monitor
        else {
            return None;
        };
        // Where there are several, another may answer.
        let monitor = paths.get(*failures as usize % paths.len().max(1))?.clone();
        *asked = true;
        Some(Inquiry {
            process,
            monitor,
            patience: PATIENCE,
        })
    }

    /// Takes what its monitor said.
    fn hear(&mut self, result: Result<Told, Unheard>, now_ns: u64, gaps: &mut Vec<String>) {
        let Monitor::Ready {
            failures, asked, ..
        } = &mut self.monitor
        else {
            return;
        };
        *asked = false;
        match result {
            Ok(told) => {
                *failures = 0;
                self.said.retain(|said| told.notes.contains(said));
                for note in &told.notes {
                    if !self.said.contains(note) {
                        gaps.push(format!("virtual machine {}: {note}", self.shown.name));
                        self.said.push(note.clone());
                    }
                }
                self.told = Some(told);
            }
            // QEMU makes its sockets some time after it has begun.
            Err(Unheard::NoWay { .. }) if now_ns < self.since_ns + SOON_NS => {
                self.due_ns = now_ns + SOON_NS;
            }
            Err(unheard) => {
                *failures = failures.saturating_add(1);
                let pause = SELDOM_NS << (*failures).min(5);
                self.due_ns = now_ns + pause.min(RARELY_NS);
                let told_before = self.told.take().is_some();
                let is_first = *failures == 1;
                if matches!(unheard, Unheard::Lie { .. }) {
                    self.monitor = Monitor::Liar;
                }
                if is_first || told_before {
                    gaps.push(format!(
                        "virtual machine {}: {unheard}; its vCPUs are found by {}",
                        self.shown.name,
                        if self.is_libvirts {
                            "cgroup"
                        } else {
                            "its threads' names"
                        }
                    ));
                }
            }
        }
    }

    /// Brings what is shown up to date, and names the threads that run vCPUs.
    fn show(&mut self, threads: &mut [&mut Thread], now_ns: u64, gaps: &mut Vec<String>) {
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
                "virtual machine {}: none of its threads can be told to run a vCPU ({monitor}); \
                 start it with -name {},debug-threads=on, or with a monitor of its own: -qmp \
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
    /// What is to be done about the monitors of a command line.
    fn of(root: &Root, line: &CommandLine, is_libvirts: bool) -> Self {
        if is_libvirts {
            return Self::LeftAlone("its monitor belongs to libvirt and is left alone");
        }
        if !root.is_live() {
            return Self::LeftAlone("nobody answers in a captured tree");
        }
        let belongs_to_libvirt =
            |path: &Path| path.components().any(|part| part.as_os_str() == "libvirt");
        let mut paths = Vec::new();
        let mut waiting = false;
        let mut why = "it has no monitor in the file system";
        for socket in &line.monitors {
            match socket {
                Socket::Path { path, .. } if belongs_to_libvirt(path) => {
                    why = "its monitor belongs to libvirt and is left alone";
                }
                Socket::Path { path, waits } => {
                    waiting |= waits;
                    paths.push(path.clone());
                }
                Socket::Descriptor(_) => {
                    why = "its monitor belongs to whoever started it and is left alone";
                }
            }
        }
        if paths.is_empty() {
            return Self::LeftAlone(why);
        }
        Self::Ready {
            paths,
            waits: waiting,
            failures: 0,
            asked: false,
        }
    }

    /// Whether its first answer is still to come.
    fn may_tell(&self) -> bool {
        matches!(
            self,
            Self::Ready {
                failures: 0,
                waits: false,
                ..
            }
        )
    }

    /// Why the vCPUs are not known from it.
    fn why_not(&self) -> &'static str {
        match self {
            Self::LeftAlone(why) => why,
            Self::Ready {
                failures: 0,
                waits: true,
                ..
            } => {
                "its monitor has not answered yet; where QEMU waits for someone to connect \
                 (wait=on), it is left to do so"
            }
            Self::Ready { failures: 0, .. } => "its monitor has not answered yet",
            Self::Ready { .. } => "its monitor does not answer",
            Self::Liar => "its monitor told what cannot be",
        }
    }
}

/// Whether a program is a QEMU that runs machines, by its file name: `qemu-system-…`, or
/// `qemu-kvm` and `kvm` as some distributions call it. Replaced files are shown as `… (deleted)`.
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

/// The vCPUs by the names that QEMU gives their threads.
fn by_name(threads: &[&mut Thread]) -> Vec<VirtualCpu> {
    collected(threads.iter().filter_map(|thread| {
        Some(VirtualCpu {
            index: vcpu_named(&thread.name)?,
            thread: thread.id,
        })
    }))
}

/// The vCPU of a thread's name: `CPU 3/KVM`, `CPU 3/TCG`; `ALL CPUs/TCG` runs them all and is shown
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
fn by_cgroup(root: &Root, process: ProcessId, threads: &[&mut Thread]) -> Vec<VirtualCpu> {
    collected(threads.iter().filter_map(|thread| {
        let path = format!("proc/{}/task/{}/cgroup", process.pid, thread.id.tid);
        let cgroups = cgroup::parse(&root.read(&path).ok()?);
        Some(VirtualCpu {
            index: paths(&cgroups).find_map(libvirt::vcpu)?,
            thread: thread.id,
        })
    }))
}

/// Ascending by index; a number that two claim is taken from neither.
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
fn paths(cgroups: &Cgroups) -> impl Iterator<Item = &str> {
    let all = cgroups.unified.iter().chain(&cgroups.cpuset);
    all.chain(&cgroups.others).map(String::as_str)
}

/// A name that a machine's owner chose, fit to be shown.
fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    name.chars().take(NAME_CHARACTERS).map(shown).collect()
}

#[cfg(test)]
mod tests;
