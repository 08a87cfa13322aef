//! Lost cores are recorded with what was seen, whatever the policy, and summed up.

use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::{Ledger, Writer};
use numaherd_herd::{Herd, Record, Summary};
use numaherd_policy::groups::Policies;
use numaherd_policy::losses::{Estimate, Losses, Unknown};
use numaherd_policy::{Needs, Place, Policy, Random, registry};
use numaherd_topology::Topology;
use numaherd_world::{Placement, Snapshot};
use tempfile::TempDir;

use crate::fake::{Fake, MIB, machine, policy, thread};

static GO: AtomicBool = AtomicBool::new(false);

/// Two threads that are at rest from the third interval to the fifth, of eight.
fn world() -> Fake {
    let topology = machine(2, 4);
    let threads = (1..=2).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads).scripted(|interval, world| {
        let share = if (2..5).contains(&interval) { 0.0 } else { 1.0 };
        for thread in &mut world.threads {
            thread.cpu_share = share;
        }
    });
    world.ends_after = 8;
    world
}

fn linux() -> Policy {
    registry::build("linux", &numaherd_policy::Settings::default()).unwrap()
}

/// What is recorded under a policy, and the summary.
fn recorded(policy: impl Into<Policies>) -> (Vec<Record>, Summary) {
    let mut world = world();
    let mut records = Vec::new();
    let summary = Herd::new(&mut world, policy)
        .with_losses()
        .watched(|line| records.push(line.record.clone()))
        .run(&GO)
        .unwrap();
    (records, summary)
}

fn losses(records: &[Record]) -> Vec<&Losses> {
    let losses = records.iter().filter_map(|record| match record {
        Record::Losses(losses) => Some(losses),
        _ => None,
    });
    losses.collect()
}

#[test]
fn losses_follow_the_snapshot_that_they_are_of_and_rest_is_recorded_once() {
    let (records, summary) = recorded(linux());
    let kinds = records.iter().filter_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot.sequence.to_string()),
        Record::Losses(losses) if losses.estimate == Estimate::Idle => Some("idle".to_owned()),
        Record::Losses(_) => Some("lost".to_owned()),
        _ => None,
    });
    let kinds = kinds.collect::<Vec<_>>().join(" ");
    assert_eq!(kinds, "0 lost 1 lost 2 idle 3 4 5 lost 6 lost 7 lost");
    // Half a second, and four of one.
    let seconds: f64 = summary.totals.lost.values().map(|sums| sums.seconds).sum();
    assert_eq!(seconds, 4.5);
}

#[test]
fn a_ledger_has_them_as_they_were_found() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run.ledger");
    let writer = Writer::create(&path, "numaherd test", None, 100 * MIB).unwrap();
    let mut records = Vec::new();
    let mut world = world();
    Herd::new(&mut world, linux())
        .ledger(writer)
        .with_losses()
        .watched(|line| records.push(line.record.clone()))
        .run(&GO)
        .unwrap();
    let ledger = Ledger::read(&path).unwrap();
    let read: Vec<Record> = ledger.lines.into_iter().map(|line| line.record).collect();
    assert_eq!(losses(&read), losses(&records));
}

#[test]
fn who_does_not_ask_for_them_has_none() {
    let mut world = world();
    let mut records = Vec::new();
    let herd = Herd::new(&mut world, linux());
    let summary = herd
        .watched(|line| records.push(line.record.clone()))
        .run(&GO)
        .unwrap();
    assert!(losses(&records).is_empty());
    assert!(summary.totals.lost.is_empty());
}

/// Moves nothing, and says that so much of a CPU is judged.
struct Estimating(Estimate);

impl Place for Estimating {
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    fn place(&mut self, _: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        Vec::new()
    }

    fn losses(&mut self) -> Option<Losses> {
        Some(Losses {
            cpus: 8,
            judged: 1234.0,
            estimate: self.0,
            processes: None,
            withheld: None,
        })
    }
}

fn estimating(estimate: Estimate) -> Policy {
    Policy {
        placement: Box::new(Estimating(estimate)),
        ..policy(|_| Vec::new())
    }
}

#[test]
fn what_the_policy_itself_estimates_is_recorded_unless_it_judges_few() {
    let judged = |estimate| {
        let (records, _) = recorded(estimating(estimate));
        losses(&records)[0].judged
    };
    assert_eq!(judged(Estimate::Unknown(Unknown::NotSeen)), 1234.0);
    assert_eq!(judged(Estimate::Unknown(Unknown::FewJudged)), 2.0);
}
