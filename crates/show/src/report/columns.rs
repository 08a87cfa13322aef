//! Down-sampling: a figure over time as a few hundred columns, however long the run.
//!
//! A column is 2^`shift` ns wide. The length of a run is not known while it is read: when time grows
//! beyond [`MOST`] columns, the [`Clock`] doubles their width, and each [`Columns`] merges its own two by
//! two when it next takes something in. Merging cells is associative and commutative, so the result is
//! the same as if the final width had been known from the start, up to rounding.
//!
//! A [`Columns`] holds at most [`MOST`] cells, and fewer for a thread or process that was there only
//! for a while.

/// Most columns that a run is drawn in; a run longer than this many of the finest has at least half.
pub(super) const MOST: u64 = 512;

/// Width of the finest columns: 2^20 ns, about 1 ms.
const FINEST: u32 = 20;

/// What is drawn in a column.
pub(super) trait Cell: Clone + Default {
    /// Takes in what another column, or another part of the same, holds.
    fn merge(&mut self, other: &Self);
}

/// Where time begins and how wide columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Where the first column begins, in ns since the world began.
    pub(super) origin_ns: u64,
    /// Columns are 2^`shift` ns wide.
    pub(super) shift: u32,
    /// The latest time that was seen, in ns from the origin.
    pub(super) span_ns: u64,
}

impl Clock {
    /// Time from here on.
    pub(super) fn starting(origin_ns: u64) -> Self {
        Self {
            origin_ns,
            shift: FINEST,
            span_ns: 0,
        }
    }

    /// Takes in a point in time, for which columns may become wider.
    pub(super) fn saw(&mut self, time_ns: u64) {
        self.span_ns = self.span_ns.max(self.since(time_ns));
        while self.span_ns >> self.shift >= MOST {
            self.shift += 1;
        }
    }

    /// A point in time in ns from the origin; what is before it counts as at it.
    pub(super) fn since(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.origin_ns)
    }

    /// Width of a column in ns.
    pub(super) fn width_ns(&self) -> u64 {
        1 << self.shift
    }
}

/// Something over time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Columns<C> {
    shift: u32,
    /// The column of `cells[0]`.
    first: u64,
    cells: Vec<C>,
}

/// Nothing yet.
impl<C> Default for Columns<C> {
    fn default() -> Self {
        Self {
            shift: FINEST,
            first: 0,
            cells: Vec::new(),
        }
    }
}

impl<C: Cell> Columns<C> {
    /// Takes in what held over a span of time: `cell` is given how many ns of it fall into each
    /// column that it meets.
    pub(super) fn put(
        &mut self,
        clock: &Clock,
        (begin_ns, end_ns): (u64, u64),
        cell: impl Fn(u64) -> C,
    ) {
        self.coarsen(clock.shift);
        let (begin, end) = (clock.since(begin_ns), clock.since(end_ns));
        if end <= begin {
            return;
        }
        for column in begin >> self.shift..=(end - 1) >> self.shift {
            let from = begin.max(column << self.shift);
            let left = (column << self.shift) + (clock.width_ns() - 1);
            let share = end.min(left.saturating_add(1)) - from;
            self.at(column).merge(&cell(share));
        }
    }

    /// Takes in what happened at a point in time.
    pub(super) fn add(&mut self, clock: &Clock, time_ns: u64, cell: &C) {
        self.coarsen(clock.shift);
        self.at(clock.since(time_ns) >> self.shift).merge(cell);
    }

    fn at(&mut self, column: u64) -> &mut C {
        if self.cells.is_empty() {
            self.first = column;
        }
        if column < self.first {
            let missing = self.first - column;
            let missing = std::iter::repeat_n(C::default(), missing as usize);
            self.cells.splice(0..0, missing);
            self.first = column;
        }
        let place = (column - self.first) as usize;
        if place >= self.cells.len() {
            self.cells.resize(place + 1, C::default());
        }
        &mut self.cells[place]
    }

    /// Makes columns as wide as 2^`shift` ns; they never become narrower.
    pub(super) fn coarsen(&mut self, shift: u32) {
        let by = shift.saturating_sub(self.shift);
        if by == 0 {
            return;
        }
        let mut merged: Vec<C> = Vec::with_capacity((self.cells.len() >> by) + 2);
        let first = self.first >> by;
        for (place, cell) in self.cells.iter().enumerate() {
            let to = (((self.first + place as u64) >> by) - first) as usize;
            if to >= merged.len() {
                merged.resize(to + 1, C::default());
            }
            merged[to].merge(cell);
        }
        self.first = first;
        self.cells = merged;
        self.shift = shift;
    }

    /// Each column that there is something in, with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &C)> {
        (self.first..).zip(&self.cells)
    }
}

/// The least, the mean and the greatest of a figure, the mean weighted by time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    /// Least and greatest; `None` where nothing was measured.
    pub(super) ends: Option<(f64, f64)>,
    weighted: f64,
    weight: f64,
}

impl Spread {
    /// A figure that held for so many ns. What is no number was not measured.
    pub(super) fn of(figure: f64, ns: u64) -> Self {
        if !figure.is_finite() {
            return Self::default();
        }
        Self {
            ends: Some((figure, figure)),
            weighted: figure * ns as f64,
            weight: ns as f64,
        }
    }

    /// The mean, where anything was measured.
    pub(super) fn mean(&self) -> Option<f64> {
        let (least, greatest) = self.ends?;
        let mean = self.weighted / self.weight;
        // Rounding must not take it beyond the ends, nor a sum beyond all numbers.
        Some(if mean.is_finite() {
            mean.clamp(least, greatest)
        } else {
            greatest
        })
    }
}

impl Cell for Spread {
    fn merge(&mut self, other: &Self) {
        self.ends = match (self.ends, other.ends) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
        self.weighted += other.weighted;
        self.weight += other.weight;
    }
}

/// How many of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount(pub(super) u64);

impl Cell for Amount {
    fn merge(&mut self, other: &Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// Where a thread was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stay {
    /// Nowhere: it was not there.
    #[default]
    Absent,
    /// On the node of this place in the machine's list.
    On(u16),
    /// On several nodes, one after the other.
    Several,
}

impl Cell for Stay {
    fn merge(&mut self, other: &Self) {
        *self = match (*self, *other) {
            (Self::Absent, stay) | (stay, Self::Absent) => stay,
            (one, two) if one == two => one,
            _ => Self::Several,
        };
    }
}

#[cfg(test)]
mod tests;
