//! What a killed herd leaves behind is given back, and nothing else is touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::HerdError;
use numaherd_herd::journal::{Journal, Restored, SavedAffinity, restore};
use numaherd_topology::CpuSet;
use numaherd_world::{Kinship, Thread, ThreadId, World};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{self, Fake, Released, cpus, pid, thread, tid};

const BOOT: &str = "this boot";

fn entry(number: u32, set: &str) -> SavedAffinity {
    SavedAffinity {
        thread: tid(number),
        process: pid(1),
        name: format!("t{number}"),
        found: cpus("0-7"),
        back: cpus("0-15"),
        set: cpus(set),
        kin: Kinship {
            session: 40,
            ..Kinship::default()
        },
        since: 0,
    }
}

/// A machine of 16 CPUs with threads that have these masks, each of a process of its own.
fn machine(masks: &[(u32, &str)]) -> Fake {
    let topology = fake::machine(2, 8);
    let bound = |&(number, mask): &(u32, &str)| Thread {
        affinity: Arc::new(cpus(mask)),
        ..thread(number, number, 0, &topology)
    };
    let threads = masks.iter().map(bound).collect();
    Fake::new(topology, threads)
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
    fn killed(entries: &[SavedAffinity]) -> Self {
        let place = Self::new();
        place.open().record(entries).unwrap();
        place
    }

    /// Gives back; the machine has these masks and obeys. Returns the report and the masks after.
    fn restore(&self, masks: &[(u32, &str)]) -> (Restored, BTreeMap<ThreadId, CpuSet>) {
        let mut machine = machine(masks);
        (self.restore_on(&mut machine), machine.masks())
    }

    fn restore_on(&self, machine: &mut Fake) -> Restored {
        restore(&self.path(), BOOT, "the test", &mut Released(machine)).unwrap()
    }

    /// Changes a byte of a line, counted from 0.
    fn damage(&self, line: usize) -> usize {
        let mut bytes = fs::read(self.path()).unwrap();
        let lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let at = lines.take(line).map(<[u8]>::len).sum::<usize>();
        bytes[at + 20] ^= 4;
        fs::write(self.path(), bytes).unwrap();
        at
    }

    fn damaged(&self) -> PathBuf {
        self.path().with_file_name("journal.damaged")
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
fn a_mask_that_the_kernel_was_still_to_set_anew_is_no_one_elses() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    let mut machine = machine(&[(1, "5-6"), (2, "5-6")]);
    machine.settles.insert(tid(1), cpus("0-3"));
    let report = place.restore_on(&mut machine);
    assert_eq!(report.restored, [tid(1)]);
    assert_eq!(report.left_alone, [(tid(2), "t2".to_owned(), cpus("5-6"))]);
}

/// Which mask an heir has may not have shown when it was written down.
#[test]
fn an_heir_may_have_any_mask_that_was_set() {
    let heir = SavedAffinity {
        since: tid(2).born,
        ..entry(2, "0-3")
    };
    let place = Place::killed(&[entry(1, "4-7"), heir, entry(3, "0-3")]);
    let (report, after) = place.restore(&[(2, "4-7"), (3, "4-7")]);
    assert_eq!(report.restored, [tid(2)]);
    assert_eq!(after[&tid(3)], cpus("4-7"), "it was given another one");
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
    let mut machine = machine(&[(1, "0-3"), (2, "0-3")]);
    machine.refuses.insert(tid(2), "EPERM".to_owned());
    let report = place.restore_on(&mut machine);
    assert_eq!(report.restored, [tid(1)]);
    let failed = [(tid(2), "t2".to_owned(), "EPERM".to_owned())];
    assert_eq!(report.failed, failed);
    let (report, _) = place.restore(&[(1, "0-15"), (2, "0-3")]);
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
fn a_damaged_line_costs_no_other_thread_its_affinity_and_the_file_is_kept() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3"), entry(3, "0-3")]);
    let third = place.damage(2);
    let damaged = fs::read(place.path()).unwrap();
    let masks = [(1, "0-3"), (2, "0-3"), (3, "0-3")];
    let (report, after) = place.restore(&masks);
    assert_eq!(report.restored, [tid(1), tid(3)]);
    assert_eq!(after[&tid(3)], cpus("0-15"));
    assert_eq!(
        report.problems,
        [format!(
            "the journal {} is damaged: 1 of its lines cannot be read, the first is line 3 (byte {third}); what \
             the others say of 2 threads is restored, and the damaged file is kept as {}",
            place.path().display(),
            place.damaged().display()
        )]
    );
    assert!(!place.path().exists(), "nothing is owed");
    assert_eq!(fs::read(place.damaged()).unwrap(), damaged);
}

#[test]
fn half_a_line_at_the_end_says_nothing_and_is_no_damage() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    let mut bytes = fs::read(place.path()).unwrap();
    bytes.truncate(bytes.len() - 20);
    fs::write(place.path(), bytes).unwrap();
    let (report, after) = place.restore(&[(1, "0-3"), (2, "0-3")]);
    assert_eq!(report.restored, [tid(1)]);
    assert_eq!(after[&tid(2)], cpus("0-3"));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(!place.path().exists() && !place.damaged().exists());
}

#[test]
fn a_herd_that_goes_on_with_a_damaged_journal_keeps_the_damaged_file() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    place.damage(1);
    let damaged = fs::read(place.path()).unwrap();
    place.open().record(&[entry(3, "0-3")]).unwrap();
    assert_eq!(fs::read(place.damaged()).unwrap(), damaged);
    let (report, _) = place.restore(&[(2, "0-3"), (3, "0-3")]);
    assert_eq!(report.restored, [tid(2), tid(3)]);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_mask_that_the_kernel_narrowed_since_is_still_ours() {
    let left = [("0-2,4-15", "0-2"), ("2-5", "2-3"), ("6-9", "6-9")];
    for (online_of_cpuset, mask) in left {
        let place = Place::killed(&[entry(1, "0-3")]);
        let mut machine = machine(&[(1, mask)]);
        machine.online = cpus(online_of_cpuset);
        let report = place.restore_on(&mut machine);
        assert_eq!(report.restored, [tid(1)], "{mask}");
        assert_eq!(machine.masks()[&tid(1)], cpus("0-15"));
    }
}

/// Thread 1 of process 1 was placed. Thread 2 is of the same process, 3 its child, 4 the child's, 5 an orphan of
/// the same session; 6 is a stranger, and 7 a child whose user has set its mask.
fn family() -> (Place, Fake) {
    let place = Place::killed(&[entry(1, "0-3")]);
    let all = (1..=6).map(|number| (number, "0-3")).chain([(7, "0-1")]);
    let mut machine = machine(&all.collect::<Vec<_>>());
    machine.thread(2).process = pid(1);
    let of = |parent, session| Kinship {
        parent,
        session,
        ..Kinship::default()
    };
    let kin = [
        (1, (of(99, 40), false)),
        (3, (of(1, 0), false)),
        (4, (of(3, 0), false)),
        (5, (of(0, 40), true)),
        (6, (of(98, 41), false)),
        (7, (of(1, 40), false)),
    ];
    machine.kin = kin.into();
    (place, machine)
}

/// Has threads of these numbers start one by one in the process of thread 4, each when another is given back.
fn start(machine: &mut Fake, numbers: std::ops::Range<u32>) {
    let like = machine.thread(4).clone();
    let started = numbers.map(|number| Thread {
        id: tid(number),
        ..like.clone()
    });
    machine.starts = started.collect();
}

#[test]
fn the_heirs_of_a_killed_herd_are_given_back_and_no_stranger_is() {
    let (place, mut machine) = family();
    let report = place.restore_on(&mut machine);
    let mut restored = report.restored.clone();
    restored.sort_unstable();
    assert_eq!(restored, (1..=5).map(tid).collect::<Vec<_>>());
    assert_eq!(report.heirs, 4);
    assert_eq!(machine.masks()[&tid(5)], cpus("0-15"));
    assert_eq!(machine.masks()[&tid(6)], cpus("0-3"));
    assert_eq!(machine.masks()[&tid(7)], cpus("0-1"));
}

#[test]
fn heirs_that_start_while_others_are_given_back_are_found_too() {
    let (place, mut machine) = family();
    start(&mut machine, 8..10);
    // At first they end before they can be looked at, and others take their places.
    machine.misses = 3;
    assert_eq!(place.restore_on(&mut machine).heirs, 6);
    assert_eq!(machine.masks()[&tid(9)], cpus("0-15"));
}

#[test]
fn a_release_ends_where_heirs_are_started_all_the_time_and_another_one_gives_the_rest_back() {
    let (place, mut machine) = family();
    start(&mut machine, 10..100);
    machine.search_takes = Duration::from_secs(1);
    let report = place.restore_on(&mut machine);
    assert_eq!(machine.now(), Duration::from_secs(11), "10 s, and one more");
    let heirs = report.heirs;
    assert!(
        report.problems[0].starts_with(&format!(
            "for 10 s threads have been started again and again with affinities that Numaherd had set; {heirs} of \
             them were restored, but some may be left: stop what starts them, and run `numaherd release`"
        )),
        "{:?}",
        report.problems
    );
    let left = |machine: &Fake| {
        let masks = machine.masks();
        let started = masks.iter().filter(|(thread, _)| thread.tid >= 10);
        started.filter(|(_, mask)| **mask == cpus("0-3")).count()
    };
    assert_eq!(left(&machine), 5, "what the last search came too early for");
    machine.starts.clear();
    let report = place.restore_on(&mut machine);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(left(&machine), 0);
    assert!(!place.path().exists(), "nothing is owed");
}

#[test]
fn the_heirs_of_a_thread_that_has_ended_are_found() {
    let (place, mut machine) = family();
    machine.threads.retain(|thread| thread.id != tid(1));
    let report = place.restore_on(&mut machine);
    assert_eq!((report.gone, report.heirs), (1, 4));
}

#[test]
fn an_heir_that_cannot_be_given_back_stays_in_the_journal() {
    let (place, mut machine) = family();
    machine.refuses.insert(tid(5), "EPERM".to_owned());
    let report = place.restore_on(&mut machine);
    assert_eq!(report.failed.len(), 1);
    machine.refuses.clear();
    assert_eq!(place.restore_on(&mut machine).restored, [tid(5)]);
}

#[test]
fn where_nothing_is_left_of_what_was_found_the_thread_may_run_anywhere() {
    let mut pinned = entry(1, "0-3");
    pinned.back = cpus("0-1");
    let place = Place::killed(&[pinned]);
    let mut machine = machine(&[(1, "4-7")]);
    machine.online = cpus("4-7");
    assert_eq!(place.restore_on(&mut machine).restored, [tid(1)]);
    assert!(!place.path().exists());
}

#[test]
fn a_disk_that_cannot_be_written_keeps_nobody_bound() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    let new = place.path().with_file_name("journal.new");
    // Whatever is written anew has no place.
    fs::create_dir_all(new.join("full")).unwrap();
    let mut machine = machine(&[(1, "0-3"), (2, "0-3")]);
    machine.refuses.insert(tid(2), "EPERM".to_owned());
    let mut journal = Journal::open(&place.path(), BOOT, "the test");
    assert!(journal.is_err(), "no regular file");
    fs::remove_dir_all(&new).unwrap();
    journal = Journal::open(&place.path(), BOOT, "the test");
    fs::create_dir_all(new.join("full")).unwrap();
    let mut journal = journal.unwrap();
    let report = journal.restore(&mut Released(&mut machine));
    assert_eq!(report.restored, [tid(1)]);
    assert!(
        report.problems[0].contains("journal.new"),
        "{:?}",
        report.problems
    );
    machine.refuses.clear();
    let report = journal.restore(&mut Released(&mut machine));
    assert_eq!(report.restored, [tid(2)]);
    assert!(
        report.problems.is_empty(),
        "a file that owes nothing only goes"
    );
    assert!(!place.path().exists());
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    for name in ["journal", "journal.lock", "journal.new"] {
        let place = Place::new();
        let at = place.path().with_file_name(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&at).status();
        assert!(made.unwrap().success());
        let error = Journal::open(&place.path(), BOOT, "the test").unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
    let device = std::path::Path::new("/dev/zero");
    let error = numaherd_herd::journal::owed(device, BOOT).unwrap_err();
    assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
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
        let entries: Vec<SavedAffinity> = (1..6).map(|n| entry(n, "0-3")).collect();
        let place = Place::killed(&entries);
        let written = fs::read(place.path()).unwrap();
        let mut bytes = written.clone();
        if let Some((at, bit)) = flip {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        // A line whose newline alone is cut off is whole; so is its sum.
        let whole_lines = bytes
            .split(|&byte| byte == b'\n')
            .zip(written.split(|&byte| byte == b'\n'))
            .filter(|(left, was)| left == was && !was.is_empty())
            .count();
        fs::write(place.path(), bytes).unwrap();
        let mut machine = machine(&[1, 2, 3, 4, 5].map(|number| (number, "0-3")));
        let outcome = restore(&place.path(), BOOT, "the test", &mut Released(&mut machine));
        let set = machine.applied.iter().flat_map(|orders| &orders.affinities);
        let set: Vec<ThreadId> = set.map(|order| order.thread).collect();
        prop_assert!(outcome.is_ok() || set.is_empty());
        for thread in set {
            prop_assert_eq!(&machine.masks()[&thread], &cpus("0-15"));
        }
        // Every thread whose line is whole, wherever the damage is.
        if let (Ok(report), None) = (&outcome, flip) {
            prop_assert_eq!(report.restored.len(), whole_lines.saturating_sub(1));
        }
    }
}
