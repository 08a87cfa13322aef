//! What a killed herd leaves behind is given back, and nothing else is touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use numaherd_herd::HerdError;
use numaherd_herd::journal::{Current, Entry, Journal, Restored, restore};
use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, ThreadId};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{cpus, pid, tid};

const BOOT: &str = "this boot";

fn entry(number: u32, set: &str) -> Entry {
    Entry {
        thread: tid(number),
        process: pid(1),
        name: format!("t{number}"),
        found: cpus("0-7"),
        back: cpus("0-15"),
        set: cpus(set),
    }
}

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run/journal")
    }

    fn open(&self) -> Journal {
        Journal::open(&self.path(), BOOT, "numaherd run, process 4711").unwrap()
    }

    /// A journal as a killed herd leaves it.
    fn killed(entries: &[Entry]) -> Self {
        let place = Self::new();
        place.open().record(entries).unwrap();
        place
    }

    /// Gives back; the machine has these masks and obeys. Returns the report and the masks after.
    fn restore(&self, masks: &[(u32, &str)]) -> (Restored, BTreeMap<ThreadId, CpuSet>) {
        let masks: BTreeMap<ThreadId, CpuSet> = masks
            .iter()
            .map(|&(n, mask)| (tid(n), cpus(mask)))
            .collect();
        let mut after = masks.clone();
        let report = restore(
            &self.path(),
            BOOT,
            "the test",
            |thread| match masks.get(&thread) {
                Some(mask) => Current::Mask(mask.clone()),
                None => Current::Gone,
            },
            |order: AffinityOrder| {
                assert_eq!(order.core, None);
                after.insert(order.thread, (*order.cpus).clone());
                AffinityResult::Done
            },
        );
        (report.unwrap(), after)
    }
}

#[test]
fn what_a_killed_herd_left_is_given_back() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "4-7"), entry(1, "4-7")]);
    let (report, after) = place.restore(&[(1, "0-3"), (2, "4-7")]);
    assert_eq!(
        report.restored,
        [tid(1), tid(2)],
        "killed between two orders"
    );
    assert!(after.values().all(|mask| *mask == cpus("0-15")));
    assert!(!place.path().exists(), "nothing is owed");
    let (report, _) = place.restore(&[(1, "0-3")]);
    assert_eq!(report, Restored::default(), "once");
}

#[test]
fn a_thread_that_is_as_found_or_gone_is_not_touched() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    let (report, after) = place.restore(&[(1, "0-7")]);
    assert_eq!((report.as_found, report.gone), (vec![tid(1)], 1));
    assert_eq!(after[&tid(1)], cpus("0-7"));
}

#[test]
fn a_mask_that_someone_else_has_set_since_is_left_alone_and_named() {
    let place = Place::killed(&[entry(1, "0-3")]);
    let (report, after) = place.restore(&[(1, "2")]);
    assert_eq!(report.left_alone, [(tid(1), "t1".to_owned(), cpus("2"))]);
    assert_eq!(after[&tid(1)], cpus("2"));
}

#[test]
fn what_could_not_be_given_back_stays_in_the_journal() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    let fails = |order: AffinityOrder| match order.thread.tid {
        1 => AffinityResult::Done,
        _ => AffinityResult::Failed {
            error: "EPERM".to_owned(),
        },
    };
    let ours = |_| Current::Mask(cpus("0-3"));
    let report = restore(&place.path(), BOOT, "the test", ours, fails).unwrap();
    assert_eq!(report.restored, [tid(1)]);
    let failed = [(tid(2), "t2".to_owned(), "EPERM".to_owned())];
    assert_eq!(report.failed, failed);
    let (report, _) = place.restore(&[(1, "0-3"), (2, "0-3")]);
    assert_eq!(report.restored, [tid(2)]);
}

#[test]
fn a_second_instance_is_told_who_is_running() {
    let place = Place::new();
    let first = place.open();
    let error = Journal::open(&place.path(), BOOT, "another").unwrap_err();
    assert!(matches!(error, HerdError::JournalHeld { .. }));
    let text = error.to_string();
    assert!(
        text.ends_with(
            "a herd is already running (numaherd run, process 4711); stop it first, or use a \
             different journal and different threads"
        ),
        "{text}"
    );
    drop(first);
    place.open();
}

#[test]
fn opening_a_journal_changes_nothing_and_keeps_what_is_owed() {
    let place = Place::killed(&[entry(1, "0-3")]);
    let before = fs::read(place.path()).unwrap();
    let mut journal = place.open();
    assert_eq!(journal.owed(), 1);
    assert_eq!(fs::read(place.path()).unwrap(), before);
    journal.record(&[entry(2, "4-7")]).unwrap();
    drop(journal);
    let (report, _) = place.restore(&[(1, "0-3"), (2, "4-7")]);
    assert_eq!(report.restored, [tid(1), tid(2)]);
}

#[test]
fn what_was_found_first_is_what_is_given_back() {
    let place = Place::killed(&[entry(1, "0-3")]);
    let mut later = entry(1, "4-7");
    later.found = cpus("0-3");
    later.back = cpus("0-3");
    place.open().record(&[later]).unwrap();
    let (_, after) = place.restore(&[(1, "4-7")]);
    assert_eq!(after[&tid(1)], cpus("0-15"));
}

#[test]
fn a_journal_of_an_earlier_boot_is_discarded_with_a_message() {
    let place = Place::new();
    let earlier = Journal::open(&place.path(), "an earlier boot", "the test");
    earlier.unwrap().record(&[entry(1, "0-3")]).unwrap();
    let (report, after) = place.restore(&[(1, "0-3")]);
    assert!(report.restored.is_empty());
    assert_eq!(after[&tid(1)], cpus("0-3"), "another thread of that number");
    assert_eq!(report.messages.len(), 1);
    assert!(report.messages[0].contains("is of an earlier boot"));
}

#[test]
fn a_damaged_journal_is_read_up_to_the_damage() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3"), entry(3, "0-3")]);
    let mut bytes = fs::read(place.path()).unwrap();
    let third = bytes
        .split_inclusive(|&b| b == b'\n')
        .take(2)
        .map(<[u8]>::len)
        .sum::<usize>();
    bytes[third + 20] ^= 4;
    fs::write(place.path(), bytes).unwrap();
    let masks = [(1, "0-3"), (2, "0-3"), (3, "0-3")];
    let (report, _) = place.restore(&masks);
    assert_eq!(report.restored, [tid(1)]);
    assert!(
        report.messages[0].ends_with(&format!(
            "is damaged at line 3 (byte {third}); what is before that can be restored (1 \
             threads), what is after it cannot"
        )),
        "{:?}",
        report.messages
    );
}

#[test]
fn a_file_that_is_no_journal_is_not_touched() {
    let place = Place::new();
    fs::create_dir_all(place.path().parent().unwrap()).unwrap();
    fs::write(place.path(), "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    let error = Journal::open(&place.path(), BOOT, "the test").unwrap_err();
    assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
    assert!(
        fs::read_to_string(place.path())
            .unwrap()
            .starts_with("root:x")
    );
}

#[test]
fn a_long_journal_is_written_anew_and_loses_nothing() {
    let place = Place::new();
    let mut journal = place.open();
    for round in 0..3000 {
        let set = if round % 2 == 0 { "0-3" } else { "4-7" };
        journal.record(&[entry(1, set)]).unwrap();
    }
    journal.record(&[entry(2, "4-7")]).unwrap();
    drop(journal);
    let text = fs::read_to_string(place.path()).unwrap();
    assert!(text.lines().count() < 1100, "{}", text.lines().count());
    let (report, _) = place.restore(&[(1, "4-7"), (2, "4-7")]);
    assert_eq!(report.restored, [tid(1), tid(2)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_to_a_journal_only_what_was_owed_is_given_back(
        cut in any::<prop::sample::Index>(),
        flip in prop::option::of((any::<prop::sample::Index>(), 0u8..8)),
    ) {
        let entries: Vec<Entry> = (1..6).map(|n| entry(n, "0-3")).collect();
        let place = Place::killed(&entries);
        let mut bytes = fs::read(place.path()).unwrap();
        if let Some((at, bit)) = flip {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        fs::write(place.path(), bytes).unwrap();
        let mut given = Vec::new();
        let outcome = restore(
            &place.path(),
            BOOT,
            "the test",
            |_| Current::Mask(cpus("0-3")),
            |order: AffinityOrder| {
                given.push((order.thread, order.cpus));
                AffinityResult::Done
            },
        );
        prop_assert!(outcome.is_ok() || given.is_empty());
        for (at, (thread, mask)) in given.iter().enumerate() {
            prop_assert_eq!(*thread, entries[at].thread);
            prop_assert_eq!(mask, &Arc::new(cpus("0-15")));
        }
    }
}
