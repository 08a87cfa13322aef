//! Whom a search finds, and when it is complete.

use std::fs;
use std::path::PathBuf;

use numaherd_world::Effort::{Quick, Thorough};

use super::*;
use crate::fake::{self, FakeKernel};

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A machine of eight CPUs.
struct Machine {
    folder: tempfile::TempDir,
    kernel: FakeKernel,
    sweep: Sweep,
}

impl Machine {
    fn new() -> Self {
        let (folder, root) = fake::root();
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        Self {
            folder,
            kernel: FakeKernel::default(),
            sweep: Sweep::new(root),
        }
    }

    /// A process of one thread.
    fn process(&self, pid: u32, parent: u32, session: u32, born: u64, mask: &str) {
        self.put((pid, pid), (parent, session), born, mask);
    }

    /// Another thread of a process that is its own session.
    fn thread(&self, pid: u32, tid: u32, born: u64, mask: &str) {
        self.put((pid, tid), (1, pid), born, mask);
    }

    fn put(&self, (pid, tid): (u32, u32), (parent, session): (u32, u32), born: u64, mask: &str) {
        let stat = format!(
            "{tid} (p) S {parent} {pid} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {born} 0 0 0 0 0 0 0 0 \
             0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
        );
        for folder in [format!("proc/{tid}"), format!("proc/{pid}/task/{tid}")] {
            let folder = self.folder.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("stat"), &stat).unwrap();
            fs::write(folder.join("status"), format!("Tgid:\t{pid}\n")).unwrap();
            fs::write(folder.join("cgroup"), "0::/a\n").unwrap();
        }
        self.kernel.thread(tid, born, cpus(mask));
    }

    /// A process that was given back and runs, with its folder and what its `stat` says once it rests.
    fn may_be_starting_another(&mut self) -> (PathBuf, String) {
        self.process(10, 1, 10, 60, "0-7");
        let own = self.folder.path().join("proc/10");
        let rests = fs::read_to_string(own.join("stat")).unwrap();
        fs::write(own.join("stat"), rests.replace(" S ", " R ")).unwrap();
        fs::write(own.join("schedstat"), "1000 0 0\n").unwrap();
        self.sweep.given_back(10);
        (own, rests)
    }

    /// Gives every process a cpuset of these CPUs.
    fn cpuset(&self, list: &str) {
        let folder = self.folder.path().join("sys/fs/cgroup/a");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cpuset.cpus.effective"), list).unwrap();
    }

    /// Searches for threads with CPUs 2-3 that were born at 50 or later; process 20 is watched.
    fn search(&mut self, effort: Effort) -> Search {
        let wanted = Wanted {
            masks: &[Arc::new(cpus("2-3"))],
            since: 50,
            effort,
            is_watched: &|pid| pid == 20,
        };
        self.sweep.find(&self.kernel, &cpus("0-7"), &wanted)
    }

    /// How many a thorough search finds, and whether it is complete.
    fn looks(&mut self) -> (usize, bool) {
        let search = self.search(Thorough);
        (search.found.len(), search.is_complete)
    }

    /// The processes found, and which of them are orphans.
    fn find(&mut self, effort: Effort) -> Vec<(u32, bool)> {
        let found = self.search(effort).found;
        let shown = |bound: &Bound| (bound.process.pid, bound.is_orphan);
        found.iter().map(shown).collect()
    }
}

#[test]
fn a_search_is_not_complete_while_someone_given_back_may_be_starting_another() {
    let mut machine = Machine::new();
    let (own, stat) = machine.may_be_starting_another();
    for is_through in [false, true] {
        assert_eq!(machine.search(Quick).is_complete, is_through);
        fs::write(own.join("stat"), &stat).unwrap();
    }
}

#[test]
fn on_a_slow_machine_it_is_not_waited_for_longer_than_a_second() {
    let mut machine = Machine::new();
    machine.may_be_starting_another();
    machine.kernel.slow(LONGEST_WAIT_NS / 4);
    machine.find(Thorough);
    assert_eq!(machine.kernel.pauses(), 4);
}

#[test]
fn a_mask_that_is_still_to_be_set_anew_is_found_by_the_cpuset_of_before() {
    let mut machine = Machine::new();
    machine.cpuset("0-1");
    machine.process(10, 1, 10, 60, "0-1");
    assert_eq!(machine.looks(), (1, true), "it may be all that is left");
    machine.cpuset("0-5");
    machine.process(11, 1, 10, 60, "5");
    assert_eq!(machine.looks(), (1, true));
    machine.process(10, 1, 10, 60, "2-3");
    assert_eq!(machine.looks(), (1, true));
}

#[test]
fn a_search_is_not_complete_while_masks_do_not_belong_to_their_cpusets() {
    let mut machine = Machine::new();
    machine.cpuset("0-3");
    machine.process(10, 1, 10, 60, "1");
    assert_eq!(machine.looks(), (0, true));
    // It was widened and narrowed: the mask may be what an unseen one left.
    machine.cpuset("0,2");
    assert_eq!(machine.looks(), (0, false));
    machine.process(10, 1, 10, 60, "2");
    assert_eq!(machine.looks(), (1, true));
}

#[test]
fn those_that_were_started_of_late_are_found_by_their_numbers_in_whatever_process_they_are() {
    let mut machine = Machine::new();
    let find = |machine: &mut Machine, latest: u32| {
        let text = format!("0.5 0.5 0.5 2/345 {latest}\n");
        fs::write(machine.folder.path().join("proc/loadavg"), text).unwrap();
        let masks = [Arc::new(cpus("2-3"))];
        let found = machine
            .sweep
            .find_started(&machine.kernel, || cpus("0-7"), &masks, 50);
        let number = |bound: &Bound| (bound.process.pid, bound.thread.tid);
        found.iter().map(number).collect::<Vec<_>>()
    };
    machine.process(10, 1, 10, 60, "2-3");
    assert_eq!(find(&mut machine, 10), [], "it was there before");
    machine.process(11, 10, 10, 60, "2-3");
    machine.process(12, 1, 12, 60, "0-7");
    // A second thread of 10, and one of 12 that was born before the mask was set.
    machine.thread(10, 13, 61, "2-3");
    machine.thread(12, 14, 49, "2-3");
    assert_eq!(find(&mut machine, 15), [(10, 13), (11, 11)]);
    assert_eq!(find(&mut machine, 15), [], "nobody is 15");
    machine.process(16, 11, 10, 62, "3");
    assert_eq!(find(&mut machine, 16), [], "its mask is another");
}

#[test]
fn threads_are_found_by_mask_and_birth() {
    let mut machine = Machine::new();
    machine.process(10, 1, 10, 60, "2-3");
    machine.process(11, 10, 10, 60, "2-3");
    machine.process(12, 11, 12, 60, "2-3");
    machine.process(13, 1, 10, 49, "2-3");
    machine.process(14, 1, 10, 60, "2");
    machine.process(15, 1, 10, 60, "0-7");
    assert_eq!(
        machine.find(Thorough),
        [(10, true), (11, false), (12, true)]
    );
}

#[test]
fn it_is_told_how_old_an_orphans_session_is() {
    let mut machine = Machine::new();
    machine.process(9, 1, 9, 40, "0-7");
    machine.process(10, 1, 9, 60, "2-3");
    // What began this session has ended.
    machine.process(11, 1, 8, 60, "2-3");
    machine.process(12, 1, 8, 45, "0-7");
    machine.process(13, 1, 13, 60, "2-3");
    let found = machine.search(Thorough).found;
    let born = |bound: &Bound| (bound.process.pid, bound.session_born);
    let born: Vec<_> = found.iter().map(born).collect();
    assert_eq!(born, [(10, 40), (11, 45), (13, 60)]);
}

#[test]
fn a_mask_that_has_left_the_cpuset_is_found_where_all_are_looked_at() {
    let mut machine = Machine::new();
    machine.cpuset("4-5");
    machine.process(10, 1, 10, 60, "4-5");
    machine.process(11, 1, 11, 60, "5");
    machine.find(Quick);
    assert_eq!(machine.find(Quick), []);
    assert_eq!(machine.find(Thorough), [(10, true)]);
    // With one of its CPUs left it would have that one.
    machine.cpuset("3-5");
    machine.process(10, 1, 10, 60, "3-5");
    machine.find(Thorough);
    assert_eq!(machine.find(Thorough), []);
    machine.cpuset("2-3");
    machine.process(10, 1, 10, 60, "2-3");
    machine.find(Quick);
    assert_eq!(machine.find(Quick), []);
    assert_eq!(machine.find(Thorough), [(10, true)]);
}

#[test]
fn what_has_none_or_is_watched_is_passed_over_until_the_next_thorough_look() {
    let mut machine = Machine::new();
    machine.process(10, 1, 10, 60, "2-3");
    machine.process(11, 1, 11, 60, "0-7");
    machine.process(20, 1, 20, 60, "2-3");
    assert_eq!(machine.find(Quick).len(), 2, "the first look is thorough");
    machine.kernel.thread(11, 60, cpus("2-3"));
    machine.process(12, 1, 12, 60, "2-3");
    assert_eq!(machine.find(Quick), [(10, true), (12, true)]);
    assert_eq!(machine.find(Thorough).len(), 4);
    machine.kernel.pass(Duration::from_secs(16));
    assert_eq!(machine.find(Quick).len(), 4, "time has passed");
}

#[test]
fn whoever_starts_another_and_ends_before_it_is_looked_at_is_followed() {
    let mut machine = Machine::new();
    machine.process(10, 1, 10, 60, "2-3");
    let proc = machine.folder.path().join("proc");
    machine.kernel.succeed(&proc, [10, 9]);
    assert_eq!(machine.find(Thorough), [(9, true)]);
}

#[test]
fn a_search_is_complete_unless_someone_new_in_the_last_list_had_ended() {
    let mut machine = Machine::new();
    machine.process(10, 1, 10, 60, "0-7");
    // Once ended, it starts no thread after the list.
    machine.process(200, 1, 10, 61, "2-3");
    machine.kernel.thread(200, 60, cpus("2-3"));
    assert!(machine.search(Thorough).is_complete);
    machine.process(201, 10, 10, 61, "2-3");
    assert!(
        machine.search(Thorough).is_complete,
        "its parent was looked at"
    );
    machine.process(202, 200, 10, 61, "2-3");
    assert!(!machine.search(Thorough).is_complete, "its parent was not");
    machine.kernel.thread(200, 61, cpus("2-3"));
    assert!(machine.search(Thorough).is_complete);
    // Each time that it is looked at, another is there in its place.
    let proc = machine.folder.path().join("proc");
    machine.kernel.succeed(&proc, 10..100);
    assert!(!machine.search(Thorough).is_complete);
}

#[test]
fn a_number_that_is_anothers_by_now_is_dropped() {
    let mut machine = Machine::new();
    machine.process(10, 1, 10, 60, "2-3");
    machine.kernel.thread(10, 61, cpus("2-3"));
    assert_eq!(machine.find(Thorough), []);
}
