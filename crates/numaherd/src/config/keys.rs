//! Every key of the configuration with its default, as documentation and `numaherd config` show it. All is generated
//! from the definitions of the settings.

use std::sync::LazyLock;

use numaherd_files::nearest;
use numaherd_files::setting::{Kind, Section, Setting, Table, Value as _, joined, without_numbers};
use serde::Serialize;
use serde_json::Value;

use super::file::Config;
use super::file::groups::Group;

/// A key, and its definition.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its dotted name.
    pub name: String,
    /// What it means and may be.
    pub setting: &'static Setting,
}

impl Key {
    /// Its default, as TOML.
    ///
    /// # Errors
    /// What leaving it out means, if it has none.
    pub fn default(&self) -> Result<String, &'static str> {
        if self.setting.optional {
            return Err(self.setting.left_out);
        }
        let empty = match self.setting.kind {
            Kind::List(_) => "[]",
            _ => "{}",
        };
        Ok(default_of(&self.name).map_or_else(|| empty.to_owned(), as_toml))
    }

    /// What it does, with its source.
    pub fn what(&self) -> String {
        let mut what = self.setting.described();
        if !self.setting.source.is_empty() {
            what.push_str(&format!(" Source: {}.", self.setting.source));
        }
        what
    }
}

/// What a configuration may hold.
pub fn root() -> &'static Section {
    Config::KIND.section().expect("a configuration is a table")
}

/// All tables, in the order of the definitions.
pub fn tables() -> Vec<Table> {
    root().tables()
}

/// The keys of a table.
pub fn of_table(table: &Table) -> Vec<Key> {
    let key = |setting: &'static Setting| Key {
        name: joined(&table.name, setting.name),
        setting,
    };
    table.section.values().map(key).collect()
}

/// All keys.
pub fn keys() -> Vec<Key> {
    let all = root().keys().into_iter();
    all.map(|(name, setting)| Key { name, setting }).collect()
}

/// A key by its name; `group[0].name` is `group.name`.
pub fn find(name: &str) -> Option<Key> {
    let name = without_numbers(name);
    keys().into_iter().find(|key| key.name == name)
}

/// The names of keys or tables that are nearest to an unknown one, for a message.
pub fn did_you_mean(name: &str) -> String {
    let tables = tables().into_iter().map(|table| table.name);
    let all: Vec<String> = keys()
        .into_iter()
        .map(|key| key.name)
        .chain(tables)
        .collect();
    let all = all.iter().map(String::as_str);
    let all: Vec<&str> = all.filter(|name| !name.is_empty()).collect();
    // Whole names first; else the last part of a name alone.
    let mut near = nearest(name, all.iter().copied());
    if near.is_empty() {
        let parts = nearest(name, all.iter().map(|name| last(name)));
        near.extend(all.iter().filter(|name| parts.contains(&last(name))));
    }
    let hint = numaherd_files::did_you_mean(near);
    hint.unwrap_or_else(|| "`numaherd config keys` lists all there are".to_owned())
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The default of a key; of a group's keys, that of a new group. `None` if it has none.
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

/// A configuration or a part of it as plain values, of JSON because a seed may exceed TOML's integers.
pub fn plain(value: &impl Serialize) -> Value {
    serde_json::to_value(value)
        .expect("a configuration has names for keys and no value that JSON lacks")
}

/// A plain value as TOML writes it on one line.
pub fn as_toml(value: &Value) -> String {
    // A number beyond TOML's integers, such as a seed, is written as in JSON.
    let written = toml::Value::try_from(value).map(|value| value.to_string());
    written.unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_says_its_unit_and_what_leaving_it_out_means() {
        for key in keys() {
            let (name, setting) = (key.name.as_str(), key.setting);
            assert_eq!(
                setting.kind.is_figure(),
                !setting.unit.is_empty(),
                "the unit of {name}"
            );
            for (suffix, unit) in [("_ms", "ms"), ("_s", "s"), ("_mib_per_s", "MiB/s")] {
                let other = name.ends_with("_per_s") && suffix == "_s";
                if name.ends_with(suffix) && !other {
                    assert_eq!(setting.unit, unit, "{name}");
                }
            }
            assert_eq!(
                setting.optional,
                !setting.left_out.is_empty(),
                "{name}: what leaving it out means is said where it means something"
            );
            if !setting.example.is_empty() || setting.optional {
                let line: toml::Table = toml::from_str(&format!("x = {}", setting.example))
                    .unwrap_or_else(|error| panic!("the example of {name}: {error}"));
                assert!(line.contains_key("x"));
            }
            assert!(
                setting.what.ends_with('.') && !setting.what.contains('\n'),
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
