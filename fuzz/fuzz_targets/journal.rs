//! Journals: what a killed instance left, from which threads are given back.
//!
//! The input is a journal whose lines have no sums yet ([`sealed`] adds them).
//!
//! Holds: no bytes make the reader panic; a mask is only ever given back to a thread whose mask is
//! one that the journal says we set; what is given back is gone from the journal afterwards.
//!
//! Reader: crates/herd/src/journal/read.rs crates/herd/src/journal/restore.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use numaherd_fuzz::{sealed, temporary};
use numaherd_herd::journal::Journal;
use numaherd_topology::CpuSet;
use numaherd_world::{Affinities, AffinityOrder, AffinityResult, Bounds, Search, ThreadId};

/// The boot that the seeds' journals are of.
const BOOT: &str = "b";

/// A mask that is not ours may be one that is still to be set anew, and is looked at again.
const MOST_LOOKS: u32 = 3;

/// Threads that all have one mask; every third is gone.
struct Machine {
    mask: CpuSet,
    /// How often each thread was asked for.
    asked: BTreeMap<ThreadId, u32>,
    given: BTreeSet<ThreadId>,
}

impl Affinities for Machine {
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        let looks = self.asked.entry(thread).or_insert(0);
        *looks += 1;
        assert!(*looks <= MOST_LOOKS, "{thread} is asked for {looks} times");
        let bounds = Bounds::new(self.mask.clone(), self.mask.clone());
        Ok((!thread.tid.is_multiple_of(3)).then_some(bounds))
    }

    fn bound_to(&mut self, _: &[Arc<CpuSet>], _: u64) -> Search {
        Search::default()
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        let is_first = self.given.insert(order.thread);
        assert!(is_first, "{} is given back twice", order.thread);
        AffinityResult::Done
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

numaherd_fuzz::target!(|input: (bool, u8, &[u8])| {
    let (seal, cpu, text) = input;
    let directory = temporary();
    let path = directory.path().join("journal");
    let bytes = if seal { sealed(text) } else { text.to_vec() };
    fs::write(&path, bytes).expect("a file of our own can be written");
    let mut journal = match Journal::open(&path, BOOT, "fuzz") {
        Ok(journal) => journal,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let owed = journal.owed();
    let mask: CpuSet = [u32::from(cpu).into()].into_iter().collect();
    let mut machine = Machine {
        mask,
        asked: BTreeMap::new(),
        given: BTreeSet::new(),
    };
    let report = journal.restore(&mut machine);
    assert_eq!(machine.asked.len(), owed);
    assert_eq!(machine.given.len(), report.restored.len());
    assert!(report.failed.is_empty());
    assert_eq!(journal.owed(), 0);
    drop(journal);
    let again = Journal::open(&path, BOOT, "fuzz").expect("what is left is a journal");
    assert_eq!(again.owed(), 0, "given back, but still in the journal");
});
