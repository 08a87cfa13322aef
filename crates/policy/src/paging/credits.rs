//! Events credited by IPM's equations: which node a page belongs to and which threads share pages, from
//! single TLB misses or memory samples.
//!
//! Problem: where nothing measures how long pages stay in TLBs, single events must do. Rule (IPM §5.2,
//! strategy ii): "the same procedure", Eq. 3 to 9 ([`numaherd_hardware::Histories`]), each event
//! crediting its page to the thread and to the node that it ran on, with a fixed weight in place of the
//! residency. The weight is 2^`CR_aging` ([`numaherd_hardware::IpmConfig::event_weight`]; its
//! documentation says why it cannot be 1).
//!
//! Each process has histories and a matrix of its own; what they found is taken out once an interval.

use std::collections::{BTreeMap, HashMap};

use numaherd_hardware::{Application, Histories, IpmConfig, Page, Thread};
use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Sharing, Snapshot, ThreadId};

use super::driver::Access;

/// Threads of a process that there is room for at first.
const FIRST_THREADS: u32 = 8;

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Credits {
    config: IpmConfig,
    processes: BTreeMap<ProcessId, OfProcess>,
}

#[derive(Debug)]
struct OfProcess {
    histories: Histories,
    application: Application,
    threads: HashMap<ThreadId, Thread>,
    /// Whether any event was credited since the matrix was taken out.
    credited: bool,
}

impl Credits {
    /// Nothing credited yet. Settings have been checked.
    pub(super) fn new(cr_aging: u32, cr_mig: u32) -> Self {
        Self {
            config: IpmConfig {
                cr_aging,
                cr_mig,
                threads: FIRST_THREADS,
                ..IpmConfig::of_paper()
            },
            processes: BTreeMap::new(),
        }
    }

    /// Credits an event. Returns the node of its thread if its page should move there.
    pub(super) fn credit(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let (sample, topology) = (access.sample, access.topology);
        let node = topology.node_index(access.node)?;
        let home = sample.node.and_then(|home| topology.node_index(home));
        let weight = self.config.event_weight();
        let of = match self.processes.entry(sample.process) {
            std::collections::btree_map::Entry::Occupied(of) => of.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let nodes = topology.nodes().len();
                let mut histories = Histories::new(self.config, nodes).ok()?;
                place.insert(OfProcess {
                    application: histories.start_application(),
                    histories,
                    threads: HashMap::new(),
                    credited: false,
                })
            }
        };
        let OfProcess {
            histories,
            application,
            threads,
            credited,
        } = of;
        let thread = threads
            .entry(sample.thread)
            .or_insert_with(|| histories.start_thread(*application).thread);
        *credited = true;
        let came = histories.credit(
            Page::new(access.page),
            *application,
            Some(thread.number),
            node,
            weight,
            |_| home,
        );
        came.notification.map(|_| access.node)
    }

    /// Ends the threads and processes that are gone.
    pub(super) fn keep_only(&mut self, snapshot: &Snapshot) {
        self.processes
            .retain(|&process, _| snapshot.process(process).is_some());
        for of in self.processes.values_mut() {
            let histories = &mut of.histories;
            of.threads.retain(|&id, thread| {
                let lives = snapshot.thread(id).is_some();
                if !lives {
                    histories.end_thread(*thread);
                }
                lives
            });
        }
    }

    /// How much threads shared since the last call.
    pub(super) fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        let mut all = Vec::new();
        for (&process, of) in &mut self.processes {
            if !std::mem::take(&mut of.credited) {
                continue;
            }
            let Some(matrix) = of.histories.matrix_mut(of.application) else {
                continue;
            };
            let mut threads: Vec<_> = of.threads.iter().collect();
            threads.sort_unstable();
            let mut pairs = Vec::new();
            for (at, &(&one, number)) in threads.iter().enumerate() {
                for &(&other, its) in &threads[at + 1..] {
                    let amount = matrix.between(number.number, its.number);
                    if amount > 0 {
                        pairs.push((one, other, amount));
                    }
                }
            }
            matrix.age(0.0);
            if !pairs.is_empty() {
                all.push((process, Sharing { pairs }));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
