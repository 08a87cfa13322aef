//! A move that makes a thread slower is noticed, told from phases and from trades, and undone once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_herd::{Ending, Herd, Settings, Summary};
use numaherd_topology::CpuId;
use numaherd_world::{Placement, Snapshot, Thread};

use crate::fake::{Fake, machine, place, policy, thread};

const BILLION: f64 = 1e9;

/// Runs 30 intervals in which thread 1 is moved to node 1 in the tenth, and its speed and thread 2's
/// are as told, in billions of instructions per second: interval, whether thread 1 is on node 1.
fn run(
    settings: Settings,
    speeds: impl Fn(u64, bool) -> (f64, f64) + 'static,
) -> (Summary, Option<CpuId>) {
    let topology = machine(2, 4);
    let threads = vec![thread(1, 1, 0, &topology), thread(2, 2, 2, &topology)];
    let mut world = Fake::new(topology, threads).scripted(move |interval, world| {
        let moved = world.thread(1).cpu.0 >= 4;
        let (one, two) = speeds(interval, moved);
        let set = |thread: &mut Thread, speed: f64| {
            thread.counts.as_mut().unwrap().instructions = (speed * BILLION) as u64;
        };
        set(world.thread(1), one);
        set(world.thread(2), two);
    });
    world.ends_after = 30;
    let place_once = |snapshot: &Snapshot| -> Vec<Placement> {
        let to = match snapshot.sequence {
            0 => 0,
            9 => 5,
            _ => return Vec::new(),
        };
        vec![place(&snapshot.threads[0], to)]
    };
    let on = Arc::new(std::sync::Mutex::new(None));
    let seen = on.clone();
    let summary = Herd::new(&mut world, policy(place_once))
        .settings(settings)
        .watched(move |line| {
            if let numaherd_herd::Record::Snapshot(snapshot) = &line.record {
                *seen.lock().unwrap() = snapshot.threads[0].assigned;
            }
        })
        .run(&AtomicBool::new(false))
        .unwrap();
    assert_eq!(summary.ending, Ending::World);
    let last = *on.lock().unwrap();
    (summary, last)
}

#[test]
fn a_move_that_made_a_thread_slower_is_undone() {
    let (summary, on) = run(Settings::default(), |_, moved| {
        (if moved { 0.5 } else { 1.0 }, 1.0)
    });
    assert_eq!((summary.totals.thread_moves, summary.totals.undone), (2, 1));
    assert_eq!(on, Some(CpuId(0)));
    assert_eq!(
        summary.notices,
        [
            "thread 1 (t1): since its move to CPU 5 it runs 50 % fewer instructions per second of \
             CPU time, and all threads together run at 0.75 times their speed before; undone"
        ]
    );
}

#[test]
fn a_small_loss_is_not_undone() {
    let (summary, on) = run(Settings::default(), |_, moved| {
        (if moved { 0.75 } else { 1.0 }, 1.0)
    });
    assert_eq!(summary.totals.undone, 0);
    assert_eq!(on, Some(CpuId(5)));
}

#[test]
fn a_phase_of_the_workload_is_no_fault_of_the_move() {
    // Every other interval is slow by itself; from the move on all are.
    let (summary, _) = run(Settings::default(), |interval, moved| {
        let slow = moved || interval % 2 == 0;
        (if slow { 0.4 } else { 1.0 }, 1.0)
    });
    assert_eq!(summary.totals.undone, 0);
    assert!(summary.notices.is_empty());
}

#[test]
fn a_loss_that_buys_the_others_more_is_not_undone_but_said() {
    let (summary, on) = run(Settings::default(), |_, moved| {
        if moved { (0.5, 2.0) } else { (1.0, 1.0) }
    });
    assert_eq!(summary.totals.undone, 0);
    assert_eq!(on, Some(CpuId(5)));
    assert_eq!(summary.notices.len(), 1);
    assert!(summary.notices[0].ends_with("run at 1.25 times their speed before; not undone"));
}

#[test]
fn nothing_is_undone_when_that_is_turned_off() {
    let mut settings = Settings::default();
    settings.limits.worse.undo = false;
    let (summary, on) = run(settings, |_, moved| (if moved { 0.1 } else { 1.0 }, 1.0));
    assert_eq!(summary.totals.undone, 0);
    assert_eq!(on, Some(CpuId(5)));
}

#[test]
fn a_policy_that_insists_has_its_way() {
    let topology = machine(2, 4);
    let threads = vec![thread(1, 1, 0, &topology)];
    let mut world = Fake::new(topology, threads).scripted(|_, world| {
        let moved = world.thread(1).cpu.0 >= 4;
        let counts = world.thread(1).counts.as_mut().unwrap();
        counts.instructions = if moved { 100 } else { 1000 };
    });
    world.ends_after = 200;
    let insist = |snapshot: &Snapshot| {
        let to = if snapshot.sequence < 9 { 0 } else { 5 };
        let thread = &snapshot.threads[0];
        if thread.assigned == Some(CpuId(to)) {
            return Vec::new();
        }
        vec![place(thread, to)]
    };
    let herd = Herd::new(&mut world, policy(insist));
    let summary = herd.run(&AtomicBool::new(false)).unwrap();
    assert_eq!((summary.totals.thread_moves, summary.totals.undone), (3, 1));
    let refused = summary.totals.refusals[&numaherd_herd::Guard::Worse];
    assert_eq!(refused, 59, "undone at 15 s, it stays until 75 s");
}
