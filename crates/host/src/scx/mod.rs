//! A second way to carry out placements: hints to scx_layered, a scheduler of sched_ext.
//!
//! scx_layered (GPL, a separate program, never linked) sorts threads into layers and has a map, pinned in the BPF file
//! system, that keeps a hint for each thread. Here each memory domain is a layer ([`Layers`]), and an order becomes a
//! hint ([`Hints`]). No affinity changes: a thread prefers its domain, but the scheduler lets it run elsewhere rather
//! than wait while a CPU idles. It respects an affinity that a user has set.
//!
//! The scheduler either runs with the map already, or is started here ([`Scheduler`]) and ends with this program, even
//! if that is killed: the kernel then schedules by itself again. Without its scheduler, a map is only a file. So hints
//! need no journal: [`take_back`] finds them in the map itself.

mod hints;
mod layers;
mod scheduler;
#[cfg(test)]
mod tests;

pub use hints::Hints;
pub use layers::Layers;
pub use scheduler::{SCX_LAYERED, Scheduler, take_back};
pub(crate) use scheduler::{State, is_enabled, state};
