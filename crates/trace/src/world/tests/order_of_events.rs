//! Which thread runs when: sleeps and wakes, turns on a core, where threads begin, loops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::NodeId;
use numaherd_world::World;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    PAGE, given, hardware, process, thread, to_the_end, to_the_end_of, trace, walk, world,
};
use crate::Event;
use crate::world::{Analysis, Figures, Options, TraceWorld};

/// That many instructions, at 2 ns each.
fn work(instructions: u32) -> Event {
    Event::filler(instructions)
}

/// The same options without costs of the kernel's work.
fn free(mut options: Options) -> Options {
    (options.switch_ns, options.wake_ns) = (0, 0);
    options
}

/// Exact to the nanosecond.
fn in_microseconds(figures: &Figures) -> f64 {
    (figures.seconds * 1e9).round() / 1e3
}

fn microseconds(events: Vec<Vec<Event>>, options: Options) -> f64 {
    in_microseconds(&to_the_end(world(events, options)))
}

#[test]
fn threads_on_cores_of_their_own_run_at_once_and_on_one_core_in_turn() {
    let each = || vec![work(500), work(500)];
    // The second begins as soon as the first has woken it.
    let both = || vec![[vec![Event::wake(1, 0)], each()].concat(), each()];
    assert_eq!(microseconds(both(), free(given(&[0, 1], &[]))), 2.0);
    assert_eq!(microseconds(both(), free(given(&[0, 0], &[]))), 4.0);
}

#[test]
fn a_sleeping_thread_goes_on_when_it_is_woken_and_an_early_wake_is_remembered() {
    let waits = || vec![Event::sleep(0), work(100)];
    let late = vec![vec![work(1000), Event::wake(1, 0)], waits()];
    assert_eq!(microseconds(late, free(given(&[0, 1], &[]))), 2.2);
    let early = vec![
        vec![Event::wake(1, 0), work(10)],
        vec![Event::filler(0), work(1000), Event::sleep(0), work(100)],
    ];
    // The first wake makes the second thread; nobody wakes it again, so it is released.
    let figures = to_the_end(world(early, free(given(&[0, 1], &[]))));
    assert_eq!((in_microseconds(&figures), figures.released), (2.2, 1));
    let twice = vec![
        vec![Event::wake(1, 0), Event::wake(1, 0), work(10)],
        vec![Event::filler(0), work(1000), Event::sleep(0), work(100)],
    ];
    let figures = to_the_end(world(twice, free(given(&[0, 1], &[]))));
    assert_eq!((in_microseconds(&figures), figures.released), (2.2, 0));
}

#[test]
fn what_a_wake_and_a_switch_cost_is_charged() {
    let mut options = given(&[0, 0], &[]);
    (options.switch_ns, options.wake_ns) = (300, 700);
    let events = vec![
        vec![Event::wake(1, 0), Event::sleep(0), work(100)],
        vec![work(1000), Event::wake(0, 0)],
    ];
    // 0.7 to be woken, 0.3 for the switch, 2 of work; 0.7 and 0.3 again, 0.2.
    assert_eq!(microseconds(events, options), 4.2);
}

#[test]
fn threads_that_nobody_makes_begin_when_nobody_else_can_run() {
    let events = vec![vec![work(1000)], vec![work(500)], vec![work(500)]];
    assert_eq!(microseconds(events, free(given(&[0, 1, 2], &[]))), 3.0);
}

#[test]
fn turns_end_with_the_slice() {
    let mut options = free(given(&[0, 0], &[]));
    options.slice_ns = 20_000;
    let long = || (0..3200).map(|_| work(10)).collect::<Vec<_>>();
    let events = vec![[vec![Event::wake(1, 0)], long()].concat(), long()];
    let mut world = world(events, options);
    // 64 microseconds of each; half of the time is over.
    world.run_for(Duration::from_nanos(64_000 * 64));
    let snapshot = world.observe().unwrap();
    let shares: Vec<f64> = snapshot.threads.iter().map(|t| t.cpu_share).collect();
    assert!(
        shares.iter().all(|share| (0.35..0.66).contains(share)),
        "{shares:?}"
    );
    assert_eq!(in_microseconds(&to_the_end(world)), 128.0);
}

#[test]
fn new_threads_are_spread_over_nodes_then_cores_and_the_seed_decides_between_equals() {
    let placed = |seed| {
        let options = Options {
            seed,
            ..Options::default()
        };
        let threads = |number| {
            let mut events: Vec<Event> = (number == 0)
                .then(|| (1..8).map(|other| Event::wake(other, 0)))
                .into_iter()
                .flatten()
                .collect();
            events.push(work(1_000_000));
            events.push(Event::load(0, 8, 1));
            events
        };
        let mut world = world((0..8).map(threads).collect(), options);
        world.run_for(Duration::from_micros(640));
        let topology = world.topology().clone();
        let snapshot = world.observe().unwrap();
        let node = |number: u32| {
            let cpu = snapshot.thread(thread(number)).unwrap().cpu;
            topology.node_of(cpu).unwrap()
        };
        let cpus: BTreeSet<_> = snapshot.threads.iter().map(|t| t.cpu).collect();
        assert_eq!(cpus.len(), 8, "each has a CPU of its own");
        let nodes: BTreeSet<NodeId> = (0..4).map(node).collect();
        assert_eq!(nodes.len(), 4, "the first four have nodes of their own");
        (0..8).map(node).collect::<Vec<_>>()
    };
    assert_eq!(placed(1), placed(1));
    assert!((2..10).any(|seed| placed(seed) != placed(1)));
}

#[test]
fn a_loop_plays_everything_again_with_pages_and_threads_where_they_are() {
    let options = |loops| Options {
        loops,
        ..given(&[0, 2], &[])
    };
    let events = || {
        vec![
            [walk(0, 32, 1), vec![Event::wake(1, 1), Event::sleep(1)]].concat(),
            [
                vec![Event::sleep(0)],
                walk(0, 32, 1),
                vec![Event::wake(0, 1)],
            ]
            .concat(),
        ]
    };
    let once = to_the_end(world(events(), options(1)));
    let thrice = to_the_end(world(events(), options(3)));
    assert_eq!(thrice.instructions, 3 * once.instructions);
    assert_eq!((thrice.accesses, thrice.loops), (3 * once.accesses, 3));
    assert_eq!((thrice.pages.touched, thrice.released), (32, 0));
    assert!(thrice.seconds < 3.0 * once.seconds, "caches are warm");
    assert!(thrice.seconds > once.seconds);
}

#[test]
fn who_only_makes_the_others_and_waits_is_played_once() {
    let events = |loops| {
        // It makes two threads, and wakes them once both exist.
        let maker = [1, 2, 1, 2].map(|worker| Event::wake(worker, 1));
        let maker = [maker.to_vec(), vec![Event::sleep(1)]].concat();
        let waits = || vec![Event::sleep(0), Event::sleep(0)];
        let worker = |wakes: Vec<Event>| [waits(), walk(0, 16, 1), wakes].concat();
        let options = Options {
            loops,
            ..given(&[0, 2, 4], &[])
        };
        let workers = [worker(vec![Event::wake(0, 1)]), worker(Vec::new())];
        let all = [vec![maker], workers.to_vec()].concat();
        to_the_end(world(all, options))
    };
    let (once, twice) = (events(1), events(2));
    assert_eq!(twice.accesses, 2 * once.accesses);
    // Five instructions of the maker and none of its second time.
    assert_eq!(twice.instructions, 2 * once.instructions - 5);
    assert!(twice.seconds < 1.9 * once.seconds, "both begin at once");
    assert_eq!((twice.loops, twice.released), (2, 0));
}

/// A maker that makes two threads and wakes them once both have set up: each walks through its first pages and then
/// through its others.
fn with_set_up() -> Vec<Vec<Event>> {
    let maker = [
        vec![Event::wake(1, 1), Event::wake(2, 1)],
        vec![Event::sleep(1), Event::sleep(1)],
        vec![Event::wake(1, 1), Event::wake(2, 1)],
    ];
    let worker = |first| {
        let set_up = [vec![Event::sleep(0)], walk(first, 24, 1)].concat();
        let is_ready = vec![Event::wake(0, 0), Event::sleep(0)];
        [set_up, is_ready, walk(first + 24, 8, 2)].concat()
    };
    vec![maker.concat(), worker(0), worker(100)]
}

#[test]
fn what_comes_before_all_are_released_is_played_once() {
    let played = |loops| {
        let options = Options {
            loops,
            ..given(&[4, 0, 2], &[])
        };
        let mut world = world(with_set_up(), options);
        let figures = to_the_end_of(&mut world);
        (figures, world.set_up())
    };
    let ((once, set_up), (thrice, same)) = (played(1), played(3));
    let lines = PAGE / 64;
    assert_eq!(once.accesses, 2 * (24 + 16) * lines);
    assert_eq!(thrice.accesses, once.accesses + 2 * 2 * 16 * lines);
    assert_eq!((thrice.released, thrice.loops), (0, 3));
    assert_eq!(set_up, same);
    assert!(set_up.is_known());
    assert!(set_up.seconds() > 0.0 && set_up.seconds() < once.seconds);
    let after = Analysis::after(&trace(&with_set_up()), PAGE, &set_up).unwrap();
    assert_eq!(after.accesses, 2 * 16 * lines);
    let pages: Vec<u64> = after.pages.iter().map(|used| used.page).collect();
    assert_eq!(pages, (24..32).chain(124..132).collect::<Vec<u64>>());
}

#[test]
fn a_wake_from_before_the_waker_s_place_ends_a_sleep_behind_the_sleeper_s() {
    // The maker wakes both when the first is ready. The second is still at work then: its place is at its next sleep,
    // behind its wake of the first.
    let events = || {
        let maker = vec![
            Event::wake(1, 0),
            Event::wake(2, 0),
            Event::sleep(0),
            Event::wake(1, 0),
            Event::wake(2, 0),
        ];
        let first = [
            vec![Event::sleep(0), Event::wake(0, 0), Event::sleep(0)],
            vec![work(1000), Event::sleep(0), work(1000)],
            vec![Event::wake(2, 0)],
        ];
        let second = [
            vec![Event::sleep(0)],
            // In pieces, so that the maker is not left behind.
            vec![work(1); 800],
            vec![Event::wake(1, 0), Event::sleep(0)],
            vec![work(500), Event::sleep(0), work(1000)],
        ];
        vec![maker, first.concat(), second.concat()]
    };
    let played = |loops| {
        let options = Options {
            loops,
            ..given(&[4, 0, 2], &[])
        };
        to_the_end(world(events(), free(options)))
    };
    let (once, thrice) = (played(1), played(3));
    assert_eq!((once.released, thrice.released), (0, 0));
    // The first works twice, and the second after it.
    assert_eq!(in_microseconds(&once), 6.0);
    assert_eq!(in_microseconds(&thrice), 18.0);
}

/// Microseconds that `loops` loops take, of threads on cores of their own, and how often somebody outside the trace
/// released one. The trace must show where set-up ends.
fn with_known_set_up(events: &[Vec<Event>], loops: u32) -> (f64, u64) {
    let options = Options {
        loops,
        ..given(&[4, 0, 2], &[])
    };
    let mut world = world(events.to_vec(), free(options));
    let figures = to_the_end_of(&mut world);
    assert!(world.set_up().is_known());
    (in_microseconds(&figures), figures.released)
}

#[test]
fn a_worker_that_needed_no_wake_is_released_with_the_others_though_it_sleeps_again() {
    let maker = vec![
        Event::wake(1, 0),
        Event::wake(2, 0),
        Event::sleep(0),
        Event::wake(1, 0),
    ];
    let first = vec![
        Event::sleep(0),
        work(1000),
        Event::wake(0, 0),
        Event::sleep(0),
        work(700),
        Event::wake(2, 0),
        work(300),
    ];
    // Late in the recording, so that it did not sleep before it went on; early here: it waits for the first again when
    // the maker wakes that one.
    let second = vec![Event::sleep(0), work(100), Event::sleep(0), work(500)];
    let events = [maker, first, second];
    let played = |loops| with_known_set_up(&events, loops);
    // The first sets up for 2 us; it works for 1.4 us then, and the second for 1 us after that.
    assert_eq!(played(1), (4.4, 0));
    assert_eq!(played(3), (2.0 + 3.0 * 2.4, 0));
}

#[test]
fn a_wake_that_made_a_thread_ends_no_other_sleep_of_it_in_later_loops() {
    let maker = || vec![Event::wake(1, 0), work(1000), Event::wake(1, 0), work(1000)];
    let made = || vec![Event::sleep(0), Event::sleep(0), work(2000)];
    let played = |loops| {
        let options = Options {
            loops,
            ..given(&[0, 2], &[])
        };
        microseconds(vec![maker(), made()], free(options))
    };
    assert_eq!((played(1), played(3)), (6.0, 18.0));
}

/// That many instructions, in pieces, so that no core runs far ahead of the others.
fn in_pieces(instructions: usize) -> Vec<Event> {
    vec![work(1); instructions]
}

/// A round of three workers: each executes its number of instructions, and then one wakes the two others, which sleep
/// until then.
type Round = (usize, [usize; 3]);

/// A maker that makes three workers, and releases all of them when one of them has set up, in these rounds.
fn fork_join(ready: usize, set_up: &[Round], rounds: &[Round]) -> Vec<Vec<Event>> {
    let wake = |worker: usize| Event::wake(worker as u32 + 1, 0);
    let all = || (0..3).map(wake);
    let maker = all().chain([Event::sleep(0)]).chain(all()).collect();
    let part = |number: usize, rounds: &[Round]| {
        let mut events = Vec::new();
        for &(last, works) in rounds {
            events.extend(in_pieces(works[number]));
            match number == last {
                true => events.extend((0..3).filter(|&other| other != last).map(wake)),
                false => events.push(Event::sleep(0)),
            }
        }
        events
    };
    let worker = |number: usize| {
        let says = vec![Event::wake(0, 0); usize::from(number == ready)];
        let waits = || vec![Event::sleep(0)];
        let (before, after) = (part(number, set_up), part(number, rounds));
        [waits(), before, says, waits(), after, in_pieces(100)].concat()
    };
    [vec![maker], (0..3).map(worker).collect()].concat()
}

proptest! {
    #[test]
    fn no_thread_waits_longer_in_later_loops(
        ready in 0..3_usize,
        set_up in vec((0..3_usize, [1..600_usize, 1..600, 1..600]), 1..3),
        rounds in vec((0..3_usize, [1..400_usize, 1..400, 1..400]), 1..6),
    ) {
        let played = |loops| {
            let options = Options {
                loops,
                // A piece: a wake by a core that is ahead of the others can come late.
                quantum_ns: 2,
                ..given(&[6, 0, 2, 4], &[])
            };
            to_the_end(world(fork_join(ready, &set_up, &rounds), free(options)))
        };
        let (once, thrice) = (played(1), played(3));
        prop_assert_eq!((once.released, thrice.released), (0, 0));
        let nanoseconds = |figures: &Figures| (figures.seconds * 1e9).round() as u64;
        prop_assert!(nanoseconds(&thrice) <= 3 * nanoseconds(&once));
    }
}

#[test]
fn a_worker_that_wakes_another_before_their_maker_does_is_not_its_maker() {
    let making = [
        vec![Event::wake(1, 0)],
        in_pieces(1000),
        vec![Event::wake(2, 0), Event::sleep(0)],
        vec![Event::wake(1, 0), Event::wake(2, 0)],
    ];
    let first = [
        vec![Event::sleep(0)],
        in_pieces(100),
        vec![Event::wake(2, 0)],
        in_pieces(1900),
        vec![Event::wake(0, 0), Event::sleep(0), work(100_000)],
    ];
    let sleeps = || vec![Event::sleep(0)];
    let second = [
        sleeps(),
        in_pieces(100),
        sleeps(),
        sleeps(),
        in_pieces(100_000),
    ];
    let events = [making.concat(), first.concat(), second.concat()];
    let played = |loops| with_known_set_up(&events, loops);
    assert_eq!((played(1), played(3)), ((204.0, 0), (604.0, 0)));
}

#[test]
fn whole_loops_are_played_until_enough_time_has_passed_after_the_first_and_counted_without_it() {
    let played = |loops, again_ms| {
        let options = Options {
            loops,
            again_ms,
            dilation: 1000,
            ..given(&[4, 0, 2], &[])
        };
        let mut world = world(with_set_up(), options);
        assert_eq!(world.figures_again(), None);
        let figures = to_the_end_of(&mut world);
        (figures, world.figures_again().unwrap())
    };
    let ((once, none), (twice, second)) = (played(1, 0), played(2, 0));
    assert_eq!((none.loops, none.accesses, none.seconds), (0, 0, 0.0));
    assert_eq!(second.accesses, twice.accesses - once.accesses);
    assert_eq!(second.seconds, twice.seconds - once.seconds);
    let parts = [none.lines.local, second.lines.local, once.lines.local];
    assert_eq!(
        parts,
        [
            0,
            twice.lines.local - once.lines.local,
            twice.lines.local - second.lines.local
        ]
    );
    // A second and a half of the loops after the first.
    let loop_ms = (second.seconds * 1e6) as u64;
    let (all, again) = played(1, loop_ms * 3 / 2);
    assert_eq!((all.loops, again.loops), (3, 2));
    assert_eq!(again.accesses, 2 * second.accesses);
}

#[test]
fn set_up_is_not_known_where_a_worker_makes_the_others() {
    let mut events = with_set_up();
    events[0].extend(walk(200, 8, 2));
    let mut world = world(events, given(&[4, 0, 2], &[]));
    to_the_end_of(&mut world);
    assert!(!world.set_up().is_known());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let events = (0..6).map(|t| walk(t % 3 * 16, 64, 2)).collect();
        to_the_end(world(events, Options::default()))
    };
    assert_eq!(run(), run());
}

/// Four threads: one in `one_in` accesses of each goes anywhere in what all share; with the others it walks through
/// pages of its own.
fn sharers(one_in: u64) -> Vec<Vec<Event>> {
    let events = |thread: u64| {
        let mut at = thread;
        let accesses = (0..40_000u64).map(|step| {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let address = if step % one_in == 0 {
                (at >> 33) % (256 * 4096) / 8 * 8
            } else {
                (1000 + thread * 100) * 4096 + step * 8 % (64 * 4096)
            };
            if at >> 63 == 0 {
                Event::load(address, 8, 3)
            } else {
                Event::store(address, 8, 3)
            }
        });
        let wakes = (1..4).map(|other| Event::wake(other, 0));
        let wakes = wakes.filter(|_| thread == 0);
        wakes.chain(accesses).collect()
    };
    (0..4).map(events).collect()
}

/// How finely cores are interleaved should be seen in no figure. Time is most sensitive: where every
/// access waits for a link that all use, a core that is ahead takes what others ask for first.
#[test]
fn how_far_a_core_may_be_ahead_hardly_matters() {
    let figures = |one_in, quantum_ns| {
        let options = Options {
            quantum_ns,
            ..given(&[0, 2, 4, 6], &[])
        };
        to_the_end(world(sharers(one_in), options))
    };
    let usual = Options::default().quantum_ns;
    for (one_in, most) in [(1, 0.08), (20, 0.02)] {
        let (fine, coarse) = (figures(one_in, usual / 10), figures(one_in, usual));
        let ratio = |a: f64, b: f64| (a / b - 1.0).abs();
        let off = ratio(coarse.seconds, fine.seconds);
        assert!(off < most, "one in {one_in}: time is off by {off}");
        let dropped = |figures: &Figures| figures.caches.invalidations as f64;
        let off = ratio(dropped(&coarse), dropped(&fine));
        assert!(
            off < 0.02,
            "one in {one_in}: invalidations are off by {off}"
        );
        let off = ratio(coarse.interchip_bytes as f64, fine.interchip_bytes as f64);
        assert!(off < 0.02, "one in {one_in}: traffic is off by {off}");
    }
}

#[test]
fn threads_that_have_ended_are_seen_no_more() {
    let events = vec![
        vec![Event::wake(1, 0), work(100)],
        vec![work(10_000), Event::load(0, 1, 1)],
    ];
    let mut world = TraceWorld::new(hardware(), &trace(&events), given(&[0, 1], &[])).unwrap();
    world.run_for(Duration::from_nanos(64 * 100));
    assert_eq!(world.observe().unwrap().threads.len(), 2);
    world.run_for(Duration::from_nanos(64 * 1000));
    let snapshot = world.observe().unwrap();
    assert_eq!(snapshot.threads.len(), 1);
    assert_eq!(snapshot.threads[0].id, thread(1));
    assert_eq!(snapshot.processes[0].id, process());
    world.run_for(Duration::from_secs(1));
    assert!(world.observe().unwrap().threads.is_empty());
}

#[test]
fn a_tick_has_an_idle_core_take_a_thread_that_waits_for_another() {
    let long = |instructions: u32| {
        (0..1000)
            .map(|_| work(instructions / 1000))
            .collect::<Vec<_>>()
    };
    // Ten ms of each, both on CPU 0 at first; nothing ever ends or wakes on the others.
    let events = vec![
        [vec![Event::wake(1, 0)], long(5_000_000)].concat(),
        long(5_000_000),
    ];
    let pinned = microseconds(events.clone(), free(given(&[0, 0], &[])));
    assert_eq!(pinned, 20_000.0);
    let freed = |dilation| {
        let options = Options {
            dilation,
            ..free(given(&[0, 0], &[]))
        };
        let mut world = world(events.clone(), options);
        world.run_for(Duration::from_micros(dilation));
        let anywhere = Arc::new(world.topology().online_cpus());
        // Its mask lets it go.
        world.engine().threads[1].affinity = anywhere;
        in_microseconds(&to_the_end(world))
    };
    // Turns are of 3 ms: it runs at the tick of 4 ms, and waits at that of 8 ms, with 7 ms to go.
    let undiluted = freed(1);
    assert!((15_000.0..=15_400.0).contains(&undiluted), "{undiluted}");
    // Ticks are of the loop's time: it waits at the first, after 63 us, with all of its 10 ms to go.
    let diluted = freed(64);
    assert!((10_000.0..=10_400.0).contains(&diluted), "{diluted}");
}
