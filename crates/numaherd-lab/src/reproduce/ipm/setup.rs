//! The machines of IPM's experiments, and runs of kernels' traces on them.

use std::sync::Arc;

use anyhow::{Context, Result};
use numaherd_hardware::{Cache, Config, IpmConfig};
use numaherd_topology::Machine;
use numaherd_trace::world::{Analysis, Figures, Hardware, Judgement, Options, UnitFigures};
use rayon::prelude::*;

use crate::reproduce::testbed::Memo;
use crate::reproduce::traces::{Kernel, Traces};
use numaherd_experiment::{OnTrace, Settings, Trial, World};

/// By how much caches and TLB reach are made smaller where the paper ran classes A and B: by about as much as
/// class W is smaller than these (FACTS 2.2: sp 5, lu 7, mg 8 times; bt, cg, is and ft more).
pub const SCALE: u64 = 8;

/// The seed of all runs on traces. Chance is only in where the kernel starts threads.
const SEED: u64 = 1;

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

/// Makes caches smaller, and what TLBs reach: first by smaller pages, down to 4 KiB, then by fewer entries.
/// Associativity shrinks where there are fewer lines or entries than ways.
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
pub struct Run {
    /// The machine.
    pub hardware: Hardware,
    /// The program.
    pub kernel: &'static Kernel,
    /// The policy's name.
    pub policy: &'static str,
    /// How the trace is played.
    pub options: Options,
}

impl Run {
    /// A run with everything as the paper has it.
    ///
    /// # Errors
    /// As [`Platform::hardware`].
    pub fn new(platform: Platform, kernel: &'static Kernel, policy: &'static str) -> Result<Self> {
        let mut options = Options {
            seed: SEED,
            ..Options::default()
        };
        if policy != "ipm" {
            // Other policies run on hardware without the unit, whose work costs time where software does it.
            options.ipm = None;
        }
        Ok(Self {
            hardware: platform.hardware()?,
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

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Played {
    /// What the machine did.
    pub figures: Figures,
    /// Whether pages were on the right nodes at the end, by the whole trace.
    pub pages: Judgement,
}

impl Played {
    /// Modelled time in seconds.
    pub fn time(&self) -> f64 {
        self.figures.seconds
    }

    /// Share of the pages that are on the right node at the end, in percent.
    pub fn right(&self) -> f64 {
        self.pages.right as f64 / self.pages.pages as f64 * 100.0
    }

    /// A figure of the unit; 0 without one.
    pub fn of_unit(&self, figure: impl FnOnce(&UnitFigures) -> f64) -> f64 {
        self.figures.unit.as_ref().map_or(0.0, figure)
    }
}

/// Traces, and what was computed from them.
pub struct Setup<'a> {
    traces: &'a Traces,
    analysed: Memo<Analysis>,
    played: Memo<Played>,
}

impl<'a> Setup<'a> {
    /// A setup on which nothing has run yet.
    pub fn new(traces: &'a Traces) -> Self {
        Self {
            traces,
            analysed: Memo::default(),
            played: Memo::default(),
        }
    }

    /// Runs all of these on all cores; the results are in the same order.
    ///
    /// # Errors
    /// A trace cannot be recorded or read, or a run fails.
    pub fn run(&self, runs: Vec<Run>) -> Result<Vec<Arc<Played>>> {
        // Recorded one after the other, before anything is measured.
        for run in &runs {
            self.traces.of(run.kernel)?;
        }
        let runs = runs.into_par_iter();
        runs.map(|run| self.played.get(&run, || self.play(&run)))
            .collect()
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

    fn play(&self, run: &Run) -> Result<Played> {
        let trace = self.traces.of(run.kernel)?;
        let page_bytes = run.hardware.config.tlb.map_or(4096, |tlb| tlb.page_bytes);
        let analysis = self.analysed.get(&(run.kernel, page_bytes), || {
            Ok(Analysis::of(&trace, page_bytes)?)
        })?;
        let settings = Settings {
            trace: run.options.clone(),
            ..Settings::as_published(World::Trace)
        };
        let on_trace = OnTrace {
            hardware: &run.hardware,
            trace: &trace,
            settings: &settings,
            analysis: Some(&analysis),
        };
        let trial = Trial {
            seed: run.options.seed,
            ..Trial::of(run.policy)
        };
        let ran = on_trace
            .run(&trial)
            .with_context(|| format!("cannot play {} under {}", run.kernel.name, run.policy))?;
        Ok(Played {
            pages: analysis.judge(&ran.placement, &run.hardware.topology),
            figures: ran.figures,
        })
    }
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
            assert_eq!(hardware.config.validate(), Ok(()), "{platform:?}");
        }
        let xeon = Platform::Xeon64.hardware().unwrap().config;
        assert_eq!(xeon.llc.bytes, 18 << 17);
        assert_eq!(xeon.tlb.unwrap().entries(), 64);
    }
}
