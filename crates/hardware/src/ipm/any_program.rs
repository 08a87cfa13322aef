//! Properties that hold for any program: through real TLBs, with threads that start, end and migrate.

use proptest::prelude::*;

use super::*;
use crate::mmu::{Lookup, Mmu};
use crate::{Tlb, TlbLevel, TlbManagement};

/// A step of a random program; indices wrap round the lists that they choose from.
#[derive(Clone, Debug)]
enum Step {
    Access { core: usize, page: u64, cycles: u64 },
    Run { core: usize, thread: usize },
    Idle { core: usize },
    Start,
    End { thread: usize },
    Invalidate { core: usize, page: u64 },
    Flush { core: usize },
    Pass,
    Age,
}

fn step() -> impl Strategy<Value = Step> {
    let (core, page, thread) = (0usize..8, 0u64..30, 0usize..8);
    prop_oneof![
        30 => (core.clone(), page.clone(), 0u64..5000)
            .prop_map(|(core, page, cycles)| Step::Access { core, page, cycles }),
        6 => (core.clone(), thread.clone()).prop_map(|(core, thread)| Step::Run { core, thread }),
        1 => core.clone().prop_map(|core| Step::Idle { core }),
        4 => Just(Step::Start),
        2 => thread.prop_map(|thread| Step::End { thread }),
        1 => (core.clone(), page)
            .prop_map(|(core, page)| Step::Invalidate { core, page }),
        1 => core.prop_map(|core| Step::Flush { core }),
        1 => Just(Step::Pass),
        1 => Just(Step::Age),
    ]
}

/// A machine under test, with its expected state.
struct Scene {
    ipm: Ipm,
    nodes: usize,
    mmus: Vec<Mmu>,
    application: Application,
    tsc: u64,
    handled: u64,
    notified: u64,
}

impl Scene {
    fn new(config: IpmConfig, nodes: usize, two_levels: bool) -> Self {
        let level = |entries| TlbLevel {
            entries,
            ways: 2,
            hit_ns: 0.0,
        };
        let tlb = Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 0.0,
            l1: level(4),
            l2: two_levels.then(|| level(8)),
        };
        let machine = Config {
            tlb: Some(tlb),
            ..Config::of_equal_nodes(2, vec![vec![100.0; nodes]; nodes], 10.0)
        };
        let mut ipm = Ipm::new(config, &machine).unwrap();
        let application = ipm.start_application();
        Self {
            mmus: (0..machine.cores()).map(|_| Mmu::new(&tlb)).collect(),
            ipm,
            nodes,
            application,
            tsc: 0,
            handled: 0,
            notified: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        let (cores, nodes) = (self.mmus.len(), self.nodes);
        let node_of = |page: Page| Some(usize::try_from(page.number()).unwrap() % nodes);
        let threads = self.ipm.threads(self.application);
        match *step {
            Step::Access { core, page, cycles } => {
                self.tsc += cycles;
                let core = core % cores;
                if let Lookup::Miss(fill) = self.mmus[core].look_up(Page::new(page)) {
                    match self.ipm.tlb_miss(core, &fill, self.tsc, node_of) {
                        Eviction::Handled(notification) => {
                            self.handled += 1;
                            self.notified += u64::from(notification.is_some());
                        }
                        Eviction::None | Eviction::Dropped => {}
                    }
                }
            }
            Step::Run { core, thread } if !threads.is_empty() => {
                self.ipm
                    .run(core % cores, Some(threads[thread % threads.len()]));
            }
            Step::Idle { core } => self.ipm.run(core % cores, None),
            Step::Start => {
                let thread = self.ipm.start_thread(self.application);
                self.nothing_refers_to(thread);
            }
            Step::End { thread } if !threads.is_empty() => {
                self.ipm.end_thread(threads[thread % threads.len()]);
            }
            Step::Run { .. } | Step::End { .. } => {}
            Step::Invalidate { core, page } => {
                let core = core % cores;
                if let Some(entry) = self.mmus[core].invalidate(Page::new(page)) {
                    self.ipm.invalidated(core, entry);
                }
            }
            Step::Flush { core } => {
                self.mmus[core % cores].flush();
                self.ipm.flushed(core % cores);
            }
            Step::Pass => {
                let notified = &mut self.notified;
                self.ipm
                    .pass_over_infrequently_evicted(self.tsc, node_of, |_| *notified += 1);
            }
            Step::Age => self
                .ipm
                .histories
                .matrix_mut(self.application)
                .unwrap()
                .age(0.75),
        }
    }

    fn pages(&self) -> impl Iterator<Item = Page> {
        (0..30).map(Page::new)
    }

    fn nothing_refers_to(&self, thread: Thread) {
        let matrix = self.ipm.histories().matrix(self.application).unwrap();
        assert!(
            matrix
                .row(thread.number)
                .iter()
                .all(|&element| element == 0)
        );
        for other in 0..u32::try_from(matrix.threads()).unwrap() {
            assert_eq!(matrix.row(other)[thread.number as usize], 0);
        }
        for page in self.pages() {
            let sharers = self.ipm.sharers(page).unwrap_or_default();
            assert!(!sharers.contains(&thread.number), "{page:?} of {sharers:?}");
        }
        for index in 0..self.ipm.table.len() {
            let holder = self.ipm.table.get(index).and_then(|entry| entry.thread);
            assert_ne!(holder, Some(thread.number));
        }
        assert!(!self.ipm.running.contains(&Some(thread)));
    }

    /// What must hold at any time.
    fn check(&self) {
        let (ipm, config) = (&self.ipm, self.ipm.histories().config());
        let counter_most = u32::MAX >> (32 - config.numa_counter_bits);
        let matrix = ipm.histories().matrix(self.application).unwrap();
        let room = u32::try_from(matrix.threads()).unwrap();
        for page in self.pages() {
            let Some(affinity) = ipm.affinity(page) else {
                continue;
            };
            assert_eq!(affinity.len(), self.nodes);
            assert!(affinity.iter().all(|&counter| counter <= counter_most));
            let sharers = ipm.sharers(page).unwrap();
            assert!(sharers.len() <= config.sharers);
            assert!(sharers.iter().all(|&sharer| sharer < room));
        }
        for one in 0..room {
            for other in 0..room {
                assert_eq!(matrix.between(one, other), matrix.between(other, one));
                let element = matrix.row(one)[other as usize];
                assert!(element <= u32::MAX >> (32 - config.matrix_element_bits));
            }
        }
        for index in 0..ipm.table.len() {
            let stamp = ipm.table.get(index).map_or(0, |entry| entry.time_stamp);
            assert!(stamp <= u64::MAX >> (64 - config.time_stamp_bits));
        }
        let counts = ipm.counts();
        assert_eq!(counts.evictions - counts.dropped, self.handled);
        assert_eq!(counts.notifications, self.notified);
        let misses: u64 = self.mmus.iter().map(|mmu| mmu.counts().misses).sum();
        let evictions: u64 = self.mmus.iter().map(|mmu| mmu.counts().evictions).sum();
        assert_eq!(counts.misses, misses);
        assert!(counts.evictions <= evictions);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn counters_keep_within_their_bits_and_numbers_are_clean_when_given_out(
        steps in prop::collection::vec(step(), 1..300),
        nodes in 1usize..5,
        two_levels: bool,
        (cr_shift, cr_aging, cr_mig) in (0u32..5, 0u32..4, 0u32..3),
        (sharers, numa_counter_bits, matrix_element_bits) in (0usize..4, 4u32..17, 4u32..33),
        (time_stamp_bits, eviction_cycles) in (4u32..65, 0u64..4000),
        pass in prop::option::of((1u64..20_000, 0u64..20_000)),
    ) {
        let config = IpmConfig {
            cr_shift,
            cr_aging,
            cr_mig,
            sharers,
            numa_counter_bits,
            matrix_element_bits,
            time_stamp_bits,
            threads: 2,
            eviction_cycles,
            pass: pass.map(|(every_cycles, resident_cycles)| PeriodicPass {
                every_cycles,
                resident_cycles,
            }),
        };
        let mut scene = Scene::new(config, nodes, two_levels);
        for step in &steps {
            scene.take(step);
        }
        scene.check();
    }
}
