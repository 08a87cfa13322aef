//! Groups of processes: limits of their own, and a policy of their own in the one loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_herd::governor::{Guard, ThreadGovernor};
use numaherd_herd::{AffinityScope, GroupLimits, Herd, Limits, Record, Settings};
use numaherd_policy::Policy;
use numaherd_policy::groups::{Member, Policies};
use numaherd_world::{Placement, Snapshot, Unmanaged};

use crate::fake::{
    Fake, Quick, cpus, everyone_to, machine, place, plan_of, policy, snapshot, thread,
};
use crate::threads::carry_out;

static GO: AtomicBool = AtomicBool::new(false);

fn group(snapshot: &mut Snapshot, brisk: &[u32]) {
    for process in &mut snapshot.processes {
        let is_brisk = brisk.contains(&process.id.pid);
        process.group = is_brisk.then(|| Arc::from("brisk"));
    }
}

/// Moves the threads that it may place to a CPU.
fn its_own_to(to: u32) -> impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static {
    let mut told = everyone_to(to);
    move |snapshot| {
        let mut own = snapshot.clone();
        own.threads.retain(|thread| thread.unmanaged.is_none());
        told(&own)
    }
}

/// Three processes of a thread each on CPU 0, the second in the group `brisk`, which has no policy
/// from an interval on.
fn world(left_alone_from: u64) -> Fake {
    let topology = machine(2, 4);
    let threads = (1..=3).map(|n| thread(n, n, 0, &topology)).collect();
    let mut fake = Fake::new(topology, threads).scripted(move |interval, world| {
        if interval == left_alone_from {
            world.thread(2).unmanaged = Some(Unmanaged::other("group brisk: no policy"));
        }
    });
    fake.groups = BTreeMap::from([(2, Arc::from("brisk"))]);
    fake.ends_after = 20;
    fake
}

fn composed() -> Policies {
    let brisk = Policy {
        placement: Box::new(Quick(100, its_own_to(5))),
        ..policy(|_| Vec::new())
    };
    let member = Member {
        name: Arc::from("brisk"),
        policy: brisk,
        interval: None,
    };
    Policies::of_groups(policy(its_own_to(2)), None, vec![member]).unwrap()
}

#[test]
fn each_group_has_its_own_policy_cadence_and_stray_in_one_loop() {
    let mut world = world(u64::MAX);
    let found = world.masks();
    let settings = Settings {
        limits: Limits {
            thread_bounce_limit: None,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let mut used = None;
    let mut placed: BTreeMap<u32, (u64, String)> = BTreeMap::new();
    let summary = Herd::new(&mut world, composed())
        .settings(settings)
        .watched(|line| match &line.record {
            Record::Start(start) => used = Some(start.settings.clone()),
            Record::Placing(placing) => {
                for order in placing.affinities.iter().filter(|o| o.core.is_some()) {
                    let at = (line.time_ns / 1_000_000, order.cpus.to_string());
                    placed.insert(order.thread.tid, at);
                }
            }
            _ => {}
        })
        .run(&GO)
        .unwrap();
    let used = used.unwrap();
    assert_eq!(used.placement_interval_ms, Some(100), "the quickest");
    assert_eq!(used.limits.scope, Some(AffinityScope::Domain), "the rest's");
    assert_eq!(used.limits.thread_bounce_limit, Some(5));
    let of_group = GroupLimits {
        scope: Some(AffinityScope::Node),
        thread_bounce_limit: Some(50),
    };
    assert_eq!(used.limits.groups["brisk"], of_group);
    let at = |ms, cpus: &str| (ms, cpus.to_owned());
    assert_eq!(
        placed,
        BTreeMap::from([
            (1, at(500, "0-3")),
            (2, at(100, "4-7")),
            (3, at(500, "0-3"))
        ])
    );
    assert_eq!(summary.policy, "as-told; brisk: as-told");
    assert_eq!(world.masks(), found);
}

#[test]
fn threads_of_a_group_that_has_no_policy_any_more_are_given_back() {
    let mut world = world(8);
    let mut given_back = Vec::new();
    Herd::new(&mut world, composed())
        .watched(|line| {
            if let Record::Placing(placing) = &line.record {
                let back = placing.affinities.iter().filter(|o| o.core.is_none());
                given_back.extend(back.map(|order| (placing.snapshot, order.thread.tid)));
            }
        })
        .run(&GO)
        .unwrap();
    assert_eq!(given_back, [(8, 2), (19, 1), (19, 3)]);
}

/// What becomes of moves of both threads to and fro between the domains, one a second.
fn bounced(limits: &Limits) -> (Vec<Guard>, Vec<Guard>) {
    let topology = machine(2, 4);
    let mut threads = [thread(1, 1, 0, &topology), thread(2, 2, 0, &topology)];
    let mut governor = ThreadGovernor::new(limits, &topology);
    let mut refused = (Vec::new(), Vec::new());
    for second in 0..6u32 {
        let mut seen = snapshot(&topology, f64::from(second), &threads);
        group(&mut seen, &[2]);
        let to = if second % 2 == 0 { 4 } else { 0 };
        let plan: Vec<Placement> = threads.iter().map(|thread| place(thread, to)).collect();
        let governed = governor.govern(&seen, &plan_of(&plan));
        for refusal in &governed.refusals {
            let of = if refusal.thread.tid == 1 {
                &mut refused.0
            } else {
                &mut refused.1
            };
            of.push(refusal.guard);
        }
        carry_out(&mut governor, &seen, &governed, &mut threads);
    }
    refused
}

#[test]
fn a_groups_bounce_limit_and_stray_are_for_its_threads_only() {
    let of_group = GroupLimits {
        scope: Some(AffinityScope::Core),
        thread_bounce_limit: Some(3),
    };
    let limits = Limits {
        thread_bounce_limit: Some(5),
        groups: BTreeMap::from([("brisk".to_owned(), of_group)]),
        ..Limits::default()
    };
    let (rest, brisk) = bounced(&limits);
    assert_eq!(rest, [Guard::Bounce], "the sixth");
    let stays = [Guard::Bounce, Guard::Unchanged, Guard::Bounce];
    assert_eq!(brisk, stays, "from the fourth on");
    let topology = machine(2, 4);
    let threads = [thread(1, 1, 0, &topology), thread(2, 2, 0, &topology)];
    let mut seen = snapshot(&topology, 1.0, &threads);
    group(&mut seen, &[2]);
    let plan: Vec<Placement> = threads.iter().map(|thread| place(thread, 6)).collect();
    let governed = ThreadGovernor::new(&limits, &topology).govern(&seen, &plan_of(&plan));
    let masks: Vec<_> = governed.changes.iter().map(|c| &*c.order.cpus).collect();
    assert_eq!(masks, [&cpus("4-7"), &cpus("6")]);
}
