//! What each guard of the governor refuses, in a sentence for those who ask why nothing moves.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use numaherd_herd::Guard;
use numaherd_quantity::count;

/// What a refusal by this guard means, and what the user can change about it.
pub fn meaning(guard: Guard) -> &'static str {
    match guard {
        Guard::UnknownThread => "the thread had ended or was not among those chosen",
        Guard::UnknownProcess => "the process had ended or was not among those chosen",
        Guard::UnknownCpu => "the machine has no such CPU",
        Guard::UnknownNode => "the machine has no such node, or it has no memory",
        Guard::Duplicate => "the policy named the same thread or pages twice; the first counted",
        Guard::HandsOff => "the thread must be left alone (kernel thread, real-time class)",
        Guard::ForeignAffinity => {
            "someone else has set the thread's affinity; --take-over places it anyway"
        }
        Guard::Offline => "the CPU is offline",
        Guard::Cpuset => {
            "the CPU or node is beyond the cpuset of its cgroup; widen that to allow it"
        }
        Guard::Limits => "the CPU or node is beyond --cpus or --nodes",
        Guard::Unchanged => "it already was as wanted",
        Guard::Bounce => "it moved back and forth too often, and stays for a while",
        Guard::Worse => "a move of it was just undone because it had made things worse",
        Guard::Rate => "more threads wanted to move than the limits let through",
        Guard::Bandwidth => "more pages wanted to move than the limits let through",
        Guard::VmRate => {
            "more threads of one virtual machine wanted to move than its limit lets through"
        }
        Guard::VmBandwidth => {
            "more pages of one virtual machine wanted to move than its limit lets through"
        }
        Guard::FullNode => "the target node is nearly full; some of its memory is kept free",
        Guard::Superseded => "a later order for the same pages took its place while it waited",
        Guard::Journal => {
            "the thread's own affinity could not be saved, so the thread was not touched"
        }
        _ => "a guard unknown to this program; use the version that wrote the ledger",
    }
}

/// How often each guard refused: `bounce 2, rate 1,204`; empty if none did.
pub(crate) fn each_refused(refusals: &BTreeMap<Guard, u64>) -> String {
    let each = refusals.iter();
    each.map(|(guard, &times)| format!("{guard} {}", count(times)))
        .join(", ")
}

/// Every guard that this program knows.
pub const ALL: [Guard; 20] = [
    Guard::UnknownThread,
    Guard::UnknownProcess,
    Guard::UnknownCpu,
    Guard::UnknownNode,
    Guard::Duplicate,
    Guard::HandsOff,
    Guard::ForeignAffinity,
    Guard::Offline,
    Guard::Cpuset,
    Guard::Limits,
    Guard::Unchanged,
    Guard::Bounce,
    Guard::Worse,
    Guard::Rate,
    Guard::Bandwidth,
    Guard::VmRate,
    Guard::VmBandwidth,
    Guard::FullNode,
    Guard::Superseded,
    Guard::Journal,
];

/// The settings that decide when a guard refuses, by their names under `[herd.limits]`; empty if no setting does.
pub fn settings(guard: Guard) -> &'static [&'static str] {
    match guard {
        Guard::ForeignAffinity => &["take_over"],
        Guard::Limits => &["cpus", "nodes"],
        Guard::Bounce => &[
            "bounce_limit",
            "thread_bounce_limit",
            "bounce_window_s",
            "freeze_s",
        ],
        Guard::Worse => &["worse.undo", "worse.share", "freeze_s"],
        Guard::Rate => &["moves_per_interval", "moves_per_second"],
        Guard::VmRate => &["vm_moves_per_second"],
        Guard::Bandwidth => &[
            "pages_mib_per_s",
            "process_pages_mib_per_s",
            "pages_burst_ms",
        ],
        Guard::VmBandwidth => &["vm_pages_mib_per_s"],
        Guard::FullNode => &["node_reserve"],
        _ => &[],
    }
}
