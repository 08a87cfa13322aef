//! Which policy a pod gets: the one that its annotation asks for, otherwise that of the first rule that fits the pod,
//! otherwise that of the herd.
//!
//! ```toml
//! allowed = ["none", "linux"]        # what pods may ask for
//!
//! [[rule]]
//! namespaces = ["batch", "ci-*"]
//! qos = ["BestEffort"]
//! policy = "linux"
//! ```

use std::collections::BTreeMap;

use numaherd_files::settings;
use numaherd_policy::{Settings, registry};

use crate::pods::{Pod, Qos};
use crate::shown;

/// The annotation by which a pod asks for a policy.
pub const ANNOTATION: &str = "numaherd.io/policy";

/// The policy that leaves a pod alone.
pub const NONE: &str = "none";

settings! {
    /// Which policies pods get.
    pub struct Rules {
        /// The policies that a pod's annotation may ask for. Without any, all that there are.
        allowed: Vec<String>;
        /// Policies for pods that ask for none.
        rule: Vec<Rule>;
    }
    where check = Rules::check_policies
}

settings! {
    /// A policy for pods that fit: of namespaces, names, classes and labels every kind that is given.
    pub struct Rule {
        /// Pods in these namespaces; * at the end stands for any letters.
        namespaces: Vec<String>;
        /// Pods of these names; * at the end stands for any letters.
        names: Vec<String>;
        /// Pods of these classes: Guaranteed, Burstable, BestEffort.
        qos: Vec<String>;
        /// Pods with all of these labels.
        labels: BTreeMap<String, String>;
        /// Their policy, or "none" to leave them alone.
        policy: String;
    }
}

impl Rules {
    fn check_policies(&self, wrong: &mut dyn FnMut(&str, String)) {
        let classes = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort].map(Qos::name);
        for (at, rule) in self.rule.iter().enumerate() {
            if let Some(why) = unknown(&rule.policy) {
                wrong(&format!("rule[{at}].policy"), why);
            }
            if let Some(class) = rule
                .qos
                .iter()
                .find(|class| !classes.contains(&class.as_str()))
            {
                let why = format!("{class:?} is no class; they are {}", classes.join(", "));
                wrong(&format!("rule[{at}].qos"), why);
            }
        }
        for why in self.allowed.iter().filter_map(|policy| unknown(policy)) {
            wrong("allowed", why);
        }
    }

    /// The policy of a pod, if it has one of its own; and what is wrong with its annotation.
    pub fn policy_of(&self, pod: &Pod) -> (Option<String>, Option<String>) {
        let by_rule = || {
            let rule = self.rule.iter().find(|rule| rule.fits(pod));
            rule.map(|rule| rule.policy.clone())
        };
        let Some(asked) = &pod.asks_for else {
            return (by_rule(), None);
        };
        let is_allowed = self.allowed.is_empty() || self.allowed.contains(asked);
        let why = match unknown(asked) {
            Some(why) => why,
            None if !is_allowed => {
                format!("the policy {asked} is none that pods may ask for here")
            }
            None => return (Some(asked.clone()), None),
        };
        let who = shown(&format!("{}/{}", pod.namespace, pod.name));
        let why = shown(&why);
        let told = format!("the pod {who} runs on without what its {ANNOTATION} asks for: {why}");
        (by_rule(), Some(told))
    }
}

impl Rule {
    fn fits(&self, pod: &Pod) -> bool {
        let one_of =
            |all: &[String], name: &str| all.is_empty() || all.iter().any(|a| like(a, name));
        one_of(&self.namespaces, &pod.namespace)
            && one_of(&self.names, &pod.name)
            && (self.qos.is_empty() || self.qos.iter().any(|class| class == pod.qos.name()))
            && (self.labels.iter()).all(|(key, value)| pod.labels.get(key) == Some(value))
    }
}

/// Whether a name matches a pattern; `*` at the pattern's end stands for any characters.
fn like(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// Why there is no such policy; `None` if there is one.
fn unknown(policy: &str) -> Option<String> {
    if policy == NONE {
        return None;
    }
    let built = registry::build(policy, &Settings::default());
    built.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, asks_for: Option<&str>) -> Pod {
        Pod {
            namespace: namespace.to_owned(),
            name: "web-0".to_owned(),
            qos: Qos::BestEffort,
            labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
            asks_for: asks_for.map(str::to_owned),
            cgroup: None,
        }
    }

    fn rules(text: &str) -> Rules {
        numaherd_files::setting::read(text, "nri.toml").unwrap().0
    }

    #[test]
    fn what_a_pod_asks_for_comes_before_the_first_rule_that_fits() {
        let rules = rules(
            "[[rule]]\nnamespaces = [\"ci-*\"]\nqos = [\"Burstable\"]\npolicy = \"random\"\n\
             [[rule]]\nnamespaces = [\"ci-*\"]\nlabels = { app = \"web\" }\npolicy = \"linux\"\n",
        );
        let of = |namespace, asks| rules.policy_of(&pod(namespace, asks)).0;
        assert_eq!(of("shop", None), None);
        assert_eq!(of("ci-1", None).as_deref(), Some("linux"));
        assert_eq!(of("ci-1", Some("none")).as_deref(), Some("none"));
    }

    #[test]
    fn a_policy_that_there_is_not_or_that_is_not_allowed_is_told_in_one_line() {
        let all = Rules::default();
        let (policy, told) = all.policy_of(&pod("shop", Some("adaptve\n")));
        assert_eq!(policy, None);
        let told = told.unwrap();
        assert!(told.starts_with("the pod shop/web-0 runs on without what its numaherd.io/policy"));
        assert!(!told.contains('\n') && told.len() < 1000, "{told}");
        let few = rules("allowed = [\"none\"]\n");
        let (policy, told) = few.policy_of(&pod("shop", Some("random")));
        assert_eq!(policy, None);
        assert!(
            told.unwrap()
                .ends_with("the policy random is none that pods may ask for here")
        );
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_place() {
        let told = |text: &str| {
            let read = numaherd_files::setting::read::<Rules>(text, "nri.toml");
            read.unwrap_err().to_string()
        };
        let policy = told("[[rule]]\npolicy = \"x\"\n");
        assert!(policy.starts_with("nri.toml:2: rule.policy: "), "{policy}");
        let class = told("[[rule]]\nqos = [\"best\"]\npolicy = \"none\"\n");
        assert!(class.contains("\"best\" is no class"), "{class}");
    }
}
