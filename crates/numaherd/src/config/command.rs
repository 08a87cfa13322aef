//! `numaherd config`: shows the settings and what sets each, checks a file, describes every key.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use itertools::Itertools as _;
use numaherd_files::setting::joined;
use numaherd_herd::HerdError;
use numaherd_herd::journal;
use numaherd_herd::ledger::Writer;
use numaherd_policy::groups::Policies;
use numaherd_policy::registry;
use numaherd_quantity::counted;
use numaherd_topology::sysfs;
use serde::Serialize;
use serde_json::{Value, json};

use super::file::{DEFAULT_POLICY, steering};
use super::keys::{self, Key, as_toml};
use super::{Config, Effective, USUAL_FILE, Values, example, milliseconds, values};
use crate::cli::{Config as Command, ConfigCheck, ConfigKeys, ConfigShow};
use crate::doctor;
use crate::exit::{Coded, Exit, OrExit, ended};
use crate::print::{self, Shown};

/// Carries out the command.
///
/// # Errors
/// The configuration is wrong or cannot be read, a key is unknown, or standard output cannot be
/// written.
pub fn config(command: &Command) -> Result<()> {
    match command {
        Command::Show(options) => show(options),
        Command::Check(options) => check(options),
        Command::Keys(options) => list(options),
        Command::Example => print::out(&example::example()),
    }
}

fn show(options: &ConfigShow) -> Result<()> {
    let effective = Effective::of(&options.run)?;
    let resolved = values(&resolved(&effective.config)?);
    let set = values(&effective.config);
    let lines = shown_lines(&effective, &set, &resolved);
    if options.run.json {
        let held: serde_json::Map<String, Value> = lines
            .into_iter()
            .filter(|line| line.origin.is_some() || !options.changed)
            .map(|line| (line.name.clone(), line.held()))
            .collect();
        return print::out(&(serde_json::to_string_pretty(&held)? + "\n"));
    }
    print::out(&as_file(&effective, &lines, options.changed))
}

/// The same, with what policies and program use for keys left out.
fn resolved(config: &Config) -> Result<Config> {
    let mut resolved = config.clone();
    let policy = resolved
        .policy
        .get_or_insert_with(|| DEFAULT_POLICY.to_owned());
    let alone = registry::build(policy, &config.policies).or_exit(Exit::Usage)?;
    resolved.herd = resolved.herd.resolved(&Policies::from(alone).own());
    let together = steering::policy(config).or_exit(Exit::Usage)?;
    let own = together.own();
    let settings = steering::settings(config).resolved(&own);
    for group in &mut resolved.group {
        let limits = settings.limits.groups.get(&group.name);
        let Some(limits) = limits.filter(|_| !group.left_alone()) else {
            continue;
        };
        group
            .policy
            .get_or_insert_with(|| config.policy().to_owned());
        group.scope = limits.scope;
        group.thread_bounce_limit = limits.thread_bounce_limit;
        let of_group = own.groups.iter().find(|(name, _)| **name == *group.name);
        let interval = of_group.and_then(|(_, own)| own.interval);
        group.placement_interval_ms = Some(interval.map_or(USUAL_INTERVAL_MS, milliseconds));
    }
    Ok(resolved)
}

/// The default interval between placements, in ms.
const USUAL_INTERVAL_MS: u64 = 1000;

/// A key that is shown.
struct ShownKey {
    /// Its name, `group[0].name` in a list.
    name: String,
    /// Its heading in a file.
    heading: String,
    key: Key,
    /// The value that was set, or the default.
    set: Option<Value>,
    /// The value in effect if it is left out.
    resolved: Option<Value>,
    /// What set it, in words.
    origin: Option<String>,
}

impl ShownKey {
    /// The value, or if it is left out, the one that the policy or the program uses, as far as known; and what set
    /// it.
    fn held(&self) -> Value {
        let from = match (&self.origin, &self.set) {
            (Some(origin), _) => origin,
            (None, Some(_)) => "default",
            (None, None) => "left out",
        };
        json!({ "value": self.set.as_ref().or(self.resolved.as_ref()), "from": from })
    }

    fn table(&self) -> &str {
        self.name.rsplit_once('.').map_or("", |(table, _)| table)
    }
}

fn shown_lines(effective: &Effective, set: &Values, resolved: &Values) -> Vec<ShownKey> {
    let groups = effective.config.group.len();
    let mut lines = Vec::new();
    for table in keys::tables() {
        let numbered: Vec<String> = match table.in_list {
            true => (0..groups)
                .map(|number| format!("{}[{number}]", table.name))
                .collect(),
            false => vec![table.name.clone()],
        };
        for table_name in numbered {
            for key in keys::of_table(&table) {
                let name = joined(&table_name, key.setting.name);
                lines.push(ShownKey {
                    set: set.get(&name).cloned(),
                    resolved: resolved.get(&name).cloned(),
                    origin: effective.origin(&name),
                    heading: table.heading(),
                    key,
                    name,
                });
            }
        }
    }
    lines
}

/// The settings in effect, as an equivalent configuration file.
fn as_file(effective: &Effective, lines: &[ShownKey], changed: bool) -> Shown {
    let file = match &effective.file {
        Some(file) => format!("{}, then ", file.display()),
        None => String::new(),
    };
    let mut text = format!("# Built-in defaults, then {file}the command line.\n");
    let mut table = "";
    for line in lines {
        if changed && line.origin.is_none() {
            continue;
        }
        if line.table() != table {
            table = line.table();
            text += &format!("\n{}\n", line.heading);
        }
        let (value, why) = match (&line.set, &line.resolved, &line.origin) {
            (Some(value), _, Some(origin)) => (as_toml(value), origin.clone()),
            (Some(value), _, None) => (as_toml(value), String::new()),
            (None, Some(value), _) => (as_toml(value), "left out".to_owned()),
            (None, None, _) => match line.key.default() {
                // An empty list or table is not written.
                Ok(empty) => (empty, String::new()),
                Err(left_out) => {
                    text += &format!("#{} left out: {left_out}\n", line.key.setting.name);
                    continue;
                }
            },
        };
        let mark = match line.set.is_none() && line.key.setting.optional {
            true => "#",
            false => "",
        };
        let entry = format!("{mark}{} = {value}", line.key.setting.name);
        text += &match why.as_str() {
            "" => format!("{entry}\n"),
            why => format!("{entry:<40}  # {why}\n"),
        };
    }
    text
}

fn check(options: &ConfigCheck) -> Result<()> {
    let effective = match &options.file {
        Some(file) => Effective::of_named(file)?,
        None => Effective::of_file(None)?,
    };
    let Some(file) = &effective.file else {
        return print::out(&format!(
            "There is no {USUAL_FILE}, and no other file is given: the built-in settings apply.\n"
        ));
    };
    check_here(&effective)?;
    let set = values(&effective.config);
    let keys = effective
        .origins
        .keys()
        .filter(|key| set.contains_key(*key));
    let keys = counted(keys.count(), "key");
    let groups = match effective.config.group.len() {
        0 => String::new(),
        groups => format!(", {}", counted(groups, "group")),
    };
    let notices = effective.notices.iter().map(|notice| format!("{notice}\n"));
    print::out(&format!(
        "{}{} is correct: {keys} set{groups}. `numaherd config show` prints the resulting settings.\n",
        notices.collect::<String>(),
        file.display()
    ))
}

/// Checks that what a configuration names is valid on this machine.
fn check_here(effective: &Effective) -> Result<()> {
    let Config {
        events,
        ledger,
        journal,
        herd,
        ..
    } = &effective.config;
    doctor::event_table(events.as_deref())?;
    // A file that this user may not see, or that does not exist yet, is fine.
    let is_wrong = |error: &HerdError| error.exit() == Exit::Usage && !is_missing(error);
    let ledger = ledger.as_deref().map(Writer::check);
    let journal = journal
        .as_deref()
        .map(|path| journal::owed(path, "").map(drop));
    for (key, looked) in [("ledger", ledger), ("journal", journal)] {
        if let Some(Err(error)) = looked.filter(|looked| looked.as_ref().is_err_and(is_wrong)) {
            return Err(effective.refused(key, &error));
        }
    }
    let limits = &herd.limits;
    if limits.cpus.is_none() && limits.nodes.is_none() {
        return Ok(());
    }
    effective.check_limits(&sysfs::read(Path::new("/"))?)
}

fn is_missing(error: &HerdError) -> bool {
    matches!(error, HerdError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// A key, as JSON.
#[derive(Serialize)]
struct Described {
    key: String,
    /// `null` where leaving it out is a value of its own.
    default: Option<Value>,
    left_out: Option<&'static str>,
    unit: Option<&'static str>,
    wanted: String,
    what: String,
    read_at_the_start_only: bool,
}

impl Described {
    fn of(key: &Key) -> Self {
        let some = |text: &'static str| (!text.is_empty()).then_some(text);
        Self {
            key: key.name.clone(),
            default: keys::default_of(&key.name).cloned(),
            left_out: some(key.setting.left_out),
            unit: some(key.setting.unit),
            wanted: key.setting.wanted(),
            what: key.what(),
            read_at_the_start_only: key.setting.restart,
        }
    }
}

fn list(options: &ConfigKeys) -> Result<()> {
    let wanted = options.key.as_deref().map(plain_name);
    let Some(name) = wanted else {
        let all = keys::keys();
        let described: Vec<Described> = all.iter().map(Described::of).collect();
        return print::shown(options.json, &described, || overview(&all));
    };
    let found: Vec<Key> = match keys::find(&name) {
        Some(key) => vec![key],
        None => keys::tables()
            .iter()
            .filter(|table| table.name == name || table.name.starts_with(&format!("{name}.")))
            .flat_map(keys::of_table)
            .collect(),
    };
    if found.is_empty() {
        let message = format!("there is no key `{name}`; {}", keys::did_you_mean(&name));
        return Err(ended(Exit::Usage, message));
    }
    let described: Vec<Described> = found.iter().map(Described::of).collect();
    print::shown(options.json, &described, || {
        found.iter().map(one).join("\n")
    })
}

/// A key's name, even if it was copied from a file: `[herd.limits]`, `scope = "node"`.
fn plain_name(written: &str) -> String {
    let name = written.split('=').next().unwrap_or(written).trim();
    name.trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned()
}

fn default_in_words(key: &Key) -> String {
    match key.default() {
        Ok(value) => value,
        Err(left_out) => left_out.to_owned(),
    }
}

fn overview(all: &[Key]) -> Shown {
    let mut table = print::table(["key", "default", "unit", "what it does"]);
    for key in all {
        table.add_row([
            &key.name,
            &default_in_words(key),
            &key.setting.counts(),
            key.setting.in_short(),
        ]);
    }
    format!("{table}\n\n`numaherd config keys KEY` describes one.\n")
}

fn one(key: &Key) -> Shown {
    let mut text = format!("{}\n", key.name);
    for line in example::wrapped(&key.what()) {
        text += &format!("  {line}\n");
    }
    let mut say = |what: &str, value: &str| {
        text += &format!("  {what:<10}{value}\n");
    };
    say("default", &default_in_words(key));
    if !key.setting.unit.is_empty() {
        say("unit", &key.setting.counts());
    }
    say("wanted", &key.setting.wanted());
    let read = match key.setting.restart {
        true => "at the start only",
        false => "at the start, and again on SIGHUP",
    };
    say("read", read);
    text
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    #[test]
    fn a_name_is_taken_as_it_was_copied() {
        for written in ["herd.limits", "[herd.limits]", " herd.limits = 3"] {
            assert_eq!(plain_name(written), "herd.limits");
        }
        assert_eq!(plain_name("[[group]]"), "group");
    }

    #[test]
    fn what_is_shown_is_a_file_that_says_the_same() {
        let text = "policy = \"brm\"\n[herd.limits]\nfreeze_s = 7\n[[group]]\nname = \"a\"\nusers = [\"b\"]\n\
                    [[group]]\nname = \"c d\"\npids = [1, 2]\npolicy = \"none\"\n\
                    [policies.penalty]\nprograms = { \"a b\" = 1.5 }\n";
        let (config, read) = Config::parse(text, "f").unwrap();
        let origins = read.lines.into_iter();
        let effective = Effective {
            drop_ins: Vec::new(),
            origins: origins
                .map(|(key, line)| (key, Origin::Line(line)))
                .collect(),
            config,
            file: Some("f".into()),
            notices: Vec::new(),
        };
        let set = values(&effective.config);
        let lines = shown_lines(&effective, &set, &set);
        for changed in [false, true] {
            let shown = as_file(&effective, &lines, changed);
            let (again, _) = Config::parse(&shown, "g").unwrap_or_else(|e| panic!("{e}\n{shown}"));
            assert_eq!(again, effective.config, "{shown}");
        }
        let changed = as_file(&effective, &lines, true);
        assert!(changed.contains("freeze_s = 7.0"), "{changed}");
        assert!(changed.contains("# f line 3"), "{changed}");
        assert!(!changed.contains("bounce_limit"), "{changed}");
    }
}
