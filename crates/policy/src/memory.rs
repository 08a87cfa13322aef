//! What a policy remembers of each thread, kept in the order of the snapshot's threads.
//!
//! Snapshots list threads ascending by [`ThreadId`], so memory and snapshot are joined by one walk
//! over both: linear, without hashing, and nothing is left of threads that have ended.

use numaherd_world::{Thread, ThreadId};

/// One `T` per thread.
#[derive(Clone, Debug, Default)]
pub struct PerThread<T> {
    threads: Vec<ThreadId>,
    remembered: Vec<T>,
}

impl<T: Default> PerThread<T> {
    /// Lines the memory up with a snapshot's threads: one entry each, in their order. New threads
    /// get the default; threads that are gone are forgotten.
    pub fn line_up(&mut self, threads: &[Thread]) -> &mut [T] {
        self.line_up_without(threads, drop)
    }

    /// The same; `gone` gets what was remembered of each thread that is gone.
    pub fn line_up_without(&mut self, threads: &[Thread], mut gone: impl FnMut(T)) -> &mut [T] {
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
                while let Some((_, of_gone)) = before.next_if(|(id, _)| *id < thread.id) {
                    gone(of_gone);
                }
                let known = before.next_if(|(id, _)| *id == thread.id);
                self.remembered
                    .push(known.map(|(_, t)| t).unwrap_or_default());
            }
            before.for_each(|(_, of_gone)| gone(of_gone));
            self.threads = threads.iter().map(|thread| thread.id).collect();
        }
        &mut self.remembered
    }
}
