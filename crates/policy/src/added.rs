//! Policies that are one file each and named nowhere else.
//!
//! A file in `src/added/`, or in the folder that `NUMAHERD_POLICIES` names when the program is built,
//! is a module of this crate (`build.rs`), and what its `pub const ADDED` lists is in the registry
//! beside all others: in `numaherd policies`, in every world, in every comparison. What to put in it
//! is told in docs/researchers.md.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use numaherd_files::setting::{Kind, Setting, Value, Wrong, joined};
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::registry::{Entry, Half, MakePaging, MakePlacement};

/// What one file adds.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// Policies: halves joined under names of their own. The halves may be anybody's.
    pub policies: &'static [Entry],
    /// Placements.
    pub placements: &'static [Half<MakePlacement>],
    /// Pagings.
    pub pagings: &'static [Half<MakePaging>],
    /// Tables of settings: `[policies.NAME]` in a configuration.
    pub settings: &'static [AddedTable],
}

impl Added {
    /// Nothing.
    pub const NOTHING: Self = Self {
        policies: &[],
        placements: &[],
        pagings: &[],
        settings: &[],
    };
}

/// A table of settings that a file adds.
#[derive(Clone, Copy, Debug)]
pub struct AddedTable {
    name: &'static str,
    kind: Kind,
    read: fn(toml::Table) -> Result<Box<dyn Checked>, String>,
}

/// Settings of which no more has to be known than whether they can be.
trait Checked {
    fn check(&self, key: &str, wrong: &mut Vec<Wrong>);
}

impl<T: Value> Checked for T {
    fn check(&self, key: &str, wrong: &mut Vec<Wrong>) {
        Value::check(self, key, &Setting::BLANK, wrong);
    }
}

impl AddedTable {
    /// The table of that name, whose settings are a `T`.
    pub const fn of<T: Value + DeserializeOwned + 'static>(name: &'static str) -> Self {
        Self {
            name,
            kind: T::KIND,
            read: |table| match table.try_into::<T>() {
                Ok(settings) => Ok(Box::new(settings)),
                Err(error) => Err(error.message().to_owned()),
            },
        }
    }
}

/// What is set of the tables that files add. Only tables that are known, and only values of the right
/// kinds, are ever in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AddedSettings(BTreeMap<String, toml::Table>);

impl AddedSettings {
    /// The settings of a table, for the policy whose they are.
    ///
    /// # Panics
    /// If `T` is not what the file's [`Added::settings`] says of the table.
    pub fn of<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        let table = self.0.get(name).cloned();
        table.map_or_else(T::default, |table| {
            let settings = table.try_into();
            settings.unwrap_or_else(|error| panic!("[policies.{name}] is of another type: {error}"))
        })
    }

    pub(crate) fn settings() -> impl Iterator<Item = Setting> {
        known().map(|table| Setting {
            name: table.name,
            kind: table.kind,
            ..Setting::BLANK
        })
    }

    pub(crate) fn check(&self, key: &str, wrong: &mut Vec<Wrong>) {
        for table in known() {
            let set = self.0.get(table.name).cloned();
            if let Some(Ok(settings)) = set.map(table.read) {
                settings.check(&joined(key, table.name), wrong);
            }
        }
    }
}

impl<'de> Deserialize<'de> for AddedSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // As a struct of the known tables, so that those around it can tell which keys nobody takes.
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| known().map(|t| t.name).collect());
        from.deserialize_struct("AddedSettings", &NAMES, Tables)
    }
}

/// Takes the known tables, each checked for what it may hold.
struct Tables;

impl<'de> Visitor<'de> for Tables {
    type Value = AddedSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tables of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<AddedSettings, A::Error> {
        let mut tables = BTreeMap::new();
        while let Some((name, set)) = from.next_entry::<String, toml::Table>()? {
            let table = known().find(|table| table.name == name);
            let table = table.ok_or_else(|| A::Error::custom(format!("unknown table `{name}`")))?;
            (table.read)(set.clone()).map_err(A::Error::custom)?;
            tables.insert(name, set);
        }
        Ok(AddedSettings(tables))
    }
}

fn known() -> impl Iterator<Item = &'static AddedTable> {
    ALL.iter().flat_map(|added| added.settings)
}

include!(concat!(env!("OUT_DIR"), "/added.rs"));

/// A list of the registry with what was added put in behind its first `$after` items: a constant, so
/// that a name that is taken already stops the build, not a run.
macro_rules! with_added {
    ($kind:ty, $ours:expr, $after:expr, $added:ident) => {{
        const OURS: &[$kind] = $ours;
        const LENGTH: usize = {
            let (mut length, mut file) = (OURS.len(), 0);
            while file < $crate::added::ALL.len() {
                length += $crate::added::ALL[file].$added.len();
                file += 1;
            }
            length
        };
        const JOINED: [$kind; LENGTH] = {
            let mut joined = [OURS[0]; LENGTH];
            let (mut next, mut file) = ($after, 0);
            let mut at = 0;
            while at < OURS.len() {
                joined[if at < $after { at } else { LENGTH - OURS.len() + at }] = OURS[at];
                at += 1;
            }
            while file < $crate::added::ALL.len() {
                let added = $crate::added::ALL[file].$added;
                let mut at = 0;
                while at < added.len() {
                    joined[next] = added[at];
                    next += 1;
                    at += 1;
                }
                file += 1;
            }
            joined
        };
        const _: () = {
            let mut at = 0;
            while at < LENGTH {
                let mut other = at + 1;
                while other < LENGTH {
                    assert!(
                        !$crate::added::same(JOINED[at].name, JOINED[other].name),
                        "two policies, placements or pagings have one name: give the added one another"
                    );
                    other += 1;
                }
                at += 1;
            }
        };
        &JOINED
    }};
}
pub(crate) use with_added;

/// Whether two names are the same, at compile time.
pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
