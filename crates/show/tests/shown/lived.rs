//! The lines of `run` while it runs.

use numaherd_show::live::Live;

use crate::made::*;
use crate::runs;

fn told(made: &Made) -> String {
    let mut live = Live::new();
    let lines: Vec<String> = made
        .lines()
        .iter()
        .filter_map(|line| live.line(line))
        .collect();
    lines.join("\n")
}

#[test]
fn of_each_kind_of_run() {
    let runs = [
        ("nothing happened", runs::nothing()),
        ("moved and got faster", runs::faster()),
        ("got slower and was undone", runs::slower_and_undone()),
        ("refused by the kernel", runs::refused_by_the_kernel()),
        ("dry run", runs::dry()),
    ];
    let all: Vec<String> = runs
        .iter()
        .map(|(name, made)| format!("## {name}\n{}", told(made)))
        .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_line_names_few_threads_and_counts_the_rest() {
    let mut made = Made::new("random", false);
    let crew = (0..9)
        .map(|n| thread(800 + n, 800, "crew", 0, 900, 1.0, 1.0))
        .collect();
    made.second(crew, vec![process(800, "crew", &[(0, 1_000)])]);
    made.placed(
        (0..9)
            .map(|n| placement(800 + n, 0, 6, "random: draw once", "drawn", ""))
            .collect(),
        (0..9).map(|n| order(800 + n, Some(6), "6-7")).collect(),
    );
    let told = told(&made);
    let line = told.lines().last().unwrap();
    assert_eq!(
        line.trim(),
        "1.0 s  moved 9 threads (crew 800 0>6, crew 801 0>6, crew 802 0>6, crew 803 0>6 and 5 more); \
         100 % local"
    );
}
