//! IPM §6.4, Fig 13 to 15: the design space, on the machine with software-managed TLBs.
//!
//! The paper runs CG, MG, SP and Facesim and prints no figures, only the direction of each; directions are
//! compared. Facesim has no stand-in; the stencil takes its place as a regular program of another kind. mg is
//! left out: its recording is a third of all together. TLB entries and pages are scaled as the machine is: the
//! paper's 128 entries are 64 here, its pages of 16 KiB to 4 MiB are 4 KiB to 1 MiB.

use std::fmt::Display;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::{largest, mean};
use numaherd_hardware::{IpmConfig, PeriodicPass, Tlb};

use super::setup::{Platform, Run, Setup};
use crate::reproduce::testbed::increase;
use crate::reproduce::traces::named;

const PROGRAMS: [&str; 3] = ["cg", "sp", "stencil"];

/// Whether the unit passes over pages that are evicted infrequently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Without,
    With,
}

impl Pass {
    fn of(self, run: Run) -> Run {
        run.with_unit(|unit| {
            let pass = unit.pass.unwrap_or(PeriodicPass {
                every_cycles: 1 << 20,
                resident_cycles: 1 << 20,
            });
            unit.pass = (self == Self::With).then_some(pass);
        })
    }
}

/// Mean time over the programs for each value of a setting, in percent more than for the first value.
fn times<T: Copy>(
    setup: &Setup<'_>,
    values: &[T],
    set: impl Fn(Run, T) -> Run,
) -> Result<Vec<f64>> {
    let mut runs = Vec::new();
    for &value in values {
        for program in PROGRAMS {
            let run = Run::new(Platform::Itanium, named(program), "ipm")?;
            runs.push(set(run, value));
        }
    }
    let played = setup.run(runs)?;
    let (first, _) = played.split_at(PROGRAMS.len());
    let over_first = |runs: &[std::sync::Arc<super::setup::Played>]| {
        let pairs = runs.iter().zip(first);
        mean(pairs.map(|(run, first)| increase(run.time, first.time)))
    };
    Ok(played.chunks(PROGRAMS.len()).map(over_first).collect())
}

fn by_value<T: Display>(values: &[T], times: &[f64]) -> String {
    let named = values.iter().map(|value| format!("{value}:"));
    changes(named.zip(times.iter()), 1)
}

pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured> {
    let mut measured = Measured::new();
    ageing(setup, &mut measured)?;
    threshold(setup, &mut measured)?;
    entries(setup, &mut measured)?;
    pages(setup, &mut measured)?;
    Ok(measured)
}

fn ageing(setup: &Setup<'_>, measured: &mut Measured) -> Result<()> {
    // Values as the paper counts them. In dilated time its 7 is less (`world::unit`), and so are the others.
    let values = [7_u32, 4, 5, 13];
    let paper = IpmConfig::of_paper().cr_aging;
    let times = times(setup, &values, |run, value| {
        run.with_unit(|unit| unit.cr_aging = (unit.cr_aging + value).saturating_sub(paper))
    })?;
    measured.figure("fig13a-low", largest(&times[1..3]));
    measured.figure("fig13a-high", times[3]);
    measured.detail("ageing", by_value(&values, &times));
    Ok(())
}

fn threshold(setup: &Setup<'_>, measured: &mut Measured) -> Result<()> {
    let values = [2, 0, 8];
    let set = |run: Run, value| run.with_unit(|unit| unit.cr_mig = value);
    let times = times(setup, &values, set)?;
    measured.figure("fig13b-low", times[1]);
    measured.figure("fig13b-high", times[2]);
    measured.detail("threshold", by_value(&values, &times));
    Ok(())
}

/// Times for each value of a setting of the TLB, without the pass and with it.
fn of_tlb<T: Copy>(
    setup: &Setup<'_>,
    values: &[T],
    set: impl Fn(&mut Tlb, T),
) -> Result<[Vec<f64>; 2]> {
    let times = |pass: Pass| {
        times(setup, values, |run, value| {
            let mut run = pass.of(run);
            if let Some(tlb) = &mut run.hardware.config.tlb {
                set(tlb, value);
            }
            run
        })
    };
    Ok([times(Pass::Without)?, times(Pass::With)?])
}

fn entries(setup: &Setup<'_>, measured: &mut Measured) -> Result<()> {
    let values = [64_usize, 1024, 4096];
    let [without, with] = of_tlb(setup, &values, |tlb, entries| {
        tlb.l1.entries = entries;
        tlb.l1.ways = entries;
    })?;
    measured.order("fig14a", [without[2], with[2]]);
    measured.figure("fig14b", largest(&with[1..]));
    measured.detail("entries-without", by_value(&values, &without));
    measured.detail("entries-with", by_value(&values, &with));
    Ok(())
}

fn pages(setup: &Setup<'_>, measured: &mut Measured) -> Result<()> {
    let values = [4_u64, 1024];
    let [without, with] = of_tlb(setup, &values, |tlb, kib| tlb.page_bytes = kib << 10)?;
    measured.order("fig15a", [without[1], with[1]]);
    measured.figure("fig15b", with[1]);
    measured.detail("pages-without", by_value(&values, &without));
    measured.detail("pages-with", by_value(&values, &with));
    Ok(())
}
