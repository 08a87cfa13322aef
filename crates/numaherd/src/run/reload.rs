//! Reads the configuration again while a herd runs, on SIGHUP or a request on the control socket, and changes the
//! policy on such a request.
//!
//! All changes go to the running herd ([`numaherd_herd::control`]) in one request, which takes effect as a whole or
//! not at all. A policy starts anew only if its name, one of its values or a group with a policy of its own has
//! changed. A wrong file changes nothing. A key that is read at the start only is named and keeps its value, so the
//! next reload names it again.
//!
//! The outcome goes to standard error, to systemd, and to the ledger.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use itertools::Itertools as _;
use numaherd_herd::{Change, Control, ControlError, Request};
use numaherd_host::{Confined, GroupRules};
use numaherd_policy::groups::Policies;
use serde::Serialize;

use super::selection::denied;
use super::{ROOT, groups, service};
use crate::cli::Run;
use crate::config::file::groups::Group;
use crate::config::file::steering;
use crate::config::keys::as_toml;
use crate::config::{Config, Effective, Values, values};
use crate::exit::{Exit, OrExit, ended};
use crate::lock;
use crate::print::say;

/// How long the herd may take to answer. It is woken, and answers after its current step.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a reload asks for something, for the ledger.
const READ_AGAIN: &str = "the configuration was read again";

/// The most differences that a reload shows; files of many groups have hundreds.
const MOST_SHOWN: usize = 20;

/// Why another policy is asked for, for the ledger.
const BY_NAME: &str = "asked for by name";

/// Reads the configuration of a run again. Clones are of the same run. It is made before the run and
/// handed to it ([`super::Attached`]); before the run has begun there is nothing to reload.
#[derive(Clone, Default)]
pub struct Reload {
    running: Arc<Mutex<Option<Running>>>,
}

/// A run whose configuration can be read again.
struct Running {
    options: Run,
    /// The configuration in effect.
    held: Effective,
    /// Whether it began as a dry run: it has no journal then, and must stay one.
    began_dry: bool,
    control: Control,
    groups: GroupRules,
    /// Why it may not change to a policy that uses memory, if it may not.
    lacks_memory: Option<Confined>,
    /// The policy that was asked for by name, if one was.
    asked_policy: Option<String>,
    /// Whether the latest reload changed nothing because something was wrong.
    in_trouble: bool,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Keys that have changed now.
    pub changed: Vec<Difference>,
    /// Keys whose changes take effect at the next start.
    pub needs_restart: Vec<Difference>,
}

/// A key whose value has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which key.
    pub key: String,
    /// Its value before, as TOML; `None` where it was left out.
    pub before: Option<String>,
    /// Its value now, as TOML.
    pub now: Option<String>,
}

impl Reload {
    /// Makes the run available for reloads.
    pub(super) fn begin(
        &self,
        options: &Run,
        held: Effective,
        control: Control,
        groups: GroupRules,
        lacks_memory: Option<Confined>,
    ) {
        let began_dry = held.config.herd.dry_run;
        *lock(&self.running) = Some(Running {
            options: options.clone(),
            held,
            began_dry,
            control,
            groups,
            lacks_memory,
            asked_policy: None,
            in_trouble: false,
        });
    }

    /// Reads the configuration again and applies it to the herd. `by` names the asker, for the ledger.
    ///
    /// # Errors
    /// The file is wrong or cannot be read, the herd refuses the changes, nothing runs yet, or the herd has ended.
    /// Nothing has changed then.
    pub fn now(&self, by: &str) -> Result<Reloaded> {
        let mut running = lock(&self.running);
        let Some(running) = &mut *running else {
            bail!("nothing runs yet whose configuration could be read again");
        };
        service::reloading();
        let came = running.reload(by);
        match &came {
            Ok(reloaded) => {
                let told = reloaded.to_string();
                say(&told);
                // A problem that is over is no longer shown.
                let over = std::mem::take(&mut running.in_trouble);
                service::ready(over.then_some(told.as_str()));
            }
            Err(error) => {
                let told = format!("the configuration stays as it was: {error:#}");
                say(&told);
                running.note(by, &told);
                running.in_trouble = true;
                service::ready(Some(&told));
            }
        }
        came
    }

    /// Gives the herd another policy until it ends, whatever the configuration says; groups with a policy of their
    /// own keep theirs. `by` names the asker, for the ledger. Returns the outcome as a sentence.
    ///
    /// # Errors
    /// The policy is unknown, the herd refuses it, nothing runs yet, or the herd has ended. Nothing has changed then.
    pub fn policy(&self, name: &str, by: &str) -> Result<String> {
        let mut running = lock(&self.running);
        let Some(running) = &mut *running else {
            bail!("no herd is running yet whose policy could be changed");
        };
        running.change_policy(name, by)
    }
}

impl Running {
    fn reload(&mut self, by: &str) -> Result<Reloaded> {
        let mut wanted = Effective::of(&self.options)?;
        let in_file = values(&wanted.config);
        keep_what_cannot_change(&mut wanted.config, &self.held.config, self.began_dry);
        if self.asked_policy.is_some() {
            wanted.config.policy.clone_from(&self.asked_policy);
        }
        let (before, now) = (values(&self.held.config), values(&wanted.config));
        let reloaded = Reloaded {
            file: wanted.file.clone(),
            changed: differences(&before, &now),
            needs_restart: differences(&now, &in_file),
        };
        if !reloaded.changed.is_empty() {
            self.ask(&wanted.config, by)?;
        }
        self.held = wanted;
        Ok(reloaded)
    }

    fn ask(&self, wanted: &Config, by: &str) -> Result<()> {
        let held = &self.held.config;
        let rules = groups::rules(Path::new(ROOT), &wanted.group)?;
        let policy = if policies_of(wanted) == policies_of(held) {
            None
        } else {
            Some(self.policy(wanted)?)
        };
        let settings = steering::settings(wanted);
        let change = Change {
            policy,
            settings: (settings != steering::settings(held)).then_some(settings),
            why: READ_AGAIN.to_owned(),
        };
        self.make(change, by)?;
        // Only now: a process of a group that the policy does not know yet would be left alone.
        self.groups.set(rules);
        Ok(())
    }

    fn change_policy(&mut self, name: &str, by: &str) -> Result<String> {
        let mut wanted = self.held.config.clone();
        wanted.policy = Some(name.to_owned());
        let policy = self.policy(&wanted)?;
        let told = format!("the policy is {} from now on", policy.name);
        let change = Change {
            policy: Some(policy),
            settings: None,
            why: BY_NAME.to_owned(),
        };
        let late = self.make(change, by)?;
        self.held.config = wanted;
        self.asked_policy = Some(name.to_owned());
        Ok(late.unwrap_or(told))
    }

    /// The policy of a configuration, if this run may use it.
    fn policy(&self, wanted: &Config) -> Result<Policies> {
        let policy = steering::policy(wanted).or_exit(Exit::Usage)?;
        match self.lacks_memory.filter(|_| policy.use_memory()) {
            Some(Confined { lacks, .. }) => {
                let what = format!("{} uses the memory of processes", policy.name);
                Err(denied(&what, lacks))
            }
            None => Ok(policy),
        }
    }

    /// Asks the herd for a change. Returns a message if the herd has not answered yet: it will make the change when
    /// its turn comes.
    fn make(&self, change: Change, by: &str) -> Result<Option<String>> {
        let request = Request::Change(Box::new(change));
        match self.control.named(by).ask(request, PATIENCE) {
            Ok(()) => Ok(None),
            Err(late @ ControlError::NoAnswer { .. }) => Ok(Some(late.to_string())),
            Err(error) => Err(ended(Exit::Usage, error)),
        }
    }

    /// Records the outcome of a reload that changes nothing in the ledger.
    fn note(&self, by: &str, told: &str) {
        let change = Change {
            policy: None,
            settings: None,
            why: told.to_owned(),
        };
        let request = Request::Change(Box::new(change));
        // A herd that has ended, or has too much to answer, gets no request; standard error says so.
        let _ = self.control.named(by).tell(request);
    }
}

/// Everything that a policy is built from: if it is the same, the policy keeps what it has learnt.
fn policies_of(config: &Config) -> impl PartialEq + use<> {
    let of_group = |group: &Group| {
        let policy = group.policy.clone();
        (group.name.clone(), policy, group.placement_interval_ms)
    };
    let groups: Vec<_> = steering::apart(config).map(of_group).collect();
    // The cadence of processes in no group matters only if there are groups.
    let interval = config
        .herd
        .placement_interval_ms
        .filter(|_| !groups.is_empty());
    let policy = config.policy().to_owned();
    (policy, config.policies.clone(), groups, interval)
}

/// Keeps the values that a running herd cannot change. The keys are those defined as read at the start only (a test
/// checks that); and a run that began as a dry run stays one: it has no journal.
fn keep_what_cannot_change(wanted: &mut Config, held: &Config, began_dry: bool) {
    wanted.events.clone_from(&held.events);
    wanted.ledger.clone_from(&held.ledger);
    wanted.ledger_mib = held.ledger_mib;
    wanted.journal.clone_from(&held.journal);
    wanted.selection.clone_from(&held.selection);
    wanted.damon = held.damon;
    wanted.herd.first_interval_ms = held.herd.first_interval_ms;
    wanted.herd.enforce = held.herd.enforce;
    wanted.herd.limits.take_over = held.herd.limits.take_over;
    wanted.herd.dry_run |= began_dry;
}

fn differences(before: &Values, now: &Values) -> Vec<Difference> {
    let keys = before.keys().merge(now.keys()).dedup();
    keys.filter(|key| before.get(*key) != now.get(*key))
        .map(|key| Difference {
            key: key.clone(),
            before: before.get(key).map(as_toml),
            now: now.get(key).map(as_toml),
        })
        .collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "left out".to_owned());
        let (now, before) = (word(&self.now), word(&self.before));
        write!(f, "{} is {now} (was {before})", self.key)
    }
}

/// One line: what has changed now, and what changes only at the next start.
impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{} was read again: ", file.display())?,
            None => f.write_str("there is no configuration file: ")?,
        }
        let list = |all: &[Difference]| {
            let shown = all.iter().take(MOST_SHOWN).format(", ");
            match all.len().saturating_sub(MOST_SHOWN) {
                0 => shown.to_string(),
                more => format!("{shown}, and {more} more"),
            }
        };
        match self.changed.as_slice() {
            [] => f.write_str("nothing changed")?,
            changed => write!(f, "{}", list(changed))?,
        }
        match self.needs_restart.as_slice() {
            [] => Ok(()),
            waiting => {
                let keys = waiting.iter().map(|one| &one.key).format(", ");
                write!(f, "; a restart is needed for {keys}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    /// A configuration in which every value differs from the default.
    fn other() -> Config {
        let text = crate::config::example::every_key_changed();
        let (config, _) = Config::parse(&text, "f").unwrap_or_else(|error| panic!("{error}"));
        config
    }

    #[test]
    fn what_is_read_at_the_start_only_is_what_a_reload_keeps() {
        let (held, wanted) = (Config::default(), other());
        let mut kept = wanted.clone();
        keep_what_cannot_change(&mut kept, &held, false);
        let (held, wanted, kept) = (values(&held), values(&wanted), values(&kept));
        let mut told = 0;
        let all = keys::keys().into_iter();
        for key in all.filter(|key| wanted.contains_key(&key.name)) {
            let (name, restart) = (&key.name, key.setting.restart);
            assert_ne!(held.get(name), wanted.get(name), "{name} is to be another");
            let expected = if restart { &held } else { &wanted };
            assert_eq!(kept.get(name), expected.get(name), "{name}");
            told += usize::from(restart);
        }
        assert!(told >= 6);
    }

    #[test]
    fn a_run_that_began_dry_stays_dry() {
        let mut dry = Config::default();
        dry.herd.dry_run = true;
        let mut wanted = Config::default();
        keep_what_cannot_change(&mut wanted, &dry, true);
        assert!(wanted.herd.dry_run);
        let mut wanted = Config::default();
        keep_what_cannot_change(&mut wanted, &dry, false);
        assert!(!wanted.herd.dry_run);
    }

    #[test]
    fn a_reload_is_told_in_one_line() {
        let difference = |key: &str, before: Option<&str>, now: Option<&str>| Difference {
            key: key.to_owned(),
            before: before.map(str::to_owned),
            now: now.map(str::to_owned),
        };
        let nothing = Reloaded::default();
        assert_eq!(
            nothing.to_string(),
            "there is no configuration file: nothing changed"
        );
        let some = Reloaded {
            file: Some(PathBuf::from("/etc/n.toml")),
            changed: vec![
                difference("policy", None, Some("\"n-mass\"")),
                difference("herd.limits.freeze_s", Some("60.0"), Some("5.0")),
            ],
            needs_restart: vec![difference("ledger", None, Some("\"/l\""))],
        };
        assert_eq!(
            some.to_string(),
            "/etc/n.toml was read again: policy is \"n-mass\" (was left out), herd.limits.freeze_s is \
             5.0 (was 60.0); a restart is needed for ledger"
        );
    }

    #[test]
    fn a_policy_goes_on_where_only_limits_or_members_of_groups_changed() {
        let parse = |text: &str| Config::parse(text, "f").unwrap_or_else(|e| panic!("{e}")).0;
        let group = "[[group]]\nname = \"a\"\nusers = [\"root\"]\npolicy = \"random\"\n";
        let same = |one: &str, other: &str| policies_of(&parse(one)) == policies_of(&parse(other));
        assert!(same(
            "",
            "[herd]\nplacement_interval_ms = 70\n[herd.limits]\nfreeze_s = 1\n"
        ));
        assert!(same(group, &group.replace("root", "0")));
        assert!(!same(group, &group.replace("random", "linux")));
        assert!(!same(
            group,
            &format!("[herd]\nplacement_interval_ms = 70\n{group}")
        ));
        assert!(!same("", group));
        assert!(same("", &group.replace("random", "none")));
        assert!(same(
            "",
            &group.replace("policy", "scope").replace("random", "core")
        ));
        assert!(!same("", "policy = \"linux\""));
        assert!(!same("", "[policies.paging]\nwindow_pages = 1"));
    }

    #[test]
    fn before_a_run_there_is_nothing_to_reload() {
        let error = Reload::default().now("test").unwrap_err();
        assert!(error.to_string().starts_with("nothing runs yet"));
    }
}
