//! What a killed herd leaves behind is given back, and nothing else is touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::HerdError;
use numaherd_herd::journal::{Affinities, Journal, Restored, SavedAffinity, restore};
use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, Bound, Bounds, Kinship, Search, ThreadId};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{cpus, pid, tid};

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

/// A machine with these threads, which obeys but for those that it `refuses`.
struct Machine {
    masks: BTreeMap<ThreadId, CpuSet>,
    /// The CPUs that are online and in everyone's cpuset.
    cpus: CpuSet,
    refuses: Vec<ThreadId>,
    /// The processes of threads that are in no journal.
    kin: BTreeMap<ThreadId, (u32, Kinship)>,
    /// Masks of threads that start each time that one is asked for those that are bound.
    starts: Vec<(u32, &'static str)>,
    /// Searches for bound threads in which all of them end before they can be looked at.
    misses: u64,
    /// How long each of these searches takes.
    search_takes: Duration,
    now: Duration,
    /// Masks of threads once they have settled.
    settles: Vec<(u32, &'static str)>,
    set: Vec<ThreadId>,
}

impl Machine {
    fn new(masks: &[(u32, &str)]) -> Self {
        let masks = masks.iter().map(|&(n, mask)| (tid(n), cpus(mask)));
        Self {
            masks: masks.collect(),
            cpus: cpus("0-15"),
            refuses: Vec::new(),
            kin: BTreeMap::new(),
            misses: 0,
            search_takes: Duration::ZERO,
            now: Duration::ZERO,
            starts: Vec::new(),
            settles: Vec::new(),
            set: Vec::new(),
        }
    }
}

impl Affinities for Machine {
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        let cpus = self.cpus.clone();
        let mask = self.masks.get(&thread).cloned();
        Ok(mask.map(|mask| Bounds {
            mask,
            cpus,
            ..Bounds::default()
        }))
    }

    fn let_masks_settle(&mut self) {
        let settled = self.settles.drain(..);
        (self.masks).extend(settled.map(|(number, mask)| (tid(number), cpus(mask))));
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], _: u64) -> Search {
        self.now += self.search_takes;
        if self.misses > 0 {
            self.misses -= 1;
            return Search {
                found: Vec::new(),
                is_complete: false,
            };
        }
        let bound = self.masks.iter().map(|(&thread, mask)| {
            let (process, kin) = self.kin.get(&thread).cloned().unwrap_or_default();
            Bound {
                thread,
                process: pid(process),
                name: format!("t{}", thread.tid),
                bounds: Bounds {
                    earlier: Vec::new(),
                    mask: mask.clone(),
                    cpus: self.cpus.clone(),
                },
                is_orphan: kin.parent == 0,
                session_born: thread.born,
                kin,
            }
        });
        let is_ours = |bound: &Bound| masks.iter().any(|mask| bound.bounds.is(mask));
        let found = bound.filter(is_ours).collect();
        if !self.starts.is_empty() {
            let (number, mask) = self.starts.remove(0);
            self.masks.insert(tid(number), cpus(mask));
        }
        Search {
            found,
            is_complete: true,
        }
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        assert_eq!(order.core, None);
        assert!(order.cpus.intersects(&self.cpus), "the kernel refuses it");
        if self.refuses.contains(&order.thread) {
            let error = "EPERM".to_owned();
            return AffinityResult::Failed { error };
        }
        self.masks.insert(order.thread, (*order.cpus).clone());
        self.set.push(order.thread);
        AffinityResult::Done
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
    fn killed(entries: &[SavedAffinity]) -> Self {
        let place = Self::new();
        place.open().record(entries).unwrap();
        place
    }

    /// Gives back; the machine has these masks and obeys. Returns the report and the masks after.
    fn restore(&self, masks: &[(u32, &str)]) -> (Restored, BTreeMap<ThreadId, CpuSet>) {
        let mut machine = Machine::new(masks);
        (self.restore_on(&mut machine), machine.masks)
    }

    fn restore_on(&self, machine: &mut Machine) -> Restored {
        restore(&self.path(), BOOT, "the test", machine).unwrap()
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
    let mut machine = Machine::new(&[(1, "5-6"), (2, "5-6")]);
    machine.settles = vec![(1, "0-3")];
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
    let mut machine = Machine::new(&[(1, "0-3"), (2, "0-3")]);
    machine.refuses = vec![tid(2)];
    let report = place.restore_on(&mut machine);
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
        let mut machine = Machine::new(&[(1, mask)]);
        machine.cpus = cpus(online_of_cpuset);
        let report = place.restore_on(&mut machine);
        assert_eq!(report.restored, [tid(1)], "{mask}");
        assert_eq!(machine.masks[&tid(1)], cpus("0-15"));
    }
}

/// Thread 1 of process 1 was placed. Thread 2 is of the same process, 3 its child, 4 the child's, 5 an orphan of
/// the same session; 6 is a stranger, and 7 a child whose user has set its mask.
fn family() -> (Place, Machine) {
    let place = Place::killed(&[entry(1, "0-3")]);
    let all = (1..=6).map(|number| (number, "0-3")).chain([(7, "0-1")]);
    let mut machine = Machine::new(&all.collect::<Vec<_>>());
    let of = |parent, session| Kinship {
        parent,
        session,
        ..Kinship::default()
    };
    let kin = [
        (2, (1, of(99, 40))),
        (3, (3, of(1, 0))),
        (4, (4, of(3, 0))),
        (5, (5, of(0, 40))),
        (6, (6, of(98, 41))),
        (7, (7, of(1, 40))),
    ];
    machine.kin = kin.into_iter().map(|(n, kin)| (tid(n), kin)).collect();
    (place, machine)
}

#[test]
fn the_heirs_of_a_killed_herd_are_given_back_and_no_stranger_is() {
    let (place, mut machine) = family();
    let report = place.restore_on(&mut machine);
    let mut restored = report.restored.clone();
    restored.sort_unstable();
    assert_eq!(restored, (1..=5).map(tid).collect::<Vec<_>>());
    assert_eq!(report.heirs, 4);
    assert_eq!(machine.masks[&tid(5)], cpus("0-15"));
    assert_eq!(machine.masks[&tid(6)], cpus("0-3"));
    assert_eq!(machine.masks[&tid(7)], cpus("0-1"));
}

#[test]
fn heirs_that_start_while_others_are_given_back_are_found_too() {
    let (place, mut machine) = family();
    machine.starts = vec![(8, "0-3"), (9, "0-3")];
    for number in [8, 9] {
        let kin = machine.kin[&tid(4)].clone();
        machine.kin.insert(tid(number), kin);
    }
    // At first they end before they can be looked at, and others take their places.
    machine.misses = 3;
    assert_eq!(place.restore_on(&mut machine).heirs, 6);
    assert_eq!(machine.masks[&tid(9)], cpus("0-15"));
}

#[test]
fn a_release_ends_where_heirs_are_started_all_the_time_and_another_one_gives_the_rest_back() {
    let (place, mut machine) = family();
    machine.starts = (10..50).map(|number| (number, "0-3")).collect();
    for number in 10..50 {
        let kin = machine.kin[&tid(4)].clone();
        machine.kin.insert(tid(number), kin);
    }
    machine.search_takes = Duration::from_secs(1);
    let report = place.restore_on(&mut machine);
    assert_eq!(machine.now, Duration::from_secs(11), "10 s, and one more");
    let heirs = report.heirs;
    assert!(
        report.problems[0].starts_with(&format!(
            "for 10 s threads have been started again and again with affinities that Numaherd had set; {heirs} of \
             them were restored, but some may be left: stop what starts them, and run `numaherd release`"
        )),
        "{:?}",
        report.problems
    );
    let left = |machine: &Machine| {
        let started = machine.masks.iter().filter(|(thread, _)| thread.tid >= 10);
        started.filter(|(_, mask)| **mask == cpus("0-3")).count()
    };
    assert_eq!(left(&machine), 1, "what the last search came too early for");
    machine.starts.clear();
    let report = place.restore_on(&mut machine);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(left(&machine), 0);
    assert!(!place.path().exists(), "nothing is owed");
}

#[test]
fn the_heirs_of_a_thread_that_has_ended_are_found() {
    let (place, mut machine) = family();
    machine.masks.remove(&tid(1));
    let report = place.restore_on(&mut machine);
    assert_eq!((report.gone, report.heirs), (1, 4));
}

#[test]
fn an_heir_that_cannot_be_given_back_stays_in_the_journal() {
    let (place, mut machine) = family();
    machine.refuses = vec![tid(5)];
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
    let mut machine = Machine::new(&[(1, "4-7")]);
    machine.cpus = cpus("4-7");
    assert_eq!(place.restore_on(&mut machine).restored, [tid(1)]);
    assert!(!place.path().exists());
}

#[test]
fn a_disk_that_cannot_be_written_keeps_nobody_bound() {
    let place = Place::killed(&[entry(1, "0-3"), entry(2, "0-3")]);
    let new = place.path().with_file_name("journal.new");
    // Whatever is written anew has no place.
    fs::create_dir_all(new.join("full")).unwrap();
    let mut machine = Machine::new(&[(1, "0-3"), (2, "0-3")]);
    machine.refuses = vec![tid(2)];
    let mut journal = Journal::open(&place.path(), BOOT, "the test");
    assert!(journal.is_err(), "no regular file");
    fs::remove_dir_all(&new).unwrap();
    journal = Journal::open(&place.path(), BOOT, "the test");
    fs::create_dir_all(new.join("full")).unwrap();
    let mut journal = journal.unwrap();
    let report = journal.restore(&mut machine);
    assert_eq!(report.restored, [tid(1)]);
    assert!(
        report.problems[0].contains("journal.new"),
        "{:?}",
        report.problems
    );
    machine.refuses.clear();
    let report = journal.restore(&mut machine);
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
        let mut machine = Machine::new(&[]);
        machine.masks = (1..6).map(|n| (tid(n), cpus("0-3"))).collect();
        let outcome = restore(&place.path(), BOOT, "the test", &mut machine);
        prop_assert!(outcome.is_ok() || machine.set.is_empty());
        for thread in &machine.set {
            prop_assert!((1..6).any(|n| tid(n) == *thread));
            prop_assert_eq!(&machine.masks[thread], &cpus("0-15"));
        }
        // Every thread whose line is whole, wherever the damage is.
        if let (Ok(report), None) = (&outcome, flip) {
            prop_assert_eq!(report.restored.len(), whole_lines.saturating_sub(1));
        }
    }
}
