//! Heirs while a herd runs and when it stops: who has a mask of ours from a thread that we placed gets his own back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_herd::journal::owed;
use numaherd_herd::ledger::Record;
use numaherd_herd::{Herd, Settings};
use numaherd_topology::CpuSet;
use numaherd_world::{Kinship, World};
use tempfile::TempDir;

use crate::fake::{Fake, Released, cpus, everyone_to, policy, thread, tid};
use crate::run::{GO, dry, fake, journal, journal_path};

/// A thread of a process of its own that has the mask which thread 1 was given, an orphan of its session.
pub(crate) fn daemon(world: &mut Fake, number: u32) -> numaherd_world::Thread {
    let session = Kinship {
        session: 40,
        ..Kinship::default()
    };
    world.kin.insert(1, (session.clone(), false));
    world.kin.insert(number, (session, true));
    let mut daemon = thread(number, number, 5, &world.topology.clone());
    daemon.affinity = Arc::new(cpus("4-7"));
    daemon
}

#[test]
fn an_heir_outside_the_selection_is_given_back_while_it_runs() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 2 {
            let daemon = daemon(world, 9);
            world.unseen = vec![daemon.id];
            world.threads.push(daemon);
        }
        if interval == 3 {
            assert_eq!(world.masks()[&tid(9)], cpus("0-7"));
        }
    });
    daemon(&mut world, 9);
    let journal = Some(journal(&directory));
    let placing = policy(everyone_to(5));
    Herd::new(&mut world, placing)
        .journal(journal)
        .run(&GO)
        .unwrap();
    let given_back = &world.applied[1].affinities;
    assert_eq!((given_back.len(), given_back[0].thread), (1, tid(9)));
    assert!(!journal_path(&directory).exists(), "nothing is owed");
}

/// Calls of `run_for` before the first placement, after which each call ends with a glance.
const FIRST_GLANCE: u64 = 1;

/// A world that is asked for what was started, in which thread 2 of the placed process 1 is started after ten glances.
fn starting(then: impl Fn(u64, &mut Fake) + 'static) -> Fake {
    let mut world = fake(1).scripted(move |call, world| {
        if call == FIRST_GLANCE + 10 {
            let mut heir = daemon(world, 2);
            heir.process = world.threads[0].process;
            world.threads.push(heir);
        }
        then(call, world);
    });
    daemon(&mut world, 2);
    world.sees_starts = true;
    world.ends_after = FIRST_GLANCE + 20;
    world
}

#[test]
fn what_a_placed_thread_starts_is_given_back_before_the_next_interval() {
    let directory = TempDir::new().unwrap();
    let mut world = starting(|call, world| {
        if call > FIRST_GLANCE + 10 {
            let masks = world.masks();
            assert_eq!(masks[&tid(2)], cpus("0-7"));
            assert_eq!(masks[&tid(1)], cpus("4-7"), "it is placed");
        }
    });
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let summary = Herd::new(&mut world, policy(everyone_to(5)))
        .journal(Some(journal(&directory)))
        .watched(move |line| seen.lock().unwrap().push(line.clone()))
        .run(&GO)
        .unwrap();
    assert_eq!(summary.totals.intervals, 1);
    assert_eq!(summary.totals.restored, Some(1), "at the end");
    assert!(!journal_path(&directory).exists(), "nothing is owed");
    // It is recorded as what follows from the last snapshot.
    let given_back = lines.lock().unwrap().iter().find_map(|line| {
        let Record::Placing(placing) = &line.record else {
            return None;
        };
        let order = placing.affinities.first()?;
        (order.thread == tid(2)).then_some((order.core, placing.carried_out, placing.snapshot))
    });
    assert_eq!(given_back, Some((None, true, 0)));
}

#[test]
fn where_a_glance_takes_long_the_next_one_comes_late() {
    let mut world = starting(|_, _| {});
    world.search_takes = Duration::from_millis(10);
    let herd = Herd::new(&mut world, policy(everyone_to(5))).settings(Settings {
        length_ms: Some(2500),
        ..Settings::default()
    });
    herd.run(&GO).unwrap();
    // After 20 ms and then half a second later in each of two intervals, and what intervals and the end take.
    let searches = world.now().as_millis() / 10;
    assert!((4..=12).contains(&searches), "{searches}");
}

#[test]
fn nobody_is_looked_for_between_intervals_while_nothing_is_placed_or_only_shown() {
    for (policy, settings) in [
        (policy(|_| Vec::new()), Settings::default()),
        (policy(everyone_to(5)), dry()),
    ] {
        let mut world = starting(|_, _| {});
        world.search_takes = Duration::from_millis(10);
        let herd = Herd::new(&mut world, policy).settings(settings);
        herd.run(&GO).unwrap();
        assert_eq!(world.now(), Duration::ZERO);
    }
}

#[test]
fn a_thread_whose_user_gave_it_a_mask_of_ours_is_not_touched() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 2 {
            // Its parent lives and is no thread of ours.
            let mut stranger = daemon(world, 9);
            world.kin.get_mut(&9).unwrap().1 = false;
            stranger.id = tid(9);
            world.unseen = vec![stranger.id];
            world.threads.push(stranger);
        }
    });
    daemon(&mut world, 9);
    let placing = policy(everyone_to(5));
    Herd::new(&mut world, placing).run(&GO).unwrap();
    assert_eq!(world.masks()[&tid(9)], cpus("4-7"));
}

#[test]
fn what_starts_while_others_are_given_back_is_given_back_too() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(1);
    let (first, second) = (daemon(&mut world, 8), daemon(&mut world, 9));
    // It starts when the herd is told to give back, and the next when that is given back.
    let starts = vec![first, second];
    world = world.scripted(move |interval, world| {
        if interval == 4 {
            world.starts.clone_from(&starts);
        }
    });
    world.unseen = vec![tid(8), tid(9)];
    let journal = Some(journal(&directory));
    let placing = policy(everyone_to(5));
    let summary = Herd::new(&mut world, placing)
        .journal(journal)
        .run(&GO)
        .unwrap();
    assert!(world.masks().values().all(|mask| *mask == cpus("0-7")));
    assert_eq!(summary.totals.restored, Some(3));
    assert!(!journal_path(&directory).exists(), "nothing is owed");
}

#[test]
fn a_stop_ends_where_threads_are_started_all_the_time_and_says_how_the_rest_is_given_back() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(1);
    let daemons: Vec<_> = (10..50).map(|number| daemon(&mut world, number)).collect();
    world.unseen = daemons.iter().map(|daemon| daemon.id).collect();
    world = world.scripted(move |interval, world| {
        if interval == 4 {
            world.starts.clone_from(&daemons);
            world.search_takes = Duration::from_secs(1);
        }
    });
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(Some(journal(&directory)));
    let summary = herd.run(&GO).unwrap();
    let took = world.now();
    assert!(took > Duration::from_secs(10), "{took:?}");
    assert!(took <= Duration::from_secs(13), "{took:?}");
    let restored = summary.totals.restored.unwrap();
    let told = summary.notices.join("\n");
    for part in [
        "this goes on for at most 10 s".to_owned(),
        format!("{restored} of them were restored, but some may be left"),
        "stop what starts them, and run `numaherd release`".to_owned(),
    ] {
        assert!(told.contains(&part), "{part:?} in {told}");
    }
    let path = journal_path(&directory);
    assert!(owed(&path, "this boot").unwrap() > 0);
    let left = |world: &Fake| {
        let masks = world.masks();
        masks.values().filter(|mask| **mask == cpus("4-7")).count()
    };
    assert!(left(&world) > 0);
    // What starts them is stopped.
    world.starts.clear();
    let mut journal = journal(&directory);
    let report = journal.restore(&mut Released(&mut world));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(left(&world), 0);
    journal.close().unwrap();
    assert!(!path.exists(), "nothing is owed");
}

#[test]
fn an_heir_whose_affinity_the_kernel_refuses_is_tried_once_at_the_stop_and_stays_owed() {
    let directory = TempDir::new().unwrap();
    let mut world = fake(1);
    let heir = daemon(&mut world, 9);
    world.unseen = vec![heir.id];
    world.refuses.insert(heir.id, "EINVAL".to_owned());
    world = world.scripted(move |interval, world| {
        if interval == 4 {
            // When the first one is given back.
            world.starts = vec![heir.clone()];
            // So that a stop which does not end fails.
            world.search_takes = Duration::from_secs(1);
        }
    });
    let herd = Herd::new(&mut world, policy(everyone_to(5))).journal(Some(journal(&directory)));
    let summary = herd.run(&GO).unwrap();
    let orders = world.applied.iter().flat_map(|orders| &orders.affinities);
    assert_eq!(orders.filter(|order| order.thread == tid(9)).count(), 1);
    let told = summary.notices.join("\n");
    for part in ["could not be set: EINVAL", "still in the journal"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
    assert_eq!(owed(&journal_path(&directory), "this boot").unwrap(), 1);
}

#[test]
fn an_heir_whose_cpuset_has_lost_its_affinity_is_given_back_at_the_stop() {
    for is_widened in [false, true] {
        let mut world = fake(1).scripted(move |interval, world| {
            let all = |world: &mut Fake, cpuset: &str, mask: &str| {
                for thread in &mut world.threads {
                    thread.cpuset = Arc::new(cpus(cpuset));
                    thread.affinity = Arc::new(cpus(mask));
                }
            };
            if interval == 2 {
                // It was born with 4-7, of which nothing is left: the kernel gives it all of the cpuset.
                let daemon = daemon(world, 9);
                world.threads.push(daemon);
                all(world, "0-3", "0-3");
            }
            if interval == 4 && is_widened {
                all(world, "0-7", "4-7");
            }
        });
        daemon(&mut world, 9);
        // Only once: whoever is placed again has another mask.
        let mut is_placed = false;
        let once = policy(move |snapshot| {
            let seats = if is_placed {
                Vec::new()
            } else {
                everyone_to(5)(snapshot)
            };
            is_placed = true;
            seats
        });
        Herd::new(&mut world, once).run(&GO).unwrap();
        let orders = world.applied.iter().flat_map(|orders| &orders.affinities);
        let given_back = orders.filter(|order| order.thread == tid(9));
        let masks: Vec<&CpuSet> = given_back.map(|order| &*order.cpus).collect();
        assert_eq!(masks, [&cpus("0-7")], "widened: {is_widened}");
    }
}

#[test]
fn those_who_end_before_they_can_be_looked_at_do_not_hide_whom_they_have_started() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 2 {
            let daemon = daemon(world, 9);
            // Who was placed ends, and is in no snapshot any more.
            world.unseen = vec![daemon.id, tid(1)];
            world.threads.retain(|thread| thread.id != tid(1));
            world.threads.push(daemon);
            world.misses = 1;
        }
        if interval == 4 {
            assert_eq!(world.masks()[&tid(9)], cpus("0-7"), "an interval later");
        }
    });
    daemon(&mut world, 9);
    let placing = policy(everyone_to(5));
    let herd = Herd::new(&mut world, placing);
    herd.run(&GO).unwrap();
    assert_eq!(world.misses, 0);
}

#[test]
fn a_stop_looks_until_nobody_has_ended_before_he_could_be_looked_at() {
    let mut world = fake(1).scripted(|interval, world| {
        if interval == 4 {
            let daemon = daemon(world, 9);
            world.unseen = vec![daemon.id];
            world.threads.push(daemon);
            world.misses = 3;
        }
    });
    daemon(&mut world, 9);
    let placing = policy(everyone_to(5));
    let herd = Herd::new(&mut world, placing);
    herd.run(&GO).unwrap();
    assert!(world.masks().values().all(|mask| *mask == cpus("0-7")));
}

#[test]
fn a_thread_stays_in_the_journal_until_its_heirs_have_been_looked_for() {
    let directory = TempDir::new().unwrap();
    let path = journal_path(&directory);
    let owed = move || owed(&path, "this boot").unwrap();
    let mut world = fake(2).scripted(move |interval, world| match interval {
        2 => world.unseen = vec![tid(1)],
        // It is back by now, and what it may have started just before is known at the end of this interval.
        3 => assert_eq!(owed(), 2),
        4 => assert_eq!(owed(), 1),
        _ => {}
    });
    let journal = Some(journal(&directory));
    let placing = policy(everyone_to(5));
    Herd::new(&mut world, placing)
        .journal(journal)
        .run(&GO)
        .unwrap();
}
