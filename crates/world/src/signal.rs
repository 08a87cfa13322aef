//! What a world can measure, and why not where it cannot.
//!
//! A policy states the signals it needs; the program refuses, or falls back to a named weaker
//! signal. No figure is ever invented for a signal that is missing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something a world can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// Share of a CPU that each thread used.
    CpuUse,
    /// Cache lines fetched from memory and instructions, per thread: the miss rate.
    MissRate,
    /// Lines fetched from the local node and from remote nodes, per thread.
    LocalRemote,
    /// Cycles with a request to the uncore outstanding and such requests, per thread: the uncore
    /// penalty (BRM §3.1).
    UncorePenalty,
    /// Single memory accesses of a thread with their address.
    MemorySamples,
    /// On which nodes each process's pages are.
    Residency,
    /// Which pages a node uses intensely and which threads share pages, by how long translations
    /// stay in the TLBs (IPM).
    TlbResidency,
    /// Single TLB misses of a thread with their address.
    TlbMisses,
    /// Single page faults that were provoked to see which thread uses a page (kernel NUMA
    /// balancing, kMAF).
    HintFaults,
}

impl Signal {
    /// Every signal, in the order people are shown them.
    pub const ALL: [Self; 9] = [
        Self::CpuUse,
        Self::MissRate,
        Self::LocalRemote,
        Self::UncorePenalty,
        Self::MemorySamples,
        Self::Residency,
        Self::TlbResidency,
        Self::TlbMisses,
        Self::HintFaults,
    ];
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuUse => "CPU use",
            Self::MissRate => "miss rate",
            Self::LocalRemote => "local and remote accesses",
            Self::UncorePenalty => "uncore penalty",
            Self::MemorySamples => "memory samples",
            Self::Residency => "page residency",
            Self::TlbResidency => "TLB residency",
            Self::TlbMisses => "TLB misses",
            Self::HintFaults => "hint faults",
        })
    }
}

/// Whether a signal is available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum SignalState {
    /// It is measured.
    Measured {
        /// By what, for instance `cpu/LLC-misses/ + prefetches`.
        source: String,
        /// What it misses or how far to trust it, if anything is to be said.
        caveat: Option<String>,
    },
    /// It is not available.
    Missing {
        /// Why: what was tried, on what, and what came back.
        reason: String,
        /// What would help: a capability, a setting, other hardware.
        remedy: String,
    },
}

/// A signal and whether it is available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReport {
    /// The signal.
    pub signal: Signal,
    /// Whether it is available.
    #[serde(flatten)]
    pub state: SignalState,
}

impl SignalReport {
    /// A signal that is measured.
    pub fn measured(signal: Signal, source: impl Into<String>, caveat: Option<String>) -> Self {
        let source = source.into();
        Self {
            signal,
            state: SignalState::Measured { source, caveat },
        }
    }

    /// A signal that is not available, and what would help.
    pub fn missing(signal: Signal, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (reason, remedy) = (reason.into(), remedy.into());
        Self {
            signal,
            state: SignalState::Missing { reason, remedy },
        }
    }

    /// Whether the signal is measured.
    pub fn is_measured(&self) -> bool {
        matches!(self.state, SignalState::Measured { .. })
    }
}
