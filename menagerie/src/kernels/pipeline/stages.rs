//! What the stages do to a buffer: passes over all of it whose result depends on every word, so
//! that an item that was mixed up with another, or worked on by two threads at once, shows.

use crate::kernels::field::WholeField;
use crate::random::{self, mix};
use std::sync::atomic::AtomicU32;

/// Middle stages.
pub const MIDDLE: usize = 4;

/// Words of a buffer for each look into the table.
const LOOK_EVERY: usize = 8;

/// How often a word is scrambled: that stage computes more than it reads, as hashing and
/// compressing do.
const ROUNDS: u32 = 16;

/// First stage: fills a buffer with what `seed` and the item's `number` give.
pub fn load(words: WholeField<'_>, seed: u64, number: u64) {
    let mut state = mix(mix(seed).wrapping_add(number));
    for at in 0..words.len() {
        state = random::next(state);
        words.set(at, (state >> 32) as u32);
    }
}

/// Middle stage `stage`.
pub fn rewrite(stage: usize, words: WholeField<'_>, table: WholeField<'_>) {
    match stage {
        0 => difference(words),
        1 => scramble(words),
        2 => look_up(words, table),
        _ => gather(words),
    }
}

/// Every word becomes its difference to the one before.
fn difference(words: WholeField<'_>) {
    let mut before = 0u32;
    for at in 0..words.len() {
        let word = words.get(at);
        words.set(at, word.wrapping_sub(before));
        before = word;
    }
}

/// Every word is multiplied and turned, many times over.
fn scramble(words: WholeField<'_>) {
    for at in 0..words.len() {
        let turn = |word: u32, _| {
            let word = word.wrapping_mul(0x9e37_79b1);
            word.rotate_left(13) ^ (word >> 3)
        };
        words.set(at, (0..ROUNDS).fold(words.get(at), turn));
    }
}

/// Words here and there get what the table has at the place that they name.
fn look_up(words: WholeField<'_>, table: WholeField<'_>) {
    for at in (0..words.len()).step_by(LOOK_EVERY) {
        let word = words.get(at);
        let place = (u64::from(word) * table.len() as u64) >> 32;
        words.set(at, word.wrapping_add(table.get(place as usize)));
    }
}

/// Every word becomes the sum of all up to it, from the end.
fn gather(words: WholeField<'_>) {
    let mut sum = 0u32;
    for at in (0..words.len()).rev() {
        sum = sum.wrapping_add(words.get(at)).rotate_left(5);
        words.set(at, sum);
    }
}

/// Last stage: one number for all words.
pub fn digest(words: WholeField<'_>) -> u64 {
    (0..words.len()).fold(0, |sum, at| {
        random::next(sum).wrapping_add(u64::from(words.get(at)))
    })
}

/// The digest of item `number`, made by one thread in memory of its own.
pub fn alone(words: &[AtomicU32], table: WholeField<'_>, seed: u64, number: u64) -> u64 {
    let words = WholeField::over(words);
    load(words, seed, number);
    (0..MIDDLE).for_each(|stage| rewrite(stage, words, table));
    digest(words)
}
