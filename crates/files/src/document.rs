//! A TOML text, and the place of every key in it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{FileError, Finding, shortened};
use crate::near::{did_you_mean, nearest};

/// A TOML text under the name that messages give it.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    /// What messages call the file.
    pub file: &'t str,
    /// Its text.
    pub text: &'t str,
    /// The bytes at which its lines end, ascending.
    line_feeds: Vec<usize>,
}

/// Where each key is: the bytes of key and value, by the key's dotted name (`cache[0].ways` in a
/// list).
pub type Places = BTreeMap<String, Range<usize>>;

impl<'t> Document<'t> {
    /// A text, and the name that messages give it.
    pub fn new(text: &'t str, file: &'t str) -> Self {
        let bytes = text.bytes().enumerate();
        let line_feeds = bytes.filter_map(|(at, byte)| (byte == b'\n').then_some(at));
        Self {
            file,
            text,
            line_feeds: line_feeds.collect(),
        }
    }

    /// Reads the text into a type.
    ///
    /// [`FileError::Wrong`]: the text is not TOML, has a key that the type does not know, lacks one that it needs, or
    /// has a value of a wrong kind.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        let table = self.table()?;
        toml::from_str(self.text).map_err(|error| {
            let at = error.span().unwrap_or_default();
            let places = places(&table);
            // A key that the whole file lacks has no place; a heading ends with a bracket after its key.
            let here = places.iter().filter(|(_, place)| {
                !at.is_empty() && place.contains(&at.start) && at.end <= place.end + 1
            });
            let key = here.min_by_key(|(_, place)| place.len());
            let key = key.map_or("", |(key, _)| key.as_str());
            self.wrong(at, key, meant(error.message()))
        })
    }

    /// The tables of the text, with the place of everything in them.
    ///
    /// # Errors
    /// [`FileError::Wrong`] for a text that is not TOML.
    pub fn table(&self) -> Result<DeTable<'t>, FileError> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let at = error.span().unwrap_or_default();
            let why = error.message().trim().replace('\n', ", ");
            self.wrong(at, "", format!("not TOML: {}", shortened(&why)))
        })?;
        Ok(table.into_inner())
    }

    /// The line, from 1, that a byte of the text is on.
    pub fn line(&self, byte: usize) -> usize {
        1 + self.line_feeds.partition_point(|&feed| feed < byte)
    }

    /// What is wrong at a place of the text.
    pub fn finding(&self, at: Range<usize>, key: &str, why: impl Display) -> Finding {
        Finding {
            file: self.file.to_owned(),
            line: Some(self.line(at.start)),
            key: shortened(key),
            why: why.to_string(),
        }
    }

    /// The error of a text that is wrong at a place.
    pub fn wrong(&self, at: Range<usize>, key: &str, why: impl Display) -> FileError {
        let findings = vec![self.finding(at, key, why)];
        FileError::Wrong { findings }
    }

    /// The error of a text in which the value of a key is wrong. The line is that of the key, or of
    /// the innermost table around it where the key is left out.
    pub fn wrong_key(&self, key: &str, why: impl Display) -> FileError {
        let places = self.table().map(|table| places(&table)).unwrap_or_default();
        let mut around = key;
        let at = loop {
            match places.get(around) {
                Some(place) => break place.clone(),
                None => match around.rfind(['.', '[']) {
                    Some(end) => around = &around[..end],
                    None => break 0..0,
                },
            }
        };
        self.wrong(at, key, why)
    }
}

/// The place of every key of a table.
pub fn places(table: &DeTable<'_>) -> Places {
    let mut found = Places::new();
    collect("", table, &mut found);
    found
}

fn collect(name: &str, table: &DeTable<'_>, found: &mut Places) {
    for (key, value) in table {
        let path = joined(name, key.get_ref());
        found.insert(path.clone(), place(key.span(), value));
        within(&path, value, found);
    }
}

fn within(path: &str, value: &Spanned<DeValue<'_>>, found: &mut Places) {
    match value.get_ref() {
        DeValue::Table(table) => collect(path, table, found),
        DeValue::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                let path = format!("{path}[{number}]");
                found.insert(path.clone(), value.span());
                within(&path, value, found);
            }
        }
        _ => {}
    }
}

/// The bytes of a key and its value; of a table, only its heading, as its keys have their own places.
fn place(key: Range<usize>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    match value.get_ref() {
        DeValue::Table(_) => key.start.min(value.span().start)..key.end,
        _ => key.start..value.span().end.max(key.end),
    }
}

/// A key's dotted name.
pub fn joined(table: &str, key: &str) -> String {
    match (table, key) {
        ("", name) | (name, "") => name.to_owned(),
        (table, key) => format!("{table}.{key}"),
    }
}

/// serde's message about an unknown key or word (`unknown field `a`, expected one of `b`, `c``), with the nearest
/// known one; any other message as it is, on one line.
fn meant(message: &str) -> String {
    let message = message.trim().replace('\n', ", ");
    let Some((said, expected)) = message.split_once(", expected ") else {
        return message;
    };
    let Some(written) = ["unknown field `", "unknown variant `"]
        .iter()
        .find_map(|begin| said.strip_prefix(begin)?.strip_suffix('`'))
    else {
        return message;
    };
    let near = nearest(written, expected.split('`').skip(1).step_by(2));
    match did_you_mean(near) {
        None => message,
        Some(hint) => format!("{said}; {hint}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        name: String,
        shape: Shape,
        #[serde(default)]
        part: Vec<Shape>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        nodes: u32,
        kind: Option<Kind>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Square,
        Ring,
    }

    #[track_caller]
    fn refused(text: &str) -> String {
        let read: Result<Example, _> = Document::new(text, "a.toml").parse();
        read.unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_key() {
        let file = |line: &str| format!("name = \"x\"\n[shape]\n{line}\n");
        for (line, expected) in [
            ("nodes = 1\nnodes = 2", "4: not TOML: duplicate key"),
            (
                "noddes = 1",
                "3: shape.noddes: unknown field `noddes`; did you mean `nodes`?",
            ),
            (
                "nodes = 1\nkind = \"rung\"",
                "4: shape.kind: unknown variant `rung`; did you mean `ring`?",
            ),
            (
                "nodes = 1\ncolour = 1",
                "4: shape.colour: unknown field `colour`, expected `nodes` or `kind`",
            ),
            (
                "nodes = \"1\"",
                "3: shape.nodes: invalid type: string \"1\", expected u32",
            ),
            (
                "nodes = 1\n[[part]]\nnodes = 1\n[[part]]\nnodes = -1",
                "7: part[1].nodes: invalid value: integer `-1`, expected u32",
            ),
            ("", "2: shape: missing field `nodes`"),
        ] {
            assert_eq!(refused(&file(line)), format!("a.toml:{expected}"));
        }
        assert_eq!(
            refused("[shape]\nnodes = 1"),
            "a.toml:1: missing field `name`"
        );
        assert_eq!(
            refused("name = \n"),
            "a.toml:1: not TOML: string values must be quoted, expected literal string"
        );
    }

    #[test]
    fn lines_are_counted_from_one_up_to_the_byte() {
        let document = Document::new("a\n\nb\n", "a.toml");
        let lines: Vec<usize> = (0..=6).map(|byte| document.line(byte)).collect();
        assert_eq!(lines, [1, 1, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn a_value_that_cannot_be_is_named_at_its_key_or_the_table_around_it() {
        let text = "[shape]\nnodes = 1\n[[part]]\nnodes = 2\n[[part]]\nnodes = 3\n";
        let document = Document::new(text, "a.toml");
        let told = |key: &str| document.wrong_key(key, "cannot be").to_string();
        assert_eq!(told("shape.nodes"), "a.toml:2: shape.nodes: cannot be");
        assert_eq!(told("part[1].nodes"), "a.toml:6: part[1].nodes: cannot be");
        assert_eq!(told("part[1].kind"), "a.toml:5: part[1].kind: cannot be");
        assert_eq!(told("shape.kind"), "a.toml:1: shape.kind: cannot be");
        assert_eq!(told("other"), "a.toml:1: other: cannot be");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_an_error_names_a_line(text in "[\\[\\]a-z_.=\" \n0-9{}-]{0,200}") {
            let document = Document::new(&text, "a.toml");
            if let Err(error) = document.parse::<Example>() {
                let lines = text.lines().count().max(1) + 1;
                for finding in error.findings() {
                    prop_assert!(finding.line.is_some_and(|line| (1..=lines).contains(&line)));
                }
            }
        }
    }
}
