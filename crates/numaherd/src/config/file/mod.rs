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
//! A file that is wrong is refused as a whole, with everything that is wrong in it. What a key means, what
//! it may be and its default are defined beside what uses it ([`numaherd_files::settings!`]).

pub mod groups;
pub mod steering;

use std::collections::BTreeSet;
use std::path::PathBuf;

use numaherd_files::setting::{self, Read};
use numaherd_files::{FileError, settings};
use numaherd_policy::registry;

use groups::Group;

settings! {
    /// What runs, and where things are kept. These stand before any heading.
    pub struct Config {
        /// The policy: a name from `numaherd policies`, or a placement and a paging joined by a plus, such
        /// as "dino+whole-set".
        policy: Option<String>, left_out: "\"dino\"", example: "\"dino\"";
        /// A file of events to count with on this processor, tried before the built-in ones: see
        /// docs/events.md. A relative path is beside the configuration file.
        events: Option<PathBuf>, left_out: "the built-in events alone", example: "\"events.toml\"", restart: true;
        /// Record all that is observed, decided and done in this file, up to 1 GiB, of which the older half is
        /// then dropped: what `numaherd explain`, `report`, `top` and `replay` read.
        ledger: Option<PathBuf>, left_out: "nothing is recorded", example: "\"/var/lib/numaherd/ledger\"", restart: true;
        /// Where affinities are written down as they were found, before the first change: what `numaherd
        /// release` gives back after a crash. Keep it on a file system that a crash of the program survives
        /// and a reboot need not.
        journal: Option<PathBuf>,
            left_out: "/run/numaherd/journal, or $XDG_RUNTIME_DIR/numaherd/journal for other users than root",
            example: "\"/run/numaherd/journal\"", restart: true;
        /// Whose threads.
        selection: SelectionSettings;
        /// Cadence, and what the governor lets through.
        herd: numaherd_herd::Settings;
        /// What can be set about the policies.
        policies: numaherd_policy::Settings;
        /// Processes with a policy of their own.
        group: Vec<Group>;
    }
    where check = Config::check_policies
}

settings! {
    /// Whose threads are looked after: at most one of these. When none is given, all that may be steered:
    /// every process that is not the kernel's and whose user has not bound it.
    #[derive(Eq)]
    pub struct SelectionSettings {
        /// The processes of this control group and those below it, by its path from the root of the
        /// hierarchy, as /proc/PID/cgroup shows it.
        cgroup: Option<String>, left_out: "processes of any control group", example: "\"/machine.slice\"", restart: true;
        /// Processes of this command name, as /proc/PID/comm has it (the kernel keeps 15 bytes).
        name: Option<String>, left_out: "processes of any name", example: "\"postgres\"", restart: true;
        /// Processes of this user, by name or number.
        user: Option<String>, left_out: "processes of any user", example: "\"postgres\"", restart: true;
    }
    where check = SelectionSettings::check_kinds
}

impl SelectionSettings {
    fn check_kinds(&self, wrong: &mut dyn FnMut(&str, String)) {
        let kinds = [&self.cgroup, &self.name, &self.user];
        if kinds.iter().filter(|kind| kind.is_some()).count() > 1 {
            let what = "sets more than one of cgroup, name and user, but only one is allowed; use [[group]] for several \
                        kinds of processes";
            wrong("", what.to_owned());
        }
        if let Some(path) = self.cgroup.as_ref().filter(|path| !path.starts_with('/')) {
            let what = format!("the path of a control group begins with a slash, unlike {path:?}");
            wrong("cgroup", what);
        }
    }
}

/// What runs when nobody says otherwise.
pub const DEFAULT_POLICY: &str = "dino";

impl Config {
    /// The policy's name.
    pub fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or(DEFAULT_POLICY)
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// [`FileError::Wrong`] with all that is wrong with it, each with `file`, line and key.
    pub fn parse(text: &str, file: &str) -> Result<(Self, Read), FileError> {
        setting::read(text, file)
    }

    /// Looks for policies that there are not, and groups that cannot be herded together.
    fn check_policies(&self, wrong: &mut dyn FnMut(&str, String)) {
        // Settings that cannot be are found on their own.
        let settings = match setting::check(&self.policies) {
            Ok(()) => self.policies.clone(),
            Err(_) => numaherd_policy::Settings::default(),
        };
        let mut is_sound = true;
        if let Err(error) = registry::build(self.policy(), &settings) {
            is_sound = false;
            wrong("policy", error.to_string());
        }
        let mut names = BTreeSet::new();
        for (number, group) in self.group.iter().enumerate() {
            if !names.insert(&group.name) {
                is_sound = false;
                let what = format!("an earlier group is called {:?} as well", group.name);
                wrong(&format!("group[{number}].name"), what);
            }
            let Some(name) = group.policy.as_deref().filter(|_| !group.left_alone()) else {
                continue;
            };
            if let Err(error) = registry::build(name, &settings) {
                is_sound = false;
                let what = format!("{error}; or \"none\" to leave it alone");
                wrong(&format!("group[{number}].policy"), what);
            }
        }
        if is_sound && let Err(error) = steering::policy(self) {
            wrong("group", error.to_string());
        }
    }
}

#[cfg(test)]
mod tests;
