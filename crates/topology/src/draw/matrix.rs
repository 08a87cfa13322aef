//! Distances and latencies between nodes: as a table, or as a line per value on large machines.

use std::collections::BTreeMap;
use std::fmt::Write;

use numaherd_quantity::counted;

use crate::topology::Topology;

/// Appends the matrices of a machine with several nodes. With more than `unfolded` nodes, or if a
/// table is too wide for `columns`, they become a line per value.
pub(super) fn draw(topology: &Topology, text: &mut String, columns: usize, unfolded: usize) {
    let nodes = topology.nodes();
    let distances: Vec<Vec<String>> = topology
        .distances()
        .rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|&distance| distance_text(distance))
                .collect()
        })
        .collect();
    let number = |value: &f64| format!("{value:.0}");
    let latencies: Option<Vec<Vec<String>>> = topology.timing().latency_ns.as_ref().map(|rows| {
        let row = |row: &Vec<f64>| row.iter().map(number).collect();
        rows.iter().map(row).collect()
    });
    let folded = nodes.len() > unfolded;
    if nodes.len() > 1 {
        let title = "distance (SLIT: 10 is local, values only order nodes)";
        one(topology, text, title, &distances, columns, folded);
    }
    if let Some(latencies) = latencies {
        let title = "idle latency in ns, from CPUs of the row to memory of the column";
        one(topology, text, title, &latencies, columns, folded);
    }
}

fn distance_text(distance: u32) -> String {
    match distance {
        255 => "-".to_owned(),
        _ => distance.to_string(),
    }
}

fn one(
    topology: &Topology,
    text: &mut String,
    title: &str,
    rows: &[Vec<String>],
    columns: usize,
    folded: bool,
) {
    let _ = writeln!(text, "\n{title}");
    let names: Vec<String> = topology
        .nodes()
        .iter()
        .map(|node| node.id.to_string())
        .collect();
    let entries = rows.iter().flatten().chain(&names).map(|entry| entry.len());
    let wide = entries.max().unwrap_or(1) + 2;
    if folded || wide * (names.len() + 1) > columns {
        return by_value(text, rows);
    }
    let mut line = |first: &str, entries: &[String]| {
        let _ = write!(text, "{first:>wide$}");
        for entry in entries {
            let _ = write!(text, "{entry:>wide$}");
        }
        text.push('\n');
    };
    line("", &names);
    for (name, row) in names.iter().zip(rows) {
        line(name, row);
    }
}

/// The number of nodes at each value, seen from each node; in all, if nodes differ.
fn by_value(text: &mut String, rows: &[Vec<String>]) {
    let mut counts: BTreeMap<(usize, &str), Vec<usize>> = BTreeMap::new();
    for (from, row) in rows.iter().enumerate() {
        for value in row {
            let counts = counts
                .entry((value.len(), value))
                .or_insert_with(|| vec![0; rows.len()]);
            counts[from] += 1;
        }
    }
    for ((_, value), counts) in counts {
        let total: usize = counts.iter().sum();
        let how_many = if counts.iter().all(|&count| count == counts[0]) {
            format!("{} from each node", counted(counts[0], "node"))
        } else {
            format!("{} of nodes", counted(total, "pair"))
        };
        let _ = writeln!(text, "{value:>6}  {how_many}");
    }
}
