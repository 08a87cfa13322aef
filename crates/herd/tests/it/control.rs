//! A running herd does what is asked of it, or says why not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_herd::control::{MOST_WAITING, pair};
use numaherd_herd::ledger::{Asked as Was, Controlled};
use numaherd_herd::{
    AffinityScope, ControlError, Herd, Journal, Limits, Record, Request, Settings,
};
use numaherd_policy::{Needs, Place, Policy, Random};
use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{NewPages, Placement, Signal, SignalState, Snapshot};
use tempfile::TempDir;

use crate::asking::{asked, change, fake, ran};
use crate::fake::{Asked, cpus, everyone_to, policy, tid};

/// Longer than any test may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_pause_decides_nothing_records_what_is_seen_and_leaves_threads_where_they_are() {
    let (mut world, requests) = asked(
        fake(),
        vec![
            (1, Request::Pause { give_back: false }),
            (4, Request::Resume),
        ],
    );
    let mut to = 0;
    let wandering = policy(move |snapshot| {
        to = (to + 4) % 8;
        everyone_to(to)(snapshot)
    });
    let found = world.masks();
    let ran = ran(Herd::new(&mut world, wandering).controlled(requests));
    assert_eq!(
        ran.kinds(),
        "start snapshot placing outcome CONTROL snapshot snapshot snapshot CONTROL \
         snapshot placing outcome snapshot placing outcome snapshot placing outcome \
         snapshot placing outcome placing outcome end"
    );
    let during: Vec<String> = ran.lines[5..8]
        .iter()
        .map(|line| match &line.record {
            Record::Snapshot(snapshot) => snapshot.threads[0].affinity.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(during, ["4-7", "4-7", "4-7"]);
    assert_eq!(
        ran.controlled()[0],
        &Controlled {
            by: "the test".to_owned(),
            asked: Was::Pause {
                give_back: false,
                given_back: 0
            },
            refused: None
        }
    );
    assert_eq!(ran.summary.totals.intervals, 8);
    assert_eq!(world.masks(), found);
}

/// What an instance that came now would find owed in the journal.
fn owed(journal: &Path) -> usize {
    numaherd_herd::journal::owed(journal, "this boot").unwrap()
}

#[test]
fn a_pause_that_gives_back_leaves_nothing_held_and_nothing_owed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("journal");
    let journal = Journal::open(&path, "this boot", "the test").unwrap();
    let (control, requests) = pair();
    let seen: Arc<Mutex<Vec<(usize, CpuSet, CpuSet)>>> = Arc::default();
    let noted = seen.clone();
    let mut world = fake().scripted(move |interval, world| {
        let masks = world.masks();
        if interval > 0 {
            let heir = masks.get(&tid(3)).unwrap_or(&masks[&tid(1)]).clone();
            let one = (owed(&path), masks[&tid(1)].clone(), heir);
            noted.lock().unwrap().push(one);
        }
        match interval {
            2 => {
                // Started with the mask of its process's thread just before that is given back.
                let mut heir = world.thread(1).clone();
                heir.id = tid(3);
                heir.assigned = None;
                world.threads.push(heir);
                let pause = Request::Pause { give_back: true };
                control.tell(pause).unwrap();
            }
            4 => control.tell(Request::Resume).unwrap(),
            _ => {}
        }
    });
    // A thread that its user has pinned is taken over, and gets its own mask back.
    world.thread(2).affinity = Arc::new(cpus("0-1"));
    let settings = Settings {
        limits: Limits {
            take_over: true,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let ran = ran(Herd::new(&mut world, policy(everyone_to(5)))
        .settings(settings)
        .controlled(requests)
        .journal(journal));
    let whole = || cpus("0-7");
    let held = || (2, cpus("4-7"), cpus("4-7"));
    let free = || (0, whole(), whole());
    let again = || (3, cpus("4-7"), cpus("4-7"));
    let expected = [held(), held(), free(), free(), again(), again(), again()];
    assert_eq!(*seen.lock().unwrap(), expected);
    let paused = ran.controlled()[0];
    let given_back = 3;
    let asked = Was::Pause {
        give_back: true,
        given_back,
    };
    assert_eq!(paused.asked, asked);
    assert_eq!(world.masks()[&tid(2)], cpus("0-1"));
    assert_eq!(
        ran.summary.totals.restored,
        Some(6),
        "at the pause and at the end"
    );
}

#[test]
fn a_taking_back_puts_threads_where_they_were_found_and_leaves_nothing_held() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("journal");
    let journal = Journal::open(&path, "this boot", "the test").unwrap();
    let (control, requests) = pair();
    let seen: Arc<Mutex<Vec<(usize, u32, u32)>>> = Arc::default();
    let noted = seen.clone();
    let mut world = fake().scripted(move |interval, world| {
        let cpus = [1, 2].map(|number| world.thread(number).cpu.0);
        noted.lock().unwrap().push((owed(&path), cpus[0], cpus[1]));
        match interval {
            // Linux moves one meanwhile, and that is where it is found the next time.
            3 => world.thread(1).cpu = CpuId(1),
            2 | 5 => control.tell(Request::TakeBack).unwrap(),
            4 => control.tell(Request::Resume).unwrap(),
            _ => {}
        }
    });
    world.ends_after = 7;
    world.thread(2).cpu = CpuId(2);
    // Once to and fro is one time too many, were it the policy's.
    let settings = Settings {
        limits: Limits {
            bounce_limit: 1,
            thread_bounce_limit: Some(1),
            moves_per_interval: 2,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let ran = ran(Herd::new(&mut world, policy(everyone_to(5)))
        .settings(settings)
        .controlled(requests)
        .journal(journal));
    assert_eq!(
        *seen.lock().unwrap(),
        [
            (0, 0, 2),
            (2, 5, 5),
            (2, 5, 5),
            (0, 0, 2),
            (0, 1, 2),
            (2, 5, 5),
            (0, 1, 2),
        ]
    );
    let asked = Was::Pause {
        give_back: true,
        given_back: 2,
    };
    assert_eq!(ran.controlled()[0].asked, asked);
    let taken: Vec<&Placement> = ran
        .lines
        .iter()
        .filter_map(|line| match &line.record {
            Record::Placing(placing) => Some(&placing.plan.placements),
            _ => None,
        })
        .flatten()
        .filter(|one| one.rule == "trial: take back")
        .collect();
    assert_eq!(taken.len(), 4);
    assert_eq!((taken[0].from, taken[0].to), (CpuId(5), CpuId(0)));
    assert!(ran.summary.totals.refusals.is_empty());
}

#[test]
fn a_pause_that_has_not_given_back_can_do_so_later() {
    let pause = |give_back| Request::Pause { give_back };
    let (mut world, requests) = asked(
        fake(),
        vec![
            (1, Request::Resume),
            (2, pause(false)),
            (3, pause(false)),
            (4, pause(true)),
            (5, pause(true)),
        ],
    );
    let found = world.masks();
    let placing = policy(everyone_to(5));
    let ran = ran(Herd::new(&mut world, placing).controlled(requests));
    assert_eq!(
        ran.refusals(),
        [
            "it is not paused",
            "it is already paused",
            "it is already paused, and affinities are restored"
        ]
    );
    assert_eq!(ran.summary.totals.restored, Some(2));
    assert_eq!(world.masks(), found);
}

#[test]
fn another_policy_takes_over_and_what_was_found_is_still_given_back() {
    let mut other = policy(everyone_to(2));
    other.name = "another".to_owned();
    let (mut world, requests) = asked(fake(), vec![(3, change(Some(other), None))]);
    let found = world.masks();
    let placing = policy(everyone_to(5));
    let ran = ran(Herd::new(&mut world, placing).controlled(requests));
    let cores: Vec<Option<u32>> = world
        .applied
        .iter()
        .map(|orders| orders.affinities[0].core.map(|core| core.0))
        .collect();
    assert_eq!(cores, [Some(5), Some(2), None]);
    assert_eq!(world.masks(), found);
    assert_eq!(ran.summary.policy, "another");
    let changed = ran.controlled()[0];
    assert_eq!(changed.refused, None);
    let Was::Change {
        policy,
        settings,
        why,
    } = &changed.asked
    else {
        panic!("{changed:?}")
    };
    assert_eq!(policy.as_deref(), Some("another"));
    assert_eq!(why, "the test wants it");
    assert_eq!(
        settings.as_ref().unwrap().placement_interval_ms,
        Some(1000),
        "as used"
    );
    let needs = vec![Signal::MissRate];
    assert_eq!(
        world.asked,
        [
            Asked::NewPages(NewPages::FirstTouch),
            Asked::Attend(needs.clone()),
            Asked::Pager,
            Asked::NewPages(NewPages::FirstTouch),
            Asked::Attend(needs),
        ]
    );
}

#[test]
fn what_cannot_be_is_refused_as_at_a_start_and_changes_nothing() {
    let interleaved = Policy {
        new_pages: NewPages::Interleave,
        ..policy(everyone_to(2))
    };
    let (mut world, requests) = asked(
        fake(),
        vec![
            (1, change(Some(interleaved), None)),
            (3, change(Some(needy()), None)),
            // Only said.
            (4, change(None, None)),
        ],
    );
    for report in &mut world.signals {
        if report.signal == Signal::TlbResidency {
            report.state = SignalState::Missing {
                reason: "there is no such unit".to_owned(),
                remedy: "the lab".to_owned(),
            };
        }
    }
    let placing = policy(everyone_to(5));
    let ran = ran(Herd::new(&mut world, placing).controlled(requests));
    assert_eq!(
        ran.refusals(),
        [
            "the policy as-told places new pages by the rule interleave, which the made-up machine \
             does not support: it cannot place new pages by the rule interleave; have it learn that; or \
             choose a policy that leaves new pages where they are first touched, such as linux",
            "the policy as-told needs the signal TLB residency, which is not available here: there is \
             no such unit. Remedy: the lab; or, for ipm, memory samples in place of residency, which is \
             weaker evidence: set evidence = \"samples\" under [policies.ipm]."
        ]
    );
    assert_eq!(world.applied.len(), 2, "placed once and given back");
    let said = ran.controlled()[2];
    let why = "the test wants it".to_owned();
    let (policy, settings) = (None, None);
    let asked = Was::Change {
        policy,
        settings,
        why,
    };
    assert_eq!((&said.asked, &said.refused), (&asked, &None));
    assert_eq!(ran.summary.policy, "as-told");
    let attended = |asked: &&Asked| matches!(asked, Asked::Attend(_));
    assert_eq!(world.asked.iter().filter(attended).count(), 1);
}

/// Goes by TLB residency.
struct Needy;

impl Place for Needy {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::TlbResidency])
    }

    fn place(&mut self, _: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        Vec::new()
    }
}

fn needy() -> Policy {
    Policy {
        placement: Box::new(Needy),
        ..policy(|_| Vec::new())
    }
}

#[test]
fn a_change_of_settings_keeps_the_policy_with_what_it_has_learnt() {
    let settings = Settings {
        placement_interval_ms: Some(100),
        record_interval_ms: 0,
        limits: Limits {
            scope: Some(AffinityScope::Core),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let (mut world, requests) = asked(fake(), vec![(3, change(None, Some(settings)))]);
    let mut asked = 0;
    let counting = policy(move |snapshot| {
        asked += 1;
        // Each decision is for another core: the count goes on.
        everyone_to(asked % 8)(snapshot)
    });
    let ran = ran(Herd::new(&mut world, counting).controlled(requests));
    assert_eq!(
        ran.times_ms(),
        [500, 1500, 2500, 3500, 3600, 3700, 3800, 3900]
    );
    let masks: Vec<String> = world
        .applied
        .iter()
        .map(|orders| orders.affinities[0].cpus.to_string())
        .collect();
    assert_eq!(
        masks,
        ["0-3", "0-3", "0-3", "4", "5", "6", "7", "0", "0-7"],
        "the new scope from the interval of the change on"
    );
}

#[test]
fn a_dry_run_that_begins_or_ends_in_the_middle() {
    let dry = |dry_run| {
        let settings = Settings {
            dry_run,
            ..Settings::default()
        };
        change(None, Some(settings))
    };
    let (mut world, requests) = asked(fake(), vec![(2, dry(true)), (5, dry(false))]);
    let found = world.masks();
    let mut to = 0;
    let wandering = policy(move |snapshot| {
        to = (to + 1) % 8;
        everyone_to(to)(snapshot)
    });
    let ran = ran(Herd::new(&mut world, wandering).controlled(requests));
    let carried_out: Vec<bool> = ran
        .lines
        .iter()
        .filter_map(|line| match &line.record {
            Record::Placing(placing) => Some(placing.carried_out),
            _ => None,
        })
        .collect();
    assert_eq!(
        carried_out,
        [true, true, false, false, false, true, true, true, true]
    );
    assert_eq!(world.applied.len(), 6);
    assert_eq!(world.masks(), found);
}

#[test]
fn a_world_that_is_woken_goes_on_with_its_interval() {
    let (mut world, requests) = asked(
        fake(),
        vec![
            (2, Request::Pause { give_back: false }),
            (2, Request::Resume),
            (4, Request::Pause { give_back: true }),
        ],
    );
    world.woken_in = vec![2, 4];
    world.ends_after = 6;
    let placing = policy(everyone_to(5));
    let ran = ran(Herd::new(&mut world, placing).controlled(requests));
    assert_eq!(ran.refusals(), Vec::<&str>::new());
    assert_eq!(
        ran.times_ms(),
        [500, 1500, 2500, 3500, 4000, 5000, 6000],
        "only what is given back ends an interval early"
    );
}

#[test]
fn who_waits_for_an_answer_gets_it() {
    let (control, requests) = pair();
    let done = Arc::new(AtomicBool::new(false));
    let stop = done.clone();
    let mut world = fake().scripted(|_, _| std::thread::yield_now());
    world.ends_after = u64::MAX;
    let asker = std::thread::spawn(move || {
        let pause = || Request::Pause { give_back: true };
        let answers = [
            control.ask(pause(), PATIENCE),
            control.ask(pause(), PATIENCE),
            control.ask(Request::Resume, PATIENCE),
        ];
        done.store(true, Ordering::SeqCst);
        (control, answers)
    });
    let settings = Settings {
        record_interval_ms: 1000,
        placement_interval_ms: Some(10),
        ..Settings::default()
    };
    let placing = policy(everyone_to(5));
    let herd = Herd::new(&mut world, placing)
        .settings(settings)
        .controlled(requests);
    herd.run(&stop).unwrap();
    let (control, answers) = asker.join().unwrap();
    let refused = "it is already paused, and affinities are restored".to_owned();
    assert_eq!(
        answers,
        [Ok(()), Err(ControlError::Refused(refused)), Ok(())]
    );
    assert_eq!(control.tell(Request::Resume), Err(ControlError::Ended));
}

#[test]
fn who_does_not_wait_or_comes_in_crowds_does_no_harm() {
    let (control, requests) = pair();
    assert_eq!(
        control.ask(Request::Resume, Duration::ZERO),
        Err(ControlError::NoAnswer {
            patience: Duration::ZERO
        })
    );
    for _ in 1..MOST_WAITING {
        control.tell(Request::Resume).unwrap();
    }
    assert_eq!(control.tell(Request::Resume), Err(ControlError::Busy));
    let mut world = fake();
    let placing = policy(everyone_to(5));
    let ran = ran(Herd::new(&mut world, placing).controlled(requests));
    assert_eq!(ran.refusals().len(), MOST_WAITING);
    assert_eq!(ran.summary.totals.intervals, 8);
    assert_eq!(
        control.ask(Request::Resume, PATIENCE),
        Err(ControlError::Ended)
    );
}
