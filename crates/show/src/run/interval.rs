//! Takes in a snapshot: what each thread did, and the figures of processes, nodes and machine.

use std::sync::Arc;

use numaherd_herd::Line;
use numaherd_policy::classes::ClassRule;
use numaherd_topology::Topology;
use numaherd_world::{ProcessId, Residency, Snapshot};

use super::traffic::Traffic;
use super::work::share;
use super::{History, Node, Now, Process, RunModel, Work, add};
use crate::guests::Guest;
use crate::words::{cut, nanoseconds};

/// The most sentences kept of what could not be seen.
const MOST_GAPS: usize = 20;

impl RunModel {
    pub(super) fn saw(
        &mut self,
        line: &Arc<Line>,
        snapshot: &Snapshot,
        history: &mut impl History,
    ) {
        let before = self.snapshot().map(|before| before.sequence);
        self.judge_lateness(before, snapshot);
        let passed = before.map_or(1, |before| snapshot.sequence.saturating_sub(before));
        self.totals.add_snapshot(snapshot, passed);
        self.more.snapshots += 1;
        self.more.most_threads = self.more.most_threads.max(snapshot.threads.len());
        self.more.content.saw(snapshot);
        self.latest = Some(line.clone());
        self.is_unbroken = true;
        self.time_ns = snapshot.time_ns;
        self.interval_ns = snapshot.interval_ns;
        self.is_complete = self.machine.is_some();
        let gaps = snapshot.gaps.iter().take(MOST_GAPS);
        self.gaps = gaps.map(|gap| cut(gap).to_owned()).collect();
        self.paged.clear();
        self.waiting
            .retain(|(process, _), _| snapshot.process(*process).is_some());
        self.see_processes(snapshot);
        self.see_threads(snapshot);
        self.more.cpu_s += self.work.cpu_seconds;
        for process in self.processes.all_mut() {
            process.end_interval(snapshot.interval_ns);
        }
        self.see_nodes(snapshot);
        let unmanaged = snapshot.threads.iter().filter(|t| t.unmanaged.is_some());
        let imbalance = self.traffic.as_ref().and_then(Traffic::imbalance);
        self.now = Now {
            threads: snapshot.threads.len() as u64,
            hands_off: unmanaged.count() as u64,
            cpus_used: per_second(self.work.cpu_seconds, snapshot.interval_ns).unwrap_or(0.0),
            local_access_ratio: self.work.counted.local_access_ratio(),
            miss_rate: self.work.counted.miss_rate(),
            uncore_penalty: self.work.counted.uncore_penalty(),
            controller_imbalance: imbalance.map(|percent| percent / 100.0),
        };
        history.interval(self, snapshot);
    }

    /// An interval is judged if the one before it is known, or if it is the first of all.
    fn judge_lateness(&mut self, before: Option<u64>, snapshot: &Snapshot) {
        let (Some(usual_ns), Some(current)) = (self.cadence_ns, &self.current) else {
            return;
        };
        let passed = match before {
            Some(before) if self.is_unbroken => snapshot.sequence.saturating_sub(before),
            None if snapshot.sequence == 0 => 1,
            _ => return,
        };
        let first = current.settings.placement_interval(snapshot.sequence);
        let expected_ns = match snapshot.sequence {
            0 => nanoseconds(first),
            _ => usual_ns.saturating_mul(passed),
        };
        self.lateness.add(passed, snapshot.interval_ns, expected_ns);
    }

    fn see_processes(&mut self, snapshot: &Snapshot) {
        let ids = snapshot.processes.iter().map(|process| process.id);
        self.processes.line_up(ids);
        let topology = self.start.as_ref().map(|start| &start.topology);
        let tracks = self.processes.all_mut().iter_mut();
        for (track, process) in tracks.zip(&snapshot.processes) {
            track.begin_interval(process);
            let guest = Guest::of(process, snapshot, topology);
            if track.guest.as_deref() != guest.as_ref() {
                track.guest = guest.map(Arc::new);
            }
        }
    }

    fn see_threads(&mut self, snapshot: &Snapshot) {
        self.threads
            .line_up(snapshot.threads.iter().map(|thread| thread.id));
        if let Some(traffic) = &mut self.traffic {
            traffic.clear();
        }
        self.work = Work::default();
        // Threads of a process are mostly next to each other.
        let mut found: Option<(ProcessId, Option<usize>)> = None;
        for (thread, track) in snapshot.threads.iter().zip(self.threads.all_mut()) {
            let counts = thread.counts.as_ref();
            let work = Work::of(counts, thread.cpu_share, snapshot.interval_ns);
            self.work.add(&work);
            if let Some(rate) = work.counted.miss_rate() {
                track.classed.observe(rate, &ClassRule::PAPER);
            }
            let place = match found {
                Some((id, place)) if id == thread.process => place,
                _ => self.processes.place(thread.process),
            };
            found = Some((thread.process, place));
            track.process = place;
            track.node = None;
            if let (Some(start), Some(traffic)) = (&self.start, &mut self.traffic) {
                let node = start.topology.node_of(thread.cpu);
                track.node = node.and_then(|node| traffic.place(node));
                if let Some(node) = track.node {
                    let process = place.map(|place| &snapshot.processes[place]);
                    let pages = process.and_then(|process| process.residency.as_ref());
                    traffic.add(node, thread, pages);
                }
            }
            let Some(process) = place.and_then(|place| self.processes.all_mut().get_mut(place))
            else {
                continue;
            };
            process.threads += 1;
            process.hands_off += u64::from(thread.unmanaged.is_some());
            process.cpus_waited += share(thread.wait_share);
            process.work.add(&work);
            if let Some(node) = track.node.map(|node| self.nodes[node].id) {
                match process.threads_on.binary_search_by_key(&node, |on| on.0) {
                    Ok(at) => process.threads_on[at].1 += 1,
                    Err(at) => process.threads_on.insert(at, (node, 1)),
                }
            }
        }
    }

    fn see_nodes(&mut self, snapshot: &Snapshot) {
        let (Some(start), Some(traffic)) = (&self.start, &self.traffic) else {
            return;
        };
        let topology = &start.topology;
        let seconds = snapshot.interval_ns as f64 / 1e9;
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let work = traffic.now[place];
            node.sums.cpu_s += work.cpus * seconds;
            node.sums.lines += work.lines;
            node.sums.local_lines += work.local;
            node.sums.remote_lines += work.known - work.local;
            node.sums.served_lines += work.served;
            let seen = snapshot.nodes.iter().find(|state| state.id == node.id);
            if let Some(state) = seen {
                node.memory_bytes = Some(state.total_bytes).filter(|&bytes| bytes > 0);
                node.free_bytes = node.memory_bytes.and(Some(state.free_bytes));
            }
            if let Some(known) = topology.node(node.id) {
                node.cpus = known.cpus.intersection(&snapshot.online).len() as u64;
            }
            node.cpus_used = work.cpus;
            node.threads = 0;
            node.pages = 0;
            node.local_access_ratio = (work.known > 0.0).then(|| work.local / work.known);
            node.fetched_per_s =
                per_second(work.lines, snapshot.interval_ns).filter(|_| traffic.is_counted);
            node.served_per_s = per_second(work.served, snapshot.interval_ns)
                .filter(|_| traffic.is_assigned && traffic.with_memory.contains(&place));
            let bandwidths = topology.timing().node_gb_per_s.as_ref();
            let at = topology.node_index(node.id);
            let bandwidth = bandwidths.zip(at).and_then(|(of, at)| of.get(at).copied());
            let load = node.served_per_s.zip(self.line_bytes).zip(bandwidth);
            let load = load.map(|((lines, bytes), of)| lines * bytes as f64 / (of * 1e9));
            node.controller_load = load.filter(|load| load.is_finite());
        }
        for place in self.threads.iter().filter_map(|thread| thread.node) {
            self.nodes[place].threads += 1;
        }
        let processes = snapshot.processes.iter();
        for residency in processes.filter_map(|process| process.residency.as_ref()) {
            for &(node, pages) in &residency.pages {
                if let Some(place) = traffic.place(node) {
                    add(&mut self.nodes[place].pages, pages);
                }
            }
        }
    }
}

impl Process {
    /// What the snapshot says of the process itself; its threads come later.
    fn begin_interval(&mut self, process: &numaherd_world::Process) {
        self.id = process.id;
        if self.name != cut(&process.name) {
            cut(&process.name).clone_into(&mut self.name);
        }
        self.group.clone_from(&process.group);
        let pages = process.residency.as_ref();
        self.pages_on = pages.map(|residency| residency.pages.clone());
        self.home = pages.and_then(Residency::home);
        (self.threads, self.hands_off, self.cpus_waited) = (0, 0, 0.0);
        self.threads_on.clear();
        self.work = Work::default();
    }

    fn end_interval(&mut self, interval_ns: u64) {
        self.cpus_used = per_second(self.work.cpu_seconds, interval_ns).unwrap_or(0.0);
        self.miss_rate = self.work.counted.miss_rate();
        self.local_access_ratio = self.work.counted.local_access_ratio();
        self.class = self.miss_rate.map(|rate| ClassRule::PAPER.class_of(rate));
        if let Some(rate) = self.miss_rate {
            self.classed.observe(rate, &ClassRule::PAPER);
        }
    }
}

/// The nodes of a machine of which nothing was seen yet.
pub(super) fn nodes_of(topology: &Topology) -> Vec<Node> {
    let online = topology.online_cpus();
    let nodes = topology.nodes().iter().filter(|node| node.online);
    let node = |node: &numaherd_topology::Node| Node {
        id: node.id,
        cpus: node.cpus.intersection(&online).len() as u64,
        memory_bytes: Some(node.memory_bytes).filter(|&bytes| bytes > 0),
        ..Node::default()
    };
    nodes.map(node).collect()
}

/// Bytes of a line of the caches next to memory, where known.
pub(super) fn line_bytes(topology: &Topology) -> Option<u64> {
    let caches = topology.caches().iter();
    let known = caches.filter(|cache| cache.line_bytes.is_some());
    let last = known.max_by_key(|cache| cache.level)?;
    last.line_bytes.map(u64::from)
}

fn per_second(sum: f64, interval_ns: u64) -> Option<f64> {
    (interval_ns > 0).then(|| sum * 1e9 / interval_ns as f64)
}
