//! What a configuration means for a herd: one policy, composed where there are groups, and its
//! settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::{GroupLimits, Settings};
use numaherd_policy::groups::{Member, Policies};
use numaherd_policy::{PolicyError, registry};

use super::Config;
use super::groups::Group;

/// The policy for all processes: the groups' and that of all others.
///
/// # Errors
/// A policy is unknown, or some of them cannot be combined.
pub fn policy(config: &Config) -> Result<Policies, PolicyError> {
    let rest = registry::build(config.policy(), &config.policies)?;
    if apart(config).next().is_none() {
        return Ok(rest.into());
    }
    let member = |group: &Group| {
        let name = group.policy.as_deref().unwrap_or(config.policy());
        Ok(Member {
            name: Arc::from(group.name.as_str()),
            policy: registry::build(name, &config.policies)?,
            interval: group.placement_interval_ms.map(Duration::from_millis),
        })
    };
    let members: Result<_, PolicyError> = apart(config).map(member).collect();
    let interval = config.herd.placement_interval_ms.map(Duration::from_millis);
    Policies::of_groups(rest, interval, members?)
}

/// The settings, with the groups' own limits.
pub fn settings(config: &Config) -> Settings {
    let mut settings = config.herd.clone();
    if apart(config).next().is_some() {
        // The loop runs at the quickest cadence of all; the composed policy knows it.
        settings.placement_interval_ms = None;
    }
    let limits = |group: &Group| {
        let own = GroupLimits {
            scope: group.scope,
            thread_bounce_limit: group.thread_bounce_limit,
        };
        (own != GroupLimits::default()).then(|| (group.name.clone(), own))
    };
    settings.limits.groups = config
        .group
        .iter()
        .filter_map(limits)
        .collect::<BTreeMap<_, _>>();
    settings
}

/// The groups that have a policy or a cadence of their own.
pub fn apart(config: &Config) -> impl Iterator<Item = &Group> {
    config.group.iter().filter(|group| group.is_herded_apart())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "f")
            .unwrap_or_else(|error| panic!("{error}"))
            .0
    }

    #[test]
    fn without_groups_it_is_the_policy_itself_and_the_settings_as_they_are() {
        let config = config("policy = \"n-mass\"\n[herd]\nplacement_interval_ms = 70\n");
        assert_eq!(policy(&config).unwrap().name, "n-mass");
        assert_eq!(settings(&config), config.herd);
    }

    #[test]
    fn groups_that_ask_for_nothing_or_to_be_left_alone_change_no_policy() {
        let config = config(
            "[herd]\nplacement_interval_ms = 70\n\
             [[group]]\nname = \"pod\"\nnames = [\"nginx\"]\nscope = \"core\"\n\
             [[group]]\nname = \"left\"\nnames = [\"cat\"]\npolicy = \"none\"\n",
        );
        let policy = policy(&config).unwrap();
        assert_eq!(policy.name, "adaptive");
        let settings = settings(&config).resolved(&policy.own());
        assert_eq!(settings.placement_interval_ms, Some(70));
        let limits = &settings.limits.groups["pod"];
        assert_eq!(limits.scope, Some(numaherd_herd::AffinityScope::Core));
    }

    #[test]
    fn groups_have_their_own_and_the_loop_goes_by_the_quickest() {
        let config = config(
            "policy = \"n-mass\"\n[herd]\nplacement_interval_ms = 70\n\
             [[group]]\nname = \"web\"\nnames = [\"nginx\"]\npolicy = \"none\"\n\
             [[group]]\nname = \"guests\"\ncgroups = [\"/machine.slice\"]\npolicy = \"brm\"\n\
             placement_interval_ms = 20\nscope = \"core\"\n\
             [[group]]\nname = \"paced\"\nusers = [\"me\"]\nplacement_interval_ms = 500\n",
        );
        let policy = policy(&config).unwrap();
        assert_eq!(policy.name, "n-mass; guests: brm; paced: n-mass");
        let settings = settings(&config).resolved(&policy.own());
        assert_eq!(settings.placement_interval_ms, Some(20));
        let scope = |group: &str| settings.limits.groups[group].scope;
        assert_eq!(scope("guests"), Some(numaherd_herd::AffinityScope::Core));
        assert_eq!(scope("paced"), Some(numaherd_herd::AffinityScope::Domain));
        assert!(!settings.limits.groups.contains_key("web"));
    }
}
