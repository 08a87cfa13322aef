//! What people see of a replay and of a recording, to the letter.

use numaherd_herd::replay::Wants;
use numaherd_topology::CpuId;
use numaherd_world::{Signal, SignalReport, SignalState};

use super::super::{
    Lacking, Missing, Moment, Pair, ProcessEffect, Recorded, Replayable, ThreadEffect, Unpaged,
    recorded,
};
use super::*;
use crate::run::{Content, RunModel};

const SECOND_NS: u64 = 1_000_000_000;

fn shares(core: f64, domain: f64, node: f64, kappa: Option<f64>) -> Shares {
    Shares {
        compared: 9_600,
        same_core: core,
        same_domain: domain,
        same_node: node,
        other_node: 1.0 - core - domain - node,
        kappa,
    }
}

fn policy(name: &str) -> Policy {
    Policy {
        name: name.to_owned(),
        missing: None,
        cadence_ns: Some(10_000_000),
        unpaged: None,
        agreement: Some(shares(0.612, 0.12, 0.041, Some(0.44))),
        where_moved: Some(shares(0.0, 0.25, 0.0, Some(-0.001))),
        over_time: (1..=20)
            .map(|at| Moment {
                until_ns: at * 30 * SECOND_NS,
                shares: shares(1.0 - 0.02 * at as f64, 0.0, 0.0, None),
            })
            .collect(),
        moves: 1_132,
        refused: Some(3),
        page_orders: 0,
    }
}

fn replayed() -> Replayed {
    let n_mass = Policy {
        page_orders: 12,
        ..policy("n-mass+whole-set")
    };
    let dino = Policy {
        unpaged: Some(Unpaged {
            signals: vec!["memory samples".to_owned()],
            recorded_orders: 40,
        }),
        refused: Some(0),
        ..policy("dino")
    };
    let brm = Policy {
        missing: Some(Missing {
            signals: vec!["uncore penalty".to_owned()],
        }),
        agreement: None,
        where_moved: None,
        over_time: Vec::new(),
        ..policy("brm")
    };
    let pair = |one: Option<&str>, other: &str, agreement| Pair {
        one: one.map(str::to_owned),
        other: other.to_owned(),
        agreement,
    };
    let some = Some(shares(0.5, 0.25, 0.125, Some(0.6)));
    Replayed {
        recorded: "di-plain".to_owned(),
        dry_run: false,
        from_recorded: false,
        nodes: 2,
        cpus: 16,
        intervals: 600,
        duration_ns: 600 * SECOND_NS,
        threads: 16,
        recorded_moves: 87,
        unseen: 2,
        damage: Some(
            "the ledger run.ledger is damaged at line 9 (byte 7): its sum is wrong".to_owned(),
        ),
        counted: Some(0.93),
        policies: vec![n_mass, dino, brm],
        pairs: vec![
            pair(None, "n-mass+whole-set", some),
            pair(None, "dino", some),
            pair(None, "brm", None),
            pair(
                Some("n-mass+whole-set"),
                "dino",
                Some(shares(1.0, 0.0, 0.0, None)),
            ),
            pair(Some("n-mass+whole-set"), "brm", None),
            pair(Some("dino"), "brm", None),
        ],
        decisions: None,
        prediction: None,
    }
}

fn errors(median: f64, as_before: f64) -> Errors {
    Errors {
        checked: 1_348,
        median,
        most: 2.0 * median,
        bias: -median / 2.0,
        as_before,
    }
}

fn effect(total: f64) -> Option<Effect> {
    let process = |pid, change| ProcessEffect {
        pid,
        name: "mcf".to_owned(),
        change,
    };
    Some(Effect {
        total,
        processes: vec![process(41, -0.2), process(42, 0.05), process(43, 0.0)],
        worst: Some(ThreadEffect {
            tid: 41,
            pid: 41,
            name: "mcf".to_owned(),
            change: -0.2,
        }),
    })
}

fn with_prediction(moved: Option<Errors>) -> Replayed {
    Replayed {
        prediction: Some(Prediction::Predicted(Predicted {
            machine: "lab-4x2".to_owned(),
            intervals: 337,
            uncounted: 1,
            errors: errors(0.02, 0.01),
            moved,
            effects: vec![effect(0.041), effect(-0.000_1), None],
        })),
        ..replayed()
    }
}

/// The paragraphs of a text that begin with `begins`.
fn part(text: &str, begins: &str) -> String {
    let from = text.find(begins).expect("it is there");
    text[from..].to_owned()
}

#[test]
fn a_replay_with_everything_in_it() {
    insta::assert_snapshot!(
        "everything",
        text(&with_prediction(Some(errors(0.05, 0.276))))
    );
}

#[test]
fn a_prediction_says_when_not_to_trust_it() {
    let told = text(&with_prediction(Some(errors(0.2, 0.1))));
    let told = told.replace('\n', " ");
    assert!(told.contains("do not trust the prediction"), "{told}");
    let told = text(&with_prediction(None)).replace('\n', " ");
    assert!(
        told.contains("its predictions of moves are untested here"),
        "{told}"
    );
    let none = Replayed {
        prediction: Some(Prediction::None("nothing was counted".to_owned())),
        ..replayed()
    };
    assert!(text(&none).contains("No prediction: nothing was counted.\n"));
}

#[test]
fn decisions_are_side_by_side() {
    let side = |to, refused: Option<&str>| {
        Some(Side {
            from: CpuId(1),
            to: CpuId(to),
            rule: "dino: fill slots".to_owned(),
            why: "devil (41.0 lines per 1000 instructions)".to_owned(),
            instead_of: String::new(),
            refused: refused.map(str::to_owned),
        })
    };
    let choice = |tid, sides| Choice {
        at_ns: 3 * SECOND_NS / 2,
        tid,
        pid: 41,
        name: "mcf".to_owned(),
        sides,
    };
    let replayed = Replayed {
        decisions: Some(vec![
            choice(
                41,
                vec![
                    None,
                    side(9, Some("rate: 8 moves a second")),
                    side(1, None),
                    None,
                ],
            ),
            choice(42, vec![side(3, None), None, None, None]),
        ]),
        ..replayed()
    };
    insta::assert_snapshot!(
        "decisions",
        part(&text(&replayed), "Decisions side by side")
    );
}

#[test]
fn a_recording_says_what_it_can_be_replayed_with() {
    let content = Content {
        threads: 10,
        ran: 10,
        miss_rate: 10,
        ..Content::default()
    };
    let wants = |policy: &str, placement: &[Signal], sharing, paging: &[Signal]| Wants {
        policy: policy.to_owned(),
        placement: placement.to_vec(),
        sharing,
        paging: paging.to_vec(),
    };
    let wants = [
        wants("linux", &[], false, &[]),
        wants(
            "dino",
            &[Signal::CpuUse, Signal::MissRate],
            false,
            &[Signal::MemorySamples],
        ),
        wants("brm", &[Signal::CpuUse, Signal::UncorePenalty], false, &[]),
        wants("kmaf", &[Signal::HintFaults], true, &[Signal::HintFaults]),
    ];
    let signals = [SignalReport {
        signal: Signal::UncorePenalty,
        state: SignalState::Missing {
            reason: "no event counts it".to_owned(),
            remedy: "another processor".to_owned(),
        },
    }];
    let mut run = RunModel::new();
    (run.totals.intervals, run.totals.duration_ns) = (600, 600 * SECOND_NS);
    run.more.content = content;
    let found = Recorded::of(&run, 3_500_000, &wants, &signals);
    let not = |policy: &str, lacks: &str, pages: &[&str]| Replayable {
        policy: policy.to_owned(),
        lacks: vec![lacks.to_owned()],
        pages_lack: pages.iter().map(|&signal| signal.to_owned()).collect(),
    };
    assert_eq!(found.policies[2], not("brm", "uncore penalty", &[]));
    let sharing = not("kmaf", "which threads share pages", &["hint faults"]);
    assert_eq!(found.policies[3], sharing);
    assert_eq!(
        found.missing,
        [Lacking {
            signal: "uncore penalty".to_owned(),
            why: "no event counts it".to_owned(),
            remedy: Some("another processor".to_owned()),
        }]
    );
    insta::assert_snapshot!("recorded", recorded(&found));
}
