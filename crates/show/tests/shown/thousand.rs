//! A thousand machines: how many series their metrics are, and how many each query returns of them.
//!
//! Problem: a label too many is seen only once a fleet's Prometheus is full. Rule: the metrics of hosts of several
//! kinds, from recorded and made ledgers, are drawn once, and stand for a thousand hosts, each with its own
//! `instance` and its own pods. Every query of the dashboards, of the alerts and of `report --prometheus` is
//! evaluated on their label sets.
//!
//! What that checks: which series a query can return, at most. Values are not evaluated, so a comparison returns
//! whatever it is given, and `topk` as many as it may. A range is taken for a single point in time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use numaherd_herd::ledger::{Ledger, Reader};
use numaherd_herd::{Line, Record};
use numaherd_policy::losses::{Basis, Estimate, Observer, Parts, ProcessLost};
use numaherd_show::fleet::prometheus::{MOST_GROUPS as MOST_GROUPS_ASKED, Query};
use numaherd_show::metrics::{Kind, METRICS, Metric, Serving, View, text};
use numaherd_show::run::{LATENESS_BOUNDS_S, MOST_GROUPS, MOST_RULES, RunModel};

use crate::contributed::{ALERTS, DASHBOARDS, alerts, queries};
use crate::lost::{known, losing, range};
use crate::made::*;
use crate::openmetrics;
use crate::promql::{Expression, LabelSet};
use crate::runs;

/// Hosts of the fleet.
const HOSTS: usize = 1000;
/// Pods of a node, as many as a kubelet runs unless it is configured otherwise.
const PODS: u32 = 110;
/// Most series of a host, without its groups (pods), and of each of those.
const MOST_OF_HOST: usize = 200;
const MOST_OF_GROUP: usize = 5;
/// Most series that a panel of the dashboard of a fleet shows, and of that of one host.
const MOST_OF_PANEL: usize = 50;

/// A name that each host has as its own.
const INSTANCE: &str = "@instance";

/// The run that is recorded in the documents' example, with what today's program says that it loses.
fn recorded() -> RunModel {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/devils.jsonl");
    let ledger = Ledger::of(Reader::open(&path).unwrap());
    let (mut run, mut observer) = (RunModel::new(), Observer::default());
    for line in ledger.lines.into_iter().map(Arc::new) {
        if matches!(line.record, Record::End(_)) {
            continue;
        }
        run.take(&line);
        let Record::Snapshot(snapshot) = &line.record else {
            continue;
        };
        let topology = run.topology().unwrap().clone();
        if let Some(losses) = observer.look(snapshot, &topology, None) {
            run.take(&Arc::new(Line {
                sequence: line.sequence,
                time_ns: line.time_ns,
                record: Record::Losses(losses),
            }));
        }
    }
    run
}

/// A node of Kubernetes: a group for each of its pods, each of which loses a little and is moved.
fn pods() -> Made {
    let mut made = Made::new("adaptive");
    for _ in 0..2 {
        let threads = (1..=PODS).map(|pid| thread(pid, pid, "java", pid % 8, 1_000, 41.0, 0.5));
        let seen = (1..=PODS).map(|pid| {
            let mut process = process(pid, "java", &[(0, 20_000)]);
            process.group = Some(Arc::from(format!("@pods/pod-{pid}")));
            process
        });
        made.second(threads.collect(), seen.collect());
        let lost = (1..=PODS).map(|pid| ProcessLost {
            id: process_id(pid),
            lost: 0.01,
        });
        let mut losses = known(
            Basis::Uncore,
            range(0.5, 1.1, 2.0),
            Some(range(0.2, 0.5, 1.0)),
        );
        losses.processes = Some(lost.collect());
        if let Estimate::Known(known) = &mut losses.estimate {
            known.parts = Some(Parts {
                remote: 1.1,
                ..Parts::default()
            });
        }
        made.lost(losses);
        made.placed(vec![], vec![]);
    }
    made
}

/// The series of each kind of host.
fn kinds() -> Vec<Vec<LabelSet>> {
    let before_the_end = crate::status::before_the_end;
    let made = [
        losing(),
        runs::virtual_machine(),
        runs::refused_by_each_guard(),
        runs::pages_fail(),
        pods(),
    ];
    let runs = made.iter().map(before_the_end).chain([recorded()]);
    runs.map(|run| series(&run)).collect()
}

/// The series of a host, each with its name and `instance`.
fn series(run: &RunModel) -> Vec<LabelSet> {
    let serving = Serving::default();
    let text = text(View {
        run,
        serving: Some(&serving),
    });
    let samples = openmetrics::read(&text)
        .unwrap()
        .into_values()
        .flat_map(|family| family.samples);
    let ours = [("instance", INSTANCE), ("job", "numaherd")];
    let set = |sample: openmetrics::Sample| {
        let ours = ours.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let named = ("__name__".to_owned(), sample.name);
        sample
            .labels
            .into_iter()
            .chain(ours)
            .chain([named])
            .collect()
    };
    let up = ours.iter().chain(&[("__name__", "up")]);
    let up: LabelSet = up
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    samples.map(set).chain([up]).collect()
}

/// How many series an expression returns of the fleet: what it returns of each kind of host, with the names that each
/// host of that kind has as its own, and each once.
fn returned(expression: &Expression, kinds: &[Vec<LabelSet>]) -> usize {
    let mut all = BTreeSet::new();
    for (kind, series) in kinds.iter().enumerate() {
        for set in expression.of(series) {
            let shown = format!("{set:?}");
            let hosts = (kind..HOSTS).step_by(kinds.len());
            match shown.contains('@') {
                true => all.extend(hosts.map(|host| shown.replace('@', &format!("{host}-")))),
                false => drop(all.insert(shown)),
            }
        }
    }
    all.len().min(expression.most().unwrap_or(usize::MAX))
}

/// How often a metric can be there on one host with so many nodes, whatever it does; `None` where nothing bounds it.
fn most(metric: &Metric, nodes: usize) -> Option<usize> {
    let of_label = |label: &&str| {
        Some(match *label {
            "version" | "policy" | "machine" => 1,
            "asked" => 3,
            "result" | "left_alone" | "remote" => 2,
            "estimate" => 3,
            "basis" if metric.kind == Kind::Info => 1,
            "basis" => 3,
            "cause" => 4,
            "node" => nodes,
            "from" if metric.labels.contains(&"node") => 2,
            "from" => nodes + 1,
            "to" => nodes,
            "group" => MOST_GROUPS + 1,
            "rule" => MOST_RULES + 1,
            "guard" => numaherd_show::guards::ALL.len(),
            "reason" => 6,
            _ => return None,
        })
    };
    let labels: Option<usize> = metric.labels.iter().map(of_label).product();
    let bounds = LATENESS_BOUNDS_S.len() + 3;
    labels.map(|labels| {
        if metric.kind == Kind::Histogram {
            labels * bounds
        } else {
            labels
        }
    })
}

#[test]
fn the_metrics_of_a_host_are_few_whatever_it_does() {
    for (kind, series) in kinds().iter().enumerate() {
        let of_groups = series.iter().filter(|set| set.contains_key("group"));
        let groups: BTreeSet<&String> = of_groups.clone().map(|set| &set["group"]).collect();
        let (of_groups, all) = (of_groups.count(), series.len());
        assert!(
            all - of_groups <= MOST_OF_HOST,
            "kind {kind}: {all} series, {of_groups} of groups"
        );
        assert!(
            of_groups <= MOST_OF_GROUP * groups.len(),
            "kind {kind}: {of_groups} of {groups:?}"
        );
    }
    // The documents name these.
    let most = |nodes| {
        METRICS
            .iter()
            .map(|metric| most(metric, nodes).unwrap_or_else(|| panic!("{metric:?}")))
            .sum::<usize>()
    };
    assert!(
        (most(2), most(8)) <= (1_700, 1_900),
        "{} and {}",
        most(2),
        most(8)
    );
}

#[test]
fn a_thousand_hosts_are_few_series() {
    let kinds = kinds();
    let all: usize = (0..HOSTS).map(|host| kinds[host % kinds.len()].len()).sum();
    assert!(all <= 300_000, "{all} series");
}

#[test]
fn every_panel_shows_few_series_of_a_thousand_hosts() {
    let kinds = kinds();
    for file in DASHBOARDS {
        for (title, query) in queries(file) {
            let query = query
                .replace("$instance", INSTANCE)
                .replace("$__rate_interval", "1m");
            let expression =
                Expression::read(&query).unwrap_or_else(|error| panic!("{title}: {error}"));
            // A dashboard of one host asks for its instance: the same of every kind.
            let series = match query.contains(INSTANCE) {
                true => kinds
                    .iter()
                    .map(|series| expression.of(series).len())
                    .max()
                    .unwrap_or(0),
                false => returned(&expression, &kinds),
            };
            let most = match title.as_str() {
                "Groups" => PODS as usize,
                _ => MOST_OF_PANEL,
            };
            assert!(series <= most, "{file}: {title}: {series} series: {query}");
        }
    }
}

#[test]
fn an_alert_is_a_few_series_of_each_host() {
    let kinds = kinds();
    for (name, query) in alerts(ALERTS) {
        let expression = Expression::read(&query).unwrap_or_else(|error| panic!("{name}: {error}"));
        let series = returned(&expression, &kinds);
        assert!((1..=2 * HOSTS).contains(&series), "{name}: {series} series");
    }
}

#[test]
fn a_report_asks_for_a_few_series_of_each_host() {
    let kinds = kinds();
    let counts: BTreeMap<String, usize> = Query::ALL
        .into_iter()
        .map(|query| {
            let text = query.expression(3600);
            let series = returned(&Expression::read(&text).unwrap(), &kinds);
            let most = query
                .most_of_host()
                .map_or(MOST_GROUPS_ASKED, |most| most * HOSTS);
            assert!((1..=most).contains(&series), "{series} series: {text}");
            (text, series)
        })
        .collect();
    let all: usize = counts.values().sum();
    assert!(all <= 16 * HOSTS, "{counts:#?}");
}
