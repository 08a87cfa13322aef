// SPDX-License-Identifier: GPL-2.0-or-later
//! The file's content, for known and for arbitrary orders of the module's reports.

use super::*;
use numaherd_trace::{Kind, Trace};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A vCPU whose instructions the test counts.
struct Cpu {
    word: Box<u64>,
    recorder: Recorder,
}

impl Cpu {
    fn new() -> Self {
        let word = Box::new(1000);
        // SAFETY: the box is not moved out of, and the test writes between calls.
        let recorder = unsafe { Recorder::new(&raw const *word) };
        Self { word, recorder }
    }

    fn executes(&mut self, instructions: u64) {
        *self.word += instructions;
    }

    /// An access in the last of so many instructions.
    fn accesses(&mut self, recording: &Recording, instructions: u64, address: u64) {
        self.executes(instructions);
        if self.recorder.is_on() && self.recorder.push(*self.word, Event::load(address, 8, 0)) {
            recording.flush(&mut self.recorder, 0);
        }
    }

    fn runs(&mut self, recording: &Recording, tid: u32) {
        recording.switch(&mut self.recorder, thread(tid), 0);
    }
}

fn thread(tid: u32) -> Running {
    let mut name = [0; 16];
    name[..4].copy_from_slice(b"name");
    Running {
        tid,
        tgid: 10,
        name,
    }
}

fn start() -> Recording {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("lab-recording-{}-{number}", std::process::id());
    Recording::create(&std::env::temp_dir().join(name), None).unwrap()
}

/// Ends the recording. Returns each thread's number in the guest, and its events.
fn read(recording: &Recording, cpus: &mut [Cpu]) -> Vec<(u32, Vec<Event>)> {
    for cpu in cpus {
        cpu.runs(recording, 0);
    }
    recording.finish(0);
    assert!(recording.is_over());
    let trace = Trace::open(&recording.path).unwrap();
    std::fs::remove_file(&recording.path).unwrap();
    assert!(trace.damage().is_none());
    let read = |number: u32| {
        let mut events = trace.all_threads().remove(number as usize);
        let (mut all, mut frame) = (Vec::new(), Vec::new());
        while events.next_frame(&mut frame).unwrap().is_some() {
            all.append(&mut frame);
        }
        all
    };
    let threads = trace.threads().iter().enumerate();
    threads
        .map(|(number, thread)| (thread.tid, read(number as u32)))
        .collect()
}

/// A recording whose root, thread 11, runs on the first of two vCPUs.
fn with_root() -> (Recording, [Cpu; 2]) {
    let recording = start();
    let mut cpus = [Cpu::new(), Cpu::new()];
    recording.await_exec(11);
    cpus[0].runs(&recording, 11);
    // The shell before it becomes the program.
    cpus[0].accesses(&recording, 5, 0xdead);
    recording.exec(&mut cpus[0].recorder, 11, thread(11), 0);
    (recording, cpus)
}

#[test]
fn a_thread_that_changes_cpus_keeps_its_order_and_its_instructions() {
    let (recording, mut cpus) = with_root();
    cpus[0].accesses(&recording, 3, 0x10);
    cpus[0].executes(4);
    cpus[0].runs(&recording, 99);
    cpus[0].accesses(&recording, 7, 0xdead);
    cpus[1].executes(1_000_000);
    cpus[1].runs(&recording, 11);
    cpus[1].accesses(&recording, 2, 0x20);
    let expected = vec![Event::load(0x10, 8, 3), Event::load(0x20, 8, 6)];
    assert_eq!(read(&recording, &mut cpus), [(11, expected)]);
}

#[test]
fn one_sleep_for_each_wake_and_none_for_other_waits() {
    let (recording, mut cpus) = with_root();
    cpus[0].executes(1);
    recording.fork(&mut cpus[0].recorder, thread(12), 0);
    cpus[1].runs(&recording, 12);
    cpus[1].accesses(&recording, 1, 0x30);
    // 12 waits, and something else ends its wait.
    cpus[1].runs(&recording, 0);
    cpus[1].runs(&recording, 12);
    cpus[1].accesses(&recording, 1, 0x31);
    // It waits again, and is woken twice, once before it has fallen asleep.
    cpus[0].executes(2);
    recording.wake(&mut cpus[0].recorder, 12, 0);
    recording.wake(&mut cpus[0].recorder, 12, 0);
    // A wake of an unrecorded thread, and a wake by one.
    recording.wake(&mut cpus[0].recorder, 99, 0);
    cpus[1].runs(&recording, 99);
    recording.wake(&mut cpus[1].recorder, 11, 0);
    cpus[1].runs(&recording, 12);
    cpus[1].accesses(&recording, 1, 0x32);
    let root = vec![Event::wake(1, 1), Event::wake(1, 2), Event::wake(1, 0)];
    let child = vec![
        Event::sleep(0),
        Event::load(0x30, 8, 1),
        Event::load(0x31, 8, 1),
        Event::sleep(0),
        Event::sleep(0),
        Event::load(0x32, 8, 1),
    ];
    assert_eq!(read(&recording, &mut cpus), [(11, root), (12, child)]);
}

#[test]
fn a_number_that_is_given_out_anew_is_another_thread() {
    let (recording, mut cpus) = with_root();
    recording.fork(&mut cpus[0].recorder, thread(12), 0);
    cpus[1].runs(&recording, 12);
    cpus[1].accesses(&recording, 1, 0x40);
    recording.exit(&mut cpus[1].recorder, &thread(12));
    // After its reported end, it wakes the thread that waits for it.
    recording.wake(&mut cpus[1].recorder, 11, 0);
    cpus[1].runs(&recording, 0);
    recording.fork(&mut cpus[0].recorder, thread(12), 0);
    cpus[1].runs(&recording, 12);
    cpus[1].accesses(&recording, 1, 0x41);
    let read = read(&recording, &mut cpus);
    let numbers: Vec<u32> = read.iter().map(|&(tid, _)| tid).collect();
    assert_eq!(numbers, [11, 12, 12]);
    let first = vec![Event::sleep(0), Event::load(0x40, 8, 1), Event::wake(0, 0)];
    assert_eq!(read[1].1, first);
    assert_eq!(read[2].1, [Event::sleep(0), Event::load(0x41, 8, 1)]);
}

#[test]
fn a_thread_that_takes_its_process_number_at_exec_is_the_same_thread() {
    let (recording, mut cpus) = with_root();
    recording.fork(&mut cpus[0].recorder, thread(12), 0);
    cpus[1].runs(&recording, 12);
    cpus[1].accesses(&recording, 1, 0x50);
    cpus[0].accesses(&recording, 1, 0x51);
    recording.exit(&mut cpus[0].recorder, &thread(11));
    cpus[0].runs(&recording, 0);
    recording.exec(&mut cpus[1].recorder, 12, thread(11), 0);
    cpus[1].accesses(&recording, 2, 0x52);
    cpus[1].runs(&recording, 0);
    cpus[0].runs(&recording, 11);
    cpus[0].accesses(&recording, 3, 0x53);
    let read = read(&recording, &mut cpus);
    assert_eq!(read[0].1, [Event::wake(1, 0), Event::load(0x51, 8, 1)]);
    let addresses: Vec<u64> = read[1].1[1..].iter().map(|event| event.address).collect();
    assert_eq!((read[1].0, addresses), (11, vec![0x50, 0x52, 0x53]));
}

#[test]
fn long_runs_are_whole_and_full_frames_are_written_as_they_come() {
    let (recording, mut cpus) = with_root();
    let count = 3 * FRAME_EVENTS as u64 + 17;
    for address in 0..count {
        cpus[0].accesses(&recording, 1, address);
    }
    cpus[0].accesses(&recording, 1 << 33, count);
    let read = read(&recording, &mut cpus);
    let accesses = read[0].1.iter().filter(|event| event.is_access());
    assert!(accesses.map(|event| event.address).eq(0..=count));
    let instructions: u64 = read[0].1.iter().map(|event| u64::from(event.gap)).sum();
    assert_eq!(instructions, count + (1 << 33));
}

/// What can happen on one of three vCPUs.
#[derive(Clone, Debug)]
enum Step {
    /// Another thread, by its place among those that do not run; or none.
    Switch(u8),
    Access(u8),
    Fork,
    /// Wakes a thread by its place among all.
    Wake(u8),
    Exit,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let kinds = prop_oneof![
        4 => any::<u8>().prop_map(Step::Switch),
        8 => (1..50u8).prop_map(Step::Access),
        1 => Just(Step::Fork),
        3 => any::<u8>().prop_map(Step::Wake),
        1 => Just(Step::Exit),
    ];
    (0..3usize, kinds)
}

proptest! {
    /// For any steps in any order: each thread has its own accesses in program order, with the
    /// instructions between them, and as many sleeps as it had wakes before it last ran.
    #[test]
    fn threads_have_what_they_did(steps in prop::collection::vec(step(), 0..300)) {
        let recording = start();
        let mut cpus = [Cpu::new(), Cpu::new(), Cpu::new()];
        recording.await_exec(100);
        cpus[0].runs(&recording, 100);
        recording.exec(&mut cpus[0].recorder, 100, thread(100), 0);
        // By place: what each thread did, whether it lives, and its wakes before it next runs.
        let mut did: Vec<Vec<(u64, u64)>> = vec![Vec::new()];
        let mut lives = vec![true];
        let mut unseen = vec![0_u32];
        let mut sleeps = vec![0_u32];
        let mut wakes = vec![0_u32];
        let mut since = vec![0_u64];
        let mut running = [Some(0_usize), None, None];
        for (at, (cpu, step)) in steps.into_iter().enumerate() {
            let own = running[cpu];
            match (step, own) {
                (Step::Switch(choice), _) => {
                    let free: Vec<usize> = (0..did.len())
                        .filter(|&t| lives[t] && !running.contains(&Some(t)))
                        .collect();
                    let next = free.get(choice as usize % (free.len() + 1)).copied();
                    running[cpu] = next;
                    cpus[cpu].runs(&recording, next.map_or(0, |t| 100 + t as u32));
                    if let Some(next) = next {
                        sleeps[next] += std::mem::take(&mut unseen[next]);
                    }
                }
                (Step::Access(instructions), own) => {
                    cpus[cpu].accesses(&recording, u64::from(instructions), at as u64);
                    if let Some(own) = own {
                        since[own] += u64::from(instructions);
                        did[own].push((at as u64, std::mem::take(&mut since[own])));
                    }
                }
                (Step::Fork, Some(own)) => {
                    recording.fork(&mut cpus[cpu].recorder, thread(100 + did.len() as u32), 0);
                    did.push(Vec::new());
                    lives.push(true);
                    unseen.push(1);
                    sleeps.push(0);
                    wakes.push(0);
                    since.push(0);
                    wakes[own] += 1;
                }
                (Step::Wake(choice), Some(own)) => {
                    let woken = choice as usize % did.len();
                    recording.wake(&mut cpus[cpu].recorder, 100 + woken as u32, 0);
                    unseen[woken] += 1;
                    wakes[own] += 1;
                }
                (Step::Exit, Some(own)) if own > 0 => {
                    recording.exit(&mut cpus[cpu].recorder, &thread(100 + own as u32));
                    lives[own] = false;
                }
                _ => {}
            }
        }
        let read = read(&recording, &mut cpus);
        prop_assert_eq!(read.len(), did.len());
        for (place, (tid, events)) in read.iter().enumerate() {
            prop_assert_eq!(*tid, 100 + place as u32);
            let count = |kind| events.iter().filter(|event| event.kind == kind).count() as u32;
            prop_assert_eq!(count(Kind::Sleep), sleeps[place]);
            prop_assert_eq!(count(Kind::Wake), wakes[place]);
            let mut instructions = 0;
            let mut accesses = Vec::new();
            for event in events {
                instructions += u64::from(event.gap);
                if event.is_access() {
                    accesses.push((event.address, std::mem::take(&mut instructions)));
                }
            }
            prop_assert_eq!(&accesses, &did[place]);
        }
    }
}
