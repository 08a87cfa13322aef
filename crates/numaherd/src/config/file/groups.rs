//! Groups of processes with a policy of their own, or with none: `[[group]]` of a configuration.
//!
//! A process belongs to the first group, in the order of the file, that it matches: each list that the group has
//! (command names, users, control groups, numbers) must name it. A process in no group is under the policy of all
//! others. So is a group without a policy or cadence of its own: it has only limits and figures of its own.

use numaherd_files::settings;
use numaherd_herd::AffinityScope;

/// What a group's policy is called when its processes are left alone.
pub const NO_POLICY: &str = "none";

/// The longest that an interval may be, in ms: a day.
const DAY_MS: f64 = 86_400_000.0;

settings! {
    /// Groups of processes with a policy of their own, or with none, each under a heading [[group]]. A process
    /// belongs to the first group in the file that it matches: it must match one entry of each list that the
    /// group has (`names`, `users`, `cgroups`, `pids`). Processes without a group use the policy at the top of
    /// the file.
    #[derive(Eq)]
    pub struct Group {
        /// The group's name, which must be unique.
        name: String;
        /// Processes with these command names, as in /proc/PID/comm (the kernel keeps 15 bytes); * matches any
        /// letters, ? matches one.
        names: Vec<String>;
        /// Processes of these users, by name or number.
        users: Vec<String>;
        /// Processes in these control groups or below them. The paths start from the root of the hierarchy, as in
        /// /proc/PID/cgroup.
        cgroups: Vec<String>;
        /// These processes.
        pids: Vec<u32>, unit: "process numbers", range: 1.0..=f64::MAX;
        /// The group's policy, as `policy` above. With "none", its processes are observed and never moved.
        policy: Option<String>, left_out: "the policy at the top of the file", example: "\"none\"";
        /// How often to place the group's threads.
        placement_interval_ms: Option<u64>, unit: "ms", range: 1.0..=DAY_MS, because: ", a day",
            left_out: "as often as its policy's source says, or else 1000", example: "1000";
        /// Affinity scope of the group's threads, as `herd.limits.scope`.
        scope (was "stray"): Option<AffinityScope>,
            left_out: "`herd.limits.scope`, or else as far as its policy's source says, or else \"domain\"",
            example: "\"node\"";
        /// The bounce limit for the group's threads, as `herd.limits.thread_bounce_limit`.
        thread_bounce_limit: Option<u32>, unit: "moves", range: 1.0..=f64::MAX,
            because: " (to let nothing move, use the policy \"none\")",
            left_out: "`herd.limits.thread_bounce_limit`, or else by how often its policy decides", example: "5";
    }
    where check = Group::check_members
}

impl Group {
    /// Whether its processes are left alone.
    pub fn left_alone(&self) -> bool {
        self.policy.as_deref() == Some(NO_POLICY)
    }

    /// Whether it has a policy, or a cadence, of its own; otherwise one policy herds it with all others.
    pub fn is_herded_apart(&self) -> bool {
        !self.left_alone() && (self.policy.is_some() || self.placement_interval_ms.is_some())
    }

    fn check_members(&self, wrong: &mut dyn FnMut(&str, String)) {
        if self.name.trim().is_empty() {
            wrong("", "needs a name: name = \"…\"".to_owned());
        }
        let members = [&self.names, &self.users, &self.cgroups];
        if members.iter().all(|all| all.is_empty()) && self.pids.is_empty() {
            let what = "names no process: give it names, users, cgroups or pids";
            wrong("", what.to_owned());
        }
        for (key, all) in [("names", &self.names), ("users", &self.users)] {
            if all.iter().any(|one| one.trim().is_empty()) {
                wrong(key, "has an empty one".to_owned());
            }
        }
        if let Some(path) = self.cgroups.iter().find(|path| !path.starts_with('/')) {
            let what = format!("the path of a control group begins with a slash, unlike {path:?}");
            wrong("cgroups", what);
        }
    }
}
