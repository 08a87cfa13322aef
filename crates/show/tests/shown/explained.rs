//! `explain`: the text of each made run, and what it does when asked for someone who is not there.

use std::sync::LazyLock;

use numaherd_herd::Record;
use numaherd_herd::ledger::{Asked, Ledger};
use numaherd_show::explain::{Choice, Effects, Explanation, short, text, whole};

use proptest::prelude::*;

use crate::made::*;
use crate::runs;

fn all_of(made: &Made) -> Explanation {
    explain(&made.ledger(), Choice::default()).unwrap()
}

/// The first page, and everything.
fn told(made: &Made) -> String {
    let explanation = all_of(made);
    let line = "-".repeat(100);
    format!(
        "{}{line}\n{}",
        short(&explanation, "numaherd explain herd.jsonl"),
        whole(&explanation)
    )
}

#[test]
fn nothing_happened() {
    insta::assert_snapshot!(told(&runs::nothing()));
}

#[test]
fn moved_and_got_faster() {
    insta::assert_snapshot!(told(&runs::faster()));
}

#[test]
fn moved_got_slower_and_was_undone() {
    insta::assert_snapshot!(told(&runs::slower_and_undone()));
}

#[test]
fn memory_is_told_by_kind() {
    let buffers = explain(
        &runs::buffers().ledger(),
        Choice {
            pid: Some(100),
            ..Choice::default()
        },
    );
    insta::assert_snapshot!(text(&buffers.unwrap()));
}

#[test]
fn refused_by_each_guard() {
    insta::assert_snapshot!(told(&runs::refused_by_each_guard()));
}

#[test]
fn pages_that_cannot_be_moved() {
    insta::assert_snapshot!(told(&runs::pages_fail()));
}

#[test]
fn a_dry_run() {
    insta::assert_snapshot!(told(&runs::dry()));
}

#[test]
fn orders_that_the_kernel_refuses() {
    insta::assert_snapshot!(told(&runs::refused_by_the_kernel()));
}

#[test]
fn a_virtual_machine_is_one_row_and_a_steal_is_told_of() {
    insta::assert_snapshot!(told(&runs::virtual_machine()));
}

#[test]
fn one_thread_of_several() {
    let ledger = runs::faster().ledger();
    let choice = Choice {
        pid: Some(100),
        tid: Some(100),
        ..Choice::default()
    };
    let explanation = explain(&ledger, choice).unwrap();
    let threads: Vec<u32> = explanation.processes[0]
        .threads
        .iter()
        .map(|t| t.tid)
        .collect();
    assert_eq!(threads, [100]);
}

#[test]
fn a_thread_of_which_nothing_was_wanted_is_told_of_when_asked_for() {
    let choice = Choice {
        tid: Some(100),
        ..Choice::default()
    };
    let ledger = runs::nothing().ledger();
    insta::assert_snapshot!(text(&explain(&ledger, choice).unwrap()));
}

#[test]
fn a_damaged_ledger_is_explained_up_to_the_damage() {
    let mut bytes = runs::faster().bytes();
    let lines: Vec<usize> = bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .map(|(at, _)| at)
        .collect();
    // Within the 20th line: after the move and some of the pages.
    bytes[lines[18] + 40] ^= 1;
    let ledger = read(bytes);
    insta::assert_snapshot!(whole(&explain(&ledger, Choice::default()).unwrap()));
}

#[test]
fn a_ledger_cut_off_between_orders_and_outcome_does_not_claim_an_outcome() {
    let made = runs::slower_and_undone();
    // Header, start, three snapshots, the placing: the outcome is cut off.
    let whole = made.bytes();
    let kept: Vec<u8> = whole
        .split_inclusive(|&b| b == b'\n')
        .take(6)
        .flatten()
        .copied()
        .collect();
    let explanation = explain(&read(kept), Choice::default()).unwrap();
    let thread = &explanation.processes[0].threads[0];
    assert_eq!(thread.moves, 0);
    let json = serde_json::to_value(&thread.decisions).unwrap();
    assert_eq!(json[0]["happened"]["result"], "not-recorded");
}

#[test]
fn who_is_not_there_is_answered_with_who_is() {
    let ledger = runs::faster().ledger();
    let told = |pid, tid| {
        let choice = Choice {
            pid,
            tid,
            ..Choice::default()
        };
        explain(&ledger, choice).unwrap_err().to_string()
    };
    assert_eq!(
        told(Some(1), None),
        "the ledger contains no process 1; processes there are: 100 (chase)"
    );
    assert_eq!(
        told(None, Some(1)),
        "the ledger contains no thread 1; threads there are: 100 (chase), 101 (chase)"
    );
    assert_eq!(
        told(Some(100), Some(7)),
        "the ledger contains no thread 7 in process 100; threads there are: 100 (chase), 101 (chase)"
    );
}

#[test]
fn a_message_names_no_more_than_can_be_read() {
    let mut made = Made::new("linux");
    let threads = (0..500)
        .map(|n| thread(1_000 + n, 1_000 + n, "crew", 0, 1, 1.0, 1.0))
        .collect();
    let processes = (0..500).map(|n| process(1_000 + n, "crew", &[])).collect();
    made.second(threads, processes);
    let choice = Choice {
        pid: Some(1),
        ..Choice::default()
    };
    let told = explain(&made.ledger(), choice).unwrap_err().to_string();
    assert!(told.ends_with("1019 (crew), and 480 more"), "{told}");
}

#[test]
fn the_later_part_of_a_long_ledger_says_that_there_was_an_earlier_one() {
    let made = runs::faster();
    let later = explain(&read(made.later_bytes()), Choice::default()).unwrap();
    assert!(later.ledger.later_part);
    assert!(text(&later).contains("begins in the middle of the run"));
    assert!(!all_of(&made).ledger.later_part);
    // The machine, the policy and what the run came to are in each part.
    let run = later.run.unwrap();
    assert_eq!((run.policy.as_str(), run.totals.thread_moves), ("dino", 1));
}

#[test]
fn decisions_that_agree_are_one_with_sums_and_span() {
    let explanation = all_of(&runs::faster());
    let devil = &explanation.processes[0].threads[1];
    assert_eq!(devil.decisions.len(), 3);
    let pages = serde_json::to_value(&devil.decisions[1]).unwrap();
    assert_eq!(pages["times"], 40);
    assert_eq!(pages["wanted_pages"], 40 * 256);
    assert_eq!(pages["happened"]["moved"], 10_000);
    assert_eq!(pages["first_ns"], 4 * SECOND + 10_000_000);
    assert_eq!(pages["last_ns"], 4 * SECOND + 400_000_000);
}

#[test]
fn what_followed_is_compared_with_what_was_before() {
    let explanation = all_of(&runs::faster());
    let moved = &explanation.processes[0].threads[1].decisions[0];
    let followed = moved.followed.as_ref().unwrap();
    assert_eq!(
        (followed.before.intervals, followed.after.intervals),
        (3, 3)
    );
    // 700, 1100 and 1500 million in three seconds against 1000 in each of three.
    let speed = followed.speed.unwrap();
    assert!((speed.percent - 10.0).abs() < 1e-9, "{speed:?}");
    let settled = followed.settled_speed.unwrap();
    assert!((settled.percent - 50.0).abs() < 1e-9, "{settled:?}");
}

#[test]
fn the_json_form_has_its_version_and_all_that_the_text_says() {
    insta::assert_snapshot!(
        serde_json::to_string_pretty(&all_of(&runs::slower_and_undone())).unwrap()
    );
}

#[test]
fn a_long_run_stays_readable() {
    let mut made = Made::new("di-migrate");
    let crew = || {
        (0..60)
            .map(|n| thread(2_000 + n, 2_000, "crew", n % 8, 900, 30.0, 0.5))
            .collect()
    };
    for second in 0..40u32 {
        made.second(crew(), vec![process(2_000, "crew", &[(0, 1_000)])]);
        let (from, to) = if second % 2 == 0 { (0, 4) } else { (4, 0) };
        let movers: Vec<u32> = (0..60)
            .filter(|n| second <= *n)
            .map(|n| 2_000 + n)
            .collect();
        let why = "30.0 lines per 1000 instructions is rank 1 of 60";
        made.placed(
            movers
                .iter()
                .map(|&tid| placement(tid, from, to, "di: deal by miss rate", why, ""))
                .collect(),
            movers
                .iter()
                .map(|&tid| order(tid, Some(to), "9"))
                .collect(),
        );
    }
    let ledger = made.ledger();
    let explanation = explain(&ledger, Choice::default()).unwrap();
    let told = short(&explanation, "numaherd explain herd.jsonl");
    assert!(told.lines().count() <= 40, "{told}");
    assert!(told.contains("the last 15 of"), "{told}");
    let first: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let labels = ["What", "Why", "Helped", "Stop", "More"];
    let places = labels.map(|label| first.iter().position(|word| *word == label).unwrap());
    assert!(places.is_sorted() && places[4] < 12, "{told}");

    let of = |choice: Choice| text(&explain(&ledger, choice).unwrap());
    let told = of(Choice {
        pid: Some(2_000),
        ..Choice::default()
    });
    assert!(
        told.contains("... 28 more decisions: `--tid 2040` shows all ..."),
        "{told}"
    );
    let told = of(Choice {
        tid: Some(2_040),
        ..Choice::default()
    });
    assert_eq!(told.matches(": moved from").count(), 40);
    assert_eq!(whole(&explanation).matches("... ").count(), 0);
}

/// The numbers of the records of a kind.
fn records(ledger: &Ledger, of: impl Fn(&Record) -> bool) -> Vec<u64> {
    let lines = ledger.lines.iter().filter(|line| of(&line.record));
    lines.map(|line| line.sequence).collect()
}

#[test]
fn a_decision_is_found_by_its_number_and_by_that_of_its_snapshot_and_its_outcome() {
    let ledger = runs::faster().ledger();
    let all = explain(&ledger, Choice::default()).unwrap();
    let moved = &all.processes[0].threads[1].decisions[0];
    let of = |number| {
        explain(
            &ledger,
            Choice {
                decision: Some(number),
                ..Choice::default()
            },
        )
    };
    let found = of(moved.first_record).unwrap();
    let decisions = &found.processes[0].threads[1].decisions;
    assert_eq!(decisions.len(), 1);
    assert_eq!(&decisions[0], moved);
    // The snapshot before it and the outcome after it.
    for number in [moved.first_record - 1, moved.first_record + 1] {
        assert_eq!(of(number).unwrap(), found, "#{number}");
    }
    // One of forty ticks is told of alone.
    let pages = &all.processes[0].threads[1].decisions[1];
    let one = of(pages.first_record + 3).unwrap();
    let decision = &one.processes[0].threads[0].decisions[0];
    assert_eq!(
        (decision.times, decision.first_record),
        (1, pages.first_record + 3)
    );
    let notice = records(&ledger, |record| matches!(record, Record::Start(_)))[0];
    let refused = of(notice).unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "there is no decision #0: this program does not know that kind of record; the nearest is #{} \
             at 4.0 s",
            moved.first_record
        )
    );
    let refused = of(9_999).unwrap_err().to_string();
    assert!(
        refused.contains("the ledger contains the records #0 to #"),
        "{refused}"
    );
}

#[test]
fn decisions_are_chosen_by_time_and_by_name() {
    let ledger = runs::faster().ledger();
    let pages = Choice {
        from_ns: Some(4 * SECOND + 1),
        to_ns: Some(4 * SECOND + 100_000_000),
        ..Choice::default()
    };
    let found = explain(&ledger, pages).unwrap();
    let threads = &found.processes[0].threads;
    assert_eq!(
        threads.len(),
        1,
        "the other thread had nothing decided then"
    );
    assert_eq!(threads[0].decisions[0].times, 10);
    assert_eq!(
        threads[0].moves, 1,
        "what the thread came to is of the whole run"
    );

    let around = Choice {
        at_ns: Some(4 * SECOND),
        ..Choice::default()
    };
    let around = explain(&ledger, around).unwrap().chosen;
    assert_eq!(
        (around.from_ns, around.to_ns),
        (Some(3 * SECOND), Some(5 * SECOND))
    );
    let nothing = Choice {
        to_ns: Some(SECOND),
        ..Choice::default()
    };
    let refused = explain(&ledger, nothing).unwrap_err().to_string();
    assert!(
        refused.starts_with("nothing was decided between 0.0 s and 1.0 s; the nearest is #"),
        "{refused}"
    );

    let named = |name: &str| {
        explain(
            &ledger,
            Choice {
                name: Some(name.to_owned()),
                ..Choice::default()
            },
        )
    };
    assert_eq!(named("chase").unwrap().processes[0].threads.len(), 2);
    assert_eq!(
        named("chasm").unwrap_err().to_string(),
        "the ledger contains no process or thread named chasm; processes there are: chase"
    );
}

#[test]
fn what_staying_would_have_cost_is_reckoned_from_what_was_seen() {
    let explanation = all_of(&runs::faster());
    let moved = &explanation.processes[0].threads[1].decisions[0];
    let alternative = moved.alternative.unwrap();
    // CPUs 0 and 1 share a cache; the other thread of it has 0.5 misses per 1000 instructions.
    let (staying, going) = (alternative.staying, alternative.going);
    assert_eq!((staying.neighbours, going.neighbours), (1, 0));
    assert!((staying.pressure - 0.5).abs() < 1e-9, "{staying:?}");
    assert_eq!(
        (staying.remote_pages, going.remote_pages),
        (Some(0.0), Some(1.0))
    );
    assert_eq!(staying.slowdown, Some(1.0));
    // The regression of N-MASS 4.5 at 41 misses per 1000 instructions: 1.05 + 0.015 x 41.
    let slowdown = going.slowdown.unwrap();
    assert!((slowdown - 1.665).abs() < 1e-9, "{slowdown}");
}

#[test]
fn where_thread_and_pages_were_found_afterwards_is_told() {
    let explanation = all_of(&runs::faster());
    let moved = &explanation.processes[0].threads[1].decisions[0];
    let followed = moved.followed.as_ref().unwrap();
    assert_eq!(followed.as_ordered, Some(3));
    assert_eq!(followed.node.map(|node| node.0), Some(2));
    assert_eq!(followed.before.pages_on_node, Some(0.0));
    assert_eq!(followed.after.pages_on_node, Some(0.5));
    assert_eq!(followed.others_moved, 0);
    let found: Vec<u64> = followed.after.ran.iter().map(|ran| ran.intervals).collect();
    assert_eq!(found, [3]);
    let before = &followed.before;
    assert_eq!(
        (before.slowest, before.fastest),
        (before.fastest, before.slowest)
    );
}

#[test]
fn what_followed_is_counted_by_its_effect() {
    let count = |made: &Made| Effects::of(&all_of(made));
    assert_eq!(count(&runs::faster()).faster, 1);
    assert_eq!(count(&runs::nothing()), Effects::default());
}

#[test]
fn what_was_asked_of_a_running_herd_is_told() {
    let mut made = Made::new("dino");
    let second = |made: &mut Made| {
        made.second(
            vec![thread(100, 100, "chase", 0, 500, 40.0, 1.0)],
            vec![process(100, "chase", &[(0, 5_000)])],
        );
        made.placed(vec![], vec![]);
    };
    second(&mut made);
    made.asked(
        "control socket (uid 0)",
        Asked::Change {
            policy: Some("n-mass".to_owned()),
            settings: None,
            why: "dino moves too much".to_owned(),
        },
    );
    second(&mut made);
    made.asked(
        "SIGUSR1",
        Asked::Pause {
            give_back: false,
            given_back: 0,
        },
    );
    second(&mut made);
    let explanation = all_of(&made);
    let run = explanation.run.as_ref().unwrap();
    assert_eq!(
        (run.policy.as_str(), run.policy_now.as_str()),
        ("dino", "n-mass")
    );
    assert!(run.paused);
    insta::assert_snapshot!(told(&made));
}

#[test]
fn the_group_of_a_process_is_told() {
    let mut made = Made::new("dino");
    let mut grouped = process(100, "chase", &[(0, 5_000)]);
    grouped.group = Some("db".into());
    made.second(
        vec![thread(100, 100, "chase", 0, 500, 40.0, 1.0)],
        vec![grouped],
    );
    let choice = Choice {
        pid: Some(100),
        ..Choice::default()
    };
    let explanation = explain(&made.ledger(), choice).unwrap();
    assert!(text(&explanation).contains("Of the group db."));
}

/// Runs as bytes, to be damaged.
static RUNS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let runs = [
        runs::faster(),
        runs::slower_and_undone(),
        runs::pages_fail(),
        runs::dry(),
    ];
    runs.iter().map(Made::bytes).collect()
});

proptest! {
    #[test]
    fn wherever_a_ledger_is_damaged_the_rest_is_explained(
        run in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let bytes: &Vec<u8> = run.get(&RUNS);
        let undamaged = explain(&read(bytes.clone()), Choice::default()).unwrap();
        let Some(reader) = damaged(bytes, at, cut) else {
            return Ok(());
        };
        let explanation = explain(&Ledger::of(reader), Choice::default()).unwrap();
        let told = whole(&explanation);
        let page = short(&explanation, "numaherd explain run.ledger");
        prop_assert_eq!(explanation.ledger.damage.is_some(), page.contains("DAMAGED"));
        prop_assert_eq!(explanation.ledger.damage.is_some(), told.contains("DAMAGED"));
        let moves = |of: &Explanation| of.run.as_ref().map_or(0, |run| run.totals.thread_moves);
        prop_assert!(moves(&explanation) <= moves(&undamaged));
    }
}
