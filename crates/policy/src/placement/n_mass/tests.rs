//! N-MASS in the paper's own situations, and its properties.

use super::*;
use crate::policy::Place;
use crate::settings::MostMoved;
use crate::stage::Staged;
use numaherd_testing::{Scene, Shape};
use numaherd_topology::{CpuId, NodeId, Parts};
use numaherd_world::{Placement, Unmanaged};
use rand::SeedableRng;

mod as_read;
mod properties;

/// A program: name, miss rate and profiled NUMA penalty.
type Program = (&'static str, f64, f64);

const MCF: Program = ("mcf", 34.0, 1.21);
const LBM: Program = ("lbm", 20.0, 1.3);
const SOPLEX: Program = ("soplex", 18.0, 1.27);
const MILC: Program = ("milc", 23.0, 1.25);
const TURTLE: Program = ("namd", 0.1, 1.0);

/// Two processors of four cores, and single-threaded programs with their homes; thread N on CPU N.
fn paper(programs: &[(Program, u32)]) -> (Scene, Settings) {
    on(Scene::uniform(2, 4), programs)
}

fn on(mut scene: Scene, programs: &[(Program, u32)]) -> (Scene, Settings) {
    let mut settings = Settings::default();
    for (number, &((name, rate, penalty), home)) in (0..).zip(programs) {
        scene.thread(number, rate, number);
        scene.home(number, name, home);
        settings.penalty.programs.insert(name.into(), penalty);
    }
    (scene, settings)
}

fn on_stage(policy: NMass) -> Staged<NMass> {
    Staged::new(&Settings::default(), policy)
}

fn place(policy: &mut Staged<NMass>, scene: &Scene) -> Vec<Placement> {
    let mut random = Random::seed_from_u64(0);
    policy.place(&scene.snapshot, &scene.topology, &mut random)
}

/// The node of each thread after a plan.
fn nodes(policy: NMass, scene: &Scene) -> Vec<u32> {
    let mut scene = scene.clone();
    let plan = place(&mut on_stage(policy), &scene);
    scene.carry_out(&plan);
    let node = |cpu: u32| scene.topology.node_of(CpuId(cpu)).expect("known").0;
    scene.places().into_iter().map(node).collect()
}

fn local(programs: &[(Program, u32)]) -> Vec<u32> {
    let (scene, settings) = paper(programs);
    nodes(NMass::new(&settings, Steps::MaximumLocal), &scene)
}

fn whole(programs: &[(Program, u32)]) -> Vec<u32> {
    let (scene, settings) = paper(programs);
    nodes(NMass::new(&settings, Steps::All), &scene)
}

fn with(change: impl Fn(&mut NMassSettings), programs: &[(Program, u32)]) -> Vec<u32> {
    let (scene, mut settings) = paper(programs);
    change(&mut settings.n_mass);
    nodes(NMass::new(&settings, Steps::All), &scene)
}

/// Line 28 as printed.
fn one_a_call(settings: &mut NMassSettings) {
    settings.most_moved = MostMoved::One;
}

#[test]
fn of_two_programs_the_one_of_lower_penalty_leaves_if_it_takes_less_than_half_along() {
    // Section 2: both homed on processor 0.
    let both = [(MCF, 0), (LBM, 0)];
    assert_eq!(local(&both), [0, 0]);
    // By its profile mcf has the lower penalty, but most of the pressure.
    assert_eq!(whole(&both), [0, 0]);
    let other_reading = |settings: &mut NMassSettings| settings.most_moved = MostMoved::Difference;
    assert_eq!(with(other_reading, &both), [1, 0], "the paper's case (c)");
    assert_eq!(with(one_a_call, &both), [1, 0], "the paper's case (c)");
    // By the regression mcf has the higher penalty, and lbm less than half of the pressure.
    let (scene, settings) = paper(&both);
    let regression = NMass::with_regression(&settings);
    assert_eq!(nodes(regression, &scene), [0, 1], "the paper's case (b)");
}

#[test]
fn of_four_equal_programs_one_leaves() {
    // Section 3.1, Figure 5: three local and one remote are fastest.
    let four = [(SOPLEX, 0); 4];
    assert_eq!(local(&four), [0; 4]);
    assert_eq!(whole(&four), [0, 0, 0, 1]);
    let other_reading = |settings: &mut NMassSettings| settings.most_moved = MostMoved::Difference;
    assert_eq!(with(other_reading, &four), [0, 0, 1, 1]);
    assert_eq!(with(one_a_call, &four), [0, 0, 0, 1]);
}

#[test]
fn what_is_balanced_stays() {
    assert_eq!(whole(&[(SOPLEX, 0), (SOPLEX, 1)]), [0, 1]);
    assert_eq!(
        whole(&[(SOPLEX, 0), (MCF, 1), (SOPLEX, 0), (MCF, 1)]),
        [0, 1, 0, 1]
    );
    assert_eq!(whole(&[]), [] as [u32; 0]);
}

#[test]
fn allocation_maps_of_workload_nine() {
    // mcf milc soplex lbm (Table 2): 0000, and the three balanced maps of Table 3.
    let homed = |map: [u32; 4]| -> Vec<(Program, u32)> {
        [MCF, MILC, SOPLEX, LBM].into_iter().zip(map).collect()
    };
    assert_eq!(local(&homed([0; 4])), [0; 4]);
    assert_eq!(whole(&homed([0; 4])), [1, 0, 0, 0]);
    for map in [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]] {
        assert_eq!(local(&homed(map)), map);
        assert_eq!(whole(&homed(map)), map, "balanced: as maximum-local");
    }
}

#[test]
fn turtles_leave_first_and_stop_nobody() {
    let programs = [(LBM, 0), (SOPLEX, 0), (MILC, 0), (TURTLE, 0)];
    // Penalties: lbm 1.3, soplex 1.27, milc 1.25, the turtle 1.0.
    assert_eq!(whole(&programs), [0, 0, 1, 1]);
}

#[test]
fn nothing_is_moved_to_the_threshold_or_over_it() {
    // Four of 23 at home; one more would be 23 x 1.25 = 28.75 elsewhere.
    let four = [(MILC, 0); 4];
    let threshold = |threshold| with(|settings| settings.threshold = threshold, &four);
    assert_eq!(threshold(28.75), [0; 4]);
    assert_eq!(threshold(28.76), [0, 0, 0, 1]);
    // What is local to the other processor counts too: 40 + 28.75 is above 60, and would help.
    let others = ("other", 40.0, 1.4);
    let more = |home| [(MILC, 0), (MILC, 0), (MILC, 0), (MILC, 0), (others, home)];
    let heavier = ("milc", 35.0, 1.25);
    let heavy = [heavier, heavier, heavier, heavier].map(|program| (program, 0));
    assert_eq!(whole(&more(1)), [0, 0, 0, 0, 1]);
    let programs: Vec<_> = heavy.into_iter().chain([(others, 1)]).collect();
    assert_eq!(whole(&programs), [0, 0, 0, 0, 1]);
    let higher = |settings: &mut NMassSettings| settings.threshold = 100.0;
    assert_eq!(with(higher, &programs), [0, 0, 0, 1, 1]);
}

#[test]
fn where_home_is_full_those_of_low_penalty_are_remote() {
    let programs: Vec<(Program, u32)> = [MCF, LBM, SOPLEX, MILC, TURTLE, LBM]
        .map(|program| (program, 0))
        .to_vec();
    assert_eq!(local(&programs), [1, 0, 0, 0, 1, 0]);
}

#[test]
fn a_full_machine_can_be_refined_only_by_exchange() {
    // Workload 11, all homed on processor 0.
    let turtles = ["gobmk", "perlbench", "namd", "povray"].map(|name| ((name, 0.1, 1.0), 0));
    let devils = [MCF, MILC, SOPLEX, LBM].map(|program| (program, 0));
    let programs: Vec<_> = devils.into_iter().chain(turtles).collect();
    assert_eq!(local(&programs), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(whole(&programs), [0, 0, 0, 0, 1, 1, 1, 1]);
    let exchange = |settings: &mut NMassSettings| settings.exchange = true;
    assert_eq!(with(exchange, &programs), [1, 0, 0, 0, 1, 1, 1, 0]);
}

#[test]
fn threads_of_a_process_are_placed_by_its_home_and_their_own_rates() {
    let (mut scene, settings) = paper(&[]);
    scene.home(7, "milc", 1);
    for (cpu, rate) in (0..).zip([23.0, 23.0, 5.0, 23.0]) {
        scene.thread(7, rate, cpu);
    }
    assert_eq!(
        nodes(NMass::new(&settings, Steps::MaximumLocal), &scene),
        [1; 4]
    );
    // By the regression the thread of the lowest rate has the lowest penalty and leaves first.
    assert_eq!(
        nodes(NMass::with_regression(&settings), &scene),
        [1, 1, 0, 0]
    );
}

#[test]
fn all_domains_of_a_node_are_home() {
    let shape = Shape {
        nodes: vec![vec![1, 1], vec![1, 1]],
        ..Shape::uniform(2, 1)
    };
    let (mut scene, settings) = on(Scene::new(&shape), &[(LBM, 0), (SOPLEX, 0), (MILC, 0)]);
    let plan = place(
        &mut on_stage(NMass::new(&settings, Steps::MaximumLocal)),
        &scene,
    );
    scene.carry_out(&plan);
    let places = scene.places();
    assert_eq!(
        places[..2],
        [0, 1],
        "a domain each: the second had less pressure"
    );
    assert!([2, 3].contains(&places[2]), "node 0 is full");
}

#[test]
fn where_home_is_full_the_nearest_node_comes_next() {
    let scene = Scene::uniform(3, 1);
    let mut parts = Parts::from(scene.topology.clone());
    parts.distances = vec![vec![10, 30, 20], vec![30, 10, 20], vec![20, 20, 10]];
    let (mut scene, settings) = on(scene, &[(LBM, 0), (SOPLEX, 0)]);
    scene.topology = parts.try_into().expect("distances fit");
    assert_eq!(
        nodes(NMass::new(&settings, Steps::MaximumLocal), &scene),
        [0, 2]
    );
}

#[test]
fn a_home_without_cores_makes_its_threads_remote_everywhere() {
    let shape = Shape {
        nodes: vec![vec![2], vec![2], vec![]],
        ..Shape::uniform(3, 1)
    };
    let (scene, settings) = on(Scene::new(&shape), &[(LBM, 2), (SOPLEX, 2), (SOPLEX, 0)]);
    // Spread by pressure; the last at home.
    assert_eq!(
        nodes(NMass::new(&settings, Steps::MaximumLocal), &scene),
        [0, 1, 0]
    );
}

#[test]
fn a_process_without_known_pages_is_left_to_the_kernel_and_keeps_its_last_home() {
    let (mut scene, settings) = paper(&[(LBM, 1), (SOPLEX, 1)]);
    scene.snapshot.processes[1].residency = None;
    let mut policy = on_stage(NMass::new(&settings, Steps::MaximumLocal));
    let plan = place(&mut policy, &scene);
    let named: Vec<u32> = plan.iter().map(|p| p.thread.tid).collect();
    assert_eq!(named, [0]);
    scene.carry_out(&plan);
    scene.snapshot.processes[0].residency = None;
    assert_eq!(place(&mut policy, &scene), []);
    scene.home(0, "lbm", 0);
    let plan = place(&mut policy, &scene);
    scene.carry_out(&plan);
    assert_eq!(
        scene.topology.node_of(scene.snapshot.threads[0].place()),
        Some(NodeId(0))
    );
}

#[test]
fn threads_are_placed_anew_only_when_something_changed() {
    let (mut scene, settings) = paper(&[(SOPLEX, 0), (SOPLEX, 0), (SOPLEX, 0), (SOPLEX, 0)]);
    let mut policy = on_stage(NMass::new(&settings, Steps::All));
    let plan = place(&mut policy, &scene);
    assert_eq!(plan.len(), 4, "each is held, one is moved");
    // What was not carried out is wanted again, from where the thread is now.
    scene.carry_out(&plan[..3]);
    scene.snapshot.threads[3].cpu = CpuId(2);
    let again = place(&mut policy, &scene);
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].from, again[0].to), (CpuId(2), plan[3].to));
    scene.carry_out(&again);
    assert_eq!(place(&mut policy, &scene), []);
    // Alone its rate would send it home; it changed by less than a fifth.
    for thread in 0..3 {
        scene.set_miss_rate(thread, 15.0);
    }
    scene.set_miss_rate(3, 21.0);
    assert_eq!(place(&mut policy, &scene), []);
    // One more did: thread 3, now above half the difference, goes home.
    scene.set_miss_rate(0, 1.0);
    scene.set_miss_rate(1, 1.0);
    let plan = place(&mut policy, &scene);
    let moved: Vec<u32> = plan.iter().map(|p| p.thread.tid).collect();
    assert_eq!(moved, [3]);
    scene.carry_out(&plan);
    assert_eq!(
        scene.topology.node_of(scene.snapshot.threads[3].place()),
        Some(NodeId(0))
    );
}

#[test]
fn threads_that_cannot_be_placed_press_where_they_are() {
    let (mut scene, settings) = paper(&[(SOPLEX, 0); 4]);
    // As much elsewhere: no thread leaves.
    scene.home(9, "pinned", 1);
    scene.thread(9, 60.0, 5).unmanaged = Some(Unmanaged::other("its user set its affinity"));
    assert_eq!(
        nodes(NMass::new(&settings, Steps::All), &scene),
        [0, 0, 0, 0, 1]
    );
}

#[test]
fn a_plan_in_words() {
    let (scene, settings) = paper(&[(LBM, 1), (MILC, 0), (MILC, 0), (MILC, 0)]);
    let mut settings = settings;
    settings.n_mass.threshold = 100.0;
    let plan = place(&mut on_stage(NMass::new(&settings, Steps::All)), &scene);
    let told: Vec<String> = plan
        .iter()
        .map(|p| {
            format!(
                "{} {}->{} [{}] {} | {}",
                p.thread, p.from, p.to, p.rule, p.why, p.instead_of
            )
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}
