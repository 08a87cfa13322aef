//! The orders let through in this call, found by their pages.
//!
//! Policies that judge each page by itself give thousands of orders at once. The time to look one up here does not
//! grow with their number: orders are indexed by the pieces of memory that they touch, and the few that touch many
//! are kept apart.

use std::collections::HashMap;

use numaherd_world::{PageOrder, Pages, ProcessId};

use super::{PIECE_PAGES, pieces};

/// Orders that touch more pieces than this are searched one by one.
const MANY: u64 = 16;

/// See the module's documentation. Orders are known by their indices in `orders`.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    orders: Vec<PageOrder>,
    large: Vec<usize>,
    by_piece: HashMap<(ProcessId, u64), Vec<usize>>,
}

impl Ordered {
    /// The orders, as let through.
    pub(super) fn into_orders(self) -> Vec<PageOrder> {
        self.orders
    }

    pub(super) fn push(&mut self, order: PageOrder) {
        let at = self.orders.len();
        match small(&order.pages) {
            Some(pieces) => {
                for piece in pieces {
                    let touch = self.by_piece.entry((order.process, piece)).or_default();
                    touch.push(at);
                }
            }
            None => self.large.push(at),
        }
        self.orders.push(order);
    }

    /// The first order that has pages of this one, and is the same or goes elsewhere.
    pub(super) fn elsewhere(&self, order: &PageOrder) -> Option<&PageOrder> {
        let clashes = |&at: &usize| {
            let other = &self.orders[at];
            other.process == order.process
                && (other.to != order.to || other.pages == order.pages)
                && overlap(&other.pages, &order.pages)
        };
        let first = match small(&order.pages) {
            Some(pieces) => {
                let touch = pieces.filter_map(|piece| self.by_piece.get(&(order.process, piece)));
                let near = touch.flatten().chain(&self.large).copied();
                near.filter(clashes).min()
            }
            None => (0..self.orders.len()).find(clashes),
        };
        first.map(|at| &self.orders[at])
    }
}

/// The pieces that contain the pages, if few.
fn small(pages: &Pages) -> Option<std::ops::RangeInclusive<u64>> {
    let few = matches!(*pages, Pages::Window { count, .. } if count <= MANY * PIECE_PAGES);
    few.then(|| pieces(pages))
}

pub(super) fn overlap(a: &Pages, b: &Pages) -> bool {
    match (a, b) {
        (
            Pages::Window { first, count },
            Pages::Window {
                first: other,
                count: others,
            },
        ) => *first < other.saturating_add(*others) && *other < first.saturating_add(*count),
        (
            Pages::OfKind { kind, part },
            Pages::OfKind {
                kind: other,
                part: its,
            },
        ) => {
            let are_apart = part.of == its.of
                && (part.first.saturating_add(part.count) <= its.first
                    || its.first.saturating_add(its.count) <= part.first);
            kind == other && !are_apart
        }
        // The kind of a single address is not known here.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_topology::NodeId;
    use numaherd_world::{BLOCK_PAGES, MemoryKind, Part, ThreadId};
    use proptest::prelude::*;

    fn order(process: u32, pages: Pages, to: u32) -> PageOrder {
        PageOrder {
            process: ProcessId {
                pid: process,
                born: 1,
            },
            thread: ThreadId { tid: 1, born: 1 },
            pages,
            to: NodeId(to),
            rule: "test".into(),
            why: String::new(),
        }
    }

    #[test]
    fn kinds_and_parts_that_have_no_page_in_common_do_not_clash() {
        let part = |kind, first, of| {
            let part = Part {
                first,
                count: 1,
                of,
            };
            Pages::OfKind { kind, part }
        };
        let (shared, file) = (MemoryKind::Shared, MemoryKind::File);
        assert!(!overlap(&part(shared, 0, 4), &part(shared, 1, 4)));
        assert!(!overlap(&part(shared, 0, 1), &part(file, 0, 1)));
        assert!(overlap(&part(shared, 1, 4), &part(shared, 1, 4)));
        assert!(
            overlap(&part(shared, 0, 4), &part(shared, 1, 3)),
            "blocks of both"
        );
        assert!(overlap(&part(shared, 0, 4), &Pages::All));
    }

    /// Of up to four pages among ten, at the first address and at the last.
    #[test]
    fn every_two_small_windows_overlap_where_a_page_is_in_both() {
        for base in [0, u64::MAX - 10] {
            let windows =
                (base..base + 7).flat_map(|first| (1..=4).map(move |count| (first, count)));
            let windows: Vec<(u64, u64)> = windows.collect();
            for (&(first, count), &(other, others)) in windows
                .iter()
                .flat_map(|one| windows.iter().map(move |two| (one, two)))
            {
                let one = Pages::Window { first, count };
                let two = Pages::Window {
                    first: other,
                    count: others,
                };
                let both =
                    (first..first + count).any(|page| (other..other + others).contains(&page));
                assert_eq!(overlap(&one, &two), both, "{one:?} and {two:?}");
            }
        }
    }

    /// Of up to four blocks; parts of different numbers of blocks may count as overlapping although they do not.
    #[test]
    fn every_two_small_parts_overlap_where_a_block_is_in_both() {
        let parts = || {
            (1..=4).flat_map(|of| {
                (0..of).flat_map(move |first| {
                    (1..=of - first).map(move |count| Part { first, count, of })
                })
            })
        };
        let kind = MemoryKind::Private;
        for (part, its) in parts().flat_map(|part| parts().map(move |its| (part, its))) {
            // Both begin anew after twelve.
            let mut pages = (0..12).map(|block| block * BLOCK_PAGES);
            let both = pages.any(|page| part.takes(page) && its.takes(page));
            let told = overlap(
                &Pages::OfKind { kind, part },
                &Pages::OfKind { kind, part: its },
            );
            assert_eq!(told, both || part.of != its.of, "{part:?} and {its:?}");
        }
    }

    #[test]
    fn the_pieces_of_every_window_are_those_that_its_pages_are_in() {
        let firsts = PIECE_PAGES - 2..=PIECE_PAGES + 2;
        for first in firsts.chain(0..3) {
            for count in 1..=2 * PIECE_PAGES + 2 {
                let mut expected: Vec<u64> = (first..first + count)
                    .map(|page| page / PIECE_PAGES)
                    .collect();
                expected.dedup();
                let found = pieces(&Pages::Window { first, count });
                assert!(found.eq(expected), "{count} from {first}");
            }
        }
    }

    proptest! {
        /// It finds what looking through all orders finds.
        #[test]
        fn the_first_clash_is_found(
            orders in prop::collection::vec(
                (0u32..2, 0u64..40_000, prop_oneof![0u64..4, 0u64..3000, 0u64..20_000], 0u32..3, 0u8..20),
                0..40,
            ),
        ) {
            let mut ordered = Ordered::default();
            let mut all: Vec<PageOrder> = Vec::new();
            for (process, first, count, to, whole) in orders {
                let kind = MemoryKind::ALL[(count % 3) as usize];
                let part = Part { first: first % 3, count: 1, of: 3 };
                let pages = match whole {
                    0 => Pages::All,
                    1 => Pages::OfKind { kind, part },
                    _ => Pages::Window { first, count },
                };
                let order = order(process, pages, to);
                let clash = all.iter().find(|other| {
                    other.process == order.process
                        && (other.to != order.to || other.pages == order.pages)
                        && overlap(&other.pages, &order.pages)
                });
                prop_assert_eq!(ordered.elsewhere(&order), clash);
                ordered.push(order.clone());
                all.push(order);
            }
            prop_assert_eq!(ordered.into_orders(), all);
        }
    }
}
