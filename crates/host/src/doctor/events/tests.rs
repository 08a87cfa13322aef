//! What the doctor says of Westmere events on kernels that answer by rule.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use super::*;
use crate::event_choice::choose;
use crate::fake;
use crate::kernel::{Attribute, flag};

/// What the load says that it fetched.
const WALKED: u64 = 1000;

const INSTRUCTIONS: u64 = 1;
const CYCLES: u64 = 0;
const LINES: u64 = 0x412e;
const LOCAL: u64 = 0x080f;
const REMOTE: u64 = 0x100f;
const BUSY: u64 = 0x0100_0760;
const REQUESTS: u64 = 0x07b0;

/// The counts of a machine that counts correctly.
const RIGHT: [(u64, Result<u64, Errno>); 7] = [
    (INSTRUCTIONS, Ok(3100)),
    (CYCLES, Ok(40_000)),
    (LINES, Ok(990)),
    (LOCAL, Ok(970)),
    (REMOTE, Ok(3)),
    (BUSY, Ok(38_000)),
    (REQUESTS, Ok(1010)),
];

/// Counters that count the same in every load, by code; other events are refused.
#[derive(Debug)]
struct Counting {
    counts: HashMap<u64, Result<u64, Errno>>,
    /// The most events of the processor's own in a group.
    counters: usize,
    /// The leaders' files, and their groups' counts.
    groups: Mutex<HashMap<RawFd, (File, Vec<Attribute>)>>,
}

impl Counting {
    fn new(changes: &[(u64, Result<u64, Errno>)], counters: usize) -> Self {
        Self {
            counts: RIGHT.iter().chain(changes).copied().collect(),
            counters,
            groups: Mutex::default(),
        }
    }

    fn count(&self, attribute: &Attribute) -> Result<u64, Errno> {
        let count = self.counts.get(&attribute.config);
        count.copied().unwrap_or(Err(Errno::NOENT))
    }

    /// Writes what the leader reads before and after the load.
    fn answer(&self, mut leader: &File, group: &[Attribute]) {
        let answer = |time: u64, counts: Vec<u64>| {
            let head = [counts.len() as u64, time, time];
            let numbers = head.into_iter().chain(counts);
            numbers.flat_map(u64::to_ne_bytes).collect::<Vec<u8>>()
        };
        let counts = group.iter().map(|event| self.count(event).unwrap());
        leader.rewind().unwrap();
        leader.write_all(&answer(0, vec![0; group.len()])).unwrap();
        leader.write_all(&answer(10, counts.collect())).unwrap();
        leader.rewind().unwrap();
    }
}

impl Kernel for Counting {
    fn open(
        &self,
        attribute: &Attribute,
        _: Option<u32>,
        _: Option<u32>,
        leader: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, Errno> {
        self.count(attribute)?;
        let mut groups = self.groups.lock().unwrap();
        let opened = tempfile::tempfile().unwrap();
        let key = leader.map_or(opened.as_raw_fd(), |leader| leader.as_raw_fd());
        if leader.is_none() {
            let file = opened.try_clone().unwrap();
            groups.insert(key, (file, Vec::new()));
        }
        let (file, group) = groups.get_mut(&key).unwrap();
        // Instructions and cycles have counters of their own.
        let own = |event: &&Attribute| event.kind == 4;
        if group.iter().chain([attribute]).filter(own).count() > self.counters {
            return Err(Errno::INVAL);
        }
        group.push(*attribute);
        self.answer(file, group);
        Ok(opened.into())
    }
}

fn westmere() -> Processor {
    Processor {
        model: 0x2c,
        ..fake::skylake()
    }
}

/// What the doctor says, a line each.
fn told(kernel: &dyn Kernel, processor: &Processor) -> String {
    let (_folder, root) = fake::root();
    let reasons = Reasons::new(&root, processor);
    let table = EventTable::built_in();
    let choice = choose(kernel, &root, table, processor, &reasons).ok();
    let machinery = Machinery {
        root: &root,
        kernel,
        processor,
        reasons: &reasons,
        choice: choice.as_ref(),
    };
    let check = check(&machinery, table, Some(&|| Box::new(|| WALKED))).unwrap();
    let mut text = format!("{} ({})\n", check.set, check.because);
    for finding in check.findings {
        let Finding {
            subject,
            verdict,
            found,
            remedy,
        } = finding;
        let remedy = remedy.map(|remedy| format!("\n    {remedy}"));
        text += &format!(
            "{verdict:?} {subject}: {found}{}\n",
            remedy.unwrap_or_default()
        );
    }
    text
}

#[test]
fn counts_that_can_be() {
    insta::assert_snapshot!(told(&Counting::new(&[], 4), &westmere()));
}

#[test]
fn counts_that_cannot_be() {
    let changes = [
        (INSTRUCTIONS, Ok(10)),
        (LINES, Ok(0)),
        (LOCAL, Ok(0)),
        (REMOTE, Ok(0)),
        (BUSY, Ok(50_000)),
        (REQUESTS, Ok(20)),
    ];
    insta::assert_snapshot!(told(&Counting::new(&changes, 4), &westmere()));
}

#[test]
fn a_pair_that_is_refused_or_counts_nothing() {
    let refused = [(BUSY, Err(Errno::INVAL))];
    let nothing = [(BUSY, Ok(0)), (REQUESTS, Ok(0))];
    let told = [refused.as_slice(), nothing.as_slice()]
        .map(|changes| told(&Counting::new(changes, 4), &westmere()));
    insta::assert_snapshot!(told.concat());
}

#[test]
fn too_few_counters_for_all_together() {
    insta::assert_snapshot!(told(&Counting::new(&[], 1), &westmere()));
}

#[test]
fn a_set_that_cannot_be_taken_and_what_is_taken_instead() {
    let generic = [(LINES, Err(Errno::NOENT)), (3, Ok(990))];
    insta::assert_snapshot!(told(&Counting::new(&generic, 4), &westmere()));
}

#[test]
fn a_virtual_machine_without_counters_is_told_once() {
    let none = RIGHT.map(|(config, _)| (config, Err(Errno::NOENT)));
    let processor = Processor {
        hypervisor: true,
        ..westmere()
    };
    insta::assert_snapshot!(told(&Counting::new(&none, 4), &processor));
}

#[test]
fn without_permission_for_the_kernel_the_programs_own_counts_are_judged() {
    #[derive(Debug)]
    struct ProgramOnly(Counting);
    impl Kernel for ProgramOnly {
        fn open(
            &self,
            attribute: &Attribute,
            tid: Option<u32>,
            cpu: Option<u32>,
            leader: Option<BorrowedFd<'_>>,
        ) -> Result<OwnedFd, Errno> {
            if attribute.flags & flag::EXCLUDE_KERNEL == 0 {
                return Err(Errno::ACCESS);
            }
            self.0.open(attribute, tid, cpu, leader)
        }
    }
    let all = told(&Counting::new(&[], 4), &westmere());
    let program_only = told(&ProgramOnly(Counting::new(&[], 4)), &westmere());
    assert_eq!(program_only, all);
}

#[test]
fn a_captured_tree_is_not_tried() {
    let (_folder, root) = fake::root();
    let processor = westmere();
    let reasons = Reasons::new(&root, &processor);
    let machinery = Machinery {
        root: &root,
        kernel: &Counting::new(&[], 4),
        processor: &processor,
        reasons: &reasons,
        choice: None,
    };
    let check = check(&machinery, EventTable::built_in(), None).unwrap();
    assert_eq!(check.set, "Intel Westmere-EP");
    assert!(check.findings[0].found.contains("captured"), "{check:?}");
}
