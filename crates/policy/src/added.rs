//! Policies that are one file each and named nowhere else.
//!
//! A file in `src/added/`, or in the folder that `NUMAHERD_POLICIES` names when the program is built,
//! is a module of this crate (`build.rs`), and what its `pub const ADDED` lists is in the registry
//! beside all others: in `numaherd policies`, in every world, in every comparison.
//! docs/researchers.md explains what to put in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use numaherd_files::setting::{Kind, Setting, Value, Wrong, joined};
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::registry::{Half, MakePaging, MakePlacement, NamedPolicy};

/// What one file adds, or the tree's own tables hold.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// Policies: halves joined under names of their own. The halves may be defined anywhere.
    pub policies: &'static [NamedPolicy],
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
    check: fn(toml::Table, &str, &mut Vec<Wrong>) -> Result<(), toml::de::Error>,
}

impl AddedTable {
    /// The table of that name, whose settings are a `T`.
    pub const fn of<T: Value + DeserializeOwned + 'static>(name: &'static str) -> Self {
        Self {
            name,
            kind: T::KIND,
            check: |table, key, wrong| {
                let settings: T = table.try_into()?;
                Value::check(&settings, key, &Setting::BLANK, wrong);
                Ok(())
            },
        }
    }
}

/// The values set in tables that files add: only tables that are known, and only values of the right
/// kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AddedSettings(BTreeMap<String, toml::Table>);

impl AddedSettings {
    /// The settings of a table, for the policy that owns it.
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
            if let Some(set) = self.0.get(table.name).cloned() {
                // It only ever holds tables that can be read.
                let _ = (table.check)(set, &joined(key, table.name), wrong);
            }
        }
    }
}

impl<'de> Deserialize<'de> for AddedSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // As a struct of the known tables, so the struct around it can tell which keys are unknown.
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
            (table.check)(set.clone(), "", &mut Vec::new())
                .map_err(|error| A::Error::custom(error.message()))?;
            tables.insert(name, set);
        }
        Ok(AddedSettings(tables))
    }
}

fn known() -> impl Iterator<Item = &'static AddedTable> {
    ALL.iter().flat_map(|added| added.settings)
}

include!(concat!(env!("OUT_DIR"), "/added.rs"));

/// The name of item `at` of a list in [`ALL`]: of its policies (`kind` 0), placements (1) or pagings
/// (2).
const fn name(kind: u8, list: usize, at: usize) -> Option<&'static str> {
    let list = &ALL[list];
    match kind {
        0 if at < list.policies.len() => Some(list.policies[at].name),
        1 if at < list.placements.len() => Some(list.placements[at].name),
        2 if at < list.pagings.len() => Some(list.pagings[at].name),
        _ => None,
    }
}

/// How many items of a kind have that name.
const fn named(kind: u8, wanted: &str) -> usize {
    let (mut count, mut list) = (0, 0);
    while list < ALL.len() {
        let mut at = 0;
        while let Some(name) = name(kind, list, at) {
            count += same(name, wanted) as usize;
            at += 1;
        }
        list += 1;
    }
    count
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

// A name that is in use already stops the build, not a run.
const _: () = {
    let mut kind = 0;
    while kind < 3 {
        let mut list = 0;
        while list < ALL.len() {
            let mut at = 0;
            while let Some(name) = name(kind, list, at) {
                assert!(
                    named(kind, name) == 1,
                    "two policies, placements or pagings have one name: give the added one another"
                );
                at += 1;
            }
            list += 1;
        }
        kind += 1;
    }
};
