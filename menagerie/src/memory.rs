//! The placement of a workload's memory, and of its threads during set-up.
//!
//! The result is the state after a program's start on a real machine: all pages on the home node,
//! first touched by threads on its CPUs, and threads that may then run anywhere. Memory is bound to
//! the home only during the first touch: afterwards pages may be moved, by the kernel as well.

use crate::error::Error;
use crate::machine::Machine;
use crate::sys::{self, HugePages, Region};
use numaherd_topology::{CpuId, CpuSet, NodeId, NodeSet};
use rustix::param::page_size;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The places of threads at the start and later, and of their memory. The same for all threads of a run.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The node of the memory; None for the kernel's first-touch rule.
    pub home: Option<NodeId>,
    /// Nodes over which pages are interleaved if there is no home. Empty: first touch.
    interleaved: NodeSet,
    /// Huge pages or not.
    pub huge_pages: HugePages,
    /// CPUs for the set-up; None for all that the process may use.
    start: Option<CpuSet>,
    /// CPUs for the measured part, assigned to the members in turn. Empty: all that the process may use.
    pins: Vec<CpuId>,
    /// CPUs that the process was given.
    allowed: CpuSet,
}

/// The CPUs on which a thread sets up its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The CPUs of the home, if there is one.
    Home,
    /// Wherever the kernel puts the thread.
    Any,
    /// One CPU.
    Cpu(CpuId),
}

/// As on the command line.
impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Start::Home => f.write_str("home"),
            Start::Any => f.write_str("any"),
            Start::Cpu(cpu) => write!(f, "{cpu}"),
        }
    }
}

impl Placement {
    /// Resolves the options for `machine` and the calling thread's affinity.
    pub fn new(
        machine: &Machine,
        home: Option<NodeId>,
        start: Start,
        pins: &[CpuId],
        huge_pages: HugePages,
    ) -> Result<Placement, Error> {
        let allowed = sys::affinity().map_err(Error::system("read the process's affinity"))?;
        let home_cpus = home.map(|node| machine.cpus_of_home(node)).transpose()?;
        let may_run = |option, cpu| {
            if allowed.contains(cpu) {
                return Ok(cpu);
            }
            let allowed = allowed.clone();
            Err(Error::CpuNotAllowed {
                option,
                cpu,
                allowed,
            })
        };
        let start = match start {
            Start::Any => None,
            Start::Cpu(cpu) => Some(CpuSet::from_iter([may_run("--start-cpu", cpu)?])),
            // A home without CPUs, or whose CPUs this process may not use, is filled from other CPUs.
            Start::Home => home_cpus
                .map(|cpus| cpus.intersection(&allowed))
                .filter(|cpus| !cpus.is_empty()),
        };
        let pins = pins
            .iter()
            .map(|cpu| may_run("--cpus", *cpu))
            .collect::<Result<_, _>>()?;
        Ok(Placement {
            home,
            interleaved: NodeSet::new(),
            huge_pages,
            start,
            pins,
            allowed,
        })
    }

    /// Interleaves the pages of each memory over `nodes`.
    pub fn interleaved(self, nodes: NodeSet) -> Placement {
        Placement {
            interleaved: nodes,
            ..self
        }
    }

    /// Like [`Placement::settle`], but a thread without starting CPUs sets up where it will run, so
    /// the first touch puts its memory on that node.
    pub fn settle_beside_memory<T>(
        &self,
        index: usize,
        set_up: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.start.is_some() {
            return self.settle(index, set_up);
        }
        self.settle(index, || Ok(()))?;
        set_up()
    }

    /// Runs `set_up` on the starting CPUs. Then lets the calling thread run in the place of member
    /// `index`: on its own CPU if CPUs are assigned, else anywhere.
    pub fn settle<T>(
        &self,
        index: usize,
        set_up: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(start) = &self.start {
            confine(start)?;
        }
        let result = set_up();
        match self.pin(index) {
            Some(cpu) => confine(&CpuSet::from_iter([cpu]))?,
            None if self.start.is_some() => confine(&self.allowed)?,
            None => {}
        }
        result
    }

    /// Moves the calling thread back to its one starting CPU, and frees it at once: the kernel may have woken it
    /// elsewhere. Does nothing if CPUs are assigned, or if there are several starting CPUs.
    pub fn begin(&self) -> Result<(), Error> {
        match &self.start {
            Some(start) if start.len() == 1 && self.pins.is_empty() => {
                confine(start)?;
                confine(&self.allowed)
            }
            _ => Ok(()),
        }
    }

    /// The CPU assigned to member `index`, if CPUs are assigned.
    pub fn pin(&self, index: usize) -> Option<CpuId> {
        (!self.pins.is_empty()).then(|| self.pins[index % self.pins.len()])
    }

    /// Memory of `bytes` rounded up to pages, with every page present: on the home node, if there
    /// is one, or interleaved.
    pub fn memory(&self, bytes: usize) -> Result<Region, Error> {
        self.fill(self.addresses(bytes)?)
    }

    /// Like [`Placement::memory`], for memory shared with other processes by name.
    pub fn shared_memory(&self, bytes: usize, shared: &SharedMemory) -> Result<Region, Error> {
        let bytes = whole_pages(bytes);
        shared.extend(bytes)?;
        let region = Region::map_shared(&shared.file, bytes);
        self.fill(self.place(region, bytes)?)
    }

    /// Makes every page present, and then allows pages to move.
    fn fill(&self, mut region: Region) -> Result<Region, Error> {
        let bytes = region.bytes();
        region
            .populate()
            .map_err(|source| Error::Populate { bytes, source })?;
        if self.home.is_some() || !self.interleaved.is_empty() {
            region
                .unbind()
                .map_err(|source| self.not_bound(bytes, source))?;
        }
        Ok(region)
    }

    /// Memory of `bytes` rounded up to pages, none of them present: the first touch places each.
    /// Bound to the home node, if there is one, or interleaved.
    pub fn addresses(&self, bytes: usize) -> Result<Region, Error> {
        let bytes = whole_pages(bytes);
        self.place(Region::map(bytes), bytes)
    }

    /// Sets the policy for the pages of mapped memory.
    fn place(&self, mapped: io::Result<Region>, bytes: usize) -> Result<Region, Error> {
        let region = mapped.map_err(|source| Error::Map { bytes, source })?;
        region
            .set_huge_pages(self.huge_pages)
            .map_err(|source| Error::HugePages { source })?;
        let bound = match self.home {
            Some(node) => region.bind(&NodeSet::from_iter([node])),
            None if self.interleaved.is_empty() => Ok(()),
            None => region.interleave(&self.interleaved),
        };
        bound.map_err(|source| self.not_bound(bytes, source))?;
        Ok(region)
    }

    /// The error of a failure to set or reset this placement's memory policy.
    fn not_bound(&self, bytes: usize, source: io::Error) -> Error {
        match self.home {
            Some(node) => Error::Bind {
                bytes,
                node,
                source,
            },
            None => Error::Interleave {
                bytes,
                nodes: self.interleaved.clone(),
                source,
            },
        }
    }
}

/// Memory that processes share by name. The first of them that ends removes the name, so later processes begin with new
/// memory.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    path: PathBuf,
}

impl SharedMemory {
    /// Opens it; creates it if the name does not exist.
    pub fn open(name: &str) -> Result<SharedMemory, Error> {
        let path = Path::new("/dev/shm").join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path);
        let file = file.map_err(Error::file("open the shared memory", &path))?;
        Ok(SharedMemory { file, path })
    }

    /// Extends it to `bytes` if it is shorter; never truncates other processes' pages.
    fn extend(&self, bytes: usize) -> Result<(), Error> {
        let length = self
            .file
            .metadata()
            .and_then(|known| match known.len() < bytes as u64 {
                true => self.file.set_len(bytes as u64),
                false => Ok(()),
            });
        length.map_err(Error::file("extend the shared memory", &self.path))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // Another process may have been first.
        let _ = fs::remove_file(&self.path);
    }
}

/// Refuses a run of `count` times `each` bytes if the home node, or the machine, has too little memory.
pub fn check_room(
    machine: &Machine,
    home: Option<NodeId>,
    count: usize,
    each: usize,
) -> Result<(), Error> {
    let wanted = count
        .checked_mul(each)
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or(Error::TooLarge { count, each })?;
    let available = machine.available_bytes(home)?;
    if wanted > available {
        let place = home.map_or("the machine".to_owned(), |node| format!("node {node}"));
        return Err(Error::NotEnoughMemory {
            wanted,
            available,
            place,
        });
    }
    Ok(())
}

/// Refuses a kernel of `wanted` bytes if the home node, or the machine, has too little memory.
pub fn check_class(
    machine: &Machine,
    home: Option<NodeId>,
    kernel: &str,
    wanted: usize,
) -> Result<(), Error> {
    match check_room(machine, home, 1, wanted) {
        Err(Error::NotEnoughMemory {
            wanted,
            available,
            place,
        }) => Err(Error::ClassTooLarge {
            kernel: kernel.to_owned(),
            wanted,
            available,
            place,
        }),
        other => other,
    }
}

/// `bytes` rounded up to whole pages.
pub fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(page_size())
}

fn confine(cpus: &CpuSet) -> Result<(), Error> {
    sys::set_affinity(cpus).map_err(|source| Error::Affinity {
        cpus: cpus.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(start: Start, pins: &[CpuId]) -> Result<Placement, Error> {
        Placement::new(
            &Machine::at(Path::new("/")),
            None,
            start,
            pins,
            HugePages::Default,
        )
    }

    #[test]
    fn shared_memory_is_one_for_all_until_the_first_ends() {
        let name = format!("menagerie-test-{}", std::process::id());
        let placement = placement(Start::Any, &[]).unwrap();
        let open = || SharedMemory::open(&name).unwrap();
        let (one, other) = (open(), open());
        let region = |shared: &SharedMemory| placement.shared_memory(100, shared).unwrap();
        let (mut mine, mut theirs) = (region(&one), region(&other));
        mine.words()[7] = 42;
        assert_eq!(theirs.words()[7], 42);
        drop(one);
        assert_eq!(
            region(&open()).words()[7],
            0,
            "the name is free for the next"
        );
        assert_eq!(theirs.words()[7], 42);
    }

    #[test]
    fn a_thread_sets_up_where_it_starts_and_is_free_afterwards() {
        std::thread::spawn(|| {
            let allowed = sys::affinity().unwrap();
            let last = allowed.last().unwrap();
            let during = placement(Start::Cpu(last), &[]).unwrap();
            let seen = during.settle(0, || Ok(sys::affinity().unwrap())).unwrap();
            assert_eq!(seen, CpuSet::from_iter([last]));
            assert_eq!(sys::affinity().unwrap(), allowed);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_failed_set_up_frees_the_thread_too() {
        std::thread::spawn(|| {
            let allowed = sys::affinity().unwrap();
            let during = placement(Start::Cpu(allowed.first().unwrap()), &[]).unwrap();
            let failed = during.settle(0, || Err::<(), _>(Error::TooLarge { count: 1, each: 1 }));
            assert!(failed.is_err());
            assert_eq!(sys::affinity().unwrap(), allowed);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_begins_on_the_cpu_it_was_given_and_is_free_there() {
        std::thread::spawn(|| {
            let allowed = sys::affinity().unwrap();
            let last = allowed.last().unwrap();
            placement(Start::Cpu(last), &[]).unwrap().begin().unwrap();
            assert_eq!(sys::affinity().unwrap(), allowed);
            let pinned = placement(Start::Cpu(last), &[last]).unwrap();
            pinned.settle(0, || Ok(())).unwrap();
            pinned.begin().unwrap();
            assert_eq!(sys::affinity().unwrap(), CpuSet::from_iter([last]));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn cpus_are_dealt_in_turn() {
        let allowed = sys::affinity().unwrap();
        let pins = [allowed.first().unwrap(), allowed.last().unwrap()];
        let dealt = placement(Start::Any, &pins).unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|i| dealt.pin(i).unwrap()),
            [pins, pins].concat()[..]
        );
        assert_eq!(placement(Start::Any, &[]).unwrap().pin(0), None);
    }

    #[test]
    fn a_cpu_out_of_reach_is_refused() {
        let error = placement(Start::Cpu(CpuId(1 << 20)), &[]).unwrap_err();
        assert!(
            matches!(
                error,
                Error::CpuNotAllowed {
                    option: "--start-cpu",
                    ..
                }
            ),
            "{error}"
        );
        let error = placement(Start::Any, &[CpuId(1 << 20)]).unwrap_err();
        assert!(
            matches!(
                error,
                Error::CpuNotAllowed {
                    option: "--cpus",
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn memory_is_given_in_whole_pages() {
        let region = placement(Start::Any, &[]).unwrap().memory(1).unwrap();
        assert_eq!(region.bytes(), page_size());
    }
}
