//! Cores, their TLBs and the IPM unit together, under a program with threads on two nodes.

use super::{NODE_BYTES, NS, Program, config, machine};
use crate::{
    Config, Eviction, Ipm, IpmConfig, IpmCounts, Notification, Page, Tlb, TlbLevel, TlbManagement,
};

const PAGE_BYTES: u64 = 4096;

/// Sixteen TLB entries; time stamps in cycles; an eviction takes 200 cycles, 100 ns.
fn with_unit(managed_by: TlbManagement) -> (Config, IpmConfig) {
    let level = |entries, hit_ns| TlbLevel {
        entries,
        ways: 4,
        hit_ns,
    };
    let machine = Config {
        tlb: Some(Tlb {
            page_bytes: PAGE_BYTES,
            managed_by,
            miss_ns: 40.0,
            l1: level(4, 0.0),
            l2: Some(level(16, 7.0)),
        }),
        ..config()
    };
    let ipm = IpmConfig {
        cr_shift: 0,
        cr_aging: 3,
        cr_mig: 1,
        numa_counter_bits: 32,
        eviction_cycles: 200,
        ..IpmConfig::of_paper()
    };
    (machine, ipm)
}

/// Makes an access with its translation and the unit's part. Returns the page to move, if any.
fn access(program: &mut Program<'_>, ipm: &mut Ipm, address: u64) -> Option<Notification> {
    let machine = program.machine;
    let config = machine.config();
    let instructions = program.instructions + program.gap;
    let tlb = config.tlb.unwrap();
    let core = program.number;
    let translation = program
        .core
        .translate(machine, tlb.page_of(address), address, || instructions);
    let mut moves = None;
    if let Some(translation) = translation
        && let Some(fill) = translation.fill
    {
        let node_of = |page: Page| machine.memory().node_of(page.number() * PAGE_BYTES);
        let tsc = config.cycles(translation.now_ps);
        if let Eviction::Handled(notification) = ipm.tlb_miss(core, &fill, tsc, node_of) {
            moves = notification;
            if tlb.managed_by == TlbManagement::Software {
                let time = config.picoseconds_of(ipm.histories().config().eviction_cycles);
                program.core.hold(instructions, time);
            }
        }
    }
    program.load(address);
    moves
}

/// A thread on core 0, on node 0, walks through 64 pages of node 1, line by line, twice.
fn walk(managed_by: TlbManagement, gap: u64) -> (Vec<Notification>, IpmCounts, u64) {
    let (shape, unit) = with_unit(managed_by);
    let mut ipm = Ipm::new(unit, &shape).unwrap();
    let machine = machine(shape);
    let application = ipm.start_application();
    let thread = ipm.start_thread(application);
    ipm.run(0, Some(thread));
    let mut program = Program::on(&machine, 0);
    program.gap = gap;
    let mut moves = Vec::new();
    for _ in 0..2 {
        for offset in (0..64 * PAGE_BYTES).step_by(64) {
            moves.extend(access(&mut program, &mut ipm, NODE_BYTES + offset));
        }
    }
    (moves, *ipm.counts(), program.settled_ps())
}

#[test]
fn pages_that_one_node_walks_through_are_to_move_there() {
    let (moves, counts, _) = walk(TlbManagement::Hardware, 10);
    assert_eq!(
        (counts.misses, counts.evictions, counts.dropped),
        (128, 112, 0)
    );
    let first = NODE_BYTES / PAGE_BYTES;
    let expected: Vec<_> = (0..112)
        .map(|at| Notification {
            page: Page::new(first + at % 64),
            from: 1,
            to: 0,
        })
        .collect();
    assert_eq!(moves, expected, "in the order in which they leave the TLB");
}

/// Jumps from page to page, so that evictions come faster than the unit can handle them.
fn jump(managed_by: TlbManagement) -> (IpmCounts, u64) {
    let (shape, unit) = with_unit(managed_by);
    let mut ipm = Ipm::new(unit, &shape).unwrap();
    let machine = machine(shape);
    let application = ipm.start_application();
    let thread = ipm.start_thread(application);
    ipm.run(0, Some(thread));
    let mut program = Program::on(&machine, 0);
    for page in 0..1016 {
        access(&mut program, &mut ipm, page * PAGE_BYTES);
    }
    (*ipm.counts(), program.settled_ps())
}

#[test]
fn in_hardware_evictions_are_dropped_and_in_software_the_program_waits_for_each() {
    let (hardware, _) = jump(TlbManagement::Hardware);
    assert_eq!((hardware.misses, hardware.evictions), (1016, 1000));
    assert!(hardware.dropped > 500, "{hardware:?}");
    let (software, waited) = jump(TlbManagement::Software);
    assert_eq!((software.evictions, software.dropped), (1000, 0));
    // The handler for every miss, the unit's work for every eviction. All lines but the first
    // arrive meanwhile.
    assert!(waited >= (1016 * 40 + 1000 * 100) * NS);
    assert!(waited < (1016 * 40 + 1000 * 100 + 16 * 90 + 90) * NS);
}

#[test]
fn threads_that_share_pages_are_seen_to_from_either_side() {
    let (shape, unit) = with_unit(TlbManagement::Hardware);
    let mut ipm = Ipm::new(unit, &shape).unwrap();
    let machine = machine(shape);
    let application = ipm.start_application();
    let threads = [(); 4].map(|()| ipm.start_thread(application));
    let mut programs = [0, 1, 2, 3].map(|core| Program::on(&machine, core));
    for (core, thread) in threads.into_iter().enumerate() {
        ipm.run(core, Some(thread));
        programs[core].gap = 100;
    }
    // Threads 0 and 1 walk through the same 32 pages, 2 and 3 through 32 others.
    for page in 0..320 {
        for (core, program) in programs.iter_mut().enumerate() {
            let page = page % 32 + core as u64 / 2 * 1000;
            access(program, &mut ipm, page * PAGE_BYTES);
        }
    }
    let matrix = ipm.histories().matrix(application).unwrap();
    for (one, other, share) in [
        (0, 1, true),
        (2, 3, true),
        (0, 2, false),
        (0, 3, false),
        (1, 2, false),
        (1, 3, false),
    ] {
        assert_eq!(matrix.between(one, other) > 0, share, "{one} and {other}");
    }
}
