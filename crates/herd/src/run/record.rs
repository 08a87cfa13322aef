//! The recorder of a run: every line goes to the ledger while that can be written, to the watchers, and
//! into the summary.

use std::collections::BTreeSet;
use std::sync::Arc;

use numaherd_policy::losses::{Estimate, Losses, Observer};
use numaherd_topology::Topology;
use numaherd_world::Snapshot;

use super::Watcher;
use super::thinned::PassedOver;
use crate::error::HerdError;
use crate::governor::Governed;
use crate::ledger::{Line, Notice, Record, Writer};
use crate::paging::News;
use crate::settings::Settings;
use crate::summary::Summary;

/// Records to the ledger while that can be written, to the watchers, and to the summary.
pub(super) struct Recorder<'w> {
    ledger: Option<Writer>,
    watchers: Vec<Watcher<'w>>,
    sequence: u64,
    /// The world's time of the latest snapshot or page tick, in ns.
    pub(super) time_ns: u64,
    said: BTreeSet<String>,
    passed_over: PassedOver,
    /// What looks for losses, and where; `None` where nobody wants to know.
    losses: Option<(Observer, Arc<Topology>)>,
    /// Whether the latest recorded losses are those of a machine at rest.
    is_idle: bool,
    pub(super) summary: Summary,
}

impl<'w> Recorder<'w> {
    /// Nothing is recorded yet.
    pub(super) fn new(
        ledger: Option<Writer>,
        watchers: Vec<Watcher<'w>>,
        summary: Summary,
        passed_over: PassedOver,
        losses: Option<(Observer, Arc<Topology>)>,
    ) -> Self {
        Self {
            ledger,
            watchers,
            sequence: 0,
            time_ns: 0,
            said: BTreeSet::new(),
            passed_over,
            losses,
            is_idle: false,
            summary,
        }
    }

    /// Whether anyone sees what is recorded.
    fn is_seen(&self) -> bool {
        self.ledger.is_some() || !self.watchers.is_empty()
    }

    /// Adds a record, at the latest time. It is made only if someone sees it.
    pub(super) fn add(&mut self, record: impl FnOnce() -> Record) {
        if !self.is_seen() {
            return;
        }
        let line = Arc::new(Line {
            sequence: self.sequence,
            time_ns: self.time_ns,
            record: record(),
        });
        self.sequence += 1;
        for watcher in &mut self.watchers {
            watcher(&line);
        }
        let written = self.ledger.as_mut().map(|ledger| ledger.write(line));
        self.end_ledger_on(written);
    }

    /// Adds what was seen, or keeps it for the next record. Returns whether what was made of it is to be
    /// added too. `own` are the losses that the policy found in it.
    pub(super) fn saw(
        &mut self,
        snapshot: &Snapshot,
        governed: &Governed,
        mut own: Option<Losses>,
    ) -> bool {
        if !self.is_seen() {
            return false;
        }
        let recorded = self.passed_over.saw(snapshot, governed);
        for seen in recorded.snapshots {
            let own = own.take_if(|_| seen.sequence == snapshot.sequence);
            let losses = (self.losses.as_mut())
                .and_then(|(observer, topology)| observer.look(&seen, topology, own));
            let interval_ns = seen.interval_ns;
            self.add(|| Record::Snapshot(seen));
            if let Some(losses) = losses {
                self.lost(losses, interval_ns);
            }
        }
        recorded.placing
    }

    /// Adds what was lost; of a machine that stays at rest, once.
    fn lost(&mut self, losses: Losses, interval_ns: u64) {
        self.summary.totals.add_losses(&losses, interval_ns);
        let is_idle = losses.estimate == Estimate::Idle;
        if !std::mem::replace(&mut self.is_idle, is_idle) || !is_idle {
            self.add(|| Record::Losses(losses));
        }
    }

    /// Adds the intervals passed over until now: the run ends, or its cadence changes.
    pub(super) fn passed_over_last(&mut self) {
        if let Some(snapshot) = self.passed_over.rest() {
            self.add(|| Record::Snapshot(snapshot));
        }
    }

    /// Sets which intervals are passed over. `settings` are resolved.
    pub(super) fn set_cadence(&mut self, settings: &Settings) {
        self.passed_over_last();
        self.passed_over.set_cadence(settings);
    }

    /// The sequence of the latest recorded snapshot.
    pub(super) fn last_recorded(&self) -> u64 {
        self.passed_over.last_recorded()
    }

    /// Adds what the paging says.
    pub(super) fn heard(&mut self, news: News) {
        match news {
            News::Tick { time_ns, tick } => {
                self.time_ns = self.time_ns.max(time_ns);
                self.summary.totals.add_paging(&tick);
                self.add(|| Record::Paging(tick));
            }
            // It is in the next snapshot.
            News::Shared(_) => {}
            News::Ended(why) => self.notice(format!(
                "pages are no longer moved: {why}; threads still are"
            )),
            News::LeftBehind { waited } => self.notice(format!(
                "{} s after the stop, the kernel was still moving pages, as it may for long where a node is full; the \
                 stop does not wait for it, and what it moved last is not recorded",
                waited.as_secs()
            )),
        }
    }

    /// Says a thing once.
    pub(super) fn notice(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            self.summary.notices.push(text.clone());
            self.add(|| Record::Notice(Notice { text }));
        }
    }

    /// Hands what is recorded to the operating system.
    pub(super) fn flush(&mut self) {
        let written = self.ledger.as_mut().map(Writer::flush);
        self.end_ledger_on(written);
    }

    /// A ledger that cannot be written ends with one message; herding goes on.
    fn end_ledger_on(&mut self, written: Option<Result<(), HerdError>>) {
        if let Some(Err(error)) = written {
            self.ledger = None;
            let error = error.to_string();
            self.notice(format!("{error}; the ledger ends here; herding continues"));
            self.add(|| Record::LedgerEnded { error });
        }
    }
}
