//! The page table of all processes: on which node and in which frame each page is, and which nodes accessed it.
//!
//! A page's number is its place in the table. TLBs and the IPM unit know it by that number and the low bits of its
//! virtual page number ([`PageTable::tlb_page`]), so that it falls into the TLB set of its address, pages of different
//! processes are never confused, and neither has to be looked up by address.
//!
//! Frames of a node are given out in order. A frame that a page has left is used again only once so many others were
//! left after it that no cache still holds its lines, or once the node has no other.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use numaherd_hardware::{Page as TlbPage, Span};

/// Bits of the virtual page number in a TLB's page: enough for 2^12 sets.
const SET_BITS: u32 = 12;

#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Index of its process.
    pub(super) process: u32,
    /// Index of its node.
    pub(super) node: u32,
    /// Virtual page number.
    pub(super) number: u64,
    /// Physical address of its first byte.
    pub(super) frame: u64,
    /// When it came to its node, in picoseconds.
    since_ps: u64,
    /// Whether its next access is a hint fault.
    pub(super) is_marked: bool,
    /// Whether an access to it was sampled.
    pub(super) is_sampled: bool,
}

pub(super) struct PageTable {
    page_bytes: u64,
    nodes: usize,
    places: HashMap<(u32, u64), u32, FixedState>,
    pages: Vec<Page>,
    /// Accesses from the cores of each node: row by page.
    accesses: Vec<u64>,
    /// Picoseconds on each node, up to `since_ps`: row by page.
    time_on: Vec<u64>,
    frames: Vec<Frames>,
    /// Pages of each process on each node: row by process.
    resident: Vec<u64>,
    /// Accesses to pages that were on another node than the core at that time.
    remote_accesses: u64,
    moves: u64,
}

/// The frames of a node.
struct Frames {
    next: u64,
    end: u64,
    left: VecDeque<u64>,
    used: u64,
}

/// Why a page was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotMoved {
    AlreadyThere,
    NodeFull,
}

/// Bytes of empty frames above which the frame left first is used again: several times what the caches of any machine
/// hold.
const LEFT_BYTES: u64 = 1 << 30;

impl PageTable {
    pub(super) fn new(page_bytes: u64, spans: &[Span], processes: usize) -> Self {
        Self {
            page_bytes,
            nodes: spans.len(),
            places: HashMap::default(),
            pages: Vec::new(),
            accesses: Vec::new(),
            time_on: Vec::new(),
            frames: spans
                .iter()
                .map(|span| Frames {
                    next: span.start,
                    end: span.end,
                    left: VecDeque::new(),
                    used: 0,
                })
                .collect(),
            resident: vec![0; spans.len() * processes],
            remote_accesses: 0,
            moves: 0,
        }
    }

    /// The place of a page, if it has been touched.
    pub(super) fn find(&self, process: u32, number: u64) -> Option<usize> {
        let place = self.places.get(&(process, number))?;
        Some(*place as usize)
    }

    pub(super) fn get(&self, place: usize) -> &Page {
        &self.pages[place]
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter()
    }

    /// A page's identity in the TLBs.
    pub(super) fn tlb_page(&self, place: usize) -> TlbPage {
        let low = self.pages[place].number & ((1 << SET_BITS) - 1);
        TlbPage::new((place as u64) << SET_BITS | low)
    }

    /// The place of the page with that identity.
    #[inline]
    pub(super) fn place_of(page: TlbPage) -> usize {
        (page.number() >> SET_BITS) as usize
    }

    /// Gives a new page a frame on the first node of `wanted` that has one left; `None` if no node has.
    pub(super) fn touch(
        &mut self,
        process: u32,
        number: u64,
        wanted: impl IntoIterator<Item = usize>,
        now_ps: u64,
    ) -> Option<usize> {
        let page_bytes = self.page_bytes;
        let (node, frame) = wanted
            .into_iter()
            .find_map(|node| Some((node, self.frames[node].take(page_bytes)?)))?;
        let place = self.pages.len();
        self.places
            .insert((process, number), u32::try_from(place).ok()?);
        self.pages.push(Page {
            process,
            node: node as u32,
            number,
            frame,
            since_ps: now_ps,
            is_marked: false,
            is_sampled: false,
        });
        self.accesses.resize((place + 1) * self.nodes, 0);
        self.time_on.resize((place + 1) * self.nodes, 0);
        self.resident[process as usize * self.nodes + node] += 1;
        Some(place)
    }

    /// Moves a page to another node.
    pub(super) fn relocate(
        &mut self,
        place: usize,
        to: usize,
        now_ps: u64,
    ) -> Result<(), NotMoved> {
        let from = self.pages[place].node as usize;
        if from == to {
            return Err(NotMoved::AlreadyThere);
        }
        let frame = self.frames[to]
            .take(self.page_bytes)
            .ok_or(NotMoved::NodeFull)?;
        let page = &mut self.pages[place];
        self.time_on[place * self.nodes + from] += now_ps.saturating_sub(page.since_ps);
        self.frames[from].leave(page.frame);
        (page.node, page.frame, page.since_ps) = (to as u32, frame, now_ps);
        let resident = &mut self.resident[page.process as usize * self.nodes..][..self.nodes];
        resident[from] -= 1;
        resident[to] += 1;
        self.moves += 1;
        Ok(())
    }

    /// Adds accesses from the cores of a node, made while the page was where it is.
    #[inline]
    pub(super) fn count(&mut self, place: usize, node: usize, accesses: u64) {
        self.accesses[place * self.nodes + node] += accesses;
        if self.pages[place].node as usize != node {
            self.remote_accesses += accesses;
        }
    }

    pub(super) fn mark(&mut self, place: usize) {
        self.pages[place].is_marked = true;
    }

    pub(super) fn note_sample(&mut self, place: usize) {
        self.pages[place].is_sampled = true;
    }

    pub(super) fn unmark(&mut self, place: usize) {
        self.pages[place].is_marked = false;
    }

    /// Accesses to a page from the cores of each node.
    pub(super) fn accesses(&self, place: usize) -> &[u64] {
        &self.accesses[place * self.nodes..][..self.nodes]
    }

    /// Picoseconds that a page has been on a node until `now_ps`.
    pub(super) fn time_on(&self, place: usize, node: usize, now_ps: u64) -> u64 {
        let page = &self.pages[place];
        let here = if page.node as usize == node {
            now_ps.saturating_sub(page.since_ps)
        } else {
            0
        };
        self.time_on[place * self.nodes + node] + here
    }

    /// Pages of a process on each node.
    pub(super) fn resident(&self, process: usize) -> &[u64] {
        &self.resident[process * self.nodes..][..self.nodes]
    }

    /// Bytes of a node's memory that are in use.
    pub(super) fn used_bytes(&self, node: usize) -> u64 {
        self.frames[node].used * self.page_bytes
    }

    pub(super) fn remote_accesses(&self) -> u64 {
        self.remote_accesses
    }

    pub(super) fn moves(&self) -> u64 {
        self.moves
    }
}

impl Frames {
    fn take(&mut self, page_bytes: u64) -> Option<u64> {
        let is_cold = self.left.len() as u64 * page_bytes > LEFT_BYTES;
        let frame = if !is_cold && self.next + page_bytes <= self.end {
            self.next += page_bytes;
            self.next - page_bytes
        } else {
            self.left.pop_front()?
        };
        self.used += 1;
        Some(frame)
    }

    fn leave(&mut self, frame: u64) {
        self.left.push_back(frame);
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pages_per_node: u64) -> PageTable {
        let span = |node: usize| Span {
            start: node as u64 * (1 << 30),
            end: node as u64 * (1 << 30) + pages_per_node * 4096,
            node,
        };
        PageTable::new(4096, &[span(0), span(1)], 1)
    }

    #[test]
    fn a_full_node_sends_new_pages_to_the_next_and_refuses_moves() {
        let mut table = table(2);
        let nodes: Vec<u32> = (0..4)
            .map(|number| {
                let place = table.touch(0, number, [0, 1], 0).unwrap();
                table.get(place).node
            })
            .collect();
        assert_eq!(nodes, [0, 0, 1, 1]);
        assert_eq!(table.touch(0, 9, [0, 1], 0), None);
        assert_eq!(table.relocate(0, 1, 5), Err(NotMoved::NodeFull));
        assert_eq!(table.relocate(0, 0, 5), Err(NotMoved::AlreadyThere));
        assert_eq!(
            (table.resident(0), table.used_bytes(0)),
            (&[2, 2][..], 8192)
        );
    }

    #[test]
    fn a_left_frame_is_used_again_when_there_is_no_other() {
        let mut table = table(1);
        table.touch(0, 7, [0], 0).unwrap();
        assert_eq!(table.relocate(0, 1, 0), Ok(()));
        assert_eq!(table.touch(0, 8, [0, 1], 0), Some(1));
        assert_eq!((table.get(0).node, table.get(1).node), (1, 0));
    }

    #[test]
    fn time_and_accesses_are_told_by_node() {
        let mut table = table(8);
        table.touch(0, 7, [0], 100).unwrap();
        table.count(0, 1, 10);
        table.relocate(0, 1, 400).unwrap();
        table.count(0, 1, 5);
        assert_eq!(
            (table.time_on(0, 0, 1000), table.time_on(0, 1, 1000)),
            (300, 600)
        );
        assert_eq!(
            (table.accesses(0), table.remote_accesses()),
            (&[0, 15][..], 10)
        );
    }

    #[test]
    fn tlb_pages_keep_the_low_bits_of_the_address_and_their_place() {
        let mut table = table(8);
        table.touch(0, 0x7fff_1234_5678, [0], 0).unwrap();
        table.touch(0, 0x1_0678, [0], 0).unwrap();
        let (one, other) = (table.tlb_page(0), table.tlb_page(1));
        assert_ne!(one, other);
        assert_eq!(one.number() & 0xfff, 0x678);
        assert_eq!(
            (PageTable::place_of(one), PageTable::place_of(other)),
            (0, 1)
        );
    }
}
