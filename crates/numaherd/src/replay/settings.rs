//! The settings that policies are replayed with: by default, those of the recorded run.
//!
//! A ledger holds the loop's settings and the seed, but not the policies' own (thresholds, classes): those are the
//! defaults, or those of a configuration file. A policy may choose how far threads may run from their cores and how
//! often one may bounce: the ledger holds the recorded policy's choice, and another policy makes its own.

use std::path::Path;

use anyhow::Result;
use numaherd_files::setting::{self, Wrong};
use numaherd_files::{key_value, merge, read};
use numaherd_herd::ledger::Start;
use toml::{Table, Value};

use crate::cli::Replay;
use crate::config::{Effective, LARGEST_FILE};
use crate::exit::{Exit, OrExit, ended};

/// The settings of loop and policies.
#[derive(Debug)]
pub struct Settings {
    /// The loop's, of which limits and seed matter.
    pub herd: numaherd_herd::Settings,
    /// The policies'.
    pub policies: numaherd_policy::Settings,
}

impl Settings {
    /// For the policy of that name: the recorded run's settings, a configuration file's, and what the
    /// command line says on top.
    ///
    /// # Errors
    /// The file cannot be read, or a key or value is invalid: the message names it.
    pub fn of(start: &Start, name: &str, options: &Replay) -> Result<Self> {
        let usage = |what: &str, why: &dyn std::fmt::Display| ended!(Usage, "{what}: {why}");
        let mut tables = Table::new();
        let mut herd = Table::try_from(&start.settings)?;
        if name != start.policy
            && let Some(Value::Table(limits)) = herd.get_mut("limits")
        {
            limits.remove("scope");
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
            merge(&mut tables, &set.or_exit(Exit::Usage)?);
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
fn check(tables: &Table) -> Result<Settings, Wrong> {
    let table = |key: &str| match tables.get(key) {
        Some(Value::Table(table)) => table.clone(),
        _ => Table::new(),
    };
    let within = |table: &'static str| move |wrong: Wrong| wrong.within(table);
    Ok(Settings {
        herd: setting::of_tables(table("herd")).map_err(within("herd"))?,
        policies: setting::of_tables(table("policies")).map_err(within("policies"))?,
    })
}

/// The tables of a configuration file that a replay uses.
fn of_file(path: &Path) -> Result<Table> {
    Effective::of_named(path)?;
    let text = read::text(path, LARGEST_FILE)?;
    let mut table: Table = toml::from_str(&text)?;
    table.retain(|key, _| key == "herd" || key == "policies");
    Ok(table)
}
