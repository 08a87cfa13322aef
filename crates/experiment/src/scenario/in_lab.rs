//! A scenario's program in the lab: how it starts, when it is ready, and its measure.
//!
//! A command is a text, which `sh` runs as if typed, or a list of a program and its arguments, which are passed
//! unchanged. In commands and in the file of [`Ready`], `{copy}` stands for the number of the copy, from 0, and `{dir}`
//! for a directory of the trial's own.

use std::cmp::Ordering;
use std::time::Duration;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

/// A program in the lab.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InLab {
    /// The command to run; None if only the model runs the program.
    pub command: Option<Command>,
    /// The command that is run to its end before the program starts.
    pub setup: Option<Command>,
    /// The user as whom it and its set-up run; None for root.
    pub user: Option<String>,
    /// Whether the program itself waits for its start, and prints its result as the menagerie does.
    pub waits: bool,
    /// When a program that starts before the trial is ready for it; None for one that starts with the trial.
    pub ready: Option<Ready>,
    /// Its measure.
    pub measure: Measure,
}

/// A command in the lab.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "give a command as you would type it, or a list of a program and its arguments"
)]
pub enum Command {
    /// For `sh`.
    Typed(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

/// The values of `{copy}` and `{dir}`.
#[derive(Clone, Copy, Debug)]
pub struct Placeholders<'a> {
    /// The number of the copy, from 0.
    pub copy: u32,
    /// The directory of the trial.
    pub dir: &'a str,
}

impl Placeholders<'_> {
    /// A text with the placeholders replaced.
    pub fn fill(&self, text: &str) -> String {
        let text = text.replace("{copy}", &self.copy.to_string());
        text.replace("{dir}", self.dir)
    }
}

impl Command {
    /// Program and arguments of a copy, followed by further arguments.
    pub fn words(
        &self,
        placeholders: Placeholders<'_>,
        further: impl IntoIterator<Item = String>,
    ) -> Vec<String> {
        let mut words = match self {
            Self::Typed(text) => {
                let text = placeholders.fill(text.trim());
                let mut further = further.into_iter().peekable();
                let words = match further.peek() {
                    Some(_) => vec![text + " \"$@\"", "sh".to_owned()],
                    None => vec![text],
                };
                let shell = ["sh", "-c"].map(str::to_owned).into_iter();
                return shell.chain(words).chain(further).collect();
            }
            Self::Words(words) => {
                let filled = words.iter().map(|word| placeholders.fill(word));
                filled.collect::<Vec<_>>()
            }
        };
        words.extend(further);
        words
    }

    /// The program, if it can be determined without a shell.
    pub fn program(&self) -> Option<&str> {
        let program = match self {
            Self::Words(words) => return words.first().map(String::as_str),
            Self::Typed(text) => {
                let before =
                    |word: &&str| *word == "exec" || (is_assignment(word) && is_plain(word));
                text.split_whitespace().find(|word| !before(word))?
            }
        };
        (is_plain(program) && !is_assignment(program)).then_some(program)
    }

    /// The file name of its program, if it can be determined without a shell.
    pub fn name(&self) -> Option<&str> {
        let name = self.program()?.rsplit('/').next()?;
        (!name.trim().is_empty()).then_some(name)
    }

    /// Whether one of its words names the menagerie's program.
    pub fn is_menagerie(&self) -> bool {
        let is = |word: &str| word.rsplit('/').next() == Some("menagerie");
        match self {
            Self::Words(words) => words.iter().any(|word| is(word)),
            Self::Typed(text) => text.split_whitespace().any(is),
        }
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Words(words) => words.first().is_none_or(String::is_empty),
            Self::Typed(text) => text.trim().is_empty(),
        }
    }
}

/// Whether a shell takes a word literally.
fn is_plain(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_alphanumeric() || "/._-+@:={}".contains(c))
}

/// Whether a shell takes a word before a command as an assignment to an environment variable.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// When a program that starts before the trial is ready for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Ready {
    /// As soon as it accepts a connection to this TCP port plus the number of the copy.
    Port(u16),
    /// As soon as this file exists.
    File(String),
    /// As soon as it prints a line that matches.
    Line(Pattern),
    /// After this time.
    After(Duration),
}

/// The measure of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Where the figure is from.
    pub from: Source,
    /// Its unit.
    pub unit: String,
    /// Whether higher or lower is better.
    pub better: Better,
}

/// Where the figure of a program is from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The time from the start of the trial to the program's end.
    Completion,
    /// The last match of a pattern in what it prints: its first group, or all of it.
    Output(Pattern),
    /// The increase of the number that this command prints, from the trial's start to its end, per second.
    Counter(Command),
}

/// Which figure is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The higher one.
    Higher,
    /// The lower one.
    Lower,
}

impl Better {
    /// Orders figures, the better first.
    pub fn order(self, a: f64, b: f64) -> Ordering {
        match self {
            Self::Lower => a.total_cmp(&b),
            Self::Higher => b.total_cmp(&a),
        }
    }
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            from: Source::Completion,
            unit: "s".to_owned(),
            better: Better::Lower,
        }
    }
}

/// A regular expression.
#[derive(Clone, Debug)]
pub struct Pattern(pub Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The text is not a regular expression.
    pub fn new(text: &str) -> Result<Self, regex_lite::Error> {
        Regex::new(text).map(Self)
    }
}
