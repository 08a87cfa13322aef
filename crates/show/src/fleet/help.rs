//! What would help a host, from what it loses and how it is herded.
//!
//! Rule, the first that fits: counters, where lost cores are not known, unless most CPU time belongs to threads that
//! are not judged; counters, where only a bound is known and it is a hundredth of the CPUs or more; nothing, where less
//! than a hundredth of the CPUs is lost; time, where no search has ended yet; less load, where no placement would give
//! back a hundredth of the CPUs; otherwise what the placement lacks: the end of a pause, a policy that places threads,
//! the end of a dry run, or another policy than that in use.

use numaherd_policy::losses::Unknown;
use numaherd_policy::placement::adaptive::LEAST_GAIN;
use numaherd_policy::registry::POLICIES;
use serde::Serialize;

use super::Host;
use crate::losses::why;

/// What would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Help {
    /// Nothing needs help.
    Nothing,
    /// To end a pause.
    Resume,
    /// To end a dry run.
    CarryOut,
    /// A policy that places threads.
    Place,
    /// Another policy.
    OtherPolicy,
    /// Less load: no placement would help.
    LessLoad,
    /// Time: the search for a better placement has no result yet.
    Wait,
    /// Counters, or the uncore penalty.
    Counters,
    /// Nothing, because most CPU time belongs to threads that are not judged.
    NotJudged,
    /// A program that records lost cores.
    NewerProgram,
}

impl Help {
    /// What would help a host whose other fields are set; `unknown` is why its lost cores are not known.
    pub(super) fn of(host: &Host, unknown: Option<Unknown>) -> Self {
        let worth = LEAST_GAIN * host.cpus as f64;
        let Some(lost) = &host.lost else {
            return match unknown {
                Some(Unknown::FewJudged) => Self::NotJudged,
                Some(Unknown::NotCounted | Unknown::NotSeen) => Self::Counters,
                None => Self::Nothing,
            };
        };
        match lost.mean {
            None if lost.most >= worth => return Self::Counters,
            Some(mean) if mean >= worth => {}
            _ => return Self::Nothing,
        }
        let recoverable = host.recoverable.as_ref().and_then(|range| range.mean);
        match recoverable {
            None => Self::Wait,
            Some(recoverable) if recoverable < worth => Self::LessLoad,
            Some(_) if host.paused => Self::Resume,
            Some(_) if !places_threads(&host.policy) => Self::Place,
            Some(_) if host.dry_run => Self::CarryOut,
            Some(_) => Self::OtherPolicy,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing: hardly any core is lost",
            Self::Resume => "to end its pause: `numaherd ctl resume`",
            Self::CarryOut => "to end the dry run: `dry_run = false`, then `numaherd ctl reload`",
            Self::Place => "a policy that places threads: `numaherd ctl policy adaptive`",
            Self::OtherPolicy => "another policy: `numaherd replay LEDGER` compares them",
            Self::LessLoad => "less load: no other placement would have much of it",
            Self::Wait => "to wait: what another placement would recover is not known yet",
            Self::Counters => {
                "counters: without them only a bound is known, or nothing; `numaherd doctor` says what they lack"
            }
            Self::NotJudged => why(Unknown::FewJudged),
            Self::NewerProgram => "a newer program: this one did not record lost cores",
        }
    }

    /// The same for a column of a table.
    pub(super) fn brief(self) -> &'static str {
        match self {
            Self::Nothing => "nothing needed",
            Self::Resume => "ctl resume",
            Self::CarryOut => "end the dry run",
            Self::Place => "ctl policy adaptive",
            Self::OtherPolicy => "another policy",
            Self::LessLoad => "less load",
            Self::Wait => "not searched yet",
            Self::Counters => "counters: doctor",
            Self::NotJudged => "small threads, not judged",
            Self::NewerProgram => "a newer program",
        }
    }
}

/// Whether a policy has a placement of its own. Before a `+`, a name stands for its placement.
fn places_threads(policy: &str) -> bool {
    let placement = policy.split('+').next().unwrap_or_default();
    let known = POLICIES.iter().find(|known| known.name == placement);
    known.map_or(placement, |known| known.placement) != "linux"
}

#[cfg(test)]
mod tests {
    use numaherd_policy::losses::{Basis, Range};

    use super::*;

    fn range(mean: f64) -> Range {
        Range {
            least: mean / 2.0,
            mean: Some(mean),
            most: mean * 2.0,
        }
    }

    /// A host of 64 CPUs that loses 8 cores; another placement would give back 4.
    fn host() -> Host {
        Host {
            name: "n1".to_owned(),
            cpus: 64,
            policy: "linux".to_owned(),
            dry_run: false,
            paused: false,
            basis: Some(Basis::Uncore),
            lost: Some(range(8.0)),
            recoverable: Some(range(4.0)),
            parts: None,
            help: Help::Nothing,
        }
    }

    #[test]
    fn what_helps_is_what_is_missing() {
        let of = |change: fn(&mut Host)| {
            let mut host = host();
            change(&mut host);
            Help::of(&host, None)
        };
        assert_eq!(of(|_| {}), Help::Place);
        assert_eq!(
            of(|host| host.policy = "first-touch".to_owned()),
            Help::Place
        );
        assert_eq!(
            of(|host| host.policy = "linux+window".to_owned()),
            Help::Place
        );
        assert_eq!(
            of(|host| host.policy = "dino+stay".to_owned()),
            Help::OtherPolicy
        );
        assert_eq!(of(|host| host.paused = true), Help::Resume);
        let dry = of(|host| (host.dry_run, host.policy) = (true, "dino".to_owned()));
        assert_eq!(dry, Help::CarryOut);
        assert_eq!(
            of(|host| host.recoverable = Some(range(0.1))),
            Help::LessLoad
        );
        assert_eq!(of(|host| host.recoverable = None), Help::Wait);
        assert_eq!(of(|host| host.lost = Some(range(0.3))), Help::Nothing);
        assert_eq!(
            of(|host| host.lost.as_mut().unwrap().mean = None),
            Help::Counters
        );
        assert_eq!(of(|host| host.lost = None), Help::Nothing);
        let mut unknown = host();
        unknown.lost = None;
        assert_eq!(Help::of(&unknown, Some(Unknown::NotSeen)), Help::Counters);
        assert_eq!(
            Help::of(&unknown, Some(Unknown::FewJudged)),
            Help::NotJudged
        );
    }
}
