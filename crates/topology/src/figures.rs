//! Checks of a machine's figures, whether from a machine file, the kernel or hwloc.
//!
//! Each function says what is wrong with a figure; its caller adds the figure's name.

use crate::id::NodeId;

type Checked = Result<(), String>;

/// Times, bandwidths and clocks are positive numbers.
pub(crate) fn positive(figure: f64) -> Checked {
    match figure.is_finite() && figure > 0.0 {
        true => Ok(()),
        false => Err(format!("{figure} is not a positive number")),
    }
}

/// A matrix has a row and a column for each node.
pub(crate) fn square<T>(rows: &[Vec<T>], nodes: usize) -> Checked {
    if rows.len() != nodes {
        return Err(format!("{} rows for {nodes} nodes", rows.len()));
    }
    let mut lengths = rows.iter().map(Vec::len).enumerate();
    match lengths.find(|&(_, entries)| entries != nodes) {
        Some((at, entries)) => Err(format!("row {at} has {entries} entries for {nodes} nodes")),
        None => Ok(()),
    }
}

/// A matrix of positive numbers.
pub(crate) fn positives(rows: &[Vec<f64>], nodes: usize) -> Checked {
    square(rows, nodes)?;
    rows.iter()
        .flatten()
        .try_for_each(|&figure| positive(figure))
}

/// A positive number for each node.
pub(crate) fn positive_for_each(row: &[f64], nodes: usize) -> Checked {
    match row.len() == nodes {
        true => row.iter().try_for_each(|&figure| positive(figure)),
        false => Err(format!("{} numbers for {nodes} nodes", row.len())),
    }
}

/// A SLIT that the kernel would accept: local distances are 10 and others at least that; 255 means unreachable. A wrong
/// table must not make a remote node look local.
pub(crate) fn distances(rows: &[Vec<u32>], nodes: &[NodeId]) -> Checked {
    square(rows, nodes.len())?;
    for (from, row) in nodes.iter().zip(rows) {
        for (to, &distance) in nodes.iter().zip(row) {
            let fits = if from == to { 10..=10 } else { 10..=255 };
            if !fits.contains(&distance) {
                return Err(format!(
                    "{distance} from node {from} to {to}; it is 10 on the diagonal and 10 to 255 elsewhere"
                ));
            }
        }
    }
    Ok(())
}
