//! Exact costs and counts of known sequences of accesses, on machines with known figures.
//!
//! Unless a test says otherwise: 1 ns an instruction, a window of 10 instructions, two cores on
//! each of four nodes in a ring (90 / 150 / 210 ns), one controller line in 20 ns, last-level
//! hits at 15 ns, no prefetcher.

mod any_sequences;
mod known_hits;
mod prefetched;
mod residency;
mod siblings;
mod streams;
mod translations;

use numaherd_topology::Link;

use crate::{Access, Cache, Config, Core, Detail, Machine, Memory, Miss, Prefetch, Span};

const NS: u64 = 1000;
const NODE_BYTES: u64 = 256 << 20;

fn config() -> Config {
    let hops = |a: usize, b: usize| (a.abs_diff(b)).min(4 - a.abs_diff(b));
    let latency = |a, b| 90.0 + 60.0 * hops(a, b) as f64;
    let latency_ns = (0..4)
        .map(|a| (0..4).map(|b| latency(a, b)).collect())
        .collect();
    Config {
        picoseconds_per_instruction: 1000,
        reorder_window_instructions: 10,
        prefetch: None,
        ..Config::of_equal_nodes(2, latency_ns, 3.2)
    }
}

fn machine(config: Config) -> Machine {
    let span = |node| {
        let start = node as u64 * NODE_BYTES;
        Span {
            start,
            end: start + NODE_BYTES,
            node,
        }
    };
    Machine::new(config, Memory::new((0..4).map(span)).unwrap()).unwrap()
}

/// A core that makes one access after another, `gap` instructions apart.
struct Program<'a> {
    machine: &'a Machine,
    number: usize,
    core: Core,
    instructions: u64,
    gap: u64,
}

impl<'a> Program<'a> {
    fn on(machine: &'a Machine, core: usize) -> Self {
        Self {
            machine,
            number: core,
            core: Core::new(machine, core),
            instructions: 0,
            gap: 1,
        }
    }

    fn access(&mut self, address: u64, store: bool, value: Option<u64>) -> Option<Miss> {
        self.instructions += self.gap;
        let instructions = self.instructions;
        let access = Access {
            virtual_address: address,
            physical_address: address,
            store,
        };
        self.core.access(self.machine, access, || Detail {
            instructions,
            value,
        })
    }

    /// A load whose value no later access depends on.
    fn load(&mut self, address: u64) -> Option<Miss> {
        self.access(address, false, None)
    }

    fn store(&mut self, address: u64) -> Option<Miss> {
        self.access(address, true, None)
    }

    /// Loads each address as if the previous load had returned it. Returns the time per load, in
    /// picoseconds.
    fn chase(&mut self, addresses: &[u64]) -> u64 {
        let before = self.settled_ps();
        for (index, &address) in addresses.iter().enumerate() {
            let next = addresses[(index + 1) % addresses.len()];
            self.access(address, false, Some(next));
        }
        let stalled = self.settled_ps() - before;
        stalled / addresses.len() as u64 + self.gap * NS
    }

    /// Total time waited once all requests have arrived, in picoseconds.
    fn settled_ps(&mut self) -> u64 {
        self.instructions += 100_000;
        self.core.now_ps(self.instructions) - self.instructions * NS
    }
}

/// Lines far apart on one node, no two in a row.
fn scattered(node: u64, count: u64) -> Vec<u64> {
    (0..count)
        .map(|i| node * NODE_BYTES + (i * 7919 % 65_536) * 4096 / 4 * 64 % NODE_BYTES)
        .collect()
}

#[test]
fn a_first_level_hit_costs_nothing_beyond_its_instruction() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    assert!(program.load(4096).is_some());
    assert_eq!(program.load(4096 + 63), None);
    assert_eq!(program.core.counts().accesses, 2);
    assert_eq!(program.core.counts().llc_access, 1);
}

#[test]
fn a_miss_costs_its_latency_less_what_the_window_hides() {
    for (node, latency) in [(0, 90), (1, 150), (2, 210), (3, 150)] {
        let machine = machine(config());
        let mut program = Program::on(&machine, 0);
        let fetch = program.load(node * NODE_BYTES).unwrap().fetch.unwrap();
        assert_eq!(fetch.latency_ps, latency * NS);
        assert_eq!(fetch.node as u64, node);
        assert_eq!(fetch.remote, node != 0);
        assert_eq!(program.settled_ps(), (latency - 10) * NS);
    }
}

#[test]
fn a_chase_takes_exactly_the_configured_latency_a_step() {
    for (node, latency) in [(0, 90), (1, 150), (2, 210), (3, 150)] {
        let machine = machine(config());
        let mut program = Program::on(&machine, 0);
        let took = program.chase(&scattered(node, 10_000));
        // The window hides part of the very last one.
        assert_eq!(took, latency * NS - NS / 1000);
    }
}

#[test]
fn a_chase_in_the_last_level_cache_takes_its_hit_time() {
    let machine = machine(config());
    let lines: Vec<u64> = (0..8192).map(|i| i * 5 % 8192 * 64).collect();
    let mut program = Program::on(&machine, 0);
    program.chase(&lines);
    let misses = program.core.counts().llc_miss;
    assert_eq!(misses, 8192);
    assert_eq!(program.chase(&lines).div_ceil(10), 15 * NS / 10);
    assert_eq!(
        program.core.counts().llc_miss,
        misses,
        "512 KiB stay in 2 MiB"
    );
}

#[test]
fn a_second_level_cache_stands_between() {
    let l2 = Some(Cache {
        bytes: 256 << 10,
        ways: 8,
        hit_ns: 4.0,
    });
    let machine = machine(Config { l2, ..config() });
    let lines: Vec<u64> = (0..2048).map(|i| i * 5 % 2048 * 64).collect();
    let mut program = Program::on(&machine, 0);
    program.chase(&lines);
    let counts = program.core.counts().clone();
    program.chase(&lines);
    assert_eq!(
        program.core.counts().llc_access,
        counts.llc_access,
        "128 KiB stay in 256 KiB"
    );
    assert_eq!(program.chase(&lines).div_ceil(10), 4 * NS / 10);
}

#[test]
fn requests_and_the_time_outstanding_are_those_that_leave_the_private_caches() {
    let l2 = Some(Cache {
        bytes: 256 << 10,
        ways: 8,
        hit_ns: 4.0,
    });
    let machine = machine(Config { l2, ..config() });
    let mut program = Program::on(&machine, 0);
    let far = |i: u64| 2 * NODE_BYTES + i * 5 % 2048 * 64;
    let far: Vec<u64> = (0..2048).map(far).collect();
    program.chase(&far);
    let (requests, time) = (
        program.core.counts().uncore_requests(),
        program.core.outstanding_ps(),
    );
    assert_eq!(requests, 2048);
    assert_eq!(time, 2048 * 210 * NS, "one latency each");
    program.chase(&far);
    assert_eq!(program.core.counts().uncore_requests(), requests);
    assert_eq!(program.core.outstanding_ps(), time, "level 2 answers");
}

#[test]
fn the_right_to_write_a_line_is_asked_for_outside() {
    let machine = machine(config());
    let (mut writer, mut reader) = (Program::on(&machine, 0), Program::on(&machine, 2));
    writer.load(0);
    reader.load(0);
    let asked = |program: &Program<'_>| {
        (
            program.core.counts().uncore_requests(),
            program.core.outstanding_ps(),
        )
    };
    let before = asked(&writer);
    writer.access(0, true, None);
    let after = asked(&writer);
    assert_eq!(writer.core.counts().upgrade, 1);
    assert_eq!(after.0, before.0 + 1);
    assert!(after.1 > before.1, "{after:?} after {before:?}");
}

#[test]
fn two_chases_in_one_thread_overlap() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    let (one, other) = (scattered(0, 1000), scattered(1, 1000));
    for index in 0..999 {
        program.access(one[index], false, Some(one[index + 1]));
        program.access(other[index], false, Some(other[index + 1]));
    }
    let took = program.settled_ps() + 2 * 999 * NS;
    assert!(
        (149 * 999 * NS..151 * 1000 * NS).contains(&took),
        "the slower one alone: {took}"
    );
}

#[test]
fn independent_misses_overlap_up_to_the_limits() {
    // Wide controllers; eight instructions between misses, so a window of 40 holds five.
    let wide = |in_flight_per_core, reorder_window_instructions| Config {
        controller_gb_per_s: vec![640.0; 4],
        in_flight_per_core,
        reorder_window_instructions,
        ..config()
    };
    for (limit, window, at_once) in [
        (100, 40, 5),
        (4, 10_000, 4),
        (1, 10_000, 1),
        (10, 10_000, 10),
    ] {
        let machine = machine(wide(limit, window));
        let mut program = Program::on(&machine, 0);
        program.gap = 8;
        for &address in &scattered(0, 10_000) {
            program.load(address);
        }
        let took = program.settled_ps() + 10_000 * 8 * NS;
        let each = took as f64 / 10_000.0;
        // A miss each 8 ns is the most that the instructions allow.
        let expected = (90_000.0 / f64::from(at_once)).max(8_000.0);
        let share = each / expected;
        assert!(
            (0.98..1.15).contains(&share),
            "{limit} {window}: {each} ps, expected {expected}"
        );
    }
}

#[test]
fn a_walk_misses_exactly_once_a_line() {
    for prefetch in [
        None,
        Some(Prefetch {
            streams: 16,
            depth_lines: 16,
        }),
    ] {
        let machine = machine(Config {
            prefetch,
            ..config()
        });
        let mut program = Program::on(&machine, 0);
        for _ in 0..2 {
            for address in (0..32 << 20).step_by(64) {
                program.load(address);
            }
        }
        let counts = program.core.counts();
        assert_eq!(counts.llc_miss + counts.prefetch, 1_048_576);
        assert_eq!(counts.dram_local, 1_048_576);
        // The first line of each page is fetched on demand, and another in each pass to detect the stream.
        let on_demand = if prefetch.is_some() {
            16_384 + 2
        } else {
            1_048_576
        };
        assert_eq!(counts.llc_miss, on_demand);
    }
}

#[test]
fn prefetching_hides_latency_up_to_the_bandwidth() {
    // 8-byte loads, two instructions each: 16 ns of work a line.
    let stream = |prefetch, gb_per_s: f64| {
        let controller_gb_per_s = vec![gb_per_s; 4];
        let machine = machine(Config {
            prefetch,
            controller_gb_per_s,
            ..config()
        });
        let mut program = Program::on(&machine, 0);
        program.gap = 2;
        let bytes = 8 << 20;
        for address in (0..bytes).step_by(8) {
            program.load(address);
        }
        let work = bytes / 8 * 2 * NS;
        (program.settled_ps() + work) as f64 / (bytes / 64) as f64 / 1000.0
    };
    let prefetch = Some(Prefetch {
        streams: 16,
        depth_lines: 16,
    });
    let without = stream(None, 64.0);
    assert!(
        (95.0..97.0).contains(&without),
        "90 ns less the window, plus the work: {without}"
    );
    let hidden = stream(prefetch, 64.0);
    assert!(
        (16.0..19.0).contains(&hidden),
        "but for the start of each page: {hidden}"
    );
    let starved = stream(prefetch, 1.6);
    assert!(
        (39.9..41.0).contains(&starved),
        "64 bytes at 1.6 GB/s take 40 ns: {starved}"
    );
}

/// Lets chases run side by side, each core in order of time, and returns ns per load of each.
fn side_by_side(machine: &Machine, cores: &[usize], node: u64, loads: usize) -> Vec<f64> {
    let mut programs: Vec<_> = cores
        .iter()
        .map(|&core| {
            let lines: Vec<u64> = scattered(node, 16_384)
                .iter()
                .map(|line| line ^ (core as u64 * 64))
                .collect();
            (Program::on(machine, core), lines, 0, 0)
        })
        .collect();
    for _ in 0..loads * cores.len() {
        let (program, lines, at, time) = programs
            .iter_mut()
            .min_by_key(|(_, _, _, time)| *time)
            .unwrap();
        let value = Some(lines[(*at + 1) % lines.len()]);
        program.access(lines[*at % lines.len()], false, value);
        *at += 1;
        *time = program.core.now_ps(program.instructions);
    }
    let each = |(_, _, at, time): &(_, _, usize, u64)| *time as f64 / *at as f64 / 1000.0;
    programs.iter().map(each).collect()
}

#[test]
fn a_saturated_controller_makes_demand_fit_capacity() {
    let small = Cache {
        bytes: 64 << 10,
        ways: 16,
        hit_ns: 15.0,
    };
    let machine = || {
        machine(Config {
            llc: small,
            ..config()
        })
    };
    let all: Vec<usize> = (0..8).collect();
    let crowded = side_by_side(&machine(), &all, 0, 20_000);
    let lines_per_ns: f64 = crowded.iter().map(|ns| 1.0 / ns).sum();
    assert!(
        (lines_per_ns * 20.0 - 1.0).abs() < 0.01,
        "one line in 20 ns in all: {crowded:?}"
    );
    for alone in side_by_side(&machine(), &[0], 0, 20_000) {
        assert!((alone - 90.0).abs() < 0.1, "{alone}");
    }
}

#[test]
fn each_direction_of_a_link_is_a_bottleneck_of_its_own() {
    let link = |from, to| Link {
        from,
        to,
        gb_per_s: 1.28,
    };
    let links: Vec<Link> = (0..4)
        .flat_map(|n| [link(n, (n + 1) % 4), link((n + 1) % 4, n)])
        .collect();
    let small = Cache {
        bytes: 64 << 10,
        ways: 16,
        hit_ns: 15.0,
    };
    let machine = || {
        let controller_gb_per_s = vec![640.0; 4];
        machine(Config {
            links: links.clone(),
            llc: small,
            controller_gb_per_s,
            ..config()
        })
    };
    let rate = |times: &[f64]| times.iter().map(|ns| 50.0 / ns).sum::<f64>();
    // 64 bytes at 1.28 GB/s are 50 ns. Four cores: two on node 1 and two on node 2 read node 0;
    // node 2's lines come through node 1, and share its link.
    let crowded = side_by_side(&machine(), &[2, 3, 4, 5], 0, 10_000);
    let rate_in = rate(&crowded);
    assert!(
        (rate_in - 1.0).abs() < 0.02,
        "one line in 50 ns: {crowded:?}"
    );
    // Cores on nodes 1 and 3 read node 0 over different links.
    let apart = side_by_side(&machine(), &[2, 6], 0, 10_000);
    assert!(apart.iter().all(|ns| (ns - 150.0).abs() < 1.0), "{apart:?}");
}

#[test]
fn dirty_lines_cost_a_write_back_when_they_fall_out() {
    let small = Cache {
        bytes: 64 << 10,
        ways: 16,
        hit_ns: 15.0,
    };
    let machine = machine(Config {
        llc: small,
        ..config()
    });
    let mut program = Program::on(&machine, 0);
    let lines = 10_000;
    for line in 0..lines {
        program.store(NODE_BYTES + line * 64);
    }
    let counts = program.core.counts();
    assert_eq!(counts.stores, lines);
    assert_eq!(
        counts.llc_miss, lines,
        "a line is read before it is written"
    );
    assert_eq!(
        counts.writeback,
        lines - 1024,
        "all but what the cache holds"
    );
    assert_eq!(counts.dram_remote, lines);
}

#[test]
fn a_line_that_is_read_and_then_written_is_written_back_once() {
    let small = Cache {
        bytes: 64 << 10,
        ways: 16,
        hit_ns: 15.0,
    };
    let machine = machine(Config {
        llc: small,
        ..config()
    });
    let mut program = Program::on(&machine, 0);
    for line in 0..5000 {
        program.load(line * 64);
        program.store(line * 64);
        program.store(line * 64 + 8);
    }
    assert_eq!(program.core.counts().writeback, 5000 - 1024);
    assert_eq!(program.core.counts().llc_access, 5000);
}

#[test]
fn write_backs_take_bandwidth() {
    // Stores need the controller twice a line, loads once.
    let small = Cache {
        bytes: 64 << 10,
        ways: 16,
        hit_ns: 15.0,
    };
    let time = |store| {
        let machine = machine(Config {
            llc: small,
            ..config()
        });
        let mut program = Program::on(&machine, 0);
        for line in 0..50_000 {
            program.access(line * 64, store, None);
        }
        (program.settled_ps() + 50_000 * NS) as f64 / 50_000.0 / 1000.0
    };
    let (loads, stores) = (time(false), time(true));
    assert!((20.0..21.0).contains(&loads), "{loads}");
    assert!((39.0..41.0).contains(&stores), "{stores}");
}

#[test]
fn a_dirty_line_comes_from_the_domain_that_has_it() {
    let machine = machine(config());
    let (mut near, mut far) = (Program::on(&machine, 0), Program::on(&machine, 4));
    far.store(0);
    let fetch = near.load(0).unwrap().fetch.unwrap();
    assert!(fetch.dirty_transfer);
    assert_eq!((fetch.node, fetch.latency_ps), (2, 210 * NS));
    assert_eq!(near.core.counts().dirty_transfer, 1);
    assert_eq!(near.core.counts().llc_miss, 0);
    assert_eq!(near.core.counts().writeback, 1, "it is clean from now on");
    assert_eq!(far.load(8), None, "the writer may still read it");
    assert!(near.load(8).is_none());
}

#[test]
fn a_store_drops_the_copies_of_others() {
    let machine = machine(config());
    let mut programs: Vec<Program<'_>> = (0..8).map(|core| Program::on(&machine, core)).collect();
    for program in &mut programs {
        assert!(program.load(0).is_some());
        assert!(program.load(0).is_none());
    }
    programs[3].store(0).unwrap();
    assert_eq!(programs[3].core.counts().invalidation, 7);
    assert!(programs[3].store(0).is_none(), "it is the only one's now");
    for reader in [0, 2, 7] {
        assert!(
            programs[reader].load(0).is_some(),
            "core {reader} must ask again"
        );
    }
    assert_eq!(programs[0].core.counts().dirty_transfer, 1);
    let misses = programs[2].core.counts().llc_miss;
    assert_eq!(
        misses, 1,
        "the first time only: now its neighbour's cache has it"
    );
    assert!(
        programs[3].store(0).is_some(),
        "and the writer must ask again"
    );
}

#[test]
fn cores_of_one_domain_share_through_their_cache() {
    let machine = machine(config());
    let (mut one, mut two) = (Program::on(&machine, 0), Program::on(&machine, 1));
    one.store(0);
    let miss = two.load(0).unwrap();
    assert_eq!(miss.fetch, None, "found in the shared cache");
    assert_eq!(two.core.counts().writeback, 0, "it stays dirty there");
    two.store(0).unwrap();
    assert_eq!(two.core.counts().invalidation, 1);
    assert!(one.load(0).is_some_and(|miss| miss.fetch.is_none()));
}

#[test]
fn accesses_outside_memory_are_left_out() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    assert_eq!(program.load(4 * NODE_BYTES), None);
    assert_eq!(program.core.counts().outside_memory, 1);
    assert_eq!(program.core.counts().llc_access, 0);
}
