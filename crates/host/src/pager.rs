//! The paging half of the host: samples accesses and moves pages, in a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuSet, Topology};
use numaherd_world::{PageOrder, PageOutcome, Pager, Progress, Sample, WorldError};

use crate::ending::Ending;
use crate::files::Root;
use crate::kernel::Hands;
use crate::pages::Mover;
use crate::samples::Sampler;
use crate::stop::Stop;

/// The paging half.
#[derive(Debug)]
pub(crate) struct HostPager {
    pub(crate) root: Root,
    pub(crate) topology: Arc<Topology>,
    pub(crate) hands: Arc<dyn Hands>,
    /// `None` where the machine cannot sample; pages can be moved all the same.
    pub(crate) sampler: Option<Sampler>,
    pub(crate) mover: Mover,
    pub(crate) stop: Stop,
    pub(crate) ending: Arc<Ending>,
    /// What was missed, for the next snapshot.
    pub(crate) gaps: Arc<std::sync::Mutex<Vec<String>>>,
}

impl HostPager {
    fn online(&self) -> CpuSet {
        self.root
            .online_cpus()
            .unwrap_or_else(|| self.topology.online_cpus())
    }
}

impl Pager for HostPager {
    fn run_for(&mut self, interval: Duration) -> Progress {
        self.ending.run_for(&self.stop, interval)
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        let online = self.online();
        let Some(sampler) = &mut self.sampler else {
            return Ok(Vec::new());
        };
        let collected = sampler.collect(&online, self.hands.now_ns());
        if !collected.gaps.is_empty() {
            let mut gaps = self
                .gaps
                .lock()
                .unwrap_or_else(|poison| poison.into_inner());
            for gap in collected.gaps {
                // The same every 10 ms would bury the snapshot.
                if !gaps.contains(&gap) && gaps.len() < 16 {
                    gaps.push(gap);
                }
            }
        }
        Ok(collected.samples)
    }

    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        self.mover.carry_out(&*self.hands, orders, &self.stop)
    }
}
