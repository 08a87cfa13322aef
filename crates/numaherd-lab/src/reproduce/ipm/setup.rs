//! The machines of IPM's experiments, and runs of kernels' traces on them.
//!
//! A run plays the recording again and again until [`INTERVALS`] placement intervals have passed after its first
//! loop, which contains the set-up; a policy that moves nothing plays it only once more. The loops after the first
//! are measured, per loop. The paper's programs run for minutes, so that set-up and learning are a small part of them.
//!
//! # What is scaled
//!
//! Our programs are some [`SCALE`] times smaller than the paper's (not on its simulated machine, which is small
//! itself). Each of our pages stands for as many of theirs, and what holds data shrinks by as much. Scaled are:
//!
//! | | by |
//! |---|---|
//! | caches | [`SCALE`] |
//! | what TLBs reach | [`SCALE`], first by smaller pages down to 4 KiB, then by fewer entries |
//! | time of a TLB miss, and of the unit's software at an eviction | as pages: these come more often by as much |
//! | time that moving a page and an interrupt for a batch of them take | [`SCALE`] upwards, as a page stands for more |
//! | time of a hint fault | by as many pages as one of ours stands for |
//! | memory that a scan for hint faults marks | [`SCALE`] |
//! | accesses between two samples (§3.3) | the dilation, as our runs make fewer accesses by it |

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use numaherd_experiment::statistics::mean;
use numaherd_experiment::{ORACLE, OnTrace, Settings, Trial, World};
use numaherd_hardware::{Cache, Config, IpmConfig};
use numaherd_topology::Machine;
use numaherd_trace::world::{Analysis, Figures, Hardware, Options, SetUp, Start};
use rayon::prelude::*;

use crate::reproduce::testbed::{KERNEL, Memo};
use crate::reproduce::traces::{Kernel, Traces};

/// By how much caches and TLB reach are made smaller where the paper ran classes A and B: by about as much as
/// class W is smaller than these (FACTS 2.2: sp 5, lu 7, mg 8 times; bt, cg, is and ft more).
pub const SCALE: u64 = 8;

/// Placement intervals that are measured at least.
pub const INTERVALS: u64 = 50;
/// From one placement to the next (§4.4.4).
pub const INTERVAL_MS: u64 = 200;
/// Policies that keep everything in place from the start on: all loops are alike.
const FIXED: [&str; 4] = [KERNEL, "interleave", "random-mapping", ORACLE];

/// The paper's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Platform {
    /// The simulated one, as printed.
    Simics,
    /// With TLBs managed by software, scaled.
    Itanium,
    /// Two sockets, scaled.
    Xeon32,
    /// Four sockets, scaled.
    Xeon64,
}

impl Platform {
    /// Its preset.
    fn preset(self) -> &'static str {
        match self {
            Self::Simics => "ipm-simics-4x2",
            Self::Itanium => "itanium-9030-4s",
            Self::Xeon32 => "xeon-e5-2650-2s",
            Self::Xeon64 => "xeon-x7550-4s",
        }
    }

    /// How many times smaller our programs are than the paper's there.
    fn scale(self) -> u64 {
        match self {
            Self::Simics => 1,
            Self::Itanium | Self::Xeon32 | Self::Xeon64 => SCALE,
        }
    }

    /// What is modelled, and how many times smaller its pages are than the paper's.
    ///
    /// # Errors
    /// Only when the program's own data are damaged.
    fn scaled(self) -> Result<(Hardware, u64)> {
        let mut hardware = Hardware::of(&Machine::preset(self.preset())?)?;
        let smaller = scale_down(&mut hardware.config, self.scale());
        Ok((hardware, smaller))
    }
}

/// Makes caches smaller, and what TLBs reach: first by smaller pages, down to 4 KiB, then by fewer entries.
/// Associativity shrinks where there are fewer lines or entries than ways. Returns how many times smaller pages are.
fn scale_down(config: &mut Config, scale: u64) -> u64 {
    let caches = [&mut config.l1, &mut config.llc];
    for cache in caches.into_iter().chain(&mut config.l2) {
        *cache = smaller(*cache, config.line_bytes, scale);
    }
    let Some(tlb) = &mut config.tlb else {
        return 1;
    };
    let page_bytes = (tlb.page_bytes / scale).max(4096);
    let smaller = tlb.page_bytes / page_bytes;
    tlb.page_bytes = page_bytes;
    tlb.miss_ns /= smaller as f64;
    for level in tlb.l2.iter_mut().chain([&mut tlb.l1]) {
        level.entries /= (scale / smaller) as usize;
        level.ways = level.ways.min(level.entries);
    }
    smaller
}

/// A cache, so many times smaller.
pub fn smaller(cache: Cache, line_bytes: u64, scale: u64) -> Cache {
    let bytes = cache.bytes / scale;
    Cache {
        bytes,
        ways: cache.ways.min((bytes / line_bytes) as usize),
        ..cache
    }
}

/// One run: a kernel on a machine under a policy.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub hardware: Hardware,
    /// The program.
    pub kernel: &'static Kernel,
    /// The policy's name.
    pub policy: &'static str,
    /// How the trace is played; the seed is the setup's.
    pub options: Options,
}

impl Run {
    /// A run with everything as the paper has it.
    ///
    /// # Errors
    /// Only when the program's own data are damaged.
    pub fn new(platform: Platform, kernel: &'static Kernel, policy: &'static str) -> Result<Self> {
        let (hardware, smaller) = platform.scaled()?;
        let scale = platform.scale();
        let mut options = Options::default();
        options.page_move_ns *= scale;
        options.shootdown_ns *= scale;
        options.hint_fault_ns *= scale / smaller;
        options.scan_mib /= scale;
        match &mut options.ipm {
            Some(unit) if policy == "ipm" => unit.eviction_cycles /= smaller,
            // Other policies run on hardware without the unit, whose work costs time where software does it.
            _ => options.ipm = None,
        }
        Ok(Self {
            hardware,
            kernel,
            policy,
            options,
        })
    }

    /// The same with other options.
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// The same with the unit configured differently.
    pub fn with_unit(mut self, change: impl FnOnce(&mut IpmConfig)) -> Self {
        if let Some(unit) = &mut self.options.ipm {
            change(unit);
        }
        self
    }
}

/// What a run measured; of several with different seeds, the mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// Modelled time of a loop in seconds.
    pub time: f64,
    /// Share of the pages that are on the right node at the end, in percent.
    pub right: f64,
    /// Share of the pages that are on the right node and of which the policy could learn anything, in percent: it has
    /// chosen no node for the others.
    pub chosen_right: f64,
    /// Bytes between nodes in a loop.
    pub traffic: f64,
    /// Misses of the last-level cache for each instruction.
    pub misses: f64,
    /// Energy for each instruction, in nJ.
    pub energy: f64,
    /// The part of cores and links.
    pub processor_energy: f64,
    /// The part of memory.
    pub memory_energy: f64,
    /// Pages moved, in all loops that are measured.
    pub moved: f64,
    /// TLB misses for each access.
    pub tlb_misses: f64,
    /// Of the unit: evictions that met a race, those that it dealt with, and its accesses for each of the program's.
    pub unit: [f64; 3],
    /// How much each pair of threads shared, as the unit saw it.
    pub sharing: Vec<Vec<f64>>,
}

impl Played {
    fn of(figures: &Figures, right: f64, chosen_right: f64) -> Self {
        let loops = f64::from(figures.loops);
        let instructions = figures.instructions as f64;
        let energy = &figures.energy;
        let processor_j = energy.core_dynamic_j + energy.core_static_j + energy.link_j;
        let unit = figures.unit.map(|unit| {
            let races = unit.races as f64 / unit.counts.evictions.max(1) as f64;
            [races, unit.handled_share, unit.extra_access_share]
        });
        let cells = figures.sharing_seen.iter();
        Self {
            time: figures.seconds / loops,
            right,
            chosen_right,
            traffic: figures.interchip_bytes as f64 / loops,
            misses: figures.caches.llc_misses as f64 / instructions,
            energy: energy.per_instruction_nj,
            processor_energy: processor_j / instructions * 1e9,
            memory_energy: energy.dram_j / instructions * 1e9,
            moved: figures.pages.moved as f64,
            tlb_misses: figures.tlb.map_or(f64::NAN, |tlb| tlb.miss_rate),
            unit: unit.unwrap_or_default(),
            sharing: cells
                .map(|row| row.iter().map(|&cell| cell as f64).collect())
                .collect(),
        }
    }

    /// The mean of runs.
    fn mean(runs: &[Arc<Self>]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| mean(runs.iter().map(|run| figure(run)));
        let size = runs.first().map_or(0, |run| run.sharing.len());
        let cell = |row: usize, column: usize| of(&|run| run.sharing[row][column]);
        Self {
            time: of(&|run| run.time),
            right: of(&|run| run.right),
            chosen_right: of(&|run| run.chosen_right),
            traffic: of(&|run| run.traffic),
            misses: of(&|run| run.misses),
            energy: of(&|run| run.energy),
            processor_energy: of(&|run| run.processor_energy),
            memory_energy: of(&|run| run.memory_energy),
            moved: of(&|run| run.moved),
            tlb_misses: of(&|run| run.tlb_misses),
            unit: [0, 1, 2].map(|at| of(&|run| run.unit[at])),
            sharing: (0..size)
                .map(|row| (0..size).map(|column| cell(row, column)).collect())
                .collect(),
        }
    }
}

/// Traces, and what was computed from them; shared by all [`Setup`]s.
pub struct Plays<'a> {
    traces: &'a Traces,
    /// By recording, bytes of a page, and whether its set-up is left out.
    analysed: Memo<(&'static Kernel, u64, bool), Analysis>,
    /// By run, as text, and by seed.
    played: Memo<(String, u64), (Played, SetUp)>,
    /// Instructions in a loop, by recording, by how many loops are asked for and whether the first is left out.
    work: Memo<(&'static Kernel, u32, bool), f64>,
}

/// By how much the instructions in loops of one recording may differ: a thread's set-up does not end at the same
/// instruction in all runs (0.1 % was seen; chosen here).
const SAME_WORK: f64 = 0.01;

impl<'a> Plays<'a> {
    /// Nothing has run yet.
    pub fn new(traces: &'a Traces) -> Self {
        Self {
            traces,
            analysed: Memo::default(),
            played: Memo::default(),
            work: Memo::default(),
        }
    }

    fn play(&self, run: &Run, seed: u64) -> Result<Arc<(Played, SetUp)>> {
        let key = (format!("{run:?}"), seed);
        self.played.get(key, || self.play_anew(run, seed))
    }

    fn play_anew(&self, run: &Run, seed: u64) -> Result<(Played, SetUp)> {
        let trace = self.traces.of(run.kernel)?;
        let is_measured_again = run.options.again_ms > 0;
        let analysis = |set_up: &SetUp| {
            let page_bytes = run.hardware.page_bytes();
            let key = (run.kernel, page_bytes, is_measured_again);
            self.analysed.get(key, || {
                Ok(match is_measured_again {
                    true => Analysis::after(&trace, page_bytes, set_up)?,
                    false => Analysis::of(&trace, page_bytes)?,
                })
            })
        };
        let known = match (run.policy == ORACLE, is_measured_again) {
            (false, _) => None,
            (true, false) => Some(analysis(&SetUp::default())?),
            (true, true) => {
                let under_kernel = Run {
                    policy: KERNEL,
                    ..run.clone()
                };
                Some(analysis(&self.play(&under_kernel, seed)?.1)?)
            }
        };
        let settings = Settings {
            trace: run.options.clone(),
            ..Settings::as_published(World::Trace)
        };
        let on_trace = OnTrace {
            hardware: &run.hardware,
            trace: &trace,
            settings: &settings,
            analysis: known.as_deref(),
        };
        let trial = Trial {
            seed,
            ..Trial::of(run.policy)
        };
        let ran = on_trace
            .run(&trial)
            .with_context(|| format!("cannot play {} under {}", run.kernel.name, run.policy))?;
        let analysis = analysis(&ran.set_up)?;
        let right = |placement: &Start| {
            let pages = analysis.judge(placement, &run.hardware.topology);
            pages.right as f64 / pages.pages as f64 * 100.0
        };
        let mut chosen = ran.placement.clone();
        chosen.nodes.retain(|page, _| ran.pages_seen.contains(page));
        let figures = match ran.again {
            Some(again) if is_measured_again => again,
            _ => ran.figures,
        };
        self.check_work(run, &figures)?;
        let played = Played::of(&figures, right(&ran.placement), right(&chosen));
        Ok((played, ran.set_up))
    }

    /// Loops are compared by their times, so they must do the same.
    fn check_work(&self, run: &Run, figures: &Figures) -> Result<()> {
        let of_loop = figures.instructions as f64 / f64::from(figures.loops);
        let key = (run.kernel, run.options.loops, run.options.again_ms > 0);
        let usual = *self.work.get(key, || Ok(of_loop))?;
        ensure!(
            (of_loop / usual - 1.0).abs() <= SAME_WORK,
            "a loop of {} has {of_loop:.0} instructions under {}, and {usual:.0} in another run: they cannot be compared; \
             probably the end of set-up was not found in one of them",
            run.kernel.name,
            run.policy
        );
        Ok(())
    }
}

/// Runs with some seeds, for some time after the first loop.
pub struct Setup<'a> {
    plays: &'a Plays<'a>,
    seeds: Vec<u64>,
    again_ms: u64,
}

impl<'a> Setup<'a> {
    /// Runs with these seeds, for at least `again_ms` of the loop's time after the first loop, which is then not
    /// measured. With 0, all loops that a run's options ask for are measured.
    pub fn new(plays: &'a Plays<'a>, seeds: Vec<u64>, again_ms: u64) -> Self {
        Self {
            plays,
            seeds,
            again_ms,
        }
    }

    /// The run, for as long as this setup's are.
    fn lasting(&self, mut run: Run) -> Run {
        run.options.again_ms = match FIXED.contains(&run.policy) {
            true => self.again_ms.min(1),
            false => self.again_ms,
        };
        run
    }

    /// Runs all of these on all cores; the results are in the same order.
    ///
    /// # Errors
    /// A trace cannot be recorded or read, or a run fails.
    pub fn run(&self, runs: Vec<Run>) -> Result<Vec<Arc<Played>>> {
        // Recorded one after the other, before anything is measured.
        for run in &runs {
            self.plays.traces.of(run.kernel)?;
        }
        let runs: Vec<Run> = runs.into_iter().map(|run| self.lasting(run)).collect();
        let each: Vec<(&Run, u64)> = runs
            .iter()
            .flat_map(|run| self.seeds.iter().map(move |&seed| (run, seed)))
            .collect();
        let played = each.into_par_iter().map(|(run, seed)| {
            let played = self.plays.play(run, seed)?;
            Ok(Arc::new(played.0.clone()))
        });
        let played: Vec<Arc<Played>> = played.collect::<Result<_>>()?;
        let of_run = played.chunks(self.seeds.len());
        Ok(of_run.map(|runs| Arc::new(Played::mean(runs))).collect())
    }

    /// Runs each kernel on a platform under a policy.
    ///
    /// # Errors
    /// As [`Setup::run`].
    pub fn run_each(
        &self,
        platform: Platform,
        kernels: &[&'static Kernel],
        policy: &'static str,
    ) -> Result<Vec<Arc<Played>>> {
        let runs = kernels
            .iter()
            .map(|kernel| Run::new(platform, kernel, policy));
        self.run(runs.collect::<Result<_>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::traces::NAS;

    #[test]
    fn what_is_scaled_down_can_still_be_modelled() {
        for platform in [
            Platform::Simics,
            Platform::Itanium,
            Platform::Xeon32,
            Platform::Xeon64,
        ] {
            let (hardware, _) = platform.scaled().unwrap();
            assert_eq!(hardware.config.validate(), Ok(()), "{platform:?}");
        }
        let xeon = Platform::Xeon64.scaled().unwrap().0.config;
        assert_eq!(xeon.llc.bytes, 18 << 17);
        assert_eq!(xeon.tlb.unwrap().entries(), 64);
    }

    #[test]
    fn loops_that_do_other_work_are_not_compared() {
        let folder = tempfile::tempdir().unwrap();
        let traces = Traces::within(folder.path()).unwrap();
        let plays = Plays::new(&traces);
        let run = Run::new(Platform::Simics, &NAS[0], KERNEL).unwrap();
        let played = |loops, instructions| Figures {
            loops,
            instructions,
            ..Figures::default()
        };
        assert!(plays.check_work(&run, &played(1, 100_000)).is_ok());
        assert!(plays.check_work(&run, &played(4, 400_900)).is_ok());
        let longer = plays.check_work(&run, &played(4, 440_000)).unwrap_err();
        let told = longer.to_string();
        assert!(told.contains("has 110000 instructions"), "{told}");
        assert!(told.contains("and 100000 in another"), "{told}");
        // With set-up in it, a loop does something else.
        let with_set_up = run.with(|options| options.loops = 2);
        assert!(plays.check_work(&with_set_up, &played(2, 260_000)).is_ok());
    }
}
