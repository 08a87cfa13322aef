//! The stages' work on a buffer: passes over all of it whose result depends on every word. So
//! errors show, such as items mixed up or processed by two threads at once.

use crate::kernels::field::WholeField;
use crate::random::{self, mix};
use std::sync::atomic::AtomicU32;

/// Middle stages.
pub const MIDDLE: usize = 4;

/// Words of a buffer per table look-up.
const LOOK_EVERY: usize = 8;

/// How often a word is scrambled: that stage is bound by computation, like hashing and compression.
const ROUNDS: u32 = 16;

/// First stage: fills a buffer with values from `seed` and the item's `number`.
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

/// Replaces every word by its difference from the one before.
fn difference(words: WholeField<'_>) {
    let mut before = 0u32;
    for at in 0..words.len() {
        let word = words.get(at);
        words.set(at, word.wrapping_sub(before));
        before = word;
    }
}

/// Multiplies and rotates every word many times.
fn scramble(words: WholeField<'_>) {
    for at in 0..words.len() {
        let turn = |word: u32, _| {
            let word = word.wrapping_mul(0x9e37_79b1);
            word.rotate_left(13) ^ (word >> 3)
        };
        words.set(at, (0..ROUNDS).fold(words.get(at), turn));
    }
}

/// Adds to some words the table's entries at the places that they name.
fn look_up(words: WholeField<'_>, table: WholeField<'_>) {
    for at in (0..words.len()).step_by(LOOK_EVERY) {
        let word = words.get(at);
        let place = (u64::from(word) * table.len() as u64) >> 32;
        words.set(at, word.wrapping_add(table.get(place as usize)));
    }
}

/// Replaces every word by the sum of all words from the end up to it.
fn gather(words: WholeField<'_>) {
    let mut sum = 0u32;
    for at in (0..words.len()).rev() {
        sum = sum.wrapping_add(words.get(at)).rotate_left(5);
        words.set(at, sum);
    }
}

/// Last stage: a digest of all words.
pub fn digest(words: WholeField<'_>) -> u64 {
    (0..words.len()).fold(0, |sum, at| {
        random::next(sum).wrapping_add(u64::from(words.get(at)))
    })
}

/// The digest of item `number`, computed by one thread in its own memory.
pub fn alone(words: &[AtomicU32], table: WholeField<'_>, seed: u64, number: u64) -> u64 {
    let words = WholeField::over(words);
    load(words, seed, number);
    (0..MIDDLE).for_each(|stage| rewrite(stage, words, table));
    digest(words)
}
