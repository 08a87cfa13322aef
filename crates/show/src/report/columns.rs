//! Down-sampling: a figure over time as a few hundred columns, however long the run is.
//!
//! A column is 2^`shift` ns wide. The length of a run is not known while it is read: when time grows
//! beyond [`MOST`] columns, the [`Clock`] doubles their width, and each [`Columns`] merges its own two by
//! two when it next takes something in. Merging cells is associative and commutative, so the result is
//! the same as if the final width had been known from the start, up to rounding.
//!
//! A [`Columns`] holds at most [`MOST`] cells, and fewer for a thread or process that was there only
//! for a while.

/// Most columns that a run is drawn in. A run that is longer than this many of the finest columns has at least half as
/// many.
pub(super) const MOST: u64 = 512;

/// Width of the finest columns: 2^20 ns, about 1 ms.
const FINEST: u32 = 20;

/// The content of a column.
pub(super) trait Cell: Clone + Default {
    /// Merges the content of another column, or of another part of the same column.
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
    /// A clock that starts here.
    pub(super) fn starting(origin_ns: u64) -> Self {
        Self {
            origin_ns,
            shift: FINEST,
            span_ns: 0,
        }
    }

    /// Takes in a point in time, which may make columns wider.
    pub(super) fn saw(&mut self, time_ns: u64) {
        self.span_ns = self.span_ns.max(self.since(time_ns));
        while self.span_ns >> self.shift >= MOST {
            self.shift += 1;
        }
    }

    /// A point in time in ns from the origin; times before the origin count as the origin.
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
    /// Takes in a content that held over a span of time; `cell` receives the ns of the span that fall into each column.
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

    /// Takes in an event at a point in time.
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

    /// The columns from the first to the last with content, each with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &C)> {
        (self.first..).zip(&self.cells)
    }
}

/// The least, mean and greatest of a figure; the mean is weighted by time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    /// Least and greatest; `None` where nothing was measured.
    pub(super) ends: Option<(f64, f64)>,
    weighted: f64,
    weight: f64,
}

impl Spread {
    /// A figure that held for `ns`. One that is not finite counts as not measured.
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
        // Rounding must not take the mean beyond the ends, nor an overflow make it infinite.
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

/// A number of things.
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
    /// Nowhere: the thread did not exist.
    #[default]
    Absent,
    /// On the node with this index in the machine's list.
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
