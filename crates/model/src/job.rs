//! What is run on a modelled machine, and until when.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::Tag;

use crate::program::Program;

/// One program to run: a process, which is started again whenever it has ended.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it asks of the machine.
    pub program: Arc<Program>,
    /// Which node its pages are on when it starts.
    pub memory: Placement,
    /// Where its threads may run.
    pub binding: Binding,
    /// When it is first started, since the world began.
    pub starts_after: Duration,
    /// Whether its completions count; the others only keep the machine busy.
    pub measured: bool,
    /// Jobs of the same gang wait for each other at every step, as the ranks of an MPI job do: all run at the speed of
    /// the slowest. They wait busily: to the kernel they use their CPU.
    pub gang: Option<u32>,
    /// The tag of its threads, which says whether they are sensitive to the node they run on. Without one, a mask of
    /// the user's own ([`Binding::Within`], [`Binding::Each`]) is their tag.
    pub tag: Option<Tag>,
}

impl Job {
    /// A job of a program that starts at once, is measured, and is left to the kernel.
    pub fn new(program: Arc<Program>) -> Self {
        Self {
            program,
            memory: Placement::FirstTouch,
            binding: Binding::Free,
            starts_after: Duration::ZERO,
            measured: true,
            gang: None,
            tag: None,
        }
    }

    /// The same with its threads tagged.
    pub fn tagged(mut self, tag: Tag) -> Self {
        self.tag = Some(tag);
        self
    }

    /// The same with all its pages on one node.
    pub fn homed(mut self, node: NodeId) -> Self {
        self.memory = Placement::On(node);
        self
    }

    /// The same with its threads on these CPUs, one after the other and round again.
    pub fn on(mut self, cpus: Vec<CpuId>) -> Self {
        self.binding = Binding::Each(cpus);
        self
    }
}

/// Where a process's pages are when it starts. Pages that a full node has no room for go to the nearest node with room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each thread's pages on the node it starts on, shared ones on the first thread's.
    FirstTouch,
    /// All on one node.
    On(NodeId),
    /// Evenly over all nodes with memory.
    Interleave,
    /// Each thread's pages, and the shared ones, are split over these nodes in proportion to the numbers, like the
    /// memory of a virtual machine that no single node has room for, and whose own kernel does not know where it is.
    Split(Vec<(NodeId, u32)>),
}

/// Where the threads of a process may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Anywhere.
    Free,
    /// Started on these CPUs, one after the other and round again, and free from then on.
    StartOn(Vec<CpuId>),
    /// Anywhere on these CPUs: the user's own affinity, which nobody may change.
    Within(CpuSet),
    /// Each thread on one CPU, one after the other and round again: the user's own affinity.
    Each(Vec<CpuId>),
}

/// When a run is over. Until then, jobs are started again when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every measured job has completed this many times.
    Completions(u32),
    /// This much time has passed.
    Time(Duration),
}

/// One completed run of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Completion {
    /// The job's index in the list.
    pub job: usize,
    /// Which run of the job, from 0.
    pub run: u32,
    /// When it was started, in seconds since the world began.
    pub started_s: f64,
    /// When its last thread ended.
    pub ended_s: f64,
    /// Mean time that its threads ran, each to its own end, in seconds.
    pub thread_s: f64,
}

impl Completion {
    /// How long it took, in seconds.
    pub fn seconds(&self) -> f64 {
        self.ended_s - self.started_s
    }
}

/// What a job has done in all its runs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Instructions of all threads.
    pub instructions: f64,
    /// Time that its threads were on a CPU or waiting for one, in seconds, added up.
    pub active_s: f64,
    /// Cache lines read from memory.
    pub lines: f64,
    /// Of those, from other nodes.
    pub remote_lines: f64,
    /// Requests that left the cores' own caches, prefetches not counted.
    pub requests: f64,
    /// Time in ns with at least one request of a thread outstanding, summed over the threads.
    pub requested_ns: f64,
    /// Thread moves between memory domains.
    pub thread_moves: u64,
    /// Base pages moved.
    pub pages_moved: u64,
}

impl Work {
    /// The uncore penalty in ns per request (BRM §3.1); `None` where nothing was requested.
    pub fn uncore_penalty_ns(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| self.requested_ns / self.requests)
    }

    /// Lines from memory per 1000 instructions; `None` before anything was done.
    pub fn miss_rate(&self) -> Option<f64> {
        (self.instructions > 0.0).then(|| self.lines * 1000.0 / self.instructions)
    }

    /// Mean time of one request in seconds, for a program that serves requests of `request_instructions` each; `None`
    /// before anything was done.
    pub fn seconds_per_request(&self, request_instructions: f64) -> Option<f64> {
        let requests = self.instructions / request_instructions;
        (requests > 0.0).then(|| self.active_s / requests)
    }
}
