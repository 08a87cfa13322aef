//! The distance at which a thread goes from page to page, found as a stride prefetcher finds it.
//!
//! The paper says: by monitoring previous accesses "similarly to how hardware pre-fetchers do". This one watches all
//! accesses of the thread that reach memory, as such hardware would, whether sampled or not. It follows up to
//! [`STREAMS`] streams. A page that is accessed belongs to the stream that expects it next; otherwise to the stream
//! whose last page is nearest, within [`REACH`] pages; otherwise it starts a new stream, which replaces the one that
//! was silent the longest. A stream's step is the distance between its last two pages; it is trusted once it has been
//! repeated [`SURE`] times in a row.

/// Streams followed at a time: as many as common prefetchers do.
const STREAMS: usize = 16;
/// The most pages by which a stream may step.
const REACH: u64 = 64;
/// Times that a step must be repeated.
const SURE: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u64,
    step: i32,
    repeated: u32,
}

/// The streams of one thread, the most recent first.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    streams: Vec<Stream>,
}

impl Patterns {
    /// Records an access to a page other than the last one; returns the distance in pages to its stream's next page, or
    /// 0 if that is not known.
    pub(super) fn see(&mut self, page: u64) -> i32 {
        let is_next =
            |stream: &Stream| stream.last.wrapping_add_signed(i64::from(stream.step)) == page;
        let is_next = |stream: &Stream| stream.step != 0 && is_next(stream);
        let distance = |stream: &Stream| stream.last.abs_diff(page);
        let place = self.streams.iter().position(is_next).or_else(|| {
            let near = self.streams.iter().enumerate();
            let near = near.filter(|(_, stream)| distance(stream) <= REACH);
            near.min_by_key(|(_, stream)| distance(stream))
                .map(|(place, _)| place)
        });
        let stream = match place {
            Some(place) => self.streams.remove(place).went_to(page),
            None => {
                self.streams.truncate(STREAMS - 1);
                Stream {
                    last: page,
                    step: 0,
                    repeated: 0,
                }
            }
        };
        self.streams.insert(0, stream);
        if stream.repeated >= SURE {
            stream.step
        } else {
            0
        }
    }
}

impl Stream {
    fn went_to(self, page: u64) -> Self {
        // At most REACH away, unless it is the page that the stream expected.
        let step = page.wrapping_sub(self.last).cast_signed() as i32;
        let (step, repeated) = match step {
            // A page again: nothing new.
            0 => (self.step, self.repeated),
            step if step == self.step => (step, self.repeated.saturating_add(1)),
            step => (step, 0),
        };
        Self {
            last: page,
            step,
            repeated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pages: impl IntoIterator<Item = u64>) -> Vec<i32> {
        let mut patterns = Patterns::default();
        pages.into_iter().map(|page| patterns.see(page)).collect()
    }

    #[test]
    fn a_step_is_believed_once_it_came_three_times() {
        assert_eq!(seen([10, 11, 12, 13, 14]), [0, 0, 0, 1, 1]);
        assert_eq!(seen([50, 45, 40, 35, 30]), [0, 0, 0, -5, -5]);
        assert_eq!(seen([10, 12, 15, 19, 24]), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn streams_that_take_turns_are_told_apart() {
        let both = (0..5).flat_map(|at| [1000 + at, 9000 + 3 * at]);
        assert_eq!(seen(both), [0, 0, 0, 0, 0, 0, 1, 3, 1, 3]);
    }

    #[test]
    fn too_many_streams_push_out_the_oldest() {
        let pages =
            (0..6).flat_map(|at| (0..=STREAMS as u64).map(move |stream| stream * 1000 + at));
        assert!(seen(pages).iter().all(|&step| step == 0));
    }

    #[test]
    fn a_page_again_changes_nothing() {
        assert_eq!(seen([10, 11, 11, 12, 13]), [0, 0, 0, 0, 1]);
    }
}
