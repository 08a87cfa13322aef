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
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// The policy goes by what layouts would cost, and the world cannot be asked.
    #[error(
        "{asked:?} places threads by what every layout would cost, which only a modelled world can \
         tell: simulate it, or choose another policy"
    )]
    NeedsForesight {
        /// What was asked for.
        asked: String,
    },
    /// Settings that cannot be read.
    #[error("cannot read the settings of policies: {reason}")]
    Settings {
        /// What the reader says, with line and column.
        reason: String,
    },
    /// A setting that cannot be.
    #[error("{key} is {value}, but must {must}")]
    Setting {
        /// Which key, dotted.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is required of it.
        must: &'static str,
    },
}
