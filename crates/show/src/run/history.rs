//! What a reader keeps of the past beyond the model's present state.

use numaherd_herd::Line;
use numaherd_herd::ledger::{Controlled, Placing};
use numaherd_policy::losses::Losses;
use numaherd_world::{Outcome, Snapshot};

use super::RunModel;
use super::decision::{PageDecision, ThreadDecision};

/// A reader's own memory of a run: it is told of each interval and each decision once the model has
/// taken them in. `()` remembers nothing.
pub trait History {
    /// A line comes; the model takes it in next.
    fn line(&mut self, _: &Line) {}

    /// An interval was seen; the model holds its figures.
    fn interval(&mut self, _: &RunModel, _: &Snapshot) {}

    /// What the machine lost in the latest interval.
    fn lost(&mut self, _: &RunModel, _: &Losses) {}

    /// A placing, with its outcome where that is recorded; the decisions in it come next.
    fn placed(&mut self, _: &Placing, _: Option<&Outcome>) {}

    /// A thread's order was carried out, refused, or planned.
    fn decided(&mut self, _: &RunModel, _: &ThreadDecision<'_>) {}

    /// The same of pages.
    fn paged(&mut self, _: &RunModel, _: &PageDecision<'_>) {}

    /// A notice for people.
    fn noticed(&mut self, _time_ns: u64, _text: &str) {}

    /// A request to the loop, answered.
    fn asked(&mut self, _: &Line, _: &Controlled) {}
}

impl History for () {}
