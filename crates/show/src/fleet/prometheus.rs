//! A fleet as a Prometheus server knows it: the queries, and what the answers say.
//!
//! Each query returns a bounded number of series for each host ([`Query::most_of_host`]), or in all
//! ([`MOST_GROUPS`]), so that a thousand hosts answer in some hundred KiB. Form of an answer: Prometheus' HTTP API,
//! `/api/v1/query`, an instant vector. A host is an `instance`; one that lacks a metric is shown without that figure.
//!
//! Properties: no answer makes [`answer`] panic, and no figure is made up: values that are not finite are left out.

use std::collections::BTreeMap;

use numaherd_policy::losses::{Basis, Parts, Range, Unknown};
use serde::Deserialize;

use super::{Fleet, Help, Host, Loser, Note};
use crate::losses::basis_word;
use crate::words::cut;

/// Most groups that are asked for.
pub const MOST_GROUPS: usize = 100;

/// Most series of an answer that are taken.
const MOST_SERIES: usize = 200_000;

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// The policy of each host: which hosts there are.
    Policy,
    /// Its CPUs.
    Cpus,
    /// Whether it is a dry run.
    DryRun,
    /// Whether it is paused.
    Paused,
    /// What lost cores are estimated from, and whether they are known.
    Basis,
    /// Cores lost.
    Lost,
    /// Of the lost cores, those that another placement would give back.
    Recoverable,
    /// What they are lost to.
    Parts,
    /// The groups that lose most.
    Groups,
    /// The groups that lose most, by host.
    GroupsOfHosts,
}

impl Query {
    /// All queries, in the order in which they are asked.
    pub const ALL: [Self; 10] = [
        Self::Policy,
        Self::Cpus,
        Self::DryRun,
        Self::Paused,
        Self::Basis,
        Self::Lost,
        Self::Recoverable,
        Self::Parts,
        Self::Groups,
        Self::GroupsOfHosts,
    ];

    /// The query's expression, over the last `over_s` seconds.
    pub fn expression(self, over_s: u64) -> String {
        let mean = |by: &str, metric: &str| {
            format!("avg by (instance, {by}) (avg_over_time({metric}[{over_s}s]))")
        };
        let groups = format!("rate(numaherd_group_lost_cpu_seconds_total[{over_s}s])");
        match self {
            Self::Policy => "max by (instance, policy) (numaherd_policy_info)".to_owned(),
            Self::Cpus => "sum by (instance) (numaherd_node_cpus)".to_owned(),
            Self::DryRun => "max by (instance) (numaherd_dry_run)".to_owned(),
            Self::Paused => "max by (instance) (numaherd_paused)".to_owned(),
            Self::Basis => "max by (instance, basis) (numaherd_lost_cores_basis_info)".to_owned(),
            Self::Lost => mean("estimate", "numaherd_lost_cores"),
            Self::Recoverable => mean("estimate", "numaherd_recoverable_cores"),
            Self::Parts => mean("cause", "numaherd_lost_cores_part"),
            Self::Groups => format!("topk({MOST_GROUPS}, sum by (group) ({groups}))"),
            Self::GroupsOfHosts => {
                format!("topk({MOST_GROUPS}, sum by (group, instance) ({groups}))")
            }
        }
    }

    /// Most series that it returns per host; `None` if it returns [`MOST_GROUPS`] in all.
    pub fn most_of_host(self) -> Option<usize> {
        match self {
            // After a recent change, the old series may still be there.
            Self::Policy | Self::Basis => Some(2),
            Self::Cpus | Self::DryRun | Self::Paused => Some(1),
            Self::Lost | Self::Recoverable => Some(3),
            Self::Parts => Some(4),
            Self::Groups | Self::GroupsOfHosts => None,
        }
    }
}

/// A series of an answer with its value now.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

/// The samples of an answer to an instant query; values that are not finite are left out.
///
/// # Errors
/// A phrase: the text is not an answer of Prometheus, or the answer reports an error.
pub fn answer(text: &[u8]) -> Result<Vec<Sample>, String> {
    let answer: Answer = serde_json::from_slice(text)
        .map_err(|error| format!("the answer is not that of a Prometheus: {error}"))?;
    if answer.status != "success" {
        return Err(match answer.error.as_str() {
            "" => format!("the answer has the status {:?}", cut(&answer.status)),
            error => format!("Prometheus says: {}", cut(error)),
        });
    }
    let data = answer.data.ok_or("the answer has no data")?;
    if data.kind != "vector" {
        return Err(format!(
            "the answer is a {:?}, not a vector",
            cut(&data.kind)
        ));
    }
    let series: Vec<Series> = serde_json::from_value(data.result)
        .map_err(|error| format!("the answer holds what is no series: {error}"))?;
    if series.len() > MOST_SERIES {
        return Err(format!(
            "the answer has {} series; at most {MOST_SERIES} are taken",
            series.len()
        ));
    }
    let sample = |series: Series| {
        let value = series.value.1.parse::<f64>().ok()?;
        let labels = series.metric;
        value.is_finite().then_some(Sample { labels, value })
    };
    Ok(series.into_iter().filter_map(sample).collect())
}

/// A host, filled in from one answer after the other.
#[derive(Default)]
struct Told {
    policy: String,
    cpus: f64,
    dry_run: bool,
    paused: bool,
    basis: Option<String>,
    lost: Ends,
    recoverable: Ends,
    parts: Option<Parts>,
}

/// A range whose figures come one by one.
#[derive(Default)]
struct Ends {
    least: Option<f64>,
    mean: Option<f64>,
    most: Option<f64>,
}

impl Ends {
    fn set(&mut self, estimate: &str, value: f64) {
        let value = Some(value.max(0.0));
        match estimate {
            "least" => self.least = value,
            "mean" => self.mean = value,
            "most" => self.most = value,
            _ => {}
        }
    }

    fn range(&self) -> Option<Range> {
        Some(Range {
            least: self.least?,
            mean: self.mean,
            most: self.most?,
        })
    }
}

/// Makes a fleet from these answers.
pub fn fleet(drawn_from: String, answers: &BTreeMap<Query, Vec<Sample>>) -> Fleet {
    let mut told: BTreeMap<&str, Told> = BTreeMap::new();
    for query in Query::ALL {
        for sample in answers.get(&query).into_iter().flatten() {
            if let Some(instance) = sample.labels.get("instance")
                && query != Query::GroupsOfHosts
            {
                take(told.entry(instance).or_default(), query, sample);
            }
        }
    }
    let mut notes = Vec::new();
    let hosts = told.iter().map(|(name, told)| {
        if told.policy.is_empty() {
            let what = "has no numaherd_policy_info: not all of its metrics are there".to_owned();
            notes.push(Note {
                name: cut(name).to_owned(),
                what,
            });
        }
        host(name, told)
    });
    let hosts: Vec<Host> = hosts.collect();
    Fleet::of(drawn_from, hosts, (groups(answers), Vec::new()), notes)
}

/// Sets what a sample says about a host.
fn take(host: &mut Told, query: Query, sample: &Sample) {
    let label = |name: &str| sample.labels.get(name).map_or("", String::as_str);
    let value = sample.value;
    match query {
        Query::Policy => cut(label("policy")).clone_into(&mut host.policy),
        Query::Cpus => host.cpus = value,
        Query::DryRun => host.dry_run = value > 0.0,
        Query::Paused => host.paused = value > 0.0,
        Query::Basis => host.basis = Some(label("basis").to_owned()),
        Query::Lost => host.lost.set(label("estimate"), value),
        Query::Recoverable => host.recoverable.set(label("estimate"), value),
        Query::Parts => {
            let parts = host.parts.get_or_insert_default();
            match label("cause") {
                "controllers" => parts.controllers = value,
                "remote" => parts.remote = value,
                "caches" => parts.caches = value,
                "cpus" => parts.cpus = value,
                _ => {}
            }
        }
        Query::Groups | Query::GroupsOfHosts => {}
    }
}

fn host(name: &str, told: &Told) -> Host {
    let all = [Basis::Uncore, Basis::Counters, Basis::Residency];
    let is_told = |basis: &Basis| told.basis.as_deref() == Some(basis_word(*basis));
    let basis = all.into_iter().find(is_told);
    let mut host = Host {
        name: cut(name).to_owned(),
        cpus: told.cpus.clamp(0.0, 1e6) as usize,
        policy: told.policy.clone(),
        dry_run: told.dry_run,
        paused: told.paused,
        basis,
        lost: told.lost.range(),
        recoverable: told.recoverable.range(),
        parts: told.parts,
        help: Help::Nothing,
    };
    let unknown = (told.basis.as_deref() == Some("unknown")).then_some(Unknown::NotSeen);
    host.help = match told.basis {
        None if host.lost.is_none() => Help::NewerProgram,
        _ => Help::of(&host, unknown),
    };
    host
}

/// The groups that lose most, each with the host on which it loses most, if the answers have it.
fn groups(answers: &BTreeMap<Query, Vec<Sample>>) -> Vec<Loser> {
    let samples = |query| answers.get(&query).into_iter().flatten();
    let mut worst: BTreeMap<&str, (&str, f64)> = BTreeMap::new();
    for sample in samples(Query::GroupsOfHosts) {
        let labels = &sample.labels;
        if let (Some(group), Some(instance)) = (labels.get("group"), labels.get("instance")) {
            let most = worst.entry(group).or_insert((instance, sample.value));
            if sample.value > most.1 {
                *most = (instance, sample.value);
            }
        }
    }
    let groups = samples(Query::Groups).filter(|sample| sample.value > 0.0);
    let loser = |sample: &Sample| {
        let name = sample.labels.get("group")?;
        let worst = worst.get(name.as_str());
        Some(Loser {
            name: cut(name).to_owned(),
            lost: sample.value,
            hosts: None,
            worst: worst.map(|(host, lost)| (cut(host).to_owned(), *lost)),
        })
    };
    groups.filter_map(loser).collect()
}
