//! Homeward: a busy thread runs where most of its process's memory is, if a CPU is free there.
//!
//! Problem: the kernel starts a thread where a CPU is free; its memory may be elsewhere, and every
//! access remote from then on. N-MASS's maximum-local answers that by counted misses; many machines
//! (virtual ones above all) have no counters. Rule: each busy thread in turn that is away from its
//! process's home goes to the first CPU there that no busy thread has; one that is at home is held.
//!
//! Terms: a thread is *busy* as in [`crate::busy`]; a process's *home* is the node with most of its
//! pages. Source: chosen here, as the worked example of docs/researchers.md; after N-MASS 3.3,
//! Algorithm 2, without its order. Properties: a thread leaves no home; no CPU gets a second busy one.

use numaherd_topology::{CpuSet, Topology};
use numaherd_world::{NewPages, Placement, Signal, Snapshot};

use crate::added::Added;
use crate::busy::Busy;
use crate::policy::{Place, Random};
use crate::pools::{Pool, pools};
use crate::registry::{Entry, Half};
use crate::rules::Rule;

/// What this file adds to the registry.
#[rustfmt::skip]
pub const ADDED: Added = Added {
    policies: &[Entry { name: "homeward", placement: "homeward", paging: "stay", new_pages: NewPages::FirstTouch, about: "Threads run where most of their memory is while a CPU is free there; needs no counters", source: "chosen here" }],
    placements: &[Half { name: "homeward", about: "Home while a CPU is free there", source: "chosen here", rules: &[HOME], settings: &["placement"], make: |settings, _| Some(Box::new(Homeward { busy: Busy::new(settings.placement.least_cpu_share) })) }],
    pagings: &[],
};
const HOME: Rule = Rule {
    name: "homeward: home",
    source: "chosen here",
    what: "Most of the process's pages are on the node, and a CPU there has no busy thread.",
};

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct Homeward {
    busy: Busy,
}

impl Place for Homeward {
    fn needs(&self) -> &[Signal] {
        &[Signal::CpuUse, Signal::Residency]
    }

    fn place(&mut self, seen: &Snapshot, machine: &Topology, _: &mut Random) -> Vec<Placement> {
        let mut pools = pools(seen, machine);
        let others = self.busy.keep_busy(seen, &mut pools);
        let busy = pools.iter().flat_map(|pool| &pool.threads).chain(&others);
        let mut taken: CpuSet = busy.map(|&at| seen.threads[at].place()).collect();
        let mut place = |pool: &Pool, at: usize| -> Option<Placement> {
            let thread = &seen.threads[at];
            let pages = seen.process(thread.process)?.residency.as_ref()?;
            let home = machine.node(pages.home()?)?;
            let here = thread.place();
            let there = pool.cpus.intersection(&home.cpus);
            let is_home = there.contains(here);
            let to = if is_home {
                here
            } else {
                there.difference(&taken).first()?
            };
            taken.insert(to);
            let (local, all) = (pages.on(home.id), pages.total());
            (thread.assigned != Some(to)).then(|| Placement {
                thread: thread.id,
                from: here,
                to,
                rule: HOME.name.into(),
                why: format!(
                    "{local} of its process's {all} pages are on node {}",
                    home.id
                ),
                instead_of: if is_home {
                    String::new()
                } else {
                    format!("CPU {here}, away from them")
                },
            })
        };
        let threads = pools
            .iter()
            .flat_map(|pool| pool.threads.iter().map(move |&at| (pool, at)));
        let mut plan: Vec<_> = threads.filter_map(|(pool, at)| place(pool, at)).collect();
        plan.sort_unstable_by_key(|placement| placement.thread);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use crate::settings::Settings;
    use numaherd_testing::Scene;
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
