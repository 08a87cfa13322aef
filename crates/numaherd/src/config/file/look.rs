//! Holds a file against what a configuration may hold, before it is read: every key that is not
//! known, every value of a wrong kind, each with its line and what was meant or is wanted.

use std::collections::BTreeMap;
use std::ops::Range;

use numaherd_files::{nearest, or};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::shape::{Field, Shape, joined};

/// Where each key that a file has is in it: the bytes of key and value, by the key's dotted name
/// (`group[0].name` in a list).
pub type Places = BTreeMap<String, Range<usize>>;

/// Something wrong, and where in the file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The first byte of it.
    pub at: usize,
    /// What it is about: `unknown key`, or nothing.
    pub before: &'static str,
    /// The key, as it is shown.
    pub key: String,
    /// What is wrong about it: what follows the place in a sentence.
    pub what: String,
}

/// All that is wrong, in the order of the file, and where everything is.
pub fn look(root: &Shape, table: &DeTable<'_>) -> (Vec<Finding>, Places) {
    let mut looking = Looking {
        root,
        findings: Vec::new(),
        places: Places::new(),
    };
    if let Some(fields) = root.fields() {
        looking.table("", fields, table);
    }
    let Looking {
        mut findings,
        places,
        ..
    } = looking;
    findings.sort_by_key(|finding| finding.at);
    (findings, places)
}

struct Looking<'s> {
    root: &'s Shape,
    findings: Vec<Finding>,
    places: Places,
}

impl Looking<'_> {
    fn table(&mut self, name: &str, fields: &[Field], table: &DeTable<'_>) {
        for (key, value) in table {
            let path = joined(name, key.get_ref());
            match fields.iter().find(|field| field.name == key.get_ref()) {
                Some(field) => {
                    self.place(&path, key.span(), value);
                    self.value(&path, &field.shape, value);
                }
                None => self.unknown(name, fields, key),
            }
        }
    }

    fn place(&mut self, path: &str, key: Range<usize>, value: &Spanned<DeValue<'_>>) {
        // A table's value is where its own keys are.
        let end = match value.get_ref() {
            DeValue::Table(_) => key.end,
            _ => value.span().end.max(key.end),
        };
        self.places.insert(path.to_owned(), key.start..end);
    }

    fn value(&mut self, path: &str, shape: &Shape, value: &Spanned<DeValue<'_>>) {
        match (shape, value.get_ref()) {
            (Shape::Table(fields), DeValue::Table(table)) => self.table(path, fields, table),
            (Shape::Map(each), DeValue::Table(table)) => {
                for (key, value) in table {
                    let path = joined(path, key.get_ref());
                    self.place(&path, key.span(), value);
                    self.value(&path, each, value);
                }
            }
            (Shape::List(each), DeValue::Array(values)) => {
                for (number, value) in values.iter().enumerate() {
                    let path = format!("{path}[{number}]");
                    self.places.insert(path.clone(), value.span());
                    self.value(&path, each, value);
                }
            }
            (Shape::Whole(most), DeValue::Integer(integer)) => {
                let number = i128::from_str_radix(integer.as_str(), integer.radix());
                if !number.is_ok_and(|number| (0..=i128::from(*most)).contains(&number)) {
                    self.wrong(path, shape, value, "");
                }
            }
            (Shape::Choice(words), DeValue::String(word)) if !words.contains(&&**word) => {
                let near = nearest(word, words.iter().copied()).into_iter();
                let near: Vec<String> = near.map(|word| format!("{word:?}")).collect();
                let hint = match near.as_slice() {
                    [] => String::new(),
                    near => format!("; did you mean {}?", or(near)),
                };
                self.wrong(path, shape, value, &hint);
            }
            (Shape::Switch, DeValue::Boolean(_))
            | (Shape::Number, DeValue::Float(_) | DeValue::Integer(_))
            | (Shape::Text | Shape::Choice(_), DeValue::String(_)) => {}
            _ => self.wrong(path, shape, value, ""),
        }
    }

    fn wrong(&mut self, path: &str, shape: &Shape, value: &Spanned<DeValue<'_>>, hint: &str) {
        let what = format!(
            " is {}, but must be {}{hint}",
            described(value.get_ref()),
            shape.wanted()
        );
        self.findings.push(Finding {
            at: value.span().start,
            before: "",
            key: shown(&without_numbers(path)),
            what,
        });
    }

    fn unknown(&mut self, table: &str, fields: &[Field], key: &Spanned<std::borrow::Cow<'_, str>>) {
        let written = key.get_ref();
        let here = nearest(written, fields.iter().map(|field| field.name));
        let mut hints = Vec::new();
        if !here.is_empty() {
            let here: Vec<String> = here.iter().map(|name| format!("`{name}`")).collect();
            hints.push(format!("did you mean {}?", or(&here)));
        }
        let elsewhere = self.elsewhere(table, written);
        if !elsewhere.is_empty() {
            let headings: Vec<String> = elsewhere.iter().map(|table| heading(table)).collect();
            hints.push(format!("it belongs in {}", or(&headings)));
        } else if here.is_empty() {
            hints.extend(self.near_anywhere(written));
        }
        let hint = hints.join(" Or: ");
        let what = match hint.as_str() {
            "" => "; `numaherd config keys` lists all there are".to_owned(),
            hint => format!("; {hint}"),
        };
        self.findings.push(Finding {
            at: key.span().start,
            before: "unknown key ",
            key: shown(&joined(&without_numbers(table), written)),
            what,
        });
    }

    /// The other tables that have this very key.
    fn elsewhere(&self, table: &str, written: &str) -> Vec<String> {
        let tables = self.root.tables().into_iter();
        let others = tables.filter(|(name, fields)| {
            without_numbers(table) != *name && fields.iter().any(|field| field.name == written)
        });
        others.map(|(name, _)| name).collect()
    }

    /// The nearest keys of all.
    fn near_anywhere(&self, written: &str) -> Option<String> {
        let tables = self.root.tables();
        let all = tables
            .iter()
            .flat_map(|(_, fields)| fields.iter().map(|f| f.name));
        let mut near = nearest(written, all);
        near.sort_unstable();
        near.dedup();
        let near: Vec<String> = tables
            .iter()
            .flat_map(|(table, fields)| {
                let named = fields.iter().filter(|field| near.contains(&field.name));
                named.map(|field| format!("`{}`", joined(table, field.name)))
            })
            .collect();
        (!near.is_empty()).then(|| format!("did you mean {}?", or(&near)))
    }
}

/// The heading of a table in a file.
pub fn heading(table: &str) -> String {
    match table {
        "" => "the beginning of the file, before any heading".to_owned(),
        // The only list of tables.
        "group" => "[[group]]".to_owned(),
        table => format!("[{table}]"),
    }
}

/// A key's name without the places in lists: as documented.
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
        DeValue::String(text) => format!("{:?}", shown(text)),
        DeValue::Integer(number) => shown(&number.to_string()),
        DeValue::Float(number) => shown(number.as_str()),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(_) => "a time".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Text from a file in a message: on one line, and no longer than helps.
pub fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .map(|letter| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
