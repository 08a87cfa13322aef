//! Settings: each defined once, beside what uses it.
//!
//! [`settings!`](crate::settings) defines a table of settings, a struct whose fields say what they
//! mean, their default, unit, range and source; [`choices!`](crate::choices) defines a choice
//! between words. Everything else follows from the definition ([`Value::KIND`]): reading a file
//! ([`read`]), the checks, "did you mean", and whatever documents the keys.
//!
//! ```
//! numaherd_files::settings! {
//!     /// When threads leave their home.
//!     pub struct LeaveSettings {
//!         /// Pressure that a processor must stay below.
//!         threshold: f64 = 60.0, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX,
//!             source: "N-MASS 3.4";
//!         /// Whether threads may change places.
//!         exchange: bool = false, source: "chosen here";
//!     }
//! }
//!
//! let (settings, _) = numaherd_files::setting::read::<LeaveSettings>("threshold = 40", "a.toml").unwrap();
//! assert_eq!(settings, LeaveSettings { threshold: 40.0, ..LeaveSettings::default() });
//! let error = numaherd_files::setting::read::<LeaveSettings>("threshold = -1", "a.toml").unwrap_err();
//! assert_eq!(error.to_string(), "a.toml:1: threshold: must be a number, 0 or more, not -1");
//! ```

mod define;
mod look;
mod value;

use std::ops::RangeInclusive;

pub use crate::document::joined;
pub use look::{Read, of_tables, read, without_numbers};
pub use value::{Kind, Value, Wrong, check};

/// The definition of one setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name within its table.
    pub name: &'static str,
    /// What it does: one sentence, then any details.
    pub what: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether leaving it out is a value of its own, which no other value expresses.
    pub optional: bool,
    /// What its figure counts: `ms`, `moves per second`; empty for text and switches.
    pub unit: &'static str,
    /// Paper and section, or `chosen here`; empty where the text says it.
    pub source: &'static str,
    /// The range of a figure; a figure is always finite.
    pub range: RangeInclusive<f64>,
    /// What follows the range in a message: why, or what to do instead.
    pub because: &'static str,
    /// What leaving it out means, where that is a value of its own.
    pub left_out: &'static str,
    /// A value to show, as TOML, where the default says little.
    pub example: &'static str,
    /// Its former name, which files may still use.
    pub was: &'static str,
    /// Whether only a restart reads it again; otherwise a reload does.
    pub restart: bool,
    /// Whether no file may set it: the program fills it in.
    pub internal: bool,
}

impl Setting {
    /// A definition in which no field is set.
    pub const BLANK: Self = Self {
        name: "",
        what: "",
        kind: Kind::Switch,
        optional: false,
        unit: "",
        source: "",
        range: f64::MIN..=f64::MAX,
        because: "",
        left_out: "",
        example: "",
        was: "",
        restart: false,
        internal: false,
    };

    /// What it does, with what each word of a choice means.
    pub fn described(&self) -> String {
        let words: Vec<String> = match self.kind.choices() {
            Some(choices) => choices
                .iter()
                .filter(|choice| !choice.what.is_empty())
                .map(|choice| format!("\"{}\": {}", choice.word, choice.what.trim()))
                .collect(),
            None => Vec::new(),
        };
        match words.is_empty() {
            true => self.what.to_owned(),
            false => format!("{} {}", self.what, words.join(" ")),
        }
    }

    /// Its unit, with its range if that ends at 1000 or less: `share, 0 to 1`.
    pub fn counts(&self) -> String {
        const TELLING: f64 = 1000.0;
        let (least, most) = (self.range.start(), self.range.end());
        match self.unit {
            unit if *most <= TELLING => format!("{unit}, {least} to {most}"),
            unit => unit.to_owned(),
        }
    }

    /// What it does, up to the first full stop, or else colon.
    pub fn in_short(&self) -> &'static str {
        let end = self.what.find(". ").or_else(|| self.what.find(": "));
        let short = end.map_or(self.what, |end| &self.what[..end]);
        short.trim_end_matches('.')
    }

    /// In words, what it may be: `a whole number from 1 to 15`.
    pub fn wanted(&self) -> String {
        self.kind.wanted(&self.range) + self.because
    }
}

/// A table of settings.
#[derive(Debug)]
pub struct Section {
    /// What the settings are about: one or two sentences.
    pub about: &'static str,
    /// The settings, in the order of the definition.
    pub settings: Vec<Setting>,
}

impl Section {
    /// This table (named "") first, then every table below it.
    pub fn tables(&'static self) -> Vec<Table> {
        let mut found = Vec::new();
        self.collect("", false, &mut found);
        found
    }

    fn collect(&'static self, name: &str, in_list: bool, found: &mut Vec<Table>) {
        found.push(Table {
            name: name.to_owned(),
            in_list,
            section: self,
        });
        for setting in self.settings.iter().filter(|setting| !setting.internal) {
            if let Some(section) = setting.kind.section() {
                let in_list = matches!(setting.kind, Kind::List(_));
                section.collect(&joined(name, setting.name), in_list, found);
            }
        }
    }

    /// Every setting that holds a value rather than a table, with its dotted name.
    pub fn keys(&'static self) -> Vec<(String, &'static Setting)> {
        let named = |table: Table| {
            let name =
                move |setting: &'static Setting| (joined(&table.name, setting.name), setting);
            table.section.values().map(name)
        };
        self.tables().into_iter().flat_map(named).collect()
    }

    /// The settings of this table itself that hold values and that a file may set.
    pub fn values(&'static self) -> impl Iterator<Item = &'static Setting> {
        let all = self.settings.iter();
        all.filter(|setting| !setting.internal && setting.kind.section().is_none())
    }
}

/// A table of a file, and its settings.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its dotted name; empty for what stands before any heading.
    pub name: String,
    /// Whether it is one of a list of tables.
    pub in_list: bool,
    /// What it may hold.
    pub section: &'static Section,
}

impl Table {
    /// Its heading in a file.
    pub fn heading(&self) -> String {
        match self.name.as_str() {
            "" => "the beginning of the file, before any heading".to_owned(),
            name if self.in_list => format!("[[{name}]]"),
            name => format!("[{name}]"),
        }
    }
}

/// One word of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The word, as files write it.
    pub word: &'static str,
    /// What it means.
    pub what: &'static str,
}

#[cfg(test)]
mod tests;
