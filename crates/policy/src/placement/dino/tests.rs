//! DINO's stages on the paper's own example, and its properties.

use super::*;
use crate::classes::Classes;
use crate::placement::slots::DomainSlots;
use crate::policy::Place;
use crate::pools::Taken;
use crate::settings::Settings;
use crate::stage::Staged;
use numaherd_testing::Scene;
use numaherd_world::{Placement, Unmanaged};
use rand::SeedableRng;
use std::collections::BTreeSet;

const SUPER_DEVIL: f64 = 150.0;
const DEVIL: f64 = 20.0;
const TURTLE: f64 = 0.5;

fn dino() -> Staged<Dino> {
    Staged::new(&Settings::default(), Dino)
}

fn place(dino: &mut Staged<Dino>, scene: &Scene) -> Vec<Placement> {
    let mut random = Random::seed_from_u64(0);
    dino.place(&scene.snapshot, &scene.topology, &mut random)
}

/// The paper's example: threads 0, 3, 4, 5 are process 0's, thread N runs on core N.
fn example() -> Scene {
    let mut scene = Scene::uniform(4, 2);
    let (big, mid, low) = (SUPER_DEVIL, DEVIL, TURTLE);
    let threads = [
        (0, big),
        (1, low),
        (2, mid),
        (0, low),
        (0, mid),
        (0, low),
        (3, mid),
        (4, big),
    ];
    for (cpu, (process, rate)) in (0..).zip(threads) {
        scene.thread(process, rate, cpu).assigned = Some(numaherd_topology::CpuId(cpu));
    }
    scene
}

/// Thread numbers by core, in the order of cores; `-` for an open one.
fn threads_by_core(slots: &PoolSlots, places: &[Option<At>]) -> String {
    let mut cores: Vec<(u32, String)> = Vec::new();
    for domain in &slots.domains {
        cores.extend(
            domain
                .cpus
                .iter()
                .map(|slots| (slots.cpu.0, "-".to_owned())),
        );
    }
    cores.sort_unstable();
    for (thread, at) in places.iter().enumerate() {
        if let Some(at) = at {
            cores[slots.cpu(*at).index()].1 = thread.to_string();
        }
    }
    let threads: Vec<String> = cores.into_iter().map(|(_, thread)| thread).collect();
    threads.join(" ")
}

fn letter(class: Class) -> &'static str {
    match class {
        Class::SuperDevil => "D",
        Class::Devil => "d",
        Class::Turtle => "t",
    }
}

#[test]
fn the_papers_example_stage_by_stage() {
    let scene = example();
    let (slots, tuples, decision) = decide(&scene);

    // The sorted tuples.
    let sorted = layout::sorted(&tuples);
    let row = |show: &dyn Fn(&Tuple) -> String| -> String {
        sorted.iter().map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row(&|t| letter(t.class).into()), "D D d d d t t t");
    assert_eq!(row(&|t| t.process.to_string()), "0 4 0 2 3 0 0 1");
    assert_eq!(row(&|t| t.thread.to_string()), "0 7 4 2 6 3 5 1");

    // The layout.
    let mut layout = vec![String::new(); 8];
    for (domain, hands) in decision.layout.iter().enumerate() {
        for (cpu, hand) in hands.iter().enumerate() {
            let class = Class::DEALT
                .into_iter()
                .find(|c| hand[c.index()] == 1)
                .unwrap();
            layout[slots.cpu(At { domain, cpu }).index()] = letter(class).to_owned();
        }
    }
    assert_eq!(layout.join(" "), "D t D t d t d d");

    // The initial shape: threads that keep their core.
    assert_eq!(threads_by_core(&slots, &decision.kept), "0 1 - 3 4 5 6 -");

    // The remaining cores filled by class.
    let mut open = decision.layout.clone();
    let mut filled = fill::keep(&slots, &tuples, |_| true, &mut open);
    fill::fill(&slots, &sorted, &mut open, &mut filled);
    assert_eq!(threads_by_core(&slots, &filled), "0 1 7 3 4 5 6 2");

    // The final pass.
    let solution: Vec<_> = decision.solution.iter().copied().map(Some).collect();
    assert_eq!(threads_by_core(&slots, &solution), "0 3 7 1 4 5 6 2");
}

#[test]
fn the_papers_example_as_a_plan() {
    // In the paper threads 2 and 7 were turtle and devil before; their new classes are in force.
    let mut scene = example();
    let mut dino = dino();
    let plan = place(&mut dino, &scene);
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
    scene.carry_out(&plan);
    assert_eq!(scene.places(), [0, 3, 7, 1, 4, 5, 6, 2]);
    assert_eq!(place(&mut dino, &scene), []);
}

/// A machine of one domain a node, and threads as (process, rate, CPU), all of them given theirs.
fn scene(cores: &[u32], threads: &[(u32, f64, u32)]) -> Scene {
    let mut scene = Scene::new(&numaherd_testing::Shape {
        nodes: cores.iter().map(|&cores| vec![cores]).collect(),
        siblings: 1,
        offline: Vec::new(),
    });
    let cpus: u32 = cores.iter().sum();
    for &(process, rate, cpu) in threads {
        let cpu = cpu % cpus;
        scene.thread(process, rate, cpu).assigned = Some(numaherd_topology::CpuId(cpu));
    }
    scene
}

/// The slots, the tuples and the decision of a scene's one pool.
fn decide(scene: &Scene) -> (PoolSlots, Vec<Tuple>, Decision) {
    let mut classes = Classes::new(crate::classes::ClassRule::PAPER);
    let stage = Stage::of_all(&scene.snapshot, &scene.topology).with_classes(&mut classes);
    let pool = &stage.pools[0];
    let slots = PoolSlots::new(&stage, pool, &Taken::default());
    let tuples = tuples(&stage, pool);
    let decision = Decision::new(&slots, &tuples, |_| true);
    (slots, tuples, decision)
}

#[test]
fn a_class_that_changes_moves_two_threads_and_no_more() {
    // Thread 1 turns into a devil: one turtle's slot becomes a devil's.
    let mut scene = scene(
        &[2, 2],
        &[(0, DEVIL, 0), (1, TURTLE, 1), (2, DEVIL, 2), (3, TURTLE, 3)],
    );
    let mut dino = dino();
    assert_eq!(place(&mut dino, &scene), []);
    scene.set_miss_rate(1, SUPER_DEVIL);
    let moves = (0..10).map(|_| {
        let plan = place(&mut dino, &scene);
        scene.carry_out(&plan);
        plan.len()
    });
    // The seventh interval in the new class decides. Super-devil and devil are dealt apart again:
    // D d d t over two domains is D t | d d, which two threads that change places bring about.
    assert_eq!(moves.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(scene.places(), [3, 1, 2, 0]);
}

#[test]
fn a_thread_that_was_never_given_its_core_is_held_there_once() {
    let mut scene = Scene::uniform(2, 1);
    scene.thread(0, DEVIL, 0);
    scene.thread(1, DEVIL, 1);
    let mut dino = dino();
    let plan = place(&mut dino, &scene);
    assert!(
        plan.iter()
            .all(|p| p.from == p.to && p.rule == "dino: keep core")
    );
    assert_eq!(plan.len(), 2);
    scene.carry_out(&plan);
    assert_eq!(place(&mut dino, &scene), []);
}

#[test]
fn a_devil_that_is_unmanaged_takes_a_devils_turn() {
    let mut scene = Scene::uniform(2, 2);
    scene.thread(0, DEVIL, 0).unmanaged = Some(Unmanaged::other("its user set its affinity"));
    scene.thread(1, DEVIL, 1);
    scene.thread(2, TURTLE, 2);
    let plan = place(&mut dino(), &scene);
    scene.carry_out(&plan);
    // The devil goes to the other domain, the turtle stays there with it.
    assert_eq!(scene.places(), [0, 3, 2]);
}

#[test]
fn containers_with_cpus_of_their_own_are_placed_on_their_own() {
    let mut scene = Scene::uniform(2, 2);
    let cpus = |cpus: [u32; 2]| -> Arc<numaherd_topology::CpuSet> {
        Arc::new(cpus.into_iter().map(numaherd_topology::CpuId).collect())
    };
    for (process, mine) in [(0, cpus([0, 2])), (1, cpus([1, 3]))] {
        for _ in 0..2 {
            scene.thread(process, DEVIL, 0).cpuset = Arc::clone(&mine);
        }
    }
    let plan = place(&mut dino(), &scene);
    scene.carry_out(&plan);
    assert_eq!(scene.places(), [0, 2, 1, 3]);
}

#[test]
fn a_process_is_gathered_whether_it_was_started_first_or_last() {
    // Four programs of one thread and one of four, alike but for the order in which they were started.
    let single = [(1, 0), (2, 1), (3, 4), (4, 5)];
    let four = [(9, 2), (9, 3), (9, 6), (9, 7)];
    for started in [[single, four], [four, single]] {
        let threads: Vec<_> = (started.concat().into_iter())
            .map(|(process, cpu)| (process, DEVIL, cpu))
            .collect();
        let mut scene = scene(&[4, 4], &threads);
        let plan = place(&mut dino(), &scene);
        scene.carry_out(&plan);
        let domains: BTreeSet<u32> = (threads.iter().zip(scene.places()))
            .filter(|((process, ..), _)| *process == 9)
            .map(|(_, cpu)| cpu / 4)
            .collect();
        assert_eq!(domains.len(), 1, "{threads:?}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn scenes() -> impl Strategy<Value = Scene> {
        let rate = prop_oneof![Just(TURTLE), Just(DEVIL), Just(SUPER_DEVIL)];
        let threads = proptest::collection::vec((0u32..8, rate, 0u32..40), 1..80);
        let cores = proptest::collection::vec(1u32..6, 1..6);
        (cores, threads).prop_map(|(cores, threads)| scene(&cores, &threads))
    }

    /// Threads by CPU and class.
    fn count(slots: &PoolSlots, tuples: &[Tuple], places: &[Option<At>]) -> Vec<Vec<Hand>> {
        let empty = |d: &DomainSlots| vec![[0; 3]; d.cpus.len()];
        let mut count: Vec<Vec<Hand>> = slots.domains.iter().map(empty).collect();
        for tuple in tuples {
            if let Some(at) = places[tuple.thread] {
                count[at.domain][at.cpu][tuple.class.index()] += 1;
            }
        }
        count
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_thread_whose_class_fits_its_core_stays(scene in scenes()) {
            let (slots, tuples, decision) = decide(&scene);
            let running = count(&slots, &tuples, &slots.sits);
            let kept = count(&slots, &tuples, &decision.kept);
            // On every CPU, of every class, as many stay as run there, up to what is wanted.
            for (domain, hands) in decision.layout.iter().enumerate() {
                for (cpu, hand) in hands.iter().enumerate() {
                    for class in 0..3 {
                        let stay = hand[class].min(running[domain][cpu][class]);
                        prop_assert_eq!(kept[domain][cpu][class], stay);
                    }
                }
            }
            // And only the final pass moves a thread that stayed.
            for tuple in &tuples {
                let moved = decision.kept[tuple.thread]
                    .is_some_and(|at| at != decision.solution[tuple.thread]);
                prop_assert!(!moved || decision.grouped[tuple.thread].is_some());
            }
        }

        #[test]
        fn threads_fill_the_layout_and_it_is_the_snake_over_the_sorted_classes(scene in scenes()) {
            let (slots, tuples, decision) = decide(&scene);
            let solution: Vec<_> = decision.solution.iter().copied().map(Some).collect();
            prop_assert_eq!(&count(&slots, &tuples, &solution), &decision.layout);
            // Domain by domain the hands are those dealt, whatever CPU of it has them.
            let dealt = layout::layout(&slots, &layout::sorted(&tuples));
            for (domain, hands) in dealt.iter().enumerate() {
                let sorted = |hands: &[Hand]| {
                    let mut hands = hands.to_vec();
                    hands.sort_unstable();
                    hands
                };
                prop_assert_eq!(sorted(hands), sorted(&decision.layout[domain]));
            }
        }

        #[test]
        fn tuples_are_sorted_by_class_process_and_thread(scene in scenes()) {
            let (_, tuples, _) = decide(&scene);
            let sorted = layout::sorted(&tuples);
            let key = |t: &Tuple| (std::cmp::Reverse(t.class), t.process, t.thread);
            prop_assert!(sorted.is_sorted_by_key(key));
            prop_assert_eq!(sorted.len(), tuples.len());
        }

        #[test]
        fn the_final_pass_rests_and_never_parts_what_it_joined(scene in scenes()) {
            let (slots, tuples, decision) = decide(&scene);
            let mut again = decision.solution.clone();
            let grouped = group::group(&tuples, slots.domains.len(), &mut again);
            prop_assert_eq!(&again, &decision.solution);
            prop_assert!(grouped.iter().all(Option::is_none));
            // Nothing is left that the pass is there to mend.
            let domain = |t: &Tuple| decision.solution[t.thread].domain;
            let is_single = |t: &Tuple| tuples.iter().filter(|o| o.process == t.process).count() == 1;
            for a in &tuples {
                for b in &tuples {
                    let apart = a.process == b.process && domain(b) > domain(a);
                    let mends = |c: &Tuple| {
                        domain(c) == domain(a)
                            && c.class == b.class
                            && (c.process > a.process || is_single(c))
                    };
                    prop_assert!(!apart || !tuples.iter().any(mends), "{a:?} {b:?}");
                }
            }
        }
    }
}
