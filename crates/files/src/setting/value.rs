//! What settings hold.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::{Choice, Section, Setting};
use crate::document::joined;

/// What a setting holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// True or false.
    Switch,
    /// A whole number from 0 to this.
    Whole(u64),
    /// A number.
    Number,
    /// Text.
    Text,
    /// One of these words.
    Choice(&'static [Choice]),
    /// A list.
    List(&'static Kind),
    /// A table whose keys are the user's own.
    Map(&'static Kind),
    /// A table of settings.
    Table(fn() -> &'static Section),
}

impl Kind {
    /// The settings of a table, or of each table of a list of them.
    pub fn section(&self) -> Option<&'static Section> {
        match self {
            Self::Table(section) => Some(section()),
            Self::List(each) => each.section(),
            _ => None,
        }
    }

    /// The words of a choice.
    pub fn choices(&self) -> Option<&'static [Choice]> {
        match self {
            Self::Choice(choices) => Some(choices),
            _ => None,
        }
    }

    /// Whether it holds figures, one or several.
    pub fn is_figure(&self) -> bool {
        match self {
            Self::Whole(_) | Self::Number => true,
            Self::List(each) | Self::Map(each) => each.is_figure(),
            _ => false,
        }
    }

    /// In words, what may stand there.
    pub(super) fn wanted(&self, range: &RangeInclusive<f64>) -> String {
        let (least, most) = (range.start(), range.end());
        match self {
            Self::Table(_) => "a table".to_owned(),
            Self::Map(each) => format!("a table of names, each with {}", each.wanted(range)),
            Self::List(Self::Table(_)) => {
                "a list of tables, each under a heading in [[double brackets]]".to_owned()
            }
            Self::List(each) => format!("a list in brackets, each {}", each.wanted(range)),
            Self::Switch => "true or false".to_owned(),
            Self::Whole(largest) => {
                let least = least.max(0.0);
                match () {
                    () if *most < f64::MAX => format!("a whole number from {least} to {most}"),
                    () if *largest < u64::from(u32::MAX) || least == 0.0 && *largest < u64::MAX => {
                        format!("a whole number from {least} to {largest}")
                    }
                    () => format!("a whole number, {least} or more"),
                }
            }
            Self::Number if *most < f64::MAX => format!("a number from {least} to {most}"),
            Self::Number if *least > f64::MIN => format!("a number, {least} or more"),
            Self::Number => "a number".to_owned(),
            Self::Text => "text in quotes".to_owned(),
            Self::Choice(choices) => {
                let words: Vec<String> = choices.iter().map(|c| format!("{:?}", c.word)).collect();
                crate::or(&words)
            }
        }
    }
}

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its key, dotted (`group[0].name` in a list).
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

impl Wrong {
    /// The same, with its key inside this table.
    #[must_use]
    pub fn within(self, table: &str) -> Self {
        Self {
            key: joined(table, &self.key),
            ..self
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.why),
            key => write!(f, "{key}: {}", self.why),
        }
    }
}

impl std::error::Error for Wrong {}

/// Checks the values of a table.
///
/// # Errors
/// The first invalid value.
pub fn check<T: Value>(settings: &T) -> Result<(), Wrong> {
    match all_wrong(settings).into_iter().next() {
        None => Ok(()),
        Some(wrong) => Err(wrong),
    }
}

pub(super) fn all_wrong<T: Value>(settings: &T) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    settings.check("", &Setting::BLANK, &mut wrong);
    wrong
}

/// What a setting can hold.
pub trait Value {
    /// The kind of its values.
    const KIND: Kind;

    /// Whether leaving it out is a value of its own.
    const OPTIONAL: bool = false;

    /// Whether it is left out.
    fn is_left_out(&self) -> bool {
        false
    }

    /// Notes invalid values: a figure outside the setting's range, settings that exclude each other.
    fn check(&self, _key: &str, _setting: &Setting, _wrong: &mut Vec<Wrong>) {}
}

/// Notes a figure that is out of range.
fn within(
    figure: f64,
    shown: &dyn fmt::Display,
    key: &str,
    setting: &Setting,
    wrong: &mut Vec<Wrong>,
) {
    if !setting.range.contains(&figure) {
        // Each element of a map or a list must be in range.
        let kind = match setting.kind {
            Kind::List(each) | Kind::Map(each) => each,
            ref kind => kind,
        };
        let wanted = kind.wanted(&setting.range);
        let because = setting.because;
        wrong.push(Wrong {
            key: key.to_owned(),
            why: format!("must be {wanted}{because}, not {shown}"),
        });
    }
}

impl Value for bool {
    const KIND: Kind = Kind::Switch;
}

impl Value for String {
    const KIND: Kind = Kind::Text;
}

impl Value for PathBuf {
    const KIND: Kind = Kind::Text;

    fn check(&self, key: &str, _: &Setting, wrong: &mut Vec<Wrong>) {
        let path = self.as_os_str().as_encoded_bytes();
        let why = match () {
            () if path.is_empty() => "must be the path of a file, not empty",
            () if path.contains(&0) => "must be the path of a file, which has no NUL character",
            () => return,
        };
        wrong.push(Wrong {
            key: key.to_owned(),
            why: why.to_owned(),
        });
    }
}

impl Value for f64 {
    const KIND: Kind = Kind::Number;

    fn check(&self, key: &str, setting: &Setting, wrong: &mut Vec<Wrong>) {
        within(*self, self, key, setting, wrong);
    }
}

macro_rules! whole {
    ($($number:ty: $figure:expr),*) => {$(
        impl Value for $number {
            const KIND: Kind = Kind::Whole(<$number>::MAX as u64);

            #[allow(clippy::cast_lossless, reason = "the same line serves u64, which has no From")]
            fn check(&self, key: &str, setting: &Setting, wrong: &mut Vec<Wrong>) {
                let figure: fn($number) -> f64 = $figure;
                within(figure(*self), self, key, setting, wrong);
            }
        }
    )*};
}
whole!(u32: f64::from, u64: |n| n as f64, usize: |n| n as f64);

impl<T: Value> Value for Option<T> {
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = true;

    fn is_left_out(&self) -> bool {
        self.is_none()
    }

    fn check(&self, key: &str, setting: &Setting, wrong: &mut Vec<Wrong>) {
        if let Some(value) = self {
            value.check(key, setting, wrong);
        }
    }
}

impl<T: Value> Value for Vec<T> {
    const KIND: Kind = Kind::List(&T::KIND);

    fn is_left_out(&self) -> bool {
        self.is_empty()
    }

    fn check(&self, key: &str, setting: &Setting, wrong: &mut Vec<Wrong>) {
        for (number, value) in self.iter().enumerate() {
            value.check(&format!("{key}[{number}]"), setting, wrong);
        }
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    const KIND: Kind = Kind::Map(&T::KIND);

    fn is_left_out(&self) -> bool {
        self.is_empty()
    }

    fn check(&self, key: &str, setting: &Setting, wrong: &mut Vec<Wrong>) {
        for (name, value) in self {
            value.check(&joined(key, name), setting, wrong);
        }
    }
}
