use super::*;
use crate::fake::FakeKernel;
use std::time::Duration;

const A: ProcessId = ProcessId { pid: 1, born: 1 };
const B: ProcessId = ProcessId { pid: 2, born: 1 };

fn write(root: &std::path::Path, pid: u32, file: &str, text: &str) {
    let folder = root.join(format!("proc/{pid}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(file), text).unwrap();
}

fn seen(id: ProcessId, ran: bool) -> Seen {
    let parent = None;
    Seen { id, ran, parent }
}

/// Pages by node.
type Pages = Vec<(u32, u64)>;

fn pages(residencies: &Residencies, process: ProcessId) -> Pages {
    let of = residencies.of(process);
    of.map(|r| r.pages.iter().map(|&(n, p)| (n.0, p)).collect())
        .unwrap_or_default()
}

#[test]
fn read_at_first_sight_and_again_when_the_process_has_run() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    for pid in [1, 2] {
        write(root.path(), pid, "numa_maps", "1000 default N0=5 N3=7\n");
    }
    residencies.refresh(&kernel, &[seen(A, false), seen(B, false)], 1_000_000);
    assert_eq!(pages(&residencies, A), [(0, 5), (3, 7)]);
    for pid in [1, 2] {
        write(root.path(), pid, "numa_maps", "1000 default N1=12\n");
    }
    kernel.pass(Duration::from_secs(1));
    residencies.refresh(&kernel, &[seen(A, true), seen(B, false)], 1_000_000);
    assert_eq!(pages(&residencies, A), [(1, 12)]);
    assert_eq!(pages(&residencies, B), [(0, 5), (3, 7)]);
    residencies.refresh(&kernel, &[seen(B, false)], 1_000_000);
    assert_eq!(pages(&residencies, A), []);
}

#[test]
fn first_readings_of_many_end_once_they_have_taken_as_long_as_a_tick() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    // The younger a process, the lower its number.
    let many = [1, 2, 3, 4].map(|pid| ProcessId {
        pid,
        born: 10 - u64::from(pid),
    });
    for process in many {
        write(root.path(), process.pid, "numa_maps", "1000 default N0=5\n");
    }
    kernel.ns_per_clock_reading(400_000);
    let mut look = || {
        let all = many.map(|process| seen(process, process.pid == 1));
        residencies.refresh(&kernel, &all, 1_000_000);
        many.map(|process| residencies.of(process).is_some())
    };
    assert_eq!(look(), [true, false, true, true], "the first runs");
    assert_eq!(look(), [true; 4]);
}

#[test]
fn a_policy_of_any_mapping_with_pages_is_the_process_s() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    let mine = "1000 default N0=5\n2000 interleave:0-3 N1=1\n";
    write(root.path(), 1, "numa_maps", mine);
    write(
        root.path(),
        2,
        "numa_maps",
        "1000 local N0=5\n2000 bind:1\n",
    );
    residencies.refresh(&kernel, &[seen(A, true), seen(B, true)], 1_000_000);
    assert_eq!(
        residencies.policy_of(A).map(|policy| &**policy),
        Some("interleave:0-3")
    );
    assert_eq!(
        residencies.policy_of(B),
        None,
        "a mapping without pages does not count"
    );
}

#[test]
fn large_mappings_of_private_memory_are_told_where_they_are_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    let numa_maps = "200000 default anon=900 N2=400 N0=500\n600000 default anon=511 N0=511\n\
                     800000 default file=/memfd:x N0=600\n";
    let maps = "200000-600000 rw-p 00000000 00:00 0\n600000-7ff000 rw-p 00000000 00:00 0\n\
                800000-a58000 rw-s 00000000 00:01 7 /memfd:x\n";
    write(root.path(), 1, "numa_maps", numa_maps);
    write(root.path(), 1, "maps", maps);
    let asked = |needed| {
        let residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        let mut residencies = residencies.with_extents(needed);
        residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
        residencies.extents_of(A).to_vec()
    };
    let heap = Extent {
        pages: 0x200..0x600,
        on: vec![(NodeId(0), 500), (NodeId(2), 400)],
    };
    assert_eq!(asked(true), [heap]);
    assert_eq!(asked(false), []);
}

/// A reading has taken 10 ms where readings may take a hundredth of the time, and then the pages go to another
/// node; with `moving_ns`, by an order that took so long. Returns where they are seen after each of these waits.
fn seen_after<const WAITS: usize>(moving_ns: Option<u64>, waits_ms: [u64; WAITS]) -> [u32; WAITS] {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    write(root.path(), 1, "numa_maps", "1000 default N0=5\n");
    let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
    residencies.known.get_mut(&A).unwrap().took_ns = 10_000_000;
    write(root.path(), 1, "numa_maps", "1000 default N1=5\n");
    if let Some(took_ns) = moving_ns {
        residencies.moved(A, took_ns);
    }
    let seen = waits_ms.map(|wait_ms| {
        kernel.pass(Duration::from_millis(wait_ms));
        residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
        pages(&residencies, A)[0].0
    });
    assert_eq!(residencies.known[&A].moving_ns, 0, "it has been read since");
    seen
}

#[test]
fn a_costly_reading_is_paid_for_before_the_next() {
    assert_eq!(seen_after(None, [999, 2]), [0, 1]);
}

#[test]
fn pages_that_were_moved_are_looked_for_ten_times_as_soon() {
    assert_eq!(seen_after(Some(9_999_999), [99, 2]), [0, 1]);
}

#[test]
fn pages_that_took_as_long_to_move_as_to_find_are_looked_for_at_once() {
    assert_eq!(seen_after(Some(10_000_000), [1]), [1]);
}

#[test]
fn a_process_that_has_doubled_is_read_at_once_while_it_is_young() {
    let seen_when = |young: bool, resident: u64| {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        write(root.path(), 1, "numa_maps", "1000 default N0=5\n");
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
        kernel.pass(Duration::from_millis(if young { 9_999 } else { 10_000 }));
        let read = residencies.known.get_mut(&A).unwrap();
        read.took_ns = 1_000_000_000;
        write(root.path(), 1, "numa_maps", "1000 default N1=10\n");
        write(
            root.path(),
            1,
            "statm",
            &format!("20 {resident} 1 1 0 9 0\n"),
        );
        residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
        pages(&residencies, A)[0].0
    };
    assert_eq!([seen_when(true, 9), seen_when(true, 10)], [0, 1]);
    assert_eq!(seen_when(false, 10), 0);
}

/// A process with so many pages on node 0 has forked another, which has this many and `N1=1` in its file. Returns where
/// the pages of the second are seen at once and, with another 10 ms that a reading took, after each of these waits.
fn of_a_fork<const WAITS: usize>(
    pages_before: u64,
    resident: u64,
    waits_ms: [u64; WAITS],
) -> (Pages, [Pages; WAITS]) {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    write(
        root.path(),
        1,
        "numa_maps",
        &format!("1000 default N0={pages_before}\n"),
    );
    write(root.path(), 2, "numa_maps", "1000 default N1=1\n");
    write(
        root.path(),
        2,
        "statm",
        &format!("9999 {resident} 1 1 0 9 0\n"),
    );
    let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    let forked = Seen {
        parent: Some(A),
        ..seen(B, true)
    };
    // Both are new, and the first is older and sleeps.
    let all = [forked, seen(A, false)];
    residencies.refresh(&kernel, &all, 1_000_000);
    let at_once = pages(&residencies, B);
    residencies.known.get_mut(&B).unwrap().took_ns = 10_000_000;
    let later = waits_ms.map(|wait_ms| {
        kernel.pass(Duration::from_millis(wait_ms));
        residencies.refresh(&kernel, &[forked], 1_000_000);
        pages(&residencies, B)
    });
    (at_once, later)
}

#[test]
fn the_pages_of_a_fork_are_its_parents_until_its_own_reading_has_been_paid_for() {
    let of_parent = vec![(0, MANY)];
    let (at_once, later) = of_a_fork(MANY, MANY, [999, 2]);
    assert_eq!(at_once, of_parent);
    assert_eq!(later, [of_parent, vec![(1, 1)]]);
}

#[test]
fn a_parent_that_has_grown_is_read_before_its_fork() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    write(root.path(), 1, "numa_maps", "1000 default N0=5\n");
    residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
    write(
        root.path(),
        1,
        "numa_maps",
        &format!("1000 default N2={MANY}\n"),
    );
    for pid in [1, 2] {
        write(
            root.path(),
            pid,
            "statm",
            &format!("9999 {MANY} 1 1 0 9 0\n"),
        );
    }
    let forked = Seen {
        parent: Some(A),
        ..seen(B, true)
    };
    residencies.refresh(&kernel, &[seen(A, true), forked], 1_000_000);
    assert_eq!(pages(&residencies, B), [(2, MANY)]);
}

#[test]
fn a_fork_that_is_small_or_has_other_pages_is_read() {
    let seen_of = |pages_before, resident| of_a_fork(pages_before, resident, []).0;
    let (own, of_parent) = (vec![(1, 1)], vec![(0, MANY)]);
    assert_eq!(seen_of(MANY - 1, MANY - 1), own);
    assert_eq!(seen_of(MANY, MANY - MANY / ALIKE), of_parent);
    assert_eq!(
        seen_of(MANY, MANY - MANY / ALIKE - 1),
        own,
        "another program"
    );
    assert_eq!(seen_of(MANY, MANY + MANY / ALIKE), of_parent);
    assert_eq!(seen_of(MANY, MANY + MANY / ALIKE + 1), own, "it has grown");
}

#[test]
fn a_kernel_without_numa_has_everything_on_its_node() {
    let root = tempfile::tempdir().unwrap();
    let kernel = FakeKernel::default();
    write(root.path(), 1, "statm", "9000 321 100 1 0 200 0\n");
    let mut one = Residencies::new(Root::new(root.path()), 4096, 0.01, Some(NodeId(0)));
    one.refresh(&kernel, &[seen(A, true)], 1_000_000);
    assert_eq!(pages(&one, A), [(0, 321)]);
    let mut several = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
    several.refresh(&kernel, &[seen(A, true)], 1_000_000);
    assert_eq!(several.of(A), None, "no figure is invented");
}
