use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::fake;
use crate::kernel::Errno;

const HERDED: u32 = 1000;
const STRANGER: u32 = 2000;

/// A tree in which number 7 goes to a stranger's process while the kernel is asked for a mask.
#[derive(Debug)]
struct Reuse {
    root: Root,
    armed: AtomicBool,
}

impl Kernel for Reuse {
    fn affinity(&self, _: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        if self.armed.swap(false, Ordering::Relaxed) {
            show(&self.root, 7, 1, 90, STRANGER, &[7, 8, 9]);
        }
        words.clear();
        words.push(0b11);
        Ok(())
    }
}

/// Writes a process, in place: descriptors that are open answer with what it says now.
fn show(root: &Root, pid: u32, parent: u32, born: u64, user: u32, tids: &[u32]) {
    let write = |path: String, text: String| {
        let path = root.path(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let stat = |tid: u32| {
        format!(
            "{tid} (p) S {parent} 7 7 0 -1 0 0 0 0 0 7 5 0 0 20 0 {} 0 {born} 0 0 0 0 0 0 0 0 0 0 \
             0 0 0 17 0 0 0 0 0\n",
            tids.len()
        )
    };
    write(format!("proc/{pid}/stat"), stat(pid));
    let status = format!("Uid:\t{user}\t{user}\t{user}\t{user}\n");
    write(format!("proc/{pid}/status"), status);
    for &tid in tids {
        write(format!("proc/{pid}/task/{tid}/stat"), stat(tid));
    }
}

fn scanner(root: &Root, selection: Selection) -> Scanner {
    let nodes = "0".parse().unwrap();
    Scanner::new(root.clone(), &HostOptions::new(selection), nodes)
}

fn scan(scanner: &mut Scanner, kernel: &Reuse) -> Vec<(u32, u64)> {
    let mut tick = Tick {
        kernel,
        assignments: &mut Assignments::default(),
        began_ns: 0,
        interval_ns: 1,
        threads: Vec::new(),
    };
    scanner.scan(&mut tick, &"0-1".parse().unwrap(), 1).unwrap();
    tick.threads
        .iter()
        .map(|thread| (thread.id.tid, thread.process.born))
        .collect()
}

fn kernel(root: &Root) -> Reuse {
    Reuse {
        root: root.clone(),
        armed: AtomicBool::new(false),
    }
}

#[test]
fn a_process_is_seen_with_its_parent_if_that_is_watched_and_has_the_same_name() {
    let (_folder, root) = fake::root();
    for (pid, parent) in [(7, 1), (8, 7), (9, 7)] {
        show(&root, pid, parent, u64::from(pid), HERDED, &[pid]);
    }
    let stat = std::fs::read_to_string(root.path("proc/9/stat")).unwrap();
    for file in ["proc/9/stat", "proc/9/task/9/stat"] {
        std::fs::write(root.path(file), stat.replace("(p)", "(q)")).unwrap();
    }
    let mut scanner = scanner(&root, Selection::Child { pid: 7 });
    scan(&mut scanner, &kernel(&root));
    let seen = scanner.seen().map(|seen| (seen.id.pid, seen.parent));
    let parent = ProcessId { pid: 7, born: 7 };
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [(7, None), (8, Some(parent)), (9, None)]
    );
}

/// A process of sleepers, of which the kernel tells how long it ran.
struct Sleepers {
    _folder: tempfile::TempDir,
    scanner: Scanner,
    clock: Clock,
}

/// What the kernel tells of it: its time in ns, the mask of all its threads, and what time it is.
#[derive(Debug, Default)]
struct Clock {
    now_ns: AtomicU64,
    ran_ns: AtomicU64,
    mask: AtomicU64,
}

impl Kernel for Clock {
    fn affinity(&self, _: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        words.clear();
        words.push(self.mask.load(Ordering::Relaxed));
        Ok(())
    }

    fn process_ran_ns(&self, _: u32) -> Option<u64> {
        Some(self.ran_ns.load(Ordering::Relaxed))
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const SLEEPERS: [u32; 4] = [7, 8, 9, 10];

impl Sleepers {
    /// That have long been asleep.
    fn new() -> Self {
        Self::of(&SLEEPERS)
    }

    fn of(tids: &[u32]) -> Self {
        let (folder, root) = fake::root();
        show(&root, 7, 1, 70, HERDED, tids);
        let mut sleepers = Self {
            scanner: scanner(&root, Selection::Machine),
            clock: Clock::default(),
            _folder: folder,
        };
        sleepers.clock.mask.store(0b11, Ordering::Relaxed);
        tids.iter().for_each(|&tid| sleepers.write(tid, 0));
        for _ in 0..3 * ASLEEP {
            sleepers.scan();
        }
        sleepers
    }

    fn write(&self, tid: u32, ran_ns: u64) {
        let path = format!("proc/7/task/{tid}/schedstat");
        std::fs::write(self.scanner.root.path(&path), format!("{ran_ns} 0 1\n")).unwrap();
    }

    /// A thread has run for so long in all, and its process with it.
    fn run(&mut self, tid: u32, ran_ns: u64) {
        self.write(tid, ran_ns);
        self.clock.ran_ns.fetch_add(ran_ns, Ordering::Relaxed);
    }

    fn scan(&mut self) -> Vec<Thread> {
        let mut tick = Tick {
            kernel: &self.clock,
            assignments: &mut Assignments::default(),
            began_ns: 0,
            interval_ns: SECOND_NS,
            threads: Vec::new(),
        };
        let online = "0-1".parse().unwrap();
        self.scanner.scan(&mut tick, &online, 1).unwrap();
        tick.threads
    }

    /// After how many scans a thread first shows as having run, and its share.
    fn seen(&mut self, tid: u32) -> Option<(u64, f64)> {
        (1..=ASLEEP).find_map(|scan| {
            let threads = self.scan();
            let thread = threads.iter().find(|thread| thread.id.tid == tid)?;
            (thread.cpu_share > 0.0).then_some((scan, thread.cpu_share))
        })
    }
}

#[test]
fn a_sleeper_that_runs_for_long_is_seen_at_once() {
    for tid in SLEEPERS {
        let mut sleepers = Sleepers::new();
        sleepers.run(tid, SECOND_NS / UNSEEN + 1);
        assert_eq!(sleepers.seen(tid), Some((1, 0.01)));
        // It is also looked at in the next scans.
        sleepers.run(tid, SECOND_NS / UNSEEN + 2_001);
        assert_eq!(sleepers.seen(tid), Some((1, 0.000_002)));
    }
}

#[test]
fn a_thread_that_is_read_late_has_run_in_as_much_of_the_time_since() {
    let mut sleepers = Sleepers::of(&[7]);
    let mut ran_ns = 0;
    let mut share_of = |runs_ns: u64, late_ns: u64| {
        ran_ns += runs_ns;
        sleepers.write(7, ran_ns);
        sleepers.clock.ran_ns.store(ran_ns, Ordering::Relaxed);
        sleepers.clock.now_ns.store(late_ns, Ordering::Relaxed);
        sleepers.scan()[0].cpu_share
    };
    // Scans begin a second apart; it is read 0.5 s after one has begun, and at once in the next.
    assert_eq!(share_of(SECOND_NS * 3 / 2, SECOND_NS / 2), 1.0);
    assert_eq!(share_of(SECOND_NS / 2, 0), 1.0);
    assert_eq!(share_of(SECOND_NS / 2, 0), 0.5);
}

#[test]
fn a_sleeper_that_runs_for_a_moment_is_seen_in_time() {
    for tid in SLEEPERS {
        let mut sleepers = Sleepers::new();
        sleepers.run(tid, 5_000_000);
        let (scans, share) = sleepers.seen(tid).unwrap();
        assert!(scans <= ASLEEP);
        assert_eq!(share, 0.005);
    }
}

#[test]
fn moments_of_many_sleepers_are_seen_when_they_have_come_to_much() {
    let mut sleepers = Sleepers::new();
    SLEEPERS
        .iter()
        .for_each(|&tid| sleepers.run(tid, 4_000_000));
    let threads = sleepers.scan();
    assert!(threads.iter().all(|thread| thread.cpu_share == 0.004));
}

#[test]
fn the_only_thread_of_a_process_is_seen_at_once_however_briefly_it_runs() {
    let mut sleepers = Sleepers::of(&[7]);
    sleepers.run(7, 1_000);
    assert_eq!(sleepers.seen(7), Some((1, 0.000_001)));
}

#[test]
fn nothing_is_read_of_threads_of_a_process_that_sleeps() {
    let mut sleepers = Sleepers::new();
    // No kernel would say so while the time of the process stands still.
    SLEEPERS
        .iter()
        .for_each(|&tid| sleepers.write(tid, 4_000_000));
    let threads = sleepers.scan();
    let seen = threads.iter().filter(|thread| thread.cpu_share > 0.0);
    assert!(seen.count() <= 1, "one may have its turn");
}

/// The sleepers with the mask of CPU 0.
fn masked(threads: &[Thread]) -> Vec<u32> {
    let threads = threads
        .iter()
        .filter(|t| *t.affinity == "0".parse().unwrap());
    threads.map(|thread| thread.id.tid).collect()
}

#[test]
fn a_mask_of_a_sleeper_that_others_set_is_seen_in_time() {
    let mut sleepers = Sleepers::new();
    sleepers.clock.mask.store(0b1, Ordering::Relaxed);
    let seen = (1..=SELDOM).find(|_| masked(&sleepers.scan()) == SLEEPERS);
    assert!(seen > Some(1), "{seen:?}");
}

#[test]
fn a_mask_of_a_sleeper_that_we_set_is_seen_at_once() {
    let mut sleepers = Sleepers::new();
    sleepers.clock.mask.store(0b1, Ordering::Relaxed);
    for tid in SLEEPERS {
        sleepers.scanner.mask_was_set(ThreadId { tid, born: 70 });
    }
    assert_eq!(masked(&sleepers.scan()), SLEEPERS);
}

#[test]
fn masks_of_a_process_that_runs_are_seen_at_once() {
    let mut sleepers = Sleepers::new();
    sleepers.clock.mask.store(0b1, Ordering::Relaxed);
    sleepers.run(9, 1_000);
    assert_eq!(masked(&sleepers.scan()), SLEEPERS);
}

#[test]
fn a_thread_that_a_sleeper_starts_is_seen_at_once() {
    let mut sleepers = Sleepers::new();
    let root = sleepers.scanner.root.clone();
    show(&root, 7, 1, 70, HERDED, &[7, 8, 9, 10, 11]);
    sleepers.run(8, 1_000);
    let tids: Vec<u32> = sleepers.scan().iter().map(|thread| thread.id.tid).collect();
    assert_eq!(tids, [7, 8, 9, 10, 11]);
}

#[test]
fn the_masks_of_sleepers_are_read_when_their_cpuset_has_changed() {
    let mut sleepers = Sleepers::new();
    let cgroup = sleepers.scanner.root.path("sys/fs/cgroup/a");
    std::fs::create_dir_all(&cgroup).unwrap();
    let cpuset = |list: &str| std::fs::write(cgroup.join("cpuset.cpus.effective"), list).unwrap();
    cpuset("0-1");
    for tid in SLEEPERS {
        let path = format!("proc/7/task/{tid}/cgroup");
        std::fs::write(sleepers.scanner.root.path(&path), "0::/a\n").unwrap();
    }
    for _ in 0..2 * RESTING {
        sleepers.scan();
    }
    cpuset("0");
    for mask in [0b01, 0b11] {
        // The kernel may have told of the cpuset before it has set the masks.
        sleepers.clock.mask.store(mask, Ordering::Relaxed);
        let threads = sleepers.scan();
        assert!(
            threads
                .iter()
                .all(|thread| thread.affinity.as_words() == [mask])
        );
    }
}

#[test]
fn only_threads_that_run_hold_files() {
    let mut sleepers = Sleepers::new();
    let open = |sleepers: &Sleepers| {
        let threads = sleepers.scanner.watched[&7].threads.values();
        threads.filter(|thread| thread.stat.is_some()).count()
    };
    assert_eq!(open(&sleepers), 0);
    sleepers.run(9, SECOND_NS / 2);
    sleepers.scan();
    assert_eq!(open(&sleepers), 1);
    for _ in 0..2 * RESTING {
        sleepers.scan();
    }
    assert_eq!(open(&sleepers), 0);
}

#[test]
fn a_number_that_went_to_a_stranger_between_two_scans_takes_no_thread_along() {
    let (_folder, root) = fake::root();
    show(&root, 7, 1, 70, HERDED, &[7]);
    let kernel = kernel(&root);
    let mut scanner = scanner(&root, Selection::User { uid: HERDED });
    assert_eq!(scan(&mut scanner, &kernel), [(7, 70)]);
    show(&root, 7, 1, 90, STRANGER, &[7, 8]);
    for _ in 0..2 * SELDOM {
        assert_eq!(scan(&mut scanner, &kernel), []);
    }
}

#[test]
fn a_number_that_goes_to_a_stranger_while_threads_are_listed_takes_none_along() {
    let (_folder, root) = fake::root();
    show(&root, 7, 1, 70, HERDED, &[7, 8]);
    let kernel = kernel(&root);
    kernel.armed.store(true, Ordering::Relaxed);
    let mut scanner = scanner(&root, Selection::User { uid: HERDED });
    for _ in 0..2 * SELDOM {
        assert_eq!(scan(&mut scanner, &kernel), []);
    }
    assert!(!kernel.armed.load(Ordering::Relaxed));
}

#[test]
fn who_may_place_one_users_threads_alone_watches_no_others() {
    let (_folder, root) = fake::root();
    show(&root, 7, 1, 70, HERDED, &[7]);
    show(&root, 8, 1, 80, STRANGER, &[8]);
    let mut scanner = scanner(&root, Selection::Machine);
    scanner.only_user = Some(HERDED);
    assert_eq!(scan(&mut scanner, &kernel(&root)), [(7, 70)]);
}

#[test]
fn a_later_process_of_a_number_that_was_named_is_not_meant() {
    let (_folder, root) = fake::root();
    show(&root, 7, 1, 70, HERDED, &[7]);
    let kernel = kernel(&root);
    let named = Selection::Processes {
        pids: vec![7],
        descendants: true,
    };
    let mut scanner = scanner(&root, named);
    show(&root, 8, 7, 75, HERDED, &[8]);
    assert_eq!(scan(&mut scanner, &kernel), [(7, 70), (8, 75)]);
    // What the stranger starts is not watched either, although its parent's number was.
    show(&root, 7, 1, 90, STRANGER, &[7]);
    show(&root, 9, 7, 95, STRANGER, &[9]);
    for _ in 0..2 * SELDOM {
        assert_eq!(scan(&mut scanner, &kernel), [(8, 75)]);
    }
}

#[test]
fn whoever_gets_the_number_of_one_that_was_passed_over_is_found() {
    let found_after = |kernels: bool| {
        let (_folder, root) = fake::root();
        show(&root, 7, 1, 70, STRANGER, &[7]);
        if kernels {
            let path = root.path("proc/7/stat");
            let stat = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, stat.replace(" -1 0 ", " -1 2097152 ")).unwrap();
        }
        let kernel = kernel(&root);
        let mut scanner = scanner(&root, Selection::User { uid: HERDED });
        assert_eq!(scan(&mut scanner, &kernel), []);
        show(&root, 7, 1, 90, HERDED, &[7]);
        let found = (1..=RESTING).find(|_| scan(&mut scanner, &kernel) == [(7, 90)]);
        found.expect("it is found")
    };
    assert!(found_after(false) <= SELDOM);
    assert!(found_after(true) > SELDOM, "the kernel's own end seldom");
}

#[test]
fn the_first_process_is_watched_only_if_it_is_named() {
    let (_folder, root) = fake::root();
    show(&root, 1, 0, 10, HERDED, &[1]);
    show(&root, 7, 1, 70, HERDED, &[7]);
    let kernel = kernel(&root);
    let watched = |selection| scan(&mut scanner(&root, selection), &kernel);
    assert_eq!(watched(Selection::Machine), [(7, 70)]);
    assert_eq!(watched(Selection::User { uid: HERDED }), [(7, 70)]);
    let name = "p".to_owned();
    assert_eq!(watched(Selection::Command { name }), [(1, 10), (7, 70)]);
}
