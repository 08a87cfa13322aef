//! What was asked of a running herd and the outcome, as a sentence.

use numaherd_herd::ledger::{Asked, Controlled};

use crate::words::counted;

/// A request and its outcome, for instance `paused, on request of SIGUSR1; threads stay where they
/// are`. Without a full stop.
pub fn sentence(controlled: &Controlled) -> String {
    let by = match controlled.by.as_str() {
        "" => String::new(),
        by => format!(", on request of {by}"),
    };
    if let Some(why) = &controlled.refused {
        let wish = wish(&controlled.asked);
        return format!("refused to {wish}{by}: {why}");
    }
    match &controlled.asked {
        Asked::Pause {
            give_back: false, ..
        } => format!("paused{by}; no decisions are made, and threads keep their affinities"),
        Asked::Pause { given_back, .. } => format!(
            "paused{by}; no decisions are made, and the affinities of {} were restored",
            counted(*given_back, "thread")
        ),
        Asked::Resume => format!("resumed{by}"),
        Asked::Change {
            policy: None,
            settings: None,
            why,
        } => format!("{why}{by}"),
        Asked::Change { policy, why, .. } => {
            let why = match why.as_str() {
                "" => String::new(),
                why => format!(" ({why})"),
            };
            match policy {
                Some(policy) => format!("the policy is now {policy}{by}{why}"),
                None => format!("new settings are in force{by}{why}"),
            }
        }
    }
}

/// What was asked, as a phrase after `to`.
fn wish(asked: &Asked) -> String {
    match asked {
        Asked::Pause {
            give_back: false, ..
        } => "pause".to_owned(),
        Asked::Pause { .. } => "pause and restore affinities".to_owned(),
        Asked::Resume => "resume".to_owned(),
        Asked::Change {
            policy: Some(policy),
            ..
        } => format!("change the policy to {policy}"),
        Asked::Change { policy: None, .. } => "change the settings".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(asked: Asked, refused: Option<&str>) -> String {
        sentence(&Controlled {
            by: "ctl".to_owned(),
            asked,
            refused: refused.map(str::to_owned),
        })
    }

    fn change(policy: Option<&str>, why: &str) -> Asked {
        Asked::Change {
            policy: policy.map(str::to_owned),
            settings: Some(Box::default()),
            why: why.to_owned(),
        }
    }

    #[test]
    fn each_request_is_one_sentence() {
        let pause = |give_back, given_back| Asked::Pause {
            give_back,
            given_back,
        };
        assert_eq!(
            said(pause(false, 0), None),
            "paused, on request of ctl; no decisions are made, and threads keep their affinities"
        );
        assert_eq!(
            said(pause(true, 1), None),
            "paused, on request of ctl; no decisions are made, and the affinities of 1 thread were restored"
        );
        assert_eq!(
            said(pause(true, 1200), None),
            "paused, on request of ctl; no decisions are made, and the affinities of 1,200 threads were restored"
        );
        assert_eq!(said(Asked::Resume, None), "resumed, on request of ctl");
        assert_eq!(
            said(change(Some("dino"), ""), None),
            "the policy is now dino, on request of ctl"
        );
        assert_eq!(
            said(change(None, "the file was read again"), None),
            "new settings are in force, on request of ctl (the file was read again)"
        );
        let note = Asked::Change {
            policy: None,
            settings: None,
            why: "the file cannot be read".to_owned(),
        };
        assert_eq!(
            said(note, None),
            "the file cannot be read, on request of ctl"
        );
        assert_eq!(
            said(change(Some("ipm"), ""), Some("there is no such signal")),
            "refused to change the policy to ipm, on request of ctl: there is no such signal"
        );
        assert_eq!(
            said(Asked::Resume, Some("it is not paused")),
            "refused to resume, on request of ctl: it is not paused"
        );
    }
}
