//! What a running herd was asked, and what came of it, as recorded.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// A request, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Controlled {
    /// The asker's name, as given; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What was asked.
    #[serde(flatten)]
    pub asked: Asked,
    /// Why it was refused, in a sentence; `None` if it was done. A refused request changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A request as read: the members of all kinds, so that serde need not keep them until it knows the kind.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    by: String,
    asked: Kind,
    #[serde(default)]
    refused: Option<String>,
    #[serde(default)]
    give_back: bool,
    #[serde(default)]
    given_back: u64,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    settings: Option<Box<Settings>>,
    #[serde(default)]
    why: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Pause,
    Resume,
    Change,
}

impl From<Written> for Controlled {
    fn from(written: Written) -> Self {
        Self {
            by: written.by,
            asked: match written.asked {
                Kind::Pause => Asked::Pause {
                    give_back: written.give_back,
                    given_back: written.given_back,
                },
                Kind::Resume => Asked::Resume,
                Kind::Change => Asked::Change {
                    policy: written.policy,
                    settings: written.settings,
                    why: written.why,
                },
            },
            refused: written.refused,
        }
    }
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "asked", rename_all = "kebab-case")]
pub enum Asked {
    /// To decide and carry out nothing until resumed.
    Pause {
        /// Whether threads were to get back their affinities; their orders and outcomes are in the `placing`
        /// and `outcome` before this record.
        give_back: bool,
        /// How many got them back.
        given_back: u64,
    },
    /// To go on after a pause.
    Resume,
    /// To go on with another policy or other settings.
    Change {
        /// The policy's name, if another one was asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
        /// The settings from now on, as used; `None` if the change was refused, or only had something
        /// recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        settings: Option<Box<Settings>>,
        /// Why, in the words of the one who asked.
        why: String,
    },
}

/// What a request changed. `None` means unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Changed<'c> {
    /// Whether the herd is paused from now on.
    pub paused: Option<bool>,
    /// The policy from now on.
    pub policy: Option<&'c str>,
    /// The settings from now on, as used.
    pub settings: Option<&'c Settings>,
}

impl Controlled {
    /// What it changes from now on: nothing if it was refused.
    pub fn changed(&self) -> Changed<'_> {
        if self.refused.is_some() {
            return Changed::default();
        }
        match &self.asked {
            Asked::Pause { .. } => Changed {
                paused: Some(true),
                ..Changed::default()
            },
            Asked::Resume => Changed {
                paused: Some(false),
                ..Changed::default()
            },
            Asked::Change {
                policy, settings, ..
            } => Changed {
                paused: None,
                policy: policy.as_deref(),
                settings: settings.as_deref(),
            },
        }
    }
}
