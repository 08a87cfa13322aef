//! A run, or several side by side, as one HTML page that needs nothing else: no script, no network,
//! charts drawn as SVG within it.
//!
//! A [`Reading`] takes in a ledger line by line: the [`RunModel`], and the past as columns, so that a run
//! of days takes no more memory than one of minutes. It becomes a [`Run`], and [`page`] writes one or
//! several of these. A damaged ledger is drawn up to the damage, and the page says where that is.
//!
//! Terms: a *column* is a slice of time with the least, mean and greatest of a figure (`columns`);
//! *before* and *after* compare a process before and since the first time that one of its threads or
//! pages was moved, which is what followed, not what was caused.
//!
//! Names of threads and reasons can come from anyone. Whatever a ledger holds is text on the page,
//! never markup: it is escaped where it is written, by the template, and cut where it is too long.
//! The page forbids scripts and whatever is elsewhere by its own policy (`Content-Security-Policy`).

mod columns;
mod compare;
mod draw;
mod history;
mod page;
mod tracks;

use numaherd_herd::HerdError;
use numaherd_herd::ledger::Header;

use crate::reading::{Read, Source};
use crate::run::RunModel;
pub(crate) use draw::Px;
use history::Charts;
use numaherd_world::ProcessId;
pub use page::page;
use tracks::ProcessTrack;

/// What a page draws of one run.
#[derive(Debug)]
pub struct Run {
    name: String,
    source: Source,
    model: RunModel,
    charts: Charts,
}

/// A run while its ledger is read.
pub type Reading = Read<Charts>;

impl Reading {
    /// A ledger of which the first line was read; `name` is how people are shown it.
    pub fn new(name: &str, header: &Header) -> Self {
        Self::begin(name, header, Charts::default())
    }

    /// Ends the reading: how many records of unknown kind were passed over, and what stopped it, if
    /// not the end of the file.
    pub fn finish(mut self, skipped: u64, damage: Option<&HerdError>) -> Run {
        self.end(skipped, damage);
        self.past.finish();
        Run {
            name: self.name,
            source: self.source,
            model: self.model,
            charts: self.past,
        }
    }
}

impl Run {
    /// Where its ledger is damaged and how, as a sentence; `None` when it is whole.
    pub fn damage(&self) -> Option<&str> {
        self.source.damage.as_deref()
    }

    /// Lines fetched from memory per 1000 instructions, of the whole run where its end says so.
    fn miss_rate(&self) -> Option<f64> {
        let seen = || self.charts.seen.as_ref()?.all.counted.miss_rate();
        self.model.totals.counted.miss_rate().or_else(seen)
    }

    /// Share of lines that came from the core's own node, of the whole run where its end says so.
    fn local_access_ratio(&self) -> Option<f64> {
        let seen = || self.charts.seen.as_ref()?.all.counted.local_access_ratio();
        self.model.totals.counted.local_access_ratio().or_else(seen)
    }

    /// The processes, those that used most CPU time first.
    fn busiest_processes(&self) -> Vec<(ProcessId, &ProcessTrack)> {
        let processes = self.charts.processes.iter();
        let mut processes: Vec<_> = processes.map(|(&id, track)| (id, track)).collect();
        processes.sort_by(|(_, a), (_, b)| b.all.cpu_seconds.total_cmp(&a.all.cpu_seconds));
        processes
    }

    /// Whether nothing was carried out.
    fn is_dry(&self) -> bool {
        let start = self.model.start();
        start.is_some_and(|start| start.settings.dry_run)
    }
}
