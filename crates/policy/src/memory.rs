//! What a policy remembers of each thread, kept in the order of the snapshot's threads.
//!
//! Snapshots list threads ascending by [`ThreadId`], so memory and snapshot are joined by one walk
//! over both: linear, without hashing, and nothing is left of threads that have ended.

use numaherd_world::{Thread, ThreadId};

/// One `T` per thread.
#[derive(Clone, Debug)]
pub struct PerThread<T> {
    threads: Vec<ThreadId>,
    remembered: Vec<T>,
}

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        Self {
            threads: Vec::new(),
            remembered: Vec::new(),
        }
    }
}

impl<T: Default> PerThread<T> {
    /// Lines the memory up with a snapshot's threads: one entry each, in their order. New threads
    /// get the default; threads that are gone are forgotten.
    pub fn line_up(&mut self, threads: &[Thread]) -> &mut [T] {
        debug_assert!(threads.is_sorted_by_key(|thread| thread.id));
        if !threads
            .iter()
            .map(|t| t.id)
            .eq(self.threads.iter().copied())
        {
            let ids = std::mem::take(&mut self.threads);
            let mut before = ids
                .into_iter()
                .zip(std::mem::take(&mut self.remembered))
                .peekable();
            self.remembered.reserve(threads.len());
            for thread in threads {
                while before.next_if(|(id, _)| *id < thread.id).is_some() {}
                let known = before.next_if(|(id, _)| *id == thread.id);
                self.remembered
                    .push(known.map(|(_, t)| t).unwrap_or_default());
            }
            self.threads = threads.iter().map(|thread| thread.id).collect();
        }
        &mut self.remembered
    }
}
