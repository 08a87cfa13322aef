//! The kernel's threads that watch and move memory, through the files that create and control them
//! (Documentation/admin-guide/mm/damon/usage.rst).
//!
//! The whole machine has one number of kdamonds: writing it removes them all. So they are made only where there are
//! none, and only for as long as they are needed.
//!
//! Whose they are: a scheme without watermarks ignores its three levels. Ours store there this program's name as a
//! number, and its process, by number and start. A mark thus goes with what it marks, and kdamonds of a process that
//! has ended are known to be left over. Before their marks are written, a file names their owner: kdamonds that are off
//! and have no process to watch are then left over as well.

use std::fmt;
use std::fs;
use std::time::Duration;

use crate::files::Root;
use crate::kernel::{Errno, Kernel};

const FOLDER: &str = "sys/kernel/mm/damon/admin/kdamonds";
const COUNT: &str = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
/// Names the owner of kdamonds from before they are made until they are gone.
const OWNER: &str = "run/numaherd/kdamonds";

/// "numaherd", as a number.
const MARK: u64 = u64::from_be_bytes(*b"numaherd");

/// How often to write a file that the kernel calls busy because another process reads or writes one, and how long to
/// wait in between (chosen here: a second in all).
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Parts of the kernel that reserve DAMON while they are on (`damon_start` with `exclusive`, mm/damon/core.c).
const MODULES: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

/// The first Linux whose kdamonds move pages of a process.
const SINCE: (u32, u32) = (6, 17);

/// What DAMON is doing on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The kernel has none, or its files cannot be read.
    Missing,
    /// It does not move pages of a process.
    TooOld,
    /// This part of the kernel reserves it.
    Kept(&'static str),
    /// There are no kdamonds.
    Free,
    /// All are left over from runs of numaherd that were killed.
    Left,
    /// So many belong to others, or to a running herd.
    Others(u32),
}

/// Why kdamonds cannot be had or controlled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "there are no files of DAMON to read in /{FOLDER}: run as root, on a kernel with CONFIG_DAMON_SYSFS"
    )]
    Missing,
    #[error("this kernel's DAMON does not move pages of a process: Linux 6.17 or newer is needed")]
    TooOld,
    #[error(
        "{0} keeps it to itself: echo N > /sys/module/{0}/parameters/enabled, if you can do without"
    )]
    Kept(&'static str),
    #[error("{0} of its threads are not ours (/{COUNT}): stop whoever uses them")]
    Others(u32),
    #[error("cannot write {value:?} to /{path}: {errno}{}", why(*errno))]
    Write {
        path: String,
        value: String,
        errno: Errno,
    },
    #[error("cannot write /{OWNER}: {0}")]
    Owner(String),
}

fn why(errno: Errno) -> &'static str {
    match errno {
        Errno::ROFS => "; in a service, add ReadWritePaths=/sys/kernel/mm/damon",
        Errno::ACCESS | Errno::PERM => "; run as root",
        Errno::BUSY => "; somebody else uses DAMON's files",
        _ => "",
    }
}

/// A process as the owner of kdamonds: its number, and its start in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u64,
    born: u64,
}

impl Owner {
    /// This process.
    fn this(kernel: &dyn Kernel) -> Self {
        let pid = std::process::id();
        Self {
            pid: u64::from(pid),
            born: kernel.born(pid).unwrap_or(0),
        }
    }

    /// The one that a text names.
    fn of(text: &str) -> Option<Self> {
        let (pid, born) = text.split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            born: born.parse().ok()?,
        })
    }

    /// Whether it is another process, and exists.
    fn is_another(self, kernel: &dyn Kernel) -> bool {
        let pid = u32::try_from(self.pid).ok();
        self != Self::this(kernel) && pid.and_then(|pid| kernel.born(pid)) == Some(self.born)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.born)
    }
}

/// What DAMON is doing on the machine under a root.
pub(crate) fn state(root: &Root, kernel: &dyn Kernel) -> State {
    match root.number::<u32>(COUNT) {
        None => State::Missing,
        Some(0) if is_too_old(root) => State::TooOld,
        Some(0) => {
            let is_on = |module: &&&str| {
                let enabled = format!("sys/module/{module}/parameters/enabled");
                root.text(&enabled).as_deref() == Some("Y")
            };
            match MODULES.iter().find(is_on) {
                Some(module) => State::Kept(module),
                None => State::Free,
            }
        }
        Some(count) => match (0..count).all(|number| is_left(root, kernel, number)) {
            true => State::Left,
            false => State::Others(count),
        },
    }
}

/// Whether the kernel says that it is older than those whose kdamonds move pages of a process.
fn is_too_old(root: &Root) -> bool {
    let release = root.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut part = || parts.next()?.parse::<u32>().ok();
    matches!((part(), part()), (Some(major), Some(minor)) if (major, minor) < SINCE)
}

/// Whether a kdamond is ours, or was of a process that has ended.
fn is_left(root: &Root, kernel: &dyn Kernel, number: u32) -> bool {
    let level = |level: &str| {
        root.number::<u64>(&format!(
            "{FOLDER}/{number}/contexts/0/schemes/0/watermarks/{level}"
        ))
    };
    if let (Some(MARK), Some(pid), Some(born)) = (level("high"), level("mid"), level("low")) {
        return !Owner { pid, born }.is_another(kernel);
    }
    let owner = root.text(OWNER).and_then(|text| Owner::of(&text));
    let is_off = root.text(&format!("{FOLDER}/{number}/state")).as_deref() == Some("off");
    let has_target = root
        .path(&format!("{FOLDER}/{number}/contexts/0/targets/0"))
        .exists();
    owner.is_some_and(|owner| !owner.is_another(kernel)) && is_off && !has_target
}

/// Takes down kdamonds that a killed run has left; gives how many. Those of others stay.
///
/// # Errors
/// The kernel does not let them be taken down.
pub(super) fn take_down_left(root: &Root, kernel: &dyn Kernel) -> Result<u32, Refusal> {
    match state(root, kernel) {
        State::Left => {
            let count = root.number(COUNT).unwrap_or(0);
            take_down(root, kernel, count)?;
            Ok(count)
        }
        _ => Ok(0),
    }
}

fn take_down(root: &Root, kernel: &dyn Kernel, count: u32) -> Result<(), Refusal> {
    for number in 0..count {
        let state = format!("{FOLDER}/{number}/state");
        if root.text(&state).as_deref() != Some("off") {
            // One that ends by itself in between refuses it; whether all are off shows below.
            let _ = write(root, kernel, &state, "off");
        }
    }
    write(root, kernel, COUNT, "0")?;
    // Without it, their marks would still identify them.
    let _ = fs::remove_file(root.path(OWNER));
    Ok(())
}

/// Writes a value to a kernel file; tries again while that is busy.
fn write(root: &Root, kernel: &dyn Kernel, path: &str, value: &str) -> Result<(), Refusal> {
    let mut answer = Err(Errno::BUSY);
    for _ in 0..TRIES {
        answer = kernel.write(&root.path(path), value);
        if answer != Err(Errno::BUSY) {
            break;
        }
        kernel.pause(PAUSE);
    }
    answer.map_err(|errno| Refusal::Write {
        path: path.to_owned(),
        value: value.to_owned(),
        errno,
    })
}

/// Our kdamonds, each with a context and a scheme. Dropping this takes them down, if that has not been done.
#[derive(Debug)]
pub(super) struct Kdamonds<'a> {
    root: &'a Root,
    kernel: &'a dyn Kernel,
    count: u32,
}

impl<'a> Kdamonds<'a> {
    /// Makes so many.
    ///
    /// # Errors
    /// Others have kdamonds, or the kernel does not let them be made, or has none that move pages of a process; none of
    /// ours exist then.
    pub(super) fn make(
        root: &'a Root,
        kernel: &'a dyn Kernel,
        count: u32,
    ) -> Result<Self, Refusal> {
        take_down_left(root, kernel)?;
        match state(root, kernel) {
            State::Missing => return Err(Refusal::Missing),
            State::TooOld => return Err(Refusal::TooOld),
            State::Kept(module) => return Err(Refusal::Kept(module)),
            State::Others(others) => return Err(Refusal::Others(others)),
            State::Free | State::Left => {}
        }
        let owner = Owner::this(kernel);
        let path = root.path(OWNER);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder
            .and_then(|()| fs::write(&path, owner.to_string()))
            .map_err(|error| Refusal::Owner(error.to_string()))?;
        if let Err(refusal) = write(root, kernel, COUNT, &count.to_string()) {
            // There are none to own.
            let _ = fs::remove_file(&path);
            return Err(refusal);
        }
        let made = Self {
            root,
            kernel,
            count,
        };
        for number in 0..count {
            made.tell(number, "contexts/nr_contexts", 1)?;
            made.tell(number, "contexts/0/schemes/nr_schemes", 1)?;
            let levels = [("low", owner.born), ("mid", owner.pid), ("high", MARK)];
            for (level, value) in levels {
                let path = format!("contexts/0/schemes/0/watermarks/{level}");
                made.tell(number, &path, value)?;
            }
        }
        // This file came with moving pages of processes.
        let dests = format!("{FOLDER}/0/contexts/0/schemes/0/dests");
        match root.path(&dests).exists() {
            true => Ok(made),
            false => Err(Refusal::TooOld),
        }
    }

    /// Writes a value to a file of one of them.
    pub(super) fn tell(
        &self,
        number: u32,
        path: &str,
        value: impl fmt::Display,
    ) -> Result<(), Refusal> {
        let path = format!("{FOLDER}/{number}/{path}");
        write(self.root, self.kernel, &path, &value.to_string())
    }

    /// The number in a file of one of them.
    pub(super) fn number(&self, number: u32, path: &str) -> Option<u64> {
        self.root.number(&format!("{FOLDER}/{number}/{path}"))
    }

    /// Takes them down, now.
    ///
    /// # Errors
    /// The kernel does not let that be done.
    pub(super) fn end(mut self) -> Result<(), Refusal> {
        let count = std::mem::take(&mut self.count);
        take_down(self.root, self.kernel, count)
    }
}

impl Drop for Kdamonds<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            // An error is on its way already; the next round and `release` find them by their marks.
            let _ = take_down(self.root, self.kernel, self.count);
        }
    }
}
