//! Tables of experiments: a line of headings, names on the left, figures on the right.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

/// A table.
#[derive(Debug)]
pub struct Table {
    table: comfy_table::Table,
    names: usize,
}

impl Table {
    /// A table whose first `names` columns hold names, and the others figures.
    pub fn new<'h>(names: usize, headings: impl IntoIterator<Item = &'h str>) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        let headings: Vec<&str> = headings.into_iter().collect();
        table.set_header(cells(names, headings));
        Self { table, names }
    }

    /// Wraps a column's text at `width`, and limits the table's width to `whole` characters.
    #[must_use]
    pub fn wrapped(mut self, column: usize, width: u16, whole: u16) -> Self {
        let widest = ColumnConstraint::UpperBoundary(Width::Fixed(width));
        if let Some(column) = self.table.column_mut(column) {
            column.set_constraint(widest);
        }
        let arrangement = ContentArrangement::Dynamic;
        self.table.set_content_arrangement(arrangement);
        self.table.set_width(whole);
        self
    }

    /// Adds a line.
    pub fn row<T: ToString>(&mut self, row: impl IntoIterator<Item = T>) {
        self.table.add_row(cells(self.names, row));
    }

    /// The table as text, without a line break at its end.
    pub fn text(&self) -> String {
        self.table.trim_fmt()
    }
}

fn cells<T: ToString>(names: usize, row: impl IntoIterator<Item = T>) -> Vec<Cell> {
    let aligned = |(at, text): (usize, T)| match at < names {
        true => Cell::new(text),
        false => Cell::new(text).set_alignment(CellAlignment::Right),
    };
    row.into_iter().enumerate().map(aligned).collect()
}

/// A figure with `digits` digits after the point; a dash if it is unknown.
pub fn figure(value: impl Into<Option<f64>>, digits: usize) -> String {
    let shown = value.into().map(|value| format!("{value:.digits$}"));
    shown.unwrap_or_else(|| "-".to_owned())
}

/// A share in percent; a dash if it is unknown. Zero has no sign.
pub fn percent(share: impl Into<Option<f64>>) -> String {
    match figure(share.into().map(|share| share * 100.0), 1) {
        shown if shown == "-0.0" => "0.0".to_owned(),
        shown => shown,
    }
}

/// `12 (4)`: twelve in all, four of them ordered by the policy.
pub fn with_ordered(all: impl Into<Option<f64>>, ordered: f64) -> String {
    let all = figure(all, 0);
    if ordered > 0.0 {
        format!("{all} ({ordered:.0})")
    } else {
        all
    }
}

/// The reduction of a baseline, relative to it; negative if the value is larger, `None` if the baseline is 0 within
/// rounding.
pub fn saved(value: f64, baseline: f64) -> Option<f64> {
    (baseline > 1e-6).then(|| 1.0 - value / baseline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_a_dash_and_nothing_has_no_sign() {
        assert_eq!(percent(None), "-");
        assert_eq!(percent(-0.0001), "0.0");
        assert_eq!(percent(-0.01), "-1.0");
        assert_eq!(figure(1.25, 2), "1.25");
        assert_eq!(with_ordered(None, 0.0), "-");
        assert_eq!(with_ordered(12.4, 4.0), "12 (4)");
        assert_eq!(percent(saved(1.0, 0.0)), "-");
        assert_eq!(percent(saved(1.000_01, 1.0)), "0.0");
        assert_eq!(saved(1.0, 2.0), Some(0.5));
    }

    #[test]
    fn names_are_to_the_left_and_figures_to_the_right() {
        let mut table = Table::new(1, ["policy", "seconds"]);
        table.row(["linux", "8.0"]);
        table.row(["dino", "12.0"]);
        assert_eq!(
            table.text(),
            " policy  seconds\n linux       8.0\n dino       12.0"
        );
    }
}
