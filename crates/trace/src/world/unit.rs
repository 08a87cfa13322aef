//! The IPM unit of the machine, fed with the TLB misses of the trace's threads.
//!
//! Threads are numbered in their process by their order in the trace. A number is never given to another thread. A
//! sleeping thread's translations stay in the TLB of its core, and count, until that core has been idle for long (see
//! `schedule`).

use numaherd_hardware::{
    Application, Config, Eviction, Fill, Ipm, IpmConfig, IpmCounts, Notification, Page as TlbPage,
    Thread as UnitThread, TlbManagement,
};
use numaherd_world::{Sharing, ThreadId};

use super::pages::PageTable;
use super::threads::Thread;
use crate::Error;

pub(super) struct Unit {
    ipm: Ipm,
    applications: Vec<Application>,
    /// The trace's thread numbers of each application's threads, by their number in the application.
    members: Vec<Vec<usize>>,
    /// For each page: until when (in cycles) a unit handles it, and that unit's core.
    dealt_with: Vec<(u64, u32)>,
    loses_races: bool,
    races: u64,
    /// Time that a core's software takes for an eviction; 0 where hardware does it.
    software_ps: u64,
    /// Picoseconds between passes, and when the next is due; `None` without passes.
    pass: Option<(u64, u64)>,
    /// What each pair of threads had shared when last observed: per application, row by row.
    observed: Vec<Vec<u64>>,
}

impl Unit {
    /// A unit that watches all processes from the start; it gives each thread its identity in the unit.
    pub(super) fn new(
        config: IpmConfig,
        machine: &Config,
        processes: usize,
        threads: &mut [Thread],
        loses_races: bool,
    ) -> Result<Self, Error> {
        let mut members = vec![Vec::new(); processes];
        for (place, thread) in threads.iter().enumerate() {
            members[thread.process as usize].push(place);
        }
        let widest = members.iter().map(Vec::len).max().unwrap_or(1);
        // Room for the threads of the largest process: each process takes a matrix of the host's memory.
        let config = IpmConfig {
            threads: u32::try_from(widest).unwrap_or(u32::MAX).max(1),
            ..config
        };
        let mut ipm = Ipm::new(config, machine).map_err(Error::Unit)?;
        let applications: Vec<Application> =
            members.iter().map(|_| ipm.start_application()).collect();
        for (application, members) in applications.iter().zip(&members) {
            for &place in members {
                threads[place].unit = Some(ipm.start_thread(*application));
            }
        }
        let is_software = machine
            .tlb
            .is_some_and(|tlb| tlb.managed_by == TlbManagement::Software);
        let pass = config.pass.map(|pass| {
            let every = machine.picoseconds_of(pass.every_cycles);
            (every, every)
        });
        Ok(Self {
            observed: members
                .iter()
                .map(|of| vec![0; of.len() * of.len()])
                .collect(),
            software_ps: if is_software {
                machine.picoseconds_of(config.eviction_cycles)
            } else {
                0
            },
            ipm,
            applications,
            members,
            dealt_with: Vec::new(),
            loses_races,
            races: 0,
            pass,
        })
    }

    /// Sets the thread that runs on a core.
    pub(super) fn run(&mut self, core: usize, thread: Option<UnitThread>) {
        self.ipm.run(core, thread);
    }

    /// Records a TLB miss. Returns the page to be moved, if any, and how long in picoseconds the core is kept from its
    /// program.
    pub(super) fn miss(
        &mut self,
        core: usize,
        mut fill: Fill,
        tsc: u64,
        pages: &PageTable,
    ) -> (Option<Notification>, u64) {
        let evicted = fill.evicted.map(PageTable::place_of);
        if let Some(place) = evicted
            && self.is_raced(core, place, tsc)
        {
            self.races += 1;
            if self.loses_races {
                // The other core's unit writes last: what this one writes is lost.
                fill.evicted = None;
            }
        }
        let node_of = |page: TlbPage| Some(pages.get(PageTable::place_of(page)).node as usize);
        match self.ipm.tlb_miss(core, &fill, tsc, node_of) {
            Eviction::Handled(notification) => {
                if let Some(place) = evicted {
                    self.deal_with(core, place, tsc);
                }
                (notification, self.software_ps)
            }
            Eviction::Dropped | Eviction::None => (None, 0),
        }
    }

    fn is_raced(&self, core: usize, place: usize, tsc: u64) -> bool {
        self.dealt_with
            .get(place)
            .is_some_and(|&(until, by)| tsc < until && by as usize != core)
    }

    fn deal_with(&mut self, core: usize, place: usize, tsc: u64) {
        if place >= self.dealt_with.len() {
            self.dealt_with.resize(place + 1, (0, 0));
        }
        let until = tsc.saturating_add(self.ipm.histories().config().eviction_cycles);
        self.dealt_with[place] = (until, core as u32);
    }

    /// When the next pass over infrequently evicted pages is due.
    #[inline]
    pub(super) fn next_pass_ps(&self) -> Option<u64> {
        self.pass.map(|(_, next)| next)
    }

    pub(super) fn pass(
        &mut self,
        machine: &Config,
        now_ps: u64,
        pages: &PageTable,
        notify: impl FnMut(Notification),
    ) {
        if let Some((every, next)) = &mut self.pass {
            *next = now_ps.saturating_add(*every);
        }
        let node_of = |page: TlbPage| Some(pages.get(PageTable::place_of(page)).node as usize);
        self.ipm
            .pass_over_infrequently_evicted(machine.cycles(now_ps), node_of, notify);
    }

    /// Notes that a translation of a core was invalidated.
    pub(super) fn invalidated(&mut self, core: usize, entry: usize) {
        self.ipm.invalidated(core, entry);
    }

    /// Notes that all translations of a core were invalidated.
    pub(super) fn flushed(&mut self, core: usize) {
        self.ipm.flushed(core);
    }

    /// What the threads of a process shared since the last call.
    pub(super) fn shared_since(&mut self, process: usize, threads: &[Thread]) -> Sharing {
        let members = &self.members[process];
        let Some(matrix) = self.ipm.histories().matrix(self.applications[process]) else {
            return Sharing::default();
        };
        let id = |place: usize| -> ThreadId { threads[members[place]].id };
        let mut cells = Vec::new();
        for one in 0..members.len() {
            for other in 0..one {
                let now = matrix.between(one as u32, other as u32);
                let seen = &mut self.observed[process][one * members.len() + other];
                let since = now.saturating_sub(*seen);
                *seen = now;
                if since > 0 {
                    cells.push((id(other), id(one), since));
                }
            }
        }
        Sharing::of(cells)
    }

    /// What all pairs of the trace's threads have shared: a square, row by row.
    pub(super) fn sharing(&self, threads: usize) -> Vec<Vec<u64>> {
        let mut all = vec![vec![0; threads]; threads];
        for (application, members) in self.applications.iter().zip(&self.members) {
            let Some(matrix) = self.ipm.histories().matrix(*application) else {
                continue;
            };
            for (one, &row) in members.iter().enumerate() {
                for (other, &column) in members.iter().enumerate() {
                    all[row][column] = matrix.between(one as u32, other as u32);
                }
            }
        }
        all
    }

    /// Whether the unit has learned anything about a page.
    pub(super) fn knows(&self, page: TlbPage) -> bool {
        self.ipm.histories().know(page)
    }

    pub(super) fn counts(&self) -> &IpmCounts {
        self.ipm.counts()
    }

    pub(super) fn races(&self) -> u64 {
        self.races
    }
}
