//! The names of rules, as they stand in plans and ledgers, and where each is from.

/// A rule of a policy, by the name that plans give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name; never changes once released, since ledgers hold it.
    pub name: &'static str,
    /// Paper and section, or who chose it.
    pub source: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
}
