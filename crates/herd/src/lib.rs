//! The one loop, and what stands around it: governor, journal, ledger, replay.
//!
//! A [`Herd`] lets a [`World`](numaherd_world::World) run for an interval, observes it, asks a
//! [`Policy`](numaherd_policy::Policy) for a plan, and has the [`governor`] turn the plan into
//! orders. What keeps users safe is in the governor and nowhere else. Affinities as they were found
//! are in the [`journal`] before the first of them changes. All that was seen, wanted, refused and
//! done is in the [`ledger`], from which everything a person sees is drawn. [`replay`] asks other policies
//! what they would have decided on it.
//!
//! The crate knows no concrete world and makes no system calls but to read and write its own files.

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
