//! Reads a host's ledger into sums over the whole run: of the machine, its groups and its programs.

use std::collections::BTreeMap;

use numaherd_herd::HerdError;
use numaherd_herd::ledger::Header;
use numaherd_policy::losses::{Losses, Range};

use super::{Help, Host, MOST_NAMES, OTHERS};
use crate::losses::{LostTimes, main};
use crate::reading::Read;
use crate::run::sums::named;
use crate::run::{History, RunModel};

/// A ledger while it is read.
pub type Reading = Read<Past>;

/// A host that was read.
#[derive(Clone, Debug)]
pub struct HostRead {
    /// Its figures.
    pub host: Host,
    /// Cores that its groups lose, by name.
    pub groups: BTreeMap<String, f64>,
    /// Cores that its programs lose, by name.
    pub programs: BTreeMap<String, f64>,
    /// When its ledger ends, in ms since 1970, if that is known.
    pub ends_unix_ms: Option<u64>,
    /// Where its ledger is damaged, as a sentence.
    pub damage: Option<String>,
}

/// What is kept of the past.
#[derive(Debug, Default)]
pub struct Past {
    lost: LostTimes,
    /// Estimates of any kind, including unknown ones.
    looks: u64,
    /// Core seconds.
    groups: BTreeMap<String, f64>,
    programs: BTreeMap<String, f64>,
}

impl Reading {
    /// Begins with a ledger's first line; `name` is the host's name.
    pub fn new(name: &str, header: &Header) -> Self {
        Self::begin(name, header, Past::default())
    }

    /// Ends the reading. `damage` is what stopped it before the end of the file.
    pub fn finish(mut self, damage: Option<&HerdError>) -> HostRead {
        self.end(0, damage);
        let (model, past) = (self.model, self.past);
        let main = main(&past.lost.by_basis);
        let seconds = main.map_or(0.0, |(_, lost)| lost.seconds);
        // The results of searches cover only the time in which there was one.
        let searched = main.filter(|(_, lost)| lost.searched > 0.0);
        let searched = searched.map(|(_, lost)| (&lost.recoverable, lost.wanted / lost.searched));
        let parts = main.filter(|(_, lost)| lost.lost.mean.is_some());
        let mut host = Host {
            name: self.name,
            cpus: model.machine.as_ref().map_or(0, |machine| machine.cpus),
            dry_run: model.dry_run,
            paused: model.paused,
            basis: main.map(|(basis, _)| basis),
            lost: main.map(|(_, lost)| times(&lost.lost, 1.0 / seconds)),
            recoverable: searched.map(|(recoverable, more)| times(recoverable, more / seconds)),
            parts: parts.map(|(_, lost)| lost.parts.times(1.0 / seconds)),
            help: Help::Nothing,
            policy: model.policy,
        };
        host.help = match past.looks {
            0 => Help::NewerProgram,
            _ => Help::of(&host, past.lost.unknown),
        };
        let cores = |names: BTreeMap<String, f64>| {
            let each = names.into_iter().map(|(name, lost)| (name, lost / seconds));
            each.filter(|(_, lost)| lost.is_finite()).collect()
        };
        let begun = self.source.begun_unix_ms;
        HostRead {
            host,
            groups: cores(past.groups),
            programs: cores(past.programs),
            ends_unix_ms: begun.map(|begun| begun.saturating_add(model.time_ns / 1_000_000)),
            damage: self.source.damage,
        }
    }
}

impl History for Past {
    fn lost(&mut self, model: &RunModel, losses: &Losses) {
        let seconds = model.interval_ns as f64 / 1e9;
        self.looks += 1;
        self.lost.add(losses, seconds);
        for process in losses.processes.iter().flatten() {
            let Some(track) = model.process(process.id) else {
                continue;
            };
            let lost = process.lost * seconds;
            if let Some(group) = &track.group {
                add(&mut self.groups, group, lost);
            }
            match &track.guest {
                Some(guest) => add(&mut self.programs, &format!("vm {}", guest.name), lost),
                None => add(&mut self.programs, &track.name, lost),
            }
        }
    }
}

/// Adds to the loss of a name, or to that of the others once there are enough names.
fn add(names: &mut BTreeMap<String, f64>, name: &str, lost: f64) {
    *named(names, name, (MOST_NAMES, OTHERS)) += lost;
}

/// A range multiplied by `times`.
fn times(range: &Range, times: f64) -> Range {
    let mut product = Range::default();
    product.add(range, times);
    product
}
