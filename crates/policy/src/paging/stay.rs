//! Stay: pages remain where they are.
//!
//! Problem: what moving threads alone comes to shows only where memory is left alone. Rule: new pages
//! go where the kernel puts them, usually the node of the thread that touches them first; pages that
//! exist are not moved.
//!
//! Terms: none. Source: the paging of DI-Plain (DINO §3.1) and of all policies that leave memory to the
//! kernel. Property: there are never any orders.

use numaherd_topology::Topology;
use numaherd_world::{PageOrder, PageOutcome, Sample, Signal, Snapshot};

use crate::policy::{Paging, Random, Settled};

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay;

impl Paging for Stay {
    fn needs(&self) -> &[Signal] {
        &[]
    }

    fn settled(&mut self, _: &[Settled], _: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    fn listens(&self) -> bool {
        false
    }

    fn sampled(&mut self, _: &[Sample], _: &Topology, _: &mut Random) -> Vec<PageOrder> {
        Vec::new()
    }

    fn moved(&mut self, _: &[PageOutcome]) {}
}
