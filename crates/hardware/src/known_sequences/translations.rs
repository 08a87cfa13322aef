//! Exact costs of translations: by hardware walks, for which only dependent accesses wait; by
//! handlers in software, for which the core waits; and on machines without TLBs.

use super::{NODE_BYTES, NS, Program, config, machine, scattered};
use crate::{Config, Page, Tlb, TlbLevel, TlbManagement, Translation};

/// Four entries backed by sixteen, 7 ns to the second level, 40 ns for a miss in both.
fn with_tlbs(managed_by: TlbManagement) -> Config {
    let level = |entries, hit_ns| TlbLevel {
        entries,
        ways: entries,
        hit_ns,
    };
    Config {
        tlb: Some(Tlb {
            page_bytes: 4096,
            managed_by,
            miss_ns: 40.0,
            l1: level(4, 0.0),
            l2: Some(level(16, 7.0)),
        }),
        ..config()
    }
}

/// Translates the page of an address, then loads from it as if the previous load had returned the address.
fn step(program: &mut Program<'_>, address: u64, next: u64) -> Option<Translation> {
    let instructions = program.instructions + program.gap;
    let page = Page::new(address / 4096);
    let translation = program
        .core
        .translate(program.machine, page, address, || instructions);
    program.access(address, false, Some(next));
    translation
}

/// Time per step of a chase through these addresses, in picoseconds.
fn chase(program: &mut Program<'_>, addresses: &[u64]) -> u64 {
    let before = program.settled_ps();
    for (index, &address) in addresses.iter().enumerate() {
        step(program, address, addresses[(index + 1) % addresses.len()]);
    }
    (program.settled_ps() - before) / addresses.len() as u64 + program.gap * NS
}

/// One line in each of `count` consecutive pages.
fn pages(count: u64) -> Vec<u64> {
    (0..count).map(|page| page * (4096 + 64)).collect()
}

#[test]
fn a_chase_over_pages_takes_the_walk_and_the_line_a_step() {
    let addresses = scattered(0, 10_000);
    let hardware = machine(with_tlbs(TlbManagement::Hardware));
    // The window hides part of the very last one.
    let took = chase(&mut Program::on(&hardware, 0), &addresses);
    assert_eq!(took, (90 + 40) * NS - NS / 1000);
}

#[test]
fn a_chase_within_the_second_level_takes_its_hit_time_a_step() {
    // Eight pages: too many for the first level, few enough for the second; all lines in the
    // first-level cache. The window hides 7 ns of a lone translation, but not of a chain: here the
    // loads hit, so nothing depends on anything, and the translations overlap up to the window.
    let machine = machine(with_tlbs(TlbManagement::Hardware));
    let mut program = Program::on(&machine, 0);
    chase(&mut program, &pages(8));
    let mmu = program.core.mmu().unwrap().counts();
    assert_eq!((mmu.misses, mmu.second_level_hits), (8, 0));
    assert_eq!(chase(&mut program, &pages(8)), NS);
    let mmu = program.core.mmu().unwrap().counts();
    assert_eq!((mmu.misses, mmu.second_level_hits), (8, 8));
}

#[test]
fn a_handler_in_software_stops_the_core_for_its_whole_time() {
    let machine = machine(with_tlbs(TlbManagement::Software));
    let mut program = Program::on(&machine, 0);
    program.gap = 1000;
    let translation = step(&mut program, 0, 0).unwrap();
    assert_eq!(translation.stalled_ps, 40 * NS);
    assert_eq!(translation.now_ps, 1040 * NS);
    let fill = translation.fill.unwrap();
    assert_eq!(
        (fill.page, fill.entry, fill.evicted),
        (Page::new(0), 0, None)
    );
    assert_eq!(step(&mut program, 8, 0), None, "the first level has it");
    // The line itself: 90 ns less the window.
    assert_eq!(program.settled_ps(), (40 + 90 - 10) * NS);
}

#[test]
fn a_walk_by_hardware_hides_behind_the_window() {
    let machine = machine(with_tlbs(TlbManagement::Hardware));
    let mut program = Program::on(&machine, 0);
    program.gap = 1000;
    let translation = step(&mut program, NODE_BYTES, 0).unwrap();
    assert_eq!(translation.stalled_ps, 0);
    assert_eq!(translation.now_ps, 1000 * NS);
    // 150 ns to the next node after 40 ns of walk, less ten instructions that hide it.
    assert_eq!(program.settled_ps(), (40 + 150 - 10) * NS);
}

#[test]
fn time_held_lets_what_is_in_flight_go_on() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    program.load(0);
    program.core.hold(1, 60 * NS);
    // Of the 90 ns, 60 pass while it is held and 10 behind the window.
    assert_eq!(program.settled_ps(), (60 + 90 - 60 - 10) * NS);
}

#[test]
fn a_machine_without_tlbs_translates_at_no_cost() {
    let machine = machine(config());
    let mut program = Program::on(&machine, 0);
    assert_eq!(step(&mut program, 0, 0), None);
    assert!(program.core.mmu().is_none());
    assert_eq!(program.settled_ps(), (90 - 10) * NS);
}

#[test]
fn entries_evicted_and_invalidated_are_told_by_number() {
    let machine = machine(with_tlbs(TlbManagement::Hardware));
    let mut program = Program::on(&machine, 0);
    let filled = |program: &mut Program<'_>, page: u64| {
        let fill = step(program, page * 4096, 0).unwrap().fill.unwrap();
        (fill.entry, fill.evicted)
    };
    for page in 0..16 {
        assert_eq!(filled(&mut program, page), (page as usize, None));
    }
    assert_eq!(filled(&mut program, 16), (0, Some(Page::new(0))));
    let mmu = program.core.mmu_mut().unwrap();
    assert_eq!(mmu.invalidate(Page::new(9)), Some(9));
    assert_eq!(filled(&mut program, 17), (9, None));
}
