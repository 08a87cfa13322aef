//! The loop, and what stands around it: governor, journal, ledger, replay.
//!
//! A [`Herd`] lets a [`World`](numaherd_world::World) run for an interval, observes it, asks a
//! [`Policy`](numaherd_policy::Policy) for a plan, and has the [`governor`] turn the plan into
//! orders. The governor alone keeps users safe. The [`journal`] saves each affinity as it was found,
//! before the first of them changes. The [`ledger`] records all that was seen, wanted, refused and done;
//! everything a person sees is drawn from it. [`replay`] asks other policies what they would have decided.
//!
//! The crate knows no concrete world. Its only system calls read and write its own files.

pub mod control;
pub mod error;
pub mod governor;
mod groups;
mod heirs;
pub mod journal;
pub mod ledger;
pub mod needs;
mod paging;
pub mod replay;
pub mod run;
mod sealed;
pub mod settings;
pub mod summary;

pub use control::{Change, Control, ControlError, Request, Requests};
pub use error::HerdError;
pub use governor::{Guard, Refusal};
pub use journal::Journal;
pub use ledger::{Line, Record};
pub use run::Herd;
pub use settings::{
    AffinityScope, Enforcement, GroupLimits, Limits, Settings, Steal, StealWhen, Worse,
};
pub use summary::{CountSums, Ending, LostSums, Summary, Totals};
