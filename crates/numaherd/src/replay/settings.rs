//! The settings that policies are replayed with: those of the recorded run where nobody says otherwise.
//!
//! A ledger holds the loop's settings and the seed, but not the policies' own (thresholds, classes):
//! those are the usual ones, or those of a configuration file. How far threads may stray, and how often
//! one may go to and fro, a policy may have as its own: a ledger holds what the recorded policy had, which
//! is for another to say for itself.

use std::path::Path;

use anyhow::Result;
use numaherd_files::{key_value, merge};
use numaherd_herd::ledger::Start;
use toml::{Table, Value};

use crate::cli::Replay;
use crate::exit::{Exit, ended};

/// Of loop and policies.
#[derive(Debug)]
pub struct Settings {
    /// Of the loop: limits and seed count.
    pub herd: numaherd_herd::Settings,
    /// Of the policies.
    pub policies: numaherd_policy::Settings,
}

impl Settings {
    /// For the policy of that name: the recorded run's settings, a configuration file's, and what the
    /// command line says on top.
    ///
    /// # Errors
    /// The file cannot be read; a key or value cannot be: the message names it.
    pub fn of(start: &Start, name: &str, options: &Replay) -> Result<Self> {
        let usage =
            |what: &str, why: &dyn std::fmt::Display| ended(Exit::Usage, format!("{what}: {why}"));
        let mut tables = Table::new();
        let mut herd = Table::try_from(&start.settings)?;
        if name != start.policy
            && let Some(Value::Table(limits)) = herd.get_mut("limits")
        {
            limits.remove("stray");
            limits.remove("thread_bounce_limit");
        }
        tables.insert("herd".to_owned(), Value::Table(herd));
        if let Some(path) = &options.config {
            let shown = path.display().to_string();
            merge(&mut tables, &of_file(path)?);
            check(&tables).map_err(|why| usage(&shown, &why))?;
        }
        for text in &options.set {
            let set = key_value(text, &["herd", "policies"]);
            merge(
                &mut tables,
                &set.map_err(|error| ended(Exit::Usage, error))?,
            );
            check(&tables).map_err(|why| usage(&format!("--set {text}"), &why))?;
        }
        let mut settings = check(&tables).map_err(|why| usage("the ledger's settings", &why))?;
        if let Some(seed) = options.seed {
            settings.herd.seed = seed;
        }
        Ok(settings)
    }
}

/// Reads what the tables say.
fn check(tables: &Table) -> Result<Settings, String> {
    let said = |error: toml::de::Error| error.message().trim().replace('\n', ", ");
    let table = |key: &str| match tables.get(key) {
        Some(Value::Table(table)) => table.clone(),
        _ => Table::new(),
    };
    let herd: numaherd_herd::Settings = table("herd").try_into().map_err(said)?;
    herd.check().map_err(|error| error.to_string())?;
    let policies: numaherd_policy::Settings = table("policies").try_into().map_err(said)?;
    policies.check().map_err(|error| error.to_string())?;
    Ok(Settings { herd, policies })
}

/// The tables of a configuration file that a replay goes by.
fn of_file(path: &Path) -> Result<Table> {
    let shown = path.display();
    let wrong = |why: &dyn std::fmt::Display| {
        ended(Exit::Usage, format!("the configuration {shown}: {why}"))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let mut table: Table = toml::from_str(&text).map_err(|error| wrong(&error))?;
    table.retain(|key, _| key == "herd" || key == "policies");
    Ok(table)
}
