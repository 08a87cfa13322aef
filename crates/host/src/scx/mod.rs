//! A second way to carry placements out: hints to scx_layered, a scheduler of sched_ext.
//!
//! scx_layered (GPL, a program of its own, never linked) sorts threads into layers and has a map, pinned in the BPF file
//! system, that keeps a hint with each thread. Here each memory domain is a layer ([`Layers`]), and an order becomes a hint
//! ([`Hints`]). No affinity changes: a thread prefers its domain, and the scheduler lets it run elsewhere rather than wait
//! while a CPU idles. An affinity that a user has set stays unchanged and is respected.
//!
//! The scheduler is one that runs with the map already, or is started ([`Scheduler`]) and ends with this program, even if
//! that is killed: the kernel then schedules by itself again. A map outlives its scheduler only as a file. So nothing has to
//! be written down before a hint is set: [`take_back`] finds the hints in the map itself.

mod hints;
mod layers;
mod scheduler;
#[cfg(test)]
mod tests;

pub use hints::Hints;
pub use layers::Layers;
pub use scheduler::{SCX_LAYERED, Scheduler, take_back};
pub(crate) use scheduler::{State, is_enabled, state};
