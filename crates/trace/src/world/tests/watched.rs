//! What can be seen: samples of every kind, hint faults, the IPM unit's notices and sharing.

use std::time::Duration;

use numaherd_topology::NodeId;
use numaherd_world::{MemorySource, PageOrder, Pages, Progress, Signal, SignalState, World};

use super::{PAGE, given, hardware, pager, process, thread, to_the_end, trace, walk, world};
use crate::Event;
use crate::world::{Analysis, Options, SampleEvery, TraceWorld};

fn on_node_3(pages: u64) -> Vec<(u64, u32)> {
    (0..pages).map(|page| (page, 3)).collect()
}

#[test]
fn memory_samples_come_every_so_many_accesses_or_misses() {
    let sampled = |every, pages: u64| {
        let options = Options {
            sample_every: every,
            ..given(&[0], &on_node_3(pages))
        };
        let mut world = world(vec![walk(0, pages, 10)], options);
        world.attend(&[Signal::MemorySamples]);
        let mut pager = pager(&mut world);
        let mut samples = Vec::new();
        while pager.run_for(Duration::from_micros(500)) == Progress::Ran {
            samples.extend(pager.samples().unwrap());
        }
        samples
    };
    // 4 pages of 64 lines, ten times; only the first time misses.
    let accesses = sampled(SampleEvery::Accesses(100), 4);
    assert!((25..=26).contains(&accesses.len()), "{}", accesses.len());
    let cached = |sample: &&numaherd_world::Sample| sample.source == MemorySource::Cache;
    assert!(accesses.iter().filter(cached).count() >= 22);
    let misses = sampled(SampleEvery::LlcMisses(1), 4);
    assert!(!misses.is_empty());
    for sample in &misses {
        assert_eq!(sample.source, MemorySource::RemoteMemory);
        assert_eq!((sample.node, sample.thread), (Some(NodeId(3)), thread(0)));
        // A line that the prefetcher had asked for has been on its way for a while.
        assert!(sample.latency.is_some_and(|cycles| cycles > 0));
        assert!(sample.address < 4 * PAGE);
    }
    assert!(misses[0].latency.is_some_and(|cycles| cycles >= 210));
    assert!(misses.is_sorted_by_key(|sample| sample.time_ns));
}

#[test]
fn requests_to_the_uncore_and_the_time_they_take_are_told_by_thread() {
    // 64 pages, more than the private caches and the last-level cache hold: all lines miss each time.
    let mut world = world(
        vec![walk(0, 64, 4), walk(64, 1, 4)],
        given(&[0, 2], &on_node_3(65)),
    );
    let dilation = Options::default().dilation;
    let (mut far, mut near) = ((0, 0, 0), (0, 0, 0));
    while world.run_for(Duration::from_micros(5)) == Progress::Ran {
        for seen in world.observe().unwrap().threads {
            let sum = if seen.id == thread(0) {
                &mut far
            } else {
                &mut near
            };
            let Some(counts) = seen.counts else { continue };
            // What it would have done in the loop's time.
            sum.0 += counts.uncore_requests.unwrap() / dilation;
            sum.1 += counts.lines / dilation;
            sum.2 += counts.uncore_busy_cycles.unwrap() / dilation;
        }
    }
    assert!(far.0 >= 4 * 64 * 64 / 2 && far.1 > 0, "{far:?}");
    // One page fits into the core's own caches; the last interval ends with its thread.
    assert!((32..=64).contains(&near.0), "{near:?}");
    assert!(far.2 > 0 && near.2 > 0, "{far:?} {near:?}");
}

#[test]
fn nothing_is_sampled_while_nobody_listens() {
    let mut world = world(vec![walk(0, 64, 10)], given(&[0], &on_node_3(64)));
    world.attend(&[Signal::TlbMisses]);
    let mut pager = pager(&mut world);
    world.run_for(Duration::from_micros(640));
    assert!(pager.samples().unwrap().is_empty() && pager.notices().is_empty());
    pager.run_for(Duration::from_micros(640));
    assert!(!pager.samples().unwrap().is_empty());
}

#[test]
fn tlb_misses_are_all_told() {
    let mut world = world(vec![walk(0, 64, 10)], given(&[0], &[]));
    world.attend(&[Signal::MemorySamples, Signal::TlbMisses]);
    let mut pager = pager(&mut world);
    let mut told = 0;
    while pager.run_for(Duration::from_millis(10)) == Progress::Ran {
        told += pager.samples().unwrap().len() as u64;
    }
    assert_eq!(told, 640, "64 pages do not fit into 16 entries");
    assert_eq!(world.figures().tlb.unwrap().counts.misses, 640);
}

#[test]
fn a_scan_has_each_page_fault_once_whoever_uses_it() {
    let run = |needs: &[Signal], hint_fault_ns| {
        let events = vec![
            [vec![Event::wake(1, 0)], walk(0, 4, 100)].concat(),
            walk(0, 4, 100),
        ];
        let mut options = given(&[0, 2], &[]);
        // A period is longer than the run's second half.
        (options.dilation, options.scan_period_ms) = (10_000, 1000);
        options.hint_fault_ns = hint_fault_ns;
        let mut world = world(events, options);
        world.attend(needs);
        let mut pager = pager(&mut world);
        let mut pages = Vec::new();
        while pager.run_for(Duration::from_millis(100)) == Progress::Ran {
            let samples = pager.samples().unwrap();
            pages.extend(samples.iter().map(|sample| sample.address / PAGE));
        }
        pages.sort_unstable();
        (pages, to_the_end(world))
    };
    let (pages, figures) = run(&[Signal::HintFaults], 1500);
    let scans = figures.hint_faults / 4;
    assert_eq!(figures.hint_faults, 4 * scans);
    assert!(scans >= 1, "{figures:?}");
    let expected: Vec<u64> = (0..4).flat_map(|page| vec![page; scans as usize]).collect();
    assert_eq!(pages, expected);
    let (_, none) = run(&[], 1500);
    assert_eq!(none.hint_faults, 0);
}

/// A thread on node 0 goes round 64 pages of node 3, which are moved where the unit says.
#[test]
fn the_unit_notices_pages_of_another_node_and_is_content_once_they_are_moved() {
    let run = |moves: bool| {
        let mut world = world(vec![walk(0, 64, 60)], given(&[0], &on_node_3(64)));
        world.attend(&[Signal::TlbResidency]);
        let mut pager = pager(&mut world);
        let mut noticed = 0;
        while pager.run_for(Duration::from_millis(10)) == Progress::Ran {
            for notice in pager.notices() {
                noticed += 1;
                assert_eq!((notice.from, notice.to), (NodeId(3), NodeId(0)));
                assert_eq!((notice.process, notice.thread), (process(), thread(0)));
                if moves {
                    pager.apply(&[PageOrder {
                        process: notice.process,
                        thread: notice.thread,
                        pages: Pages::Window {
                            first: notice.page,
                            count: 1,
                        },
                        to: notice.to,
                        rule: "test".into(),
                        why: String::new(),
                    }]);
                }
            }
        }
        (noticed, world.figures())
    };
    let (again_and_again, stayed) = run(false);
    let (once, moved) = run(true);
    assert_eq!(stayed.pages.right, 0);
    assert_eq!(moved.pages.right, 64);
    assert!(once < again_and_again, "{once} and {again_and_again}");
    assert!(moved.seconds < stayed.seconds);
    let unit = moved.unit.unwrap();
    assert!(
        unit.counts.evictions > 0 && unit.handled_share > 0.9,
        "{unit:?}"
    );
    assert!(unit.extra_access_share > 0.0);
}

#[test]
fn threads_that_share_pages_are_seen_to_by_the_unit_and_by_the_analysis() {
    // 0 and 1 share, 2 and 3 do, round and round.
    let events: Vec<Vec<Event>> = (0..4u64)
        .map(|thread| {
            let mut events = walk(thread / 2 * 1000, 48, 6);
            if thread == 0 {
                events.splice(0..0, (1..4).map(|other| Event::wake(other, 0)));
            }
            events
        })
        .collect();
    let analysis = Analysis::of(&trace(&events), PAGE).unwrap();
    let all = analysis.communication();
    assert_eq!(all[0], [0, 48 * 64 * 6, 0, 0]);
    assert_eq!(analysis.pages.len(), 96);
    assert_eq!(analysis.pages[0].by_thread, [(0, 384), (1, 384)]);
    assert_eq!(analysis.accesses, 4 * 48 * 64 * 6);

    let mut world = world(events, given(&[0, 2, 4, 6], &[]));
    world.attend(&[Signal::TlbResidency]);
    let mut seen = Vec::new();
    while world.run_for(Duration::from_millis(5)) == Progress::Ran {
        let snapshot = world.observe().unwrap();
        seen.extend(snapshot.processes.iter().filter_map(|p| p.sharing.clone()));
    }
    let sum = |one, other| -> u64 {
        let of = |sharing: &std::sync::Arc<numaherd_world::Sharing>| {
            sharing.between(thread(one), thread(other))
        };
        seen.iter().map(of).sum()
    };
    assert!(sum(0, 1) > 0 && sum(2, 3) > 0);
    assert_eq!((sum(0, 2), sum(1, 3)), (0, 0));
    let figures = world.figures();
    // No snapshot shows what was seen after the last.
    assert!(figures.sharing_seen[0][1] >= sum(0, 1));
    assert_eq!(figures.sharing_seen[0][1], figures.sharing_seen[1][0]);
}

#[test]
fn evictions_that_two_cores_deal_with_at_once_are_races() {
    let run = |races| {
        let events: Vec<Vec<Event>> = (0..4)
            .map(|thread| {
                // Page after page, so that evictions follow each other closely.
                let mut own: Vec<Event> = (0..20_000u64)
                    .map(|step| Event::load(step % 40 * PAGE, 8, 1))
                    .collect();
                if thread == 0 {
                    own.splice(0..0, (1..4).map(|other| Event::wake(other, 0)));
                }
                own
            })
            .collect();
        let mut options = given(&[0, 2, 4, 6], &[]);
        options.races = races;
        to_the_end(world(events, options)).unit.unwrap()
    };
    let (lost, kept) = (run(true), run(false));
    assert!(lost.races > 0 && kept.races > 0);
    assert!(lost.counts.evictions < kept.counts.evictions + kept.races);
}

#[test]
fn what_the_machine_has_not_is_missing_and_says_what_helps() {
    let mut without = hardware();
    without.config.tlb = None;
    let options = || Options {
        ipm: None,
        ..Options::default()
    };
    for (hardware, missing) in [(without, 2), (hardware(), 1)] {
        let world = TraceWorld::new(hardware, &trace(&[walk(0, 1, 1)]), options()).unwrap();
        let gone = world
            .signals()
            .iter()
            .filter(|report| matches!(report.state, SignalState::Missing { .. }));
        assert_eq!(gone.count(), missing);
        assert_eq!(to_the_end(world).unit, None);
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let refused = |options: Options| {
        TraceWorld::new(hardware(), &trace(&[walk(0, 1, 1)]), options)
            .unwrap_err()
            .to_string()
    };
    let loops = Options {
        loops: 0,
        ..Options::default()
    };
    assert_eq!(refused(loops), "loops is 0; it must be 1 or more");
    let said = refused(given(&[99], &[]));
    assert!(said.contains("CPU 99"), "{said}");
    let said = refused(given(&[0, 1], &[]));
    assert!(said.contains("2 threads"), "{said}");
    let said = refused(given(&[], &[(0, 9)]));
    assert!(said.contains("node 9"), "{said}");
    let nobody = TraceWorld::new(hardware(), &trace(&[]), Options::default());
    assert_eq!(nobody.unwrap_err().to_string(), "the trace has no threads");
}

#[test]
fn what_a_sleeper_left_in_a_tlb_is_credited_until_its_core_sleeps_deeply() {
    // Thread 1 walks a few pages, then sleeps for good; thread 0 works on elsewhere.
    let run = |milliseconds: u64| {
        let work = (0..milliseconds * 1000).map(|_| Event::filler(500));
        let events = vec![
            std::iter::once(Event::wake(1, 0)).chain(work).collect(),
            [vec![Event::filler(0)], walk(0, 8, 1), vec![Event::sleep(0)]].concat(),
        ];
        let world = world(events, given(&[0, 2], &[]));
        // Somebody outside the trace wakes it at the end.
        to_the_end(world).unit.unwrap().counts.infrequent
    };
    let (short, long, longer) = (run(1), run(4), run(16));
    assert!(short > 0);
    assert_eq!(long, longer, "8 pages, until 0.6 ms after the sleep began");
    assert!(short <= long);
}
