//! The error of the crate: something was asked for that the ledger does not contain.

/// Why nothing can be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShowError {
    /// A process that the ledger does not hold.
    #[error("the ledger contains no process {pid}; {known}")]
    NoSuchProcess {
        /// The number asked for.
        pid: u32,
        /// The processes that it holds, as a phrase.
        known: String,
    },
    /// A thread that the ledger does not hold.
    #[error("the ledger contains no thread {tid}{of}; {known}")]
    NoSuchThread {
        /// The number asked for.
        tid: u32,
        /// The process it was looked for in, as a phrase after the number; may be empty.
        of: String,
        /// The threads that it holds, as a phrase.
        known: String,
    },
    /// A name that no process and no thread has.
    #[error("the ledger contains no process or thread named {name}; {known}")]
    NoSuchName {
        /// The name asked for.
        name: String,
        /// The processes that it holds, as a phrase.
        known: String,
    },
    /// A record that holds no decision.
    #[error("there is no decision #{record}: {why}; {known}")]
    NoSuchDecision {
        /// The number asked for.
        record: u64,
        /// What it is instead.
        why: String,
        /// The decisions nearest to it, as a phrase.
        known: String,
    },
    /// A span of time in which nothing was decided.
    #[error("nothing was decided {when}; {known}")]
    NothingThen {
        /// The span, as a phrase.
        when: String,
        /// The decisions nearest to it, as a phrase.
        known: String,
    },
}
