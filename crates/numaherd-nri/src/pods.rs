//! The picture of all pods of a machine, kept up to date by the runtime's events.
//!
//! Properties: any changes in any order give a picture; a list of everything replaces it; a container of an unknown pod
//! is kept until its pod is known or it is removed.

use std::collections::BTreeMap;

use nri::api;

use crate::cgroups;

/// The most pods, and the most containers, that are kept. No machine has more.
const MOST: usize = nri::MOST_LISTED;

/// A pod's class of quality of service in Kubernetes: how much it was promised, which decides who gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Exactly what it asks for.
    Guaranteed,
    /// At least what it asks for.
    Burstable,
    /// Nothing.
    BestEffort,
}

impl Qos {
    /// As Kubernetes spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class that the control group tells: kubelet keeps Burstable and BestEffort pods in groups of these names.
    fn of(cgroup: &str) -> Self {
        let named = |class: &str| cgroup.split(['/', '-', '.']).any(|part| part == class);
        match (named("besteffort"), named("burstable")) {
            (true, _) => Self::BestEffort,
            (false, true) => Self::Burstable,
            (false, false) => Self::Guaranteed,
        }
    }
}

/// A pod, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its class.
    pub qos: Qos,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotation [`crate::rules::ANNOTATION`].
    pub asks_for: Option<String>,
    /// The control group of its containers.
    pub cgroup: Option<String>,
}

/// A container, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// The identifier of its pod.
    pub pod: String,
    /// Its name within the pod.
    pub name: String,
    /// Its control group.
    pub cgroup: Option<String>,
    /// The CPUs that it was given, as a list; empty for all.
    pub cpus: String,
    /// How many CPUs it is promised, where that is a whole number.
    pub whole_cpus: Option<u64>,
}

/// What happens to pods and containers.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// These are all pods and containers, each with its identifier.
    All(Vec<(String, Pod)>, Vec<(String, Container)>),
    /// A pod has started.
    Pod(String, Pod),
    /// A pod is gone, with its containers.
    NoPod(String),
    /// A container exists, or has changed.
    Container(String, Container),
    /// A container has other CPUs.
    Resources(String, api::LinuxCpu),
    /// A container is gone.
    NoContainer(String),
}

/// All pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// By identifier.
    pub pods: BTreeMap<String, Pod>,
    /// By identifier.
    pub containers: BTreeMap<String, Container>,
}

impl Pods {
    /// Takes in what happened.
    pub fn take(&mut self, change: Change) {
        match change {
            Change::All(pods, containers) => {
                self.pods = pods.into_iter().collect();
                self.containers = containers.into_iter().collect();
            }
            Change::Pod(id, pod) => {
                if self.pods.len() < MOST {
                    self.pods.insert(id, pod);
                }
            }
            Change::NoPod(id) => {
                self.pods.remove(&id);
                self.containers.retain(|_, container| container.pod != id);
            }
            Change::Container(id, container) => {
                if self.containers.len() < MOST {
                    self.containers.insert(id, container);
                }
            }
            Change::Resources(id, cpu) => {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.set_cpu(&cpu);
                }
            }
            Change::NoContainer(id) => {
                self.containers.remove(&id);
            }
        }
    }
}

/// Converts a runtime's pod; returns its identifier and the pod.
pub fn pod(pod: api::PodSandbox) -> (String, Pod) {
    let linux = pod.linux.unwrap_or_default();
    let cgroup = cgroups::of_pod(&linux.cgroup_parent);
    let mut annotations = pod.annotations;
    let known = Pod {
        namespace: pod.namespace,
        name: pod.name,
        qos: Qos::of(&linux.cgroup_parent),
        labels: pod.labels,
        asks_for: annotations.remove(crate::rules::ANNOTATION),
        cgroup,
    };
    (pod.id, known)
}

/// Converts a runtime's container; returns its identifier and the container.
pub fn container(container: api::Container) -> (String, Container) {
    let linux = container.linux.unwrap_or_default();
    let mut known = Container {
        pod: container.pod_sandbox_id,
        name: container.name,
        cgroup: cgroups::of_container(&linux.cgroups_path),
        ..Container::default()
    };
    if let Some(cpu) = linux.resources.and_then(|resources| resources.cpu) {
        known.set_cpu(&cpu);
    }
    (container.id, known)
}

impl Container {
    /// Applies an update of the CPU resources; what the update leaves out stays.
    fn set_cpu(&mut self, cpu: &api::LinuxCpu) {
        if !cpu.cpus.is_empty() {
            self.cpus.clone_from(&cpu.cpus);
        }
        if cpu.shares.is_some() || cpu.quota.is_some() {
            self.whole_cpus = whole_cpus(cpu);
        }
    }
}

/// How many CPUs are promised, where that is a whole number. Kubernetes promises 1024 shares for a CPU. The quota is
/// not read: newer kubelets remove it from containers that have CPUs of their own.
fn whole_cpus(cpu: &api::LinuxCpu) -> Option<u64> {
    let shares = cpu.shares?;
    (shares >= 1024 && shares % 1024 == 0).then_some(shares / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_in_the_control_groups_name() {
        assert_eq!(Qos::of("/kubepods/besteffort/pod1"), Qos::BestEffort);
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        assert_eq!(Qos::of(slice), Qos::Burstable);
        assert_eq!(Qos::of("/kubepods/podburstable"), Qos::Guaranteed);
    }

    #[test]
    fn whole_cpus_are_multiples_of_1024_shares() {
        let whole = |shares| {
            whole_cpus(&api::LinuxCpu {
                shares,
                ..api::LinuxCpu::default()
            })
        };
        assert_eq!(whole(Some(2048)), Some(2));
        assert_eq!(
            [
                whole(Some(1536)),
                whole(Some(2)),
                whole(Some(0)),
                whole(None)
            ],
            [None; 4]
        );
    }

    #[test]
    fn an_update_that_says_nothing_of_cpus_changes_none() {
        let mut pods = Pods::default();
        let own = Container {
            cpus: "2-3".to_owned(),
            whole_cpus: Some(2),
            ..Container::default()
        };
        pods.take(Change::Container("c".to_owned(), own.clone()));
        pods.take(Change::Resources("c".to_owned(), api::LinuxCpu::default()));
        assert_eq!(pods.containers["c"], own);
        let cpu = api::LinuxCpu {
            cpus: "4-5".to_owned(),
            ..api::LinuxCpu::default()
        };
        pods.take(Change::Resources("c".to_owned(), cpu));
        assert_eq!(&*pods.containers["c"].cpus, "4-5");
    }

    #[test]
    fn with_a_pod_its_containers_go() {
        let mut pods = Pods::default();
        let of = |pod: &str| Container {
            pod: pod.to_owned(),
            ..Container::default()
        };
        pods.take(Change::Container("c".to_owned(), of("p")));
        pods.take(Change::Container("d".to_owned(), of("q")));
        pods.take(Change::NoPod("p".to_owned()));
        assert_eq!(pods.containers.keys().collect::<Vec<_>>(), ["d"]);
        pods.take(Change::All(Vec::new(), Vec::new()));
        assert_eq!(pods, Pods::default());
    }
}
