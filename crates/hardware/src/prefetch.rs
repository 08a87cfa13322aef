//! A core's stream prefetcher and the buffer in which its lines wait.
//!
//! It watches the lines that miss the private caches. Two adjacent lines in a row make a stream;
//! from then on it stays up to `depth_lines` lines ahead of the core, within the 4 KiB page, since
//! the next physical page may belong to other data. Fetched lines go into the last-level cache and
//! wait in a stream buffer beside the first-level cache (Jouppi, ISCA 1990) with the time of their
//! arrival: a core that is faster than its prefetches waits for the rest.

use crate::config;

const PAGE_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u64,
    /// +1 or -1; 0 after the first miss.
    direction: i64,
    /// Furthest line requested.
    ahead: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    line: u64,
    arrival_ps: u64,
}

const NO_LINE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Prefetcher {
    depth: u64,
    page_lines: u64,
    streams: Vec<Stream>,
    /// The stream to give up next.
    oldest: usize,
    buffer: Vec<Waiting>,
}

/// Lines to fetch: `count` lines in `direction`, beginning with `first`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ask {
    first: u64,
    direction: i64,
    count: u64,
}

impl Iterator for Ask {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        let line = self.first;
        self.first = line.wrapping_add_signed(self.direction);
        Some(line)
    }
}

impl Prefetcher {
    pub(crate) fn new(shape: config::Prefetch, line_bytes: u64) -> Self {
        let places = usize::try_from(shape.depth_lines).expect("fits") * shape.streams;
        let stream = Stream {
            last: NO_LINE,
            direction: 0,
            ahead: NO_LINE,
        };
        Self {
            depth: shape.depth_lines,
            page_lines: (PAGE_BYTES / line_bytes).max(1),
            streams: vec![stream; shape.streams],
            oldest: 0,
            buffer: vec![
                Waiting {
                    line: NO_LINE,
                    arrival_ps: 0
                };
                places.next_power_of_two()
            ],
        }
    }

    /// Notes a line that missed the private caches; returns what to fetch ahead of it.
    #[inline]
    pub(crate) fn observe(&mut self, line: u64) -> Ask {
        let next_to = |stream: &Stream| match stream.direction {
            0 => stream.last.abs_diff(line) == 1,
            direction => stream.last.wrapping_add_signed(direction) == line,
        };
        let Some(stream) = self.streams.iter_mut().find(|stream| next_to(stream)) else {
            self.streams[self.oldest] = Stream {
                last: line,
                direction: 0,
                ahead: line,
            };
            self.oldest = (self.oldest + 1) % self.streams.len();
            return Ask::default();
        };
        if stream.direction == 0 {
            stream.direction = if line > stream.last { 1 } else { -1 };
            stream.ahead = line;
        }
        stream.last = line;
        let page_start = line - line % self.page_lines;
        if stream.direction > 0 {
            let until = (line + self.depth).min(page_start + self.page_lines - 1);
            let from = stream.ahead.max(line) + 1;
            stream.ahead = until.max(stream.ahead);
            Ask {
                first: from,
                direction: 1,
                count: (until + 1).saturating_sub(from),
            }
        } else {
            let until = line.saturating_sub(self.depth).max(page_start);
            let from = stream.ahead.min(line);
            stream.ahead = until.min(stream.ahead);
            Ask {
                first: from.wrapping_sub(1),
                direction: -1,
                count: from.saturating_sub(until),
            }
        }
    }

    /// Keeps a line until it is used.
    pub(crate) fn keep(&mut self, line: u64, arrival_ps: u64) {
        let place = self.place(line);
        self.buffer[place] = Waiting { line, arrival_ps };
    }

    /// Takes a line out of the buffer; returns when it arrives.
    #[inline]
    pub(crate) fn take(&mut self, line: u64) -> Option<u64> {
        let place = self.place(line);
        let waiting = &mut self.buffer[place];
        if waiting.line != line {
            return None;
        }
        waiting.line = NO_LINE;
        Some(waiting.arrival_ps)
    }

    #[inline]
    fn place(&self, line: u64) -> usize {
        line as usize & (self.buffer.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetcher() -> Prefetcher {
        Prefetcher::new(
            config::Prefetch {
                streams: 2,
                depth_lines: 4,
            },
            64,
        )
    }

    fn asks(prefetcher: &mut Prefetcher, line: u64) -> Vec<u64> {
        prefetcher.observe(line).collect()
    }

    #[test]
    fn two_neighbours_make_a_stream_that_stays_ahead() {
        let mut p = prefetcher();
        assert_eq!(asks(&mut p, 100), []);
        assert_eq!(asks(&mut p, 101), [102, 103, 104, 105]);
        assert_eq!(asks(&mut p, 102), [106]);
        assert_eq!(asks(&mut p, 103), [107]);
    }

    #[test]
    fn streams_run_downwards_too() {
        let mut p = prefetcher();
        assert_eq!(asks(&mut p, 110), []);
        assert_eq!(asks(&mut p, 109), [108, 107, 106, 105]);
        assert_eq!(asks(&mut p, 108), [104]);
    }

    #[test]
    fn a_stream_ends_with_its_page_and_goes_on_in_the_next() {
        let mut p = prefetcher();
        assert_eq!(asks(&mut p, 60), []);
        assert_eq!(asks(&mut p, 61), [62, 63]);
        assert_eq!(asks(&mut p, 62), []);
        assert_eq!(asks(&mut p, 63), []);
        assert_eq!(asks(&mut p, 64), [65, 66, 67, 68]);
        let mut p = prefetcher();
        assert_eq!(asks(&mut p, 3), []);
        assert_eq!(asks(&mut p, 2), [1, 0]);
        assert_eq!(asks(&mut p, 1), []);
        assert_eq!(asks(&mut p, 0), []);
    }

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut p = prefetcher();
        asks(&mut p, 100);
        asks(&mut p, 500);
        assert_eq!(asks(&mut p, 101).len(), 4);
        assert_eq!(asks(&mut p, 501).len(), 4);
        assert_eq!(asks(&mut p, 102), [106]);
    }

    #[test]
    fn a_line_leaves_the_buffer_once() {
        let mut p = prefetcher();
        p.keep(7, 123);
        assert_eq!(p.take(8), None);
        assert_eq!(p.take(7), Some(123));
        assert_eq!(p.take(7), None);
    }
}
