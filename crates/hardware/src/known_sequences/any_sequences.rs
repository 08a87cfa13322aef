//! Properties of any sequence of accesses, on any shape, and from several host threads at once.

use proptest::prelude::*;

use super::{NODE_BYTES, Program, config, machine};
use crate::{Cache, Config, Machine, Memory, Smt, Span};

#[test]
fn any_number_of_threads_may_use_one_machine() {
    let small = Cache {
        bytes: 64 << 10,
        ways: 16,
        hit_ns: 15.0,
    };
    let machine = machine(Config {
        llc: small,
        ..config()
    });
    let counts: Vec<_> = std::thread::scope(|scope| {
        let run = |core: usize| {
            let machine = &machine;
            scope.spawn(move || {
                let mut program = Program::on(machine, core);
                for step in 0..20_000u64 {
                    let shared = step * 4096 % (1 << 20);
                    program.access(shared, step % 16 == 0, None);
                    program.load((core as u64 % 4) * NODE_BYTES + (1 << 24) + step * 64);
                }
                program.core.counts().clone()
            })
        };
        let threads: Vec<_> = (0..8).map(run).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for counts in &counts {
        assert_eq!(counts.accesses, 40_000);
        assert_eq!(
            counts.dram_local + counts.dram_remote,
            counts.llc_miss + counts.prefetch
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any accesses on any shape, counts add up, and time never goes back.
    #[test]
    fn counts_add_up_and_time_only_grows(
        nodes in 1usize..17,
        cores_per_node in 1usize..5,
        in_flight_per_core in 1usize..12,
        with_prefetch: bool,
        with_l2: bool,
        with_siblings: bool,
        accesses in prop::collection::vec((0usize..64, 0u64..4096, any::<bool>(), 0u64..50), 1..600),
    ) {
        let mut config = Config::of_equal_nodes(cores_per_node, vec![vec![100.0; nodes]; nodes], 3.2);
        config.in_flight_per_core = in_flight_per_core;
        config.llc = Cache { bytes: 48 * 64, ways: 3, hit_ns: 15.0 };
        config.l1 = Cache { bytes: 8 * 64, ways: 2, hit_ns: 0.0 };
        config.l2 = with_l2.then_some(Cache { bytes: 16 * 64, ways: 4, hit_ns: 4.0 });
        if !with_prefetch {
            config.prefetch = None;
        }
        if with_siblings {
            let cores = cores_per_node.div_ceil(2);
            let core = |thread| thread / cores_per_node * cores + thread % cores_per_node / 2;
            let core_of_thread = (0..nodes * cores_per_node).map(core).collect();
            config.smt = Some(Smt { core_of_thread, throughput: 1.15 });
        }
        let bytes = 4096 * 64 / nodes as u64;
        let span = |node| {
            let start = node as u64 * bytes;
            Span { start, end: start + bytes, node }
        };
        let memory = Memory::new((0..nodes).map(span)).unwrap();
        let machine = Machine::new(config, memory).unwrap();
        let count = nodes * cores_per_node;
        let mut programs: Vec<_> =
            (0..count).map(|core| (Program::on(&machine, core), 0)).collect();
        for (core, line, store, gap) in accesses {
            let (program, before) = &mut programs[core % count];
            program.gap = gap;
            let value = (line % 3 == 0).then_some(line * 64 + 64);
            if let Some(fetch) = program.access(line * 64, store, value).and_then(|m| m.fetch) {
                prop_assert!(fetch.latency_ps >= 100_000 || fetch.prefetched);
                prop_assert!(fetch.issued_ps >= *before);
            }
            let now = program.core.now_ps(program.instructions);
            prop_assert!(now >= *before);
            *before = now;
        }
        for (program, _) in &programs {
            let counts = program.core.counts();
            prop_assert_eq!(counts.dram_local + counts.dram_remote, counts.llc_miss + counts.prefetch);
            prop_assert_eq!(counts.fetches_from.iter().sum::<u64>(), counts.llc_miss + counts.prefetch);
            prop_assert!(counts.llc_miss + counts.dirty_transfer <= counts.llc_access);
            prop_assert!(counts.llc_access + counts.outside_memory <= counts.accesses);
            prop_assert!(counts.stores <= counts.accesses);
        }
    }
}
