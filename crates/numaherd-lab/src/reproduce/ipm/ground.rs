//! What the experiments share: machines, kernels, and runs of policies on them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use numaherd_hardware::{Cache, Config};
use numaherd_topology::Machine;
use numaherd_trace::Trace;
use numaherd_trace::world::{Analysis, Figures, Hardware, Judgement, Options, Recording};
use rayon::prelude::*;

use super::super::Effort;
use super::super::traces::{Kernel, Traces};
use crate::trace::simulate::trial::{self, Trial};

/// By how much caches and what TLBs reach are made smaller where the paper ran classes A and B: by about as
/// much as class W is smaller than these (FACTS 2.2: sp 5, lu 7, mg 8 times; bt, cg, is and ft more).
pub const SCALE: u64 = 8;

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
    /// Its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simics => "Simics",
            Self::Itanium => "Itanium",
            Self::Xeon32 => "Xeon32",
            Self::Xeon64 => "Xeon64",
        }
    }

    /// What is modelled.
    ///
    /// # Errors
    /// Only when the program's own data are damaged.
    pub fn hardware(self) -> Result<Hardware> {
        let (preset, scale) = match self {
            Self::Simics => ("ipm-simics-4x2", 1),
            Self::Itanium => ("itanium-9030-4s", SCALE),
            Self::Xeon32 => ("xeon-e5-2650-2s", SCALE),
            Self::Xeon64 => ("xeon-x7550-4s", SCALE),
        };
        let mut hardware = Hardware::of(&Machine::preset(preset)?)?;
        scale_down(&mut hardware.config, scale);
        Ok(hardware)
    }
}

/// Makes caches smaller, and what the TLBs reach: pages down to 4 KiB, the rest by fewer entries.
/// Associativity goes down where there are not as many lines or entries.
fn scale_down(config: &mut Config, scale: u64) {
    let line = config.line_bytes;
    let cache = |cache: &mut Cache| {
        cache.bytes /= scale;
        cache.ways = cache.ways.min((cache.bytes / line) as usize);
    };
    cache(&mut config.l1);
    config.l2.iter_mut().for_each(cache);
    cache(&mut config.llc);
    if let Some(tlb) = &mut config.tlb {
        let page_bytes = (tlb.page_bytes / scale).max(4096);
        let fewer = scale * page_bytes / tlb.page_bytes;
        tlb.page_bytes = page_bytes;
        for level in tlb.l2.iter_mut().chain([&mut tlb.l1]) {
            level.entries /= fewer as usize;
            level.ways = level.ways.min(level.entries);
        }
    }
}

/// One run: a kernel on a machine under a policy.
#[derive(Clone, Debug)]
pub struct Job {
    /// The machine.
    pub hardware: Hardware,
    /// The program.
    pub kernel: &'static Kernel,
    /// The policy's name.
    pub policy: &'static str,
    /// How the trace is played; seed and length are the ground's.
    pub options: Options,
}

impl Job {
    /// A run with everything as the paper has it.
    ///
    /// # Errors
    /// As [`Platform::hardware`].
    pub fn new(platform: Platform, kernel: &'static Kernel, policy: &'static str) -> Result<Self> {
        Ok(Self {
            hardware: platform.hardware()?,
            kernel,
            policy,
            options: Options::default(),
        })
    }

    /// The same with other options.
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Played {
    /// What the machine did.
    pub figures: Figures,
    /// Whether pages were on the right nodes at the end, by the whole trace.
    pub pages: Judgement,
}

/// Where experiments run.
pub struct Ground<'a> {
    traces: &'a Traces,
    runs: u32,
    loops: u32,
    opened: Mutex<HashMap<Kernel, Arc<Trace>>>,
    analysed: Mutex<HashMap<(Kernel, u64), Arc<Analysis>>>,
    /// Runs that several experiments ask for are made once.
    played: Mutex<HashMap<String, Arc<Played>>>,
}

impl<'a> Ground<'a> {
    /// A ground on which nothing has run yet.
    pub fn new(traces: &'a Traces, effort: &Effort) -> Self {
        Self {
            traces,
            runs: effort.trace_runs,
            loops: effort.trace_loops,
            opened: Mutex::default(),
            analysed: Mutex::default(),
            played: Mutex::default(),
        }
    }

    /// A kernel's recording.
    ///
    /// # Errors
    /// As [`Traces::of`].
    pub fn trace(&self, kernel: &Kernel) -> Result<Arc<Trace>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trace) = opened.get(kernel) {
            return Ok(trace.clone());
        }
        let trace = self.traces.of(kernel)?;
        opened.insert(*kernel, trace.clone());
        Ok(trace)
    }

    /// Who uses which page of a kernel, by all accesses.
    ///
    /// # Errors
    /// As [`Traces::of`]; the trace breaks off.
    pub fn analysis(&self, kernel: &Kernel, page_bytes: u64) -> Result<Arc<Analysis>> {
        let key = (*kernel, page_bytes);
        let known = |all: &HashMap<_, Arc<Analysis>>| all.get(&key).cloned();
        if let Some(analysis) = known(&self.analysed.lock().unwrap_or_else(PoisonError::into_inner))
        {
            return Ok(analysis);
        }
        let trace = self.trace(kernel)?;
        let analysis = Arc::new(Analysis::of(&mut Recording::new(trace), page_bytes)?);
        let mut all = self.analysed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(all.entry(key).or_insert(analysis).clone())
    }

    /// Runs all jobs, each as often as the effort says, on all cores; what came of each job's runs,
    /// in the jobs' order.
    ///
    /// # Errors
    /// As [`Ground::trace`]; a run that fails.
    pub fn run(&self, jobs: Vec<Job>) -> Result<Vec<Vec<Arc<Played>>>> {
        // Recorded one after the other, before anything is measured.
        for job in &jobs {
            self.trace(job.kernel)?;
        }
        let each: Vec<(usize, u32)> = (0..jobs.len())
            .flat_map(|job| (0..self.runs).map(move |run| (job, run)))
            .collect();
        let played: Result<Vec<(usize, Arc<Played>)>> = each
            .into_par_iter()
            .map(|(at, run)| Ok((at, self.one(&jobs[at], run)?)))
            .collect();
        let mut by_job = vec![Vec::new(); jobs.len()];
        for (job, played) in played? {
            by_job[job].push(played);
        }
        Ok(by_job)
    }

    fn one(&self, job: &Job, run: u32) -> Result<Arc<Played>> {
        let name = format!("{run} {job:?}");
        let lock = || self.played.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(played) = lock().get(&name) {
            return Ok(played.clone());
        }
        let played = Arc::new(self.play(job, run)?);
        Ok(lock().entry(name).or_insert(played).clone())
    }

    fn play(&self, job: &Job, run: u32) -> Result<Played> {
        let trace = self.trace(job.kernel)?;
        let page_bytes = job.hardware.config.tlb.map_or(4096, |tlb| tlb.page_bytes);
        let analysis = self.analysis(job.kernel, page_bytes)?;
        let mut options = job.options.clone();
        options.seed = u64::from(run) + 1;
        options.loops = self.loops;
        if job.policy != "ipm" {
            // Others run on hardware without the unit, whose work costs time where software does it.
            options.ipm = None;
        }
        let ran = trial::run(&Trial {
            hardware: &job.hardware,
            trace: &trace,
            options,
            policy: job.policy,
            policies: &numaherd_policy::Settings::default(),
            herd: &trial::settings(),
            analysis: Some(&analysis),
        })
        .with_context(|| format!("cannot play {} under {}", job.kernel.name, job.policy))?;
        Ok(Played {
            pages: analysis.judge(&ran.placement, &job.hardware.topology),
            figures: ran.figures,
        })
    }
}

/// The mean of a figure over runs.
pub fn mean_of(runs: &[Arc<Played>], figure: impl Fn(&Played) -> f64) -> f64 {
    super::super::mean(runs.iter().map(|played| figure(played)))
}

/// How much a figure changed against another's, in percent: below 0 when it fell.
pub fn change(
    runs: &[Arc<Played>],
    against: &[Arc<Played>],
    figure: impl Fn(&Played) -> f64,
) -> f64 {
    (mean_of(runs, &figure) / mean_of(against, &figure) - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_scaled_down_can_still_be_modelled() {
        for platform in [
            Platform::Simics,
            Platform::Itanium,
            Platform::Xeon32,
            Platform::Xeon64,
        ] {
            let hardware = platform.hardware().unwrap();
            assert_eq!(hardware.config.validate(), Ok(()), "{}", platform.name());
        }
        let xeon = Platform::Xeon64.hardware().unwrap().config;
        assert_eq!(xeon.llc.bytes, 18 << 17);
        assert_eq!(xeon.tlb.unwrap().entries(), 64);
    }
}
