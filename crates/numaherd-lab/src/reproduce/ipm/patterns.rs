//! Which threads share: §6.1, Fig 6, as the unit detects it.
//!
//! The paper shows heat maps and says in words what they look like; the words are held here, and
//! the maps are drawn ([`draw`]). On the machine with 32 cores, 16 threads of each NAS kernel.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::super::claim::{Says, claim};
use super::super::traces::{Kernel, NAS_MANY, PARSEC, Traces};
use super::super::{Effort, mean};
use super::Claim;
use super::ground::{Ground, Job, Platform, Played};

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
        let seen = &played.figures.sharing_seen;
        let threads = seen.len();
        let mut cells = vec![vec![0.0; threads]; threads];
        for (row, column) in
            (0..threads).flat_map(|row| (0..threads).map(move |column| (row, column)))
        {
            if row != column {
                cells[row][column] = (seen[row][column] + seen[column][row]) as f64;
            }
        }
        Self { program, cells }
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

    /// The share of all sharing that is between threads whose numbers are so far apart, of what it
    /// would be if all shared alike: 1 is none more than others.
    fn concentration(&self, apart: usize) -> f64 {
        let all: f64 = self.pairs().map(|(_, cell)| cell).sum();
        let there: f64 = self
            .pairs()
            .filter(|&(d, _)| d == apart)
            .map(|(_, cell)| cell)
            .sum();
        let threads = self.cells.len();
        let alike = (threads - apart) as f64 / (threads * (threads - 1) / 2) as f64;
        there / all / alike
    }

    /// Standard deviation of the cells, of their mean.
    fn variation(&self) -> f64 {
        let cells: Vec<f64> = self.pairs().map(|(_, cell)| cell).collect();
        let middle = mean(cells.iter().copied());
        let square = mean(cells.iter().map(|cell| (cell - middle).powi(2)));
        square.sqrt() / middle
    }

    /// The share of all sharing that is between threads whose numbers are more than one apart.
    fn distant(&self) -> f64 {
        let all: f64 = self.pairs().map(|(_, cell)| cell).sum();
        self.pairs()
            .filter(|&(d, _)| d > 1)
            .map(|(_, cell)| cell)
            .sum::<f64>()
            / all
    }
}

fn seen(ground: &Ground<'_>) -> Result<Vec<Sharing>> {
    let kernels = programs();
    let jobs: Result<Vec<Job>> = kernels
        .iter()
        .map(|kernel| Job::new(Platform::Xeon64, kernel, "ipm"))
        .collect();
    let runs = ground.run(jobs?)?;
    Ok(kernels
        .iter()
        .zip(&runs)
        .map(|(kernel, runs)| Sharing::of(kernel.name, &runs[0]))
        .collect())
}

/// The lines of Fig 6.
pub(super) fn claims(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let seen = seen(ground)?;
    let of = |name: &str| {
        seen.iter()
            .find(|sharing| sharing.program == name)
            .expect("it was run")
    };
    let where_ = "6.1, Fig 6";
    let order = |id: &str, what: &str, ours: f64| claim(id, where_, what, "", Says::Ranking, ours);
    let (cg, mg, sp) = (of("cg"), of("mg"), of("sp"));
    let (grid, pipeline) = (of("grid"), of("pipeline"));
    let told: Vec<String> = seen
        .iter()
        .map(|s| format!("{} {:.2}", s.program, s.variation()))
        .collect();
    let told = format!("variation of the cells: {}", told.join(", "));
    Ok(vec![
        order(
            "fig6-sp",
            "sp: neighbours share more than if all shared alike, times more than 1 by",
            sp.concentration(1) - 1.0,
        ),
        order(
            "fig6-mg",
            "mg: neighbours share more than if all shared alike, times more than 1 by",
            mg.concentration(1) - 1.0,
        ),
        order(
            "fig6-mg-distant",
            "mg: a larger share is between threads that are not neighbours than in sp, by",
            mg.distant() - sp.distant(),
        ),
        order(
            "fig6-grid",
            "the grid (fluidanimate): neighbours share more than if all shared alike, times more than 1 by",
            grid.concentration(1) - 1.0,
        ),
        order(
            "fig6-cg",
            "cg: the amounts vary less than in sp, by",
            sp.variation() - cg.variation(),
        )
        .note(&*told),
        order(
            "fig6-cg-least",
            "cg: the amounts vary least of all programs, by",
            [mg, sp, grid, pipeline]
                .map(Sharing::variation)
                .into_iter()
                .fold(f64::INFINITY, f64::min)
                - cg.variation(),
        )
        .note(&*told),
        order(
            "fig6-pipeline",
            "the pipeline (ferret, dedup): clusters: the amounts vary more than in cg, by",
            pipeline.variation() - cg.variation(),
        )
        .note(told),
    ])
}

/// Side of a cell and of what is beside a map, in pixels.
const CELL: i32 = 12;
const MARGIN: i32 = 24;

/// Draws Fig 6 as heat maps: one SVG file for each program, in a folder that is made if need be.
///
/// # Errors
/// A trace cannot be had, a run fails, a file cannot be written.
pub fn draw(folder: &Path, traces: &Traces, effort: &Effort) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for sharing in seen(&Ground::new(traces, effort))? {
        let path = folder.join(format!("ipm-sharing-{}.svg", sharing.program));
        let svg = map(&sharing)?;
        std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One heat map as the text of an SVG file: darker shares more.
fn map(sharing: &Sharing) -> Result<String> {
    let place = |number: usize| i32::try_from(number).unwrap_or(i32::MAX / (2 * CELL)) * CELL;
    let side = (place(sharing.cells.len()) + 2 * MARGIN).unsigned_abs();
    let most = sharing
        .pairs()
        .map(|(_, cell)| cell)
        .fold(0.0, f64::max)
        .max(1.0);
    let mut svg = String::new();
    let failed =
        |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", sharing.program);
    {
        let area = SVGBackend::with_string(&mut svg, (side, side)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        for (row, cells) in sharing.cells.iter().enumerate() {
            for (column, &cell) in cells.iter().enumerate() {
                let shade = 255 - (cell / most * 255.0) as u8;
                let (x, y) = (MARGIN + place(column), MARGIN + place(row));
                let square = Rectangle::new(
                    [(x, y), (x + CELL, y + CELL)],
                    RGBColor(shade, shade, shade).filled(),
                );
                area.draw(&square).map_err(|error| failed(&error))?;
            }
        }
        let title = Text::new(sharing.program, (MARGIN, 6), ("sans-serif", 12).into_font());
        area.draw(&title).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
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

    #[test]
    fn a_map_has_a_square_for_every_pair() {
        let svg = map(&sharing(&[[1.0; 4]; 4])).unwrap();
        assert_eq!(svg.matches("<rect").count(), 1 + 16);
    }
}
