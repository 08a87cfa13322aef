//! The figures as tables for people.

use numaherd_experiment::statistics::Sample;
use numaherd_experiment::table::Table;

use super::figures::{Binding, Measured, Part, Strategies};

/// Both tables, the first with its correlations.
pub fn text(measured: &Measured) -> String {
    let mut parts = vec![format!(
        "BRM's micro-benchmark on {}, {} threads, all memory on node 0; changes are from Intra-S to Inter-S",
        measured.machine, measured.threads
    )];
    if !measured.assignments.is_empty() {
        parts.push(assignments(measured));
    }
    if !measured.strategies.is_empty() {
        parts.push(strategies(&measured.strategies));
    }
    parts.join("\n") + "\n"
}

fn assignments(measured: &Measured) -> String {
    let heads = "Fig 5|set MiB|shared KiB|loops|Intra-S s|Inter-S s|time|penalty|misses";
    let mut table = Table::new(1, heads.split('|'));
    for compared in &measured.assignments {
        let part = match compared.part {
            Part::Capacity => "a",
            Part::Sharing => "b",
            Part::Both => "c",
        };
        let change = |change: f64| format!("{:+.1} %", 100.0 * change);
        table.row([
            part.to_owned(),
            (compared.sizes.working_set_bytes >> 20).to_string(),
            (compared.sizes.sharing_bytes >> 10).to_string(),
            compared.sizes.loops.to_string(),
            format!("{:.4}", compared.intra.seconds),
            format!("{:.4}", compared.inter.seconds),
            change(compared.change(|run| run.seconds)),
            change(compared.change(|run| run.uncore_penalty)),
            change(compared.change(|run| run.misses_per_1000_instructions)),
        ]);
    }
    let correlations = match measured.correlations() {
        Some(found) => format!(
            "Correlation of changes with those of the run time: uncore penalty {:.3}, misses per 1000 \
             instructions {:.3}.",
            found.uncore_penalty, found.miss_rate
        ),
        None => "No correlation: a figure never changes.".to_owned(),
    };
    format!("{}\n{correlations}", table.text())
}

fn strategies(all: &[Strategies]) -> String {
    let heads =
        "set MiB|loops|binding ms a loop|best s|linux s|brm s|moves|behind best|gain on linux";
    let mut table = Table::new(1, heads.split('|'));
    for one in all {
        let binding = |binding: &Binding| {
            let on: Vec<String> = binding.threads_on.iter().map(u32::to_string).collect();
            let loop_ms = 1000.0 * binding.seconds / one.binding_loops as f64;
            format!("{} {loop_ms:.2}", on.join("+"))
        };
        let bindings: Vec<String> = one.bindings.iter().map(binding).collect();
        let moves: Vec<String> = one.brm_moves.iter().map(u64::to_string).collect();
        table.row([
            (one.sizes.working_set_bytes >> 20).to_string(),
            one.sizes.loops.to_string(),
            bindings.join("\n"),
            repeats(&one.fixed),
            repeats(&one.linux),
            repeats(&one.brm),
            moves.join(", "),
            format!("{:+.1} %", 100.0 * one.behind()),
            format!("{:+.1} %", 100.0 * one.gain()),
        ]);
    }
    table.text()
}

/// A mean with its relative deviation.
fn repeats(repeats: &Sample) -> String {
    let deviation = repeats.relative_deviation();
    let deviation = deviation.map(|share| format!(" ({:.1} %)", 100.0 * share));
    format!("{:.3}{}", repeats.mean(), deviation.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Compared, Run, Sizes};
    use super::*;

    #[test]
    fn the_tables_show_what_was_measured() {
        let run = |seconds, uncore_penalty, misses_per_1000_instructions| Run {
            seconds,
            uncore_penalty,
            misses_per_1000_instructions,
        };
        let sizes = |set: u64, shared: u64| Sizes {
            working_set_bytes: set << 20,
            sharing_bytes: shared << 10,
            loops: 61,
        };
        let measured = Measured {
            machine: "xeon-e5620-2s".into(),
            threads: 4,
            assignments: vec![
                Compared {
                    part: Part::Capacity,
                    sizes: sizes(16, 0),
                    intra: run(0.1, 100.0, 40.0),
                    inter: run(0.075, 75.0, 8.0),
                },
                Compared {
                    part: Part::Both,
                    sizes: sizes(128, 128),
                    intra: run(0.2, 160.0, 90.0),
                    inter: run(0.25, 196.0, 90.0),
                },
            ],
            strategies: vec![Strategies {
                sizes: sizes(16, 128),
                binding_loops: 15,
                bindings: vec![
                    Binding {
                        threads_on: vec![4, 0],
                        seconds: 1.0,
                    },
                    Binding {
                        threads_on: vec![2, 2],
                        seconds: 0.75,
                    },
                ],
                fixed: Sample(vec![0.75, 0.76]),
                linux: Sample(vec![1.0, 0.9]),
                brm: Sample(vec![0.8]),
                brm_moves: vec![2],
            }],
        };
        insta::assert_snapshot!(text(&measured));
    }
}
