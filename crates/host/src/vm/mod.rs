//! Virtual machines among the watched processes: which they are, which of their threads run vCPUs.
//!
//! A machine is a process whose program is QEMU's (`/proc/PID/exe`, or its command line if that cannot
//! be read). Its vCPUs are found, best first,
//!
//! 1. by its monitor: `query-cpus-fast` over a QMP socket on its command line ([`inquiry`]);
//! 2. by libvirt's cgroups: `…/vcpuN` for each vCPU's thread ([`libvirt`]);
//! 3. by its threads' names: `CPU N/KVM`, which QEMU gives with `-name …,debug-threads=on`.
//!
//! A monitor serves one program at a time. Libvirt's are never connected to, nor are those that QEMU
//! was handed open (`fd=`): its starter holds the other end. One that QEMU waits for (`wait=on`) is
//! left alone until vCPUs are seen, since connecting would start the machine.
//!
//! Asking never holds up the loop: each inquiry has its own thread, a few at a time, and its result is
//! taken when it is there. A monitor is asked again when threads of the process have come or gone, else
//! every ten seconds; less and less often if it does not answer, and never again after an impossible
//! answer.
//!
//! Guest memory is memory of the process, and page orders reach it like any other: anonymous memory,
//! transparent huge pages, and shared mappings (`memory-backend-memfd`, `-file`) as long as only QEMU
//! maps them. Pages that another process also maps (vhost-user, virtiofsd) stay, unless shared pages
//! are moved as well. Memory of hugetlb pages, and of a machine with a VFIO device, is reported as
//! fixed, and the governor leaves it alone.
//!
//! | part | file |
//! |---|---|
//! | the machines, and the inquiries under way | here |
//! | one machine over time | [`machine`] |
//! | QEMU's command line | [`command_line`] |
//! | vCPUs by name and cgroup | [`threads`], [`libvirt`] |
//! | one inquiry: ask, and check the answers | [`inquiry`] |
//! | the form of answers; the conversation; the socket | [`answers`], [`qmp`], [`sockets`] |
//!
//! Not found: machines of programs other than QEMU, monitors given by `-readconfig`, and monitors at
//! TCP or abstract addresses (their vCPUs are still found by cgroup or name).

pub mod answers;
pub mod command_line;
mod inquiry;
pub mod libvirt;
mod machine;
pub mod qmp;
mod sockets;
mod threads;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use numaherd_world::{ProcessId, Thread, VirtualMachine};

use crate::files::Root;
use inquiry::{Answers, Unheard};
use machine::{Found, Machine};

/// Inquiries at the same time; further ones wait for their turn.
const AT_ONCE: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// Between two looks at a machine whose threads stay the same, and at whether a process is one.
const SELDOM_NS: u64 = 10 * SECOND_NS;

/// What is known of the machines.
#[derive(Debug)]
pub(crate) struct Machines {
    root: Root,
    processes: HashMap<ProcessId, KnownProcess>,
    /// Machines that wait to be asked.
    waiting: VecDeque<ProcessId>,
    asking: usize,
    tell: Sender<(ProcessId, Result<Answers, Unheard>)>,
    told: Receiver<(ProcessId, Result<Answers, Unheard>)>,
    look: u64,
}

/// A process that has been checked.
#[derive(Debug)]
struct KnownProcess {
    /// Its name when it was checked: a new one means another program.
    name: String,
    /// The last look at all processes that found it.
    look: u64,
    /// When to look again whether it is a machine.
    again_ns: u64,
    machine: Option<Box<Machine>>,
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

    /// Looks at the processes of a scan and their threads, names vCPUs' threads accordingly, and
    /// reports once what could not be found out.
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
            self.asking -= 1;
            if let Some(machine) = self.machine(process) {
                machine.hear(result, now_ns, gaps);
            }
        }
        self.look_at_machines(threads, now_ns, gaps);
        self.ask(gaps);
    }

    fn look_at_machines(&mut self, threads: &mut [Thread], now_ns: u64, gaps: &mut Vec<String>) {
        let machines = self.processes.iter_mut().filter_map(|(process, known)| {
            let machine = known.machine.as_deref_mut()?;
            Some((*process, (machine, Vec::new())))
        });
        let mut machines: BTreeMap<ProcessId, (&mut Machine, Vec<&mut Thread>)> =
            machines.collect();
        if machines.is_empty() {
            return;
        }
        for thread in threads {
            if let Some((_, threads)) = machines.get_mut(&thread.process) {
                threads.push(thread);
            }
        }
        for (process, (machine, mut threads)) in machines {
            let is_due = machine.look(&self.root, process, &threads, now_ns);
            if is_due && !self.waiting.contains(&process) {
                self.waiting.push_back(process);
            }
            machine.show(&mut threads, now_ns, gaps);
        }
    }

    /// The machine that a process runs, if any.
    pub(crate) fn of(&self, process: ProcessId) -> Option<Arc<VirtualMachine>> {
        let machine = self.processes.get(&process)?.machine.as_ref()?;
        Some(machine.shown())
    }

    /// The host's ends of the agents' ports, as this program can open them, by their machines'
    /// processes.
    pub(crate) fn agent_ports(&self) -> impl Iterator<Item = (ProcessId, PathBuf)> {
        self.processes.iter().filter_map(|(process, known)| {
            let port = known.machine.as_ref()?.agent_port.clone()?;
            Some((*process, port))
        })
    }

    /// Finds out whether a process is a machine, if that is not known.
    fn consider(&mut self, process: ProcessId, name: &str, now_ns: u64) {
        let known = self
            .processes
            .entry(process)
            .or_insert_with(|| KnownProcess {
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
        // Spread over time: they were first seen at once, but not all started at once.
        known.again_ns = now_ns + SELDOM_NS / 2 + u64::from(process.pid) % 64 * SELDOM_NS / 128;
        let Found::Is(found) = Machine::find(&self.root, process, name, now_ns) else {
            known.again_ns = now_ns;
            return;
        };
        match (&mut known.machine, found) {
            // A machine that only changed its name.
            (Some(machine), Some(found)) if machine.is_started_as(&found) => {}
            (machine, found) => *machine = found,
        }
    }

    fn machine(&mut self, process: ProcessId) -> Option<&mut Machine> {
        self.processes.get_mut(&process)?.machine.as_deref_mut()
    }

    /// Starts as many inquiries as may run at once; one that cannot start is reported in `gaps`.
    fn ask(&mut self, gaps: &mut Vec<String>) {
        while self.asking < AT_ONCE {
            let Some(process) = self.waiting.pop_front() else {
                return;
            };
            let machine = self.machine(process);
            let Some(inquiry) = machine.and_then(|machine| machine.inquiry(process)) else {
                continue;
            };
            let (root, tell) = (self.root.clone(), self.tell.clone());
            let begun = std::thread::Builder::new()
                .name("monitor".to_owned())
                .spawn(move || {
                    // When the world has ended, no one receives it.
                    let _ = tell.send((process, inquiry.run(&root)));
                });
            match begun {
                Ok(_) => self.asking += 1,
                Err(error) => {
                    if let Some(machine) = self.machine(process) {
                        machine.monitor.asked = false;
                    }
                    gaps.push(format!(
                        "cannot start a thread to ask the monitor of {process}: {error}"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
