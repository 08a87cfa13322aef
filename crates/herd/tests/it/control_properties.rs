//! What must hold whatever is asked of a running herd, and whenever.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use numaherd_herd::control::pair;
use numaherd_herd::ledger::{Asked, Placing};
use numaherd_herd::{
    AffinityScope, Change, Ending, Herd, Journal, Limits, Line, Record, Request, Settings, Summary,
};
use numaherd_policy::Policy;
use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{NewPages, Placement, Snapshot, ThreadId};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{Fake, ToldPaging, machine, policy_with, thread, tid, window};

const NODES: u32 = 3;
const CPUS: u32 = 4;
const THREADS: u32 = 6;
const INTERVALS: u64 = 14;

/// What may be asked.
#[derive(Clone, Debug)]
enum Ask {
    Pause {
        give_back: bool,
    },
    TakeBack,
    Resume,
    Policy(Vec<(u32, u32)>),
    Settings(Set),
    /// What is refused: new pages by a rule that the world has not, and a limit that cannot be.
    Impossible {
        settings: bool,
    },
}

/// Settings that may be asked for.
#[derive(Clone, Debug)]
struct Set {
    rate: u32,
    per_interval: u32,
    scope: AffinityScope,
    dry_run: bool,
    brisk: bool,
}

impl Set {
    fn settings(&self) -> Settings {
        Settings {
            placement_interval_ms: self.brisk.then_some(100),
            dry_run: self.dry_run,
            limits: Limits {
                moves_per_second: f64::from(self.rate),
                moves_per_interval: self.per_interval,
                scope: Some(self.scope),
                take_over: true,
                ..Limits::default()
            },
            ..Settings::default()
        }
    }
}

/// What may happen before an interval is over.
#[derive(Clone, Debug)]
enum Event {
    Asked(Ask),
    Dies(u32),
    Starts {
        parent: u32,
        child: u32,
    },
    /// Whoever waits is woken in the middle.
    Wakes,
    Stops,
}

fn plan() -> impl Strategy<Value = Vec<(u32, u32)>> {
    proptest::collection::vec((1..=THREADS, 0..NODES * CPUS), 1..8)
}

fn set() -> impl Strategy<Value = Set> {
    let scope = prop_oneof![
        Just(AffinityScope::Core),
        Just(AffinityScope::Domain),
        Just(AffinityScope::Node)
    ];
    let dry = prop::bool::weighted(0.2);
    (0u32..4, 0u32..8, scope, dry, any::<bool>()).prop_map(
        |(rate, per_interval, scope, dry_run, brisk)| Set {
            rate,
            per_interval,
            scope,
            dry_run,
            brisk,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let ask = prop_oneof![
        any::<bool>().prop_map(|give_back| Ask::Pause { give_back }),
        any::<bool>().prop_map(|give_back| Ask::Pause { give_back }),
        Just(Ask::TakeBack),
        Just(Ask::Resume),
        Just(Ask::Resume),
        plan().prop_map(Ask::Policy),
        set().prop_map(Ask::Settings),
        any::<bool>().prop_map(|settings| Ask::Impossible { settings }),
    ];
    prop_oneof![
        12 => ask.prop_map(Event::Asked),
        2 => (1..=THREADS).prop_map(Event::Dies),
        2 => (1..=THREADS, 100u32..110).prop_map(|(parent, child)| Event::Starts { parent, child }),
        2 => Just(Event::Wakes),
        1 => Just(Event::Stops),
    ]
}

fn events() -> impl Strategy<Value = Vec<Vec<Event>>> {
    proptest::collection::vec(proptest::collection::vec(event(), 0..3), INTERVALS as usize)
}

/// Has every thread of the plan on its core, one plan after the other, the last one for ever: threads
/// never come to rest.
fn wandering(name: &str, plan: &[(u32, u32)], world: &Fake) -> Policy {
    let plan = plan.to_vec();
    let mut turn = 0;
    let placing = move |snapshot: &Snapshot| -> Vec<Placement> {
        turn += 1;
        let from = |id: ThreadId| snapshot.thread(id).map_or(CpuId(0), |t| t.place());
        let entry = |&(n, to): &(u32, u32)| Placement {
            thread: tid(n),
            from: from(tid(n)),
            to: CpuId((to + turn * CPUS) % (NODES * CPUS)),
            rule: "property".into(),
            why: "at random".to_owned(),
            instead_of: String::new(),
        };
        plan.iter().map(entry).collect()
    };
    let paging = ToldPaging {
        on_placed: vec![window(&world.threads[0], 0, 1, 1)],
        ..ToldPaging::stay()
    };
    Policy {
        name: name.to_owned(),
        ..policy_with(placing, paging)
    }
}

fn request(ask: &Ask, world: &Fake) -> Request {
    let change = |policy: Option<Policy>, settings| {
        Request::Change(Box::new(Change {
            policy: policy.map(Into::into),
            settings,
            why: String::new(),
        }))
    };
    match ask {
        Ask::Pause { give_back } => Request::Pause {
            give_back: *give_back,
        },
        Ask::TakeBack => Request::TakeBack,
        Ask::Resume => Request::Resume,
        Ask::Policy(plan) => change(Some(wandering("another", plan, world)), None),
        Ask::Settings(set) => change(None, Some(set.settings())),
        Ask::Impossible { settings: true } => {
            let settings = Settings {
                first_interval_ms: 0,
                ..Settings::default()
            };
            change(None, Some(settings))
        }
        Ask::Impossible { settings: false } => {
            let policy = Policy {
                new_pages: NewPages::Interleave,
                ..wandering("impossible", &[], world)
            };
            change(Some(policy), None)
        }
    }
}

/// What is seen from outside while it runs.
#[derive(Default)]
struct Outside {
    /// The mask that each thread has of its own, or had from the one that started it.
    own: BTreeMap<ThreadId, CpuSet>,
    /// Whether threads are to have their own masks, as the ledger says.
    given_back: bool,
    /// What was seen that must not be.
    wrong: Vec<String>,
}

impl Outside {
    /// Every mask is the thread's own or one that was ordered for a thread of its process.
    fn look(&mut self, world: &Fake) {
        for thread in &world.threads {
            let own = *thread.affinity == self.own[&thread.id];
            let orders = world.applied.iter().flat_map(|orders| &orders.affinities);
            let mut of_process = orders.filter(|order| {
                let other = world.threads.iter().find(|t| t.id == order.thread);
                order.core.is_some() && other.is_none_or(|other| other.process == thread.process)
            });
            let ours = of_process.any(|order| order.cpus == thread.affinity);
            if !own && (!ours || self.given_back) {
                let given_back = self.given_back;
                self.wrong.push(format!(
                    "{} has {} (given back: {given_back})",
                    thread.id, thread.affinity
                ));
            }
        }
    }
}

struct Ran {
    lines: Vec<Line>,
    summary: Summary,
    outside: Arc<Mutex<Outside>>,
    world: Fake,
    owed: bool,
}

fn run(plan: &[(u32, u32)], set: &Set, events: Vec<Vec<Event>>) -> Ran {
    let topology = machine(NODES, CPUS);
    let threads = (1..=THREADS)
        .map(|n| thread(n, n / 2, n % (NODES * CPUS), &topology))
        .collect();
    let mut world = Fake::new(topology, threads);
    // One process is its user's own affair, until it is taken over.
    for thread in world.threads.iter_mut().filter(|t| t.process.pid == 1) {
        thread.affinity = Arc::new("1-6".parse().unwrap());
    }
    world.woken_in = (0u64..)
        .zip(&events)
        .filter(|(_, events)| events.iter().any(|event| matches!(event, Event::Wakes)))
        .map(|(at, _)| at)
        .collect();
    let outside = Arc::new(Mutex::new(Outside {
        own: world.masks(),
        ..Outside::default()
    }));
    let stop = Arc::new(AtomicBool::new(false));
    let (control, requests) = pair();
    let policy = wandering("first", plan, &world);
    let (stops, looks) = (stop.clone(), outside.clone());
    let mut happened = 0;
    world = world.scripted(move |interval, world| {
        let mut outside = looks.lock().unwrap();
        outside.look(world);
        // An interval that goes on after it was woken brings nothing new.
        if interval < happened {
            return;
        }
        happened = interval + 1;
        for event in &events[interval as usize % events.len()] {
            let there = |n: u32| world.threads.iter().any(|t| t.id == tid(n));
            match event {
                Event::Asked(ask) => control.tell(request(ask, world)).unwrap(),
                Event::Dies(n) if world.threads.len() > 1 => {
                    world.threads.retain(|t| t.id != tid(*n));
                }
                Event::Starts { parent, child } if there(*parent) && !there(*child) => {
                    let mut heir = world.thread(*parent).clone();
                    heir.id = tid(*child);
                    heir.assigned = None;
                    let own = outside.own[&tid(*parent)].clone();
                    outside.own.insert(heir.id, own);
                    world.threads.push(heir);
                }
                Event::Stops => stops.store(true, Ordering::Relaxed),
                Event::Dies(_) | Event::Starts { .. } | Event::Wakes => {}
            }
        }
    });
    world.ends_after = INTERVALS;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("journal");
    let journal = Journal::open(&path, "this boot", "the test").unwrap();
    let mut lines: Vec<Line> = Vec::new();
    let heard = outside.clone();
    let summary = Herd::new(&mut world, policy)
        .settings(set.settings())
        .journal(journal)
        .watched(|line| {
            if let Record::Control(controlled) = &line.record
                && controlled.refused.is_none()
            {
                let mut outside = heard.lock().unwrap();
                match controlled.asked {
                    Asked::Pause { give_back, .. } => outside.given_back = give_back,
                    Asked::Resume => outside.given_back = false,
                    Asked::Change { .. } => {}
                }
            }
            lines.push(line.clone());
        })
        .controlled(requests)
        .run(&stop)
        .unwrap();
    Ran {
        lines,
        summary,
        outside,
        world,
        owed: path.exists(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_mask_is_a_threads_own_or_held_and_its_own_in_the_end(
        plan in plan(),
        set in set(),
        events in events(),
    ) {
        let ran = run(&plan, &set, events);
        let outside = ran.outside.lock().unwrap();
        prop_assert!(outside.wrong.is_empty(), "{:?}", outside.wrong);
        for (thread, mask) in ran.world.masks() {
            prop_assert_eq!(&mask, &outside.own[&thread], "{}", thread);
        }
        prop_assert!(!ran.owed, "nothing is owed");
        prop_assert!(matches!(ran.summary.ending, Ending::World | Ending::Stopped));
    }

    #[test]
    fn a_paused_herd_orders_nothing_but_what_it_gives_back(
        plan in plan(),
        set in set(),
        events in events(),
    ) {
        let ran = run(&plan, &set, events);
        let mut paused = None;
        for line in &ran.lines {
            match &line.record {
                Record::Control(controlled) if controlled.refused.is_none() => {
                    match controlled.asked {
                        Asked::Pause { give_back, .. } => paused = Some(give_back),
                        Asked::Resume => paused = None,
                        Asked::Change { .. } => {}
                    }
                }
                Record::Placing(Placing { plan, affinities, .. }) if paused.is_some() => {
                    let gives_back = affinities.iter().all(|order| order.core.is_none());
                    let takes_back = plan.placements.iter().all(|one| one.rule == "trial: take back");
                    prop_assert!(if plan.is_empty() { gives_back } else { takes_back }, "{:?}", line);
                }
                Record::Paging(tick) => prop_assert!(paused.is_none(), "{:?}", tick),
                _ => {}
            }
        }
        // What the ledger has is what was done.
        let said = |line: &Line| match &line.record {
            Record::Placing(placing) if placing.carried_out => placing.affinities.len(),
            _ => 0,
        };
        let ordered: usize = ran.lines.iter().map(said).sum();
        let done: usize = ran.world.applied.iter().map(|orders| orders.affinities.len()).sum();
        prop_assert_eq!(ordered, done);
    }

    #[test]
    fn budgets_are_not_filled_again_by_a_change(
        plan in plan(),
        rate in 0u32..4,
        changes in proptest::collection::vec((0u32..4, any::<bool>()), INTERVALS as usize),
    ) {
        let set = |rate| Set {
            rate,
            per_interval: 8,
            scope: AffinityScope::Core,
            dry_run: false,
            brisk: true,
        };
        let events = changes.iter().map(|&(rate, policy)| {
            let mut asked = vec![Event::Asked(Ask::Settings(set(rate)))];
            if policy {
                asked.push(Event::Asked(Ask::Policy(plan.clone())));
                asked.push(Event::Asked(Ask::Pause { give_back: true }));
                asked.push(Event::Asked(Ask::Resume));
            }
            asked
        });
        let ran = run(&plan, &set(rate), events.collect());
        // Each tenth of a second is filled at the rate that held in it.
        let highest = changes.iter().map(|&(rate, _)| rate).max().unwrap_or(0).max(rate);
        let seconds = ran.summary.totals.duration_ns as f64 / 1e9;
        let most = f64::from(highest.max(1)) + f64::from(highest) * seconds + 1.0;
        let moves = ran.summary.totals.thread_moves as f64;
        prop_assert!(moves <= most, "{} moves, {} may be", moves, most);
    }
}
