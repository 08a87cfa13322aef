//! IPM §6.1, Fig 6: which threads share, as the unit detects it.
//!
//! The paper shows heat maps and describes them in words. The descriptions are compared, and the maps can be
//! drawn ([`draw`]). On the machine with four sockets, 16 threads of each NAS kernel.

use std::path::Path;

use anyhow::{Context, Result};
use numaherd::print;
use numaherd_experiment::chart::heat_map::heat_map;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{mean, smallest};

use super::setup::{INTERVAL_MS, INTERVALS, Platform, Played, Plays, Setup};
use crate::reproduce::traces::{Kernel, NAS_MANY, PARSEC, Traces};

/// Fig 6's programs: cg, mg, sp, and what stands for ferret, dedup and fluidanimate.
fn programs() -> Vec<&'static Kernel> {
    let of_nas = |name: &'static str| NAS_MANY.iter().find(move |kernel| kernel.name == name);
    ["cg", "mg", "sp"]
        .into_iter()
        .filter_map(of_nas)
        .chain(&PARSEC)
        .collect()
}

/// How much each pair of threads shares, as the unit saw it; symmetric, nothing on the diagonal.
struct Sharing {
    program: &'static str,
    cells: Vec<Vec<f64>>,
}

impl Sharing {
    fn of(program: &'static str, played: &Played) -> Self {
        let seen = &played.sharing;
        let cell = |row: usize, column: usize| match row == column {
            true => 0.0,
            false => seen[row][column] + seen[column][row],
        };
        let rows = 0..seen.len();
        let row = |row| rows.clone().map(|column| cell(row, column)).collect();
        Self {
            program,
            cells: rows.clone().map(row).collect(),
        }
    }

    /// Each pair once, with how far apart its numbers are.
    fn pairs(&self) -> impl Iterator<Item = (usize, f64)> {
        let rows = self.cells.iter().enumerate();
        rows.flat_map(|(row, cells)| {
            cells[..row]
                .iter()
                .enumerate()
                .map(move |(column, &cell)| (row - column, cell))
        })
    }

    /// The share of all sharing that is between threads whose numbers are so far apart.
    fn share(&self, apart: impl Fn(usize) -> bool) -> f64 {
        let all: f64 = self.pairs().map(|(_, cell)| cell).sum();
        let there = self.pairs().filter(|&(distance, _)| apart(distance));
        there.map(|(_, cell)| cell).sum::<f64>() / all
    }

    /// That share, as a multiple of what it would be if all pairs shared alike.
    fn concentration(&self, apart: usize) -> f64 {
        let threads = self.cells.len();
        let alike = (threads - apart) as f64 / (threads * (threads - 1) / 2) as f64;
        self.share(|distance| distance == apart) / alike
    }

    /// Standard deviation of the cells (n), as a share of their mean.
    fn variation(&self) -> f64 {
        let cells: Vec<f64> = self.pairs().map(|(_, cell)| cell).collect();
        let middle = mean(&cells);
        let square = mean(cells.iter().map(|cell| (cell - middle).powi(2)));
        square.sqrt() / middle
    }

    /// The share of all sharing that is between threads that are not neighbours.
    fn distant(&self) -> f64 {
        self.share(|distance| distance > 1)
    }
}

/// The programs' sharing, in the order of [`programs`].
fn seen(setup: &Setup<'_>) -> Result<Vec<Sharing>> {
    let kernels = programs();
    let runs = setup.run_each(Platform::Xeon64, &kernels, "ipm")?;
    let pairs = kernels.iter().zip(&runs);
    Ok(pairs
        .map(|(kernel, played)| Sharing::of(kernel.name, played))
        .collect())
}

pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured> {
    let seen = seen(setup)?;
    let [cg, mg, sp, pipeline, grid] = &seen[..] else {
        unreachable!("the programs are five");
    };
    let mut measured = Measured::new();
    for (name, program) in [("sp", sp), ("mg", mg), ("grid", grid)] {
        let neighbours = program.concentration(1);
        measured.order(format!("fig6-{name}"), [neighbours, 1.0]);
    }
    measured.order("fig6-mg-distant", [mg.distant(), sp.distant()]);
    measured.order("fig6-cg", [sp.variation(), cg.variation()]);
    let others = smallest([mg, sp, grid, pipeline].map(Sharing::variation));
    measured.order("fig6-cg-least", [others, cg.variation()]);
    measured.order("fig6-pipeline", [pipeline.variation(), cg.variation()]);
    let variations = seen.iter().map(|one| (one.program, one.variation()));
    measured.detail("variation", list(variations, 2));
    Ok(measured)
}

/// Draws Fig 6 as heat maps: one SVG file for each program, in a folder that is created if need be.
///
/// # Errors
/// A trace is not available, a run fails, or a file cannot be written.
pub fn draw(folder: &Path, traces: &Traces) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for sharing in seen(&Setup::new(
        &Plays::new(traces),
        vec![0],
        INTERVALS * INTERVAL_MS,
    ))? {
        let path = folder.join(format!("ipm-sharing-{}.svg", sharing.program));
        print::file(&path, &heat_map(sharing.program, &sharing.cells))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(cells: &[[f64; 4]; 4]) -> Sharing {
        Sharing {
            program: "made",
            cells: cells.iter().map(|row| row.to_vec()).collect(),
        }
    }

    #[test]
    fn a_band_is_told_from_what_is_alike() {
        let alike = sharing(&[
            [0.0, 3.0, 3.0, 3.0],
            [3.0, 0.0, 3.0, 3.0],
            [3.0, 3.0, 0.0, 3.0],
            [3.0, 3.0, 3.0, 0.0],
        ]);
        assert_eq!(
            (alike.concentration(1), alike.variation(), alike.distant()),
            (1.0, 0.0, 0.5)
        );
        let band = sharing(&[
            [0.0, 9.0, 0.0, 0.0],
            [9.0, 0.0, 9.0, 0.0],
            [0.0, 9.0, 0.0, 9.0],
            [0.0, 0.0, 9.0, 0.0],
        ]);
        assert_eq!(
            (band.concentration(1), band.concentration(2), band.distant()),
            (2.0, 0.0, 0.0)
        );
        assert_eq!(band.variation(), 1.0);
    }
}
