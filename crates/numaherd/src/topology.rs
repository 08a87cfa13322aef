//! `numaherd topology`: prints and draws a machine.

use anyhow::Result;
use comfy_table::{ContentArrangement, Table};
use numaherd_host::Layers;
use numaherd_topology::{Machine, draw, read_any};
use serde::Serialize;

use crate::cli::Topology;
use crate::exit::{Exit, ended};
use crate::print::{self, Shown};

/// Where this machine's /sys and /proc are.
const THIS_MACHINE: &str = "/";

/// The width of a drawing where there is no terminal.
const USUAL_COLUMNS: usize = 100;

/// Prints a machine, or the list of presets.
///
/// # Errors
/// The machine cannot be read; the message says what was tried, or what is wrong with it and where.
pub fn topology(options: &Topology) -> Result<()> {
    if options.presets {
        return list_presets(options.json);
    }
    let (source, exit) = match options.source.as_deref() {
        Some(source) => (source, Exit::Usage),
        None => (THIS_MACHINE, Exit::Failure),
    };
    let machine = read_any(source).map_err(|error| ended(exit, error))?;
    if options.layers {
        let layers = Layers::of(&machine).map_err(|error| ended(Exit::Failure, error))?;
        return print::out(&(layers.specification() + "\n"));
    }
    print::shown(options.json, &machine.view(), || draw(&machine, columns()))
}

/// A preset as JSON.
#[derive(Serialize)]
struct Preset {
    name: String,
    description: String,
    source: String,
}

fn list_presets(json: bool) -> Result<()> {
    let presets: Vec<Preset> = Machine::presets()
        .map(|name| {
            let machine = Machine::preset(name)?;
            Ok(Preset {
                name: machine.name,
                description: machine.description,
                source: machine.source,
            })
        })
        .collect::<Result<_>>()?;
    print::shown(json, &presets, || listed(&presets))
}

fn listed(all: &[Preset]) -> Shown {
    let mut table = print::table(["preset", "machine"]);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    for preset in all {
        table.add_row([&preset.name, &preset.description]);
    }
    let table = table.trim_fmt();
    format!(
        "{table}\n\n`numaherd topology NAME` describes one; its --json and the file of the same name in\n\
         data/machines/ contain all figures, the file also their sources.\n"
    )
}

/// The terminal's width.
fn columns() -> usize {
    let width = Table::new().width();
    width.map_or(USUAL_COLUMNS, usize::from)
}
