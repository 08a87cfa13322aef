//! Lines read from memory against bytes of cache held, and how fast a program fills a cache.
//!
//! Between given points the lines fall linearly in the logarithm of the size; from no cache to the
//! first point, linearly in the size; beyond the last point they stay.
//!
//! A thread that holds `c` bytes brings in 64 x lines(c) / 1000 bytes with each instruction, each
//! of which it did not hold before. So the bytes it holds after `n` instructions, starting empty,
//! solve dc/dn = 64 x lines(c) / 1000. That is the fill time of the higher order theory of
//! locality (Xiang, Ding, Luo, Bao: HOTL, ASPLOS 2013), from which the shares of co-runners in a
//! cache follow. It ends at the program's memory: there is nothing more to hold.
//!
//! It is read off a table that is made once per curve: instructions against sizes, and straight
//! lines between its rows. Properties held: `at` never rises and stays within the given
//! figures; `held_after` never falls.

use std::iter;
use std::sync::Arc;

use crate::CurveError;

/// Bytes of a cache line, of every machine that the profiles speak of.
pub const LINE_BYTES: f64 = 64.0;

/// Sizes per curve at which the instructions to hold that much are worked out, in equal ratios.
const SIZES: usize = 64;

/// Rows start at this many bytes: below it a cache is filled at the rate of no cache at all.
const SMALLEST_BYTES: f64 = 4096.0;

/// Fewer lines per 1000 instructions than this count as this many: one line in 10^12
/// instructions. So the instructions to hold any size are finite.
const FEWEST_LINES: f64 = 1e-9;

/// Lines per 1000 instructions as a function of the bytes of cache held.
/// Cheap to clone: phases that are run through again share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What is fetched with no cache at all.
    cache_accesses: f64,
    /// Ascending in size, never rising in lines; at least one.
    points: Arc<[Point]>,
    /// Ascending in both; the first is at nothing, the last at the program's memory.
    fill: Arc<[Filled]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    bytes: f64,
    /// Natural logarithm of `bytes`.
    ln_bytes: f64,
    lines: f64,
    /// Lines per unit of the logarithm up to the next point; 0 after the last.
    slope: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Filled {
    instructions: f64,
    bytes: f64,
}

impl Curve {
    /// The curve through `cache_accesses` at no cache and `points`, each (bytes of cache, lines
    /// per 1000 instructions), of a program with `footprint_bytes` of memory.
    ///
    /// # Errors
    /// [`CurveError`] where there is no point, a figure is negative or not finite, sizes do
    /// not ascend from above 0, or lines rise with the size.
    pub fn new(
        cache_accesses: f64,
        points: &[(f64, f64)],
        footprint_bytes: f64,
    ) -> Result<Self, CurveError> {
        let wrong = |why: String| Err(CurveError { why });
        if points.is_empty() {
            return wrong("a curve needs one point at least".to_owned());
        }
        if !(footprint_bytes.is_finite() && footprint_bytes > 0.0) {
            return wrong(format!("{footprint_bytes} bytes of memory cannot be"));
        }
        if !(cache_accesses.is_finite() && cache_accesses >= 0.0) {
            return wrong(format!("{cache_accesses} accesses cannot be"));
        }
        let mut before = (0.0, cache_accesses);
        for &(bytes, lines) in points {
            if !(bytes.is_finite() && lines.is_finite() && lines >= 0.0) {
                return wrong(format!("{lines} lines at {} MiB cannot be", mib(bytes)));
            }
            if bytes <= before.0 {
                let (this, that) = (mib(bytes), mib(before.0));
                return wrong(format!("sizes ascend, but {this} MiB follows {that} MiB"));
            }
            if lines > before.1 {
                return wrong(format!(
                    "more cache cannot fetch more, but {lines} lines at {} MiB follow {} at {} MiB",
                    mib(bytes),
                    before.1,
                    mib(before.0)
                ));
            }
            before = (bytes, lines);
        }
        let mut curve = Self {
            cache_accesses,
            points: with_slopes(points),
            fill: Arc::new([]),
        };
        curve.fill = curve.filled(footprint_bytes);
        Ok(curve)
    }

    /// Lines per 1000 instructions with `bytes` of cache.
    pub fn at(&self, bytes: f64) -> f64 {
        self.at_before(
            self.points.partition_point(|point| point.bytes <= bytes),
            bytes,
        )
    }

    /// As [`Self::at`], where `after` is how many of the points are not beyond `bytes`.
    fn at_before(&self, after: usize, bytes: f64) -> f64 {
        if after == 0 {
            let first = &self.points[0];
            let part = (bytes / first.bytes).max(0.0);
            return self.cache_accesses + (first.lines - self.cache_accesses) * part;
        }
        let from = &self.points[after - 1];
        if from.slope == 0.0 {
            return from.lines;
        }
        // Rounding must not lead below the next point.
        let least = self.points[after].lines;
        (from.lines + from.slope * (bytes.ln() - from.ln_bytes)).max(least)
    }

    /// Lines per 1000 instructions with no cache at all: the accesses that reach the cache.
    pub fn cache_accesses(&self) -> f64 {
        self.cache_accesses
    }

    /// The given points: bytes of cache and lines per 1000 instructions, ascending in size.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (f64, f64)> {
        self.points.iter().map(|point| (point.bytes, point.lines))
    }

    /// Bytes of cache that a thread holds after that many instructions of its own, having started with none, while no other
    /// takes any from it: at most the program's memory.
    pub fn held_after(&self, instructions: f64) -> f64 {
        self.filling(instructions, &mut None).0
    }

    /// As [`Self::held_after`], and how many bytes each further instruction adds. `row` is where the table was read last;
    /// the search begins there, and sets it to where the table is read now.
    pub(crate) fn filling(&self, instructions: f64, row: &mut Option<usize>) -> (f64, f64) {
        let is_over = |row: &Filled| row.instructions <= instructions;
        let mut after = row.map_or_else(
            || self.fill.partition_point(is_over),
            |row| row.min(self.fill.len()),
        );
        while after > 0 && !is_over(&self.fill[after - 1]) {
            after -= 1;
        }
        while self.fill.get(after).is_some_and(is_over) {
            after += 1;
        }
        *row = Some(after);
        let (Some(from), Some(to)) = (after.checked_sub(1), self.fill.get(after)) else {
            let bytes = if after == 0 { 0.0 } else { self.most() };
            return (bytes, 0.0);
        };
        let from = &self.fill[from];
        let growth = (to.bytes - from.bytes) / (to.instructions - from.instructions);
        let bytes = from.bytes + (instructions - from.instructions) * growth;
        // Rounding must not lead beyond the next row.
        (bytes.min(to.bytes), growth)
    }

    /// The curve of each of so many threads that read one area and hold it together: each counts with its part.
    pub fn held_together(&self, threads: f64) -> Self {
        let point = |point: &Point| Point {
            bytes: point.bytes / threads,
            ln_bytes: point.ln_bytes - threads.ln(),
            ..*point
        };
        let row = |row: &Filled| Filled {
            instructions: row.instructions / threads,
            bytes: row.bytes / threads,
        };
        Self {
            cache_accesses: self.cache_accesses,
            points: self.points.iter().map(point).collect(),
            fill: self.fill.iter().map(row).collect(),
        }
    }

    /// The most that is ever held.
    pub(crate) fn most(&self) -> f64 {
        self.fill[self.fill.len() - 1].bytes
    }

    /// The table of instructions against sizes, up to `footprint` bytes.
    fn filled(&self, footprint: f64) -> Arc<[Filled]> {
        let smallest = SMALLEST_BYTES.min(footprint);
        let ratio = (footprint / smallest).powf(1.0 / SIZES as f64);
        let mut sizes: Vec<f64> = Vec::with_capacity(SIZES + self.points.len() + 1);
        sizes.extend(iter::successors(Some(smallest), |bytes| Some(bytes * ratio)).take(SIZES));
        sizes.extend(self.points.iter().map(|point| point.bytes));
        sizes.retain(|&bytes| bytes < footprint);
        sizes.push(footprint);
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let mut last = Filled {
            instructions: 0.0,
            bytes: 0.0,
        };
        let mut rows = Vec::with_capacity(1 + sizes.len());
        rows.push(last);
        let mut after = 0;
        for bytes in sizes {
            let is_passed = |point: &Point| point.bytes <= last.bytes;
            while self.points.get(after).is_some_and(is_passed) {
                after += 1;
            }
            let took = self.instructions_between(last.bytes, bytes, after);
            let instructions = last.instructions + took;
            // Equal rows (by rounding, beside a huge sum) would lead to a division by 0.
            if instructions > last.instructions {
                last = Filled {
                    instructions,
                    bytes,
                };
                rows.push(last);
            }
        }
        // Whatever rounding dropped, the table ends at the program's memory.
        let end = rows.len() - 1;
        rows[end].bytes = footprint;
        rows.into()
    }

    /// Instructions in which the bytes held grow `from` one size `to` another, between the given points `after - 1` and
    /// `after`: the integral of dc / (64 x lines(c) / 1000), by Gauss and Legendre's rule of three points, whose error over
    /// ratios as small as the table's is far below the curve's own.
    fn instructions_between(&self, from: f64, to: f64, after: usize) -> f64 {
        let (middle, half) = (from.midpoint(to), (to - from) / 2.0);
        let outer = half * 0.6_f64.sqrt();
        [(middle - outer, 5.0), (middle, 8.0), (middle + outer, 5.0)]
            .into_iter()
            .map(|(bytes, weight)| weight / 9.0 / self.at_before(after, bytes).max(FEWEST_LINES))
            .sum::<f64>()
            * half
            * 1000.0
            / LINE_BYTES
    }
}

fn with_slopes(points: &[(f64, f64)]) -> Arc<[Point]> {
    let slopes = points
        .windows(2)
        .map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0.ln() - pair[0].0.ln()))
        .chain([0.0]);
    points
        .iter()
        .zip(slopes)
        .map(|(&(bytes, lines), slope)| Point {
            bytes,
            ln_bytes: bytes.ln(),
            lines,
            slope,
        })
        .collect()
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests;
