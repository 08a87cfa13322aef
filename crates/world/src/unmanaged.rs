//! Why a thread is not managed: what a world says of threads that must be left alone.

use std::fmt;
use std::sync::Arc;

use numaherd_topology::CpuSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a thread must be left alone. Policies count such a thread as being there and never place it.
///
/// Ledgers of older programs have a sentence instead, and those of later ones may have further reasons; both
/// are read as [`Unmanaged::Other`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "why", rename_all = "kebab-case")]
pub enum Unmanaged {
    /// It is a thread of the kernel's own.
    KernelThread,
    /// The kernel does not let its affinity be set.
    FixedAffinity,
    /// It is in a real-time class, which decides when and where it runs.
    RealTime {
        /// The class as the kernel names it, for instance `SCHED_FIFO`.
        class: String,
        /// Its priority in the class, from 1.
        priority: u64,
    },
    /// It is in the deadline class.
    Deadline,
    /// Its user set its affinity.
    UserAffinity {
        /// The CPUs that the user chose, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<CpuSet>,
    },
    /// Its process is in a group without a policy.
    Group {
        /// The group.
        name: Arc<str>,
    },
    /// It is managed, but by another group's policy than the one that looks at it.
    OtherPolicy,
    /// Another reason, in words.
    Other {
        /// The reason, a few words.
        text: String,
    },
}

impl Unmanaged {
    /// A reason in words.
    pub fn other(text: impl Into<String>) -> Self {
        Self::Other { text: text.into() }
    }
}

impl fmt::Display for Unmanaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelThread => f.write_str("kernel thread"),
            Self::FixedAffinity => f.write_str("the kernel does not let its affinity be set"),
            Self::RealTime { class, priority } => {
                write!(f, "real-time class ({class} {priority})")
            }
            Self::Deadline => f.write_str("deadline class (SCHED_DEADLINE)"),
            Self::UserAffinity { cpus: Some(cpus) } => {
                write!(f, "its affinity {cpus} was set by its user")
            }
            Self::UserAffinity { cpus: None } => f.write_str("its user set its affinity"),
            Self::Group { name } => write!(f, "group {name}: no policy"),
            Self::OtherPolicy => f.write_str("it is of another group"),
            Self::Other { text } => f.write_str(text),
        }
    }
}

// `remote = "Self"` derives plain functions, so that the sentences of older programs can be read beside
// them.
impl Serialize for Unmanaged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Unmanaged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Sentence(String),
            Reason(#[serde(with = "Unmanaged")] Unmanaged),
            OfLaterProgram { why: String },
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Sentence(text) => Self::Other { text },
            Written::Reason(reason) => reason,
            Written::OfLaterProgram { why } => Self::Other {
                text: why.replace('-', " "),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_back_and_a_sentence_is_one_too() {
        for reason in [
            Unmanaged::KernelThread,
            Unmanaged::FixedAffinity,
            Unmanaged::RealTime {
                class: "SCHED_RR".to_owned(),
                priority: 9,
            },
            Unmanaged::Deadline,
            Unmanaged::UserAffinity {
                cpus: Some("0-3".parse().unwrap()),
            },
            Unmanaged::UserAffinity { cpus: None },
            Unmanaged::Group { name: "web".into() },
            Unmanaged::OtherPolicy,
            Unmanaged::other("because"),
        ] {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(
                serde_json::from_str::<Unmanaged>(&text).unwrap(),
                reason,
                "{text}"
            );
        }
        let old: Unmanaged = serde_json::from_str("\"kernel thread\"").unwrap();
        assert_eq!(old, Unmanaged::other("kernel thread"));
        let later: Unmanaged = serde_json::from_str(r#"{"why":"in-a-museum","room":7}"#).unwrap();
        assert_eq!(later, Unmanaged::other("in a museum"));
    }
}
