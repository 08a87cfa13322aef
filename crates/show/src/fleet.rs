//! Many machines at once: which machines, groups (pods, jobs) and programs lose most to caches and memory, and what
//! would help.
//!
//! Each host is one ledger ([`Reading`]) or what a Prometheus knows of one `serve` ([`prometheus`]). It is reduced to a
//! few figures as soon as it is read, so that memory grows with the number of hosts and names, not with the length of
//! ledgers. At most [`MOST_NAMES`] groups and as many programs of a host are kept by name; the rest is `others`.
//!
//! Terms: *cores lost* is the mean of the estimates over the time in which there was one ([`crate::losses`]), with the
//! least and the most. Where no likely value is known, there is only a bound. A group or a program loses its part of
//! the mean, over the same time, summed over hosts.

mod help;
mod page;
pub mod prometheus;
mod reading;
mod text;

use std::collections::BTreeMap;

use numaherd_policy::losses::{Basis, Parts, Range};
use serde::Serialize;

pub use help::Help;
pub use page::page;
pub use reading::{HostRead, Reading};
pub use text::text;

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// Most groups and most programs of a host that are kept by name.
pub const MOST_NAMES: usize = 256;

/// The name of all others.
pub const OTHERS: &str = "others";

/// A host is named as old if its ledger ends this long before the latest one: its figures may be out of date.
const OLD_MS: u64 = 24 * 3600 * 1000;

/// What is known about many machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What it is drawn from, in words: `ledgers`, `http://… over the last 1 h`.
    pub drawn_from: String,
    /// What all hosts lose together.
    pub all: All,
    /// The hosts, those that lose most first.
    pub hosts: Vec<Host>,
    /// What would help, by how many cores it would give back, then by how many are lost there.
    pub helps: Vec<HelpSum>,
    /// Groups (pods, jobs, services), those that lose most first.
    pub groups: Vec<Loser>,
    /// Programs by name, those that lose most first.
    pub programs: Vec<Loser>,
    /// What could not be read, was read in part, or is old.
    pub notes: Vec<Note>,
}

/// What all hosts lose together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct All {
    /// Hosts that were read.
    pub hosts: usize,
    /// Their CPUs.
    pub cpus: usize,
    /// Hosts whose mean is known.
    pub known: usize,
    /// Cores that those with a mean lose.
    pub lost: Range,
    /// Of these, cores that another placement would give back.
    pub recoverable: Range,
    /// Hosts of which only an upper bound is known.
    pub bounded: usize,
    /// Cores that those with a bound lose at most.
    pub bound: f64,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Its name: that of its ledger, or its `instance`.
    pub name: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// The policy.
    pub policy: String,
    /// Whether nothing is carried out.
    pub dry_run: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// What lost cores are estimated from; `None` if they are not known.
    pub basis: Option<Basis>,
    /// Cores lost on average.
    pub lost: Option<Range>,
    /// Of these, cores that another placement would give back.
    pub recoverable: Option<Range>,
    /// What the mean is lost to.
    pub parts: Option<Parts>,
    /// What would help.
    pub help: Help,
}

/// A group or a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loser {
    /// Its name.
    pub name: String,
    /// Cores that it loses on all hosts together.
    pub lost: f64,
    /// Hosts on which it loses any; `None` if that was not asked for.
    pub hosts: Option<usize>,
    /// The host on which it loses most, and how many cores.
    pub worst: Option<(String, f64)>,
}

/// Hosts that the same change would help.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HelpSum {
    /// The change.
    pub help: Help,
    /// The same in words.
    pub words: &'static str,
    /// How many hosts.
    pub hosts: usize,
    /// Cores that they lose, by the mean.
    pub lost: f64,
    /// Of these, cores that another placement would give back.
    pub recoverable: f64,
    /// The first of them, in the order of hosts.
    pub first: Vec<String>,
}

/// Something about a host, or a file, that its reader must know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    /// The host or the file.
    pub name: String,
    /// The note, as a phrase.
    pub what: String,
}

/// Hosts as they are read, in any order.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    hosts: Vec<Host>,
    /// When the ledger of each host ends, in ms since 1970.
    ends: Vec<Option<u64>>,
    groups: BTreeMap<String, Losing>,
    programs: BTreeMap<String, Losing>,
    notes: Vec<Note>,
}

/// A group or program while hosts are read.
#[derive(Clone, Debug, Default)]
struct Losing {
    lost: f64,
    hosts: usize,
    /// The place of the host on which it loses most.
    worst: (usize, f64),
}

impl Gathering {
    /// Takes in a host.
    pub fn host(&mut self, read: HostRead) {
        let place = self.hosts.len();
        for (names, of_host) in [
            (&mut self.groups, read.groups),
            (&mut self.programs, read.programs),
        ] {
            for (name, lost) in of_host.into_iter().filter(|(_, lost)| *lost > 0.0) {
                let losing = names.entry(name).or_default();
                losing.lost += lost;
                losing.hosts += 1;
                if lost > losing.worst.1 {
                    losing.worst = (place, lost);
                }
            }
        }
        if let Some(damage) = read.damage {
            self.note(&read.host.name, format!("read up to the damage: {damage}"));
        }
        self.hosts.push(read.host);
        self.ends.push(read.ends_unix_ms);
    }

    /// Takes in a note about a host or a file.
    pub fn note(&mut self, name: &str, what: String) {
        let name = name.to_owned();
        self.notes.push(Note { name, what });
    }

    /// Ends the reading; `drawn_from` names the source.
    pub fn finish(mut self, drawn_from: String) -> Fleet {
        self.note_old();
        let named = |losing: BTreeMap<String, Losing>, hosts: &[Host]| {
            let losers = losing.into_iter().map(|(name, losing)| Loser {
                name,
                lost: losing.lost,
                hosts: Some(losing.hosts),
                worst: Some((hosts[losing.worst.0].name.clone(), losing.worst.1)),
            });
            losers.collect()
        };
        let groups = named(self.groups, &self.hosts);
        let programs = named(self.programs, &self.hosts);
        Fleet::of(drawn_from, self.hosts, (groups, programs), self.notes)
    }

    fn note_old(&mut self) {
        let Some(latest) = self.ends.iter().flatten().max().copied() else {
            return;
        };
        for (host, ends) in self.hosts.iter().zip(&self.ends) {
            let behind_ms = ends.map_or(0, |ends| latest - ends);
            if behind_ms > OLD_MS {
                self.notes.push(Note {
                    name: host.name.clone(),
                    what: format!(
                        "old: its ledger ends {} before the last one of the others",
                        crate::words::time(behind_ms.saturating_mul(1_000_000))
                    ),
                });
            }
        }
    }
}

impl Fleet {
    /// Of these hosts, groups and programs.
    fn of(
        drawn_from: String,
        mut hosts: Vec<Host>,
        (mut groups, mut programs): (Vec<Loser>, Vec<Loser>),
        mut notes: Vec<Note>,
    ) -> Self {
        hosts.sort_by(|a, b| {
            let (one, other) = (a.rank(), b.rank());
            let by_figures = other.0.cmp(&one.0).then(other.1.total_cmp(&one.1));
            by_figures.then_with(|| a.name.cmp(&b.name))
        });
        for losers in [&mut groups, &mut programs] {
            losers.sort_by(|a, b| b.lost.total_cmp(&a.lost).then_with(|| a.name.cmp(&b.name)));
        }
        notes.sort();
        Self {
            schema: SCHEMA,
            drawn_from,
            all: all(&hosts),
            helps: helps(&hosts),
            hosts,
            groups,
            programs,
            notes,
        }
    }
}

impl Host {
    /// Cores lost, by the mean.
    fn mean(&self) -> Option<f64> {
        self.lost.as_ref()?.mean
    }

    /// Hosts whose mean is known come before those with a bound, and those before the rest.
    fn rank(&self) -> (u8, f64) {
        match (self.mean(), &self.lost) {
            (Some(mean), _) => (2, mean),
            (None, Some(lost)) => (1, lost.most),
            (None, None) => (0, 0.0),
        }
    }
}

fn all(hosts: &[Host]) -> All {
    let mut all = All {
        hosts: hosts.len(),
        ..All::default()
    };
    for host in hosts {
        all.cpus += host.cpus;
        match (&host.lost, host.mean()) {
            (Some(lost), Some(_)) => {
                all.known += 1;
                all.lost.add(lost, 1.0);
                if let Some(recoverable) = &host.recoverable {
                    all.recoverable.add(recoverable, 1.0);
                }
            }
            (Some(lost), None) => {
                all.bounded += 1;
                all.bound += lost.most;
            }
            (None, _) => {}
        }
    }
    all
}

/// Hosts that are named beside what would help them.
const MOST_FIRST: usize = 5;

fn helps(hosts: &[Host]) -> Vec<HelpSum> {
    let mut helps: Vec<HelpSum> = Vec::new();
    for host in hosts {
        let place = helps.iter().position(|sum| sum.help == host.help);
        let place = place.unwrap_or_else(|| {
            helps.push(HelpSum {
                help: host.help,
                words: host.help.words(),
                hosts: 0,
                lost: 0.0,
                recoverable: 0.0,
                first: Vec::new(),
            });
            helps.len() - 1
        });
        let sum = &mut helps[place];
        sum.hosts += 1;
        sum.lost += host.mean().unwrap_or(0.0);
        sum.recoverable += (host.recoverable.as_ref())
            .and_then(|recoverable| recoverable.mean)
            .unwrap_or(0.0);
        if sum.first.len() < MOST_FIRST {
            sum.first.push(host.name.clone());
        }
    }
    helps.sort_by(|a, b| {
        let by_gain = b.recoverable.total_cmp(&a.recoverable);
        by_gain
            .then(b.lost.total_cmp(&a.lost))
            .then(b.hosts.cmp(&a.hosts))
    });
    helps
}
