//! DINO's stages on the paper's own example, and its properties.

use super::*;
use crate::testing::Scene;
use rand::SeedableRng;

const SUPER_DEVIL: f64 = 150.0;
const DEVIL: f64 = 20.0;
const TURTLE: f64 = 0.5;

fn place(dino: &mut Dino, scene: &Scene) -> Vec<Placement> {
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
fn threads_by_core(ground: &Ground, places: &[Option<At>]) -> String {
    let mut cores: Vec<(u32, String)> = Vec::new();
    for domain in &ground.domains {
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
            cores[ground.cpu(*at).index()].1 = thread.to_string();
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
    let mut classes = Classes::new(crate::classes::ClassRule::PAPER);
    let classed = classes.observe(&scene.snapshot.threads);
    let pool = pools(&scene.snapshot, &scene.topology).remove(0);
    let ground = Ground::new(&scene.snapshot, &scene.topology, &pool, &Taken::default());
    let tuples = tuples(&scene.snapshot, &pool, classed);

    // The sorted tuples.
    let sorted = layout::sorted(&tuples);
    let row = |show: &dyn Fn(&Tuple) -> String| -> String {
        sorted.iter().map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row(&|t| letter(t.class).into()), "D D d d d t t t");
    assert_eq!(row(&|t| t.process.to_string()), "0 4 0 2 3 0 0 1");
    assert_eq!(row(&|t| t.thread.to_string()), "0 7 4 2 6 3 5 1");

    // The layout.
    let decision = Decision::new(&ground, &tuples, |_| true);
    let mut layout = vec![String::new(); 8];
    for (domain, hands) in decision.layout.iter().enumerate() {
        for (cpu, hand) in hands.iter().enumerate() {
            let class = Class::DEALT
                .into_iter()
                .find(|c| hand[c.index()] == 1)
                .unwrap();
            layout[ground.cpu(At { domain, cpu }).index()] = letter(class).to_owned();
        }
    }
    assert_eq!(layout.join(" "), "D t D t d t d d");

    // The initial shape: threads that keep their core.
    assert_eq!(threads_by_core(&ground, &decision.kept), "0 1 - 3 4 5 6 -");

    // The remaining cores filled by class.
    let mut open = decision.layout.clone();
    let mut filled = fill::keep(&ground, &tuples, |_| true, &mut open);
    fill::fill(&ground, &sorted, &mut open, &mut filled);
    assert_eq!(threads_by_core(&ground, &filled), "0 1 7 3 4 5 6 2");

    // The final pass.
    let solution: Vec<_> = decision.solution.iter().copied().map(Some).collect();
    assert_eq!(threads_by_core(&ground, &solution), "0 3 7 1 4 5 6 2");
}

#[test]
fn the_papers_example_as_a_plan() {
    // In the paper threads 2 and 7 were turtle and devil before; their new classes are in force.
    let mut scene = example();
    let mut dino = Dino::new(&Settings::default());
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
