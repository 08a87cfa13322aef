//! Which group of the configuration a process belongs to.
//!
//! The first matching rule decides; a process without one belongs to the rest. What a rule matches can
//! change while a process runs (it executes another program, changes its user, is put into another
//! cgroup), so rules are checked again now and then. The rules themselves can be replaced while the
//! world runs ([`GroupRules`]).

use std::sync::Arc;

use numaherd_world::Unmanaged;

use crate::files::Root;
use crate::latest::Latest;
use crate::proc::cgroup;
use crate::users::of_process;

/// The kernel keeps so many bytes of a name.
const NAME_BYTES: usize = 15;

/// Which processes belong to a group. A group may have several rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRule {
    /// The group's name, as in snapshots.
    pub name: Arc<str>,
    /// Whether its threads are steered; a group without a policy is left alone.
    pub steered: bool,
    /// Which processes.
    pub matches: Matches,
}

/// What a rule matches: every kind that is given (not empty) must match, by any of its values. A rule
/// without any kind matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Names of commands as the kernel has them (15 bytes); `*` stands for any characters, `?` for one.
    pub commands: Vec<String>,
    /// User ids; see [`crate::user_number`].
    pub users: Vec<u32>,
    /// Cgroups with all below, by their paths from the root of the hierarchy.
    pub cgroups: Vec<String>,
    /// Process ids.
    pub pids: Vec<u32>,
}

/// The rules of a world, which can be replaced while it runs. Clones are of the same world.
#[derive(Clone, Debug)]
pub struct GroupRules(Latest<Vec<GroupRule>>);

/// The group of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belongs {
    pub(crate) name: Arc<str>,
    steered: bool,
}

impl GroupRules {
    pub(crate) fn new(rules: &[GroupRule]) -> Self {
        Self(Latest::new(rules.to_vec()))
    }

    /// Replaces the rules; the next look at the machine uses them.
    pub fn set(&self, rules: Vec<GroupRule>) {
        self.0.set(rules);
    }

    pub(crate) fn now(&self) -> Arc<Vec<GroupRule>> {
        self.0.now()
    }
}

impl Belongs {
    /// Why its threads are left alone, if they are.
    pub(crate) fn unmanaged(&self) -> Option<Unmanaged> {
        (!self.steered).then(|| Unmanaged::Group {
            name: self.name.clone(),
        })
    }
}

/// The group of a process with this id and name. What cannot be read does not match.
pub(crate) fn group_of(rules: &[GroupRule], root: &Root, pid: u32, name: &str) -> Option<Belongs> {
    // Read once, and only if a rule asks.
    let mut user = None;
    let mut cgroups = None;
    let matching = rules.iter().find(|rule| {
        let Matches {
            commands,
            users,
            cgroups: paths,
            pids,
        } = &rule.matches;
        let any = !(commands.is_empty() && users.is_empty() && paths.is_empty() && pids.is_empty());
        any && (pids.is_empty() || pids.contains(&pid))
            && (commands.is_empty() || commands.iter().any(|c| is_named(c, name)))
            && (users.is_empty() || {
                let user = user.get_or_insert_with(|| of_process(root, pid));
                user.is_some_and(|user| users.contains(&user))
            })
            && (paths.is_empty() || {
                let cgroups = cgroups.get_or_insert_with(|| cgroups_of(root, pid));
                paths.iter().any(|path| cgroups.within(path))
            })
    })?;
    Some(Belongs {
        name: matching.name.clone(),
        steered: matching.steered,
    })
}

fn cgroups_of(root: &Root, pid: u32) -> cgroup::Cgroups {
    let text = root.read(&format!("proc/{pid}/cgroup"));
    text.map(|text| cgroup::parse(&text)).unwrap_or_default()
}

/// Whether a name is like a pattern. A name that the kernel may have cut is like one that begins so.
fn is_named(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to resume after the last star if the rest of the pattern does not fit.
    let mut again = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, n + 1));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((from, next)) = again else {
                    return false;
                };
                (p, n) = (from, next);
                again = Some((from, next + 1));
            }
        }
    }
    name.len() >= NAME_BYTES || pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_matched_as_people_write_them() {
        let is = |pattern, name| is_named(pattern, name);
        assert!(is("postgres", "postgres") && !is("postgres", "postgresql"));
        assert!(is("postgres*", "postgresql") && is("*sql*", "postgresql") && is("*", ""));
        assert!(is("mysql?", "mysqld") && !is("mysql?", "mysql"));
        assert!(is("a*b*c", "a-bb-b-c") && !is("a*b*c", "a-c-b"));
        assert!(
            is("systemd-journald-long", "systemd-journal"),
            "the kernel has cut it"
        );
        assert!(!is("systemd-networkd", "systemd-journal"));
        assert!(is("*-journald", "systemd-journal"));
    }

    /// The rule as documented, without regard to cut names.
    fn plain(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), Some((_, later))) => plain(rest, name) || plain(pattern, later),
            (Some((b'*', rest)), None) => plain(rest, name),
            (Some((p, rest)), Some((n, later))) => (*p == b'?' || p == n) && plain(rest, later),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn names_are_matched_by_the_rule(pattern in "[a-b*?]{0,12}", name in "[a-b]{0,14}") {
            let by_rule = plain(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(is_named(&pattern, &name), by_rule);
        }

        #[test]
        fn a_name_that_the_kernel_has_cut_is_like_all_that_the_whole_is(
            pattern in "[a-b*?]{0,4}[*][a-b*?]{0,8}",
            name in "[a-b]{15,24}",
        ) {
            if plain(pattern.as_bytes(), name.as_bytes()) {
                prop_assert!(is_named(&pattern, &name[..NAME_BYTES]), "{} {}", pattern, name);
            }
        }
    }
}
