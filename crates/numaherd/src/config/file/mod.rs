//! The configuration file: what it may hold, and how it is read.
//!
//! ```toml
//! policy = "adaptive"        # or a placement and a paging joined: "dino+whole-set"
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
//! A wrong file is refused as a whole, with all its mistakes. The meaning, range and default of a key are defined
//! beside the code that uses it ([`numaherd_files::settings!`]).

pub mod groups;
pub mod steering;

use std::collections::BTreeSet;
use std::path::PathBuf;

use numaherd_files::setting::{self, Read};
use numaherd_files::{FileError, settings};
use numaherd_policy::registry;

use groups::Group;

settings! {
    /// The policy and the files. These keys come before any heading.
    pub struct Config {
        /// The policy: a name from `numaherd policies`, or a placement and a paging joined by a plus, such
        /// as "dino+whole-set".
        policy: Option<String>, left_out: "\"adaptive\"", example: "\"adaptive\"";
        /// Event definitions for this processor, which take precedence over the built-in ones: see
        /// docs/events.md. A relative path starts from the directory of the configuration file.
        events: Option<PathBuf>, left_out: "the built-in events alone", example: "\"events.toml\"", restart: true;
        /// Record everything that is observed, decided and done in this file, which `numaherd explain`, `report`,
        /// `top` and `replay` read. If its name ends with .zst, it is compressed.
        ledger: Option<PathBuf>, left_out: "nothing is recorded", example: "\"/var/lib/numaherd/ledger.zst\"", restart: true;
        /// Maximum size of the ledger on disk. When it is reached, the older half is deleted.
        ledger_mib: u64 = 256, unit: "MiB", range: 1.0..=1_048_576.0, because: ", 1 TiB", restart: true;
        /// Where to save the original affinities before the first change; `numaherd release` restores them
        /// after a crash. The file must survive a crash of the program, but not a reboot.
        journal: Option<PathBuf>,
            left_out: "/run/numaherd/journal, or $XDG_RUNTIME_DIR/numaherd/journal for other users than root",
            example: "\"/run/numaherd/journal\"", restart: true;
        /// A directory of files with further groups, which programs write that know what runs on the machine, such as
        /// `numaherd-nri`: each `*.toml` in it holds [[group]] and nothing else. They follow the groups of this file,
        /// in the order of the files' names. A relative path starts from the directory of the configuration file.
        groups_from: Option<PathBuf>, left_out: "there are no further groups", example: "\"/run/numaherd/groups.d\"";
        /// Have the kernel's DAMON move the pages that `tiered` sends to nodes without CPUs or brings back: of those that it
        /// sends away as unused, it leaves what is used meanwhile. It writes to /sys/kernel/mm/damon. Where DAMON cannot
        /// do that, or somebody else uses it, pages move by move_pages as always, and the run says so.
        damon: bool = false, restart: true;
        /// Which threads to herd.
        selection: SelectionSettings;
        /// Intervals and limits.
        herd: numaherd_herd::Settings;
        /// Settings of the policies.
        policies: numaherd_policy::Settings;
        /// Processes with a policy of their own.
        group: Vec<Group>;
    }
    where check = Config::check_policies
}

settings! {
    /// Which processes to herd: at most one of these. Without any, all that may be placed: every process that is
    /// not the kernel's and that no user has bound.
    #[derive(Eq)]
    pub struct SelectionSettings {
        /// The processes of this control group and those below it. The path starts from the root of the
        /// hierarchy, as in /proc/PID/cgroup.
        cgroup: Option<String>, left_out: "processes of any control group", example: "\"/machine.slice\"", restart: true;
        /// Processes with this command name, as in /proc/PID/comm (the kernel keeps 15 bytes).
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

/// The default policy.
pub const DEFAULT_POLICY: &str = "adaptive";

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

    /// Notes unknown policies, and groups that cannot be herded together.
    fn check_policies(&self, wrong: &mut dyn FnMut(&str, String)) {
        // Another check reports invalid settings.
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
