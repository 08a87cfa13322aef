//! `numaherd policies`: lists the policies, or describes one with its rules.

use anyhow::Result;
use itertools::Itertools as _;
use numaherd_policy::registry::{self, PAGINGS, PLACEMENTS, POLICIES};
use numaherd_policy::rules::Rule;
use numaherd_show::{entry, paragraph};
use serde::Serialize;

use crate::cli::Policies;
use crate::config::file::DEFAULT_POLICY;
use crate::exit::{Exit, ended};
use crate::print::{self, Shown};

/// One policy as JSON.
#[derive(Serialize)]
struct Description {
    name: String,
    about: String,
    source: String,
    placement: &'static str,
    paging: &'static str,
    needs: Vec<String>,
    /// Signals that it uses where they are measured.
    also: Vec<String>,
    rules: Vec<RuleDescription>,
}

#[derive(Serialize)]
struct RuleDescription {
    name: &'static str,
    source: &'static str,
    what: &'static str,
}

/// Prints the list, or one policy.
///
/// # Errors
/// The policy is unknown; the message names the nearest known one.
pub fn policies(options: &Policies) -> Result<()> {
    match &options.name {
        Some(name) => {
            let description = describe(name)?;
            print::shown(options.json, &description, || one(&description))
        }
        None => {
            let all: Result<Vec<_>> = POLICIES.iter().map(|entry| describe(entry.name)).collect();
            let all = all?;
            print::shown(options.json, &all, || list(&all))
        }
    }
}

fn describe(name: &str) -> Result<Description> {
    let usage = |error| ended(Exit::Usage, error);
    let (placement, paging) = registry::halves(name).map_err(usage)?;
    let needs = registry::needs(name).map_err(usage)?;
    let also = registry::also(name).map_err(usage)?;
    let entry = POLICIES.iter().find(|entry| entry.name == name);
    let joined = format!("{}; {}", placement.about, paging.about);
    let sources = format!("{}; {}", placement.source, paging.source);
    let rule = |rule: &Rule| RuleDescription {
        name: rule.name,
        source: rule.source,
        what: rule.what,
    };
    Ok(Description {
        name: name.to_owned(),
        about: entry.map_or(joined, |entry| entry.about.to_owned()),
        source: entry.map_or(sources, |entry| entry.source.to_owned()),
        placement: placement.name,
        paging: paging.name,
        needs: needs.iter().map(ToString::to_string).collect(),
        also: also.iter().map(ToString::to_string).collect(),
        rules: (placement.rules.iter())
            .chain(paging.rules)
            .map(rule)
            .collect(),
    })
}

fn list(all: &[Description]) -> Shown {
    let mut text = String::new();
    for Description {
        name,
        about,
        source,
        ..
    } in all
    {
        let default = if name == DEFAULT_POLICY {
            ", the default"
        } else {
            ""
        };
        text += &entry(0, name, 18, &format!("{about} ({source}{default})"));
    }
    let placements = PLACEMENTS.iter().map(|half| half.name).join(", ");
    let pagings = PAGINGS.iter().map(|half| half.name).join(", ");
    text += "\nAny placement can be combined with any paging, for example dino+whole-set:\n";
    text += &entry(2, "placements", 14, &placements);
    text += &entry(2, "pagings", 14, &pagings);
    text + "`numaherd policies NAME` describes one policy and its rules.\n"
}

fn one(policy: &Description) -> Shown {
    let mut text = paragraph(format!("{}: {}", policy.name, policy.about));
    text += &entry(2, "from", 13, &policy.source);
    text += &format!(
        "  placement  {}\n  paging     {}\n",
        policy.placement, policy.paging
    );
    let needs = if policy.needs.is_empty() {
        "nothing".to_owned()
    } else {
        policy.needs.join(", ")
    };
    text += &entry(2, "needs", 13, &needs);
    if !policy.also.is_empty() {
        text += &entry(2, "also uses", 13, &policy.also.join(", "));
    }
    if !policy.rules.is_empty() {
        text += "\nRules, by the names that ledgers give:\n";
    }
    for rule in &policy.rules {
        text += &entry(2, rule.name, 2, &format!("({})", rule.source));
        text += &entry(0, "", 6, rule.what);
    }
    text
}
