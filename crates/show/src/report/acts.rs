//! What was wanted, refused, done and undone: sums by rule and by guard, and the moves of threads one
//! by one, as many of the first and of the last as a page has room for.

use std::collections::{BTreeMap, VecDeque};

use numaherd_herd::Guard;
use numaherd_topology::CpuId;
use numaherd_world::ThreadId;

pub(super) use crate::deeds::Did;
pub(super) use crate::words::cut as short;

/// Most moves that are shown one by one: so many of the first and so many of the last.
pub(super) const SHOWN: usize = 50;

/// Most rules, sentences and gaps that are kept; a ledger can come from anywhere.
const MOST_KINDS: usize = 200;

/// What a rule wanted, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleTally {
    /// Threads that it wanted on a core, or page orders.
    pub(super) wanted: u64,
    /// Of these, refused by the governor.
    pub(super) refused: u64,
    /// Times that a thread had to leave its CPU for it.
    pub(super) moved: u64,
    /// Why, the first time.
    pub(super) why: String,
}

/// One move of a thread.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) time_ns: u64,
    pub(super) thread: ThreadId,
    pub(super) from: CpuId,
    /// `None`: to the kernel.
    pub(super) to: Option<CpuId>,
    pub(super) did: Did,
    /// Empty for what the governor does by itself.
    pub(super) rule: String,
    pub(super) why: String,
    pub(super) instead_of: String,
}

/// The first and the last of many.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    pub(super) first: Vec<Move>,
    pub(super) last: VecDeque<Move>,
    /// Between these.
    pub(super) left_out: u64,
}

impl Ends {
    pub(super) fn add(&mut self, one: Move) {
        if self.first.len() < SHOWN {
            self.first.push(one);
            return;
        }
        if self.last.len() == SHOWN {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(one);
    }
}

/// Sentences with how often each was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sentences {
    /// Each with when it was first said, in ns, and how often.
    pub(super) said: Vec<(String, u64, u64)>,
    at: BTreeMap<String, usize>,
    /// Said, but not kept for want of room.
    pub(super) left_out: u64,
}

impl Sentences {
    pub(super) fn add(&mut self, text: &str, time_ns: u64) {
        let text = short(text);
        if let Some(&place) = self.at.get(text) {
            self.said[place].2 += 1;
        } else if self.said.len() < MOST_KINDS {
            self.at.insert(text.to_owned(), self.said.len());
            self.said.push((text.to_owned(), time_ns, 1));
        } else {
            self.left_out += 1;
        }
    }
}

/// All that was done and not done.
#[derive(Clone, Debug, Default)]
pub(super) struct Acts {
    pub(super) threads: BTreeMap<String, RuleTally>,
    pub(super) pages: BTreeMap<String, RuleTally>,
    pub(super) moves: Ends,
    /// By guard: what it said the first time.
    pub(super) refusals: BTreeMap<Guard, String>,
    /// Errors of page orders that were stopped short.
    pub(super) page_errors: Sentences,
}

impl Acts {
    /// The tally of a rule; rules beyond what there is room for are one.
    pub(super) fn rule<'a>(
        tallies: &'a mut BTreeMap<String, RuleTally>,
        rule: &str,
    ) -> &'a mut RuleTally {
        let rule = short(rule);
        let is_room = tallies.len() < MOST_KINDS || tallies.contains_key(rule);
        let name = if is_room { rule } else { "other rules" };
        if !tallies.contains_key(name) {
            tallies.insert(name.to_owned(), RuleTally::default());
        }
        tallies
            .get_mut(name)
            .expect("it was put there if it was not there")
    }

    pub(super) fn refused(&mut self, guard: Guard, why: &str) {
        self.refusals
            .entry(guard)
            .or_insert_with(|| short(why).to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::MOST_TEXT;

    #[test]
    fn the_first_and_the_last_are_kept_and_the_rest_is_counted() {
        let mut ends = Ends::default();
        for time_ns in 0..1000 {
            ends.add(Move {
                time_ns,
                thread: ThreadId { tid: 1, born: 1 },
                from: CpuId(0),
                to: None,
                did: Did::Moved,
                rule: String::new(),
                why: String::new(),
                instead_of: String::new(),
            });
        }
        assert_eq!(ends.first.len() + ends.last.len(), 2 * SHOWN);
        assert_eq!(ends.left_out, 1000 - 2 * SHOWN as u64);
        assert_eq!(ends.last.back().map(|one| one.time_ns), Some(999));
        assert_eq!(ends.first.last().map(|one| one.time_ns), Some(49));
    }

    #[test]
    fn what_is_kept_of_sentences_is_bounded() {
        let mut sentences = Sentences::default();
        for number in 0..1000 {
            sentences.add(&format!("{number} {}", "ä".repeat(1000)), number);
            sentences.add("again", number);
        }
        assert_eq!(sentences.said.len(), MOST_KINDS);
        assert_eq!(sentences.said[1], ("again".to_owned(), 0, 1000));
        assert_eq!(sentences.left_out, 1000 - (MOST_KINDS as u64 - 1));
        assert!(
            sentences
                .said
                .iter()
                .all(|(text, ..)| text.len() <= MOST_TEXT)
        );
    }
}
