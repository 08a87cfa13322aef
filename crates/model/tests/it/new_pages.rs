//! Where the pages of processes go that start, as a policy's rule for new pages has it.

use std::time::Duration;

use numaherd_model::program::Library;
use numaherd_model::{Hardware, Job, Model, Options, Placement, Until};
use numaherd_topology::{Machine, NodeId};
use numaherd_world::{NewPages, Process, World};

/// One process whose memory is left to the kernel, and one that has it on node 1, on four nodes.
fn model() -> Model {
    let hardware = Hardware::of(&Machine::preset("opteron-8356-4s").unwrap()).unwrap();
    let program = || Library::built_in().get("milc").unwrap().clone();
    let bound = Job {
        memory: Placement::On(NodeId(1)),
        ..Job::new(program())
    };
    let until = Until::Time(Duration::from_secs(2));
    Model::new(
        hardware,
        vec![Job::new(program()), bound],
        until,
        Options::default(),
    )
    .unwrap()
}

/// Pages of each process by node, after a moment.
fn pages(mut model: Model) -> Vec<[u64; 4]> {
    model.run_for(Duration::from_millis(1));
    let on = |process: &Process| {
        let residency = process.residency.as_ref().unwrap();
        [0, 1, 2, 3].map(|node| residency.on(NodeId(node)))
    };
    model.observe().unwrap().processes.iter().map(on).collect()
}

fn nodes_with_pages(of: &[u64; 4]) -> usize {
    of.iter().filter(|&&pages| pages > 0).count()
}

#[test]
fn the_first_to_touch_a_page_has_it() {
    let mut model = model();
    assert!(model.place_new_pages(NewPages::FirstTouch).is_ok());
    let pages = pages(model);
    assert_eq!(nodes_with_pages(&pages[0]), 1);
}

#[test]
fn pages_are_interleaved_but_where_a_job_says_otherwise() {
    let mut model = model();
    assert!(model.place_new_pages(NewPages::Interleave).is_ok());
    let pages = pages(model);
    let (least, most) = (
        pages[0].iter().min().unwrap(),
        pages[0].iter().max().unwrap(),
    );
    assert!(*least > 0 && most - least <= 1, "{:?}", pages[0]);
    assert_eq!(nodes_with_pages(&pages[1]), 1);
    assert!(pages[1][1] > 0);
}

#[test]
fn a_rule_can_be_taken_back_for_what_starts_later() {
    let mut model = model();
    assert!(model.place_new_pages(NewPages::Interleave).is_ok());
    assert!(model.place_new_pages(NewPages::FirstTouch).is_ok());
    let pages = pages(model);
    assert_eq!(nodes_with_pages(&pages[0]), 1);
}

#[test]
fn random_nodes_are_refused_with_what_to_do() {
    let refused = model().place_new_pages(NewPages::Random).unwrap_err();
    assert!(refused.reason.contains("choose interleave"), "{refused}");
}
