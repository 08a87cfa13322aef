//! Linux: the kernel places threads itself, and nothing is asked of it.
//!
//! The baseline of every comparison: the world is observed and written down exactly as under any
//! other policy, so that measuring costs every policy the same. Property: the plan is empty.

use numaherd_topology::Topology;
use numaherd_world::{Placement, Signal, Snapshot};

use crate::policy::{Place, Random};

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linux;

impl Place for Linux {
    fn needs(&self) -> &[Signal] {
        &[]
    }

    fn place(&mut self, _: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        Vec::new()
    }
}
