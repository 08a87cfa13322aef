//! A bounded queue between threads: a thread that finds it full or empty sleeps. It ends when its producers have left
//! and it is empty, or when its consumers have left; a thread that panics leaves, too.

use crate::sync::{lock, wait_while};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    depth: usize,
    state: Mutex<State<T>>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    producers: usize,
    consumers: usize,
}

impl<T> Queue<T> {
    /// An empty queue for at most `depth` items.
    pub fn new(depth: usize, producers: usize, consumers: usize) -> Queue<T> {
        Queue {
            depth,
            state: Mutex::new(State {
                items: VecDeque::with_capacity(depth),
                producers,
                consumers,
            }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    /// Puts an item at the end, once there is room. Returns false if all consumers have left.
    pub fn put(&self, item: T) -> bool {
        let mut state = wait_while(&self.emptied, self.state(), |state| {
            state.items.len() == self.depth && state.consumers > 0
        });
        if state.consumers == 0 {
            return false;
        }
        state.items.push_back(item);
        self.filled.notify_one();
        true
    }

    /// Takes the first item, once there is one. None if none will come any more.
    pub fn take(&self) -> Option<T> {
        let mut state = wait_while(&self.filled, self.state(), |state| {
            state.items.is_empty() && state.producers > 0
        });
        let item = state.items.pop_front();
        self.emptied.notify_one();
        item
    }

    /// The presence of a producer, which leaves when this is dropped.
    pub fn producer(&self) -> impl Drop + '_ {
        Leaving(|| {
            self.state().producers -= 1;
            self.filled.notify_all();
        })
    }

    /// The presence of a consumer, which leaves when this is dropped.
    pub fn consumer(&self) -> impl Drop + '_ {
        Leaving(|| {
            self.state().consumers -= 1;
            self.emptied.notify_all();
        })
    }
}

/// Calls a function when dropped.
struct Leaving<F: FnMut()>(F);

impl<F: FnMut()> Drop for Leaving<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_goes_in_comes_out_once(
            depth in 1usize..5, producers in 1usize..4, consumers in 1usize..4, items in 0u32..200
        ) {
            let queue = Queue::new(depth, producers, consumers);
            let mut taken = std::thread::scope(|scope| {
                for producer in 0..producers {
                    let queue = &queue;
                    scope.spawn(move || {
                        let _leaving = queue.producer();
                        for item in 0..items {
                            assert!(queue.put((producer, item)));
                        }
                    });
                }
                let take = || {
                    let _leaving = queue.consumer();
                    std::iter::from_fn(|| queue.take()).collect::<Vec<_>>()
                };
                let takers: Vec<_> = (0..consumers).map(|_| scope.spawn(take)).collect();
                takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
            });
            taken.sort_unstable();
            let all = (0..producers).flat_map(|producer| (0..items).map(move |item| (producer, item)));
            prop_assert!(taken.into_iter().eq(all));
        }
    }

    #[test]
    fn nobody_waits_where_the_others_have_left() {
        let queue = Queue::new(1, 1, 1);
        assert!(queue.put(7));
        drop(queue.producer());
        assert_eq!((queue.take(), queue.take()), (Some(7), None));
        drop(queue.consumer());
        assert!(!queue.put(8));
    }
}
