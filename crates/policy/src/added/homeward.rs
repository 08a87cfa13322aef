//! Homeward: a busy thread runs where most of its process's memory is, if a CPU is free there.
//!
//! Problem: the kernel starts a thread on a free CPU; if its memory is elsewhere, every access is remote from
//! then on. N-MASS's maximum-local solves this with counted misses, but many machines (above all virtual ones)
//! have no counters. Rule, for each busy thread in turn: if it is away from its process's home, it moves to
//! the first CPU there that no busy thread uses; if it is at home, it is held there.
//!
//! Terms: a thread is *busy* as in [`crate::busy`]; a process's *home* is the node with most of its
//! pages or, if that has no CPUs, the nearest that has. Source: chosen here, as the worked example of
//! docs/researchers.md; after N-MASS 3.3, Algorithm 2, without its order. Properties: no thread leaves its
//! home; no CPU gets a second busy thread.

use numaherd_world::{NewPages, Signal};

use crate::added::Added;
use crate::policy::{Needs, Random};
use crate::registry::{Half, NamedPolicy, Worlds, staged};
use crate::rules::Rule;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;

/// What this file adds to the registry.
#[rustfmt::skip]
pub const ADDED: Added = Added {
    policies: &[NamedPolicy { name: "homeward", placement: "homeward", paging: "stay", new_pages: NewPages::FirstTouch, worlds: Worlds::All, about: "Threads run where most of their memory is while a CPU is free there; needs no counters", source: "chosen here" }],
    placements: &[Half { name: "homeward", about: "Home while a CPU is free there", source: "chosen here", rules: &[HOME], settings: &["placement"], make: |settings, _| staged(settings, Homeward) }],
    ..Added::NOTHING
};
const HOME: Rule = Rule {
    name: "homeward: home",
    source: "chosen here",
    what: "Most of the process's pages are on the node, and a CPU there has no busy thread.",
};

/// See the top of this file.
struct Homeward;

impl PlacementRule for Homeward {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::Residency])
    }

    fn seat(&mut self, stage: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        let mut free = stage.free_cpus();
        let seats = stage.busy().filter_map(|(pool, thread)| {
            let pages = stage.residency(thread)?;
            let node = pages.home()?;
            let near = stage.topology.cpus_near(node);
            let home = pool.cpus.intersection(&stage.topology.node(near)?.cpus);
            let here = stage.thread(thread).place();
            let cpu = match home.contains(here) {
                true => here,
                false => home.intersection(&free).first()?,
            };
            free.remove(cpu);
            let (local, all) = (pages.on(node), pages.total());
            let why = words!(
                "{local} of its process's {all} pages are on node {node}",
                local,
                all,
                node
            );
            let away = words!("CPU {here}, away from them", here);
            Some(stage.seat(thread, cpu, HOME.because(why).instead_of(away)))
        });
        seats.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use crate::settings::Settings;
    use numaherd_testing::Scene;
    use numaherd_world::Placement;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn plan(scene: &Scene) -> Vec<Placement> {
        let mut policy = registry::build("homeward", &Settings::default())
            .unwrap()
            .placement;
        policy.place(
            &scene.snapshot,
            &scene.topology,
            &mut Random::seed_from_u64(0),
        )
    }

    #[test]
    fn threads_go_home_until_no_cpu_is_free_there() {
        let mut scene = Scene::uniform(2, 2);
        scene.home(1, "far", 1);
        for cpu in [0, 1, 2] {
            scene.thread(1, 1.0, cpu);
        }
        scene.carry_out(&plan(&scene));
        // CPUs 2 and 3 are node 1's: the second thread stays where it is, the third was at home.
        assert_eq!(scene.places(), [3, 1, 2]);
        assert_eq!(scene.snapshot.threads[1].assigned, None);
        assert_eq!(plan(&scene), []);
    }

    #[test]
    fn idle_threads_and_those_of_unknown_homes_are_left_alone() {
        let mut scene = Scene::uniform(2, 2);
        scene.home(1, "far", 1);
        scene.thread(1, 1.0, 0).cpu_share = 0.1;
        scene.thread(2, 1.0, 0);
        assert_eq!(plan(&scene), []);
    }

    proptest! {
        #[test]
        fn no_home_is_left_and_no_cpu_gets_a_second_thread(
            threads in proptest::collection::vec((0u32..4, 0u32..8), 0..16),
        ) {
            let mut scene = Scene::uniform(4, 2);
            for &(process, cpu) in &threads {
                scene.home(process, "any", 3 - process);
                scene.thread(process, 1.0, cpu);
            }
            let before = scene.places();
            scene.carry_out(&plan(&scene));
            let after = scene.places();
            for (at, (&was, &is)) in before.iter().zip(&after).enumerate() {
                let at_home = was / 2 == 3 - threads[at].0;
                prop_assert!(!at_home || is == was);
                let alone = |cpu| after.iter().filter(|&&other| other == cpu).count() == 1;
                prop_assert!(is == was || alone(is));
            }
        }
    }
}
