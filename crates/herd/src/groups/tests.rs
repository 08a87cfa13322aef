//! Groups: who sees what, and when; what cannot be together.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{
    AffinityScope, MemorySource, NewPages, PageOrder, PageOutcome, Pages, Placement, Sample,
    Signal, Snapshot, ThreadId, Unmanaged,
};
use proptest::prelude::*;
use rand::SeedableRng;

use super::{Pagings, Placements, halves};
use numaherd_policy::groups::{Member, Policies};
use numaherd_policy::{
    Needs, Own, Paging, PagingNeeds, Place, PlacedThread, Policy, PolicyError, Random, Settings,
    registry,
};
use numaherd_testing::Scene;

/// What a part was shown and told.
#[derive(Default)]
struct Heard {
    snapshots: Vec<Snapshot>,
    placed: Vec<Vec<ThreadId>>,
    samples: Vec<ThreadId>,
    outcomes: Vec<ThreadId>,
}

type Log = Arc<Mutex<Heard>>;

/// Wants every thread that it may steer on one core, and every page of theirs on one node.
struct Scripted {
    to: u32,
    interval: Option<Duration>,
    needs: Vec<Signal>,
    log: Log,
}

impl Place for Scripted {
    fn needs(&self) -> Needs<'_> {
        Needs {
            own: Own {
                interval: self.interval,
                scope: Some(AffinityScope::Core),
            },
            ..Needs::of(&[Signal::MissRate])
        }
    }

    fn place(&mut self, snapshot: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        self.log.lock().unwrap().snapshots.push(snapshot.clone());
        let own = snapshot.threads.iter().filter(|t| t.unmanaged.is_none());
        own.map(|thread| Placement {
            thread: thread.id,
            from: thread.place(),
            to: CpuId(self.to),
            rule: "test: as told".into(),
            why: "the test says so".to_owned(),
            instead_of: String::new(),
        })
        .collect()
    }
}

impl Paging for Scripted {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds {
            caveat: (self.to == 1).then_some("one of them has a caveat"),
            ..PagingNeeds::of(&self.needs)
        }
    }

    fn placed(&mut self, threads: &[PlacedThread], _: &Snapshot) -> Vec<PageOrder> {
        let ids = threads.iter().map(|placed| placed.thread).collect();
        self.log.lock().unwrap().placed.push(ids);
        let order = |placed: &PlacedThread| PageOrder {
            process: placed.process,
            thread: placed.thread,
            pages: Pages::All,
            to: NodeId(self.to),
            rule: "test: as told".into(),
            why: "the test says so".to_owned(),
        };
        threads.iter().map(order).collect()
    }

    fn sampled(&mut self, samples: &[Sample], _: &Topology, _: &mut Random) -> Vec<PageOrder> {
        let threads = samples.iter().map(|sample| sample.thread);
        self.log.lock().unwrap().samples.extend(threads);
        Vec::new()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let threads = outcomes.iter().map(|outcome| outcome.thread);
        self.log.lock().unwrap().outcomes.extend(threads);
    }
}

fn scripted(name: &str, to: u32, interval_ms: Option<u64>) -> (Policy, Log) {
    let log = Log::default();
    let half = || Scripted {
        to,
        interval: interval_ms.map(Duration::from_millis),
        needs: Vec::new(),
        log: log.clone(),
    };
    let policy = Policy {
        name: name.to_owned(),
        placement: Box::new(half()),
        paging: Box::new(half()),
        new_pages: NewPages::FirstTouch,
    };
    (policy, log)
}

fn sampling(name: &str, kind: Signal) -> Policy {
    let (mut policy, log) = scripted(name, 0, None);
    policy.paging = Box::new(Scripted {
        to: 0,
        interval: None,
        needs: vec![kind],
        log,
    });
    policy
}

fn compose(
    rest: Policy,
    interval: Option<Duration>,
    groups: Vec<Member>,
) -> Result<Policies, PolicyError> {
    Policies::of_groups(rest, interval, groups)
}

fn placements(policies: Policies) -> Placements {
    halves(policies.parts).0
}

fn pagings(policies: Policies) -> Pagings {
    halves(policies.parts).1
}

fn member(name: &str, policy: Policy) -> Member {
    Member {
        name: Arc::from(name),
        policy,
        interval: None,
    }
}

/// Three threads, each of a process of its own: of `quick`, of `quiet`, and of none.
fn scene() -> Scene {
    let mut scene = Scene::uniform(2, 4);
    for (process, cpu) in [(0, 0), (1, 1), (2, 2)] {
        scene.thread(process, 10.0, cpu);
        scene.home(process, "p", 0);
    }
    for (group, at) in [(Some("quick"), 0), (Some("quiet"), 1), (None, 2)] {
        scene.snapshot.processes[at].group = group.map(Arc::from);
    }
    scene
}

fn random() -> Random {
    Random::seed_from_u64(1)
}

/// Lets so much time pass.
fn pass(scene: &mut Scene, ms: u64) {
    scene.snapshot.interval_ns = ms * 1_000_000;
    scene.snapshot.time_ns += ms * 1_000_000;
    scene.snapshot.sequence += 1;
}

fn unmanaged(snapshot: &Snapshot) -> Vec<Option<Unmanaged>> {
    let threads = snapshot.threads.iter();
    threads.map(|thread| thread.unmanaged.clone()).collect()
}

#[test]
fn each_part_steers_its_own_and_sees_the_others_where_they_are_wanted() {
    let mut scene = scene();
    scene.snapshot.threads[1].unmanaged = Some(Unmanaged::other("group quiet: no policy"));
    let (rest, of_rest) = scripted("dino", 0, None);
    let (quick, of_quick) = scripted("brm", 5, None);
    let policy = compose(rest, None, vec![member("quick", quick)]).unwrap();
    assert_eq!(policy.name, "dino; quick: brm");
    let plan = placements(policy)
        .plan(&scene.snapshot, &scene.topology, &mut random())
        .placements;
    let moves: Vec<(u32, u32)> = plan.iter().map(|p| (p.thread.tid, p.to.0)).collect();
    assert_eq!(moves, [(0, 5), (2, 0)], "groups first, then the rest");
    let other = Some(Unmanaged::OtherPolicy);
    let quiet = Some(Unmanaged::other("group quiet: no policy"));
    let seen = |log: &Log| log.lock().unwrap().snapshots[0].clone();
    assert_eq!(
        unmanaged(&seen(&of_quick)),
        [None, quiet.clone(), other.clone()]
    );
    assert_eq!(unmanaged(&seen(&of_rest)), [other, quiet, None]);
    assert_eq!(seen(&of_rest).threads[0].place(), CpuId(5), "as is wanted");
    assert_eq!(seen(&of_quick).threads[0].place(), CpuId(0), "as it is");
}

#[test]
fn a_group_without_a_policy_of_its_own_is_of_the_rest() {
    let scene = scene();
    let (rest, _) = scripted("dino", 0, None);
    let (quick, _) = scripted("brm", 5, None);
    let policy = compose(rest, None, vec![member("quick", quick)]).unwrap();
    let plan = placements(policy)
        .plan(&scene.snapshot, &scene.topology, &mut random())
        .placements;
    let moves: Vec<(u32, u32)> = plan.iter().map(|p| (p.thread.tid, p.to.0)).collect();
    assert_eq!(moves, [(0, 5), (1, 0), (2, 0)]);
}

#[test]
fn a_slow_part_sees_what_happened_between_its_turns_as_one() {
    let mut scene = scene();
    let (rest, of_rest) = scripted("dino", 0, None);
    let (quick, of_quick) = scripted("brm", 1, Some(250));
    let groups = vec![member("quick", quick)];
    let policy = compose(rest, None, groups).unwrap();
    assert_eq!(policy.own().interval, Some(Duration::from_millis(250)));
    let mut placements = placements(policy);
    for _ in 0..10 {
        pass(&mut scene, 250);
        placements.plan(&scene.snapshot, &scene.topology, &mut random());
    }
    let spans = |log: &Log| -> Vec<(u64, u64, u64)> {
        let log = log.lock().unwrap();
        let of = |seen: &Snapshot| {
            let counts = seen.threads[2].counts.unwrap();
            (
                seen.time_ns / 1_000_000,
                seen.interval_ns / 1_000_000,
                counts.lines,
            )
        };
        log.snapshots.iter().map(of).collect()
    };
    let lines = scene.snapshot.threads[2].counts.unwrap().lines;
    assert_eq!(
        spans(&of_rest),
        [
            (500, 500, 2 * lines),
            (1500, 1000, 4 * lines),
            (2500, 1000, 4 * lines)
        ],
        "the first time after half a second"
    );
    let each: Vec<_> = (1..=10).map(|turn| (250 * turn, 250, lines)).collect();
    assert_eq!(spans(&of_quick), each);
}

#[test]
fn cadences_are_the_users_or_the_placements_own() {
    let compose = |users: Option<u64>, of_group: Option<u64>| {
        let (rest, _) = scripted("dino", 0, None);
        let (quick, _) = scripted("brm", 1, Some(10));
        let group = Member {
            interval: of_group.map(Duration::from_millis),
            ..member("quick", quick)
        };
        let rest_interval = users.map(Duration::from_millis);
        compose(rest, rest_interval, vec![group]).unwrap().own()
    };
    let ms = |of: Option<Duration>| of.map(|of| of.as_millis());
    let own = compose(None, None);
    assert_eq!((ms(own.interval), ms(own.rest.interval)), (Some(10), None));
    assert_eq!(ms(own.groups[0].1.interval), Some(10));
    let users = compose(Some(2000), Some(500));
    assert_eq!(ms(users.interval), Some(500));
    assert_eq!(ms(users.rest.interval), Some(2000));
    let scope = Some(AffinityScope::Core);
    let interval = Some(Duration::from_millis(500));
    assert_eq!(users.groups[0].1, Own { interval, scope });
    assert_eq!(users.rest.scope, scope, "the rest's");
}

#[test]
fn what_happens_to_a_process_is_told_to_its_paging_alone() {
    let scene = scene();
    let (rest, of_rest) = scripted("dino", 0, None);
    let (quick, of_quick) = scripted("brm", 1, None);
    let groups = vec![member("quick", quick)];
    let policies = compose(rest, None, groups).unwrap();
    assert_eq!(policies.caveats(&[]), ["one of them has a caveat"]);
    let mut paging = pagings(policies);
    let threads: Vec<PlacedThread> = scene
        .snapshot
        .threads
        .iter()
        .map(|thread| PlacedThread {
            thread: thread.id,
            process: thread.process,
            node: NodeId(0),
            moved_from: None,
        })
        .collect();
    let orders = paging.placed(&threads, &scene.snapshot);
    let ordered: Vec<(u32, u32)> = orders.iter().map(|o| (o.thread.tid, o.to.0)).collect();
    assert_eq!(ordered, [(0, 1), (1, 0), (2, 0)]);
    let sample = |placed: &PlacedThread| Sample {
        time_ns: 1,
        thread: placed.thread,
        process: placed.process,
        address: 0x1000,
        cpu: CpuId(0),
        latency: None,
        source: MemorySource::LocalMemory,
        node: None,
        store: false,
    };
    let mut samples: Vec<Sample> = threads.iter().map(sample).collect();
    // Of a process that has not been seen yet.
    samples.push(Sample {
        process: numaherd_testing::pid(99),
        ..samples[0]
    });
    paging.sampled(&samples, &scene.topology, &mut random());
    let outcome = |order: &PageOrder| PageOutcome {
        process: order.process,
        thread: order.thread,
        pages: order.pages,
        to: order.to,
        moved: 1,
        already_there: 0,
        failed: Default::default(),
        not_tried: 0,
        took_ns: 1,
        longest_batch_ns: 1,
        error: None,
    };
    let outcomes: Vec<PageOutcome> = orders.iter().map(outcome).collect();
    paging.moved(&outcomes);
    for (log, own) in [(of_quick, &threads[..1]), (of_rest, &threads[1..])] {
        let log = log.lock().unwrap();
        let own: Vec<ThreadId> = own.iter().map(|placed| placed.thread).collect();
        assert_eq!(log.placed, std::slice::from_ref(&own));
        assert_eq!(log.samples, own);
        assert_eq!(log.outcomes, own);
    }
}

#[test]
fn what_cannot_be_together_is_refused_with_a_sentence() {
    let told = |rest: Policy, groups| match compose(rest, None, groups) {
        Ok(policy) => panic!("{} can be", policy.name),
        Err(error) => error.to_string(),
    };
    let (rest, _) = scripted("dino", 0, None);
    let a = || member("a", scripted("brm", 0, None).0);
    let twice = vec![a(), a()];
    assert_eq!(
        told(rest, twice),
        "these groups cannot be herded together: the group a is named twice; give it one policy"
    );
    let (rest, _) = scripted("dino", 0, None);
    let (mut other, _) = scripted("interleave", 0, None);
    other.new_pages = NewPages::Interleave;
    assert_eq!(
        told(rest, vec![member("a", other)]),
        "these groups cannot be herded together: the group a has the policy interleave, which places \
         new pages by the rule interleave, and the rest has them placed by the rule first touch; a \
         machine has one rule for all: choose policies of the same"
    );
    let rest = sampling("dino", Signal::MemorySamples);
    let misses = sampling("tlb-miss", Signal::TlbMisses);
    assert_eq!(
        told(rest, vec![member("a", misses)]),
        "these groups cannot be herded together: the group a needs TLB misses and the rest needs \
         memory samples, but a machine provides one kind of samples at a time; choose pagings that need \
         the same kind, or stay"
    );
    let rest = sampling("dino", Signal::MemorySamples);
    let same = sampling("sampled", Signal::MemorySamples);
    let needs = compose(rest, None, vec![member("a", same)])
        .unwrap()
        .needs();
    assert_eq!(needs, [Signal::MissRate, Signal::MemorySamples]);
}

fn by_name(name: &str) -> Policy {
    registry::build(name, &Settings::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the policies and groups: no plan names another part's thread, and no thread is named
    /// twice.
    #[test]
    fn no_part_names_anothers_threads(
        rates in proptest::collection::vec((0.0..60.0f64, 0u32..8, 0usize..3), 1..14),
        names in (0usize..5, 0usize..5),
        intervals in 1usize..6,
    ) {
        const NAMES: [&str; 5] = ["dino", "di-plain", "n-mass", "random", "linux"];
        let mut scene = Scene::uniform(2, 4);
        for (process, &(rate, cpu, _)) in (0..).zip(&rates) {
            scene.thread(process, rate, cpu);
            scene.home(process, "p", cpu / 4);
        }
        for (process, &(.., group)) in scene.snapshot.processes.iter_mut().zip(&rates) {
            process.group = [None, Some("a"), Some("b")][group].map(Arc::from);
        }
        // The world says of `b` that it is to be left alone.
        for (thread, &(.., group)) in scene.snapshot.threads.iter_mut().zip(&rates) {
            thread.unmanaged = (group == 2).then(|| Unmanaged::other("group b: no policy"));
        }
        let group = member("a", by_name(NAMES[names.1]));
        let policy = compose(by_name(NAMES[names.0]), None, vec![group]).unwrap();
        let mut placements = placements(policy);
        let mut random = random();
        for _ in 0..intervals {
            pass(&mut scene, 1000);
            let plan = placements.plan(&scene.snapshot, &scene.topology, &mut random).placements;
            let mut named: Vec<ThreadId> = plan.iter().map(|p| p.thread).collect();
            for id in &named {
                let process = scene.snapshot.thread(*id).unwrap().process;
                let group = scene.snapshot.process(process).unwrap().group.as_deref();
                prop_assert!(group != Some("b"), "{id} of b");
            }
            let all = named.len();
            named.sort_unstable();
            named.dedup();
            prop_assert_eq!(named.len(), all);
            for placement in &plan {
                let thread = scene.snapshot.threads.iter_mut().find(|t| t.id == placement.thread);
                thread.unwrap().assigned = Some(placement.to);
            }
        }
    }

    /// With no groups the composed policy is the rest's.
    #[test]
    fn without_groups_it_is_the_rests_policy(
        rates in proptest::collection::vec((0.0..60.0f64, 0u32..8), 1..14),
        name in 0usize..4,
    ) {
        let name = ["dino", "di-plain", "n-mass", "random"][name];
        let mut scene = Scene::uniform(2, 4);
        for (process, &(rate, cpu)) in (0..).zip(&rates) {
            scene.thread(process / 2, rate, cpu);
            scene.home(process / 2, "p", cpu / 4);
        }
        let mut alone = by_name(name);
        let composed = compose(by_name(name), None, Vec::new()).unwrap();
        prop_assert_eq!(&composed.name, name);
        let mut composed = placements(composed);
        let (mut one, mut other) = (random(), random());
        for _ in 0..3 {
            pass(&mut scene, 1000);
            let (seen, topology) = (&scene.snapshot, &scene.topology);
            prop_assert_eq!(
                composed.plan(seen, topology, &mut one).placements,
                alone.placement.place(seen, topology, &mut other)
            );
        }
    }
}
