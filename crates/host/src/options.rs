//! What a user may set for the live machine.

use std::path::PathBuf;
use std::time::Duration;

use numaherd_world::NewPages;

use crate::events::EventTable;
use crate::groups::GroupRule;

/// Which threads are watched; never the program's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every thread of the machine.
    Machine,
    /// These processes; the world ends when all of them have.
    Processes {
        /// Their numbers.
        pids: Vec<u32>,
        /// Whether what they start is watched too.
        descendants: bool,
    },
    /// A command started for this run, and what it starts; the world ends with it.
    Child {
        /// Its process number.
        pid: u32,
    },
    /// The processes of a cgroup and of those below it.
    Cgroup {
        /// Path from the root of the hierarchy, as `/proc/PID/cgroup` shows it.
        path: String,
    },
    /// Processes by name (the kernel keeps 15 bytes of it).
    Command {
        /// The name.
        name: String,
    },
    /// Processes of a user.
    User {
        /// The user id; see [`crate::user_number`].
        uid: u32,
    },
}

/// How pages are moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageOptions {
    /// How long 99 of 100 threads that touch a moving page may wait for it.
    pub pause_target: Duration,
    /// How long one call of the kernel may take. Requests to stop take effect between calls; each call has a fixed
    /// cost, so short ones are dear. Threads wait less long: the kernel unmaps only some of a call's pages at a time.
    pub call_target: Duration,
    /// Pages of the first batch, before anything has been measured.
    pub first_batch: usize,
    /// Largest batch in pages.
    pub largest_batch: usize,
}

impl Default for PageOptions {
    /// Waits below 5 ms for 99 of 100, calls of 25 ms.
    fn default() -> Self {
        Self {
            pause_target: Duration::from_millis(5),
            call_target: Duration::from_millis(25),
            first_batch: 128,
            largest_batch: 16384,
        }
    }
}

/// How accesses are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// Whether to sample at all.
    pub enabled: bool,
    /// Events between two samples of a CPU. The default is numatop's 10000 loads.
    pub period: u64,
    /// Least latency of a sampled load in core cycles, where the machine can filter (Intel).
    pub least_latency: u64,
    /// Pages of each ring buffer, a power of two; halved while the kernel's limits do not allow it.
    pub ring_pages: usize,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            period: 10_000,
            least_latency: 128,
            ring_pages: 16,
        }
    }
}

/// What a user may set for the live machine.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOptions {
    /// Where /proc, /sys and the cgroup file systems are found: `/`, or a captured tree.
    pub root: PathBuf,
    /// Which threads are watched.
    pub selection: Selection,
    /// The user whose processes alone are watched, whatever is selected; see [`crate::confined_to`].
    pub only_user: Option<u32>,
    /// The rules of groups; the first that matches decides.
    pub groups: Vec<GroupRule>,
    /// The rule for new pages of the selected child, set before it began ([`crate::start_with_new_pages`]).
    pub started_with: NewPages,
    /// Whether threads whose affinity their user has set may be steered.
    pub include_pinned: bool,
    /// The events to count, by machine.
    pub events: EventTable,
    /// Share of one CPU that reading page residency may cost; ten times as much for a process whose pages have moved
    /// since it was read, or as much as moving them took.
    pub residency_share: f64,
    /// Sampling.
    pub samples: SampleOptions,
    /// Page moves.
    pub pages: PageOptions,
}

impl HostOptions {
    /// The usual settings for the live machine.
    pub fn new(selection: Selection) -> Self {
        Self {
            root: PathBuf::from("/"),
            selection,
            only_user: None,
            groups: Vec::new(),
            started_with: NewPages::FirstTouch,
            include_pinned: false,
            events: EventTable::default(),
            residency_share: 0.01,
            samples: SampleOptions::default(),
            pages: PageOptions::default(),
        }
    }
}
