//! The lines of `run` while it runs.

use numaherd_show::live::Live;

use crate::made::*;
use crate::runs;

fn told(made: &Made) -> String {
    let mut live = Live::new();
    let lines: Vec<String> = made.shared().filter_map(|line| live.line(&line)).collect();
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
        ("virtual machine", runs::virtual_machine()),
    ];
    insta::assert_snapshot!(runs::titled(&runs, told).join("\n\n"));
}

#[test]
fn a_line_names_few_threads_and_counts_the_rest() {
    let mut made = Made::new("random");
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

#[test]
fn at_a_quick_cadence_a_line_tells_of_a_second() {
    let mut made = Made::every(10, "brm");
    let mut cpu = 0;
    for interval in 0..250 {
        let mut one = thread(900, 900, "walk", cpu, 10, 20.0, 1.0);
        let counts = one.counts.as_mut().unwrap();
        // The penalty is 20 cycles in the first second and 30 from then on.
        counts.uncore_requests = Some(1_000);
        counts.uncore_busy_cycles = Some(if interval < 100 { 20_000 } else { 30_000 });
        made.second(vec![one], vec![process(900, "walk", &[(0, 1_000)])]);
        if interval % 40 == 0 {
            cpu = 7 - cpu;
            made.placed(
                vec![placement(
                    900,
                    7 - cpu,
                    cpu,
                    "brm: bias random pick",
                    "drawn",
                    "",
                )],
                vec![order(900, Some(cpu), if cpu == 0 { "0-1" } else { "6-7" })],
            );
        } else {
            made.placed(vec![], vec![]);
        }
    }
    made.end(ended("brm"));
    let told = told(&made);
    let lines: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "1.0 s  moved 1 thread 3 times (walk 900 0>7, walk 900 7>0 and walk 900 0>7); 100 % \
             local; uncore penalty 20 cycles",
            "2.0 s  moved 1 thread 2 times (walk 900 7>0 and walk 900 0>7); 100 % local; uncore \
             penalty 30 cycles",
            "2.5 s  moved 1 thread 2 times (walk 900 7>0 and walk 900 0>7); 100 % local; uncore \
             penalty 30 cycles",
        ]
    );
}
