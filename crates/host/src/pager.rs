//! The paging half of the host: samples accesses and moves pages, in a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_topology::{CpuSet, Topology};
use numaherd_world::{Notice, PageOrder, PageOutcome, Pager, Progress, Sample, WorldError};

use crate::end_of_run::Ending;
use crate::files::Root;
use crate::ipm_unit::IpmUnit;
use crate::kernel::Hands;
use crate::pages::Mover;
use crate::samples::{Roster, Sampler};
use crate::stop::Stop;

/// The paging half.
#[derive(Debug)]
pub(crate) struct HostPager {
    pub(crate) root: Root,
    pub(crate) topology: Arc<Topology>,
    pub(crate) hands: Arc<dyn Hands>,
    /// `None` where the machine cannot sample; pages can be moved all the same.
    pub(crate) sampler: Option<Sampler>,
    /// The IPM unit, in the lab.
    pub(crate) ipm: Option<Arc<Mutex<IpmUnit>>>,
    /// Whether anybody wants to know what the unit says.
    pub(crate) attends_unit: Arc<AtomicBool>,
    pub(crate) roster: Roster,
    pub(crate) page_bytes: u64,
    pub(crate) began_ns: u64,
    pub(crate) mover: Mover,
    pub(crate) stop: Stop,
    pub(crate) ending: Arc<Ending>,
    /// What was missed, for the next snapshot.
    pub(crate) gaps: Arc<Mutex<Vec<String>>>,
}

impl HostPager {
    fn online(&self) -> CpuSet {
        self.root
            .online_cpus()
            .unwrap_or_else(|| self.topology.online_cpus())
    }

    /// Says what was missed in the next snapshot.
    fn miss(&self, missed: impl IntoIterator<Item = String>) {
        let mut gaps = self
            .gaps
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        for gap in missed {
            // The same every 10 ms would bury the snapshot.
            if !gaps.contains(&gap) && gaps.len() < 16 {
                gaps.push(gap);
            }
        }
    }
}

impl Pager for HostPager {
    fn run_for(&mut self, interval: Duration) -> Progress {
        self.ending.run_for(&self.stop, None, interval)
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        let online = self.online();
        let Some(sampler) = &mut self.sampler else {
            return Ok(Vec::new());
        };
        let collected = sampler.collect(&online, self.hands.now_ns());
        self.miss(collected.gaps);
        Ok(collected.samples)
    }

    fn notices(&mut self) -> Vec<Notice> {
        let attended = self.attends_unit.load(Ordering::Relaxed);
        let Some(unit) = self.ipm.as_ref().filter(|_| attended) else {
            return Vec::new();
        };
        let roster = self
            .roster
            .read()
            .unwrap_or_else(|poison| poison.into_inner());
        let mut unit = unit.lock().unwrap_or_else(|poison| poison.into_inner());
        let read = unit.notices(&roster, self.page_bytes, self.began_ns);
        drop((unit, roster));
        read.unwrap_or_else(|error| {
            self.miss([format!("the IPM unit cannot be read: {error}")]);
            Vec::new()
        })
    }

    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        self.mover.carry_out(&*self.hands, orders, &self.stop)
    }
}
