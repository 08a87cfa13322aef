//! A core's private cache: sets of lines in order of use, most recent first.
//!
//! The order serves the replacement policy (LRU), and a hit on the most recent line, by far the
//! most frequent case, takes one comparison. A word is the line's number with its [`State`] in the
//! two lowest bits; an empty place is 0.

use crate::config;

/// What a private cache may do with a line it holds (MESI without the I).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
pub(crate) enum State {
    /// Other cores may hold it; a store must ask first.
    Shared = 1,
    /// No other core holds it.
    Exclusive = 2,
    /// No other core holds it, and the last-level cache knows that it was written.
    Modified = 3,
}

impl State {
    fn of(word: u64) -> Self {
        match word & 3 {
            1 => Self::Shared,
            2 => Self::Exclusive,
            _ => Self::Modified,
        }
    }
}

/// Index of a line's set; a mask where the number of sets allows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetIndex {
    sets: u64,
    mask: Option<u64>,
}

impl SetIndex {
    pub(crate) fn new(sets: u64) -> Self {
        Self {
            sets,
            mask: sets.is_power_of_two().then_some(sets - 1),
        }
    }

    #[inline]
    pub(crate) fn of(self, line: u64) -> usize {
        match self.mask {
            Some(mask) => (line & mask) as usize,
            None => (line % self.sets) as usize,
        }
    }
}

#[derive(Debug)]
pub(crate) struct PrivateCache {
    index: SetIndex,
    ways: usize,
    words: Vec<u64>,
}

impl PrivateCache {
    pub(crate) fn new(shape: &config::Cache, line_bytes: u64) -> Self {
        let lines = usize::try_from(shape.bytes / line_bytes).expect("a cache fits into memory");
        let index = SetIndex::new((lines / shape.ways) as u64);
        Self {
            index,
            ways: shape.ways,
            words: vec![0; lines],
        }
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [u64] {
        let start = self.index.of(line) * self.ways;
        &mut self.words[start..start + self.ways]
    }

    /// Looks a line up and makes it the most recent of its set.
    #[inline]
    pub(crate) fn find(&mut self, line: u64) -> Option<State> {
        let key = line << 2;
        let set = self.set(line);
        let first = set[0];
        if holds(first, key) {
            return Some(State::of(first));
        }
        let way = set.iter().position(|&word| holds(word, key))?;
        let word = set[way];
        set.copy_within(..way, 1);
        set[0] = word;
        Some(State::of(word))
    }

    /// The state of a line that is the most recent of its set.
    #[inline]
    pub(crate) fn most_recent(&mut self, line: u64) -> Option<State> {
        let first = self.set(line)[0];
        holds(first, line << 2).then(|| State::of(first))
    }

    /// Number of sets.
    pub(crate) fn sets(&self) -> u64 {
        (self.words.len() / self.ways) as u64
    }

    /// Puts a line in, as the most recent of its set; the least recent falls out. The line must
    /// not be in yet.
    #[inline]
    pub(crate) fn insert(&mut self, line: u64, state: State) {
        let set = self.set(line);
        let last = set.len() - 1;
        set.copy_within(..last, 1);
        set[0] = line << 2 | state as u64;
    }

    /// Changes the state of a line, if it is here.
    pub(crate) fn set_state(&mut self, line: u64, state: State) {
        let key = line << 2;
        if let Some(word) = self.set(line).iter_mut().find(|word| holds(**word, key)) {
            *word = key | state as u64;
        }
    }

    /// Takes a line out, if it is here.
    pub(crate) fn remove(&mut self, line: u64) {
        let key = line << 2;
        if let Some(word) = self.set(line).iter_mut().find(|word| holds(**word, key)) {
            *word = 0;
        }
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    #[cfg(test)]
    pub(crate) fn lines(&self) -> usize {
        self.words.iter().filter(|&&word| word != 0).count()
    }
}

/// The private caches of a core.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) l1: PrivateCache,
    pub(crate) l2: Option<PrivateCache>,
}

impl Caches {
    /// Empty caches for a core of a machine.
    pub(crate) fn new(config: &config::Config) -> Self {
        let private = |shape| PrivateCache::new(shape, config.line_bytes);
        Self {
            l1: private(&config.l1),
            l2: config.l2.as_ref().map(private),
        }
    }
}

/// Whether a word holds the line of this key, in any state.
#[inline]
fn holds(word: u64, key: u64) -> bool {
    (word ^ key).wrapping_sub(1) < 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache(lines: u64, ways: usize) -> PrivateCache {
        PrivateCache::new(
            &config::Cache {
                bytes: lines * 64,
                ways,
                hit_ns: 0.0,
            },
            64,
        )
    }

    #[test]
    fn the_least_recently_used_line_falls_out() {
        let mut cache = cache(2, 2);
        cache.insert(0, State::Shared);
        cache.insert(1, State::Modified);
        assert_eq!(cache.find(0), Some(State::Shared));
        cache.insert(2, State::Exclusive);
        assert_eq!(cache.find(1), None);
        assert_eq!(cache.find(0), Some(State::Shared));
        assert_eq!(cache.find(2), Some(State::Exclusive));
    }

    #[test]
    fn an_empty_cache_does_not_hold_line_zero() {
        assert_eq!(cache(8, 2).find(0), None);
    }

    proptest! {
        /// The hits are those of a textbook LRU list.
        #[test]
        fn behaves_as_a_list_in_order_of_use(
            lines in prop::collection::vec(0u64..40, 1..400),
            (sets, ways) in prop::sample::select(vec![(1u64, 1usize), (1, 4), (4, 2), (3, 5)]),
        ) {
            let mut cache = cache(sets * ways as u64, ways);
            let mut lists = vec![Vec::<u64>::new(); usize::try_from(sets).unwrap()];
            for line in lines {
                let list = &mut lists[usize::try_from(line % sets).unwrap()];
                let expected = list.iter().position(|&l| l == line);
                let found = cache.find(line);
                prop_assert_eq!(found.is_some(), expected.is_some());
                if let Some(at) = expected {
                    list.remove(at);
                } else {
                    cache.insert(line, State::Exclusive);
                }
                list.insert(0, line);
                list.truncate(ways);
                prop_assert_eq!(cache.lines(), lists.iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
