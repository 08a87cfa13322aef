//! The configuration of a run: built-in defaults, then a file, then the command line.
//!
//! Later values replace earlier ones, key by key. The file is that of `--config`, or the one that `NUMAHERD_CONFIG` names,
//! or [`USUAL_FILE`] if it exists; `none` means no file. A file that is named and missing is an error; the usual one may be
//! missing.
//!
//! | | |
//! |---|---|
//! | `file` | what a file may hold, and how it is read |
//! | `drop_ins` | groups in files of their own |
//! | `keys` | every key with its default; all documentation is drawn from it |
//! | `example`, `page` | `contrib/numaherd.toml`, `docs/configuration.md` |
//! | `command` | `numaherd config` |

pub mod command;
mod drop_ins;
pub mod example;
pub mod file;
pub mod keys;
#[cfg(test)]
mod page;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_files::setting::{self, Kind, Section, joined};
use numaherd_files::{FileError, Finding, read};
use numaherd_topology::{CpuSet, Id, IdSet, NodeSet, Topology};
use serde_json::Value;

use crate::cli::Run;
use crate::exit::{Exit, OrExit, ended};
pub use file::Config;

/// The configuration that is read by default.
pub const USUAL_FILE: &str = "/etc/numaherd/numaherd.toml";

/// The variable that names another, or `none`.
pub const VARIABLE: &str = "NUMAHERD_CONFIG";

/// The largest file that is read, in bytes.
pub const LARGEST_FILE: u64 = 1 << 20;

/// Stands for no file.
const NO_FILE: &str = "none";

/// A configuration, and the origin of each of its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effective {
    /// The settings in effect.
    pub config: Config,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The files with further groups that were read.
    pub drop_ins: Vec<PathBuf>,
    /// The origins of values that were set, by their keys' names (`group[0].name` in a list).
    pub origins: BTreeMap<String, Origin>,
    /// Keys of the file that have been renamed, and what to write instead.
    pub notices: Vec<Finding>,
}

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This line of the file.
    Line(usize),
    /// This option of the command line.
    Option(&'static str),
    /// A file with further groups.
    DropIn {
        /// Which of [`Effective::drop_ins`].
        number: usize,
        /// Its line.
        line: usize,
    },
}

/// Where to look for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Nowhere.
    Nothing,
    /// Here, and it must be there.
    Named(PathBuf),
    /// Here, if it is there.
    Usual(PathBuf),
}

impl Wanted {
    /// By the option, or else the environment, or else the usual one.
    fn of(option: Option<&Path>, variable: Option<&OsStr>) -> Self {
        let variable = variable.filter(|value| !value.is_empty()).map(Path::new);
        match option.or(variable) {
            None => Self::Usual(PathBuf::from(USUAL_FILE)),
            Some(path) if path.as_os_str() == NO_FILE => Self::Nothing,
            Some(path) => Self::Named(path.to_owned()),
        }
    }

    fn here(option: Option<&Path>) -> Self {
        Self::of(option, std::env::var_os(VARIABLE).as_deref())
    }
}

/// Which of the limit's CPUs or nodes the machine lacks, if any.
fn beyond<T: Id>(what: &str, limit: Option<&IdSet<T>>, machine: &IdSet<T>) -> Option<String> {
    let absent = limit?.difference(machine);
    let why = || format!("this machine has no {what} {absent}; it has {machine}");
    (!absent.is_empty()).then(why)
}

/// Sets keys to the values of options, where these are given: `"--option": [key] = value;`.
macro_rules! overrule {
    ($effective:ident: $($option:literal: [$first:ident $(. $more:ident)*] = $value:expr;)+) => {$(
        if let Some(value) = $value {
            $effective.config.$first$(.$more)* = value.into();
            let key = concat!(stringify!($first) $(, ".", stringify!($more))*);
            $effective.origins.insert(key.to_owned(), Origin::Option($option));
        }
    )+};
}

impl Effective {
    /// The settings of a run with these options.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown key or an invalid value: the message names file, line and key. An
    /// option has an invalid value.
    pub fn of(run: &Run) -> Result<Self> {
        let mut effective = Self::without_drop_ins(run)?;
        effective.take_in()?;
        Ok(effective)
    }

    /// The settings of a run with these options, without the files with further groups.
    ///
    /// # Errors
    /// As [`Effective::of`].
    pub fn without_drop_ins(run: &Run) -> Result<Self> {
        let mut effective = Self::read(&Wanted::here(run.files.config.as_deref()))?;
        effective.overrule(run)?;
        effective.check()?;
        Ok(effective)
    }

    fn check(&self) -> Result<()> {
        setting::check(&self.config).map_err(|wrong| self.refused(&wrong.key, &wrong.why))?;
        Ok(())
    }

    /// The error for the value of a key, which names the value's origin.
    pub fn refused(&self, key: &str, why: &dyn fmt::Display) -> anyhow::Error {
        match self.origin(key) {
            // The option is the key.
            Some(option) if option.starts_with("--") => ended!(Usage, "{option}: {why}"),
            Some(origin) => ended!(Usage, "{origin}: {key}: {why}"),
            None => ended!(Usage, "{key}: {why}"),
        }
    }

    /// Checks that this machine has the CPUs and nodes that the settings name.
    ///
    /// # Errors
    /// It lacks such a CPU or node.
    pub fn check_limits(&self, machine: &Topology) -> Result<()> {
        let limits = &self.config.herd.limits;
        let cpus: CpuSet = machine.cpus().iter().map(|cpu| cpu.id).collect();
        let nodes: NodeSet = machine.nodes().iter().map(|node| node.id).collect();
        let absent = [
            (
                "herd.limits.cpus",
                beyond("CPUs", limits.cpus.as_ref(), &cpus),
            ),
            (
                "herd.limits.nodes",
                beyond("nodes", limits.nodes.as_ref(), &nodes),
            ),
        ];
        match absent.into_iter().find_map(|(key, why)| Some((key, why?))) {
            Some((key, why)) => Err(self.refused(key, &why)),
            None => Ok(()),
        }
    }

    /// The settings of the file that `option` names, or else of the default one.
    ///
    /// # Errors
    /// As [`Effective::of`].
    pub fn of_file(option: Option<&Path>) -> Result<Self> {
        Self::read_all(&Wanted::here(option))
    }

    /// The settings of this file.
    ///
    /// # Errors
    /// As [`Effective::of`].
    pub fn of_named(file: &Path) -> Result<Self> {
        Self::read_all(&Wanted::Named(file.to_owned()))
    }

    fn read_all(wanted: &Wanted) -> Result<Self> {
        let mut effective = Self::read(wanted)?;
        effective.take_in()?;
        Ok(effective)
    }

    fn read(wanted: &Wanted) -> Result<Self> {
        let (path, may_be_missing) = match wanted {
            Wanted::Nothing => return Ok(Self::default()),
            Wanted::Named(path) => (path, false),
            Wanted::Usual(path) => (path, true),
        };
        let text = match read::text(path, LARGEST_FILE) {
            Ok(text) => text,
            Err(FileError::Missing { .. }) if may_be_missing => return Ok(Self::default()),
            Err(error) => {
                let without = if may_be_missing {
                    "; to continue without it: --config none"
                } else {
                    ""
                };
                let exit = match error {
                    FileError::Denied { .. } => Exit::Permission,
                    _ => Exit::Usage,
                };
                let message = format!("the configuration: {error}{without}");
                return Err(ended(exit, message));
            }
        };
        let (mut config, read) =
            Config::parse(&text, &path.display().to_string()).or_exit(Exit::Usage)?;
        // Relative paths start from the file's folder.
        if let Some(folder) = path.parent() {
            let named = [
                &mut config.events,
                &mut config.ledger,
                &mut config.journal,
                &mut config.groups_from,
            ];
            for file in named.into_iter().flatten() {
                *file = folder.join(&*file);
            }
        }
        let origins = read.lines.into_iter();
        Ok(Self {
            config,
            notices: read.notices,
            file: Some(path.clone()),
            drop_ins: Vec::new(),
            origins: origins
                .map(|(key, line)| (key, Origin::Line(line)))
                .collect(),
        })
    }

    /// Applies the options of the command line.
    fn overrule(&mut self, run: &Run) -> Result<()> {
        let (files, steering) = (&run.files, &run.steering);
        overrule! { self:
            "--policy": [policy] = run.policy.clone();
            "--events": [events] = files.events.clone();
            "--ledger": [ledger] = files.ledger.clone();
            "--journal": [journal] = files.journal.clone();
            "--interval": [herd.placement_interval_ms] = steering.interval.map(milliseconds);
            "--paging-interval": [herd.paging_interval_ms] = steering.paging_interval.map(milliseconds);
            "--for": [herd.length_ms] = run.length.map(milliseconds);
            "--dry-run": [herd.dry_run] = steering.dry_run.then_some(true);
            "--seed": [herd.seed] = steering.seed;
            "--enforce": [herd.enforce] = steering.enforce;
            "--cpus": [herd.limits.cpus] = steering.cpus.clone();
            "--nodes": [herd.limits.nodes] = steering.nodes.clone();
            "--scope": [herd.limits.scope] = steering.scope;
            "--take-over": [herd.limits.take_over] = steering.take_over.then_some(true);
        }
        self.choose(run)
    }

    /// Applies the command line's selection, if there is one; it replaces that of the file.
    fn choose(&mut self, run: &Run) -> Result<()> {
        let chosen = &run.selection;
        let given = !run.program.is_empty()
            || !chosen.pid.is_empty()
            || chosen.cgroup.is_some()
            || chosen.name.is_some()
            || chosen.user.is_some();
        if !given {
            return Ok(());
        }
        self.origins.retain(|key, _| !key.starts_with("selection."));
        let text = |path: &PathBuf| {
            let path = path.to_str().map(str::to_owned);
            path.context("the cgroup's path is not UTF-8, as the kernel's are")
        };
        self.config.selection = file::SelectionSettings {
            cgroup: chosen.cgroup.as_ref().map(text).transpose()?,
            name: chosen.name.clone(),
            user: chosen.user.clone(),
        };
        let options = [
            (chosen.cgroup.is_some(), "selection.cgroup", "--cgroup"),
            (chosen.name.is_some(), "selection.name", "--name"),
            (chosen.user.is_some(), "selection.user", "--user"),
        ];
        for (_, key, option) in options.into_iter().filter(|(given, ..)| *given) {
            self.origins.insert(key.to_owned(), Origin::Option(option));
        }
        Ok(())
    }

    /// The origin of a value, in words; `None` for a default.
    pub fn origin(&self, key: &str) -> Option<String> {
        Some(match self.origins.get(key)? {
            Origin::Line(line) => match &self.file {
                Some(file) => format!("{} line {line}", file.display()),
                None => format!("line {line}"),
            },
            Origin::Option(option) => (*option).to_owned(),
            Origin::DropIn { number, line } => {
                format!("{} line {line}", self.drop_ins.get(*number)?.display())
            }
        })
    }
}

/// The origin of the values that are not built in, in a few words.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "configuration from {}", file.display()),
            None => f.write_str("built-in configuration"),
        }
    }
}

/// Values by their keys' names.
pub type Values = BTreeMap<String, Value>;

/// Every value that a configuration has, by its key's name (`group[0].name` in a list).
pub fn values(config: &Config) -> Values {
    let mut found = BTreeMap::new();
    collect("", keys::plain(config), keys::root(), &mut found);
    found
}

fn collect(name: &str, table: Value, section: &'static Section, found: &mut Values) {
    let Value::Object(mut table) = table else {
        return;
    };
    for setting in section.settings.iter().filter(|setting| !setting.internal) {
        let name = joined(name, setting.name);
        match (setting.kind, table.remove(setting.name)) {
            (_, None) => {}
            (Kind::Table(section), Some(value)) => collect(&name, value, section(), found),
            (Kind::List(Kind::Table(section)), Some(Value::Array(each))) => {
                for (number, value) in each.into_iter().enumerate() {
                    collect(&format!("{name}[{number}]"), value, section(), found);
                }
            }
            (_, Some(value)) => {
                found.insert(name, value);
            }
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_before_the_environment_and_that_before_the_usual_file() {
        let of = |option: Option<&str>, variable: Option<&str>| {
            Wanted::of(option.map(Path::new), variable.map(OsStr::new))
        };
        let named = |path: &str| Wanted::Named(PathBuf::from(path));
        assert_eq!(of(None, None), Wanted::Usual(PathBuf::from(USUAL_FILE)));
        assert_eq!(of(None, Some("")), Wanted::Usual(PathBuf::from(USUAL_FILE)));
        assert_eq!(of(None, Some("a.toml")), named("a.toml"));
        assert_eq!(of(Some("b.toml"), Some("a.toml")), named("b.toml"));
        assert_eq!(of(Some("none"), Some("a.toml")), Wanted::Nothing);
        assert_eq!(of(None, Some("none")), Wanted::Nothing);
        assert_eq!(of(Some("./none"), None), named("./none"));
    }

    #[test]
    fn the_usual_file_may_be_missing_and_a_named_one_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numaherd.toml");
        let usual = Effective::read(&Wanted::Usual(path.clone())).unwrap();
        assert_eq!(usual, Effective::default());
        let named = Effective::read(&Wanted::Named(path.clone())).unwrap_err();
        assert!(
            named
                .to_string()
                .starts_with("the configuration: cannot read ")
        );
        // A folder is no file, wherever it is.
        std::fs::create_dir(&path).unwrap();
        let folder = Effective::read(&Wanted::Usual(path)).unwrap_err();
        assert!(folder.to_string().ends_with("--config none"), "{folder}");
    }

    #[test]
    fn every_value_that_can_be_set_has_a_key_that_is_documented() {
        let text = "policy = \"linux\"\n[selection]\nuser = \"root\"\n[herd]\nseed = 1\n\
                    [[group]]\nname = \"a\"\npids = [1]\npolicy = \"none\"\n\
                    [policies.penalty]\nprograms = { mcf = 1.5 }\n";
        let (config, _) = Config::parse(text, "f").unwrap();
        let values = values(&config);
        for key in values.keys() {
            assert!(keys::find(key).is_some(), "{key}");
        }
        assert_eq!(values["group[0].pids"], serde_json::json!([1]));
        assert_eq!(
            values["policies.penalty.programs"],
            serde_json::json!({"mcf": 1.5})
        );
        assert_eq!(values["herd.limits.worse.undo"], true);
    }
}
