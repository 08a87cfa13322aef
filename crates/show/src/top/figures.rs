//! Figures as short as a table's column needs them.

pub(super) use numaherd_quantity::{
    ago, short_bytes as bytes, short_count as count, whole_percent as percent,
};

/// Lines per 1000 instructions.
pub(super) fn rate(rate: f64) -> String {
    if rate < 100.0 {
        format!("{rate:.1}")
    } else {
        count(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_decimal_where_it_says_something() {
        assert_eq!([3.04, 240.0, 12_000.0].map(rate), ["3.0", "240", "12.0k"]);
    }
}
