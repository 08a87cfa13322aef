//! The contention model: a few modelled seconds of small jobs on a preset machine, under a policy.
//!
//! The input is text in two parts. Lines of whole numbers come first: one for the run (machine,
//! policy, seed, then the model's options), then one for each job (program, memory, binding, CPUs,
//! when it starts in ms, gang); a number that is missing is 0. After an empty line comes a file of
//! program profiles, which may be empty: the profiles that Numaherd carries are there in any case.
//!
//! Holds: no jobs that the model takes make it panic or run without end; every figure it gives is a
//! number that can be; no controller carries more than it can; no thread
//! runs where it may not; no page is lost or counted twice; no layout costs less than the least that
//! is foreseen; the clock ends where it was to.
//!
//! Reader: crates/model/src/engine.rs crates/model/src/engine
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use numaherd_herd::ledger::Record;
use numaherd_herd::{Herd, Settings};
use numaherd_model::{
    Binding, Hardware, Job, Library, Model, Options, Placement, Program, Scheduler, Until,
};
use numaherd_policy::{CostModel, Home, Means, registry};
use numaherd_topology::{CpuId, CpuSet, Machine};
use numaherd_world::{Signal, Snapshot, ThreadId};

/// Machines of one to four nodes, with and without figures of links and probes.
const MACHINES: [&str; 5] = [
    "lab-4x2",
    "opteron-8356-4s",
    "xeon-e5520-2s",
    "uma-4x2",
    "lab-2x4",
];
const LENGTH: Duration = Duration::from_secs(2);
/// Bounds on what one input may cost; nothing in the model depends on them.
const MOST_JOBS: usize = 8;
const MOST_THREADS: u32 = 24;
/// A phase is an event when it ends, and a run may have as many events as its phases are short.
const SHORTEST_PHASE_NS: f64 = 5e7;
const MOST_LAYOUTS: usize = 50;

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    let (numbers, profiles) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut rows = numbers.lines().map(Numbers::of);
    let Some(mut run) = rows.next() else { return };
    let machine = MACHINES[run.below(MACHINES.len())];
    let machine = Machine::preset(machine).expect("a preset");
    let hardware = Hardware::of(&machine).expect("a preset that has all figures");
    let Some(programs) = programs(profiles, &hardware) else {
        return;
    };
    let policies: Vec<_> = registry::POLICIES
        .iter()
        .filter(|entry| can_have(entry))
        .collect();
    let policy = policies[run.below(policies.len())].name;
    let options = Options {
        seed: run.next(),
        variation: run.below(60) as f64 / 100.0,
        counter_noise: run.below(60) as f64 / 100.0,
        page_move_ns: run.below(100_000) as f64,
        samples_per_tick: run.below(5) as u32,
        // At least 50 ms: each is an event.
        wakes_elsewhere_s: match run.below(100) {
            0 => 0.0,
            step => step as f64 / 20.0,
        },
        smt_throughput: 1.0 + run.below(101) as f64 / 100.0,
        llc_gb_per_s: run.below(100) as f64,
        write_turnaround: run.below(90) as f64 / 100.0,
        page_moves_disturb: run.below(2) == 1,
        numa_balancing: run.below(2) == 1,
        own_lines_wait: run.below(2) == 0,
        scheduler: match run.below(2) {
            0 => Scheduler::Linux,
            _ => Scheduler::XenCredit,
        },
    };
    let jobs: Vec<Job> = rows
        .take(MOST_JOBS)
        .map(|row| job(row, &programs, &hardware))
        .collect();
    if jobs.iter().map(|job| job.program.threads).sum::<u32>() > MOST_THREADS {
        return;
    }
    let settings = Settings {
        placement_interval_ms: Some(250),
        first_interval_ms: 250,
        paging_interval_ms: 50,
        seed: options.seed,
        ..Settings::default()
    };
    let many = jobs.len();
    match Model::new(hardware, jobs, Until::Time(LENGTH), options) {
        Ok(model) => holds(model, many, policy, settings),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

/// The programs of the text and Numaherd's own, without those whose phases are too short.
fn programs(text: &str, hardware: &Hardware) -> Option<Vec<Arc<Program>>> {
    let own = if text.is_empty() {
        Library::default()
    } else {
        Library::parse(text, Path::new("fuzz.toml")).ok()?
    };
    let long = |program: &&Arc<Program>| {
        program.threads <= MOST_THREADS
            && program.phases.iter().all(|phase| {
                let cycles = phase.instructions * phase.cycles_per_instruction;
                cycles * hardware.figures.ns_per_reference_cycle >= SHORTEST_PHASE_NS
            })
    };
    let built_in = Library::built_in().programs();
    Some(
        own.programs()
            .chain(built_in)
            .filter(long)
            .cloned()
            .collect(),
    )
}

fn job(mut row: Numbers<'_>, programs: &[Arc<Program>], hardware: &Hardware) -> Job {
    let topology = hardware.topology();
    let program = programs[row.below(programs.len())].clone();
    let memory = match row.below(topology.nodes().len() + 2) {
        0 => Placement::FirstTouch,
        1 => Placement::Interleave,
        node => Placement::On(topology.nodes()[node - 2].id),
    };
    let binding = row.below(4);
    let wanted = row.next();
    let online = topology.online_cpus();
    let among = |at: usize| wanted >> (at % 64) & 1 == 1;
    let cpus = online.iter().enumerate().filter(|&(at, _)| among(at));
    let cpus: Vec<CpuId> = cpus.map(|(_, cpu)| cpu).collect();
    let binding = match binding {
        0 => Binding::Free,
        1 => Binding::StartOn(cpus),
        2 => Binding::Within(cpus.into_iter().collect::<CpuSet>()),
        _ => Binding::Each(cpus),
    };
    Job {
        memory,
        binding,
        starts_after: Duration::from_millis(row.below(3000) as u64),
        measured: true,
        gang: (row.below(3) as u32).checked_sub(1),
        ..Job::new(program)
    }
}

/// Whether the model has what a policy needs.
fn can_have(entry: &registry::NamedPolicy) -> bool {
    let needs = registry::needs(entry.name).expect("a policy of the table");
    let lacks = [Signal::TlbResidency, Signal::TlbMisses, Signal::HintFaults];
    entry.worlds != registry::Worlds::Traces && !needs.iter().any(|need| lacks.contains(need))
}

fn holds(mut model: Model, jobs: usize, policy: &str, settings: Settings) {
    let means = Means {
        cost_model: Some(Arc::new(Asked(model.cost_model()))),
    };
    let mut policies = numaherd_policy::Settings::default();
    policies.oracle.layouts = MOST_LAYOUTS;
    let policy = registry::build_with(policy, &policies, &means).expect("the settings are right");
    let never = AtomicBool::new(false);
    Herd::new(&mut model, policy)
        .settings(settings)
        .watched(|line| {
            if let Record::Snapshot(snapshot) = &line.record {
                can_be(snapshot);
            }
        })
        .run(&never)
        .expect("the model gives what every policy needs");
    assert!(model.is_over());
    assert_eq!(model.seconds(), LENGTH.as_secs_f64());
    for completion in model.completions() {
        assert!(completion.job < jobs && completion.started_s >= 0.0);
        assert!(completion.seconds() > 0.0 && completion.ended_s <= model.seconds());
    }
    let work = model.work();
    assert_eq!(work.len(), jobs);
    for work in work {
        let figures = [
            work.instructions,
            work.active_s,
            work.lines,
            work.lines - work.remote_lines * (1.0 - 1e-9),
            work.remote_lines,
        ];
        assert!(
            figures.iter().all(|f| f.is_finite() && *f >= 0.0),
            "{work:?}"
        );
        assert!(work.active_s <= model.seconds() * f64::from(MOST_THREADS));
    }
}

/// What no snapshot of a real machine could say is not in it.
fn can_be(snapshot: &Snapshot) {
    for thread in &snapshot.threads {
        assert!((0.0..=1.0).contains(&thread.cpu_share), "{thread:?}");
        assert!(snapshot.online.contains(thread.cpu));
        // A thread that was moved and has not run since is where it was put.
        assert!(thread.affinity.contains(thread.cpu), "{thread:?}");
        if let Some(counts) = &thread.counts {
            assert!(counts.instructions < u64::MAX && counts.lines < u64::MAX);
            assert_eq!(
                Some(counts.lines),
                counts.local.zip(counts.remote).map(|(l, r)| l + r)
            );
        }
    }
    for node in &snapshot.nodes {
        let residencies = snapshot
            .processes
            .iter()
            .filter_map(|p| p.residency.as_ref());
        let of_node = residencies
            .flat_map(|r| &r.pages)
            .filter(|(id, _)| *id == node.id);
        let used: u64 = of_node.map(|(_, pages)| pages * snapshot.page_bytes).sum();
        assert_eq!(node.free_bytes + used, node.total_bytes, "{node:?}");
    }
}

/// The model's answers about layouts, in the form in which policies ask.
struct Asked(numaherd_model::CostModel);

impl CostModel for Asked {
    fn cost(&self, layout: &[(ThreadId, CpuId)], homes: &[Home]) -> Option<f64> {
        let cost = self.0.slowdown(layout, homes)?;
        assert!(cost.is_finite() && cost > 0.0);
        let least = self.0.least_slowdown().expect("there are threads");
        assert!(
            least <= cost * (1.0 + 1e-3),
            "{least} is no bound of {cost}"
        );
        Some(cost)
    }

    fn least(&self, _: &[ThreadId]) -> Option<f64> {
        let least = self.0.least_slowdown()?;
        assert!(least.is_finite() && least > 0.0);
        Some(least)
    }
}

/// Whole numbers of a line, in order, and then zeros.
struct Numbers<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Numbers<'a> {
    fn of(line: &'a str) -> Self {
        Self(line.split_whitespace())
    }

    fn next(&mut self) -> u64 {
        let word = self.0.next().unwrap_or("0");
        word.parse().unwrap_or(0)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
