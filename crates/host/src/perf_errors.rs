//! Why the kernel refused a counter, and what would help: permission, hardware, kernel and limits
//! told apart.

use std::fmt;

use numaherd_world::{Signal, SignalReport};

use crate::files::Root;
use crate::kernel::Errno;
use crate::proc::cpuinfo::Processor;
use crate::proc::status::{self, Status};

/// Capability numbers (include/uapi/linux/capability.h).
pub(crate) const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
pub(crate) const SYS_NICE: u32 = 23;
const PERFMON: u32 = 38;

/// Why something cannot be had, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

impl Refusal {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// The report of a signal that is missing for this reason.
    pub(crate) fn of(&self, signal: Signal) -> SignalReport {
        SignalReport::missing(signal, &self.reason, &self.remedy)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

/// This program's rights and this machine's properties, which explain refusals.
#[derive(Clone, Debug)]
pub(crate) struct Reasons {
    /// `kernel.perf_event_paranoid`; `None` if the kernel has no perf events.
    pub(crate) paranoid: Option<i32>,
    own: Status,
    /// Whether system calls go through a filter.
    pub(crate) filtered: bool,
    pub(crate) hypervisor: bool,
}

impl Reasons {
    pub(crate) fn new(root: &Root, processor: &Processor) -> Self {
        let own = root
            .read("proc/self/status")
            .map(|text| status::parse(&text))
            .unwrap_or_default();
        Self {
            paranoid: root.number("proc/sys/kernel/perf_event_paranoid"),
            filtered: own.seccomp == Some(2),
            own,
            hypervisor: processor.hypervisor,
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.own.has(capability)
    }

    pub(crate) fn may_watch_all(&self) -> bool {
        self.has(PERFMON) || self.has(SYS_ADMIN)
    }

    pub(crate) fn may_steer_others(&self) -> bool {
        self.has(SYS_NICE)
    }

    pub(crate) fn may_look_into_others(&self) -> bool {
        self.has(SYS_PTRACE)
    }

    /// Why an event could not be opened.
    pub(crate) fn counters(&self, event: &str, errno: Errno) -> Refusal {
        let paranoid = self.paranoid;
        let denied = format!(
            "permission denied; kernel.perf_event_paranoid is {} and the program lacks CAP_PERFMON",
            paranoid.map_or("unknown".to_owned(), |paranoid| paranoid.to_string())
        );
        let (why, remedy) = match errno {
            // Nothing is counted there, whatever the event.
            Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO if self.hypervisor => {
                return Refusal::new(
                    "this virtual machine has no performance counters",
                    "give it a virtual PMU (QEMU: -cpu host,pmu=on; many clouds: a metal or \
                     whole-socket size), or use hardware or the lab",
                );
            }
            Errno::NOSYS if paranoid.is_none() => {
                return Refusal::new(
                    "the kernel has no perf events (CONFIG_PERF_EVENTS)",
                    "use a kernel built with them",
                );
            }
            Errno::ACCESS | Errno::PERM if self.may_watch_all() || paranoid == Some(-1) => (
                "refused although permitted, as a system call filter does",
                "run outside the container, or allow perf_event_open in its seccomp profile",
            ),
            Errno::ACCESS | Errno::PERM => (
                denied.as_str(),
                "run as root, give it CAP_PERFMON (setcap cap_perfmon,cap_sys_nice,\
                 cap_sys_ptrace+ep), or set sysctl kernel.perf_event_paranoid=0",
            ),
            Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::NXIO => (
                "this processor, or the kernel's driver for it, has no such event",
                "use a kernel that knows this processor, or the lab",
            ),
            Errno::NOSYS => (
                "a system call filter hides perf_event_open",
                "run outside the container, or allow perf_event_open in its seccomp profile",
            ),
            Errno::MFILE | Errno::NFILE => ("too many open files", "raise the limit (ulimit -n)"),
            Errno::INVAL | Errno::NOSPC => (
                "this processor cannot count it, or not together with the others of its group",
                "stop other users of the counters (sysctl kernel.nmi_watchdog=0), or describe other \
                 events in a file of your own (--events FILE)",
            ),
            Errno::BUSY => (
                "another profiler holds the counter exclusively",
                "stop the other profiler, or the NMI watchdog (sysctl kernel.nmi_watchdog=0)",
            ),
            _ => (
                "unexpected; see perf_event_open(2)",
                "report it with the output of numaherd doctor",
            ),
        };
        Refusal::new(format!("cannot count {event}: {why} ({errno})"), remedy)
    }
}
