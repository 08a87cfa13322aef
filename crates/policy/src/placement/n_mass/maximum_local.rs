//! N-MASS Algorithm 2: every thread at home, those of the highest NUMA penalty first.
//!
//! The paper merges one sorted list for each processor, always taking the front with the highest
//! penalty; of equal fronts that of the later list (line 4: "np of p0 > np of p1"). That is one
//! sort by penalty, then by home from the last, then by thread.

use std::cmp::Reverse;

use crate::placement::n_mass::processors::{Item, Processors};

/// Which processor each thread was mapped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The threads in the order in which they were mapped: descending by NUMA penalty.
    pub order: Vec<usize>,
    /// The processor of each thread.
    pub processor: Vec<usize>,
}

/// Maps all threads. The processors must have room for them.
pub fn map(items: &[Item], processors: &mut Processors) -> Mapping {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| {
        let (x, y) = (&items[a], &items[b]);
        let by_penalty = y.penalty.total_cmp(&x.penalty);
        by_penalty.then_with(|| (Reverse(x.home), a).cmp(&(Reverse(y.home), b)))
    });
    let mut processor = vec![0; items.len()];
    for &thread in &order {
        let item = &items[thread];
        let on = processors
            .available(item)
            .expect("there is room for as many threads as the processors were made for");
        processors.put(item, on);
        processor[thread] = on;
    }
    Mapping { order, processor }
}
