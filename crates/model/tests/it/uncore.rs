//! The two counts of the uncore penalty, waiting for a CPU, and tags: what BRM goes by.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_model::program::Library;
use numaherd_model::{
    Binding, Factors, Hardware, Job, Model, Options, Placed, Program, Until, steady,
};
use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::{AffinityOrder, Orders, Snapshot, Tag, World};
use proptest::prelude::*;

use crate::round;

/// Two nodes of two cores with 64 KiB of level 2 and 1 MiB of inclusive level 3 for both, cycles of
/// 1 ns, round figures throughout.
fn hardware() -> Hardware {
    let private = r#"
        [[cache]]
        level = 2
        kind = "unified"
        size_kib = 64
        shared_by = "core"
        latency_ns = 5
    "#;
    let memory =
        "modified_line_ns = [[50, 300], [300, 50]]\nnode_gb_per_s = 6400\nlink_gb_per_s = 3200";
    round::hardware(
        "memory_per_node_mib = 64",
        "inclusive = true",
        memory,
        private,
    )
}

/// One program of 10^9 instructions at a cycle each.
fn program(figures: &str, phase: &str) -> Arc<Program> {
    let text = format!(
        "source = \"made up for tests\"\n[[program]]\nname = \"it\"\nabout = \"for tests\"\n\
         footprint_mib = 16\n{figures}\n[[program.phase]]\ninstructions = 1e9\n\
         cycles_per_instruction = 1\n{phase}\n"
    );
    let library = Library::parse(&text, Path::new("it.toml"));
    let library = library.unwrap_or_else(|error| panic!("{error}"));
    library.get("it").unwrap().clone()
}

/// 20 accesses that miss level 2 and 10 that miss any cache, one at a time.
const WALKER: &str = "cache_accesses = 40\nlines = [[0.0625, 20], [0.5, 10]]\nmisses_in_flight = 1";

fn observed(jobs: Vec<Job>) -> Snapshot {
    let until = Until::Time(Duration::from_secs(9));
    let mut model = Model::new(hardware(), jobs, until, Options::default()).unwrap();
    model.run_for(Duration::from_millis(100));
    model.observe().unwrap()
}

fn cpus(cpus: &[u32]) -> Vec<CpuId> {
    cpus.iter().copied().map(CpuId).collect()
}

fn close(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 1e-3,
        "{found} instead of {expected}"
    );
}

#[test]
fn requests_are_what_level_2_does_not_answer_and_busy_is_what_they_take() {
    let program = program("", WALKER);
    for (home, latency) in [(0, 100.0), (1, 200.0)] {
        let job = Job::new(program.clone()).homed(NodeId(home));
        let seen = observed(vec![job.on(cpus(&[0]))]);
        let counts = seen.threads[0].counts.unwrap();
        let thousands = counts.instructions as f64 / 1000.0;
        close(counts.uncore_requests.unwrap() as f64 / thousands, 20.0);
        // Of 20 requests 10 are hits of 20 ns, the others come from memory; a cycle is 1 ns.
        let busy = counts.uncore_busy_cycles.unwrap() as f64 / thousands;
        close(busy, 10.0 * 20.0 + 10.0 * latency);
        close(counts.uncore_penalty().unwrap(), 10.0 + latency / 2.0);
    }
}

#[test]
fn misses_in_flight_share_the_time_and_prefetched_lines_are_no_requests() {
    let phase = |prefetched: &str| {
        format!("cache_accesses = 20\nlines = [[0.0625, 20]]\nmisses_in_flight = 4\n{prefetched}")
    };
    let counts = |phase: String| {
        let job = Job::new(program("", &phase)).homed(NodeId(0));
        let counts = observed(vec![job.on(cpus(&[0]))]).threads[0]
            .counts
            .unwrap();
        let thousands = counts.instructions as f64 / 1000.0;
        (
            counts.uncore_requests.unwrap() as f64 / thousands,
            counts.uncore_busy_cycles.unwrap() as f64 / thousands,
        )
    };
    let (requests, busy) = counts(phase(""));
    close(requests, 20.0);
    close(busy, 20.0 * 100.0 / 4.0);
    let (requests, with_prefetch) = counts(phase("demand = [[0.0625, 5]]"));
    close(requests, 5.0);
    close(with_prefetch, busy);
}

#[test]
fn lines_that_others_wrote_come_from_their_caches_and_are_requests() {
    let still = "cache_accesses = 0\nlines = [[1, 0]]\nmisses_in_flight = 1";
    let pair = program(
        "threads = 2\nshared_accesses = 1\nshared_written = 10",
        still,
    );
    for (other, latency) in [(1, 50.0), (2, 300.0)] {
        let seen = observed(vec![Job::new(pair.clone()).on(cpus(&[0, other]))]);
        for thread in &seen.threads {
            let counts = thread.counts.unwrap();
            close(
                counts.uncore_requests.unwrap() as f64,
                counts.instructions as f64 / 100.0,
            );
            close(counts.uncore_penalty().unwrap(), latency);
            // A hit is in the cycles already.
            let ns = 1000.0 + 10.0 * (latency - 20.0);
            close(counts.instructions as f64, 1e11 / ns);
            assert_eq!(counts.lines, 0, "no memory is asked");
        }
    }
}

#[test]
fn what_a_moved_thread_fetches_again_is_asked_of_the_uncore() {
    // 1 MiB of cache at 64 bytes a line, 100 ns each, one at a time.
    let (lines, refill_ns) = (16384.0, 1_638_400.0);
    let job = Job {
        binding: Binding::StartOn(cpus(&[0])),
        ..Job::new(program("", WALKER)).homed(NodeId(0))
    };
    let until = Until::Time(Duration::from_secs(9));
    let mut model = Model::new(hardware(), vec![job], until, Options::default()).unwrap();
    model.run_for(Duration::from_millis(10));
    let thread = model.observe().unwrap().threads[0].id;
    model.apply(&Orders {
        affinities: vec![AffinityOrder {
            thread,
            core: Some(CpuId(2)),
            cpus: Arc::new(CpuSet::from_iter([CpuId(2)])),
        }],
        pages: Vec::new(),
    });
    model.run_for(Duration::from_millis(1));
    let fetching = model.observe().unwrap().threads[0].counts.unwrap();
    assert_eq!(fetching.instructions, 0, "it does nothing else meanwhile");
    close(fetching.uncore_penalty().unwrap(), 100.0);
    close(fetching.uncore_busy_cycles.unwrap() as f64, 1e6);
    model.run_for(Duration::from_millis(1));
    let counts = model.observe().unwrap().threads[0].counts.unwrap();
    let own = counts.instructions as f64 / 1000.0 * 20.0;
    let rest = (refill_ns - 1e6) / refill_ns * lines;
    close(counts.uncore_requests.unwrap() as f64, own + rest);
    close(counts.lines as f64, own / 2.0);
}

#[test]
fn threads_that_wait_for_a_cpu_say_so() {
    let still = program(
        "",
        "cache_accesses = 0\nlines = [[1, 0]]\nmisses_in_flight = 1",
    );
    let on = |cpu| Job::new(still.clone()).on(cpus(&[cpu]));
    let seen = observed(vec![on(0), on(0), on(0), on(1)]);
    for thread in &seen.threads[..3] {
        close(thread.cpu_share, 1.0 / 3.0);
        close(thread.wait_share, 2.0 / 3.0);
    }
    assert_eq!(seen.threads[3].wait_share, 0.0);
    assert_eq!(seen.threads[3].counts.unwrap().uncore_penalty(), None);
}

#[test]
fn a_users_mask_tags_its_threads_and_a_job_may_say_otherwise() {
    let still = program(
        "",
        "cache_accesses = 0\nlines = [[1, 0]]\nmisses_in_flight = 1",
    );
    let within = |last: u32| Job {
        binding: Binding::Within((0..=last).map(CpuId).collect::<CpuSet>()),
        ..Job::new(still.clone())
    };
    let free = Job::new(still.clone());
    let jobs = vec![
        free.clone(),
        within(1),
        within(3),
        free.tagged(Tag::Agent),
        within(1).tagged(Tag::Clear),
    ];
    let tags: Vec<Option<Tag>> = observed(jobs).threads.iter().map(|t| t.tag).collect();
    let expected = [
        None,
        Some(Tag::Mask),
        None,
        Some(Tag::Agent),
        Some(Tag::Clear),
    ];
    assert_eq!(tags, expected, "a mask of all CPUs says nothing");
}

proptest! {
    /// On any machine's figures a thread cannot wait for longer than it runs, nor for less than the
    /// model makes it wait.
    #[test]
    fn busy_time_lies_between_the_waits_and_the_whole(
        programs in proptest::collection::vec((0usize..64, 0u32..4, 0u32..2), 1..6),
    ) {
        let library = Library::built_in();
        let all: Vec<_> = library.programs().collect();
        let placed: Vec<Placed<'_>> = programs
            .iter()
            .map(|&(program, cpu, home)| Placed {
                phase: &all[program % all.len()].phases[0],
                cpu: CpuId(cpu),
                home: NodeId(home),
            })
            .collect();
        for speed in steady(&hardware(), &placed, Factors::ALL) {
            let waits = speed.controller_ns + speed.link_ns + speed.remote_ns;
            prop_assert!(waits <= speed.requested_ns * (1.0 + 1e-9));
            prop_assert!(speed.requested_ns <= speed.ns);
            prop_assert!(speed.requests >= 0.0);
        }
    }
}
