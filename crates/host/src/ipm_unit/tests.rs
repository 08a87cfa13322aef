//! The unit's device made up: what both halves take from one stream.

use super::*;
use crate::ipm_records::written;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A device of this protocol: whole records, 0 bytes at the end, a snapshot when asked for.
#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Vec<u8>>,
    /// What the next request brings.
    snapshot: Vec<SharingPart>,
}

impl Fake {
    fn add(&self, record: Vec<u8>) {
        self.0.lock().unwrap().records.push_back(record);
    }

    fn shares(&self, parts: &[SharingPart]) {
        self.0.lock().unwrap().snapshot = parts.to_vec();
    }
}

impl Read for Fake {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        let mut filled = 0;
        // At most two records, so that there are several reads.
        for _ in 0..2 {
            let Some(record) = state.records.pop_front() else {
                break;
            };
            buffer[filled..filled + record.len()].copy_from_slice(&record);
            filled += record.len();
        }
        Ok(filled)
    }
}

impl Write for Fake {
    fn write(&mut self, request: &[u8]) -> io::Result<usize> {
        assert_eq!(request, 1_u64.to_le_bytes());
        let mut state = self.0.lock().unwrap();
        let parts: Vec<_> = state.snapshot.iter().map(written::sharing).collect();
        for part in parts.into_iter().rev() {
            state.records.push_front(part);
        }
        state.records.push_front(written::counts());
        Ok(8)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unit() -> (Fake, IpmUnit) {
    let fake = Fake::default();
    (fake.clone(), IpmUnit::new(Box::new(fake)))
}

fn process(pid: u32) -> ProcessId {
    ProcessId { pid, born: 1 }
}

fn thread(tid: u32) -> ThreadId {
    ThreadId { tid, born: 1 }
}

/// Process 10 with threads 10, 11 and 12; process 20.
fn known() -> Known {
    let of = |tid: u32, pid| (tid, (thread(tid), process(pid)));
    [of(10, 10), of(11, 10), of(12, 10), of(20, 20)].into()
}

fn found(tgid: u32, tid: u32, page: u64, time_ns: u64) -> Notification {
    Notification {
        tgid,
        tid,
        from: 0,
        to: 1,
        address: page * 4096,
        page_bytes: 4096,
        time_ns,
    }
}

fn part(tgid: u32, flags: (bool, bool), pairs: &[(u32, u32, u64)]) -> SharingPart {
    SharingPart {
        tgid,
        is_first: flags.0,
        is_last: flags.1,
        pairs: pairs.to_vec(),
    }
}

#[test]
fn notices_are_of_known_processes_in_time_order() {
    let (fake, mut unit) = unit();
    for notification in [
        found(10, 11, 5, 3000),
        found(99, 99, 6, 2500),
        found(20, 20, 7, 2000),
        // Thread 20 is no longer the process's, and number 0 is unknown.
        found(10, 20, 8, 4000),
        found(10, 0, 9, 500),
    ] {
        fake.add(written::notification(&notification));
    }
    let notices = unit.notices(&known(), 4096, 1000).unwrap();
    let told: Vec<_> = notices
        .iter()
        .map(|n| (n.time_ns, n.thread.tid, n.process.pid, n.page))
        .collect();
    let expected = [
        (0, 10, 10, 9),
        (1000, 20, 20, 7),
        (2000, 11, 10, 5),
        (3000, 10, 10, 8),
    ];
    assert_eq!(told, expected);
    assert_eq!((notices[0].from, notices[0].to), (NodeId(0), NodeId(1)));
    assert_eq!(unit.notices(&known(), 4096, 1000).unwrap(), []);
}

#[test]
fn a_larger_page_is_all_its_base_pages_and_a_smaller_one_the_page_around_it() {
    let (fake, mut unit) = unit();
    let sized = |page_bytes| Notification {
        page_bytes,
        ..found(10, 10, 16, 0)
    };
    fake.add(written::notification(&sized(16384)));
    fake.add(written::notification(&sized(1024)));
    let notices = unit.notices(&known(), 4096, 0).unwrap();
    let pages: Vec<u64> = notices.iter().map(|notice| notice.page).collect();
    assert_eq!(pages, [16, 17, 18, 19, 16]);
}

#[test]
fn sharing_is_what_came_since_the_last_time() {
    let (fake, mut unit) = unit();
    let mut shared = |parts: &[SharingPart], known: &Known| {
        fake.shares(parts);
        let mut all = unit.sharing(known).unwrap();
        all.remove(&process(10)).map(|sharing| sharing.pairs)
    };
    let (first, last) = ((true, false), (false, true));
    // In two parts, with another process in between.
    let parts = [
        part(10, first, &[(10, 11, 100)]),
        part(20, (true, true), &[]),
        part(10, last, &[(11, 12, 7), (12, 99, 5)]),
    ];
    let pairs = |a: u64, b: u64| {
        Some(vec![
            (thread(10), thread(11), a),
            (thread(11), thread(12), b),
        ])
    };
    assert_eq!(shared(&parts, &known()), pairs(100, 7));
    assert_eq!(shared(&parts, &known()), Some(Vec::new()));
    let parts = [part(10, (true, true), &[(10, 11, 150), (11, 12, 3)])];
    // The second fell: the kernel reused a number.
    assert_eq!(shared(&parts, &known()), pairs(50, 3));
    // The roster shows another thread 11 from now on.
    let mut later = known();
    let new = ThreadId { tid: 11, born: 2 };
    later.insert(11, (new, process(10)));
    let parts = [part(10, (true, true), &[(10, 11, 160)])];
    assert_eq!(shared(&parts, &later), Some(vec![(thread(10), new, 160)]));
    assert_eq!(shared(&[], &later), None);
}

#[test]
fn a_snapshot_leaves_the_notices_to_the_pager() {
    let (fake, mut unit) = unit();
    fake.add(written::notification(&found(10, 11, 5, 0)));
    fake.shares(&[part(10, (true, true), &[(10, 11, 1)])]);
    assert_eq!(unit.sharing(&known()).unwrap().len(), 1);
    assert_eq!(unit.notices(&known(), 4096, 0).unwrap().len(), 1);
}

#[test]
fn notices_of_a_rest_are_forgotten() {
    let (fake, mut unit) = unit();
    let add = |page| fake.add(written::notification(&found(10, 11, page, 0)));
    add(1);
    assert!(unit.sharing(&known()).unwrap().is_empty());
    unit.rest();
    add(2);
    assert!(unit.sharing(&known()).unwrap().is_empty());
    add(3);
    assert_eq!(unit.notices(&known(), 4096, 0).unwrap(), []);
    add(4);
    let notices = unit.notices(&known(), 4096, 0).unwrap();
    assert_eq!(notices.iter().map(|n| n.page).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_part_whose_process_never_began_or_ended_is_not_used() {
    let (fake, mut unit) = unit();
    fake.shares(&[
        part(10, (false, true), &[(10, 11, 1)]),
        part(20, (true, false), &[]),
    ]);
    assert!(unit.sharing(&known()).unwrap().is_empty());
}

#[test]
fn what_is_no_record_is_an_error() {
    let (fake, mut unit) = unit();
    fake.add(vec![1; 16]);
    let error = unit.notices(&known(), 4096, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a record begins with 0x01010101, not with NIPM"
    );
}

#[test]
fn a_machine_without_the_device_is_told_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = open(&Root::new(directory.path())).unwrap_err();
    assert_eq!(refusal.remedy, "the lab, whose modelled hardware does");
}
