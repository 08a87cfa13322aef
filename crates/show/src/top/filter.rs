//! Which rows are shown: those whose known text the filter matches.

use regex_lite::{Regex, RegexBuilder};

/// A filter as it was typed: a regular expression that ignores case. A text that is not a valid expression stands for
/// itself. An empty filter admits all rows.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    text: String,
    expression: Option<Regex>,
    is_text: bool,
}

impl Filter {
    /// The filter of a text.
    pub fn new(text: &str) -> Self {
        let build = |pattern: &str| {
            let mut builder = RegexBuilder::new(pattern);
            builder.case_insensitive(true).size_limit(1 << 20).build()
        };
        let expression = build(text);
        let is_text = expression.is_err();
        let expression = expression.or_else(|_| build(&regex_lite::escape(text)));
        Self {
            text: text.to_owned(),
            expression: expression.ok().filter(|_| !text.is_empty()),
            is_text,
        }
    }

    /// The text as it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all rows are shown.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether the text is not a valid regular expression, so that it is searched for literally.
    pub fn is_text(&self) -> bool {
        self.is_text
    }

    /// Whether a row with this known text is shown.
    pub fn admits(&self, known: &str) -> bool {
        let expression = self.expression.as_ref();
        expression.is_none_or(|expression| expression.is_match(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_expression_or_a_text() {
        assert!(Filter::new("^CHASE$").admits("chase"));
        assert!(Filter::new("a|b").admits("xb"));
        assert!(!Filter::new("a|b").admits("xc"));
        assert!(Filter::new("f(").is_text());
        assert!(Filter::new("f(").admits("calls f(x)"));
        assert!(!Filter::new("f(").admits("f"));
        assert!(Filter::new("").admits(""));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}", known in ".{0,40}") {
            let filter = Filter::new(&text);
            prop_assert!(filter.admits(&known) || !filter.is_empty());
        }
    }
}
