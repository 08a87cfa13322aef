//! World: live Linux.
//!
//! [`Host`] observes the threads of a selection (what they run on, their counters, where their pages are),
//! carries out orders (affinities, page moves), and reports what it could not see or do. [`doctor()`] says
//! what a machine offers before anything runs.
//!
//! ```text
//!  Host ── observe ─▶ scan ─▶ cpusets, assignments    whose threads, which CPUs they may have
//!   │                 counters ◀─ event_choice ◀─ events, pmu  perf groups per thread
//!   │                 residency                        numa_maps within a budget
//!   │                 ipm_unit ◀─ ipm_records          who shares pages; in the lab
//!   │                 vm                               machines, their vCPUs and monitors
//!   │                 agent                            which vCPUs care where they run
//!   ├── apply ──▶ affinity or scx, pages               masks, or hints to a scheduler; checked, read back
//!   └── pager ──▶ samples ◀─ records, memory_blocks           rings per CPU or thread
//!                 ipm_unit                             pages that should be moved; in the lab
//!                 pages or damon                       move_pages, or the kernel's threads that watch memory
//!  kernel: what is asked of the kernel; sys: how
//! ```
//!
//! All that is read is found under a root, so that a captured tree can be observed; all that is done goes
//! through [`kernel::Kernel`], so that tests can use a kernel that refuses.
//!
//! The readers of outside text and bytes are public for their fuzz targets, and hidden: no promise.

mod affinity;
#[doc(hidden)]
pub mod agent;
mod assignments;
mod batch_size;
mod cgroup_moves;
mod counters;
mod cpusets;
mod damon;
mod doctor;
mod end_of_run;
mod error;
mod event_choice;
mod events;
#[cfg(test)]
mod fake;
#[doc(hidden)]
pub mod files;
mod groups;
mod host;
#[doc(hidden)]
pub mod ipm_records;
mod ipm_unit;
pub mod kernel;
mod latest;
mod memory_blocks;
mod mid_fork;
mod movers;
mod new_pages;
mod node_room;
mod node_states;
mod open_files;
mod options;
mod pager;
mod pages;
mod perf_errors;
#[doc(hidden)]
pub mod pmu;
#[doc(hidden)]
pub mod proc;
mod ranges;
#[doc(hidden)]
pub mod records;
mod residency;
mod samples;
mod scan;
mod scx;
mod stop;
mod sweep;
mod sys;
mod threads;
mod users;
#[doc(hidden)]
pub mod vm;

pub use agent::{AgentNews, AgentOptions, GuestAgent, GuestTags};
pub use cgroup_moves::CgroupMoves;
pub use damon::{Damon, Moved, take_down_kdamonds};
pub use doctor::{Doctor, EventCheck, Finding, MOVING, PLACING, Verdict, doctor, signals};
pub use error::HostError;
pub use events::EventTable;
pub use groups::{GroupRule, GroupRules, Matches};
pub use host::Host;
pub use new_pages::{start_with_new_pages, start_with_weighted_interleave};
pub use node_room::{NodeRoom, rooms};
pub use options::{HostOptions, PageOptions, SampleOptions, Selection};
pub use scx::{Hints, Layers, SCX_LAYERED, Scheduler, take_back};
pub use stop::Stop;
pub use threads::Threads;
pub use users::{Confined, Reach, confined_to, user_number, user_of};
