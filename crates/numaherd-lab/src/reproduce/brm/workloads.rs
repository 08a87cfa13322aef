//! BRM Fig 1, 8b, 8c and 9: parallel and multiprogrammed workloads of four threads, under the kernel, under the
//! best fixed binding, and under brm.
//!
//! *Parallel*: a program of the NAS Parallel Benchmarks, class C, four threads. *Multiprogrammed*: four
//! programs of CPU2006, of one thread each. The paper's ran in a virtual machine of 12 GB, whose memory is on
//! both nodes; the paper does not say which page is where. Here every process has two thirds of its pages on
//! node 0 ([`Memory::Wide`]).

use std::sync::Arc;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{Sample, correlation, largest, mean, smallest};
use numaherd_model::{Job, Program, Until};
use numaherd_topology::NodeId;
use rayon::prelude::*;

use super::setup::{BRM, Memory, Setup, on_xen};
use crate::reproduce::page::table_in_note;
use crate::reproduce::testbed::{
    Effort, KERNEL, Testbed, Workload, after, improvement, increase, of_runs, row_of_runs,
};

/// The parallel programs in the order of Fig 1, those that depend most on their placement first, as far
/// as the text gives it: `lu` first, `ep` and `mg` last. `ua` has no profile; the paper leaves out `is`.
const PARALLEL: [&str; 7] = ["lu", "sp", "bt", "ft", "cg", "ep", "mg"];
/// The programs of the paper's multiprogrammed workloads.
pub(super) const SINGLE: [&str; 4] = ["mcf", "milc", "soplex", "sphinx3"];
/// Its workload of one of each.
const MIXED: &str = "mixed";
/// Part of an hour for which a workload is observed if it need not reach its first end.
const OF_AN_HOUR: f64 = 1.0 / 6.0;
/// Seconds between two times that another vCPU wakes up on a CPU; 0 is never, at which claims are compared.
const WAKES_S: [f64; 4] = [0.0, 100.0, 10.0, 1.0];
/// A smaller difference of times does not count as one, in percent.
const NONE: f64 = 2.0;

/// A workload's times.
struct Row {
    name: &'static str,
    kernel: Sample,
    /// The shortest and the longest time of any binding.
    best: f64,
    worst: f64,
    brm: Sample,
}

impl Row {
    /// Runs one workload under everything.
    fn of(setup: &Setup, name: &'static str, effort: &Effort) -> Result<Self> {
        let jobs = jobs(&setup.testbed, name, Memory::Wide)?;
        let alone = alone(setup, &jobs, name)?;
        let under = |policy| setup.under(policy, &jobs, &alone, &effort.seeds());
        let bindings = setup.bindings(&jobs, &alone)?;
        Ok(Self {
            name,
            kernel: under(KERNEL)?,
            brm: under(BRM)?,
            best: bindings[0],
            worst: bindings[bindings.len() - 1],
        })
    }

    /// By how much brm is faster than the kernel, in percent of the kernel's time.
    fn gain(&self) -> f64 {
        improvement(self.kernel.mean(), self.brm.mean())
    }

    /// By how much brm is slower than the best binding, in percent of the binding's time.
    fn behind(&self) -> f64 {
        increase(self.brm.mean(), self.best)
    }
}

/// A program by the paper's name for it; the parallel ones are of class C.
pub(super) fn program(testbed: &Testbed, name: &str) -> Result<Arc<Program>> {
    let found = match PARALLEL.contains(&name) {
        true => testbed.program(&format!("{name}.C")),
        false => testbed.program(name),
    };
    Ok(found?.clone())
}

/// A workload's jobs.
fn jobs(testbed: &Testbed, name: &str, memory: Memory) -> Result<Vec<Job>> {
    let programs = if PARALLEL.contains(&name) {
        vec![name]
    } else if name == MIXED {
        SINGLE.to_vec()
    } else {
        vec![name; SINGLE.len()]
    };
    let job = |name| Ok(memory.of(Job::new(program(testbed, name)?)));
    programs.into_iter().map(job).collect()
}

/// What each job's time is divided by: in the mixed workload the time of the program alone, as in the paper
/// (§6), on the node of most of its pages; otherwise 1.
fn alone(setup: &Setup, jobs: &[Job], name: &str) -> Result<Vec<f64>> {
    if name != MIXED {
        return Ok(vec![1.0; jobs.len()]);
    }
    let best = setup.testbed.cpus(NodeId(0));
    let alone = |job: &Job| {
        let job = job.clone().on(vec![best[0]]);
        Ok(setup.under(KERNEL, &[job], &[1.0], &[0])?.mean())
    };
    jobs.iter().map(alone).collect()
}

/// The workload of one program of each, with the times of each alone.
pub(super) fn mixed(setup: &Setup) -> Result<(Vec<Job>, Vec<f64>)> {
    let jobs = jobs(&setup.testbed, MIXED, Memory::Wide)?;
    let alone = alone(setup, &jobs, MIXED)?;
    Ok((jobs, alone))
}

/// By how much the worst binding of a workload is slower than the best, in percent.
fn loss_by_binding(setup: &Setup, name: &str, memory: Memory) -> Result<f64> {
    let jobs = jobs(&setup.testbed, name, memory)?;
    let times = setup.bindings(&jobs, &vec![1.0; jobs.len()])?;
    Ok(increase(times[times.len() - 1], times[0]))
}

/// Whether a program is faster in some places than in others: with three of its kind, or in four threads, its
/// memory as in [`Memory::Wide`].
pub(super) fn binding_matters(setup: &Setup, name: &str) -> Result<bool> {
    Ok(loss_by_binding(setup, name, Memory::Wide)? > NONE)
}

/// The workloads of Fig 8b, then those of Fig 8c.
fn names() -> impl Iterator<Item = &'static str> {
    PARALLEL.into_iter().chain(SINGLE).chain([MIXED])
}

/// Each workload for ten minutes, with its name.
pub(super) fn all(testbed: &Testbed, effort: &Effort) -> Result<Vec<(String, Workload)>> {
    let until = effort.part_of_hour(OF_AN_HOUR);
    let workload = |name: &str| {
        let workload = Workload::new(jobs(testbed, name, Memory::Wide)?, until);
        Ok((name.to_owned(), workload))
    };
    names().map(workload).collect()
}

/// How the default scheduler's figures depend on what the paper does not say: how often another vCPU, of the guest's
/// twelve idle ones or of dom0, wakes up on a CPU where the workload runs. An idle CPU, of whichever node, then
/// steals the workload's vCPU. Candidates of brm are not stolen here.
pub(super) fn by_waking(setup: &Setup, effort: &Effort) -> Result<Measured> {
    let row = |seconds: f64| -> Result<Vec<String>> {
        let times = |name| -> Result<[Sample; 2]> {
            let jobs = jobs(&setup.testbed, name, Memory::Wide)?;
            let alone = alone(setup, &jobs, name)?;
            let mut workload = on_xen(jobs, Until::Completions(1));
            let brm = setup.times(BRM, &workload, &alone, &effort.seeds())?;
            workload.options.wakes_elsewhere_s = seconds;
            let xen = setup.times(KERNEL, &workload, &alone, &effort.seeds())?;
            Ok([xen, brm])
        };
        let times: Vec<[Sample; 2]> = names().map(times).collect::<Result<_>>()?;
        let figures = |runs: &[usize]| {
            let each = |figure: fn(&Sample, &Sample) -> f64| -> Vec<f64> {
                let of =
                    |[xen, brm]: &[Sample; 2]| figure(&of_runs(xen, runs), &of_runs(brm, runs));
                times.iter().map(of).collect()
            };
            let gains = each(|xen, brm| improvement(xen.mean(), brm.mean()));
            let deviations = each(|xen, _| xen.deviation_percent());
            vec![
                mean(&gains),
                largest(&gains),
                mean(&deviations),
                largest(&deviations),
            ]
        };
        Ok(row_of_runs(after(seconds), effort, figures))
    };
    let rows = WAKES_S.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    let headings = [
        "another vCPU wakes up on a CPU after",
        "mean gain",
        "largest gain",
        "mean deviation",
        "largest deviation",
    ];
    let mut measured = Measured::new();
    measured.detail("by-waking", table_in_note(&headings, rows));
    Ok(measured)
}

pub(super) fn measure(setup: &Setup, effort: &Effort) -> Result<Measured> {
    let rows: Vec<Row> = (names().collect::<Vec<_>>())
        .into_par_iter()
        .map(|name| Row::of(setup, name, effort))
        .collect::<Result<_>>()?;
    let (parallel, multi) = rows.split_at(PARALLEL.len());
    let mut measured = Measured::new();
    parallel_workloads(parallel, &mut measured);
    multiprogrammed(multi, &mut measured);
    deviations(&rows, &mut measured);
    Ok(measured)
}

/// Fig 1: all memory on node 0, the worst binding against the best.
pub(super) fn bound(setup: &Setup) -> Result<Measured> {
    let losses = |names: &[&'static str]| -> Result<Vec<(&'static str, f64)>> {
        let loss = |&name| Ok((name, loss_by_binding(setup, name, Memory::Node0)?));
        names.iter().map(loss).collect()
    };
    let (parallel, single) = (losses(&PARALLEL)?, losses(&SINGLE)?);
    let insensitive = |one: &&(&str, f64)| ["ep", "mg"].contains(&one.0);
    let others = parallel[1..].iter().filter(|one| !insensitive(one));
    let least_other = smallest(others.map(|one| one.1));
    let most_insensitive = largest(parallel.iter().filter(insensitive).map(|one| one.1));
    let mut measured = Measured::new();
    measured.figure("fig1-lu", parallel[0].1);
    measured.order("fig1-insensitive", [least_other, most_insensitive]);
    let least_single = smallest(single.iter().map(|one| one.1));
    measured.order("fig1-multiprogrammed", [least_single, NONE]);
    measured.detail("worst-parallel", list(parallel, 0));
    measured.detail("worst-single", list(single, 0));
    Ok(measured)
}

/// What brm gains in each workload.
fn gains(rows: &[Row]) -> String {
    let each = rows.iter().map(|row| {
        let (name, gain, behind) = (row.name, row.gain(), row.behind());
        format!("{name} {gain:+.1} ({behind:+.1} behind the best binding)")
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Fig 8b.
fn parallel_workloads(rows: &[Row], measured: &mut Measured) {
    for row in rows
        .iter()
        .filter(|row| ["lu", "cg", "ep", "mg"].contains(&row.name))
    {
        measured.figure(format!("fig8b-{}", row.name), row.gain());
    }
    let losses: Vec<f64> = rows.iter().map(|row| row.worst / row.best).collect();
    let each: Vec<f64> = rows.iter().map(Row::gain).collect();
    measured.figure("fig8b-sensitive-gain-more", correlation(&losses, &each));
    let sensitive = rows
        .iter()
        .filter(|row| increase(row.worst, row.best) > NONE);
    measured.figure("fig8b-behind-best", largest(sensitive.map(Row::behind)));
    measured.detail("parallel-gains", gains(rows));
}

/// Fig 8c.
fn multiprogrammed(rows: &[Row], measured: &mut Measured) {
    let mixed = rows
        .iter()
        .find(|row| row.name == MIXED)
        .expect("it is run");
    measured.figure("fig8c-over-default", smallest(rows.iter().map(Row::gain)));
    measured.figure("fig8c-over-best", -largest(rows.iter().map(Row::behind)));
    measured.figure("fig8c-mixed-default", mixed.gain());
    measured.figure("fig8c-mixed-best", -mixed.behind());
    measured.detail("multi-gains", gains(rows));
}

/// Fig 9.
fn deviations(rows: &[Row], measured: &mut Measured) {
    let of = |which: fn(&Row) -> &Sample| {
        let each = || {
            rows.iter()
                .map(|row| (row.name, which(row).deviation_percent()))
        };
        let (average, most) = (
            mean(each().map(|one| one.1)),
            largest(each().map(|one| one.1)),
        );
        (average, most, list(each(), 1))
    };
    let (kernel, kernel_most, of_kernel) = of(|row| &row.kernel);
    let (brm, brm_most, of_brm) = of(|row| &row.brm);
    measured.figure("fig9-brm", brm);
    measured.figure("fig9-default-largest", kernel_most);
    measured.order("fig9-brm-steadier", [kernel, brm]);
    measured.detail("largest-deviation", format!("{brm_most:.1}"));
    measured.detail("brm-deviations", of_brm);
    measured.detail("kernel-deviations", of_kernel);
}
