//! The addresses that a page order names, and which of them hold pages.
//!
//! Asking the kernel for the node of a page costs about a tenth of moving it (in the lab). `numa_maps` says how many
//! pages each mapping has on each node. Where a mapping has none on the target yet, it is enough to know which of its
//! pages are present: all of them if there are as many as it has room for, else `pagemap` says so more cheaply
//! (Documentation/admin-guide/mm/pagemap.rst: 8 bytes a page, bit 63 for present).
//!
//! Of the pages that an order for a whole process or a window names, those that another process also maps are not
//! moved; the kernel ensures that page by page. A mapping that could be shared (`MAP_SHARED`) often is not: a virtual
//! machine's memory is mapped so for devices that run in other processes, but by QEMU alone where there are none. So
//! orders for a whole process skip only the mappings that `numa_maps` reports as mapped again: a large segment of many
//! processes, or an array that a fork has left to all of a pool, would cost a refusal for each page of each. The
//! process's own pages in such a mapping stay as well.
//!
//! Orders for a kind of memory also use `numa_maps`: they take the mappings whose pages are all of that kind, and skip
//! mappings with pages of two, as the data of programs and libraries are. Of shared memory and files, they also move
//! pages that other processes map; but not those of programs and libraries, which all processes have, nor a library's
//! data that a fork has left to several.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use numaherd_topology::NodeId;
use numaherd_world::{MemoryKind, PageOrder, Pages, Part, ProcessId};

use crate::files::Root;
use crate::proc::numa_maps::NodePages;
use crate::proc::{maps, numa_maps};

/// What is known of the pages of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: each must be asked for.
    Nothing,
    /// None was on the target node when `numa_maps` was read.
    NoneOnTarget,
    /// None was on the target node, and all were present.
    AllElsewhere,
}

/// Addresses of one mapping, both ends on page boundaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) range: Range<u64>,
    pub(crate) known: Known,
}

/// Reads the mappings of a process.
///
/// # Errors
/// What was tried and why it failed.
pub(crate) fn mappings(root: &Root, process: ProcessId) -> Result<Vec<maps::Mapping>, String> {
    let pid = process.pid;
    let text = root.read(&format!("proc/{pid}/maps")).map_err(|error| {
        format!(
            "cannot read where the pages of {process} are (/proc/{pid}/maps): {error}; it may have \
             ended, or CAP_SYS_PTRACE is needed"
        )
    })?;
    Ok(maps::parse(&text))
}

/// The addresses that an order names and the process has.
pub(crate) fn spans(
    root: &Root,
    order: &PageOrder,
    mappings: &[maps::Mapping],
    page_bytes: u64,
) -> Vec<Span> {
    let movable = mappings.iter().filter(|mapping| mapping.movable);
    let unknown = |range| Span {
        range,
        known: Known::Nothing,
    };
    let by_start = || on_nodes(root, order.process, page_bytes);
    match order.pages {
        Pages::Window { first, count } => {
            let start = first.saturating_mul(page_bytes);
            let end = first.saturating_add(count).saturating_mul(page_bytes);
            let ranges = movable.map(|mapping| mapping.start.max(start)..mapping.end.min(end));
            let ranges = ranges.filter(|range| range.start < range.end);
            ranges.map(unknown).collect()
        }
        Pages::All => match by_start() {
            Some(by_start) => of_all(movable, &by_start, order.to, page_bytes),
            // A kernel without NUMA has no numa_maps; every mapping is then walked.
            None => {
                let ranges = movable.map(|mapping| mapping.start..mapping.end);
                ranges.map(unknown).collect()
            }
        },
        Pages::OfKind { kind, part } => {
            let by_start = by_start().unwrap_or_default();
            let of_kind = |mapping: &maps::Mapping| {
                let on = by_start.get(&mapping.start);
                let with_others = match kind {
                    MemoryKind::Private => false,
                    MemoryKind::Shared => true,
                    MemoryKind::File => mapping.shared,
                };
                let is_meant = |on: &NodePages| on.kind() == Some(kind);
                let on = on.filter(|on| is_meant(on) && (with_others || !on.mapped_again))?;
                let known = known(mapping, on, order.to, page_bytes)?;
                Some(part_of(mapping, kind, part, known, page_bytes))
            };
            movable.filter_map(of_kind).flatten().collect()
        }
    }
}

/// The mappings that only this process maps and that have pages to move.
fn of_all<'m>(
    movable: impl Iterator<Item = &'m maps::Mapping>,
    by_start: &BTreeMap<u64, NodePages>,
    to: NodeId,
    page_bytes: u64,
) -> Vec<Span> {
    let span = |mapping: &maps::Mapping| {
        let on = by_start.get(&mapping.start);
        let on = on.filter(|on| !on.mapped_again)?;
        Some(Span {
            range: mapping.start..mapping.end,
            known: known(mapping, on, to, page_bytes)?,
        })
    };
    movable.filter_map(span).collect()
}

/// The runs of a mapping in this part of memory of its kind, counted from where that memory begins.
fn part_of(
    mapping: &maps::Mapping,
    kind: MemoryKind,
    part: Part,
    known: Known,
    page_bytes: u64,
) -> impl Iterator<Item = Span> + use<> {
    let first = match kind {
        MemoryKind::Private => mapping.start / page_bytes,
        MemoryKind::Shared | MemoryKind::File => mapping.offset / page_bytes,
    };
    let pages = (mapping.end - mapping.start) / page_bytes;
    let start = mapping.start;
    let address = move |page: u64| start + (page - first) * page_bytes;
    let runs = part.runs(first..first.saturating_add(pages));
    runs.map(move |run| Span {
        range: address(run.start)..address(run.end),
        known,
    })
}

/// What is known about a mapping's pages; `None` if none of them is to move.
fn known(mapping: &maps::Mapping, on: &NodePages, to: NodeId, page_bytes: u64) -> Option<Known> {
    let there = pages_on(&on.pages, |node| node == to);
    let elsewhere = pages_on(&on.pages, |node| node != to);
    let room = (mapping.end - mapping.start) / page_bytes;
    let known = match there {
        0 if elsewhere == room => Known::AllElsewhere,
        0 => Known::NoneOnTarget,
        _ => Known::Nothing,
    };
    (elsewhere > 0).then_some(known)
}

fn pages_on(pages: &[(NodeId, u64)], which: impl Fn(NodeId) -> bool) -> u64 {
    pages
        .iter()
        .filter(|&&(node, _)| which(node))
        .map(|&(_, pages)| pages)
        .sum()
}

/// The pages of each mapping on each node, by its first address.
fn on_nodes(root: &Root, process: ProcessId, page_bytes: u64) -> Option<BTreeMap<u64, NodePages>> {
    let text = root.read(&format!("proc/{}/numa_maps", process.pid)).ok()?;
    let mappings = numa_maps::parse(&text, page_bytes, None);
    Some(mappings.into_iter().map(|m| (m.start, m)).collect())
}

/// In an entry of `pagemap`: the page is present.
const PRESENT: u64 = 1 << 63;
/// Likewise: no other process maps it.
const ALONE: u64 = 1 << 56;

/// Which pages of a range are present; `None` if the kernel does not say.
pub(crate) fn present(
    root: &Root,
    process: ProcessId,
    range: &Range<u64>,
    page_bytes: u64,
) -> Option<Vec<bool>> {
    let entries = pagemap(root, process, range, page_bytes)?;
    Some(entries.iter().map(|entry| entry & PRESENT != 0).collect())
}

/// Whether only this process maps the present pages of a range; `None` if the kernel does not say.
pub(crate) fn alone(
    root: &Root,
    process: ProcessId,
    range: &Range<u64>,
    page_bytes: u64,
) -> Option<bool> {
    let entries = pagemap(root, process, range, page_bytes)?;
    let is_alone = |entry: &u64| entry & PRESENT == 0 || entry & ALONE != 0;
    Some(entries.iter().all(is_alone))
}

fn pagemap(
    root: &Root,
    process: ProcessId,
    range: &Range<u64>,
    page_bytes: u64,
) -> Option<Vec<u64>> {
    const ENTRY: u64 = 8;
    let file = root.open(&format!("proc/{}/pagemap", process.pid)).ok()?;
    let pages = (range.end - range.start) / page_bytes;
    let mut bytes = vec![0; usize::try_from(pages * ENTRY).ok()?];
    file.read_exact_at(&mut bytes, range.start / page_bytes * ENTRY)
        .ok()?;
    let entries = bytes.as_chunks::<8>().0.iter();
    Some(entries.map(|entry| u64::from_ne_bytes(*entry)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_world::ThreadId;
    use std::borrow::Cow;
    use std::path::Path;

    const PAGE: u64 = 4096;

    fn mapping(first: u64, count: u64) -> maps::Mapping {
        maps::Mapping {
            start: first * PAGE,
            end: (first + count) * PAGE,
            offset: 0,
            shared: false,
            movable: true,
        }
    }

    fn order(pages: Pages) -> PageOrder {
        PageOrder {
            process: ProcessId { pid: 1, born: 1 },
            thread: ThreadId { tid: 1, born: 1 },
            pages,
            to: NodeId(0),
            rule: Cow::Borrowed("test"),
            why: String::new(),
        }
    }

    /// Of every window of up to eight pages over two mappings of up to three, with and without a gap between them.
    #[test]
    fn the_spans_of_every_small_window_are_its_pages_that_are_mapped() {
        let none = Root::new(Path::new("/nowhere"));
        let lengths = || (1..=3).flat_map(|one| (1..=3).map(move |other| (one, other)));
        for ((one, other), gap) in lengths().flat_map(|lengths| [0, 2].map(|gap| (lengths, gap))) {
            let mappings = [mapping(2, one), mapping(2 + one + gap, other)];
            for (first, count) in (0..10).flat_map(|first| (0..=8).map(move |count| (first, count)))
            {
                let order = order(Pages::Window { first, count });
                let spans = spans(&none, &order, &mappings, PAGE);
                assert!(spans.iter().all(|span| !span.range.is_empty()), "{spans:?}");
                let found = spans
                    .into_iter()
                    .flat_map(|span| span.range.step_by(PAGE as usize));
                let is_mapped = |address: &u64| {
                    let is_in =
                        |mapping: &maps::Mapping| (mapping.start..mapping.end).contains(address);
                    mappings.iter().any(is_in)
                };
                let named = (first..first + count).map(|page| page * PAGE);
                assert!(
                    found.eq(named.filter(is_mapped)),
                    "{count} from {first} of {mappings:?}"
                );
            }
        }
    }

    #[test]
    fn what_others_map_too_is_no_part_of_an_order_for_all() {
        let process = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(process.path().join("proc/1")).unwrap();
        let numa_maps = "2000 default anon=2 mapmax=9 N1=2\n8000 default anon=2 N1=2\n\
                         c000 default file=/dev/shm/x dirty=2 mapmax=2 N1=2\n\
                         10000 default file=/lib/x.so anon=2 dirty=2 mapmax=9 N1=2\n\
                         14000 default file=/lib/x.so anon=2 dirty=2 N1=2\n";
        std::fs::write(process.path().join("proc/1/numa_maps"), numa_maps).unwrap();
        let mappings = [2, 8, 12, 16, 20].map(|first| mapping(first, 2));
        let root = Root::new(process.path());
        let first = |pages| -> Vec<u64> {
            let spans = spans(&root, &order(pages), &mappings, PAGE);
            spans.iter().map(|span| span.range.start / PAGE).collect()
        };
        let of_kind = |kind| Pages::OfKind {
            kind,
            part: Part::WHOLE,
        };
        assert_eq!(first(Pages::All), [8, 20]);
        assert_eq!(first(of_kind(MemoryKind::Private)), [8, 20]);
        assert_eq!(first(of_kind(MemoryKind::Shared)), [2, 12]);
    }
}
