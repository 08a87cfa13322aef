//! Many machines at once: who loses most, what would help, and that whatever ledgers and a Prometheus say is shown as
//! text.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_policy::losses::{Basis, Estimate, Losses, Parts, ProcessLost, Range, Unknown};
use numaherd_show::fleet::prometheus::{self, Query, Sample, answer};
use numaherd_show::fleet::{
    Fleet, Gathering, Help, HostRead, MOST_NAMES, OTHERS, Reading, page, text,
};
use proptest::prelude::*;
use serde_json::json;

use crate::lost::{known, of, range};
use crate::made::*;
use crate::reported::page::Page;

/// A host that is herded like this and loses the same in each of two seconds; of its mean a process each its share,
/// under these groups and names.
fn host(name: &str, made: Made, losses: &Losses, processes: &[(&str, &str, f64)]) -> HostRead {
    let mut made = made;
    for _ in 0..2 {
        let numbered = || (1_u32..).zip(processes);
        let threads =
            numbered().map(|(pid, (_, name, _))| thread(pid, pid, name, 1, 1_000, 41.0, 0.5));
        let seen = numbered().map(|(pid, (group, name, _))| {
            let mut process = process(pid, name, &[(0, 20_000)]);
            process.group = (!group.is_empty()).then(|| Arc::from(*group));
            process
        });
        made.second(threads.collect(), seen.collect());
        let lost = numbered().map(|(pid, (_, _, lost))| ProcessLost {
            id: process_id(pid),
            lost: *lost,
        });
        made.lost(Losses {
            processes: Some(lost.collect()),
            ..losses.clone()
        });
        made.placed(vec![], vec![]);
    }
    let mut reading = Reading::new(name, &made.ledger().header);
    made.shared().for_each(|line| reading.line(&line));
    reading.finish(None)
}

/// So much is lost of 64 CPUs, so much of which is recoverable, most of it to remote memory.
fn losing(lost: f64, had: f64) -> Losses {
    let of = |cores: f64| range(cores / 2.0, cores, cores * 2.0);
    let mut losses = known(Basis::Uncore, of(lost), Some(of(had)));
    if let Estimate::Known(known) = &mut losses.estimate {
        known.parts = Some(Parts {
            remote: 0.75 * lost,
            caches: 0.25 * lost,
            ..Parts::default()
        });
    }
    losses
}

/// Hosts of every kind.
fn fleet() -> Fleet {
    let mut gathering = Gathering::default();
    let linux = || Made::new("linux");
    let cart = [("shop/cart", "java", 1.5), ("shop/search", "java", 0.5)];
    gathering.host(host("n1", linux(), &losing(2.0, 1.0), &cart));
    gathering.host(host(
        "n2",
        linux(),
        &losing(4.0, 3.0),
        &[("shop/cart", "java", 3.5), ("", "sshd", 0.5)],
    ));
    gathering.host(host(
        "n3",
        Made::new("dino"),
        &losing(1.0, 0.5),
        &[("", "mcf", 1.0)],
    ));
    gathering.host(host(
        "n4",
        Made::in_dry_run("dino"),
        &losing(1.5, 0.5),
        &[("", "mcf", 1.5)],
    ));
    gathering.host(host("n5", linux(), &losing(1.2, 0.0), &[]));
    let bound = Range {
        mean: None,
        ..range(0.0, 0.0, 2.5)
    };
    gathering.host(host(
        "n6",
        linux(),
        &known(Basis::Residency, bound, None),
        &[],
    ));
    gathering.host(host(
        "n7",
        linux(),
        &of(Estimate::Unknown(Unknown::NotSeen)),
        &[],
    ));
    gathering.host(host("n8", linux(), &of(Estimate::Idle), &[]));
    let mut damaged = host("n9", linux(), &losing(0.01, 0.0), &[]);
    damaged.damage = Some("line 12 (byte 3456): its sum is wrong".to_owned());
    gathering.host(damaged);
    gathering.note(
        "n10",
        "not read: it was written by a later program".to_owned(),
    );
    gathering.finish("their ledgers".to_owned())
}

#[test]
fn who_loses_most_and_what_would_help() {
    insta::assert_snapshot!(text(&fleet()));
}

#[test]
fn a_page_of_a_fleet_is_sound() {
    let page = Page::read(page(&fleet()));
    page.assert_sound();
    let text = page.text();
    for said in ["shop/cart", "n10", "What would help", "remote memory 75 %"] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn hosts_and_groups_are_in_the_order_of_what_they_lose() {
    let fleet = fleet();
    let hosts: Vec<&str> = fleet.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(
        hosts,
        ["n2", "n1", "n4", "n5", "n3", "n9", "n6", "n7", "n8"]
    );
    let helps: Vec<Help> = fleet.hosts.iter().map(|host| host.help).collect();
    let (place, nothing) = (Help::Place, Help::Nothing);
    assert_eq!(
        helps,
        [
            place,
            place,
            Help::CarryOut,
            Help::LessLoad,
            Help::OtherPolicy,
            nothing,
            Help::Counters,
            Help::Counters,
            nothing
        ]
    );
    let cart = &fleet.groups[0];
    assert_eq!(
        (cart.name.as_str(), cart.lost, cart.hosts),
        ("shop/cart", 5.0, Some(2))
    );
    assert_eq!(cart.worst, Some(("n2".to_owned(), 3.5)));
    assert_eq!(fleet.programs[0].name, "java");
    assert!((fleet.all.lost.mean.unwrap() - 9.71).abs() < 1e-9);
    assert_eq!(
        (fleet.all.known, fleet.all.bounded, fleet.all.bound),
        (6, 1, 2.5)
    );
}

#[test]
fn names_beyond_the_most_are_counted_together() {
    let names: Vec<String> = (0..MOST_NAMES + 10)
        .map(|n| format!("pod-{n:04}"))
        .collect();
    let processes: Vec<(&str, &str, f64)> = names
        .iter()
        .map(|name| (name.as_str(), "a", 0.01))
        .collect();
    let read = host("n1", Made::new("linux"), &losing(4.0, 1.0), &processes);
    assert_eq!(read.groups.len(), MOST_NAMES + 1);
    let others = read.groups[OTHERS];
    assert!((others - 0.1).abs() < 1e-9, "{others}");
}

#[test]
fn a_ledger_that_ends_long_before_the_others_is_named() {
    let mut gathering = Gathering::default();
    for (name, day) in [("n1", 10_u64), ("n2", 13), ("n3", 13)] {
        let mut read = host(name, Made::new("linux"), &losing(2.0, 1.0), &[]);
        read.ends_unix_ms = Some(day * 24 * 3600 * 1000);
        gathering.host(read);
    }
    let fleet = gathering.finish("their ledgers".to_owned());
    let [note] = &fleet.notes[..] else {
        panic!("{:?}", fleet.notes);
    };
    assert_eq!(note.name, "n1");
    assert!(note.what.starts_with("old: its ledger ends"), "{note:?}");
}

#[test]
fn a_ledger_without_lost_cores_asks_for_a_newer_program() {
    let mut made = Made::new("linux");
    made.second(vec![], vec![]);
    let mut reading = Reading::new("n1", &made.ledger().header);
    made.shared().for_each(|line| reading.line(&line));
    assert_eq!(reading.finish(None).host.help, Help::NewerProgram);
}

/// What a Prometheus answers that has these series.
fn answered(series: &[(&[(&str, &str)], &str)]) -> Vec<Sample> {
    let result: Vec<_> = series
        .iter()
        .map(|(labels, value)| {
            let metric: BTreeMap<_, _> = labels.iter().copied().collect();
            json!({"metric": metric, "value": [1_700_000_000.25, value]})
        })
        .collect();
    let text = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
    answer(text.to_string().as_bytes()).unwrap()
}

#[test]
fn a_prometheus_tells_of_a_fleet_and_hosts_may_lack_metrics() {
    let host = |instance, label, value| [("instance", instance), (label, value)];
    let estimates =
        |instance| ["least", "mean", "most"].map(|estimate| host(instance, "estimate", estimate));
    let [least, mean, most] = estimates("n1:9741");
    let [_, _, bound] = estimates("n2:9741");
    let [low, _, _] = estimates("n2:9741");
    let answers = BTreeMap::from([
        (
            Query::Policy,
            answered(&[
                (&host("n1:9741", "policy", "linux"), "1"),
                (&host("n2:9741", "policy", "adaptive"), "1"),
                (&host("n3:9741", "policy", "linux"), "1"),
            ]),
        ),
        (
            Query::Cpus,
            answered(&[
                (&[("instance", "n1:9741")], "64"),
                (&[("instance", "n2:9741")], "NaN"),
            ]),
        ),
        (
            Query::Lost,
            answered(&[
                (&least, "1"),
                (&mean, "3"),
                (&most, "6"),
                (&low, "0"),
                (&bound, "2.5"),
                (&[], "1e9"),
            ]),
        ),
        (
            Query::Recoverable,
            answered(&[(&least, "1"), (&mean, "2"), (&most, "+Inf")]),
        ),
        (
            Query::Basis,
            answered(&[
                (&host("n1:9741", "basis", "uncore"), "1"),
                (&host("n2:9741", "basis", "residency"), "1"),
            ]),
        ),
        (
            Query::Parts,
            answered(&[(&host("n1:9741", "cause", "remote"), "3")]),
        ),
        (
            Query::Groups,
            answered(&[
                (&[("group", "shop/cart")], "1.25"),
                (&[("group", "idle")], "0"),
            ]),
        ),
        (
            Query::GroupsOfHosts,
            answered(&[(&host("n1:9741", "group", "shop/cart"), "1.25")]),
        ),
        (
            Query::Paused,
            answered(&[(&[("instance", "n4:9741")], "1")]),
        ),
    ]);
    let fleet = prometheus::fleet(
        "http://prometheus:9090 over the last 1 h".to_owned(),
        &answers,
    );
    insta::assert_snapshot!(text(&fleet));
    let helps: Vec<Help> = fleet.hosts.iter().map(|host| host.help).collect();
    // Of the first, the greatest that is recoverable is no number.
    assert_eq!(
        helps,
        [
            Help::Wait,
            Help::Counters,
            Help::NewerProgram,
            Help::NewerProgram
        ]
    );
}

#[test]
fn what_is_no_answer_is_refused_with_a_reason() {
    for (text, why) in [
        ("", "not that of a Prometheus"),
        ("<html>502</html>", "not that of a Prometheus"),
        (
            r#"{"status":"error","error":"query timed out"}"#,
            "Prometheus says: query timed out",
        ),
        (r#"{"status":"success"}"#, "has no data"),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
            "\"matrix\", not a vector",
        ),
        (
            r#"{"status":"success","data":{"resultType":"vector","result":{}}}"#,
            "no series",
        ),
        (
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,2]}]}}"#,
            "no series",
        ),
    ] {
        let refused = answer(text.as_bytes()).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

proptest! {
    /// Whatever it answers, there is an end, and what people see has no control characters.
    #[test]
    fn no_answer_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), name in ".*", value in ".*") {
        let _ = answer(&bytes);
        let labels = [("instance", name.as_str()), ("group", name.as_str()), ("policy", "linux")];
        let samples = answered(&[(&labels, &value), (&labels, "1e300")]);
        let answers: BTreeMap<Query, Vec<Sample>> =
            Query::ALL.into_iter().map(|query| (query, samples.clone())).collect();
        let fleet = prometheus::fleet(name, &answers);
        prop_assert!(!text(&fleet).contains(|c: char| c.is_control() && c != '\n'));
        Page::read(page(&fleet)).assert_sound();
    }
}
