//! Linux: the kernel places the threads, and Numaherd does not interfere.
//!
//! Problem: the gain of a policy is the difference from a machine that is left alone. Rule: none; the world is
//! observed and recorded exactly as under any other policy, so that measuring costs every policy the same.
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
