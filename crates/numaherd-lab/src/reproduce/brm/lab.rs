//! BRM's micro-benchmark in the lab, on a guest after the paper's machine: Fig 5 and 7 (assignments),
//! Fig 8a and 9 (strategies).
//!
//! As in the paper, four threads have all their memory on node 0, and the run time is the mean of the threads'.
//! *Intra-S* has all of them on node 0, *Inter-S* half of them on node 1. Each run is a trial like those of
//! `numaherd lab compare`. Where BRM is not tried it runs dry: it counts and decides as ever, at the same cost, but
//! changes nothing.
//!
//! Not as in the paper: fewer loops than 1000, since a modelled second takes a minute or more; a
//! length in steps in place of one number of loops, so that small working sets are not over before
//! they are counted; the guest stands for the machine, its threads for virtual CPUs, its kernel for
//! Xen's scheduler.

pub mod figures;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use numaherd_experiment::statistics::Sample;
use numaherd_experiment::{Trial, progress};
use numaherd_topology::{Node, Topology};

use crate::cli::LabBrm;
use crate::compare::outcome::Outcome;
use crate::compare::{Tried, menagerie};
use crate::{lab, print};
use figures::{Binding, Compared, Measured, Part, Run, Sizes, Strategies};

/// The paper's machine (Table 1).
pub const MACHINE: &str = "xeon-e5620-2s";
/// Threads of the benchmark (§2.2).
pub const THREADS: u32 = 4;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes of an entry of a list: a line.
const ENTRY: u64 = 64;
/// The shared area where working sets vary (§2.2.2).
const SHARED: u64 = 128 * KIB;
/// The working set where the shared area varies (§2.2.2).
const FIXED_SET: u64 = 16 * MIB;
/// Fewest loops: the first one fills caches.
const FEWEST_LOOPS: u64 = 4;

/// Where the guest finds the scenario of the next trial.
const SCENARIO: &str = "/run/numaherd-brm.toml";

/// The interval between readings of counters for Fig 5, where the shortest runs take some 50 ms and what follows the
/// last reading is lost; for strategies that of BRM (§5), whoever places, so that all pay for it.
const LOOK_MS: u64 = 5;
const TICK_MS: u64 = 10;

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// How much is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whether Fig 5 and 7 are run.
    pub assignments: bool,
    /// Working sets of Fig 5a, 5c and 8a in bytes.
    pub working_sets: Vec<u64>,
    /// Sharing sizes of Fig 5b in bytes.
    pub sharing_sizes: Vec<u64>,
    /// Entries of its list that each thread visits in all, for Fig 5.
    pub steps: u64,
    /// The same for Fig 8a, where the time that BRM needs to find a layout must be short beside the run.
    pub strategy_steps: u64,
    /// How often each strategy is run; the paper's 10. 0 runs none.
    pub repeats: u32,
}

impl Options {
    /// The paper's sizes and repeats: half a day on two CPUs.
    pub fn full() -> Self {
        Self {
            assignments: true,
            working_sets: [4, 8, 16, 32, 64, 128].map(|mib| mib * MIB).into(),
            sharing_sizes: [4, 8, 16, 32, 64, 128].map(|kib| kib * KIB).into(),
            steps: 8_000_000,
            strategy_steps: 80_000_000,
            repeats: 10,
        }
    }

    /// All of Fig 5 with shorter runs, three sizes of Fig 8a with three repeats.
    pub fn quick() -> Self {
        Self {
            sharing_sizes: [8, 32, 128].map(|kib| kib * KIB).into(),
            steps: 4_000_000,
            strategy_steps: 20_000_000,
            repeats: 3,
            ..Self::full()
        }
    }

    /// Sizes with as many loops as take each thread through `steps` entries of its list.
    fn sizes(working_set_bytes: u64, sharing_bytes: u64, steps: u64) -> Sizes {
        let entries = working_set_bytes / u64::from(THREADS) / ENTRY;
        Sizes {
            working_set_bytes,
            sharing_bytes,
            loops: (steps / entries.max(1)).max(FEWEST_LOOPS),
        }
    }

    /// The points of Fig 5, each with its part.
    fn points(&self) -> Vec<(Part, Sizes)> {
        let sets = || self.working_sets.iter();
        let capacity = sets().map(|&set| (Part::Capacity, set, 0));
        let sharing = self.sharing_sizes.iter();
        let sharing = sharing.map(|&shared| (Part::Sharing, FIXED_SET, shared));
        let both = sets().map(|&set| (Part::Both, set, SHARED));
        let all = capacity.chain(sharing).chain(both);
        all.map(|(part, set, shared)| (part, Self::sizes(set, shared, self.steps)))
            .collect()
    }
}

/// What `numaherd lab brm` does: measures and prints the tables. The file is written after every point,
/// so that what was measured is kept if the rest cannot be.
///
/// # Errors
/// As [`measure`]; the file cannot be written.
pub fn run(options: &LabBrm) -> Result<()> {
    let mut effort = if options.quick {
        Options::quick()
    } else {
        Options::full()
    };
    if !options.working_sets.is_empty() {
        effort.working_sets = options.working_sets.iter().map(|mib| mib * MIB).collect();
    }
    effort.repeats = options.repeat.unwrap_or(effort.repeats);
    effort.strategy_steps = options.steps.unwrap_or(effort.strategy_steps);
    effort.assignments = !options.strategies_only;
    let keep = |measured: &Measured| match &options.json {
        Some(path) => print::file(path, &(serde_json::to_string_pretty(measured)? + "\n")),
        None => Ok(()),
    };
    let measured = measure(&effort, &keep)?;
    print::out(&text::text(&measured))
}

/// Runs everything in guests of the paper's machine; `keep` receives the figures after every point.
///
/// # Errors
/// The lab is not set up, a run fails, or `keep` does.
pub fn measure(options: &Options, keep: &dyn Fn(&Measured) -> Result<()>) -> Result<Measured> {
    let machine = lab::machine(MACHINE)?;
    let topology = machine.topology()?;
    let points = match options.assignments {
        true => options.points(),
        false => Vec::new(),
    };
    let layouts = layouts(&topology, THREADS);
    let strategy_runs = match options.repeats {
        0 => 0,
        repeats => options.working_sets.len() * (layouts.len() + 3 * repeats as usize),
    };
    let mut bench = Bench {
        guests: lab::Guests::new(lab::guest(&machine)?),
        menagerie: menagerie()?,
        bar: progress((2 * points.len() + strategy_runs) as u64),
    };
    let (together, apart) = (&layouts[0], halved(&layouts));
    let mut measured = Measured {
        machine: machine.name,
        threads: THREADS,
        assignments: Vec::new(),
        strategies: Vec::new(),
    };
    for (part, sizes) in points {
        // A point that is in two parts is run once.
        let mut known = measured.assignments.iter();
        let known = known.find(|known| known.sizes == sizes);
        let (intra, inter) = match known {
            Some(known) => {
                bench.bar.inc(2);
                (known.intra, known.inter)
            }
            None => (
                bench.assigned(sizes, &cpus_of(&topology, together))?,
                bench.assigned(sizes, &cpus_of(&topology, apart))?,
            ),
        };
        measured.assignments.push(Compared {
            part,
            sizes,
            intra,
            inter,
        });
        keep(&measured)?;
    }
    if options.repeats > 0 {
        for &set in &options.working_sets {
            let all = bench.strategies(set, options, &topology, &layouts)?;
            measured.strategies.push(all);
            keep(&measured)?;
        }
    }
    bench.bar.finish_and_clear();
    bench.guests.stop()?;
    Ok(measured)
}

/// Every way to spread threads over nodes, each thread on its own core. Ways differ only in how many threads are on
/// which node: nodes differ, because memory is on one, but threads do not. All on node 0 comes first.
fn layouts(topology: &Topology, threads: u32) -> Vec<Vec<u32>> {
    let room = |node: &Node| u32::try_from(node.cpus.len()).unwrap_or(u32::MAX);
    let rooms: Vec<u32> = topology.nodes().iter().map(room).collect();
    spread(&rooms, threads)
}

fn spread(rooms: &[u32], threads: u32) -> Vec<Vec<u32>> {
    let Some((&room, others)) = rooms.split_first() else {
        return if threads == 0 {
            vec![Vec::new()]
        } else {
            Vec::new()
        };
    };
    let mut found = Vec::new();
    for here in (0..=room.min(threads)).rev() {
        for rest in spread(others, threads - here) {
            found.push([vec![here], rest].concat());
        }
    }
    found
}

/// The layout with as many threads on node 0 as elsewhere: Inter-S.
fn halved(layouts: &[Vec<u32>]) -> &Vec<u32> {
    let off = |layout: &&Vec<u32>| (2 * layout[0]).abs_diff(layout.iter().sum());
    layouts.iter().min_by_key(off).expect("there is a layout")
}

/// The CPUs of a layout, as the menagerie writes them: as many of each node as it says.
fn cpus_of(topology: &Topology, layout: &[u32]) -> String {
    let nodes = topology.nodes().iter().zip(layout);
    let cpus = nodes.flat_map(|(node, &count)| node.cpus.iter().take(count as usize));
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

/// The benchmark's guest and what runs in it.
struct Bench {
    guests: lab::Guests,
    menagerie: PathBuf,
    bar: ProgressBar,
}

impl Bench {
    /// One run with its threads bound.
    fn assigned(&mut self, sizes: Sizes, cpus: &str) -> Result<Run> {
        let trial = self.run(sizes, Strategy::Bound(cpus), 0, LOOK_MS)?;
        let seconds = seconds(&trial);
        let counted = |figure: Option<f64>, what| {
            figure.with_context(|| {
                let ms = 1e3 * seconds;
                format!("{what} could not be counted in a run of {ms:.0} ms: it needs more steps")
            })
        };
        Ok(Run {
            seconds,
            uncore_penalty: counted(trial.uncore_penalty, "the uncore penalty")?,
            misses_per_1000_instructions: counted(
                trial.misses_per_1000_instructions,
                "the miss rate",
            )?,
        })
    }

    /// Every binding once, in runs as short as Fig 5's, because its speed does not change; then the strategies in
    /// turn.
    fn strategies(
        &mut self,
        working_set: u64,
        options: &Options,
        topology: &Topology,
        layouts: &[Vec<u32>],
    ) -> Result<Strategies> {
        let sizes = Options::sizes(working_set, SHARED, options.strategy_steps);
        let short = Options::sizes(working_set, SHARED, options.steps);
        let mut all = Strategies {
            sizes,
            binding_loops: short.loops,
            bindings: Vec::new(),
            fixed: Sample(Vec::new()),
            linux: Sample(Vec::new()),
            brm: Sample(Vec::new()),
            brm_moves: Vec::new(),
        };
        for layout in layouts {
            let cpus = cpus_of(topology, layout);
            let trial = self.run(short, Strategy::Bound(&cpus), 0, TICK_MS)?;
            all.bindings.push(Binding {
                threads_on: layout.clone(),
                seconds: seconds(&trial),
            });
        }
        let best = all
            .best()
            .context("the machine has no room for the threads")?;
        let best = cpus_of(topology, &best.threads_on);
        for repeat in 0..options.repeats {
            let trial = self.run(sizes, Strategy::Bound(&best), repeat, TICK_MS)?;
            all.fixed.0.push(seconds(&trial));
            let trial = self.run(sizes, Strategy::Linux, repeat, TICK_MS)?;
            all.linux.0.push(seconds(&trial));
            let trial = self.run(sizes, Strategy::Brm, repeat, TICK_MS)?;
            all.brm.0.push(seconds(&trial));
            all.brm_moves.push(trial.thread_moves_ordered);
        }
        Ok(all)
    }

    /// One trial; once more in a new guest if this one dies.
    fn run(
        &mut self,
        sizes: Sizes,
        strategy: Strategy<'_>,
        repeat: u32,
        interval_ms: u64,
    ) -> Result<Outcome> {
        let (set, shared) = (sizes.working_set_bytes / MIB, sizes.sharing_bytes / KIB);
        let place = match strategy {
            Strategy::Bound(cpus) => format!("on CPUs {cpus}"),
            Strategy::Linux => "linux".to_owned(),
            Strategy::Brm => "brm".to_owned(),
        };
        let trial = Trial {
            repeat,
            seed: repeat.into(),
            ..Trial::of("brm")
        };
        self.bar
            .set_message(format!("{set} MiB, {shared} KiB shared, {place}"));
        let scenario = scenario(sizes, strategy, interval_ms);
        let tried = Tried {
            scenario: Path::new(SCENARIO),
            menagerie: &self.menagerie,
            weights: &[],
            limit: LIMIT,
        };
        let result = self.guests.run(&self.bar, |guest| {
            guest.write_file(SCENARIO, &scenario)?;
            tried.once(guest, &trial)
        });
        self.bar.inc(1);
        result.with_context(|| format!("{set} MiB with {shared} KiB shared, {place}"))
    }
}

/// The mean run time of the only program's threads.
fn seconds(trial: &Outcome) -> f64 {
    trial.programs[0].mean_thread_seconds
}

/// Who places the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy<'a> {
    /// No one: they are bound to these CPUs, one each.
    Bound(&'a str),
    /// The kernel alone.
    Linux,
    /// BRM.
    Brm,
}

/// The benchmark as the text of a scenario for the policy `brm`, with all its memory on node 0. All its threads
/// are candidates, as if the guest of each virtual CPU had tagged them.
fn scenario(sizes: Sizes, strategy: Strategy<'_>, interval_ms: u64) -> String {
    let Sizes {
        working_set_bytes,
        sharing_bytes,
        loops,
    } = sizes;
    let bound = match strategy {
        Strategy::Bound(cpus) => format!(r#""--cpus", "{cpus}""#),
        Strategy::Linux | Strategy::Brm => String::new(),
    };
    let is_dry = strategy != Strategy::Brm;
    format!(
        r#"
name = "brm-micro"
about = "BRM's micro-benchmark"
machine = "{MACHINE}"
measured_are = "threads"
settings.herd = {{ placement_interval_ms = {interval_ms}, dry_run = {is_dry} }}
settings.policies.brm.candidates = "all"

[[program]]
name = "micro"
memory = 0
command = [
    "menagerie", "micro", "--threads", "{THREADS}",
    "--working-set", "{working_set_bytes}", "--sharing-size", "{sharing_bytes}",
    "--rounds", "{loops}", {bound}
]
"#
    )
}

#[cfg(test)]
mod tests {
    use numaherd_experiment::in_lab::Placeholders;
    use numaherd_experiment::{Scenario, World};
    use numaherd_topology::Machine;

    use super::*;

    #[test]
    fn assignments_are_the_papers() {
        let topology = Machine::preset(MACHINE).unwrap().topology().unwrap();
        let layouts = layouts(&topology, THREADS);
        assert_eq!(
            layouts,
            [[4, 0], [3, 1], [2, 2], [1, 3], [0, 4]].map(Vec::from)
        );
        assert_eq!(cpus_of(&topology, &layouts[0]), "0,1,2,3");
        assert_eq!(cpus_of(&topology, halved(&layouts)), "0,1,4,5");
    }

    #[test]
    fn no_layout_has_more_threads_on_a_node_than_cores() {
        assert_eq!(
            spread(&[2, 1, 1], 3),
            [[2, 1, 0], [2, 0, 1], [1, 1, 1]].map(Vec::from)
        );
        assert!(spread(&[1, 1], 3).is_empty());
    }

    #[test]
    fn the_points_are_those_of_fig_5() {
        let points = Options::full().points();
        let of = |wanted| {
            let points = points.iter().filter(|(part, _)| *part == wanted);
            points
                .map(|(_, sizes)| (sizes.working_set_bytes / MIB, sizes.sharing_bytes / KIB))
                .collect::<Vec<_>>()
        };
        let sets = [4, 8, 16, 32, 64, 128];
        assert_eq!(of(Part::Capacity), sets.map(|set| (set, 0)));
        assert_eq!(of(Part::Both), sets.map(|set| (set, 128)));
        assert!(of(Part::Sharing).iter().all(|point| point.0 == 16));
        // 8,000,000 of 65,536 entries; large sets have their fewest loops.
        assert_eq!(points[2].1.loops, 122);
        assert_eq!(Options::sizes(1024 * MIB, 0, 1).loops, FEWEST_LOOPS);
    }

    #[test]
    fn scenarios_for_comparisons_are_right_and_settings_are_those_of_a_run() {
        for name in ["beside-others", "caches-apart", "longer", "memory-near"] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/brm");
            let scenario = Scenario::find(&format!("{folder}/{name}.toml"), World::Lab).unwrap();
            assert_eq!(scenario.name, format!("brm-{name}"));
            assert_eq!(scenario.machine, MACHINE);
            scenario
                .configuration()
                .try_into::<numaherd::config::Config>()
                .unwrap();
        }
    }

    #[test]
    fn the_guest_is_given_the_benchmark_with_its_memory_on_node_0() {
        let sizes = Options::sizes(16 * MIB, 128 * KIB, 655_360);
        let text = scenario(sizes, Strategy::Bound("0,1,4,5"), TICK_MS);
        let read = Scenario::parse(&text, "x.toml", World::Lab).unwrap();
        let program = &read.programs[0];
        let command = program.lab.command.as_ref().unwrap();
        let placeholders = Placeholders { copy: 0, dir: "/" };
        let words = command.words(placeholders, program.placement(0));
        assert_eq!(
            words.join(" "),
            "menagerie micro --threads 4 --working-set 16777216 --sharing-size 131072 --rounds 10 \
             --cpus 0,1,4,5 --home 0"
        );
        let settings = read.configuration();
        let herd = &settings["herd"];
        assert_eq!(herd["placement_interval_ms"].as_integer(), Some(10));
        assert_eq!(herd["dry_run"].as_bool(), Some(true));
        assert_eq!(
            settings["policies"]["brm"]["candidates"].as_str(),
            Some("all")
        );
    }
}
