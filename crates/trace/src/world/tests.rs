//! The world as a whole, on a small machine: four nodes of two cores, pages of 4 KiB.

mod order_of_events;
mod orders;
mod watched;

use std::time::Duration;

use numaherd_hardware::TlbLevel;
use numaherd_topology::{CpuId, Machine, NodeId};
use numaherd_world::{Pager, ProcessId, Progress, ThreadId, World};

use super::{Figures, Hardware, Options, TraceWorld};
use crate::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Trace, Writer};

const PAGE: u64 = 4096;
const PID: u32 = 100;

/// The lab's square, with TLBs of 16 entries and 128 KiB of last-level cache.
fn hardware() -> Hardware {
    let mut hardware = Hardware::of(&Machine::preset("lab-4x2").unwrap()).unwrap();
    let tlb = hardware.config.tlb.as_mut().unwrap();
    tlb.l1 = TlbLevel {
        entries: 16,
        ways: 4,
        hit_ns: 0.0,
    };
    tlb.l2 = None;
    hardware.config.llc.bytes = 128 << 10;
    hardware
}

/// Threads of one process.
fn trace(events: &[Vec<Event>]) -> Trace {
    let mut writer = Writer::new(Vec::new(), PAGE, &serde_json::Map::new()).unwrap();
    let mut encoder = Encoder::new();
    for (number, events) in events.iter().enumerate() {
        let thread = writer.thread(&ThreadInfo {
            process: PID,
            tid: PID + number as u32,
            name: format!("thread-{number}"),
        });
        for part in events.chunks(FRAME_EVENTS) {
            let frame = encoder.encode(thread, 0, part).unwrap();
            writer.append(frame).unwrap();
        }
    }
    Trace::from_bytes(writer.finish().unwrap()).unwrap()
}

fn thread(number: u32) -> ThreadId {
    ThreadId {
        tid: PID + number,
        born: number.into(),
    }
}

fn process() -> ProcessId {
    ProcessId { pid: PID, born: 0 }
}

/// Loads all lines of `pages` pages from page `first` on, `times` times.
fn walk(first: u64, pages: u64, times: u64) -> Vec<Event> {
    let lines = move || (0..pages * PAGE).step_by(64);
    (0..times)
        .flat_map(move |_| lines().map(move |offset| Event::load(first * PAGE + offset, 8, 4)))
        .collect()
}

/// Threads on these CPUs and pages on these nodes from the start.
fn given(cpus: &[u32], nodes: &[(u64, u32)]) -> Options {
    let mut options = Options::default();
    options.start.cpus = cpus.iter().map(|&cpu| Some(CpuId(cpu))).collect();
    options.start.nodes = nodes
        .iter()
        .map(|&(page, node)| ((PID, page), NodeId(node)))
        .collect();
    options
}

fn world(events: Vec<Vec<Event>>, options: Options) -> TraceWorld {
    TraceWorld::new(hardware(), &trace(&events), options).unwrap()
}

/// Runs to the end with a policy that does nothing.
fn to_the_end(mut world: TraceWorld) -> Figures {
    to_the_end_of(&mut world)
}

fn to_the_end_of(world: &mut TraceWorld) -> Figures {
    while world.run_for(Duration::from_secs(1)) == Progress::Ran {}
    assert!(world.is_over());
    world.figures()
}

fn pager(world: &mut TraceWorld) -> Box<dyn Pager> {
    world.pager().expect("nobody had it yet")
}
