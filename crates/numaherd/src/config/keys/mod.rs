//! What every key of the configuration means: the one place from which `docs/configuration.md`,
//! `contrib/numaherd.toml` and `numaherd config keys` are drawn.
//!
//! Which keys there are, of what kind, and what they are by default is not said here: that is asked
//! of the types ([`Config::shape`]) and of the default itself. A test holds both against each other,
//! in both directions, so that there is no key without a word about it and no word about a key that is
//! gone.

mod herd;
mod policies;
mod program;

use std::sync::LazyLock;

use numaherd_files::{nearest, or};
use serde::Serialize;
use serde_json::Value;

use super::file::Config;
use super::file::groups::Group;
use super::file::look::without_numbers;
use super::file::shape::{Field, Shape, joined};

/// What a key means.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its dotted name.
    pub name: &'static str,
    /// What its figure counts: `ms`, `moves per second`; empty for text and switches.
    pub unit: &'static str,
    /// What leaving it out means, where that is a value of its own.
    pub left_out: &'static str,
    /// What it does: one sentence, and what else there is to know.
    pub what: &'static str,
    /// A value to show where there is none by default, as TOML.
    pub example: &'static str,
    /// Whether only a new start reads it again; otherwise a reload does.
    pub restart: bool,
}

/// A key, and what it does.
const fn key(name: &'static str, unit: &'static str, what: &'static str) -> Key {
    Key {
        name,
        unit,
        left_out: "",
        what,
        example: "",
        restart: false,
    }
}

impl Key {
    /// What leaving it out means, and a value to show, as TOML.
    const fn or(self, left_out: &'static str, example: &'static str) -> Self {
        Self {
            left_out,
            example,
            ..self
        }
    }

    /// A value to show, as TOML, where the default says little.
    const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// Read by a new start only.
    const fn restart(self) -> Self {
        Self {
            restart: true,
            ..self
        }
    }

    /// The first sentence of what it does.
    pub fn in_short(&self) -> &'static str {
        let end = self.what.find(". ").or_else(|| self.what.find(": "));
        let short = end.map_or(self.what, |end| &self.what[..end]);
        short.trim_end_matches('.')
    }
}

/// What a table is about.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its dotted name; empty for what stands before any heading.
    pub name: &'static str,
    /// One or two sentences.
    pub what: &'static str,
}

/// What all tables are about.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    let all = [
        program::TABLES,
        herd::TABLES,
        policies::TABLES,
        program::GROUP_TABLES,
    ];
    all.into_iter().flatten()
}

/// What all keys mean.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    let all = [
        program::KEYS,
        herd::KEYS,
        policies::KEYS,
        program::GROUP_KEYS,
    ];
    all.into_iter().flatten()
}

/// What is known of a key: by its types, its default and the word about it.
#[derive(Clone, Copy)]
pub struct Known {
    /// What it means.
    pub key: &'static Key,
    /// What it holds.
    pub field: &'static Field,
}

impl Known {
    /// Its default as TOML writes it; what leaving it out means, where that is its default.
    pub fn default(&self) -> Result<String, &'static str> {
        if self.field.optional {
            return Err(self.key.left_out);
        }
        let empty = match self.field.shape {
            Shape::List(_) => "[]",
            _ => "{}",
        };
        Ok(default_of(self.key.name).map_or_else(|| empty.to_owned(), as_toml))
    }

    /// The name within its table.
    pub fn last(&self) -> &'static str {
        self.field.name
    }
}

/// All keys of a table, in the order of the types.
///
/// # Panics
/// When one has no word about it: a test holds that none has not.
pub fn of_table(table: &str) -> Vec<Known> {
    let tables = Config::shape().tables();
    let fields = tables.into_iter().find(|(name, _)| name == table);
    let fields = fields.map_or(&[][..], |(_, fields)| fields);
    fields
        .iter()
        .filter(|field| field.shape.fields().is_none())
        .map(|field| {
            let name = joined(table, field.name);
            let key = keys().find(|key| key.name == name);
            let key = key.unwrap_or_else(|| panic!("{name} has no word about it"));
            Known { key, field }
        })
        .collect()
}

/// A key by its name; `group[0].name` is `group.name`.
pub fn find(name: &str) -> Option<Known> {
    let name = without_numbers(name);
    let table = name.rsplit_once('.').map_or("", |(table, _)| table);
    of_table(table)
        .into_iter()
        .find(|known| known.key.name == name)
}

/// The names of keys or tables that are nearest to one that is none, for a message.
pub fn did_you_mean(name: &str) -> String {
    let tables = tables().map(|table| table.name).filter(|n| !n.is_empty());
    let all: Vec<&str> = keys().map(|key| key.name).chain(tables).collect();
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    // Whole names first; else the last part of a name alone.
    let mut near = nearest(name, all.iter().copied());
    if near.is_empty() {
        let parts = nearest(name, all.iter().map(|name| last(name)));
        near.extend(all.iter().filter(|name| parts.contains(&last(name))));
    }
    let near: Vec<String> = near.into_iter().map(|name| format!("`{name}`")).collect();
    if near.is_empty() {
        "`numaherd config keys` lists all there are".to_owned()
    } else {
        format!("did you mean {}?", or(&near))
    }
}

/// The default of a key; of a group's keys, that of a new group. `None` where it is nothing.
pub fn default_of(name: &str) -> Option<&'static Value> {
    static DEFAULTS: LazyLock<Value> = LazyLock::new(|| {
        let mut all = plain(&Config::default());
        if let Some(table) = all.as_object_mut() {
            table.insert("group".to_owned(), plain(&Group::default()));
        }
        all
    });
    name.split('.')
        .try_fold(&*DEFAULTS, |value, part| value.get(part))
}

/// A configuration or a part of it as plain values. JSON's, since TOML's integers do not reach as far
/// as a seed may.
pub fn plain(value: &impl Serialize) -> Value {
    serde_json::to_value(value)
        .expect("a configuration has names for keys and no value that JSON lacks")
}

/// A plain value as TOML writes it on one line.
pub fn as_toml(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let name = |name: &str| {
                let bare = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
                if !name.is_empty() && name.chars().all(bare) {
                    name.to_owned()
                } else {
                    toml::Value::from(name).to_string()
                }
            };
            let entry =
                |(key, value): (&String, &Value)| format!("{} = {}", name(key), as_toml(value));
            let entries: Vec<String> = table.iter().map(entry).collect();
            match entries.as_slice() {
                [] => "{}".to_owned(),
                entries => format!("{{ {} }}", entries.join(", ")),
            }
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(as_toml).collect();
            format!("[{}]", values.join(", "))
        }
        Value::String(text) => toml::Value::from(text.as_str()).to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn in_types() -> BTreeSet<String> {
        let keys = Config::shape().keys().into_iter();
        keys.map(|(name, _)| name).collect()
    }

    #[test]
    fn there_is_no_key_without_a_word_about_it_and_no_word_about_a_key_that_is_none() {
        let told: BTreeSet<String> = keys().map(|key| key.name.to_owned()).collect();
        assert_eq!(told.len(), keys().count(), "a key is told of twice");
        let untold: Vec<_> = in_types().difference(&told).cloned().collect();
        assert!(untold.is_empty(), "not in config/keys: {untold:?}");
        let gone: Vec<_> = told.difference(&in_types()).cloned().collect();
        assert!(gone.is_empty(), "no such key any more: {gone:?}");
        let types = Config::shape().tables().into_iter();
        let types: Vec<String> = types.map(|(name, _)| name).collect();
        let told: Vec<&str> = tables().map(|table| table.name).collect();
        assert_eq!(told, types, "tables, in the order of the types");
    }

    /// What the types are found to hold is what is written out of them: nobody can slip by.
    #[test]
    fn every_key_that_is_written_is_one_that_was_found_and_the_other_way_round() {
        fn leaves(name: &str, value: &Value, shape: &Shape, found: &mut BTreeSet<String>) {
            match (value, shape.fields()) {
                (Value::Object(table), Some(fields)) => {
                    for (key, value) in table {
                        let field = fields.iter().find(|field| field.name == key);
                        let field = field.unwrap_or_else(|| panic!("{name}.{key} was not found"));
                        leaves(&joined(name, key), value, &field.shape, found);
                    }
                }
                _ => {
                    found.insert(name.to_owned());
                }
            }
        }
        let mut written = BTreeSet::new();
        let all = plain(&Config::default());
        leaves("", &all, Config::shape(), &mut written);
        let required: BTreeSet<String> = Config::shape()
            .keys()
            .into_iter()
            .filter(|(name, field)| {
                let skipped_when_empty = matches!(field.shape, Shape::Map(_) | Shape::List(_));
                !field.optional && !skipped_when_empty && !name.starts_with("group.")
            })
            .map(|(name, _)| name)
            .collect();
        let missing: Vec<_> = required.difference(&written).collect();
        assert!(missing.is_empty(), "not written: {missing:?}");
        assert!(written.is_subset(&in_types()));
    }

    #[test]
    fn every_key_says_its_unit_and_what_leaving_it_out_means() {
        for (name, field) in Config::shape().keys() {
            let key = keys().find(|key| key.name == name).unwrap();
            let counts = |shape: &Shape| matches!(shape, Shape::Whole(_) | Shape::Number);
            let figure = match &field.shape {
                Shape::Map(each) | Shape::List(each) => counts(each),
                shape => counts(shape),
            };
            assert_eq!(figure, !key.unit.is_empty(), "the unit of {name}");
            for (suffix, unit) in [("_ms", "ms"), ("_s", "s"), ("_mib_per_s", "MiB/s")] {
                let other = name.ends_with("_per_s") && suffix == "_s";
                if name.ends_with(suffix) && !other {
                    assert_eq!(key.unit, unit, "{name}");
                }
            }
            assert_eq!(
                field.optional,
                !key.left_out.is_empty(),
                "{name}: what leaving it out means is said where it means something"
            );
            if !key.example.is_empty() || field.optional {
                let line: toml::Table = toml::from_str(&format!("x = {}", key.example))
                    .unwrap_or_else(|error| panic!("the example of {name}: {error}"));
                assert!(line.contains_key("x"));
            }
            assert!(
                key.what.ends_with('.') && !key.what.contains('\n'),
                "{name}"
            );
        }
    }

    #[test]
    fn a_key_that_is_none_is_answered_with_the_nearest() {
        assert_eq!(
            did_you_mean("herd.limits.moves_per_secnd"),
            "did you mean `herd.limits.moves_per_second`?"
        );
        assert_eq!(
            did_you_mean("freeze_s"),
            "did you mean `herd.limits.freeze_s`?"
        );
        assert_eq!(did_you_mean("limits"), "did you mean `herd.limits`?");
        assert!(did_you_mean("certainly nothing of ours").contains("config keys"));
    }
}
