//! Plays one trace on one machine under one policy, by the same loop that herds a live machine.

use std::collections::HashSet;

use numaherd_herd::Ending;
use numaherd_policy::Means;
use numaherd_policy::mapping::{Communication, Tree, best};
use numaherd_trace::Trace;
use numaherd_trace::world::{Analysis, Figures, Hardware, Options, SetUp, Start, TraceWorld};
use numaherd_world::NewPages;

use crate::{ExperimentError, Settings, Trial};

/// The policy that knows the whole trace: threads and pages are at their best places from the
/// start, and nothing moves. See `policy::mapping::best`.
pub const ORACLE: &str = "oracle";

/// A trace on a modelled machine.
#[derive(Clone, Copy, Debug)]
pub struct OnTrace<'a> {
    /// The machine.
    pub hardware: &'a Hardware,
    /// The trace to play.
    pub trace: &'a Trace,
    /// Of the loop, the policies and the playback; the seed is the trial's.
    pub settings: &'a Settings,
    /// The analysis of the whole trace, in pages of the machine; [`ORACLE`] needs it.
    pub analysis: Option<&'a Analysis>,
}

/// The result of a trial on a trace.
#[derive(Clone, Debug)]
pub struct Played {
    /// The machine's figures.
    pub figures: Figures,
    /// The figures without the first loop, if there is another.
    pub again: Option<Figures>,
    /// The part that was played in the first loop only.
    pub set_up: SetUp,
    /// The places of threads and pages at the end.
    pub placement: Start,
    /// The pages, by process and page number, that the policy could learn about.
    pub pages_seen: HashSet<(u32, u64)>,
}

impl OnTrace<'_> {
    /// Plays the trace to its end.
    ///
    /// # Errors
    /// The policy is unknown or needs signals that the machine does not have; an option is wrong; the oracle has no
    /// analysis; the ledger cannot be written.
    pub fn run(&self, trial: &Trial) -> Result<Played, ExperimentError> {
        let mut options = Options {
            seed: trial.seed,
            ..self.settings.trace.clone()
        };
        let mut herded = trial.clone();
        if trial.policy == ORACLE {
            let analysis = self.analysis.ok_or(ExperimentError::NoAnalysis)?;
            options.start = best_start(self.hardware, analysis)?;
            options.new_pages = NewPages::FirstTouch;
            "linux".clone_into(&mut herded.policy);
        }
        let mut world = TraceWorld::new(self.hardware.clone(), self.trace, options)?;
        let summary = herded.herd(&mut world, self.settings, &Means::default())?;
        if let Ending::Failed { error } = summary.ending {
            return Err(ExperimentError::BrokeOff {
                policy: trial.policy.clone(),
                why: error,
            });
        }
        Ok(Played {
            figures: world.figures(),
            again: world.figures_again(),
            set_up: world.set_up(),
            placement: world.placement(),
            pages_seen: world.pages_seen(),
        })
    }
}

/// Threads with less than this share of the busiest one's accesses are left to the kernel: otherwise they would take
/// the place of a busy one.
const LEAST_SHARE: f64 = 0.01;

/// The best places of threads and pages, from the whole trace. Threads with next to no accesses are left to the kernel;
/// with more threads than CPUs, so are those with the fewest.
///
/// # Errors
/// The machine has no CPU.
pub fn best_start(hardware: &Hardware, analysis: &Analysis) -> Result<Start, ExperimentError> {
    let topology = &hardware.topology;
    let tree =
        Tree::new(topology, &topology.online_cpus()).ok_or_else(|| ExperimentError::NoCpu {
            machine: topology.name().to_owned(),
        })?;
    let matrix = analysis.communication();
    let mut accesses = vec![0u64; matrix.len()];
    for &(thread, count) in analysis.pages.iter().flat_map(|page| &page.by_thread) {
        accesses[thread as usize] += count;
    }
    let most = accesses.iter().copied().max().unwrap_or(0) as f64;
    let works = |thread: &usize| accesses[*thread] as f64 >= LEAST_SHARE * most;
    let mut working: Vec<usize> = (0..matrix.len()).filter(works).collect();
    working.sort_by_key(|&thread| (std::cmp::Reverse(accesses[thread]), thread));
    working.truncate(tree.cpus().len());
    working.sort_unstable();
    let communication = Communication::of(working.len(), |one, other| {
        matrix[working[one]][working[other]]
    });
    let pages = analysis.pages.iter().map(|page| {
        let by_thread = page.by_thread.iter();
        by_thread
            .filter_map(|&(thread, accesses)| {
                let thread = working.binary_search(&(thread as usize)).ok()?;
                Some((thread, accesses))
            })
            .collect::<Vec<_>>()
    });
    let best = best(&communication, &tree, topology, pages);
    let placed = analysis.pages.iter().zip(best.pages);
    let mut cpus = vec![None; matrix.len()];
    for (thread, cpu) in working.iter().zip(best.cpus) {
        cpus[*thread] = Some(cpu);
    }
    Ok(Start {
        cpus,
        nodes: placed
            .filter_map(|(page, node)| Some(((page.process, page.page), node?)))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use numaherd_testing::traces::shared_pages;
    use numaherd_topology::Machine;
    use numaherd_trace::ThreadInfo;
    use numaherd_trace::world::PageUse;

    use super::*;
    use crate::World;

    fn hardware() -> Hardware {
        let mut hardware = Hardware::of(&Machine::preset("lab-4x2").unwrap()).unwrap();
        // Small caches and TLBs for a small program.
        hardware.config.llc.bytes = 128 << 10;
        let tlb = hardware.config.tlb.as_mut().unwrap();
        tlb.l2.as_mut().unwrap().entries = 128;
        hardware
    }

    #[test]
    fn policies_do_on_a_trace_what_they_are_known_for() {
        let (trace, hardware) = (shared_pages(2, 16), hardware());
        let analysis = Analysis::of(&trace, 4096).unwrap();
        let figures = |policy| {
            let mut settings = Settings::as_published(World::Trace);
            settings.trace.loops = 12;
            let played = OnTrace {
                hardware: &hardware,
                trace: &trace,
                settings: &settings,
                analysis: Some(&analysis),
            };
            played.run(&Trial::of(policy)).unwrap().figures
        };
        let (linux, oracle, ipm) = (figures("linux"), figures(ORACLE), figures("ipm"));
        assert_eq!((linux.pages.moved, linux.thread_moves), (0, 0));
        assert_eq!((oracle.pages.moved, oracle.thread_moves), (0, 0));
        assert_eq!(oracle.pages.right_share, 1.0);
        assert!(linux.pages.right_share < 0.5, "{:?}", linux.pages);
        assert!(ipm.pages.right_share > 0.8, "{:?}", ipm.pages);
        assert!(ipm.pages.moved > 0 && ipm.unit.unwrap().counts.notifications > 0);
        assert!(oracle.seconds < ipm.seconds && ipm.seconds < linux.seconds);
        assert!(ipm.interchip_bytes < linux.interchip_bytes);
        assert_eq!(linux.instructions, ipm.instructions);
    }

    #[test]
    fn a_policy_sees_the_pages_that_it_has_samples_of() {
        let (trace, hardware) = (shared_pages(2, 16), hardware());
        let played = |policy| {
            let mut settings = Settings::as_published(World::Trace);
            settings.trace.ipm = None;
            let on_trace = OnTrace {
                hardware: &hardware,
                trace: &trace,
                settings: &settings,
                analysis: None,
            };
            on_trace.run(&Trial::of(policy)).unwrap()
        };
        assert!(played("linux").pages_seen.is_empty());
        let sampled = played("sampled");
        assert!(!sampled.pages_seen.is_empty());
        let is_there = |page| sampled.placement.nodes.contains_key(page);
        assert!(sampled.pages_seen.iter().all(is_there));
    }

    #[test]
    fn the_oracle_leaves_threads_that_do_next_to_nothing_to_the_kernel() {
        let page = |page, by_thread: &[(u32, u64)]| PageUse {
            process: 10,
            page,
            by_thread: by_thread.to_vec(),
        };
        let analysis = Analysis {
            page_bytes: 4096,
            threads: vec![ThreadInfo::default(); 3],
            pages: vec![page(1, &[(0, 5), (1, 1000)]), page(2, &[(0, 3), (2, 900)])],
            accesses: 1908,
        };
        let hardware = hardware();
        let start = best_start(&hardware, &analysis).unwrap();
        assert_eq!(start.cpus[0], None);
        let node = |thread: usize| hardware.topology.node_of(start.cpus[thread].unwrap());
        assert_eq!(start.nodes.get(&(10, 1)).copied(), node(1));
        assert_eq!(start.nodes.get(&(10, 2)).copied(), node(2));
        assert_ne!(start.cpus[1], start.cpus[2]);
    }

    #[test]
    fn the_oracle_asks_for_an_analysis() {
        let (trace, hardware) = (shared_pages(2, 16), hardware());
        let played = OnTrace {
            hardware: &hardware,
            trace: &trace,
            settings: &Settings::as_published(World::Trace),
            analysis: None,
        };
        let said = played.run(&Trial::of(ORACLE)).unwrap_err().to_string();
        assert_eq!(said, "the oracle needs an analysis of the trace");
    }
}
