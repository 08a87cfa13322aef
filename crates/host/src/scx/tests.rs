//! Layers of machines, and hints on a fake kernel.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use numaherd_topology::{CpuId, Topology, hwloc};
use numaherd_world::{AffinityOrder, AffinityResult, ThreadId};
use serde_json::{Value, json};

use super::hints::Hints;
use super::{Layers, SCX_LAYERED, Scheduler, State, state};
use crate::fake::{FakeKernel, anything, root};
use crate::files::Root;
use crate::kernel::{Errno, HintMap};

const THREAD: ThreadId = ThreadId { tid: 7, born: 70 };

fn machine(synthetic: &str) -> Topology {
    hwloc::synthetic(synthetic).unwrap()
}

/// The name and the place of each layer of a machine, and how many CPUs it has.
fn layers(synthetic: &str) -> Vec<String> {
    let layers = Layers::of(&machine(synthetic)).unwrap().specification();
    let layers: Vec<Value> = serde_json::from_str(&layers).unwrap();
    let shown = |layer: &Value| {
        let name = layer["name"].as_str().unwrap();
        let kind = &layer["kind"]["Confined"];
        let place = match (kind.is_null(), kind["nodes"].is_null()) {
            (true, _) => return name.to_owned(),
            (false, true) => format!("llcs {}", kind["llcs"]),
            (false, false) => format!("nodes {}", kind["nodes"]),
        };
        let hint = &layer["matches"][0][0]["HintEquals"];
        format!("{name}: hint {hint} {place} cpus {}", kind["cpus_range"][1])
    };
    layers.iter().map(shown).collect()
}

/// A thread spills from a full domain only where its layer may preempt.
#[test]
fn every_layer_may_take_idle_cpus_anywhere() {
    let layers = Layers::of(&machine("numa:2 core:2 pu:1")).unwrap();
    let layers: Vec<Value> = serde_json::from_str(&layers.specification()).unwrap();
    for layer in &layers {
        let (_, kind) = layer["kind"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(kind["preempt"], true);
        assert_eq!(kind["xnuma_threshold"], json!([0.0, 0.0]));
    }
}

#[test]
fn each_node_is_a_layer_where_it_is_one_memory_domain() {
    assert_eq!(
        layers("numa:2 l3:1 core:2 pu:2"),
        [
            "anywhere",
            "place 0: hint 1 nodes [0] cpus 4",
            "place 1: hint 2 nodes [1] cpus 4",
            "rest"
        ]
    );
}

#[test]
fn each_memory_domain_is_a_layer_where_nodes_have_several() {
    assert_eq!(
        layers("numa:2 l3:2 core:2 pu:1")[1..5],
        [
            "place 0: hint 1 llcs [0] cpus 2",
            "place 1: hint 2 llcs [1] cpus 2",
            "place 2: hint 3 llcs [2] cpus 2",
            "place 3: hint 4 llcs [3] cpus 2",
        ]
    );
}

#[test]
fn a_machine_with_more_domains_than_there_are_layers_has_one_for_each_node() {
    let layers = layers("numa:2 l3:8 core:2 pu:1");
    assert_eq!(layers.len(), 4);
    assert_eq!(layers[2], "place 1: hint 2 nodes [1] cpus 16");
    let refused = Layers::of(&machine("numa:15 l3:1 core:1 pu:1")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot carry out placements by hints to a scheduler: the machine has 15 nodes with CPUs, and scx_layered has \
         layers for 14; use --enforce affinity"
    );
}

fn hints() -> Hints {
    Hints {
        map: HintMap::made_up(anything()),
        layers: Layers::of(&machine("numa:2 l3:1 core:2 pu:1")).unwrap(),
    }
}

fn kernel() -> FakeKernel {
    let kernel = FakeKernel::default();
    kernel.thread(7, 70, "0-3".parse().unwrap());
    kernel
}

fn order(thread: ThreadId, core: Option<u32>) -> AffinityOrder {
    AffinityOrder {
        thread,
        core: core.map(CpuId),
        cpus: Arc::new("2-3".parse().unwrap()),
    }
}

#[test]
fn an_order_is_the_hint_of_its_cores_place_and_giving_back_that_of_none() {
    let (kernel, hints) = (kernel(), hints());
    let done = |core| hints.carry_out(&kernel, &order(THREAD, core));
    assert_eq!(done(Some(3)), AffinityResult::Done);
    assert_eq!(kernel.hint(7), Some(2));
    assert_eq!(done(None), AffinityResult::Done);
    assert_eq!(kernel.hint(7), Some(0));
    // Its affinity is its user's.
    assert_eq!(kernel.mask(7), Some("0-3".parse().unwrap()));
}

#[test]
fn a_number_that_is_anothers_by_now_gets_no_hint() {
    let (kernel, later) = (kernel(), ThreadId { born: 71, ..THREAD });
    let result = hints().carry_out(&kernel, &order(later, Some(3)));
    assert_eq!((result, kernel.hint(7)), (AffinityResult::Gone, None));
}

#[test]
fn refusals_name_what_would_help() {
    let kernel = kernel();
    let told = |core| match hints().carry_out(&kernel, &order(THREAD, Some(core))) {
        AffinityResult::Failed { error } => error,
        other => panic!("{other:?}"),
    };
    assert!(told(9).contains("start numaherd again"));
    kernel.refuse_hints(Errno::PERM);
    assert!(told(3).ends_with("permission denied; run as root"));
}

#[test]
fn what_a_killed_run_has_left_is_found_in_the_map() {
    let (kernel, hints) = (kernel(), hints());
    let (folder, root) = root();
    for (tid, core) in [(7, Some(3)), (8, None), (9, Some(0))] {
        kernel.thread(tid, 70, "0-3".parse().unwrap());
        hints.carry_out(&kernel, &order(ThreadId { tid, born: 70 }, core));
    }
    for task in ["7/task/7", "7/task/8", "9/task/9", "10/task/10"] {
        fs::create_dir_all(folder.path().join("proc").join(task)).unwrap();
    }
    assert_eq!(hints.take_back(&kernel, &root), 2);
    assert_eq!(
        [7, 8, 9, 10].map(|tid| kernel.hint(tid)),
        [Some(0), Some(0), Some(0), None]
    );
}

/// A tree whose sched_ext files say this.
fn tree(state: Option<&str>, name: &str, has_map: bool) -> (tempfile::TempDir, Root) {
    let (folder, root) = root();
    let write = |file: &str, text: &str| {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    if let Some(state) = state {
        write("sys/kernel/sched_ext/state", state);
        write("sys/kernel/sched_ext/root/ops", name);
    }
    if has_map {
        write("sys/fs/bpf/numaherd/hints", "");
    }
    (folder, root)
}

#[test]
fn a_scheduler_is_ours_if_it_is_layered_and_has_the_map() {
    let is = |state_of, name, has_map| state(&tree(state_of, name, has_map).1);
    let other = |name: &str| State::Other(name.to_owned());
    assert_eq!(is(None, "", false), State::Missing);
    assert_eq!(is(Some("disabled\n"), "", true), State::Free);
    assert_eq!(is(Some("enabled\n"), "layered_1.1.4\n", true), State::Ours);
    assert_eq!(
        is(Some("enabled\n"), "layered_1.1.4\n", false),
        other("layered_1.1.4")
    );
    assert_eq!(is(Some("enabled\n"), "lavd\n", true), other("lavd"));
}

#[test]
fn what_is_in_the_way_of_a_scheduler_is_said_with_what_to_do() {
    let topology = machine("numa:2 core:2 pu:1");
    let told = |state: Option<&str>| {
        let (folder, _) = tree(state, "lavd\n", false);
        let told = Scheduler::start(folder.path(), &topology, Path::new(SCX_LAYERED))
            .unwrap_err()
            .to_string();
        told.replace(&folder.path().display().to_string(), "")
    };
    assert!(told(None).contains("has no sched_ext (no /sys/kernel/sched_ext/state)"));
    assert!(told(Some("enabled")).contains("the sched_ext scheduler lavd runs"));
    assert!(told(Some("disabled")).ends_with("mount -t bpf bpf /sys/fs/bpf"));
}
