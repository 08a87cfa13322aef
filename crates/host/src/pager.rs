//! The paging half of the host: samples accesses and moves pages, in a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use numaherd_world::in_step::lock;
use numaherd_world::{Notice, PageOrder, PageOutcome, Pager, Progress, Sample, WorldError};

use crate::damon::Damon;
use crate::host::Shared;
use crate::movers::Movers;
use crate::samples::Sampler;

#[derive(Debug)]
pub(crate) struct HostPager {
    pub(crate) shared: Arc<Shared>,
    /// `None` if the machine cannot sample; pages can still be moved.
    pub(crate) sampler: Option<Sampler>,
    pub(crate) movers: Movers,
    /// Carries out what it can; `movers` do the rest.
    pub(crate) damon: Option<Damon>,
}

impl HostPager {
    /// Reports gaps in the next snapshot.
    fn miss(&self, missed: impl IntoIterator<Item = String>) {
        let mut gaps = lock(&self.shared.pager_gaps);
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
        self.shared
            .ending
            .run_for(&self.shared.stop, None, interval)
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        let Some(sampler) = &mut self.sampler else {
            return Ok(Vec::new());
        };
        let collected = sampler.collect(&self.shared.online(), self.shared.kernel.now_ns());
        self.miss(collected.gaps);
        Ok(collected.samples)
    }

    fn notices(&mut self) -> Vec<Notice> {
        let Some(mut unit) = self.shared.attended_unit() else {
            return Vec::new();
        };
        let Shared {
            roster,
            page_bytes,
            began_ns,
            ..
        } = &*self.shared;
        let read = unit.notices(&roster.now(), *page_bytes, *began_ns);
        drop(unit);
        read.unwrap_or_else(|error| {
            self.miss([format!("the IPM unit cannot be read: {error}")]);
            Vec::new()
        })
    }

    fn rest(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.close();
        }
        if let Some(mut unit) = self.shared.attended_unit() {
            unit.rest();
        }
    }

    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        let outcomes = self.carry_out(orders);
        let mut moved = lock(&self.shared.moved);
        for outcome in outcomes.iter().filter(|outcome| outcome.moved > 0) {
            let took_ns: &mut u64 = moved.entry(outcome.process).or_default();
            *took_ns = took_ns.saturating_add(outcome.took_ns);
        }
        drop(moved);
        outcomes
    }
}

impl HostPager {
    fn carry_out(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        let Shared {
            kernel,
            stop,
            page_bytes,
            ..
        } = &*self.shared;
        let Some(damon) = &self.damon else {
            return self.movers.carry_out(&**kernel, orders, stop);
        };
        let mut missed = Vec::new();
        let mut miss = |gap| missed.push(gap);
        let by_damon = damon.carry_out(&**kernel, orders, *page_bytes, stop, &mut miss);
        let rest: Vec<PageOrder> = std::iter::zip(orders, &by_damon)
            .filter(|(_, outcome)| outcome.is_none())
            .map(|(order, _)| order.clone())
            .collect();
        let mut rest = self.movers.carry_out(&**kernel, &rest, stop).into_iter();
        self.miss(missed);
        let outcomes = by_damon.into_iter();
        outcomes
            .filter_map(|outcome| outcome.or_else(|| rest.next()))
            .collect()
    }
}
