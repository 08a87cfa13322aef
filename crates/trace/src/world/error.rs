//! Why a trace cannot be played on a machine.

/// Why a trace cannot be played on a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The machine file says too little or what cannot be.
    #[error(transparent)]
    NotModelled(#[from] numaherd_hardware::NotModelled),
    /// The machine's description or its memory is at odds with itself.
    #[error("the machine {machine} cannot be built: {reason}")]
    Machine {
        /// Its name.
        machine: String,
        /// What is wrong.
        reason: String,
    },
    /// The IPM unit cannot be had as configured.
    #[error("the IPM unit cannot be had: {0}; change `ipm`, or leave it out")]
    Unit(numaherd_hardware::ConfigError),
    /// An option cannot be.
    #[error("{option} is {value}; it must be {must}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        must: &'static str,
    },
    /// A given placement names what is not there.
    #[error("the given placement {0}")]
    Start(String),
    /// There is nothing to play.
    #[error("the trace has no threads")]
    NoThreads,
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] crate::Error),
}
