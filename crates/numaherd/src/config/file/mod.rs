//! The configuration file: what it may hold, and how it is read.
//!
//! ```toml
//! policy = "dino"        # or a placement and a paging joined: "dino+whole-set"
//!
//! [herd.limits]          # what the governor lets through
//! pages_mib_per_s = 512.0
//!
//! [[group]]              # processes with a policy of their own
//! name = "database"
//! users = ["postgres"]
//! policy = "none"
//! ```
//!
//! A file that is wrong is refused as a whole, with everything that is wrong in it: an unknown key
//! with the nearest known one, a value of a wrong kind with what is wanted (`look`, held
//! against the types themselves, `shape`), a value that cannot be with the reason (the checks of
//! those who use it).

pub mod groups;
pub mod look;
pub mod shape;
pub mod steering;

use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

use numaherd_herd::HerdError;
use numaherd_policy::{PolicyError, registry};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use groups::Group;
use look::{Finding, Places, shown};
use shape::Shape;

/// What a run is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The policy's name; [`DEFAULT_POLICY`] when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// A file of events that are tried before the built-in ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<PathBuf>,
    /// Where everything seen, decided and done is recorded; nowhere when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<PathBuf>,
    /// Where affinities are written down as found; the usual place when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<PathBuf>,
    /// Whose threads.
    pub selection: SelectionSettings,
    /// Cadence and what the governor lets through.
    pub herd: numaherd_herd::Settings,
    /// What the policies can be told.
    pub policies: numaherd_policy::Settings,
    /// Processes with a policy of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<Group>,
}

/// Whose threads are looked after; one of them at most. All that may be steered when nothing is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectionSettings {
    /// The processes of this control group and those below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Processes of this command name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Processes of this user, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What runs when nobody says otherwise.
pub const DEFAULT_POLICY: &str = "dino";

/// The most findings of one file that are told.
const MOST_TOLD: usize = 20;

impl Config {
    /// The policy's name.
    pub fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or(DEFAULT_POLICY)
    }

    /// What a configuration may hold.
    pub fn shape() -> &'static Shape {
        // What groups have of their own is set with each group; the settings get it from there.
        static SHAPE: LazyLock<Shape> =
            LazyLock::new(|| shape::shape_of::<Config>().without(&["herd", "limits", "groups"]));
        &SHAPE
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// All that is wrong with it, each with `file`, line and key.
    pub fn parse(text: &str, file: &str) -> Result<(Self, Lines), Wrong> {
        let reading = Reading { text, file };
        let table = DeTable::parse(text).map_err(|error| reading.not_toml(&error))?;
        let (findings, places) = look::look(Self::shape(), table.get_ref());
        if !findings.is_empty() {
            return Err(reading.wrong(findings));
        }
        let config: Self =
            toml::from_str(text).map_err(|error| reading.unreadable(&error, &places))?;
        let findings = config.check(&places);
        if findings.is_empty() {
            Ok((config, reading.lines(&places)))
        } else {
            Err(reading.wrong(findings))
        }
    }

    /// What of it cannot be.
    fn check(&self, places: &Places) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut say = |key: String, what: String| {
            findings.push(Finding {
                at: places.get(&key).map_or(usize::MAX, |place| place.start),
                before: "",
                key: shown(&look::without_numbers(&key)),
                what,
            });
        };
        if let Err(error) = self.herd.check() {
            match error {
                HerdError::Setting { key, value, why } => {
                    say(format!("herd.{key}"), format!(" is {value}: {why}"));
                }
                other => say("herd".to_owned(), format!(": {other}")),
            }
        }
        match self.policies.check() {
            Ok(()) => {}
            Err(PolicyError::Setting { key, value, must }) => say(
                format!("policies.{key}"),
                format!(" is {}, but must {must}", shown(&value)),
            ),
            Err(other) => say("policies".to_owned(), format!(": {other}")),
        }
        // Settings that cannot be have been told of already.
        let settings = match self.policies.check() {
            Ok(()) => self.policies.clone(),
            Err(_) => numaherd_policy::Settings::default(),
        };
        let policy = |name: &str| registry::build(name, &settings).map(drop);
        if let Err(error) = policy(self.policy()) {
            say("policy".to_owned(), format!(": {}", error));
        }
        for wrong in groups::check(&self.group) {
            let key = shape::joined(&format!("group[{}]", wrong.group), wrong.key);
            let key = key.trim_end_matches('.').to_owned();
            say(key, format!(" {}", wrong.what));
        }
        for (number, group) in self.group.iter().enumerate() {
            let Some(name) = group.policy.as_deref().filter(|_| !group.left_alone()) else {
                continue;
            };
            if let Err(error) = policy(name) {
                let key = format!("group[{number}].policy");
                say(key, format!(": {}; or \"none\" to leave it alone", error));
            }
        }
        let chosen = &self.selection;
        let kinds = [&chosen.cgroup, &chosen.name, &chosen.user];
        if kinds.iter().filter(|kind| kind.is_some()).count() > 1 {
            let what = " names more than one of cgroup, name and user: one is the limit; several \
                        kinds of processes can be told apart by [[group]]";
            say("selection".to_owned(), what.to_owned());
        }
        if let Some(path) = chosen.cgroup.as_ref().filter(|path| !path.starts_with('/')) {
            let what = format!(
                " is {:?}: the path of a control group begins with a slash",
                shown(path)
            );
            say("selection.cgroup".to_owned(), what);
        }
        if findings.is_empty()
            && let Err(error) = steering::policy(self)
        {
            findings.push(Finding {
                at: places.get("group").map_or(usize::MAX, |place| place.start),
                before: "",
                key: "group".to_owned(),
                what: format!(": {error}"),
            });
        }
        findings.sort_by_key(|finding| finding.at);
        findings
    }
}

/// On which line of a file each key is, by the key's dotted name (`group[0].name` in a list).
pub type Lines = std::collections::BTreeMap<String, usize>;

/// A file that is refused, and everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The file, as its reader knows it.
    pub file: String,
    /// Each finding as a sentence, in the order of the file. At least one.
    pub findings: Vec<String>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.findings.as_slice() {
            [one] => f.write_str(one),
            all => {
                write!(f, "{} is wrong in {} places:", self.file, all.len())?;
                for finding in all.iter().take(MOST_TOLD) {
                    write!(f, "\n  {finding}")?;
                }
                if all.len() > MOST_TOLD {
                    write!(f, "\n  and {} more", all.len() - MOST_TOLD)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Wrong {}

/// A file that is being read.
struct Reading<'t> {
    text: &'t str,
    file: &'t str,
}

impl Reading<'_> {
    /// The line, from 1, that a byte is on.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|&&byte| byte == b'\n').count()
    }

    fn lines(&self, places: &Places) -> Lines {
        let line = |(key, place): (&String, &std::ops::Range<usize>)| {
            (key.clone(), self.line(place.start))
        };
        places.iter().map(line).collect()
    }

    fn wrong(&self, findings: Vec<Finding>) -> Wrong {
        let sentence = |finding: Finding| {
            let Finding {
                at,
                before,
                key,
                what,
            } = finding;
            // What is nowhere in the file is a default that does not go with what is.
            let place = match at {
                usize::MAX => format!("{}, where it is left out,", self.file),
                at => format!("{} line {}", self.file, self.line(at)),
            };
            format!("{before}`{key}` in {place}{what}")
        };
        self.told(findings.into_iter().map(sentence).collect())
    }

    fn told(&self, findings: Vec<String>) -> Wrong {
        Wrong {
            file: self.file.to_owned(),
            findings,
        }
    }

    fn not_toml(&self, error: &toml::de::Error) -> Wrong {
        let line = error.span().map_or(1, |span| self.line(span.start));
        let why = shown(&error.message().replace('\n', "; "));
        self.told(vec![format!(
            "{} line {line} is not TOML: {why}",
            self.file
        )])
    }

    /// A value of the right kind that its type does not take: a list of CPUs that is none.
    fn unreadable(&self, error: &toml::de::Error, places: &Places) -> Wrong {
        let at = error.span().map_or(0, |span| span.start);
        let here = places.iter().filter(|(_, place)| place.contains(&at));
        let key = here.min_by_key(|(_, place)| place.len());
        let key = key.map_or("the file", |(key, _)| key);
        let why = shown(&error.message().replace('\n', "; "));
        self.wrong(vec![Finding {
            at,
            before: "",
            key: shown(&look::without_numbers(key)),
            what: format!(": {why}"),
        }])
    }
}

#[cfg(test)]
mod tests;
