//! pipeline: items pass through stages with separate threads and through bounded queues between
//! them, in the pattern of PARSEC's ferret and dedup.
//!
//! The first stage loads an item into a buffer, each of four middle stages rewrites it (the third
//! with a shared table), and the last adds it to the result and returns the buffer. The first and
//! the last have one thread; the others divide the rest among them. With fewer than six threads,
//! neighbouring stages are merged.
//!
//! Memory: a buffer passes from the thread that filled it through one thread of each stage, chosen
//! by chance. Buffers are reused in the order in which they return, as by an allocator. The first
//! thread first touches every buffer and the table.

mod queue;
mod stages;

use super::{Check, Kernel, Member, Problem, Stopped, Terms, WholeArray};
use crate::error::Error;
use crate::sync::lock;
use queue::Queue;
use stages::{MIDDLE, digest, load, rewrite};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

/// Most items that wait between two stages.
const DEPTH: usize = 16;

/// Number of items whose result is compared with one computed without a pipeline.
const COMPARED: u64 = 64;

/// Four-byte words in a KiB.
const WORDS_IN_KIB: usize = 256;

/// An item in the pipeline: its number, and that of its buffer.
#[derive(Clone, Copy, Debug)]
struct Item {
    number: u64,
    buffer: usize,
}

struct Pipeline {
    /// Four-byte words in a buffer.
    words: usize,
    seed: u64,
    buffers: WholeArray,
    table: WholeArray,
    /// The pools of the middle stages. Empty if one or two threads do everything.
    pools: Vec<Pool>,
    /// The queues before each pool and before the last stage.
    queues: Vec<Queue<Item>>,
    /// Free buffers.
    free: Queue<usize>,
    out: Mutex<Out>,
}

/// Threads with the same stages.
#[derive(Debug, PartialEq)]
struct Pool {
    /// Its middle stages.
    stages: Range<usize>,
    /// Its members.
    members: Range<usize>,
}

/// The output, and the expected output.
#[derive(Debug, Default)]
struct Out {
    /// The digests of the first items, computed without a pipeline.
    expected: Vec<u64>,
    items: u64,
    /// Sum of the items' numbers.
    numbers: u64,
    /// Items whose digest is not as expected.
    wrong: u64,
}

impl Out {
    fn add(&mut self, number: u64, digest: u64) {
        self.items += 1;
        self.numbers = self.numbers.wrapping_add(number);
        let expected = self.expected.get(number as usize);
        self.wrong += u64::from(expected.is_some_and(|expected| *expected != digest));
    }
}

/// Divides the middle stages, and the members except the first and the last, among pools.
fn pools(threads: usize) -> Vec<Pool> {
    let members = threads.saturating_sub(2);
    let count = members.min(MIDDLE);
    let part = super::team::share;
    (0..count)
        .map(|pool| {
            let dealt = part(members, pool, count);
            Pool {
                stages: part(MIDDLE, pool, count),
                members: dealt.start + 1..dealt.end + 1,
            }
        })
        .collect()
}

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let buffer_kib = terms.class.of([16, 64, 64, 128, 128]);
    let table_kib = terms.class.of([64, 1024, 8192, 32_768, 131_072]);
    let words = buffer_kib * WORDS_IN_KIB;
    let pools = pools(terms.threads);
    // Every thread may hold a buffer while every queue is full.
    let buffers = terms.threads + (pools.len() + 1) * DEPTH;
    let threads = || pools.iter().map(|pool| pool.members.len());
    let producers = std::iter::once(1).chain(threads());
    let consumers = threads().chain([1]);
    let queues = producers
        .zip(consumers)
        .map(|(producers, consumers)| Queue::new(DEPTH, producers, consumers))
        .collect();
    let free = Queue::new(buffers, 1, 1);
    (0..buffers).for_each(|buffer| {
        free.put(buffer);
    });
    let pipeline = Pipeline {
        words,
        seed: terms.seed,
        buffers: WholeArray::new(terms, buffers * words)?,
        table: WholeArray::new(terms, table_kib * WORDS_IN_KIB)?,
        pools,
        queues,
        free,
        out: Mutex::default(),
    };
    let sizes =
        format!("items of {buffer_kib} KiB, a table of {table_kib} KiB, {DEPTH} between stages");
    Problem::new(
        sizes,
        terms.class.of([256, 1024, 4096, 8192, 32_768]),
        pipeline,
    )
}

impl Pipeline {
    fn buffer(&self, item: Item) -> super::field::WholeField<'_> {
        self.buffers
            .field()
            .row(item.buffer * self.words, self.words)
    }

    fn rewrite(&self, item: Item, stages: Range<usize>) {
        for stage in stages {
            rewrite(stage, self.buffer(item), self.table.field());
        }
    }

    /// Finishes an item in the last stage.
    fn finish(&self, item: Item) {
        let digest = digest(self.buffer(item));
        lock(&self.out).add(item.number, digest);
        self.free.put(item.buffer);
    }

    /// The first stage: loads all items and passes each to `next`, until that returns false.
    fn load_all(&self, member: &Member<'_>, next: impl Fn(Item) -> bool) {
        for number in 0..member.iterations_wanted() {
            if member.is_stopping() {
                break;
            }
            let Some(buffer) = self.free.take() else {
                break;
            };
            let item = Item { number, buffer };
            load(self.buffer(item), self.seed, number);
            if !next(item) {
                break;
            }
            member.count(1);
        }
    }

    /// Everything, in one thread.
    fn run_alone(&self, member: &Member<'_>) {
        self.load_all(member, |item| {
            self.rewrite(item, 0..MIDDLE);
            self.finish(item);
            true
        });
    }

    /// The first stage in a separate thread.
    fn run_first(&self, member: &Member<'_>) {
        let next = &self.queues[0];
        let _leaving = (next.producer(), self.free.consumer());
        self.load_all(member, |item| next.put(item));
    }

    /// One or several middle stages.
    fn run_pool(&self, member: &Member<'_>, pool: usize) {
        let (previous, next) = (&self.queues[pool], &self.queues[pool + 1]);
        let _leaving = (previous.consumer(), next.producer());
        while let Some(item) = previous.take() {
            self.rewrite(item, self.pools[pool].stages.clone());
            if !next.put(item) {
                break;
            }
            member.count(1);
        }
    }

    /// The last stage; without pools, also their work.
    fn run_last(&self, member: &Member<'_>) {
        let previous = &self.queues[self.pools.len()];
        let _leaving = (previous.consumer(), self.free.producer());
        while let Some(item) = previous.take() {
            if self.pools.is_empty() {
                self.rewrite(item, 0..MIDDLE);
            }
            self.finish(item);
            member.count(1);
        }
    }
}

impl Kernel for Pipeline {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        if member.index == 0 {
            let table = self.table.field();
            load(table, self.seed, u64::MAX);
            let words: Vec<_> = (0..self.words).map(|_| AtomicU32::new(0)).collect();
            lock(&self.out).expected = (0..COMPARED.min(member.iterations_wanted()))
                .map(|number| stages::alone(&words, table, self.seed, number))
                .collect();
        }
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let pool = |pool: &Pool| pool.members.contains(&member.index);
        match (member.index, self.pools.iter().position(pool)) {
            (0, _) if member.threads == 1 => self.run_alone(member),
            (0, _) => self.run_first(member),
            (_, Some(pool)) => self.run_pool(member, pool),
            _ => self.run_last(member),
        }
        member.wait()?;
        let out = lock(&self.out);
        let items = member.iterations_wanted();
        // 0 + 1 + … + (items - 1), wrapped like the sum.
        let sum = (u128::from(items) * u128::from(items - 1) / 2) as u64;
        let is_other_sum = f64::from(u8::from(out.numbers != sum));
        Ok(vec![
            Check::always("items", out.items as f64, items as f64, 0.0),
            Check::always("items twice or never", is_other_sum, 0.0, 0.0),
            Check::always("items computed otherwise", out.wrong as f64, 0.0, 0.0),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_stage_and_every_member_belongs_to_one_pool(threads in 3usize..70) {
            let pools = pools(threads);
            prop_assert_eq!(pools[0].stages.start, 0);
            prop_assert_eq!(pools[0].members.start, 1);
            let last = &pools[pools.len() - 1];
            prop_assert_eq!((last.stages.end, last.members.end), (MIDDLE, threads - 1));
            for pair in pools.windows(2) {
                prop_assert_eq!(pair[0].stages.end, pair[1].stages.start);
                prop_assert_eq!(pair[0].members.end, pair[1].members.start);
            }
            for pool in &pools {
                prop_assert!(!pool.stages.is_empty() && !pool.members.is_empty());
            }
        }
    }

    #[test]
    fn one_or_two_threads_need_no_pools() {
        assert_eq!([pools(1), pools(2)], [vec![], vec![]]);
    }
}
