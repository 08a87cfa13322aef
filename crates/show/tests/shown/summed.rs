//! The last lines of `run`.

use numaherd_herd::{Ending, Record, Summary, Totals};
use numaherd_show::summary::summary;
use numaherd_world::Enforcement;

use crate::made::*;
use crate::runs;

fn told(made: &Made) -> String {
    let Some(Record::End(end)) = made.lines().last().map(|line| &line.record) else {
        panic!("the run has no end");
    };
    summary(end)
}

#[test]
fn of_each_kind_of_run() {
    let runs = [
        ("nothing happened", runs::nothing()),
        ("moved and got faster", runs::faster()),
        ("got slower and was undone", runs::slower_and_undone()),
        ("refused by each guard", runs::refused_by_each_guard()),
        ("pages failed", runs::pages_fail()),
        ("dry run", runs::dry()),
    ];
    insta::assert_snapshot!(runs::titled(&runs, told).join("\n"));
}

#[test]
fn of_each_ending() {
    let endings = [
        Ending::Intervals,
        Ending::Stopped,
        Ending::World,
        Ending::Failed {
            error: "cannot read /proc/stat: input/output error; look at the kernel's log"
                .to_owned(),
        },
    ];
    let all: Vec<String> = endings
        .into_iter()
        .map(|ending| {
            summary(&Summary {
                ending,
                totals: Totals {
                    intervals: 1,
                    duration_ns: SECOND,
                    restored: Some(1),
                    ..Totals::default()
                },
                ..ended("dino")
            })
        })
        .collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn of_hints_it_says_that_they_were_taken_back() {
    let last = |restored| {
        let told = summary(&Summary {
            enforce: Enforcement::Scx,
            totals: Totals {
                restored: Some(restored),
                ..Totals::default()
            },
            ..ended("dino")
        });
        told.lines().last().map(str::to_owned)
    };
    let told = [0, 1, 1200].map(|restored| last(restored).unwrap());
    assert_eq!(
        told,
        [
            "No hint had to be taken back.",
            "1 thread's hint was taken back.",
            "1,200 threads' hints were taken back."
        ]
    );
}
