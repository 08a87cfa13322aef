//! A snapshot written as what has changed since the previously written one.
//!
//! Most threads of most machines sleep, and nothing about them changes: a snapshot of 1,000 sleeping threads takes
//! some 200 kB, its changes some 500 bytes. A snapshot is written whole when it is a file's first, and when the
//! changes since the last whole one have grown to [`MOST_CHANGES`] times its size. A line can thus be read again
//! ([`super::Place`]) without reading the file from its beginning.
//!
//! Property: a snapshot written as changes is read back exactly, to the last bit.

use std::borrow::Cow;
use std::cmp::Ordering;

use numaherd_topology::CpuId;
use numaherd_world::{Counts, NodeState, Process, ProcessId, Snapshot, Thread, ThreadId};
use serde::{Deserialize, Serialize};

use super::{Head, Line, Record};

/// The most bytes of changes that follow a whole snapshot, as a multiple of its own (chosen here: at most a quarter
/// more on disk, and 5 times the reading to read a line again).
pub(super) const MOST_CHANGES: u64 = 4;

/// The kind of a line that holds changes.
pub(super) const KIND: &str = "changes";

/// A line that holds changes.
#[derive(Serialize)]
pub(super) struct ChangesLine<'s> {
    #[serde(flatten)]
    pub(super) head: Head<'s>,
    #[serde(flatten)]
    pub(super) changes: Changes<'s>,
}

/// What a snapshot has that the one before lacks.
#[derive(Serialize, Deserialize)]
pub(super) struct Changes<'s> {
    sequence: u64,
    /// The snapshot before, by its sequence.
    since: u64,
    time_ns: u64,
    interval_ns: u64,
    /// Threads that are new, or in which more has changed than [`Did`] says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    threads: Vec<Cow<'s, Thread>>,
    /// What threads did, where it differs from the previous interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    did: Vec<Did>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<ThreadId>,
    /// Processes that are new or have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    processes: Vec<Cow<'s, Process>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone_processes: Vec<ProcessId>,
    /// Nodes that have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<NodeState>,
    /// All gaps of this interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<String>,
}

/// What a thread did in an interval: the part of [`Thread`] that changes while it runs.
#[derive(Serialize, Deserialize)]
struct Did {
    id: ThreadId,
    cpu: CpuId,
    cpu_share: f64,
    #[serde(default, skip_serializing_if = "is_zero")]
    wait_share: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

impl<'s> Changes<'s> {
    /// What has changed from `last` to `now`; `None` if that is better written whole: CPUs or nodes have come or gone,
    /// or one of the two is out of order.
    pub(super) fn between(last: &Snapshot, now: &'s Snapshot) -> Option<Self> {
        let Snapshot {
            sequence,
            time_ns,
            interval_ns,
            page_bytes,
            online,
            threads,
            processes,
            nodes,
            gaps,
        } = now;
        let are_same_nodes = last
            .nodes
            .iter()
            .map(|n| n.id)
            .eq(nodes.iter().map(|n| n.id));
        if *page_bytes != last.page_bytes || *online != last.online || !are_same_nodes {
            return None;
        }
        let mut changes = Self {
            sequence: *sequence,
            since: last.sequence,
            time_ns: *time_ns,
            interval_ns: *interval_ns,
            threads: Vec::new(),
            did: Vec::new(),
            gone: Vec::new(),
            processes: Vec::new(),
            gone_processes: Vec::new(),
            nodes: Vec::new(),
            gaps: gaps.clone(),
        };
        for (before, after) in both(&last.threads, threads, |thread| thread.id)? {
            match (before, after) {
                (Some(before), Some(after)) if before == after => {}
                (Some(before), Some(after)) if is_same_but_for_what_it_did(before, after) => {
                    changes.did.push(Did::of(after));
                }
                (_, Some(after)) => changes.threads.push(Cow::Borrowed(after)),
                (Some(before), None) => changes.gone.push(before.id),
                (None, None) => {}
            }
        }
        for (before, after) in both(&last.processes, processes, |process| process.id)? {
            match (before, after) {
                (Some(before), Some(after)) if before == after => {}
                (_, Some(after)) => changes.processes.push(Cow::Borrowed(after)),
                (Some(before), None) => changes.gone_processes.push(before.id),
                (None, None) => {}
            }
        }
        let pairs = last.nodes.iter().zip(nodes);
        let changed = pairs.filter(|(before, after)| before != after);
        changes.nodes.extend(changed.map(|(_, after)| *after));
        Some(changes)
    }

    /// Turns `last` into the snapshot with these changes. The error, for changes of another snapshot, is the end of
    /// "the line is intact but ...".
    fn apply(self, last: &mut Snapshot) -> Result<(), String> {
        if self.since != last.sequence {
            return Err(format!(
                "it has the changes since snapshot {}, and the one before it is {}",
                self.since, last.sequence
            ));
        }
        last.sequence = self.sequence;
        last.time_ns = self.time_ns;
        last.interval_ns = self.interval_ns;
        remove(&mut last.threads, self.gone, |thread| thread.id)?;
        for did in self.did {
            let at = last
                .threads
                .binary_search_by_key(&did.id, |thread| thread.id);
            let at = at.map_err(|_| unknown(did.id))?;
            did.set(&mut last.threads[at]);
        }
        put(&mut last.threads, self.threads, |thread| thread.id);
        remove(&mut last.processes, self.gone_processes, |process| {
            process.id
        })?;
        put(&mut last.processes, self.processes, |process| process.id);
        for node in self.nodes {
            let at = last.nodes.binary_search_by_key(&node.id, |node| node.id);
            let at = at.map_err(|_| unknown(format_args!("node {}", node.id)))?;
            last.nodes[at] = node;
        }
        last.gaps = self.gaps;
        Ok(())
    }
}

impl Did {
    fn of(thread: &Thread) -> Self {
        Self {
            id: thread.id,
            cpu: thread.cpu,
            cpu_share: thread.cpu_share,
            wait_share: thread.wait_share,
            counts: thread.counts,
        }
    }

    fn set(self, thread: &mut Thread) {
        let Self {
            id: _,
            cpu,
            cpu_share,
            wait_share,
            counts,
        } = self;
        thread.cpu = cpu;
        thread.cpu_share = cpu_share;
        thread.wait_share = wait_share;
        thread.counts = counts;
    }
}

/// Whether [`Did`] says all that has changed in a thread.
fn is_same_but_for_what_it_did(before: &Thread, after: &Thread) -> bool {
    let Thread {
        id,
        process,
        name,
        cpu: _,
        assigned,
        affinity,
        cpuset,
        cpu_share: _,
        wait_share: _,
        tag,
        counts: _,
        unmanaged,
    } = after;
    *id == before.id
        && *process == before.process
        && *name == before.name
        && *assigned == before.assigned
        && *affinity == before.affinity
        && *cpuset == before.cpuset
        && *tag == before.tag
        && *unmanaged == before.unmanaged
}

/// The entries of two lists side by side, by their keys; `None` if one of the lists does not ascend.
fn both<'b, 'a, T, K: Ord>(
    before: &'b [T],
    after: &'a [T],
    key: impl Fn(&T) -> K,
) -> Option<Vec<(Option<&'b T>, Option<&'a T>)>> {
    let ascends = |list: &[T]| list.is_sorted_by(|a, b| key(a) < key(b));
    if !ascends(before) || !ascends(after) {
        return None;
    }
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    let mut pairs = Vec::with_capacity(before.len().max(after.len()));
    loop {
        let order = match (before.peek(), after.peek()) {
            (Some(before), Some(after)) => key(before).cmp(&key(after)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Some(pairs),
        };
        pairs.push(match order {
            Ordering::Less => (before.next(), None),
            Ordering::Equal => (before.next(), after.next()),
            Ordering::Greater => (None, after.next()),
        });
    }
}

fn unknown(what: impl std::fmt::Display) -> String {
    format!("it has changes of {what}, which is not in the snapshot before it")
}

/// Removes from a list what is `gone`.
fn remove<T, K: Ord + Copy + std::fmt::Display>(
    list: &mut Vec<T>,
    gone: Vec<K>,
    key: impl Fn(&T) -> K,
) -> Result<(), String> {
    for id in &gone {
        list.binary_search_by_key(id, &key)
            .map_err(|_| unknown(id))?;
    }
    if !gone.is_empty() {
        let gone = std::collections::BTreeSet::from_iter(gone);
        list.retain(|entry| !gone.contains(&key(entry)));
    }
    Ok(())
}

/// Puts what is new or has changed into a list. What is twice in `changed` is then twice in the list, and found as in
/// any other snapshot.
fn put<T: Clone, K: Ord>(list: &mut Vec<T>, changed: Vec<Cow<'_, T>>, key: impl Fn(&T) -> K) {
    let sorted = list.len();
    for entry in changed {
        let at = list[..sorted].binary_search_by_key(&key(&entry), &key);
        match at {
            Ok(at) => list[at] = entry.into_owned(),
            Err(_) => list.push(entry.into_owned()),
        }
    }
    if list.len() > sorted {
        // Stable: it makes use of the order that there is.
        list.sort_by_key(&key);
    }
}

/// The lines of a file, some of which hold changes of the snapshot before.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfolded {
    last: Option<Snapshot>,
}

impl Unfolded {
    /// The next line from its JSON. The error is the end of "the line is intact but ...".
    pub(super) fn line(&mut self, text: &[u8]) -> Result<Line, String> {
        let not_a_record = |error: serde_json::Error| format!("is not a record: {error}");
        let head: Head<'_> = serde_json::from_slice(text).map_err(not_a_record)?;
        if head.kind != KIND {
            let record = Record::read(&head.kind, text).map_err(not_a_record)?;
            if let Record::Snapshot(snapshot) = &record {
                self.last = Some(snapshot.clone());
            }
            return Ok(head.line(record));
        }
        let changes: Changes<'_> = serde_json::from_slice(text).map_err(not_a_record)?;
        let last = self.last.as_mut();
        let last = last.ok_or("it has changes of a snapshot, and no snapshot comes before it")?;
        changes.apply(last)?;
        Ok(head.line(Record::Snapshot(last.clone())))
    }
}

/// Whether a line, as JSON, holds changes.
pub(super) fn is_changes(text: &[u8]) -> bool {
    serde_json::from_slice(text).is_ok_and(|head: Head<'_>| head.kind == KIND)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use numaherd_testing::seen::{empty, nodes, pid, process_on, thread_on, tid};
    use numaherd_topology::hwloc;
    use proptest::prelude::*;

    use super::super::{Follow, Ledger, Next, Writer};
    use super::*;

    /// A machine of two nodes with these threads, each of a process of its own.
    fn snapshot(numbers: &[u32]) -> Snapshot {
        let topology = hwloc::synthetic("numa:2 core:2 pu:1").unwrap();
        let all = Arc::new(topology.online_cpus());
        let both = Arc::new(nodes("0-1"));
        let threads = numbers.iter().map(|&n| thread_on(n, n, n % 4, &all));
        let process = |&n: &u32| process_on(n, "one", &[(0, 5)], &both);
        Snapshot {
            threads: threads.collect(),
            processes: numbers.iter().map(process).collect(),
            ..empty(&topology)
        }
    }

    /// What may become of a snapshot.
    #[derive(Clone, Debug)]
    enum Event {
        Ran(usize, f64),
        Slept(usize),
        Moved(usize, u32),
        Came(u32),
        Went(usize),
        Pages(usize, u64),
        Free(u64),
        Online(u32),
        Gap(String),
    }

    fn event() -> impl Strategy<Value = Event> {
        use Event::*;
        let which = || 0usize..30;
        prop_oneof![
            (which(), 0.0..1.0).prop_map(|(at, share)| Ran(at, share)),
            which().prop_map(Slept),
            (which(), 0u32..4).prop_map(|(at, core)| Moved(at, core)),
            (1u32..30).prop_map(Came),
            which().prop_map(Went),
            (which(), any::<u64>()).prop_map(|(at, pages)| Pages(at, pages)),
            any::<u64>().prop_map(Free),
            (1u32..4).prop_map(Online),
            "[a-z]{1,4}".prop_map(Gap),
        ]
    }

    /// The snapshot after, in which these things have happened.
    fn after(before: &Snapshot, events: &[Event]) -> Snapshot {
        let mut now = before.clone();
        now.sequence += 1;
        now.time_ns += 1_000_000_007;
        now.gaps.clear();
        for event in events {
            let count = now.threads.len();
            let at = |index: &usize| index.checked_rem(count);
            match event {
                Event::Ran(index, share) => {
                    if let Some(at) = at(index) {
                        now.threads[at].cpu_share = *share;
                        now.threads[at].wait_share = share / 3.0;
                    }
                }
                Event::Slept(index) => {
                    if let Some(at) = at(index) {
                        now.threads[at].cpu_share = 0.0;
                        now.threads[at].counts = None;
                    }
                }
                Event::Moved(index, core) => {
                    if let Some(at) = at(index) {
                        now.threads[at].assigned = Some(CpuId(*core));
                    }
                }
                Event::Came(number) => {
                    let come = snapshot(&[*number]);
                    let id = tid(*number);
                    if let Err(at) = now.threads.binary_search_by_key(&id, |t| t.id) {
                        now.threads.insert(at, come.threads[0].clone());
                        now.processes.insert(at, come.processes[0].clone());
                    }
                }
                Event::Went(index) => {
                    if let Some(at) = at(index) {
                        now.threads.remove(at);
                        now.processes.remove(at);
                    }
                }
                Event::Pages(index, pages) => {
                    if let Some(at) = at(index) {
                        now.processes[at].residency.as_mut().unwrap().pages[0].1 = *pages;
                    }
                }
                Event::Free(bytes) => now.nodes[0].free_bytes = *bytes,
                Event::Online(cpus) => now.online = (0..*cpus).map(CpuId).collect(),
                Event::Gap(text) => now.gaps.push(text.clone()),
            }
        }
        now
    }

    fn lines(snapshots: impl IntoIterator<Item = Snapshot>) -> Vec<Line> {
        let line = |(sequence, snapshot): (u64, Snapshot)| Line {
            sequence,
            time_ns: snapshot.time_ns,
            record: Record::Snapshot(snapshot),
        };
        (0..).zip(snapshots).map(line).collect()
    }

    fn write(path: &Path, lines: &[Line]) -> Vec<u8> {
        let mut writer = Writer::create(path, "test", None, 1 << 30).unwrap();
        lines
            .iter()
            .for_each(|line| writer.write(line.clone()).unwrap());
        writer.flush().unwrap();
        std::fs::read(path).unwrap()
    }

    fn of_kind(bytes: &[u8], kind: &str) -> usize {
        let kind = format!("\"kind\":\"{kind}\"");
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines().filter(|line| line.contains(&kind)).count()
    }

    #[test]
    fn of_threads_that_sleep_nothing_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = snapshot(&Vec::from_iter(1..=1000));
        let second = after(&first, &[]);
        let bytes = write(&folder.path().join("ledger"), &lines([first, second]));
        let text = String::from_utf8(bytes).unwrap();
        let changes = text.lines().nth(2).unwrap();
        let said = "{\"record\":1,\"at_ns\":1000000007,\"kind\":\"changes\",\"sequence\":1,\"since\":0,\
                    \"time_ns\":1000000007,\"interval_ns\":1000000000,\"sum\":";
        assert!(changes.starts_with(said), "{changes}");
    }

    #[test]
    fn a_snapshot_is_written_whole_again_when_the_changes_have_grown() {
        let folder = tempfile::tempdir().unwrap();
        let mut snapshots = vec![snapshot(&[1, 2, 3])];
        for pages in 0..200 {
            let index = 0;
            snapshots.push(after(
                snapshots.last().unwrap(),
                &[Event::Pages(index, pages)],
            ));
        }
        let bytes = write(&folder.path().join("ledger"), &lines(snapshots));
        let (whole, changes) = (of_kind(&bytes, "snapshot"), of_kind(&bytes, KIND));
        assert!(whole > 1 && changes > 4 * whole, "{whole} and {changes}");
        assert_eq!(whole + changes, 201);
    }

    /// The damage of a ledger in which the one line that holds changes is another one.
    fn damage(change: impl Fn(&str) -> String) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let first = snapshot(&[1, 2]);
        let second = after(&first, &[Event::Went(0)]);
        let bytes = write(&path, &lines([first, second]));
        let text = String::from_utf8(bytes).unwrap();
        let last = text.trim_end().rfind('\n').unwrap() + 1;
        let (body, _) = text[last..].rsplit_once(",\"sum\"").unwrap();
        let body = change(body);
        let sum = crc32fast::hash(body.as_bytes());
        let text = format!("{}{body},\"sum\":\"{sum:08x}\"}}\n", &text[..last]);
        std::fs::write(&path, text).unwrap();
        let ledger = Ledger::read(&path).unwrap();
        assert_eq!(ledger.lines.len(), 1);
        ledger.damage.unwrap().to_string()
    }

    #[test]
    fn changes_of_another_snapshot_are_damage() {
        let other = damage(|line| line.replace("\"since\":0", "\"since\":7"));
        let said = "it has the changes since snapshot 7, and the one before it is 0";
        assert!(other.contains(said), "{other}");
        let gone = damage(|line| line.replace("\"tid\":1", "\"tid\":9"));
        let said = "it has changes of thread 9, which is not in the snapshot before it";
        assert!(gone.contains(said), "{gone}");
        let twice = pid(2);
        let twice = serde_json::to_string(&process_on(twice.pid, "", &[], &nodes("0").into()));
        let twice = twice.unwrap().replace("\"pid\":2", "\"pid\":3");
        let twice = damage(|line| {
            let (before, _) = line.split_once(",\"gone\"").unwrap();
            format!("{before},\"processes\":[{twice},{twice}]")
        });
        assert!(twice.contains("processes out of order or twice"), "{twice}");
    }

    #[test]
    fn changes_without_a_snapshot_before_them_are_damage() {
        let mut unfolded = Unfolded::default();
        let line = b"{\"record\":0,\"at_ns\":0,\"kind\":\"changes\",\"sequence\":1,\"since\":0,\"time_ns\":1,\
                     \"interval_ns\":1}";
        let why = unfolded.line(line).unwrap_err();
        assert!(why.contains("no snapshot comes before it"), "{why}");
    }

    proptest! {
        #[test]
        fn what_is_written_as_changes_is_read_back_as_it_was(
            intervals in proptest::collection::vec(proptest::collection::vec(event(), 0..5), 0..30),
        ) {
            let mut snapshots = vec![snapshot(&[3, 5, 8])];
            for events in &intervals {
                snapshots.push(after(snapshots.last().unwrap(), events));
            }
            let lines = lines(snapshots);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ledger");
            write(&path, &lines);
            let ledger = Ledger::read(&path).unwrap();
            prop_assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
            prop_assert_eq!(&ledger.lines, &lines);
            let mut follow = Follow::new(&path);
            let mut followed = Vec::new();
            loop {
                match follow.next().unwrap() {
                    Next::Line(line, place) => {
                        let again = place.read();
                        prop_assert_eq!(again.as_ref(), Some(&line));
                        followed.push(line);
                    }
                    Next::Begins(_) => {}
                    Next::NothingYet => break,
                }
            }
            prop_assert_eq!(followed, lines);
        }
    }
}
