//! The groups of a picture of pods, and the file that the herd reads.
//!
//! A pod becomes the group `namespace/pod`, which holds the pod's control group. A pod without a policy of its own is
//! placed together with all others, but has metrics of its own.
//!
//! A container that has CPUs of its own becomes the group `namespace/pod/container` with the policy `none`, whatever
//! the pod asks for. This group comes before that of the pod. A container has CPUs of its own if
//!
//! * kubelet's static CPU manager gave them: its pod is Guaranteed, it is promised a whole number of CPUs, and was given
//!   exactly as many; or
//! * something else gave them: its CPUs are a proper subset of those that most other containers of the machine share.
//!   (The shared pool changes as kubelet gives CPUs away and takes them back, container by container.)
//!
//! Properties: equal pictures give equal files; names are unique; a file is what the herd's reader accepts.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_topology::CpuSet;
use serde::Serialize;

use crate::pods::{Container, Pod, Pods, Qos};
use crate::rules::{NONE, Rules};

/// The most characters of a group's name. In Kubernetes, a pod's name has at most 253 characters, and a namespace's
/// name 63.
const MOST_NAME: usize = 330;

const HEAD: &str =
    "# The pods of this node, by numaherd-nri, which writes this file again as they come and go.\n";

/// A group of the herd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its control groups.
    pub cgroups: BTreeSet<String>,
    /// Its policy, if it has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// The groups of a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// In the order in which the herd goes through them.
    pub groups: Vec<Group>,
    /// Messages for people, each to be said once.
    pub notes: BTreeSet<String>,
}

#[derive(Serialize)]
struct File<'g> {
    group: &'g [Group],
}

impl Groups {
    /// The groups of these pods.
    pub fn of(pods: &Pods, rules: &Rules) -> Self {
        let shared = shared(pods);
        let mut notes = BTreeSet::new();
        let (mut alone, mut whole) = (BTreeMap::new(), BTreeMap::new());
        for container in pods.containers.values() {
            let Some(pod) = pods.pods.get(&container.pod) else {
                continue;
            };
            if has_own_cpus(pod, container, &shared) {
                let name = name(&[&pod.namespace, &pod.name, &container.name]);
                add(
                    &mut alone,
                    name,
                    container.cgroup.clone(),
                    Some(NONE.to_owned()),
                );
            }
        }
        for (id, pod) in &pods.pods {
            let (policy, note) = rules.policy_of(pod);
            notes.extend(note);
            let of_pod = pods
                .containers
                .values()
                .filter(|container| container.pod == *id);
            let cgroups: Vec<String> = match &pod.cgroup {
                Some(cgroup) => vec![cgroup.clone()],
                None => of_pod
                    .filter_map(|container| container.cgroup.clone())
                    .collect(),
            };
            let name = name(&[&pod.namespace, &pod.name]);
            add(&mut whole, name, cgroups, policy);
        }
        let groups = alone.into_values().chain(whole.into_values()).collect();
        Self { groups, notes }
    }

    /// The same groups without policies; only `none` stays.
    pub fn without_policies(&self) -> Self {
        let mut same = self.clone();
        for group in &mut same.groups {
            group.policy = group.policy.take().filter(|policy| policy == NONE);
        }
        same
    }

    /// The text of the herd's file, in TOML.
    pub fn file(&self) -> String {
        let file = File {
            group: &self.groups,
        };
        // Writing texts and lists of texts cannot fail.
        let text = toml::to_string(&file).unwrap_or_default();
        match self.groups.is_empty() {
            true => HEAD.to_owned(),
            false => format!("{HEAD}\n{text}"),
        }
    }
}

/// Adds control groups to a group. Two pods of the same name, the older of which is about to go, are one group.
fn add(
    groups: &mut BTreeMap<String, Group>,
    name: String,
    cgroups: impl IntoIterator<Item = String>,
    policy: Option<String>,
) {
    let cgroups: BTreeSet<String> = cgroups.into_iter().collect();
    if cgroups.is_empty() {
        return;
    }
    let group = groups.entry(name.clone()).or_insert_with(|| Group {
        name,
        cgroups: BTreeSet::new(),
        policy: None,
    });
    group.cgroups.extend(cgroups);
    group.policy = policy.or_else(|| group.policy.take());
}

/// Joins these parts to the name of a group.
fn name(parts: &[&str]) -> String {
    let harmless = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    parts
        .join("/")
        .chars()
        .take(MOST_NAME)
        .map(harmless)
        .collect()
}

/// The set of CPUs that most containers have; among equally frequent sets, the largest.
fn shared(pods: &Pods) -> CpuSet {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for container in pods.containers.values().filter(|c| !c.cpus.is_empty()) {
        let pod = pods.pods.get(&container.pod);
        if !pod.is_some_and(|pod| is_promised(pod, container)) {
            *counts.entry(&container.cpus).or_default() += 1;
        }
    }
    let sets = counts.into_iter().map(|(cpus, count)| (count, set(cpus)));
    let most = sets.max_by_key(|(count, cpus)| (*count, cpus.len()));
    most.map(|(_, cpus)| cpus).unwrap_or_default()
}

/// Parses a list of CPUs; the empty set if it is invalid.
fn set(cpus: &str) -> CpuSet {
    cpus.parse().unwrap_or_default()
}

/// Whether kubelet's static CPU manager gave the container its CPUs.
fn is_promised(pod: &Pod, container: &Container) -> bool {
    let count = set(&container.cpus).len() as u64;
    pod.qos == Qos::Guaranteed && count > 0 && container.whole_cpus == Some(count)
}

fn has_own_cpus(pod: &Pod, container: &Container, shared: &CpuSet) -> bool {
    let own = set(&container.cpus);
    let is_part = !own.is_empty() && own.is_subset(shared) && own.len() < shared.len();
    is_promised(pod, container) || is_part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::Change;
    use proptest::prelude::*;

    fn pod(name: &str, qos: Qos, asks_for: Option<&str>) -> Pod {
        Pod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            qos,
            labels: BTreeMap::new(),
            asks_for: asks_for.map(str::to_owned),
            cgroup: Some(format!("/kubepods/{name}")),
        }
    }

    fn container(pod: &str, name: &str, cpus: &str, whole_cpus: Option<u64>) -> Change {
        let id = format!("{pod}-{name}");
        let cgroup = Some(format!("/kubepods/{pod}/{name}"));
        let (pod, name, cpus) = (pod.to_owned(), name.to_owned(), cpus.to_owned());
        Change::Container(
            id,
            Container {
                pod,
                name,
                cgroup,
                cpus,
                whole_cpus,
            },
        )
    }

    fn picture(pods: &[(&str, Qos, Option<&str>)], containers: Vec<Change>) -> Pods {
        let mut all = Pods::default();
        for (name, qos, asks_for) in pods {
            all.take(Change::Pod((*name).to_owned(), pod(name, *qos, *asks_for)));
        }
        containers.into_iter().for_each(|change| all.take(change));
        all
    }

    /// The groups, each as its name and policy.
    fn groups(pods: &Pods) -> Vec<String> {
        let groups = Groups::of(pods, &Rules::default()).groups;
        let words = |group: Group| match group.policy {
            Some(policy) => format!("{}: {policy}", group.name),
            None => group.name,
        };
        groups.into_iter().map(words).collect()
    }

    #[test]
    fn each_pod_is_a_group_and_the_file_says_which() {
        let pods = picture(
            &[
                ("web", Qos::Burstable, None),
                ("db", Qos::BestEffort, Some("none")),
            ],
            vec![container("web", "app", "", None)],
        );
        let expected = format!(
            "{HEAD}\n[[group]]\nname = \"shop/db\"\ncgroups = [\"/kubepods/db\"]\npolicy = \"none\"\n\n\
             [[group]]\nname = \"shop/web\"\ncgroups = [\"/kubepods/web\"]\n"
        );
        assert_eq!(Groups::of(&pods, &Rules::default()).file(), expected);
    }

    #[test]
    fn what_the_static_cpu_manager_gave_is_left_alone_whatever_the_pod_asks_for() {
        let pods = picture(
            &[
                ("fast", Qos::Guaranteed, Some("adaptive")),
                ("web", Qos::Burstable, None),
            ],
            vec![
                container("fast", "app", "2-3", Some(2)),
                container("fast", "sidecar", "0-1,4-7", None),
                container("web", "app", "0-1,4-7", Some(2)),
            ],
        );
        let expected = ["shop/fast/app: none", "shop/fast: adaptive", "shop/web"];
        assert_eq!(groups(&pods), expected);
    }

    #[test]
    fn a_guaranteed_container_in_the_shared_pool_is_herded() {
        let of = |cpus, whole| {
            let containers = vec![container("fast", "app", cpus, whole)];
            groups(&picture(&[("fast", Qos::Guaranteed, None)], containers))
        };
        assert_eq!(of("", Some(2)), ["shop/fast"], "no static manager");
        assert_eq!(of("0-7", None), ["shop/fast"], "a part of a CPU");
        assert_eq!(
            of("0-7", Some(2)),
            ["shop/fast"],
            "more than it was promised"
        );
    }

    #[test]
    fn cpus_that_are_a_part_of_what_others_share_are_somebodys() {
        let pods = picture(
            &[("a", Qos::Burstable, None), ("b", Qos::BestEffort, None)],
            vec![
                container("a", "one", "0-5", None),
                container("a", "two", "0-5", None),
                container("b", "balloon", "4-5", None),
                container("b", "stale", "0-7", None),
            ],
        );
        assert_eq!(groups(&pods), ["shop/b/balloon: none", "shop/a", "shop/b"]);
    }

    #[test]
    fn two_pods_of_one_name_are_one_group_and_one_without_a_place_is_none() {
        let mut pods = picture(&[("old", Qos::Burstable, None)], Vec::new());
        let mut again = pod("old", Qos::Burstable, None);
        again.cgroup = Some("/kubepods/new".to_owned());
        pods.take(Change::Pod("new".to_owned(), again));
        let mut nowhere = pod("nowhere", Qos::Burstable, None);
        nowhere.cgroup = None;
        pods.take(Change::Pod("nowhere".to_owned(), nowhere));
        let groups = Groups::of(&pods, &Rules::default()).groups;
        let cgroups: Vec<&str> = groups[0].cgroups.iter().map(String::as_str).collect();
        assert_eq!(
            (groups.len(), cgroups),
            (1, vec!["/kubepods/new", "/kubepods/old"])
        );
    }

    proptest! {
        #[test]
        fn any_names_give_a_file_that_reads_back(names in proptest::collection::vec(("\\PC{0,9}|.{0,9}", "none|linux|x"), 0..6)) {
            let mut pods = Pods::default();
            for (at, (name, asks)) in names.iter().enumerate() {
                let mut pod = pod(name, Qos::Burstable, Some(asks));
                pod.cgroup = Some(format!("/p{at}"));
                pods.take(Change::Pod(at.to_string(), pod));
            }
            let groups = Groups::of(&pods, &Rules::default());
            let table: toml::Table = groups.file().parse().unwrap();
            let read = table.get("group").and_then(|all| all.as_array()).map_or(0, Vec::len);
            prop_assert_eq!(read, groups.groups.len());
            let unique: BTreeSet<_> = groups.groups.iter().map(|group| &group.name).collect();
            prop_assert_eq!(unique.len(), read);
        }
    }
}
