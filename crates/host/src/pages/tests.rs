//! Orders carried out by a kernel in memory.

use super::*;
use crate::fake::FakeKernel;
use numaherd_world::{Part, ThreadId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

const PROCESS: ProcessId = ProcessId { pid: 9, born: 90 };
const FIRST: u64 = 0x10_0000;

struct Case {
    kernel: FakeKernel,
    root: tempfile::TempDir,
    stop: Stop,
    options: PageOptions,
}

/// A process with `pages` pages on node 0.
fn process(pages: u64) -> Case {
    let kernel = FakeKernel::default();
    kernel.thread(9, 90, "0".parse().unwrap());
    kernel.pages(FIRST, pages, 0);
    kernel.ns_per_page(1000);
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("proc/9");
    std::fs::create_dir_all(&folder).unwrap();
    let (start, end) = (FIRST * 4096, (FIRST + pages) * 4096);
    std::fs::write(
        folder.join("maps"),
        format!(
            "{start:x}-{end:x} rw-p 00000000 00:00 0 \n{end:x}-{:x} rw-s 0 00:01 5 \
             /dev/shm/x\n",
            end + 4096
        ),
    )
    .unwrap();
    std::fs::write(
        folder.join("numa_maps"),
        format!("{start:x} default anon={pages} N0={pages} kernelpagesize_kB=4\n"),
    )
    .unwrap();
    Case {
        kernel,
        root,
        stop: Stop::new().unwrap(),
        options: PageOptions::default(),
    }
}

impl Case {
    /// Only this many of its pages exist.
    fn resident(&self, pages: u64) {
        let file = self.root.path().join("proc/9/numa_maps");
        let start = FIRST * 4096;
        std::fs::write(file, format!("{start:x} default N0={pages}\n")).unwrap();
    }

    fn carry_out(&self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        let root = Root::new(self.root.path());
        Mover::new(root, self.options, 4096).carry_out(&self.kernel, orders, &self.stop)
    }

    fn order(&self, pages: Pages, to: u32) -> PageOutcome {
        self.carry_out(&[order(pages, to)]).remove(0)
    }
}

fn order(pages: Pages, to: u32) -> PageOrder {
    PageOrder {
        process: PROCESS,
        thread: ThreadId { tid: 9, born: 90 },
        pages,
        to: NodeId(to),
        rule: "test".into(),
        why: String::new(),
    }
}

fn sum(outcome: &PageOutcome) -> u64 {
    outcome.moved + outcome.already_there + outcome.not_tried + outcome.failed.values().sum::<u64>()
}

#[test]
fn a_whole_process_moves() {
    let case = process(3000);
    let outcome = case.order(Pages::All, 2);
    assert_eq!((outcome.moved, outcome.error.clone()), (3000, None));
    assert_eq!(case.kernel.pages_on(2), 3000);
    assert_eq!(sum(&outcome), 3000);
}

#[test]
fn where_no_page_is_on_the_target_presence_is_enough() {
    let case = process(600);
    case.kernel.pages(FIRST + 100, 50, -libc::ENOENT);
    case.resident(550);
    let pagemap = std::fs::File::create(case.root.path().join("proc/9/pagemap")).unwrap();
    for page in (0..600).filter(|page| !(100..150).contains(page)) {
        let entry = (1u64 << 63).to_ne_bytes();
        pagemap.write_all_at(&entry, (FIRST + page) * 8).unwrap();
    }
    let outcome = case.order(Pages::All, 2);
    assert_eq!(outcome.moved, 550, "{outcome:?}");
    assert_eq!(
        outcome.failed,
        BTreeMap::from([(PageFailure::NotThere, 50)])
    );
    assert_eq!(case.kernel.questions(), 0, "no page's node was asked for");
}

#[test]
fn a_window_takes_only_what_the_process_has() {
    let case = process(100);
    case.kernel.pages(FIRST, 10, 1);
    let window = Pages::Window {
        first: FIRST - 50,
        count: 100,
    };
    let outcome = case.order(window, 1);
    assert_eq!((outcome.moved, outcome.already_there), (40, 10));
    assert_eq!(case.kernel.pages_on(0), 50);
}

#[test]
fn absent_pages_are_counted_and_not_handed_to_the_kernel() {
    let case = process(20);
    case.kernel.pages(FIRST + 5, 5, -libc::ENOENT);
    case.resident(15);
    let outcome = case.order(Pages::All, 1);
    assert_eq!(outcome.moved, 15);
    assert_eq!(outcome.failed, BTreeMap::from([(PageFailure::NotThere, 5)]));
    assert_eq!(case.kernel.batches(), [15]);
}

#[test]
fn each_pages_own_failure_is_named() {
    let case = process(10);
    case.kernel.stuck(FIRST, -libc::EACCES);
    case.kernel.stuck(FIRST + 1, -libc::EFAULT);
    case.kernel.stuck(FIRST + 2, -libc::EBUSY);
    let outcome = case.order(Pages::All, 1);
    assert_eq!(outcome.moved, 7);
    assert_eq!(
        outcome.failed,
        BTreeMap::from([
            (PageFailure::Shared, 1),
            (PageFailure::Busy, 1),
            (PageFailure::Unmovable, 1)
        ])
    );
}

#[test]
fn a_full_node_ends_the_order_and_all_later_ones_to_it() {
    let case = process(1000);
    case.kernel.free(1, 600);
    let outcomes = case.carry_out(&[
        order(Pages::All, 1),
        order(
            Pages::Window {
                first: FIRST,
                count: 1000,
            },
            1,
        ),
    ]);
    assert_eq!(outcomes[0].moved, 600);
    assert!(outcomes[0].failed[&PageFailure::NodeFull] > 0);
    assert!(
        outcomes[0]
            .error
            .as_deref()
            .unwrap()
            .contains("node 1 has no free memory")
    );
    assert_eq!(sum(&outcomes[0]), 1000);
    assert_eq!((outcomes[1].moved, outcomes[1].not_tried), (0, 1000));
    assert!(outcomes[1].error.is_some());
}

#[test]
fn a_process_that_dies_in_the_middle_leaves_the_rest_untried() {
    let case = process(5000);
    case.kernel.dies_after_batches(2);
    let outcome = case.order(Pages::All, 1);
    assert!(outcome.moved > 0 && outcome.not_tried > 0);
    assert!(outcome.error.as_deref().unwrap().contains("has ended"));
    assert_eq!(sum(&outcome), 5000);
}

#[test]
fn a_number_that_is_anothers_by_now_is_not_touched() {
    let case = process(10);
    case.kernel.thread(9, 91, "0".parse().unwrap());
    let outcome = case.order(Pages::All, 1);
    assert_eq!((outcome.moved, outcome.not_tried), (0, 10));
    assert!(case.kernel.batches().is_empty());
}

#[test]
fn refusals_name_what_would_help() {
    for (errno, help) in [
        (Errno::PERM, "CAP_SYS_NICE"),
        (Errno::ACCESS, "cpuset"),
        (Errno::NODEV, "no such node"),
        (Errno::NOSYS, "CONFIG_MIGRATION"),
    ] {
        let case = process(10);
        case.kernel.refuse_next_move(errno);
        let outcome = case.order(Pages::All, 1);
        assert!(
            outcome.error.as_deref().unwrap().contains(help),
            "{outcome:?}"
        );
        assert_eq!(outcome.not_tried, 10);
    }
}

#[test]
fn calls_keep_within_their_target() {
    let case = process(60_000);
    case.kernel.ns_per_page(2000);
    let outcome = case.order(Pages::All, 1);
    assert_eq!(outcome.moved, 60_000);
    let batches = case.kernel.batches();
    assert_eq!(batches[..4], [128, 256, 512, 1024]);
    assert_eq!(batches.iter().max(), Some(&12_500), "25 ms of 2 us each");
    assert_eq!(
        outcome.longest_batch_ns,
        512 * 2000,
        "what the kernel takes away at once"
    );
}

#[test]
fn pages_that_take_long_are_held_to_the_pause_target() {
    let case = process(5_000);
    case.kernel.ns_per_page(80_000);
    let outcome = case.order(Pages::All, 1);
    // Half of 125 pages' time is the target of 5 ms.
    assert_eq!(case.kernel.batches()[1..3], [125, 125]);
    assert!(outcome.longest_batch_ns <= 128 * 80_000);
}

#[test]
fn a_request_to_stop_leaves_the_rest_untried() {
    let case = process(100);
    case.stop.ask();
    let outcome = case.order(Pages::All, 1);
    assert_eq!((outcome.moved, outcome.not_tried), (0, 100));
    assert!(outcome.error.unwrap().contains("on request"));
}

#[test]
fn huge_pages_are_noticed_and_then_given_by_their_first_page() {
    // Eight huge pages, then 100 base pages; each takes the kernel half a millisecond.
    let case = process(8 * 512 + 100);
    case.kernel.huge(FIRST, 8);
    case.kernel.ns_per_page(500_000);
    let outcome = case.order(Pages::All, 1);
    assert_eq!(outcome.moved, 8 * 512 + 100, "{outcome:?}");
    assert_eq!((outcome.already_there, outcome.failed.len()), (0, 0));
    assert_eq!(case.kernel.pages_on(1), 8 * 512 + 100);
    let batches = case.kernel.batches();
    assert_eq!(batches[..4], [128, 1, 2, 4], "{batches:?}");
}

#[test]
fn smaller_folios_than_huge_pages_are_not_taken_for_them_for_long() {
    let case = process(16 * 512);
    case.kernel.folios(FIRST, 16 * 512, 16);
    let outcome = case.order(Pages::All, 1);
    assert_eq!(outcome.moved, 16 * 512, "{outcome:?}");
    let single = case.kernel.batches().iter().filter(|b| **b == 1).count();
    assert!(
        single <= MOST_WRONG_GUESSES as usize,
        "{:?}",
        case.kernel.batches()
    );
}

#[test]
fn a_process_that_gave_up_its_memory_is_ending() {
    let case = process(10);
    case.kernel.refuse_next_move(Errno::INVAL);
    let outcome = case.order(Pages::All, 1);
    let error = outcome.error.unwrap();
    assert!(error.starts_with("process 9 has ended"), "{error}");
    assert_eq!(outcome.not_tried, 10);
}

/// Ten pages of its own and one in a mapping that could be shared.
fn with_shared_page(mapped: &str) -> Case {
    let case = process(10);
    case.kernel.pages(FIRST + 10, 1, 0);
    let path = case.root.path().join("proc/9/numa_maps");
    let own = std::fs::read_to_string(&path).unwrap();
    let start = (FIRST + 10) * 4096;
    let shared = format!("{start:x} default file=/dev/shm/x dirty=1 {mapped} N0=1\n");
    std::fs::write(&path, own + &shared).unwrap();
    case
}

#[test]
fn what_could_be_shared_is_moved_while_nobody_shares_it() {
    assert_eq!(with_shared_page("").order(Pages::All, 1).moved, 11);
    let shared = with_shared_page("mapmax=2");
    assert_eq!(shared.order(Pages::All, 1).moved, 10);
}

#[test]
fn of_a_window_the_kernel_says_which_pages_are_shared() {
    let case = with_shared_page("mapmax=2");
    case.kernel.mapped_again(FIRST + 10, 1);
    let window = Pages::Window {
        first: FIRST,
        count: 11,
    };
    let outcome = case.order(window, 1);
    assert_eq!(outcome.moved, 10);
    assert_eq!(outcome.failed, [(PageFailure::Shared, 1)].into());
}

/// Mappings of each kind: permissions, what `numa_maps` says of them, whether others map them too, and the kind whose
/// orders move them; that of none is the code of a library, or its data with one copied page.
const MAPPINGS: [(&str, &str, bool, Option<MemoryKind>); 6] = [
    ("rw-p", "heap", false, Some(MemoryKind::Private)),
    (
        "rw-s",
        "file=/dev/zero\\040(deleted) mapmax=3",
        true,
        Some(MemoryKind::Shared),
    ),
    (
        "rw-s",
        "file=/memfd:x\\040(deleted)",
        false,
        Some(MemoryKind::Shared),
    ),
    (
        "r--s",
        "file=/data/index mapmax=2",
        true,
        Some(MemoryKind::File),
    ),
    ("r-xp", "file=/usr/lib/libc.so.6 mapmax=40", true, None),
    ("rw-p", "file=/usr/lib/libc.so.6 anon=1", false, None),
];

proptest! {
    #[test]
    fn orders_by_kind_move_that_kind_alone(
        mappings in proptest::collection::vec((0..MAPPINGS.len(), 2u64..1500, 0u64..1500), 1..8),
        kind in 0usize..3,
        (of, first) in (1u64..4).prop_flat_map(|of| (Just(of), 0..of)),
    ) {
        let case = process(1);
        let (kind, part) = (MemoryKind::ALL[kind], Part { first, count: 1, of });
        let folder = case.root.path().join("proc/9");
        let (mut maps, mut numa_maps) = (String::new(), String::new());
        let mut expected = Vec::new();
        let mut start = FIRST;
        for (which, pages, offset) in mappings {
            let (permissions, said, mapped_again, moved_by) = MAPPINGS[which];
            let (from, to) = (start * 4096, (start + pages) * 4096);
            maps += &format!("{from:x}-{to:x} {permissions} {:x} 00:01 5 /x\n", offset * 4096);
            numa_maps += &format!("{from:x} default {said} N0={pages} kernelpagesize_kB=4\n");
            case.kernel.pages(start, pages, 0);
            if mapped_again {
                case.kernel.mapped_again(start, pages);
            }
            // Blocks of private memory are those of addresses, of others those of what is mapped.
            let number = match kind {
                MemoryKind::Private => start,
                MemoryKind::Shared | MemoryKind::File => offset,
            };
            let takes = |page: &u64| part.takes(number + page);
            if moved_by == Some(kind) {
                expected.extend((0..pages).filter(takes).map(|page| start + page));
            }
            start += pages + 7;
        }
        std::fs::write(folder.join("maps"), maps).unwrap();
        std::fs::write(folder.join("numa_maps"), numa_maps).unwrap();
        let outcome = case.order(Pages::OfKind { kind, part }, 2);
        prop_assert_eq!(case.kernel.page_numbers_on(2), expected);
        prop_assert_eq!(outcome.moved as usize, case.kernel.pages_on(2));
        prop_assert_eq!(sum(&outcome), outcome.moved, "nothing else was tried");
    }

    #[test]
    fn every_page_of_an_order_is_accounted_for(
        pages in 1u64..3000,
        stuck in proptest::collection::btree_map(
            0u64..3000, prop_oneof![Just(-2), Just(-5), Just(-13), Just(-16), Just(-99)], 0..20),
        free in 0u64..4000,
        batch in 1usize..700,
        folio in 0u32..10,
    ) {
        let mut case = process(pages);
        case.options.first_batch = batch;
        case.kernel.free(3, free);
        if folio > 0 {
            case.kernel.folios(FIRST, pages, 1 << folio);
        }
        for (page, status) in stuck {
            if page < pages {
                case.kernel.stuck(FIRST + page, status);
            }
        }
        let outcome = case.order(Pages::All, 3);
        prop_assert_eq!(sum(&outcome), pages);
        prop_assert_eq!(outcome.moved, case.kernel.pages_on(3) as u64);
    }
}
