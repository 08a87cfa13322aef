//! Sets of CPUs or nodes, and the kernel's list syntax for them (`0-3,8,16-31:2/4`).
//!
//! The syntax is that of `Documentation/admin-guide/kernel-parameters.rst` ("cpu-list"): ranges,
//! and `first-last:used/group`. Printing gives the kernel's own shortest form, without groups.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use numaherd_files::setting::{Kind, Setting, Value, Wrong};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::id::{CpuId, NodeId};

/// The number of a CPU or of a node.
pub trait Id: Copy + Into<u32> + From<u32> {}

impl<T: Copy + Into<u32> + From<u32>> Id for T {}

/// A set of CPUs.
pub type CpuSet = IdSet<CpuId>;
/// A set of nodes.
pub type NodeSet = IdSet<NodeId>;

const BITS: usize = u64::BITS as usize;

/// Parsing refuses numbers above this, so that no file can take gigabytes: the data on each CPU
/// grows with the numbers of its siblings. It does not limit real machines: the kernel's `NR_CPUS`
/// is at most 8192 and `MAX_NUMNODES` 1024.
pub const LARGEST_PARSED: u32 = 1 << 16;

/// A set of small numbers, as a bit vector that grows as needed.
#[derive(Clone)]
pub struct IdSet<T> {
    // Never ends in a zero word, so that equality and hashing are those of the words.
    words: Vec<u64>,
    kind: PhantomData<T>,
}

/// Why a list of CPUs or nodes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {text:?} as a list such as 0-3,8: {reason}")]
pub struct ListError {
    /// The part of the list that is wrong.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl<T: Id> IdSet<T> {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number; returns false if it was there already.
    pub fn insert(&mut self, id: T) -> bool {
        let (word, bit) = place(id);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// The runs of consecutive numbers, ascending, as first and last.
    fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut numbers = self.iter().map(Into::<u32>::into).peekable();
        std::iter::from_fn(move || {
            let first = numbers.next()?;
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            Some((first, last))
        })
    }

    /// Removes a number; returns false if it was not there.
    pub fn remove(&mut self, id: T) -> bool {
        let (word, bit) = place(id);
        let there = self.words.get(word).is_some_and(|w| w & bit != 0);
        if there {
            self.words[word] &= !bit;
            self.trim();
        }
        there
    }

    /// Whether the number is in the set.
    pub fn contains(&self, id: T) -> bool {
        let (word, bit) = place(id);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// How many numbers are in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The smallest number.
    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }

    /// The largest number.
    pub fn last(&self) -> Option<T> {
        let word = self.words.len().checked_sub(1)?;
        let bit = BITS - 1 - self.words[word].leading_zeros() as usize;
        Some(T::from(number(word, bit)))
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.words.iter().enumerate().flat_map(|(word, &bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    T::from(number(word, bit))
                })
            })
        })
    }

    /// The numbers that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words);
        Self::of_words(words.map(|(a, b)| a & b).collect())
    }

    /// The numbers of this set that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        for (word, taken) in words.iter_mut().zip(&other.words) {
            *word &= !taken;
        }
        Self::of_words(words)
    }

    /// Adds all numbers of the other set.
    pub fn extend_from(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Whether the sets have a number in common.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every number of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        let others = other.words.iter().chain(std::iter::repeat(&0));
        self.words.iter().zip(others).all(|(a, b)| a & !b == 0)
    }

    /// The set as 64-bit words, lowest numbers first, without trailing zero words.
    pub fn as_words(&self) -> &[u64] {
        &self.words
    }

    /// The set whose members are the bits of these words, lowest numbers first.
    pub fn of_words(words: Vec<u64>) -> Self {
        let kind = PhantomData;
        let mut set = Self { words, kind };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.pop_if(|word| *word == 0).is_some() {}
    }
}

fn place<T: Into<u32>>(id: T) -> (usize, u64) {
    let number: u32 = id.into();
    (number as usize / BITS, 1 << (number as usize % BITS))
}

fn number(word: usize, bit: usize) -> u32 {
    u32::try_from(word * BITS + bit).expect("members are u32, so every set bit is one")
}

impl<T> Default for IdSet<T> {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            kind: PhantomData,
        }
    }
}

impl<T> PartialEq for IdSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl<T> Eq for IdSet<T> {}

impl<T> std::hash::Hash for IdSet<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

impl<T: Id> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<T: Id> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl<T: Id> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (first, last) in self.runs() {
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl<T: Id> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<T: Id> FromStr for IdSet<T> {
    type Err = ListError;

    /// Reads the kernel's list syntax. White space around the list and an empty list are fine.
    fn from_str(text: &str) -> Result<Self, ListError> {
        let mut set = Self::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        // The kernel writes each number once. A list with more numbers than can exist repeats
        // itself; it is refused before it costs time.
        let mut left = u64::from(LARGEST_PARSED) + 1;
        for part in text.split(',') {
            add_part(&mut set, part.trim(), &mut left)?;
        }
        Ok(set)
    }
}

fn add_part<T: Id>(set: &mut IdSet<T>, part: &str, left: &mut u64) -> Result<(), ListError> {
    let wrong = |reason| ListError {
        text: part.to_owned(),
        reason,
    };
    let number = |text: &str| match text.parse::<u32>() {
        Err(_) => Err(wrong("not a number")),
        Ok(number) if number > LARGEST_PARSED => Err(wrong("number too large")),
        Ok(number) => Ok(number),
    };
    let (range, group) = match part.split_once(':') {
        Some((range, group)) => (range, Some(group)),
        None => (part, None),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(wrong("the range runs backwards"));
    }
    let (used, size) = match group.map(|group| group.split_once('/')) {
        None => (1, 1),
        Some(None) => return Err(wrong("a group is written used/size")),
        Some(Some((used, size))) => (number(used)?, number(size)?),
    };
    if used == 0 || size == 0 || used > size {
        return Err(wrong("a group needs 0 < used <= size"));
    }
    *left = left
        .checked_sub(u64::from(last - first) + 1)
        .ok_or_else(|| wrong("the list repeats itself"))?;
    let named = (first..=last).filter(|number| (number - first) % size < used);
    set.extend(named.map(T::from));
    Ok(())
}

/// As a setting: a list such as `0-7,16-23` with at least one number.
impl<T> Value for IdSet<T> {
    const KIND: Kind = Kind::Text;

    fn check(&self, key: &str, _: &Setting, wrong: &mut Vec<Wrong>) {
        if self.words.is_empty() {
            wrong.push(Wrong {
                key: key.to_owned(),
                why: "must name at least one; leave it out for all".to_owned(),
            });
        }
    }
}

impl<T: Id> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: Id> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> String {
        match text.parse::<CpuSet>() {
            Ok(set) => set.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn lists_are_read_and_printed_as_the_kernel_does() {
        assert_eq!(list("0-3,8\n"), "0-3,8");
        assert_eq!(list("7,0,1,2"), "0-2,7");
        assert_eq!(list(""), "");
        assert_eq!(list("0-31:2/8"), "0-1,8-9,16-17,24-25");
        assert_eq!(list("4095"), "4095");
    }

    #[test]
    fn a_wrong_list_is_refused_with_its_wrong_part() {
        let told = |text, part: &str, reason| {
            assert_eq!(
                list(text),
                format!("cannot read {part:?} as a list such as 0-3,8: {reason}")
            );
        };
        told("0-3,x", "x", "not a number");
        told("3-1", "3-1", "the range runs backwards");
        told("0,,1", "", "not a number");
        told("0-7:3", "0-7:3", "a group is written used/size");
        told("0-7:0/2", "0-7:0/2", "a group needs 0 < used <= size");
        told("0-4294967295", "0-4294967295", "number too large");
        let over_and_over = "the list repeats itself";
        told("0-65535,1-65535", "1-65535", over_and_over);
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(ids in proptest::collection::btree_set(0u32..5000, 0..300)) {
            let set: CpuSet = ids.iter().copied().map(CpuId).collect();
            prop_assert_eq!(&set.to_string().parse::<CpuSet>().unwrap(), &set);
            prop_assert_eq!(set.len(), ids.len());
            prop_assert!(set.iter().map(u32::from).eq(ids.iter().copied()));
            prop_assert_eq!(set.last().map(u32::from), ids.last().copied());
        }

        #[test]
        fn a_group_names_its_first_members(
            first in 0u32..300,
            length in 0u32..300,
            (used, size) in (1u32..80).prop_flat_map(|size| (1..=size, Just(size))),
        ) {
            let text = format!("{first}-{}:{used}/{size}", first + length);
            let named = (first..=first + length).filter(|n| (n - first) % size < used);
            prop_assert_eq!(text.parse::<CpuSet>().unwrap(), named.map(CpuId).collect());
        }

        #[test]
        fn sets_obey_set_algebra(
            a in proptest::collection::btree_set(0u32..200, 0..80),
            b in proptest::collection::btree_set(0u32..400, 0..80),
        ) {
            let set = |ids: &std::collections::BTreeSet<u32>| -> CpuSet {
                ids.iter().copied().map(CpuId).collect()
            };
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.intersection(&y), set(&(&a & &b)));
            prop_assert_eq!(x.difference(&y), set(&(&a - &b)));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            let mut union = x;
            union.extend_from(&y);
            prop_assert_eq!(union, set(&(&a | &b)));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9,:/ -]{0,40}|.{0,40}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
