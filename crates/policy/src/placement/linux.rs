//! Linux: the kernel places threads itself, and nothing is asked of it.
//!
//! Problem: what a policy gains shows only beside a machine that is left to itself. Rule: none of ours;
//! the world is observed and written down exactly as under any other policy, so that measuring costs
//! every policy the same.
//!
//! Terms: none. Source: the baseline of every comparison ("Default" in DINO 3.2, the operating system mapping in IPM 5.3).
//! Property: the plan is empty.

use numaherd_topology::Topology;
use numaherd_world::{Placement, Snapshot};

use crate::policy::{Needs, Place, Random};

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linux;

impl Place for Linux {
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    fn place(&mut self, _: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        Vec::new()
    }
}
