//! Reads settings from a text: compares it with the definitions, which finds each unknown key and
//! each value of a wrong kind at its line, then checks the values.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::{all_wrong, check};
use super::{Kind, Section, Setting, Table, Value, Wrong};
use crate::document::{Places, joined, places};
use crate::error::{cut, shortened};
use crate::near::{did_you_mean, nearest, or};
use crate::{Document, FileError, Finding};

/// The longest reason in a message, in letters: enough to list all policies.
const LONGEST_REASON: usize = 1000;

/// What reading a text yields beside its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// On which line each key is, by its dotted name (`group[0].name` in a list).
    pub lines: BTreeMap<String, usize>,
    /// Keys that have been renamed, and what to write instead.
    pub notices: Vec<Finding>,
}

/// Reads a table of settings, and checks it.
///
/// # Errors
/// [`FileError::Wrong`] with everything that is wrong: unknown keys, each with the nearest known
/// one; values of a wrong kind or out of range; settings that exclude each other.
pub fn read<T: Value + DeserializeOwned>(text: &str, file: &str) -> Result<(T, Read), FileError> {
    let document = Document::new(text, file);
    let table = document.table()?;
    let mut looking = Looking {
        document,
        root: T::KIND.section(),
        places: places(&table),
        findings: Vec::new(),
        notices: Vec::new(),
    };
    looking.table("", looking.root, &table);
    looking.done()?;
    let settings: T = looking.document.parse()?;
    for wrong in all_wrong(&settings) {
        let finding = looking.of(wrong);
        looking.findings.push(finding);
    }
    looking.done()?;
    let line =
        |(key, place): (&String, &Range<usize>)| (key.clone(), looking.document.line(place.start));
    let read = Read {
        lines: looking.places.iter().map(line).collect(),
        notices: looking.notices,
    };
    Ok((settings, read))
}

/// Reads settings from tables, for instance from several sources merged into one.
///
/// # Errors
/// The first value that cannot be read, or is invalid.
pub fn of_tables<T: Value + DeserializeOwned>(tables: toml::Table) -> Result<T, Wrong> {
    let settings: Result<T, _> = tables.clone().try_into();
    let settings = settings.map_err(|error: toml::de::Error| {
        // Reading it as a file may name the key and the nearest one: serde does neither.
        found::<T>(&tables).unwrap_or_else(|| Wrong {
            key: String::new(),
            why: error.message().trim().replace('\n', ", "),
        })
    })?;
    check(&settings).map(|()| settings)
}

/// The first error of a key that reading these tables as a file finds.
fn found<T: Value + DeserializeOwned>(tables: &toml::Table) -> Option<Wrong> {
    match read::<T>(&toml::to_string(tables).ok()?, "") {
        Err(FileError::Wrong { findings }) => findings
            .into_iter()
            .find(|finding| !finding.key.is_empty())
            .map(|Finding { key, why, .. }| Wrong { key, why }),
        _ => None,
    }
}

struct Looking<'t> {
    document: Document<'t>,
    root: Option<&'static Section>,
    places: Places,
    findings: Vec<Finding>,
    notices: Vec<Finding>,
}

impl Looking<'_> {
    /// Fails if there are findings so far.
    fn done(&mut self) -> Result<(), FileError> {
        if self.findings.is_empty() {
            return Ok(());
        }
        let mut findings = std::mem::take(&mut self.findings);
        findings.sort_by_key(|finding| finding.line.unwrap_or(usize::MAX));
        Err(FileError::Wrong { findings })
    }

    /// The finding for an invalid value, at its line; without a line if the text leaves it out.
    fn of(&self, wrong: Wrong) -> Finding {
        let place = self.places.get(&wrong.key);
        Finding {
            file: self.document.file.to_owned(),
            line: place.map(|place| self.document.line(place.start)),
            why: match place {
                Some(_) => cut(&wrong.why, LONGEST_REASON),
                None => format!("{} (its default)", cut(&wrong.why, LONGEST_REASON)),
            },
            key: shortened(&without_numbers(&wrong.key)),
        }
    }

    fn table(&mut self, name: &str, section: Option<&'static Section>, table: &DeTable<'_>) {
        let settings = section.map_or(&[][..], |section| &section.settings);
        for (key, value) in table {
            let path = joined(name, key.get_ref());
            let known = |setting: &&Setting| !setting.internal;
            let mut known = settings.iter().filter(known);
            if let Some(setting) = known.clone().find(|s| s.name == key.get_ref()) {
                self.value(&path, &setting.kind, setting, value);
            } else if let Some(setting) = known.find(|s| s.was == key.get_ref()) {
                self.renamed(&path, &joined(name, setting.name), setting, key);
                self.value(&path, &setting.kind, setting, value);
            } else {
                self.unknown(name, settings, key);
            }
        }
    }

    fn value(&mut self, path: &str, kind: &Kind, setting: &Setting, value: &Spanned<DeValue<'_>>) {
        match (kind, value.get_ref()) {
            (Kind::Table(section), DeValue::Table(table)) => {
                self.table(path, Some(section()), table);
            }
            (Kind::Map(each), DeValue::Table(table)) => {
                for (key, value) in table {
                    self.value(&joined(path, key.get_ref()), each, setting, value);
                }
            }
            (Kind::List(each), DeValue::Array(values)) => {
                for (number, value) in values.iter().enumerate() {
                    self.value(&format!("{path}[{number}]"), each, setting, value);
                }
            }
            (Kind::Whole(most), DeValue::Integer(integer)) => {
                let number = i128::from_str_radix(integer.as_str(), integer.radix());
                if !number.is_ok_and(|number| (0..=i128::from(*most)).contains(&number)) {
                    self.wrong(path, kind, setting, value, "");
                }
            }
            (Kind::Choice(choices), DeValue::String(word))
                if !choices.iter().any(|choice| choice.word == *word) =>
            {
                let near = nearest(word, choices.iter().map(|choice| choice.word));
                let near: Vec<String> = near.iter().map(|word| format!("{word:?}")).collect();
                let hint = match near.as_slice() {
                    [] => String::new(),
                    near => format!("; did you mean {}?", or(near)),
                };
                self.wrong(path, kind, setting, value, &hint);
            }
            (Kind::Switch, DeValue::Boolean(_))
            | (Kind::Number, DeValue::Float(_) | DeValue::Integer(_))
            | (Kind::Text | Kind::Choice(_), DeValue::String(_)) => {}
            _ => self.wrong(path, kind, setting, value, ""),
        }
    }

    fn wrong(
        &mut self,
        path: &str,
        kind: &Kind,
        setting: &Setting,
        value: &Spanned<DeValue<'_>>,
        hint: &str,
    ) {
        let because = if kind.is_figure() {
            setting.because
        } else {
            ""
        };
        let (wanted, found) = (kind.wanted(&setting.range), described(value.get_ref()));
        let why = format!("must be {wanted}{because}, not {found}{hint}");
        let key = without_numbers(path);
        let finding = self.document.finding(value.span(), &key, why);
        self.findings.push(finding);
    }

    fn renamed(&mut self, path: &str, now: &str, setting: &Setting, key: &Spanned<Name<'_>>) {
        let name = without_numbers(path);
        if self.places.contains_key(now) {
            let why = format!(
                "is the former name of `{}`, which is there as well",
                setting.name
            );
            let finding = self.document.finding(key.span(), &name, why);
            self.findings.push(finding);
            return;
        }
        if let Some(place) = self.places.get(path).cloned() {
            self.places.insert(now.to_owned(), place);
            self.places.remove(path);
        }
        let why = format!("is now called `{}`: write that", setting.name);
        self.notices
            .push(self.document.finding(key.span(), &name, why));
    }

    fn unknown(&mut self, table: &str, settings: &[Setting], key: &Spanned<Name<'_>>) {
        let written = key.get_ref();
        let names = settings.iter().filter(|setting| !setting.internal);
        let here = nearest(written, names.map(|setting| setting.name));
        let mut hints = Vec::from_iter(did_you_mean(here));
        let elsewhere = self.elsewhere(table, written);
        if !elsewhere.is_empty() {
            hints.push(format!("it belongs in {}", or(&elsewhere)));
        } else if hints.is_empty() {
            hints.extend(self.near_anywhere(written));
        }
        let why = match hints.join(" Or: ").as_str() {
            "" => "unknown key".to_owned(),
            hint => format!("unknown key; {hint}"),
        };
        let name = joined(&without_numbers(table), written);
        let finding = self.document.finding(key.span(), &name, why);
        self.findings.push(finding);
    }

    /// The other tables that have this very key, as headings.
    fn elsewhere(&self, table: &str, written: &str) -> Vec<String> {
        let here = without_numbers(table);
        let tables = self.root.map(Section::tables).unwrap_or_default();
        let others = tables.iter().filter(|table| {
            let mut settings = table.section.settings.iter();
            here != table.name && settings.any(|s| s.name == written && !s.internal)
        });
        others.map(Table::heading).collect()
    }

    /// Suggests the nearest of all keys.
    fn near_anywhere(&self, written: &str) -> Option<String> {
        let all = self.root.map(Section::keys).unwrap_or_default();
        let near = nearest(written, all.iter().map(|(_, setting)| setting.name));
        let named = all.iter();
        let named = named.filter(|(_, setting)| near.contains(&setting.name));
        did_you_mean(named.map(|(name, _)| name.as_str()))
    }
}

type Name<'t> = std::borrow::Cow<'t, str>;

/// A key's name without indices in lists, as documented.
pub fn without_numbers(path: &str) -> String {
    let mut inside = false;
    path.chars()
        .filter(|&letter| {
            inside |= letter == '[';
            let kept = !inside;
            inside &= letter != ']';
            kept
        })
        .collect()
}

/// A value, in words.
fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{:?}", shortened(text)),
        DeValue::Integer(number) => shortened(&number.to_string()),
        DeValue::Float(number) => shortened(number.as_str()),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(_) => "a time".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
