//! Why something cannot be modelled.

use crate::memory::Span;

/// Why a machine, its memory or an IPM unit cannot be modelled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HardwareError {
    /// A figure, the length of a list or a count is out of range.
    #[error("{what} is {value}; it must be {must}")]
    Figure {
        /// The field.
        what: String,
        /// What it holds.
        value: f64,
        /// What it may hold.
        must: String,
    },
    /// An IPM unit is asked for on a machine without TLBs.
    #[error(
        "the machine has no TLBs for the IPM unit to watch; add them (key tlb), or omit the IPM unit"
    )]
    NoTlb,
    /// The same link direction is given twice.
    #[error("the link from node {from} to node {to} is given twice")]
    LinkTwice {
        /// Node that sends.
        from: usize,
        /// Node that receives.
        to: usize,
    },
    /// Links are given, but two nodes are not joined.
    #[error(
        "no path over the links from node {from} to node {to}; add a link, or omit all links if none is a bottleneck"
    )]
    NoRoute {
        /// Node that would send.
        from: usize,
        /// Node that would receive.
        to: usize,
    },
    /// A machine file leaves out a key.
    #[error(
        "the machine {machine} cannot be modelled access by access: its file does not give {key}, which the hardware model needs"
    )]
    Missing {
        /// The machine's name.
        machine: String,
        /// The key.
        key: String,
    },
    /// The cores of a memory domain do not share the last cache.
    #[error(
        "the machine {machine} cannot be modelled access by access: its last cache is not shared by a memory domain, which the hardware model needs"
    )]
    NotShared {
        /// The machine's name.
        machine: String,
    },
    /// A machine file has a figure that the model cannot hold.
    #[error("the machine {machine} cannot be modelled access by access: {source}")]
    Machine {
        /// The machine's name.
        machine: String,
        /// What is wrong.
        source: Box<Self>,
    },
    /// A part of memory ends before it starts.
    #[error("the memory of node {} ends at {:#x}, before its start at {:#x}", .0.node, .0.end, .0.start)]
    Backwards(Span),
    /// Two parts of memory overlap.
    #[error("the memory of node {} from {:#x} overlaps that of node {}, which ends at {:#x}", .1.node, .1.start, .0.node, .0.end)]
    Overlap(Span, Span),
    /// There is no memory at all.
    #[error("no node has any memory")]
    NoMemory,
}

/// Checks a figure.
///
/// # Errors
/// [`HardwareError::Figure`] unless it `holds`.
pub(crate) fn check(
    what: impl ToString,
    value: f64,
    holds: bool,
    must: impl ToString,
) -> Result<(), HardwareError> {
    if holds {
        return Ok(());
    }
    Err(HardwareError::Figure {
        what: what.to_string(),
        value,
        must: must.to_string(),
    })
}

/// Checks that a figure is a number above 0.
pub(crate) fn positive(what: impl ToString, value: f64) -> Result<(), HardwareError> {
    check(what, value, value.is_finite() && value > 0.0, "more than 0")
}

/// Checks that a figure is a number from 0 on.
pub(crate) fn not_negative(what: impl ToString, value: f64) -> Result<(), HardwareError> {
    check(what, value, value.is_finite() && value >= 0.0, "0 or more")
}
