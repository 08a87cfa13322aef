//! What the stages do to a buffer: passes over all of it whose result depends on every word, so
//! that an item that was mixed up with another, or worked on by two threads at once, shows.

use crate::kernels::WholeArray;
use crate::kernels::field::WholeField;
use crate::random::{self, mix};

/// Middle stages.
pub const MIDDLE: usize = 4;

/// Words of a buffer for each look into the table.
const LOOK_EVERY: usize = 8;

/// How often a word is scrambled: that stage computes more than it reads, as hashing and
/// compressing do.
const ROUNDS: u32 = 16;

/// Words as the stages see them: a buffer that threads hand on, or one of a thread's own.
trait Words {
    fn get(&self, at: usize) -> u32;
    fn set(&mut self, at: usize, value: u32);
    fn len(&self) -> usize;
}

impl Words for WholeField<'_> {
    #[inline(always)]
    fn get(&self, at: usize) -> u32 {
        WholeField::get(*self, at)
    }

    #[inline(always)]
    fn set(&mut self, at: usize, value: u32) {
        WholeField::set(*self, at, value);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        WholeField::len(*self)
    }
}

impl Words for &mut [u32] {
    fn get(&self, at: usize) -> u32 {
        self[at]
    }

    fn set(&mut self, at: usize, value: u32) {
        self[at] = value;
    }

    fn len(&self) -> usize {
        <[u32]>::len(self)
    }
}

/// First stage: fills a buffer with what `seed` and the item's `number` give.
pub fn load(words: WholeField<'_>, seed: u64, number: u64) {
    fill(words, seed, number);
}

fn fill(mut words: impl Words, seed: u64, number: u64) {
    let mut state = mix(mix(seed).wrapping_add(number));
    for at in 0..words.len() {
        state = random::next(state);
        words.set(at, (state >> 32) as u32);
    }
}

/// Middle stage `stage`.
pub fn rewrite(stage: usize, words: WholeField<'_>, table: WholeField<'_>) {
    apply(stage, words, table);
}

fn apply(stage: usize, mut words: impl Words, table: WholeField<'_>) {
    match stage {
        0 => difference(&mut words),
        1 => scramble(&mut words),
        2 => look_up(&mut words, table),
        _ => gather(&mut words),
    }
}

/// Every word becomes its difference to the one before.
fn difference(words: &mut impl Words) {
    let mut before = 0u32;
    for at in 0..words.len() {
        let word = words.get(at);
        words.set(at, word.wrapping_sub(before));
        before = word;
    }
}

/// Every word is multiplied and turned, many times over.
fn scramble(words: &mut impl Words) {
    for at in 0..words.len() {
        let turn = |word: u32, _| {
            let word = word.wrapping_mul(0x9e37_79b1);
            word.rotate_left(13) ^ (word >> 3)
        };
        words.set(at, (0..ROUNDS).fold(words.get(at), turn));
    }
}

/// Words here and there get what the table has at the place that they name.
fn look_up(words: &mut impl Words, table: WholeField<'_>) {
    for at in (0..words.len()).step_by(LOOK_EVERY) {
        let word = words.get(at);
        let place = (u64::from(word) * table.len() as u64) >> 32;
        words.set(at, word.wrapping_add(table.get(place as usize)));
    }
}

/// Every word becomes the sum of all up to it, from the end.
fn gather(words: &mut impl Words) {
    let mut sum = 0u32;
    for at in (0..words.len()).rev() {
        sum = sum.wrapping_add(words.get(at)).rotate_left(5);
        words.set(at, sum);
    }
}

/// Last stage: one number for all words.
pub fn digest(words: WholeField<'_>) -> u64 {
    sum_up(&words)
}

fn sum_up(words: &impl Words) -> u64 {
    (0..words.len()).fold(0, |sum, at| {
        random::next(sum).wrapping_add(u64::from(words.get(at)))
    })
}

/// The digest of item `number`, made by one thread in memory of its own.
pub fn alone(words: &mut [u32], table: &WholeArray, seed: u64, number: u64) -> u64 {
    fill(&mut *words, seed, number);
    for stage in 0..MIDDLE {
        apply(stage, &mut *words, table.field());
    }
    sum_up(&words)
}
