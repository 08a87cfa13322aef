//! What can go wrong when a policy is asked for. Deciding itself cannot fail.

/// Why there is no such policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is not that of a policy, placement or paging.
    #[error(
        "there is no {kind} named {asked:?}{}; choose one of: {}",
        nearest.as_ref().map(|n| format!(" (did you mean {n:?}?)")).unwrap_or_default(),
        known.join(", ")
    )]
    Unknown {
        /// Policy, placement or paging.
        kind: &'static str,
        /// What was asked for.
        asked: String,
        /// The known name that is nearest to it, if one is near.
        nearest: Option<&'static str>,
        /// All known names.
        known: Vec<&'static str>,
    },
    /// The policy needs the costs of layouts, which the world cannot predict.
    #[error(
        "{asked:?} needs the cost of every layout, which only modelled worlds know: simulate it, or choose another policy"
    )]
    NeedsCostModel {
        /// What was asked for.
        asked: String,
    },
    /// The placement needs to know which threads share pages, and the paging does not find that
    /// out.
    #[error(
        "{asked:?} is not possible: the placement {placement} needs to know which threads share pages, but the paging {paging} does not measure that; combine it with one that does: {}",
        finders.join(", ")
    )]
    NeedsFoundSharing {
        /// What was asked for.
        asked: String,
        /// Its placement.
        placement: &'static str,
        /// Its paging.
        paging: &'static str,
        /// The pagings that would do.
        finders: Vec<&'static str>,
    },
    /// Groups of processes whose policies cannot be combined.
    #[error("these groups cannot be herded together: {why}")]
    Groups {
        /// Which, why, and what to do.
        why: String,
    },
}
