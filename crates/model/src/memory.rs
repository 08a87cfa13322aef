//! Where a process's pages are, and which nodes therefore answer its threads' accesses.
//!
//! Pages are numbered from [`FIRST_PAGE`] on: first those that all threads use, then each thread's
//! own part, in order. They are kept as runs of neighbours on one node, so that a process of
//! millions of pages costs no more than the pieces it was moved in. Within a region accesses go to
//! the hot pages, which come first, and the others as the profile says ([`Hot`]), evenly within each.

use std::collections::BTreeMap;
use std::ops::Range;

use numaherd_world::{MemoryKind, Pages};
use rand::Rng;

use crate::program::{Hot, Program};

/// Number of a process's first page: an address that is not the lowest page of any real process.
const FIRST_PAGE: u64 = 0x10_0000;

/// One process's pages.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// Runs by first page: end and node, without gaps between the process's first page and last.
    runs: BTreeMap<u64, (u64, usize)>,
    shared: Range<u64>,
    own: Vec<Range<u64>>,
    shared_accesses: f64,
    hot: Option<Hot>,
}

impl Memory {
    /// The pages of a process that is about to touch them. `place` is asked once for the pages of
    /// each region, the shared one first, then those of each thread: it answers with nodes and how
    /// many of the pages each takes, in order.
    pub(crate) fn new(
        program: &Program,
        page_bytes: u64,
        mut place: impl FnMut(Option<usize>, u64) -> Vec<(usize, u64)>,
    ) -> Self {
        let pages = (program.footprint_bytes / page_bytes).max(u64::from(program.threads) + 1);
        let threads = u64::from(program.threads);
        // Their share of the accesses is the best guess at their share of the pages.
        let shared = if threads == 1 {
            0
        } else {
            (pages as f64 * program.shared_accesses).round() as u64
        };
        let each = (pages - shared) / threads;
        let mut memory = Self {
            runs: BTreeMap::new(),
            shared: FIRST_PAGE..FIRST_PAGE + shared,
            own: Vec::new(),
            shared_accesses: if shared > 0 && each > 0 {
                program.shared_accesses
            } else {
                f64::from(u8::from(shared > 0))
            },
            hot: program.hot,
        };
        let mut next = memory.shared.end;
        memory.put(memory.shared.clone(), place(None, shared));
        for thread in 0..program.threads as usize {
            let part = next..next + each;
            memory.put(part.clone(), place(Some(thread), each));
            memory.own.push(part);
            next += each;
        }
        memory
    }

    fn put(&mut self, range: Range<u64>, nodes: Vec<(usize, u64)>) {
        let mut next = range.start;
        for (node, pages) in nodes {
            let end = (next + pages).min(range.end);
            if end > next {
                self.runs.insert(next, (end, node));
                next = end;
            }
        }
    }

    /// Pages by node.
    pub(crate) fn by_node(&self, nodes: usize) -> Vec<u64> {
        let mut pages = vec![0; nodes];
        for (&first, &(end, node)) in &self.runs {
            pages[node] += end - first;
        }
        pages
    }

    /// Nodes and the share of one thread's accesses that each answers, without empty ones.
    pub(crate) fn answered_by(&self, thread: usize, nodes: usize) -> Vec<(usize, f64)> {
        self.answered_given(thread, nodes, None, None)
    }

    /// The same if the shared pages, or the thread's own, were spread over all nodes by these shares.
    pub(crate) fn answered_given(
        &self,
        thread: usize,
        nodes: usize,
        shared: Option<Vec<f64>>,
        own: Option<Vec<f64>>,
    ) -> Vec<(usize, f64)> {
        let mut parts = vec![0.0; nodes];
        let regions = [
            (self.shared.clone(), self.shared_accesses, shared),
            (self.own[thread].clone(), 1.0 - self.shared_accesses, own),
        ];
        for (region, accesses, home) in regions {
            match home {
                None => self.spread(region, accesses, &mut parts),
                Some(_) if region.is_empty() => {}
                Some(home) => {
                    for (part, share) in parts.iter_mut().zip(home) {
                        *part += accesses * share;
                    }
                }
            }
        }
        let all: f64 = parts.iter().sum();
        let parts = parts.into_iter().enumerate();
        let parts = parts.filter(|&(_, part)| part > 0.0);
        parts.map(|(node, part)| (node, part / all)).collect()
    }

    /// The runs of a thread's own pages, or of those that all threads share (`None`). Each run is accessed evenly.
    pub(crate) fn alike(&self, thread: Option<usize>) -> Vec<Range<u64>> {
        let region = thread.map_or(&self.shared, |thread| &self.own[thread]);
        if region.is_empty() {
            return Vec::new();
        }
        let (hot, _) = self.hot_part(region);
        let cold = hot.end..region.end;
        [hot, cold]
            .into_iter()
            .filter(|run| !run.is_empty())
            .collect()
    }

    /// All pages.
    pub(crate) fn pages(&self) -> u64 {
        let (first, end) = self.bounds();
        end - first
    }

    /// The `count` pages after the first `done`, or fewer at the end of the memory.
    pub(crate) fn window(&self, done: u64, count: u64) -> Range<u64> {
        let (first, end) = self.bounds();
        let start = (first + done).min(end);
        start..(start + count).min(end)
    }

    fn bounds(&self) -> (u64, u64) {
        let last = self.runs.last_key_value();
        (FIRST_PAGE, last.map_or(FIRST_PAGE, |(_, &(end, _))| end))
    }

    /// The parts of the memory. Each part is accessed evenly.
    pub(crate) fn evenly(&self) -> impl Iterator<Item = Part> + '_ {
        let own = self.own.iter().enumerate();
        let own = own.map(|(thread, pages)| (Some(thread), pages, 1.0 - self.shared_accesses));
        let shared = (None, &self.shared, self.shared_accesses);
        let regions = std::iter::once(shared).chain(own);
        let regions = regions.filter(|(_, pages, _)| !pages.is_empty());
        let parts = regions.flat_map(|(owner, region, accesses)| {
            let (hot, share) = self.hot_part(region);
            let cold = hot.end..region.end;
            let part = |pages, accesses| Part {
                owner,
                pages,
                accesses,
            };
            [
                part(hot, accesses * share),
                part(cold, accesses * (1.0 - share)),
            ]
        });
        parts.filter(|part| !part.pages.is_empty())
    }

    /// Pages of some runs by node.
    pub(crate) fn in_runs(&self, runs: &[Range<u64>], nodes: usize) -> Vec<u64> {
        let mut pages = vec![0; nodes];
        for run in runs {
            for (overlap, node) in self.within(run.clone()) {
                pages[node] += overlap.end - overlap.start;
            }
        }
        pages
    }

    /// Adds to each node its part of the accesses to a region.
    fn spread(&self, region: Range<u64>, accesses: f64, parts: &mut [f64]) {
        if region.is_empty() || accesses <= 0.0 {
            return;
        }
        let (hot, share) = self.hot_part(&region);
        for (range, accesses) in [
            (hot.clone(), accesses * share),
            (hot.end..region.end, accesses * (1.0 - share)),
        ] {
            let pages = (range.end - range.start) as f64;
            for (overlap, node) in self.within(range) {
                parts[node] += accesses * (overlap.end - overlap.start) as f64 / pages;
            }
        }
    }

    /// The hot pages of a region and their share of its accesses.
    fn hot_part(&self, region: &Range<u64>) -> (Range<u64>, f64) {
        let pages = region.end - region.start;
        let Some(hot) = self.hot else {
            return (region.clone(), 1.0);
        };
        let hot_pages = ((pages as f64 * hot.pages).round() as u64).clamp(1, pages);
        let share = if hot_pages == pages {
            1.0
        } else {
            hot.accesses
        };
        (region.start..region.start + hot_pages, share)
    }

    /// The runs within a range, cut to it.
    pub(crate) fn within(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, usize)> + '_ {
        let before = self.runs.range(..range.start).next_back();
        let after = self.runs.range(range.clone());
        before
            .into_iter()
            .chain(after)
            .filter_map(move |(&first, &(end, node))| {
                let overlap = first.max(range.start)..end.min(range.end);
                (overlap.start < overlap.end).then_some((overlap, node))
            })
    }

    /// A page that one thread accesses, drawn, and its node.
    pub(crate) fn draw(&self, thread: usize, random: &mut impl Rng) -> (u64, usize) {
        let shared = random.random::<f64>() < self.shared_accesses;
        let own = self.own[thread].clone();
        let region = if shared || own.is_empty() {
            self.shared.clone()
        } else {
            own
        };
        let (hot, share) = self.hot_part(&region);
        let range = if random.random::<f64>() < share {
            hot
        } else {
            hot.end..region.end
        };
        let page = random.random_range(range);
        let (_, &(_, node)) = self.runs.range(..=page).next_back().expect("a page of it");
        (page, node)
    }

    /// Moves pages to a node, as many as `room` allows; the rest counts as [`Moved::no_room`].
    pub(crate) fn migrate(&mut self, pages: Pages, to: usize, room: u64) -> Moved {
        let all = match (self.runs.first_key_value(), self.runs.last_key_value()) {
            (Some((&first, _)), Some((_, &(end, _)))) => first..end,
            _ => 0..0,
        };
        let asked = match pages {
            Pages::All => all.clone(),
            Pages::Window { first, count } => first..first.saturating_add(count),
            // All memory of a modelled program is private.
            Pages::OfKind {
                kind: MemoryKind::Private,
                part,
            } => {
                let mut moved = Moved::default();
                for run in part.runs(all) {
                    let window = Pages::Window {
                        first: run.start,
                        count: run.end - run.start,
                    };
                    moved.add(self.migrate(window, to, room - moved.pages()));
                }
                return moved;
            }
            Pages::OfKind { .. } => 0..0,
        };
        let range = asked.start.max(all.start)..asked.end.min(all.end);
        let mut moved = Moved {
            not_there: if range.start < range.end {
                (asked.end - asked.start) - (range.end - range.start)
            } else {
                asked.end - asked.start
            },
            ..Moved::default()
        };
        if range.start >= range.end {
            return moved;
        }
        let there: Vec<(Range<u64>, usize)> = self.within(range).collect();
        let mut room = room;
        for (mut run, node) in there {
            if node == to {
                moved.already_there += run.end - run.start;
                continue;
            }
            let fits = (run.end - run.start).min(room);
            moved.no_room += run.end - run.start - fits;
            run.end = run.start + fits;
            if fits > 0 {
                self.set(run, to);
                room -= fits;
                moved.from.push((node, fits));
            }
        }
        moved
    }

    /// Puts a range, which is within one run, on a node.
    fn set(&mut self, range: Range<u64>, to: usize) {
        let (&first, &(end, node)) = self
            .runs
            .range(..=range.start)
            .next_back()
            .expect("the run it was taken from");
        self.runs.remove(&first);
        if first < range.start {
            self.runs.insert(first, (range.start, node));
        }
        if range.end < end {
            self.runs.insert(range.end, (end, node));
        }
        // Join the run with neighbours on the same node.
        let mut joined = range;
        if let Some((&before, &(its_end, its_node))) = self.runs.range(..joined.start).next_back()
            && its_end == joined.start
            && its_node == to
        {
            self.runs.remove(&before);
            joined.start = before;
        }
        if let Some(&(its_end, its_node)) = self.runs.get(&joined.end)
            && its_node == to
        {
            self.runs.remove(&joined.end);
            joined.end = its_end;
        }
        self.runs.insert(joined.start, (joined.end, to));
    }
}

/// Pages that are accessed evenly.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The index of the thread that owns them; `None` for those that all threads share.
    pub(crate) owner: Option<usize>,
    pub(crate) pages: Range<u64>,
    /// Share of a thread's accesses that go there.
    pub(crate) accesses: f64,
}

/// What became of an order to move pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Pages that moved, by the node they came from.
    pub(crate) from: Vec<(usize, u64)>,
    pub(crate) already_there: u64,
    pub(crate) no_room: u64,
    pub(crate) not_there: u64,
}

impl Moved {
    /// Adds what became of another order.
    fn add(&mut self, other: Self) {
        self.from.extend(other.from);
        self.already_there += other.already_there;
        self.no_room += other.no_room;
        self.not_there += other.not_there;
    }

    /// All pages that moved.
    pub(crate) fn pages(&self) -> u64 {
        self.from.iter().map(|&(_, pages)| pages).sum()
    }
}
