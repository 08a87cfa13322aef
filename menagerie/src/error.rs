//! All errors, worded for users.

use numaherd_topology::{CpuId, CpuSet, NodeId, NodeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Why a run failed. The exit code is 2 for errors of the command line, 1 otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--home` names a node that the machine does not have.
    #[error("--home {node}: the machine has no such memory node; it has {present}")]
    NoSuchNode { node: NodeId, present: NodeSet },
    /// `--home` names a node without memory.
    #[error("--home {node}: the node has CPUs but no memory; choose one of {present}")]
    NodeWithoutMemory { node: NodeId, present: NodeSet },
    /// A CPU named is offline, absent, or outside this process's affinity or cpuset.
    #[error("{option} {cpu}: this process may not run there; it may run on CPUs {allowed}")]
    CpuNotAllowed {
        option: &'static str,
        cpu: CpuId,
        allowed: CpuSet,
    },
    /// More memory than there are addresses.
    #[error(
        "{count} times {} is larger than any address space: lower --working-set or --threads",
        numaherd_quantity::bytes(*each)
    )]
    TooLarge { count: usize, each: usize },
    /// A level that no access pattern can reach.
    #[error("--levels {level}: {access} reaches at most {most:.0} lines per 1000 instructions")]
    LevelTooHigh {
        level: f64,
        access: &'static str,
        most: f64,
    },
    /// Neither a list nor shared words.
    #[error("--working-set 0 --sharing-size 0: there is nothing to touch; raise one of the two")]
    NothingToTouch,
    /// Fewer lines than threads.
    #[error(
        "--working-set {bytes}: {threads} threads share it out, and each needs a line of 64 bytes at least; raise it, or give 0 for no lists"
    )]
    ListTooShort { bytes: usize, threads: usize },
    /// A channel that processes cannot use.
    #[error(
        "--via futex --processes: a futex is shared by the threads of one process; leave one of the two out"
    )]
    FutexBetweenProcesses,
    /// `--go-file` is not a FIFO.
    #[error("--go-file {}: not a FIFO; make one with mkfifo, and release all who wait by opening it for writing", path.display())]
    NotAFifo { path: PathBuf },
    /// More memory than is free, detected before the kernel kills a process for it.
    #[error(
        "{} of memory are needed, but {place} has only {} available: lower --working-set or --threads",
        numaherd_quantity::bytes(*wanted), numaherd_quantity::bytes(*available)
    )]
    NotEnoughMemory {
        wanted: usize,
        available: usize,
        place: String,
    },
    /// A kernel's arrays do not fit.
    #[error(
        "{kernel} needs at least {} of memory, but {place} has only {} available: choose a smaller --class",
        numaherd_quantity::bytes(*wanted), numaherd_quantity::bytes(*available)
    )]
    ClassTooLarge {
        kernel: String,
        wanted: usize,
        available: usize,
        place: String,
    },
    /// The kernel gave no addresses.
    #[error("could not map {} of memory: {source}; lower --working-set or --class, or raise the limit (ulimit -v, vm.overcommit_memory)", numaherd_quantity::bytes(*bytes))]
    Map { bytes: usize, source: io::Error },
    /// A kernel without transparent huge pages.
    #[error(
        "could not ask for or forbid transparent huge pages: {source}; this kernel may be built without them: leave --thp out"
    )]
    HugePages { source: io::Error },
    /// The kernel refused to bind memory to its home.
    #[error("could not bind {} of memory to node {node}: {source}{}", numaherd_quantity::bytes(*bytes), bind_advice(source, "--home"))]
    Bind {
        bytes: usize,
        node: NodeId,
        source: io::Error,
    },
    /// The kernel refused to interleave memory over nodes.
    #[error("could not interleave {} of memory over nodes {nodes}: {source}{}", numaherd_quantity::bytes(*bytes), bind_advice(source, "--memory interleave"))]
    Interleave {
        bytes: usize,
        nodes: NodeSet,
        source: io::Error,
    },
    /// The kernel gave addresses but no pages.
    #[error("could not touch {} of memory first: {source}; lower --working-set or --class, or free memory", numaherd_quantity::bytes(*bytes))]
    Populate { bytes: usize, source: io::Error },
    /// A thread's affinity could not be set.
    #[error(
        "could not let a thread run on CPUs {cpus} only: {source}; a CPU may have gone offline or the cpuset may have changed"
    )]
    Affinity { cpus: CpuSet, source: io::Error },
    /// The kernel refused to start a thread.
    #[error(
        "could not start thread {index}: {source}; lower --threads, or raise the limit (ulimit -u, pids.max of the cgroup)"
    )]
    Thread { index: usize, source: io::Error },
    /// A file of the kernel or of the harness could not be used.
    #[error("could not {action} {}: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A kernel file does not have its documented form.
    #[error("{}: {text:?} is not {expected}", path.display())]
    Malformed {
        path: PathBuf,
        text: String,
        expected: &'static str,
    },
    /// Signals, pipes: fails only if the process is out of descriptors or memory.
    #[error("could not {action}: {source}")]
    System {
        action: &'static str,
        source: io::Error,
    },
    /// The serving half of a pair has ended.
    #[error("the server of pair {pair} stopped answering: {source}")]
    Server { pair: usize, source: io::Error },
}

/// Advice after the kernel refused an `mbind` for `option`.
fn bind_advice(source: &io::Error, option: &str) -> String {
    match source.raw_os_error() {
        Some(libc::EPERM) => format!(
            "; a container's seccomp profile forbids mbind: allow it, give CAP_SYS_NICE, or leave {option} out"
        ),
        Some(libc::EINVAL) => {
            "; the process's cpuset may forbid the node (Mems_allowed in /proc/self/status)"
                .to_owned()
        }
        Some(libc::ENOSYS) => {
            format!("; this kernel is built without NUMA: leave {option} out")
        }
        _ => String::new(),
    }
}

impl Error {
    /// An error of `action` on `path`.
    pub fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
        move |source| Error::File {
            action,
            path: path.to_path_buf(),
            source,
        }
    }

    /// An error of `action`.
    pub fn system(action: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::System { action, source }
    }

    /// 2 for a command line that cannot work on this machine, 1 for a failure during the run.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NoSuchNode { .. }
            | Error::NodeWithoutMemory { .. }
            | Error::CpuNotAllowed { .. }
            | Error::TooLarge { .. }
            | Error::LevelTooHigh { .. }
            | Error::NothingToTouch
            | Error::ListTooShort { .. }
            | Error::FutexBetweenProcesses
            | Error::NotAFifo { .. } => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_binding_says_what_to_do() {
        let message = |code| {
            let source = io::Error::from_raw_os_error(code);
            Error::Bind {
                bytes: 64 << 20,
                node: NodeId(1),
                source,
            }
            .to_string()
        };
        insta::assert_snapshot!(message(libc::EPERM), @"could not bind 64 MiB of memory to node 1: Operation not permitted (os error 1); a container's seccomp profile forbids mbind: allow it, give CAP_SYS_NICE, or leave --home out");
        insta::assert_snapshot!(message(libc::EINVAL), @"could not bind 64 MiB of memory to node 1: Invalid argument (os error 22); the process's cpuset may forbid the node (Mems_allowed in /proc/self/status)");
        insta::assert_snapshot!(message(libc::ENOSYS), @"could not bind 64 MiB of memory to node 1: Function not implemented (os error 38); this kernel is built without NUMA: leave --home out");
    }

    #[test]
    fn pages_refused_are_a_failure_and_say_so() {
        let source = io::Error::from_raw_os_error(libc::ENOMEM);
        let error = Error::Populate {
            bytes: 64 << 20,
            source,
        };
        insta::assert_snapshot!(error.to_string(), @"could not touch 64 MiB of memory first: Cannot allocate memory (os error 12); lower --working-set or --class, or free memory");
        assert_eq!(error.exit_code(), 1);
    }
}
