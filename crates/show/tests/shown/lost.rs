//! Lost cores: every view says them, and says what they are estimated from.

use numaherd_policy::losses::{Basis, Estimate, Known, Losses, Range, Unknown, Withheld};
use numaherd_show::live::Live;
use numaherd_show::metrics::{self, View};
use numaherd_show::run::RunModel;
use numaherd_show::{losses, page, status, summary};

use crate::made::*;
use crate::status::before_the_end;

pub fn range(least: f64, mean: f64, most: f64) -> Range {
    Range {
        least,
        mean: Some(mean),
        most,
    }
}

pub fn of(estimate: Estimate) -> Losses {
    Losses {
        cpus: 64,
        judged: 40.0,
        estimate,
        processes: None,
        withheld: None,
    }
}

pub fn known(from: Basis, lost: Range, recoverable: Option<Range>) -> Losses {
    of(Estimate::Known(Known {
        from,
        lost,
        recoverable,
        parts: None,
    }))
}

fn usual() -> Losses {
    let recoverable = Some(range(1.9, 2.4, 3.0));
    known(Basis::Uncore, range(2.2, 3.1, 4.0), recoverable)
}

/// The same, and what kept the policy from acting.
fn left(why: Withheld) -> Losses {
    Losses {
        withheld: Some(why),
        ..usual()
    }
}

/// Three seconds in each of which 3.1 of 64 cores were lost.
pub fn losing() -> Made {
    run_with(&[usual(), usual(), usual()])
}

/// Seconds in which the machine lost this.
fn run_with(seconds: &[Losses]) -> Made {
    let mut made = Made::new("linux");
    for losses in seconds {
        let busy = thread(100, 100, "chase", 1, 1_000, 41.0, 1.0);
        made.second(vec![busy], vec![process(100, "chase", &[(0, 20_000)])]);
        made.lost(losses.clone());
        made.placed(vec![], vec![]);
    }
    made
}

#[test]
fn the_sentence_says_what_it_is_estimated_from() {
    let at_most = Range {
        mean: None,
        ..range(0.0, 0.0, 2.1)
    };
    let said = [
        usual(),
        known(Basis::Counters, range(2.2, 3.1, 4.0), None),
        known(Basis::Residency, at_most, None),
        of(Estimate::Idle),
        of(Estimate::Unknown(Unknown::NotCounted)),
        of(Estimate::Unknown(Unknown::NotSeen)),
        of(Estimate::Unknown(Unknown::FewJudged)),
        left(Withheld::Unsure),
    ];
    let said: Vec<String> = said.iter().map(losses::sentence).collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn status_page_and_metrics_say_it() {
    let run = before_the_end(&run_with(&[usual(), usual()]));
    let sentence = losses::sentence(&usual());
    let status = status::text(&run, None).replace('\n', " ");
    assert!(status.contains(&sentence), "{status}");
    let view = View {
        run: &run,
        serving: None,
    };
    assert!(page::page(view, None).contains(&sentence));
    let exposed = metrics::text(view);
    let samples = exposed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter(|line| line.contains("lost_c") || line.contains("recoverable"));
    insta::assert_snapshot!(samples.collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_is_not_known_has_no_figure() {
    let run = before_the_end(&run_with(&[of(Estimate::Unknown(Unknown::NotSeen))]));
    let view = View {
        run: &run,
        serving: None,
    };
    let exposed = metrics::text(view);
    assert!(exposed.contains("numaherd_lost_cores_basis_info{basis=\"unknown\"} 1"));
    assert!(!exposed.contains("numaherd_lost_cores{"), "{exposed}");
}

#[test]
fn a_summary_has_the_mean_of_each_basis() {
    let without = known(Basis::Counters, range(1.0, 2.0, 3.0), None);
    let kept = [Withheld::New, Withheld::Credit, Withheld::Credit].map(left);
    let mut made = run_with(&[&kept[..], &[without]].concat());
    made.end(ended("linux"));
    let mut run = RunModel::new();
    made.shared().for_each(|line| run.take(&line));
    let mut end = run.end().unwrap().clone();
    let totals = before_the_end(&made).totals;
    (end.totals.lost, end.totals.withheld) = (totals.lost, totals.withheld);
    insta::assert_snapshot!(summary::summary(&end));
}

#[test]
fn a_line_of_what_happened_ends_with_it() {
    let mut made = run_with(&[usual()]);
    let order = order(100, Some(4), "4-5");
    made.placed(
        vec![placement(100, 1, 4, "dino: fill slots", "so", "")],
        vec![order],
    );
    let mut live = Live::new();
    let said = made.shared().filter_map(|line| live.line(&line));
    let last = said.last().unwrap();
    assert!(
        last.ends_with("3.1 of 64 cores lost, 2.4 recoverable"),
        "{last}"
    );
}
