//! A kernel in memory: threads with masks, processes with parents, and all that threads may do between two
//! system calls of Numaherd.
//!
//! Each thread has the mask that it is *due*: what it would have if no mask had ever been set but by its user.
//! It is inherited as the mask is. The kernel keeps the mask that was set (since Linux 6.2), and lets a thread use what is left
//! of it in its cpuset, or the whole cpuset where nothing is.

use std::collections::BTreeMap;

/// CPUs, a bit each.
pub type Mask = u8;

/// All CPUs.
pub const ALL: Mask = 0b1111;
/// What the users of this kernel give their threads: no node's CPUs.
const CHOSEN: Mask = 0b0110;
/// When those were born that are there at the beginning.
const OLD: u64 = 5;
/// The program that its user pinned; it goes on for as long as its session, which else would look younger than it is.
const PINNED: u32 = 25;
/// The first process, which gets the orphans.
const INIT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    pub process: u32,
    pub born: u64,
    pub mask: Mask,
    pub due: Mask,
    /// What it was due before its user chose another mask of which Numaherd does not know.
    pub before: Option<Mask>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    pub born: u64,
    pub parent: u32,
    pub session: u32,
    pub cgroup: &'static str,
    pub user: u32,
    /// Whether it is among those that are placed.
    pub is_selected: bool,
}

/// What happens between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The thread starts another.
    Clone(u32),
    /// The thread starts a process.
    Fork(u32),
    /// The thread ends; its process goes on.
    End(u32),
    /// The process ends.
    Exit(u32),
    /// The thread starts another program: the others of its process end, and it takes the place of the first.
    Exec(u32),
    /// The thread starts a process that begins a session, starts another and ends.
    Daemon(u32),
    /// The thread starts a process, and its own ends at once.
    Succeed(u32),
    /// The thread's user gives it another mask.
    Choose(u32),
    /// The process ends, and a stranger gets its number.
    Reuse(u32),
    /// The cpuset of the family gets these CPUs.
    Cpuset(Mask),
}

/// What became of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    Done,
    Gone,
    /// Its cpuset has none of these CPUs.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel {
    /// Clock ticks since boot.
    pub now: u64,
    pub threads: BTreeMap<u32, Thread>,
    pub processes: BTreeMap<u32, Process>,
    /// Whether the children of processes that are placed are placed too.
    selects_children: bool,
    /// The CPUs of the family's cpuset; none where that never changes.
    cpuset: Option<Mask>,
    next: u32,
}

impl Kernel {
    /// A process with one or two `threads`, which may be placed, and a stranger whose user has given it the mask that
    /// the threads of node 0 are given.
    pub fn new(threads: usize, selects_children: bool) -> Self {
        let family = Process {
            born: OLD,
            parent: INIT,
            session: 10,
            cgroup: "/a",
            user: 1000,
            is_selected: true,
        };
        let thread = |process, mask| Thread {
            process,
            born: OLD,
            mask,
            due: mask,
            before: None,
        };
        let family_threads = [(10, thread(10, ALL)), (11, thread(10, ALL))];
        let mut threads: BTreeMap<_, _> = family_threads.into_iter().take(threads).collect();
        threads.insert(20, thread(20, 0b0011));
        Self {
            now: 7,
            threads,
            processes: [(10, family), (20, stranger(OLD))].into(),
            selects_children,
            cpuset: None,
            next: 30,
        }
    }

    /// The same with a program beside it that its user has given that mask before, in another session.
    pub fn with_pinned(mut self) -> Self {
        let thread = self.threads[&20].clone();
        let pinned = Process {
            session: PINNED,
            is_selected: false,
            ..self.processes[&10].clone()
        };
        self.processes.insert(PINNED, pinned);
        let process = PINNED;
        self.threads.insert(PINNED, Thread { process, ..thread });
        self
    }

    /// The same in a cpuset that changes while threads start others; nothing else happens.
    pub fn in_cpuset(self) -> Self {
        Self {
            cpuset: Some(ALL),
            ..self
        }
    }

    pub fn is_in_cpuset(&self) -> bool {
        self.cpuset.is_some()
    }

    /// The CPUs that a process may use at all.
    pub fn cpus_of(&self, process: u32) -> Mask {
        let is_of_family = self.processes[&process].user == 1000;
        self.cpuset.filter(|_| is_of_family).unwrap_or(ALL)
    }

    /// What a thread may use of its mask.
    pub fn left_of(&self, thread: &Thread) -> Mask {
        let cpus = self.cpus_of(thread.process);
        match thread.mask & cpus {
            0 => cpus,
            left => left,
        }
    }

    /// All that may happen now, but for what `docs/operators.md` names as cases that remain.
    pub fn events(&self) -> Vec<Event> {
        let is_of_family = |process: u32| self.processes[&process].user == 1000;
        let mut events = Vec::new();
        for (&tid, thread) in &self.threads {
            if !is_of_family(thread.process) {
                continue;
            }
            if self.processes[&thread.process].session == PINNED {
                events.extend([Event::Clone(tid), Event::Fork(tid)]);
                events.extend((thread.process != PINNED).then_some(Event::Succeed(tid)));
                continue;
            }
            if self.cpuset.is_some() {
                events.extend([Event::Clone(tid), Event::Fork(tid)]);
                continue;
            }
            events.extend([Event::Clone(tid), Event::Fork(tid), Event::Daemon(tid)]);
            events.push(Event::Succeed(tid));
            // The children of an heir that lives and has another mask by its user's choice are not found.
            let has_children = self.processes.values().any(|p| p.parent == thread.process);
            if thread.process == 10 || !has_children {
                events.push(Event::Choose(tid));
            }
            if tid != thread.process {
                events.push(Event::End(tid));
            }
            // Whoever takes the place of a first thread that was never placed cannot be told from it, nor can an heir
            // who does so just as the masks of its process are given back.
            let is_old = thread.born == OLD;
            let is_alone = self.threads_of(thread.process).len() == 1;
            if is_old && !is_alone && self.threads[&thread.process].due == thread.due {
                events.push(Event::Exec(tid));
            }
        }
        if let Some(now) = self.cpuset {
            let others = [0b0011, 0b1100, ALL]
                .into_iter()
                .filter(|&cpus| cpus != now);
            events.extend(others.map(Event::Cpuset));
            return events;
        }
        let family = self
            .processes
            .keys()
            .filter(|&&pid| is_of_family(pid) && pid != PINNED);
        events.extend(family.flat_map(|&pid| [Event::Exit(pid), Event::Reuse(pid)]));
        events
    }

    /// Has it happen, unless whoever would do it has ended.
    pub fn happens(&mut self, event: Event) {
        match event {
            Event::Clone(tid) => {
                let born = self.now;
                let thread = self.threads[&tid].clone();
                let number = self.number();
                self.threads.insert(number, Thread { born, ..thread });
            }
            Event::Fork(tid) => {
                self.fork(tid);
            }
            Event::End(tid) => {
                self.threads.remove(&tid);
            }
            Event::Exit(pid) => self.exit(pid),
            Event::Cpuset(cpus) => self.cpuset = Some(cpus),
            Event::Exec(tid) => {
                let pid = self.threads[&tid].process;
                let born = self.processes[&pid].born;
                let thread = self.threads[&tid].clone();
                self.threads.retain(|_, other| other.process != pid);
                self.threads.insert(pid, Thread { born, ..thread });
            }
            Event::Daemon(tid) => {
                let child = self.fork(tid);
                self.process(child).session = child;
                self.fork(child);
                self.exit(child);
            }
            Event::Succeed(tid) => {
                let pid = self.threads[&tid].process;
                self.fork(tid);
                self.exit(pid);
            }
            Event::Choose(tid) => {
                let thread = self.threads.get_mut(&tid).expect("it is there");
                thread.before.get_or_insert(thread.due);
                (thread.mask, thread.due) = (CHOSEN, CHOSEN);
            }
            Event::Reuse(pid) => {
                self.exit(pid);
                self.now += 1;
                self.processes.insert(pid, stranger(self.now));
                let thread = Thread {
                    process: pid,
                    born: self.now,
                    mask: 0b0011,
                    due: 0b0011,
                    before: None,
                };
                self.threads.insert(pid, thread);
            }
        }
    }

    /// Numaherd is told of the mask of a thread.
    pub fn is_known(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.before = None;
        }
    }

    /// Sets a mask for Numaherd. No call sets one only if it is still another: what the user chose after
    /// Numaherd looked is lost, as if it had been set before.
    pub fn set(&mut self, tid: u32, born: u64, mask: Mask) -> Set {
        let thread = self.threads.get(&tid);
        let Some(thread) = thread.filter(|thread| thread.born == born) else {
            return Set::Gone;
        };
        if mask & self.cpus_of(thread.process) == 0 {
            return Set::Refused;
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.mask = mask;
            thread.due = thread.before.take().unwrap_or(thread.due);
        }
        Set::Done
    }

    /// The threads that have another mask than they are due.
    pub fn bound(&self) -> Vec<u32> {
        let bound = self.threads.iter().filter(|(_, t)| t.mask != t.due);
        bound.map(|(&tid, _)| tid).collect()
    }

    /// The threads of a process, ascending.
    pub fn threads_of(&self, pid: u32) -> Vec<u32> {
        let of = self.threads.iter().filter(|(_, t)| t.process == pid);
        of.map(|(&tid, _)| tid).collect()
    }

    /// Whether the parent of a process may be another than the one that started it.
    pub fn is_orphan(&self, process: &Process) -> bool {
        let parent = self.processes.get(&process.parent);
        parent.is_none_or(|parent| parent.session != process.session)
    }

    /// When the oldest process of a session was born.
    pub fn oldest_in(&self, session: u32) -> u64 {
        let of = self.processes.values().filter(|p| p.session == session);
        of.map(|process| process.born).min().unwrap_or(self.now)
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.get_mut(&pid).expect("it is there")
    }

    fn fork(&mut self, tid: u32) -> u32 {
        let (child, born) = (self.number(), self.now);
        let thread = Thread {
            process: child,
            born,
            ..self.threads[&tid].clone()
        };
        let parent = self.threads[&tid].process;
        let of = self.processes[&parent].clone();
        let process = Process {
            born,
            parent,
            is_selected: of.is_selected && self.selects_children,
            ..of
        };
        self.processes.insert(child, process);
        self.threads.insert(child, thread);
        child
    }

    fn exit(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.threads.retain(|_, thread| thread.process != pid);
        let orphans = self.processes.values_mut();
        for orphan in orphans.filter(|process| process.parent == pid) {
            orphan.parent = INIT;
        }
    }
}

fn stranger(born: u64) -> Process {
    Process {
        born,
        parent: INIT,
        session: 20,
        cgroup: "/b",
        user: 1001,
        is_selected: false,
    }
}
