//! Hits recognised by their virtual addresses, compared with the same accesses made in full.

use proptest::prelude::*;

use super::{Program, config, machine};
use crate::{Access, Cache, Config, Detail, Miss, Smt, Tlb, TlbLevel, TlbManagement};

const PAGE: u64 = 4096;

fn cache(lines: u64, ways: usize) -> Cache {
    Cache {
        bytes: lines * 64,
        ways,
        hit_ns: 0.0,
    }
}

/// Loads or stores with [`Core::hits`] first. Returns the result of the full access, if it was needed.
fn access(program: &mut Program<'_>, access: Access) -> Option<Option<Miss>> {
    let Access {
        virtual_address: address,
        store,
        ..
    } = access;
    let instructions = program.instructions;
    let detail = || Detail {
        instructions,
        value: None,
    };
    let hits = program.core.hits(address, 8, store);
    (!hits).then(|| program.core.access(program.machine, access, detail))
}

fn at(virtual_address: u64, store: bool) -> Access {
    Access {
        virtual_address,
        physical_address: virtual_address % (64 * PAGE),
        store,
    }
}

#[test]
fn the_line_used_last_in_its_set_is_known() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    program.core.know_hits();
    assert!(!program.core.hits(PAGE, 8, false), "never accessed");
    assert!(access(&mut program, at(PAGE, false)).is_some());
    assert!(access(&mut program, at(PAGE + 64, true)).is_some());
    assert!(program.core.hits(PAGE + 8, 8, false));
    assert!(program.core.hits(PAGE + 64, 8, true));
    assert!(
        !program.core.hits(PAGE, 8, true),
        "the first store of a line is modelled"
    );
    assert!(
        !program.core.hits(PAGE + 60, 8, false),
        "reaches into the next line"
    );
    assert!(access(&mut program, at(2 * PAGE, false)).is_some());
    assert!(
        !program.core.hits(PAGE, 8, false),
        "another line of the set came after"
    );
    assert!(program.core.hits(PAGE + 64, 8, false));
    program.core.forget_addresses();
    assert!(!program.core.hits(PAGE + 64, 8, false));
    assert_eq!(
        (program.core.counts().accesses, program.core.counts().stores),
        (6, 2)
    );
}

#[test]
fn a_line_that_another_core_takes_is_known_no_more() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    program.core.know_hits();
    access(&mut program, at(PAGE, true));
    access(&mut program, at(PAGE + 64, true));
    assert!(program.core.hits(PAGE, 8, true));
    Program::on(&machine, 2).store(PAGE);
    assert!(
        !program.core.hits(PAGE + 64, 8, true),
        "has not heard of it yet"
    );
    let miss = access(&mut program, at(PAGE, true)).flatten().unwrap();
    assert!(miss.fetch.unwrap().dirty_transfer);
}

#[test]
fn nothing_is_known_where_order_depends_on_more_than_the_first_level() {
    let level = TlbLevel {
        entries: 4,
        ways: 4,
        hit_ns: 0.0,
    };
    let with_tlb = Config {
        tlb: Some(Tlb {
            page_bytes: PAGE,
            managed_by: TlbManagement::Hardware,
            miss_ns: 0.0,
            l1: level,
            l2: None,
        }),
        ..config()
    };
    let with_siblings = Config {
        smt: Some(Smt {
            core_of_thread: (0..8).map(|thread| thread / 2).collect(),
            throughput: 1.2,
        }),
        ..config()
    };
    let three_sets = Config {
        l1: cache(6, 2),
        ..config()
    };
    for config in [with_tlb, with_siblings, three_sets] {
        let machine = machine(config);
        let mut program = Program::on(&machine, 0);
        program.core.know_hits();
        access(&mut program, at(PAGE, false));
        assert!(!program.core.hits(PAGE, 8, false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any accesses of several cores under any addresses, which may change at any time: each access has the same
    /// outcome, and counts and times are equal to the picosecond.
    #[test]
    fn known_hits_change_nothing(
        l1 in prop::sample::select(vec![(8u64, 2usize), (1, 1), (16, 16), (512, 8), (256, 1), (6, 2)]),
        with_l2: bool,
        with_prefetch: bool,
        accesses in prop::collection::vec(
            (0usize..4, 0u64..6, 0u64..5, 0u64..64, any::<bool>(), 0u32..40),
            1..800,
        ),
    ) {
        let mut config = config();
        config.l1 = cache(l1.0, l1.1);
        config.l2 = with_l2.then(|| Cache { hit_ns: 4.0, ..cache(1024, 8) });
        config.prefetch = with_prefetch.then_some(crate::Prefetch { streams: 2, depth_lines: 4 });
        let machines = [machine(config.clone()), machine(config)];
        let [mut plain, mut knowing] = [0, 1].map(|which: usize| {
            (0..4).map(|core| Program::on(&machines[which], 2 * core)).collect::<Vec<_>>()
        });
        for program in &mut knowing {
            program.core.know_hits();
        }
        // Where each core's pages begin; this changes when addresses are mapped to other pages.
        let mut moved = [0u64; 4];
        for (core, page, line, byte, store, change) in accesses {
            if change == 0 {
                moved[core] += 1;
                knowing[core].core.forget_addresses();
            }
            let virtual_address = page * PAGE + line * 8 * 64 + byte;
            let physical_address = (page + moved[core]) % 4 * PAGE + virtual_address % PAGE;
            let made = Access { virtual_address, physical_address, store };
            for program in [&mut plain[core], &mut knowing[core]] {
                program.instructions += 3;
            }
            let instructions = plain[core].instructions;
            let detail = || Detail { instructions, value: None };
            let expected = plain[core].core.access(&machines[0], made, detail);
            let found = access(&mut knowing[core], made).flatten();
            prop_assert_eq!(found, expected);
        }
        for (plain, knowing) in plain.iter_mut().zip(&mut knowing) {
            prop_assert_eq!(plain.core.counts(), knowing.core.counts());
            prop_assert_eq!(plain.settled_ps(), knowing.settled_ps());
            prop_assert_eq!(plain.core.outstanding_ps(), knowing.core.outstanding_ps());
        }
    }
}
