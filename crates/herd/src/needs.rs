//! Whether a policy's signals are available here, and what to say if not. No figure is ever
//! invented for a missing signal: the policy is refused.

use std::fmt;

use numaherd_policy::registry;
use numaherd_world::{Signal, SignalReport, SignalState};

use crate::error::HerdError;

/// A policy that could replace another, with what it needs. The caller lists those it knows,
/// nearest in strength first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The policy's name.
    pub name: String,
    /// The signals it cannot do without.
    pub needs: Vec<Signal>,
}

/// Signals that a policy needs and this world cannot measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSignals {
    /// The policy.
    pub policy: String,
    /// Each signal, why it is missing and what would help.
    pub missing: Vec<(Signal, String, String)>,
    /// The first of the alternatives that would work here.
    pub instead: Option<String>,
}

impl fmt::Display for MissingSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (signal, reason, remedy)) in self.missing.iter().enumerate() {
            let and = if at == 0 { "" } else { "\n" };
            write!(
                f,
                "{and}the policy {} needs the signal {signal}, which is not available here: {reason}. \
                 Remedy: {remedy}.",
                self.policy
            )?;
        }
        match &self.instead {
            Some(name) => write!(f, "\nWithout it, the policy {name} works here."),
            None => Ok(()),
        }
    }
}

/// Refuses a policy of that name if not all the signals it needs are measured here.
///
/// # Errors
/// [`HerdError::MissingSignals`] names each signal, why it is missing, the remedy, and the first of
/// `others` that would work.
pub fn check(
    policy: &str,
    needs: &[Signal],
    signals: &[SignalReport],
    others: &[Alternative],
) -> Result<(), HerdError> {
    let missing: Vec<_> = needs
        .iter()
        .filter_map(|&signal| missing(signal, signals))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let works = |needs: &[Signal]| needs.iter().all(|&need| missing_not(need, signals));
    let instead = others.iter().find(|other| works(&other.needs));
    Err(HerdError::MissingSignals(MissingSignals {
        policy: policy.to_owned(),
        missing,
        instead: instead.map(|other| other.name.clone()),
    }))
}

/// What helps where a signal is missing: what its world says, or what can be set instead.
pub fn remedies(signal: Signal, of_world: &str) -> String {
    let of_world = sentence(of_world);
    match registry::setting_without(signal) {
        Some(setting) => format!("{of_world}; or, {setting}"),
        None => of_world,
    }
}

fn missing_not(signal: Signal, signals: &[SignalReport]) -> bool {
    missing(signal, signals).is_none()
}

fn missing(signal: Signal, signals: &[SignalReport]) -> Option<(Signal, String, String)> {
    match signals.iter().find(|report| report.signal == signal) {
        Some(report) => match &report.state {
            SignalState::Measured { .. } => None,
            SignalState::Missing { reason, remedy } => {
                Some((signal, sentence(reason), remedies(signal, remedy)))
            }
        },
        None => Some((
            signal,
            "this kind of machine does not have this signal".to_owned(),
            "another kind of machine, or another policy".to_owned(),
        )),
    }
}

fn sentence(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_can_do_with_another_signal_says_how() {
        let missing = [SignalReport::missing(
            Signal::TlbResidency,
            "no unit measures it",
            "the lab.",
        )];
        let refused = check("ipm", &[Signal::TlbResidency], &missing, &[]).unwrap_err();
        let said = refused.to_string();
        assert!(
            said.contains("Remedy: the lab; or, for ipm, memory samples"),
            "{said}"
        );
        assert!(said.contains("evidence = \"samples\""), "{said}");
    }
}
