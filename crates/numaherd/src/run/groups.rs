//! The configuration's groups as rules for the world: which processes belong to which group.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use numaherd_host::{GroupRule, Matches, user_number};

use crate::config::file::groups::Group;
use crate::exit::{Exit, ended};

/// The rules of these groups, in their order. Names of users are looked up below `root`.
///
/// # Errors
/// There is no such user.
pub fn rules(root: &Path, groups: &[Group]) -> Result<Vec<GroupRule>> {
    let rule = |group: &Group| {
        let user = |user: &String| {
            user_number(root, user).map_err(|error| {
                let message = format!("the group {:?}: {error}", group.name);
                ended(Exit::Usage, message)
            })
        };
        Ok(GroupRule {
            name: Arc::from(group.name.as_str()),
            steered: !group.left_alone(),
            matches: Matches {
                commands: group.names.clone(),
                users: group.users.iter().map(user).collect::<Result<_>>()?,
                cgroups: group.cgroups.clone(),
                pids: group.pids.clone(),
            },
        })
    };
    groups.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_rule_and_users_have_numbers() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let users = "root:x:0:0::/root:/bin/sh\npostgres:x:107:113::/var/lib:/bin/sh\n";
        std::fs::write(root.path().join("etc/passwd"), users).unwrap();
        let group = |users: &[&str], policy: Option<&str>| Group {
            name: "database".to_owned(),
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            cgroups: vec!["/system.slice".to_owned()],
            policy: policy.map(str::to_owned),
            ..Group::default()
        };
        let alone = rules(root.path(), &[group(&["postgres", "33"], Some("none"))]).unwrap();
        assert_eq!(&*alone[0].name, "database");
        assert!(!alone[0].steered);
        assert_eq!(alone[0].matches.users, [107, 33]);
        assert_eq!(alone[0].matches.cgroups, ["/system.slice"]);
        let steered = rules(root.path(), &[group(&[], None)]).unwrap();
        assert!(steered[0].steered);
        let unknown = rules(root.path(), &[group(&["nobody-of-that-name"], None)]).unwrap_err();
        assert!(
            unknown.to_string().starts_with("the group \"database\": "),
            "{unknown}"
        );
    }
}
