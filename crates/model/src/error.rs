//! What can go wrong before a model runs.

/// Why a model, or a part of one, cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The machine file lacks figures that the model needs.
    #[error(
        "the machine {machine} cannot be modelled: it has no figure for {missing}; take another \
         machine, or add what is missing to a file of your own (`--machine FILE`)"
    )]
    Machine {
        /// The machine's name.
        machine: String,
        /// The keys of the machine file, comma-separated.
        missing: String,
    },
}
