//! DAMON on files that a test makes, as Linux 7.3 has them (`tree.txt`), and a kernel that does what is written there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::ThreadId;

use super::*;
use crate::fake::{self, FakeKernel};
use crate::kernel::Errno;

/// Every file below `kdamonds`, with one of each, and its initial content.
const TREE: &str = include_str!("tree.txt");
const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";

const PROCESS: ProcessId = ProcessId { pid: 40, born: 400 };
/// Another numaherd.
const OTHER: (u32, u64) = (50, 500);
const PAGE: u64 = 4096;
const RULES: &[(&str, Moved)] = &[("made: cold", Moved::Unused), ("made: used", Moved::All)];

/// A kernel with pages and DAMON.
#[derive(Debug)]
struct Machine {
    _folder: tempfile::TempDir,
    root: Root,
    kernel: FakeKernel,
    /// Pages that are always in use.
    used: BTreeSet<u64>,
    /// What the kernel refuses: end of the path, how often, and error.
    refuses: Mutex<Vec<(&'static str, u32, Errno)>>,
    /// All that was written, the numbers in paths left out where they are 0.
    written: Mutex<Vec<(String, String)>>,
    /// The process ends once its kdamond has begun.
    ends: bool,
    /// Kdamonds do nothing.
    is_idle: bool,
    /// Files with this in their path do not exist.
    lacks: &'static str,
}

impl Machine {
    /// Whose process has 64 pages on node 0.
    fn new() -> Self {
        let (folder, root) = fake::root();
        let machine = Self {
            _folder: folder,
            root,
            kernel: FakeKernel::default(),
            used: BTreeSet::new(),
            refuses: Mutex::default(),
            written: Mutex::default(),
            ends: false,
            is_idle: false,
            lacks: "nothing",
        };
        machine.put(&format!("{KDAMONDS}/nr_kdamonds"), "0");
        machine.put("proc/sys/kernel/osrelease", "7.3.4-test\n");
        machine
            .kernel
            .thread(PROCESS.pid, PROCESS.born, CpuSet::new());
        machine.kernel.thread(std::process::id(), 1, CpuSet::new());
        machine.kernel.pages(1024, 64, 0);
        machine.map(0..64, 1 << 63 | 1 << 56);
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The entries in `pagemap` of pages from 1024 on.
    fn map(&self, pages: Range<u64>, entry: u64) {
        let path = format!("proc/{}/pagemap", PROCESS.pid);
        let mut map = self.root.read(&path).unwrap_or_else(|_| vec![0; 2048 * 8]);
        for page in pages {
            let at = usize::try_from(1024 + page).unwrap() * 8;
            map[at..at + 8].copy_from_slice(&entry.to_ne_bytes());
        }
        let path = self.root.path(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, map).unwrap();
    }

    fn refuse(&self, path: &'static str, times: u32, errno: Errno) {
        self.refuses.lock().unwrap().push((path, times, errno));
    }

    fn count(&self) -> u32 {
        self.root
            .number(&format!("{KDAMONDS}/nr_kdamonds"))
            .unwrap()
    }

    /// What was written to files of kdamonds that end so.
    fn told(&self, file: &str) -> Vec<String> {
        let written = self.written.lock().unwrap();
        let told = written.iter().filter(|(path, _)| path.ends_with(file));
        told.map(|(_, value)| value.clone()).collect()
    }

    /// Carries out orders; their outcomes, and what was missed.
    fn carry_out(&self, orders: &[PageOrder]) -> (Vec<Option<PageOutcome>>, Vec<String>) {
        let damon = Damon {
            root: self.root.clone(),
            rules: RULES,
        };
        let mut missed = Vec::new();
        let mut miss = |gap| missed.push(gap);
        let stop = Stop::new().unwrap();
        let outcomes = damon.carry_out(self, orders, PAGE, &stop, &mut miss);
        (outcomes, missed)
    }

    /// Kdamonds with the marks of a process.
    fn leave(&self, count: u32, (pid, born): (u32, u64)) {
        self.write(
            &self.root.path(&format!("{KDAMONDS}/nr_kdamonds")),
            &count.to_string(),
        )
        .unwrap();
        for number in 0..count {
            let of = format!("{KDAMONDS}/{number}");
            for (file, value) in [
                ("contexts/nr_contexts", 1),
                ("contexts/0/schemes/nr_schemes", 1),
                (
                    "contexts/0/schemes/0/watermarks/high",
                    0x6e75_6d61_6865_7264,
                ),
                ("contexts/0/schemes/0/watermarks/mid", u64::from(pid)),
                ("contexts/0/schemes/0/watermarks/low", born),
            ] {
                let path = self.root.path(&format!("{of}/{file}"));
                self.write(&path, &value.to_string()).unwrap();
            }
        }
    }

    /// Makes the folders `0` and so on of a folder, as the kernel does, with what the captured tree has in the first.
    fn make(&self, folder: &str, count: u32) {
        for old in self.root.numbers(folder, "").unwrap_or_default() {
            fs::remove_dir_all(self.root.path(&format!("{folder}/{old}"))).unwrap();
        }
        let captured = folder.strip_prefix(KDAMONDS).unwrap();
        let first = format!("{}/0/", of_first(captured));
        let files = TREE.lines().filter_map(|line| line.split_once('='));
        let files = files.filter(|(path, _)| !path.contains(self.lacks));
        let files = files.filter_map(|(path, value)| Some((path.strip_prefix(&*first)?, value)));
        let is_number = |part: &str| part.parse::<u32>().is_ok();
        for (file, value) in files.filter(|(file, _)| !file.split('/').any(is_number)) {
            for number in 0..count {
                self.put(&format!("{folder}/{number}/{file}"), value);
            }
        }
    }

    /// What a kdamond does when it is asked how far it has come: all that is left.
    fn work(&self, kdamond: &str) {
        let of = |file: &str| {
            self.root
                .text(&format!("{kdamond}/contexts/0/{file}"))
                .unwrap()
        };
        let number = |file: &str| of(file).parse::<u64>().unwrap();
        let keeps_used = self
            .root
            .path(&format!("{kdamond}/contexts/0/schemes/0/ops_filters/0"))
            .exists();
        let mut tried = 0;
        for region in 0..number("targets/0/regions/nr_regions") {
            let start = number(&format!("targets/0/regions/{region}/start"));
            let end = number(&format!("targets/0/regions/{region}/end"));
            tried += end - start;
            let pages =
                (start / PAGE..end / PAGE).filter(|page| !(keeps_used && self.used.contains(page)));
            for page in pages {
                let node = i32::try_from(number("schemes/0/target_nid")).unwrap();
                if self.kernel.page_numbers_on(0).contains(&page)
                    || self.kernel.page_numbers_on(1).contains(&page)
                {
                    self.kernel.pages(page, 1, node);
                }
            }
        }
        let passes = if keeps_used { 2 } else { 1 };
        self.put(
            &format!("{kdamond}/contexts/0/schemes/0/stats/sz_tried"),
            &(passes * tried).to_string(),
        );
    }
}

/// A path with all numbers 0.
fn of_first(path: &str) -> String {
    let part = |part| match str::parse::<u32>(part) {
        Ok(_) => "0",
        Err(_) => part,
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

impl Kernel for Machine {
    fn write(&self, path: &Path, value: &str) -> Result<(), Errno> {
        let file = path
            .strip_prefix(self.root.path(""))
            .unwrap()
            .to_str()
            .unwrap();
        for (end, times, errno) in self.refuses.lock().unwrap().iter_mut() {
            if file.ends_with(&**end) && *times > 0 {
                *times -= 1;
                return Err(*errno);
            }
        }
        if !path.exists() {
            return Err(Errno::NOENT);
        }
        let (folder, name) = file.rsplit_once('/').unwrap();
        let is_on = |state: &str| self.root.text(state).as_deref() == Some("on");
        if name == "state" {
            match value {
                "update_schemes_stats" if !is_on(file) => return Err(Errno::INVAL),
                "update_schemes_stats" => {
                    if !self.is_idle {
                        self.work(folder);
                    }
                    return Ok(());
                }
                "off" if !is_on(file) => return Err(Errno::INVAL),
                "on" if self.ends => {
                    // It notices at once, and ends itself.
                    let gone = ThreadId {
                        tid: PROCESS.pid,
                        born: 0,
                    };
                    self.kernel.thread(gone.tid, gone.born, CpuSet::new());
                    return Ok(());
                }
                _ => {}
            }
        }
        if name == "nr_kdamonds" {
            let numbers = self.root.numbers(folder, "").unwrap();
            if numbers
                .iter()
                .any(|number| is_on(&format!("{folder}/{number}/state")))
            {
                return Err(Errno::BUSY);
            }
        }
        fs::write(path, value).unwrap();
        if name.starts_with("nr_") && name != "nr_accesses" {
            self.make(folder, value.parse().unwrap());
        }
        let written = (of_first(file), value.to_owned());
        self.written.lock().unwrap().push(written);
        Ok(())
    }

    fn born(&self, tid: u32) -> Option<u64> {
        self.kernel.born(tid)
    }

    fn where_are(&self, pid: u32, addresses: &[u64], status: &mut [i32]) -> Result<(), Errno> {
        self.kernel.where_are(pid, addresses, status)
    }

    fn now_ns(&self) -> u64 {
        // Each look takes a moment.
        self.kernel.pause(Duration::from_millis(20));
        self.kernel.now_ns()
    }

    fn pause(&self, time: Duration) {
        self.kernel.pause(time);
    }
}

/// Pages from `first` on after page 1024, by a rule.
fn order(rule: &'static str, first: u64, count: u64, to: u32) -> PageOrder {
    PageOrder {
        process: PROCESS,
        thread: ThreadId { tid: 41, born: 401 },
        pages: Pages::Window {
            first: 1024 + first,
            count,
        },
        to: NodeId(to),
        rule: rule.into(),
        why: String::new(),
    }
}

fn moved(outcomes: &[Option<PageOutcome>]) -> Vec<Option<u64>> {
    let moved = |outcome: &Option<PageOutcome>| outcome.as_ref().map(|outcome| outcome.moved);
    outcomes.iter().map(moved).collect()
}

#[test]
fn what_is_unused_moves_and_what_is_used_stays() {
    let mut machine = Machine::new();
    machine.used = [1026, 1027].into();
    let (outcomes, missed) = machine.carry_out(&[order("made: cold", 0, 16, 1)]);
    let outcome = outcomes[0].as_ref().unwrap();
    assert_eq!((outcome.moved, outcome.not_tried), (14, 0));
    assert_eq!(outcome.failed, [(PageFailure::Busy, 2)].into());
    assert_eq!(missed, Vec::<String>::new());
    assert_eq!(machine.kernel.pages_on(1), 14);
    assert_eq!(machine.count(), 0, "it is taken down");
    assert!(!machine.root.path("run/numaherd/kdamonds").exists());
}

#[test]
fn a_scheme_names_the_orders_addresses_their_node_and_what_stays() {
    let machine = Machine::new();
    let orders = [
        order("made: cold", 24, 8, 1),
        order("made: cold", 0, 8, 1),
        order("made: cold", 8, 8, 1),
    ];
    machine.carry_out(&orders);
    assert_eq!(machine.told("operations"), ["fvaddr"]);
    assert_eq!(machine.told("pid_target"), ["40"]);
    let address = |page: u64| ((1024 + page) * PAGE).to_string();
    assert_eq!(machine.told("/start"), [address(0), address(24)]);
    assert_eq!(machine.told("/end"), [address(16), address(32)]);
    assert_eq!(machine.told("action"), ["migrate_cold"]);
    assert_eq!(machine.told("target_nid"), ["1"]);
    assert_eq!(machine.told("ops_filters/0/type"), ["young"]);
    assert_eq!(machine.told("ops_filters/0/allow"), ["N"]);
    assert_eq!(machine.told("state"), ["on", "off"]);
}

#[test]
fn what_comes_back_comes_at_once_and_all_of_it() {
    let mut machine = Machine::new();
    machine.used = (1024..1088).collect();
    machine.kernel.pages(1024, 8, 1);
    let (outcomes, _) = machine.carry_out(&[order("made: used", 0, 16, 0)]);
    let outcome = outcomes[0].as_ref().unwrap();
    assert_eq!((outcome.moved, outcome.already_there), (8, 8));
    assert_eq!(machine.told("action"), ["migrate_hot"]);
    assert_eq!(machine.told("nr_filters"), Vec::<String>::new());
}

#[test]
fn orders_of_one_call_for_several_nodes_have_a_kdamond_each_at_once() {
    let machine = Machine::new();
    let orders = [
        order("made: cold", 0, 8, 1),
        order("made: cold", 8, 8, 2),
        order("made: cold", 16, 8, 1),
    ];
    let (outcomes, _) = machine.carry_out(&orders);
    assert_eq!(moved(&outcomes), [Some(8); 3]);
    assert_eq!(machine.told("nr_kdamonds"), ["2", "0"]);
}

#[test]
fn other_rules_whole_processes_and_pages_that_others_map_are_left_to_move_pages() {
    let machine = Machine::new();
    machine.map(20..21, 1 << 63);
    let all = PageOrder {
        pages: Pages::All,
        ..order("made: cold", 0, 0, 1)
    };
    let orders = [
        order("made: other", 0, 8, 1),
        all,
        order("made: cold", 16, 8, 1),
    ];
    let (outcomes, missed) = machine.carry_out(&orders);
    assert_eq!(moved(&outcomes), [None; 3]);
    assert_eq!(missed, Vec::<String>::new());
    assert_eq!(machine.told("nr_kdamonds"), Vec::<String>::new());
}

/// The finding on a machine where DAMON can do nothing.
fn refusal(machine: &Machine) -> String {
    let before = machine.count();
    let (outcomes, missed) = machine.carry_out(&[order("made: cold", 0, 16, 1)]);
    assert_eq!(moved(&outcomes), [None], "it is left to move_pages");
    assert_eq!(machine.count(), before);
    let [missed] = &missed[..] else {
        panic!("{missed:?}");
    };
    missed.clone()
}

#[test]
fn kdamonds_of_others_are_left_alone() {
    let machine = Machine::new();
    let count = machine.root.path(&format!("{KDAMONDS}/nr_kdamonds"));
    machine.write(&count, "2").unwrap();
    let told = "2 of its threads are not ours (/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds): stop whoever uses them; \
                what DAMON has not moved, move_pages does";
    assert_eq!(refusal(&machine), told);
    assert_eq!(kdamonds::take_down_left(&machine.root, &machine), Ok(0));
    assert_eq!(machine.count(), 2);
}

#[test]
fn kdamonds_of_another_herd_are_left_alone_while_it_lives_and_taken_down_after() {
    let machine = Machine::new();
    machine.kernel.thread(OTHER.0, OTHER.1, CpuSet::new());
    machine.leave(2, OTHER);
    let first = machine.root.path(&format!("{KDAMONDS}/0/state"));
    machine.write(&first, "on").unwrap();
    assert_eq!(state(&machine.root, &machine), State::Others(2));
    assert_eq!(kdamonds::take_down_left(&machine.root, &machine), Ok(0));
    // Its number was reused.
    machine.kernel.thread(OTHER.0, OTHER.1 + 1, CpuSet::new());
    assert_eq!(state(&machine.root, &machine), State::Left);
    assert_eq!(kdamonds::take_down_left(&machine.root, &machine), Ok(2));
    assert_eq!(machine.count(), 0);
}

#[test]
fn one_that_was_killed_before_it_left_its_mark_is_known_by_its_file() {
    let machine = Machine::new();
    let count = machine.root.path(&format!("{KDAMONDS}/nr_kdamonds"));
    machine.write(&count, "1").unwrap();
    let contexts = machine
        .root
        .path(&format!("{KDAMONDS}/0/contexts/nr_contexts"));
    machine.write(&contexts, "1").unwrap();
    assert_eq!(state(&machine.root, &machine), State::Others(1));
    machine.put("run/numaherd/kdamonds", "50 500");
    assert_eq!(state(&machine.root, &machine), State::Left);
    // Whoever has a process to watch in it came later.
    let targets = machine
        .root
        .path(&format!("{KDAMONDS}/0/contexts/0/targets/nr_targets"));
    machine.write(&targets, "1").unwrap();
    assert_eq!(state(&machine.root, &machine), State::Others(1));
}

#[test]
fn what_a_killed_run_left_is_taken_down_before_the_next_round() {
    let machine = Machine::new();
    machine.leave(1, OTHER);
    let first = machine.root.path(&format!("{KDAMONDS}/0/state"));
    machine.write(&first, "on").unwrap();
    let (outcomes, _) = machine.carry_out(&[order("made: cold", 0, 8, 1)]);
    assert_eq!(moved(&outcomes), [Some(8)]);
    assert_eq!(machine.count(), 0);
}

#[test]
fn older_kernels_and_those_without_damon_are_named() {
    let machine = Machine::new();
    machine.put("proc/sys/kernel/osrelease", "6.12.57+deb13-amd64\n");
    assert!(refusal(&machine).starts_with("this kernel's DAMON does not move pages of a process"));
    assert_eq!(machine.told("nr_kdamonds"), Vec::<String>::new());
    machine.put("proc/sys/kernel/osrelease", "6.17.0\n");
    assert_eq!(state(&machine.root, &machine), State::Free);

    let (folder, root) = fake::root();
    let damon = Damon::find(folder.path(), RULES).unwrap_err().to_string();
    assert!(
        damon.starts_with("cannot move pages by DAMON: there are no files of DAMON"),
        "{damon}"
    );
    assert_eq!(state(&root, &machine), State::Missing);
}

#[test]
fn parts_of_the_kernel_that_keep_damon_to_themselves_are_named_and_left_on() {
    let machine = Machine::new();
    let enabled = "sys/module/damon_stat/parameters/enabled";
    machine.put(enabled, "Y\n");
    assert_eq!(
        refusal(&machine),
        "damon_stat keeps it to itself: echo N > /sys/module/damon_stat/parameters/enabled, if you can do without; \
         what DAMON has not moved, move_pages does"
    );
    machine.put(enabled, "N\n");
    assert_eq!(state(&machine.root, &machine), State::Free);
}

#[test]
fn a_kernel_without_destinations_of_schemes_is_too_old_whatever_it_calls_itself() {
    let mut machine = Machine::new();
    machine.lacks = "/dests/";
    machine.put("proc/sys/kernel/osrelease", "distribution\n");
    assert!(refusal(&machine).starts_with("this kernel's DAMON does not move pages of a process"));
    assert_eq!(machine.told("nr_kdamonds"), ["1", "0"]);
}

#[test]
fn what_the_kernel_refuses_is_named_and_all_is_taken_down() {
    for (file, errno, expected) in [
        (
            "nr_kdamonds",
            Errno::ROFS,
            "ReadWritePaths=/sys/kernel/mm/damon",
        ),
        ("nr_kdamonds", Errno::ACCESS, "run as root"),
        ("watermarks/mid", Errno::NOENT, "watermarks/mid"),
        ("target_nid", Errno::INVAL, "target_nid"),
        ("nr_regions", Errno::NOMEM, "nr_regions"),
        ("state", Errno::INVAL, "\"on\""),
    ] {
        let machine = Machine::new();
        machine.refuse(file, 1, errno);
        let told = refusal(&machine);
        assert!(told.contains(expected), "{told}");
        assert_eq!(machine.count(), 0);
        assert!(!machine.root.path("run/numaherd/kdamonds").exists());
    }
}

#[test]
fn files_that_are_busy_are_tried_again_but_not_for_ever() {
    let machine = Machine::new();
    machine.refuse("nr_kdamonds", 3, Errno::BUSY);
    machine.refuse("state", 3, Errno::BUSY);
    let (outcomes, missed) = machine.carry_out(&[order("made: cold", 0, 8, 1)]);
    assert_eq!((moved(&outcomes), missed), (vec![Some(8)], Vec::new()));

    let machine = Machine::new();
    machine.refuse("nr_kdamonds", u32::MAX, Errno::BUSY);
    let told = refusal(&machine);
    assert!(told.contains("somebody else uses DAMON's files"), "{told}");
}

#[test]
fn a_process_that_ends_meanwhile_ends_its_order_alone() {
    let mut machine = Machine::new();
    machine.ends = true;
    let (outcomes, missed) = machine.carry_out(&[order("made: cold", 0, 8, 1)]);
    let outcome = outcomes[0].as_ref().unwrap();
    assert_eq!((outcome.moved, outcome.not_tried), (0, 8));
    let error = outcome.error.as_deref().unwrap();
    assert!(error.contains("has ended"), "{error}");
    assert_eq!(missed, Vec::<String>::new());
    assert_eq!(machine.count(), 0);
}

#[test]
fn a_kdamond_that_does_not_come_to_an_end_is_told_to_stop() {
    let mut machine = Machine::new();
    machine.is_idle = true;
    let (outcomes, missed) = machine.carry_out(&[order("made: cold", 0, 8, 1)]);
    let outcome = outcomes[0].as_ref().unwrap();
    assert_eq!(outcome.failed, [(PageFailure::Busy, 8)].into());
    assert!(outcome.took_ns >= LIMIT_NS);
    assert_eq!(missed, Vec::<String>::new());
    assert_eq!(machine.told("state"), ["on", "off"]);
    assert_eq!(machine.count(), 0);
}
