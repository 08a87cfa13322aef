//! A run, or several side by side, as one HTML page that needs nothing else: no script, no network,
//! charts drawn as SVG within it.
//!
//! A [`Reading`] takes a ledger in line by line and keeps sums and columns of it alone, so that a run
//! of days takes no more memory than one of minutes; what it becomes is a [`Run`], and [`page`] writes
//! some of these. A damaged ledger is drawn as far as it is whole, and the page says where it ends.
//!
//! Words: a *column* is a slice of time that is drawn as one, with least, mean and greatest of what
//! fell into it (`columns`); *before* and *after* are a process before and since the first time
//! that one of its threads or pages was moved, which is what followed, not what was caused.
//!
//! Names of threads and reasons can come from anyone. Whatever a ledger holds is text on the page,
//! never markup: it is escaped where it is written, by the template, and cut where it is too long.
//! The page forbids scripts and whatever is elsewhere by its own policy (`Content-Security-Policy`).

mod acts;
mod columns;
mod compare;
mod draw;
mod nodes;
mod page;
mod reading;
mod tracks;
mod work;

use std::collections::BTreeMap;

use numaherd_herd::Summary;
use numaherd_herd::ledger::Start;
use numaherd_world::{ProcessId, ThreadId};

use crate::explain::Source;
use crate::totals::Totals;
pub use page::page;
pub use reading::Reading;
pub(crate) use work::Work;

/// What a page draws of one run.
#[derive(Debug)]
pub struct Run {
    name: String,
    source: Source,
    /// What was done: of the whole run where the ledger holds its end, else counted.
    totals: Totals,
    start: Option<Box<Start>>,
    end: Option<Box<Summary>>,
    page_bytes: u64,
    /// `None` when the ledger ends before anything was seen.
    seen: Option<reading::Seen>,
    threads: BTreeMap<ThreadId, tracks::ThreadTrack>,
    processes: BTreeMap<ProcessId, tracks::ProcessTrack>,
    acts: acts::Acts,
    notices: acts::Sentences,
    gaps: acts::Sentences,
}

impl Run {
    /// Where its ledger is damaged and how, as a sentence; `None` when it is whole.
    pub fn damage(&self) -> Option<&str> {
        self.source.damage.as_deref()
    }

    /// Lines fetched from memory per 1000 instructions, of the whole run where its end says so.
    fn miss_rate(&self) -> Option<f64> {
        let seen = || self.seen.as_ref()?.all.miss_rate();
        self.totals.miss_rate().or_else(seen)
    }

    /// Share of lines that came from the core's own node, of the whole run where its end says so.
    fn local_access_ratio(&self) -> Option<f64> {
        let seen = || self.seen.as_ref()?.all.local_access_ratio();
        self.totals.local_access_ratio().or_else(seen)
    }
}
