//! Processes that start: where their threads and pages go.

use std::collections::VecDeque;
use std::sync::Arc;

use numaherd_contention::Speed;
use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::{ProcessId, Tag, ThreadId};

use super::{Engine, PAGE_BYTES, Process, Refill, Seen, Thread};
use crate::job::{Binding, Job, Placement};
use crate::kernel::Loads;
use crate::memory::Memory;

impl Engine {
    /// Starts a job, and adds its threads to `loads`, which are those of the running threads.
    pub(super) fn start(&mut self, at: usize, loads: &mut Loads) {
        let job = self.jobs[at].clone();
        let born = (self.now_ns / 1e7) as u64;
        let id = ProcessId {
            pid: self.next_pid,
            born,
        };
        let mut cpus = Vec::new();
        for thread in 0..job.program.threads as usize {
            let (mask, bound) = match &job.binding {
                Binding::Free | Binding::StartOn(_) => (self.all_cpus.clone(), false),
                Binding::Within(cpus) => (Arc::new(cpus.clone()), true),
                Binding::Each(cpus) => {
                    let cpu = cpus[thread % cpus.len()];
                    (Arc::new([cpu].into_iter().collect()), true)
                }
            };
            let cpu = match &job.binding {
                Binding::StartOn(cpus) => cpus[thread % cpus.len()],
                _ => self.new_place(loads, &mask),
            };
            loads.add(cpu, job.program.phases[0].busy);
            cpus.push((cpu, mask, bound));
        }
        let memory = self.first_touch(&job, &cpus);
        for (index, (cpu, affinity, bound_by_user)) in cpus.into_iter().enumerate() {
            let masked = bound_by_user && affinity.len() < self.all_cpus.len();
            let thread = Thread {
                id: ThreadId {
                    tid: self.next_pid,
                    born,
                },
                process: id,
                job: at,
                index,
                cpu,
                affinity,
                assigned: None,
                bound_by_user,
                tag: job.tag.or(masked.then_some(Tag::Mask)),
                phase: 0,
                left: job.program.phases[0].instructions,
                pause_ns: 0.0,
                refill: Refill::default(),
                copies: VecDeque::new(),
                copied: 0.0,
                memory: memory.answered_by(index, self.hardware.figures.nodes),
                intensity: 1.0,
                speed: Speed::default(),
                held_bytes: 0.0,
                share: 0.0,
                idle: 0.0,
                pace: 0.0,
                seen: Seen::default(),
            };
            self.next_pid += 1;
            self.threads.insert(thread.id, thread);
        }
        let process = Process {
            id,
            job: at,
            memory,
            started_ns: self.now_ns,
            threads_left: job.program.threads,
            ran_ns: 0.0,
        };
        self.processes.insert(id, process);
        self.progress[at].running = true;
        self.stale = true;
    }

    /// The pages of a process that starts with its threads on these CPUs.
    fn first_touch(&mut self, job: &Job, cpus: &[(CpuId, Arc<CpuSet>, bool)]) -> Memory {
        let hardware = &self.hardware;
        let used = &mut self.used_pages;
        let nodes = hardware.topology().nodes();
        let room = |used: &[u64], node: usize| {
            (nodes[node].memory_bytes / PAGE_BYTES).saturating_sub(used[node])
        };
        let with_memory: Vec<usize> = (0..nodes.len())
            .filter(|&node| nodes[node].has_memory())
            .collect();
        let node_of = |thread: Option<usize>| hardware.seat(cpus[thread.unwrap_or(0)].0).node;
        Memory::new(&job.program, PAGE_BYTES, |thread, pages| {
            let mut parts: Vec<(usize, u64)> = Vec::new();
            let wanted: Vec<(usize, u64)> = match &job.memory {
                Placement::FirstTouch => vec![(node_of(thread), pages)],
                Placement::On(node) => vec![(hardware.place(*node), pages)],
                Placement::Interleave => {
                    let among = with_memory.len() as u64;
                    let each = |at: u64| pages * (at + 1) / among - pages * at / among;
                    let places = with_memory.iter().zip(0..);
                    places.map(|(&node, at)| (node, each(at))).collect()
                }
                Placement::Split(parts) => {
                    let all: u64 = parts.iter().map(|&(_, parts)| u64::from(parts)).sum();
                    let mut before = 0;
                    let until =
                        |part: u64| (u128::from(pages) * u128::from(part) / u128::from(all)) as u64;
                    let each = |&(node, parts): &(NodeId, u32)| {
                        let from = until(before);
                        before += u64::from(parts);
                        (hardware.place(node), until(before) - from)
                    };
                    parts.iter().map(each).collect()
                }
            };
            for (node, mut left) in wanted {
                let mut by_distance = with_memory.clone();
                by_distance.sort_by(|&a, &b| {
                    let far = |to: usize| hardware.figures.latency_ns(node, to);
                    (a != node, far(a))
                        .partial_cmp(&(b != node, far(b)))
                        .expect("figures")
                });
                for to in by_distance {
                    let fits = left.min(room(used, to));
                    used[to] += fits;
                    left -= fits;
                    if fits > 0 {
                        parts.push((to, fits));
                    }
                }
                // Jobs that need more memory than the machine has are refused before a run begins.
                if left > 0 {
                    used[node] += left;
                    parts.push((node, left));
                }
            }
            parts
        })
    }
}
