//! Scenario files of the model: which programs run on which machine, until when, and what counts.
//!
//! `docs/simulate.md` explains each key. A file is refused with its name, the line, the key and the
//! reason. What needs the machine or the profiles to be known (whether a CPU is there, whether a
//! program has a profile) is checked in [`super::plan`], with the line that is kept here.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use numaherd_model::Until;
use numaherd_topology::CpuSet;
use serde::{Deserialize, Serialize};
use toml::{Spanned, Table};

use numaherd::exit::{Exit, ended};

/// The largest file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;
/// Limits beyond which a figure is taken for a mistake.
const MOST_COPIES: u32 = 1 << 20;
const MOST_COMPLETIONS: u32 = 1000;
pub const MOST_REPEATS: u32 = 100_000;
/// A year.
const LONGEST_S: f64 = 365.0 * 86_400.0;

/// The scenarios that come with the program.
pub const BUILT_IN: &[(&str, &str)] = &[
    (
        "memory-on-one-node",
        include_str!("../../../../scenarios/model/memory-on-one-node.toml"),
    ),
    (
        "sixteen-programs",
        include_str!("../../../../scenarios/model/sixteen-programs.toml"),
    ),
    (
        "sixteen-ranks",
        include_str!("../../../../scenarios/model/sixteen-ranks.toml"),
    ),
    (
        "web-service",
        include_str!("../../../../scenarios/model/web-service.toml"),
    ),
];

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Short name.
    pub name: String,
    /// One line on what it shows.
    pub about: String,
    /// Preset or machine file.
    pub machine: String,
    /// Policies that are compared unless the command line names some; the first is the baseline.
    pub policies: Vec<String>,
    /// How often each is run unless the command line says.
    pub repeat: u32,
    /// Until when.
    #[serde(serialize_with = "until_as_text")]
    pub until: Until,
    /// Which completed runs of a program count.
    pub count: Count,
    /// Which limits hold before `[settings]`.
    pub governor: Limits,
    /// `[settings.herd]`, `[settings.policies]` and `[model]`.
    pub settings: Tables,
    /// Files of further profiles, relative to the scenario's folder.
    pub profiles: Vec<PathBuf>,
    /// What runs, in the order it is started in.
    pub programs: Vec<Entry>,
    /// What errors call the file.
    #[serde(skip)]
    pub from: String,
}

/// Which completed runs of a program give its completion time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// The first.
    First,
    /// The second (DINO §3.2: of three, so that all programs run from its start to its end).
    Second,
    /// The mean of all that were completed; where a time was run, the time of a run at the mean
    /// pace, completed or not.
    #[default]
    All,
}

/// What limits a policy before `[settings]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limits {
    /// As `numaherd run` limits it.
    #[default]
    Usual,
    /// Not at all: the policy acts as it was published.
    AsPublished,
}

/// Settings as they are written; [`super::plan::Settings`] reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tables {
    /// Of the loop.
    pub herd: Table,
    /// Of the policies.
    pub policies: Table,
    /// Of the model.
    pub model: Table,
}

/// Some processes of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// What it is called in results.
    pub name: String,
    /// The profile's name.
    pub profile: String,
    /// How many processes.
    pub copies: u32,
    /// Where their pages are when they start.
    pub memory: Memory,
    /// Where their threads may run.
    pub cpus: Cpus,
    /// When they start, in seconds.
    pub start_after_s: f64,
    /// Whether they count.
    pub measured: bool,
    /// Whether the copies wait for each other, as the ranks of a job do.
    pub gang: bool,
    /// Whether each copy begins one phase later than the one before.
    pub stagger: bool,
    /// The line of the file, from 1.
    #[serde(skip)]
    pub line: usize,
}

/// Where the pages of a process are when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// On the node that each thread starts on.
    FirstTouch,
    /// Evenly over all nodes.
    Interleave,
    /// All on this node.
    Node(u32),
}

/// Where the threads of some processes may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// Anywhere.
    Free,
    /// Dealt to these one after the other, and free from then on.
    StartOn(CpuSet),
    /// Anywhere on these: nobody may move them elsewhere.
    Within(CpuSet),
    /// Dealt to these one after the other: nobody may move them.
    Pinned(CpuSet),
}

fn until_as_text<S: serde::Serializer>(until: &Until, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&until_in_words(until))
}

/// `3 completions` or `3600 s`.
pub fn until_in_words(until: &Until) -> String {
    match until {
        Until::Completions(1) => "1 completion".to_owned(),
        Until::Completions(all) => format!("{all} completions"),
        Until::Time(time) => format!("{} s", time.as_secs_f64()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    about: String,
    machine: String,
    #[serde(default = "usual_policies")]
    policies: Spanned<Vec<String>>,
    #[serde(default = "once")]
    repeat: Spanned<u32>,
    until: Spanned<UntilTable>,
    #[serde(default)]
    count: Option<Spanned<Count>>,
    #[serde(default)]
    governor: Limits,
    #[serde(default)]
    settings: SettingsTable,
    #[serde(default)]
    model: Table,
    #[serde(default)]
    profiles: Vec<PathBuf>,
    #[serde(default, rename = "program")]
    programs: Vec<Spanned<ProgramTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettingsTable {
    herd: Table,
    policies: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UntilTable {
    completions: Option<u32>,
    seconds: Option<f64>,
    hours: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramTable {
    profile: Spanned<String>,
    name: Option<Spanned<String>>,
    #[serde(default = "once")]
    copies: Spanned<u32>,
    memory: Option<Spanned<MemoryWord>>,
    start_on: Option<Spanned<String>>,
    cpus: Option<Spanned<String>>,
    pinned: Option<Spanned<String>>,
    start_after_s: Option<Spanned<f64>>,
    #[serde(default = "yes")]
    measured: bool,
    #[serde(default)]
    gang: bool,
    #[serde(default)]
    stagger: bool,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a node's number, \"first-touch\" or \"interleave\""
)]
enum MemoryWord {
    Node(u32),
    Word(String),
}

fn usual_policies() -> Spanned<Vec<String>> {
    Spanned::new(0..0, vec!["linux".to_owned(), "dino".to_owned()])
}

fn once() -> Spanned<u32> {
    Spanned::new(0..0, 1)
}

fn yes() -> bool {
    true
}

/// What is wrong, and where in the text.
struct Wrong {
    at: Range<usize>,
    key: &'static str,
    why: String,
}

fn wrong<T>(at: Range<usize>, key: &'static str, why: impl Into<String>) -> Result<T, Wrong> {
    let why = why.into();
    Err(Wrong { at, key, why })
}

/// The error of a file that is wrong in that line.
pub fn refused(from: &str, line: usize, key: &str, why: impl std::fmt::Display) -> anyhow::Error {
    ended(Exit::Usage, format!("{from}:{line}: {key}: {why}"))
}

impl Scenario {
    /// The scenario of that name, or in that file.
    ///
    /// # Errors
    /// No such scenario or file, or one that is wrong: the message names file, line, key and reason.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(text, name);
        }
        let path = Path::new(name);
        if !name.ends_with(".toml") && !path.exists() {
            let known: Vec<&str> = BUILT_IN.iter().map(|&(name, _)| name).collect();
            let known = known.join(", ");
            let told =
                format!("no scenario is called {name:?}: give one of {known}, or a .toml file");
            return Err(ended(Exit::Usage, told));
        }
        let read = || {
            let mut text = String::new();
            let file = std::fs::File::open(path)?;
            file.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
            if text.len() as u64 > LARGEST_FILE {
                let told = format!("it is larger than {LARGEST_FILE} bytes, which no scenario is");
                return Err(std::io::Error::other(told));
            }
            Ok(text)
        };
        let text = read().map_err(|error: std::io::Error| {
            ended(Exit::Usage, format!("cannot read scenario {name}: {error}"))
        })?;
        Self::parse(&text, name)
    }

    /// Reads a scenario's text; `from` is what errors call it.
    pub fn parse(text: &str, from: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let there = text.lines().nth(line - 1).unwrap_or("").trim();
            let key = if there.is_empty() { "the file" } else { there };
            let why = error.message().trim().replace('\n', ", ");
            refused(from, line, key, why)
        })?;
        checked(file, text, from)
            .map_err(|wrong| refused(from, line_of(text, wrong.at.start), wrong.key, wrong.why))
    }

    /// The folder that relative paths of the scenario start from.
    pub fn folder(&self) -> &Path {
        Path::new(&self.from).parent().unwrap_or(Path::new(""))
    }
}

/// The line, from 1, of a byte of a text.
fn line_of(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

fn checked(file: File, text: &str, from: &str) -> Result<Scenario, Wrong> {
    if file.name.get_ref().trim().is_empty() {
        return wrong(file.name.span(), "name", "give it a name");
    }
    if file.policies.get_ref().is_empty() {
        return wrong(file.policies.span(), "policies", "name at least one policy");
    }
    if !(1..=MOST_REPEATS).contains(file.repeat.get_ref()) {
        let why = format!(
            "{} is not within 1 to {MOST_REPEATS}",
            file.repeat.get_ref()
        );
        return wrong(file.repeat.span(), "repeat", why);
    }
    let until = until(&file.until)?;
    let count = count(file.count.as_ref(), &until)?;
    if file.programs.is_empty() {
        return wrong(0..0, "program", "what runs? give at least one [[program]]");
    }
    let programs: Vec<Entry> = file
        .programs
        .into_iter()
        .map(|table| {
            let line = line_of(text, table.get_ref().profile.span().start);
            entry(table.into_inner(), line)
        })
        .collect::<Result<_, Wrong>>()?;
    if !programs.iter().any(|program| program.measured) {
        return wrong(
            0..0,
            "program",
            "none is measured: leave out one measured = false",
        );
    }
    Ok(Scenario {
        name: file.name.into_inner(),
        about: file.about,
        machine: file.machine,
        policies: file.policies.into_inner(),
        repeat: file.repeat.into_inner(),
        until,
        count,
        governor: file.governor,
        settings: Tables {
            herd: file.settings.herd,
            policies: file.settings.policies,
            model: file.model,
        },
        profiles: file.profiles,
        programs,
        from: from.to_owned(),
    })
}

fn until(table: &Spanned<UntilTable>) -> Result<Until, Wrong> {
    let (at, given) = (table.span(), table.get_ref());
    let time = |seconds: f64| {
        if (1e-3..=LONGEST_S).contains(&seconds) {
            Ok(Until::Time(Duration::from_secs_f64(seconds)))
        } else {
            wrong(
                at.clone(),
                "until",
                format!("{seconds} s is not within 1 ms to a year"),
            )
        }
    };
    match (given.completions, given.seconds, given.hours) {
        (Some(all @ 1..=MOST_COMPLETIONS), None, None) => Ok(Until::Completions(all)),
        (Some(all), None, None) => {
            let why = format!("{all} completions is not within 1 to {MOST_COMPLETIONS}");
            wrong(at, "until", why)
        }
        (None, Some(seconds), None) => time(seconds),
        (None, None, Some(hours)) => time(hours * 3600.0),
        _ => wrong(at, "until", "give one of completions, seconds and hours"),
    }
}

fn count(given: Option<&Spanned<Count>>, until: &Until) -> Result<Count, Wrong> {
    let Some(given) = given else {
        return Ok(Count::All);
    };
    let count = *given.get_ref();
    match (count, until) {
        (Count::All, _) | (Count::First, Until::Completions(_)) => Ok(count),
        (Count::Second, Until::Completions(all)) if *all >= 2 => Ok(count),
        (Count::Second, Until::Completions(_)) => {
            wrong(given.span(), "count", "there is no second of 1 completion")
        }
        (_, Until::Time(_)) => {
            let why = "after a time, not each program has completed: leave it out, or say until = { completions = 3 }";
            wrong(given.span(), "count", why)
        }
    }
}

fn entry(table: ProgramTable, line: usize) -> Result<Entry, Wrong> {
    if !(1..=MOST_COPIES).contains(table.copies.get_ref()) {
        let why = format!(
            "{} is not within 1 to {MOST_COPIES}: to have none, leave the program out",
            table.copies.get_ref()
        );
        return wrong(table.copies.span(), "copies", why);
    }
    let memory = match &table.memory {
        None => Memory::FirstTouch,
        Some(given) => match given.get_ref() {
            MemoryWord::Node(node) => Memory::Node(*node),
            MemoryWord::Word(word) if word == "first-touch" => Memory::FirstTouch,
            MemoryWord::Word(word) if word == "interleave" => Memory::Interleave,
            MemoryWord::Word(word) => {
                let why =
                    format!("{word:?} is not \"first-touch\", \"interleave\" or a node's number");
                return wrong(given.span(), "memory", why);
            }
        },
    };
    let start_after_s = match &table.start_after_s {
        None => 0.0,
        Some(given) if (0.0..=LONGEST_S).contains(given.get_ref()) => *given.get_ref(),
        Some(given) => {
            let why = format!("{} is not within 0 to a year", given.get_ref());
            return wrong(given.span(), "start_after_s", why);
        }
    };
    let cpus = cpus(&table)?;
    let name = match table.name {
        None => table.profile.get_ref().clone(),
        Some(given) if given.get_ref().trim().is_empty() => {
            return wrong(given.span(), "name", "leave it out to have the profile's");
        }
        Some(given) => given.into_inner(),
    };
    Ok(Entry {
        name,
        profile: table.profile.into_inner(),
        copies: table.copies.into_inner(),
        memory,
        cpus,
        start_after_s,
        measured: table.measured,
        gang: table.gang,
        stagger: table.stagger,
        line,
    })
}

fn cpus(table: &ProgramTable) -> Result<Cpus, Wrong> {
    type Make = fn(CpuSet) -> Cpus;
    let keys: [(&'static str, &Option<Spanned<String>>, Make); 3] = [
        ("start_on", &table.start_on, Cpus::StartOn),
        ("cpus", &table.cpus, Cpus::Within),
        ("pinned", &table.pinned, Cpus::Pinned),
    ];
    let mut given = keys
        .into_iter()
        .filter_map(|(key, given, make)| given.as_ref().map(|given| (key, given, make)));
    let Some((key, text, make)) = given.next() else {
        return Ok(Cpus::Free);
    };
    if let Some((second, at, _)) = given.next() {
        return wrong(
            at.span(),
            second,
            format!("give either this or {key}, not both"),
        );
    }
    match text.get_ref().parse::<CpuSet>() {
        Ok(set) if set.is_empty() => wrong(text.span(), key, "name at least one CPU"),
        Ok(set) => Ok(make(set)),
        Err(error) => wrong(text.span(), key, error.to_string()),
    }
}

#[cfg(test)]
mod tests;
