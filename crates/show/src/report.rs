//! A run, or several side by side, as one self-contained HTML page: no script, no network, charts drawn as SVG within
//! it.
//!
//! A [`Reading`] takes in a ledger line by line: the [`RunModel`], and the past as columns, so that a run
//! of days takes no more memory than one of minutes. It becomes a [`Run`], and [`page`] writes one or
//! several of these. A damaged ledger is drawn up to the damage, and the page says where that is.
//!
//! Terms: a *column* is a slice of time with the least, mean and greatest of a figure (`columns`); *before* and *after*
//! compare a process before and since the first time that one of its threads or pages was moved. They show what
//! followed, not what the move caused.
//!
//! Names of threads and reasons can come from anyone. Everything from a ledger is text on the page, never markup: the
//! template escapes it where it is written, and long text is cut. The page's own policy (`Content-Security-Policy`)
//! forbids scripts and all outside content.

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
    /// Begins with a ledger's first line; `name` is its name for people.
    pub fn new(name: &str, header: &Header) -> Self {
        Self::begin(name, header, Charts::default())
    }

    /// Ends the reading. `skipped` is the number of records of unknown kind; `damage` is what stopped the reading
    /// before the end of the file.
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

    /// Lines fetched from memory per 1000 instructions, over the whole run if the ledger holds its end.
    fn miss_rate(&self) -> Option<f64> {
        let seen = || self.charts.seen.as_ref()?.all.counted.miss_rate();
        self.model.totals.counted.miss_rate().or_else(seen)
    }

    /// Share of lines that came from the core's own node, over the whole run if the ledger holds its end.
    fn local_access_ratio(&self) -> Option<f64> {
        let seen = || self.charts.seen.as_ref()?.all.counted.local_access_ratio();
        self.model.totals.counted.local_access_ratio().or_else(seen)
    }

    /// The processes by CPU time, most first.
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
