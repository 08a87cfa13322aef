//! chase and update: one kind of access with a constant number of instructions between the lines. A
//! chase without any is DINO's super-devil.

use crate::access::Access;
use crate::error::Error;
use crate::workload::Workload;

/// A repeated access.
#[derive(Debug)]
pub struct Steady<A> {
    access: A,
    compute: u64,
}

impl<A> Steady<A> {
    /// `access` with `compute` iterations after each line.
    pub fn new(access: A, compute: u64) -> Steady<A> {
        Steady { access, compute }
    }
}

impl<A: Access> Workload for Steady<A> {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        self.access.touch(operations, self.compute);
        Ok(())
    }

    fn batch(&self) -> u64 {
        batch_with(self.compute)
    }

    fn round(&self) -> u64 {
        self.access.lines()
    }
}

/// Lines between two checks of the clock, with `compute` iterations after each.
pub fn batch_with(compute: u64) -> u64 {
    ((1 << 20) / compute.max(1)).clamp(1, 8192)
}
