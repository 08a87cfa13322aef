//! A ledger read from its beginning, for views of a whole run.

use std::sync::Arc;

use numaherd_herd::ledger::Header;
use numaherd_herd::{HerdError, Line};
use numaherd_world::Residency;
use serde::Serialize;

use crate::run::{History, RunModel};
use crate::words::cut;

/// A ledger, and how complete it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The program that wrote it, with its version.
    pub program: String,
    /// When it was begun, in ms since 1970 (UTC), where that is known.
    pub begun_unix_ms: Option<u64>,
    /// Whether the part before it is in an older file (`<name>.1`) or lost.
    pub later_part: bool,
    /// Records of kinds that this program does not know; they are passed over.
    pub unknown_records: u64,
    /// Where it is damaged and how, as a sentence.
    pub damage: Option<String>,
}

/// A run while its ledger is read: the model, and what a view keeps of the past.
#[derive(Debug)]
pub struct Read<H> {
    /// Its name for people; empty if its view has no name for it.
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) model: RunModel,
    pub(crate) past: H,
}

impl<H: History> Read<H> {
    /// Begins with a ledger's first line.
    pub(crate) fn begin(name: &str, header: &Header, past: H) -> Self {
        Self {
            name: cut(name).to_owned(),
            source: Source {
                program: header.program.clone(),
                begun_unix_ms: header.begun_unix_ms,
                later_part: false,
                unknown_records: 0,
                damage: None,
            },
            model: RunModel::new(),
            past,
        }
    }

    /// Takes in the next line.
    pub fn line(&mut self, line: &Arc<Line>) {
        if self.model.more.lines == 0 {
            self.source.later_part = line.sequence > 0;
        }
        self.model.take_with(line, &mut self.past);
    }

    /// Ends the reading. `skipped` is the number of records of unknown kind; `damage` is what stopped the reading
    /// before the end of the file.
    pub(crate) fn end(&mut self, skipped: u64, damage: Option<&HerdError>) {
        self.model.finish(&mut self.past);
        self.source.unknown_records = skipped;
        self.source.damage = damage.map(ToString::to_string);
    }
}

/// Where a process's pages were when first and last read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Homes {
    /// When first read.
    pub first: Residency,
    /// When last read.
    pub last: Residency,
}

impl Homes {
    /// Notes where the pages are now.
    pub(crate) fn note(homes: &mut Option<Self>, now: &Residency) {
        match homes {
            Some(homes) => {
                homes.last.pages.clone_from(&now.pages);
                homes.last.kinds.clone_from(&now.kinds);
            }
            None => {
                *homes = Some(Self {
                    first: now.clone(),
                    last: now.clone(),
                });
            }
        }
    }
}
