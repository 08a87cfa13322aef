//! `status`: what it says of a run at any moment, and that it holds no more than that.

use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::Writer;
use numaherd_herd::{Guard, Herd, Record};
use numaherd_policy::classes::Class;
use numaherd_policy::registry;
use numaherd_show::explain::Choice;
use numaherd_show::run::{DecisionOutcome, MOST_KEPT, MOST_RULES, RunModel, Subject};
use numaherd_topology::NodeId;

use crate::made::*;
use crate::runs;
use crate::totalled::Obedient;

/// The status after all lines but the end.
pub fn before_the_end(made: &Made) -> RunModel {
    let mut run = RunModel::new();
    for line in made.shared() {
        if !matches!(line.record, Record::End(_)) {
            run.take(&line);
        }
    }
    run
}

#[test]
fn nodes_processes_and_threads_are_as_last_seen() {
    let status = before_the_end(&runs::faster());
    let machine = status.machine.as_ref().unwrap();
    assert_eq!((machine.nodes, machine.cpus), (4, 8));
    assert_eq!((status.policy.as_str(), status.is_complete), ("dino", true));
    let node = &status.nodes[2];
    assert_eq!((node.id, node.cpus, node.threads), (NodeId(2), 2, 1));
    assert_eq!((node.cpus_used, node.pages), (1.0, 10_000));
    assert_eq!(node.memory_bytes, Some(1 << 30));
    assert_eq!(node.free_bytes, Some(1 << 29));
    let process = status.process(process_id(100)).unwrap();
    assert_eq!((process.threads, process.cpus_used), (2, 2.0));
    assert_eq!(process.threads_on, [(NodeId(0), 1), (NodeId(2), 1)]);
    assert_eq!(process.home, Some(NodeId(0)));
    assert_eq!(process.class, Some(Class::Devil));
    assert_eq!((process.thread_moves, process.pages_moved), (1, 10_000));
    let thread = status.thread(thread_id(101)).unwrap();
    assert_eq!((thread.node, thread.moves), (Some(2), 1));
    let last = thread.last_move.as_ref().unwrap();
    assert_eq!(
        (last.outcome, last.rule.as_str()),
        (DecisionOutcome::Moved, "dino: fill slots")
    );
    let Subject::Thread {
        from_node, to_node, ..
    } = last.subject
    else {
        panic!("{last:?}");
    };
    assert_eq!((from_node, to_node), (Some(NodeId(0)), Some(NodeId(2))));
    assert!(last.why.starts_with("devil (41.0 lines"));
    assert_eq!(status.decisions.len(), 1);
    let rules = &status.more.rules;
    assert_eq!(
        (
            rules["dino: fill slots"].wanted,
            rules["dino: fill slots"].moved
        ),
        (1, 1)
    );
    assert_eq!(
        (
            rules["dino: keep core"].wanted,
            rules["dino: keep core"].moved
        ),
        (1, 0)
    );
}

#[test]
fn where_pages_came_from_is_said_only_where_it_is_known() {
    // Until its pages were seen on node 2 as well, all that were elsewhere were on node 0.
    let status = before_the_end(&runs::faster());
    let flows: Vec<_> = status.more.page_flows.into_iter().collect();
    assert_eq!(flows, [((Some(NodeId(0)), NodeId(2)), 10_000)]);
    let mut made = Made::new("dino");
    made.second(
        vec![thread(1, 1, "wide", 0, 100, 5.0, 0.5)],
        vec![process(1, "wide", &[(0, 10), (1, 10), (3, 10)])],
    );
    let order = whole_set(1, 1, 3);
    made.paging(
        10,
        numaherd_herd::ledger::PagingTick {
            outcomes: vec![page_outcome(&order, 7)],
            plan: vec![order],
            carried_out: true,
            ..Default::default()
        },
    );
    let flows: Vec<_> = before_the_end(&made).more.page_flows.into_iter().collect();
    assert_eq!(flows, [((None, NodeId(3)), 7)]);
}

#[test]
fn sums_are_those_that_explain_counts() {
    for made in runs::all() {
        let mut ledger = made.ledger();
        ledger
            .lines
            .retain(|line| !matches!(line.record, Record::End(_)));
        let counted = explain(&ledger, Choice::default())
            .unwrap()
            .run
            .unwrap()
            .totals;
        let status = before_the_end(&made);
        // What `explain` finds in the last placing, which gives back, is no sum of a run that goes on.
        let expected = numaherd_herd::Totals {
            restored: None,
            ..counted
        };
        assert_eq!(status.totals, expected);
    }
}

#[test]
fn refusals_are_counted_by_guard() {
    let status = before_the_end(&runs::refused_by_each_guard());
    assert!(status.totals.refusals[&Guard::Bounce] > 0);
    assert!(status.totals.refusals[&Guard::Bandwidth] > 0);
}

#[test]
fn lost_lines_make_it_incomplete_until_the_next_snapshot() {
    let made = runs::faster();
    let mut status = RunModel::new();
    assert!(!status.is_complete);
    let mut lines = made.shared();
    lines.by_ref().take(4).for_each(|line| status.take(&line));
    assert!(status.is_complete);
    let judged = status.lateness.intervals;
    status.lost(0);
    assert!(status.is_complete);
    status.lost(3);
    assert!(!status.is_complete);
    let next = lines
        .find(|line| matches!(line.record, Record::Snapshot(_)))
        .unwrap();
    status.take(&next);
    assert!(status.is_complete);
    assert_eq!(status.more.lines_lost, 3);
    assert_eq!(
        status.lateness.intervals, judged,
        "its interval cannot be judged"
    );
}

#[test]
fn nothing_is_kept_of_what_has_ended_and_no_list_grows() {
    let mut made = Made::new("dino");
    for round in 0..200u32 {
        let tid = 1000 + round;
        made.second(
            vec![thread(tid, tid, "short", 0, 100, 5.0, 0.5)],
            vec![process(tid, "short", &[(0, 10)])],
        );
        let rule: &'static str = Box::leak(format!("rule {round}").into_boxed_str());
        made.placed(
            vec![placement(tid, 0, 4, rule, "so", "")],
            vec![order(tid, Some(4), "4-5")],
        );
        made.notice(&format!("notice {round}"));
    }
    let status = before_the_end(&made);
    assert_eq!((status.threads.len(), status.processes.len()), (1, 1));
    assert_eq!(
        (status.decisions.len(), status.notices.len()),
        (MOST_KEPT, MOST_KEPT)
    );
    assert_eq!(status.more.rules.len(), MOST_RULES + 1);
    assert_eq!(status.totals.thread_moves, 200);
    assert_eq!(status.decisions.back().unwrap().thread, thread_id(1199));
    assert!(serde_json::to_string(&status).unwrap().len() < 100_000);
}

#[test]
fn before_the_first_line_there_is_nothing_to_say() {
    let status = RunModel::new();
    assert!(status.machine.is_none() && status.nodes.is_empty());
    serde_json::to_string(&status).unwrap();
}

#[test]
fn a_ledger_that_cannot_be_written_any_more_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("full");
    std::fs::create_dir(&folder).unwrap();
    let writer = Writer::create(&folder.join("ledger"), "test", None, 20_000).unwrap();
    // It cannot be turned over where there is no folder any more.
    std::fs::remove_dir_all(&folder).unwrap();
    let mut world = Obedient::new();
    let policy = registry::build("di-plain", &numaherd_policy::Settings::default()).unwrap();
    let mut status = RunModel::new();
    let mut before = false;
    Herd::new(&mut world, policy)
        .ledger(writer)
        .watched_by(Box::new(|line| {
            before |= status.time_ns > 0 && !status.more.ledger_ended;
            status.take(line);
        }))
        .run(&AtomicBool::new(false))
        .unwrap();
    assert!(before && status.more.ledger_ended);
    assert!(status.ended.is_some(), "herding went on");
}
