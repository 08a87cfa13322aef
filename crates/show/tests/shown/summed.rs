//! The last lines of `run`.

use numaherd_herd::{Ending, Record, Summary, Totals};
use numaherd_show::summary::summary;

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
