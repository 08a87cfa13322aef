//! As much of PromQL as the dashboards, the alerts and the queries of `report` use, evaluated on label sets alone:
//! which series an expression can return. Values are not known, so that comparisons let all through.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a series, its name as `__name__`.
pub type LabelSet = BTreeMap<String, String>;

/// An expression.
#[derive(Debug)]
pub enum Expression {
    Number,
    /// A name and what labels must be equal to.
    Series(String, Vec<(String, String)>),
    /// A function of an expression, which drops the name, and these labels.
    Function(Box<Self>, &'static [&'static str]),
    /// Grouped by these labels.
    Grouped(Box<Self>, Vec<String>),
    /// So many of them.
    Top(usize, Box<Self>),
    /// Those of both, or where one of them is a number, of the other; all of either for `or`.
    Two(Box<Self>, Box<Self>, bool),
}

/// Operators, those that bind most loosely first.
const OPERATORS: [&[&str]; 4] = [
    &["or"],
    &["and"],
    &[">=", "<=", "==", "!=", ">", "<"],
    &["*", "/", "+", "-"],
];

const FUNCTIONS: [&str; 4] = ["rate", "increase", "changes", "avg_over_time"];
const AGGREGATES: [&str; 5] = ["sum", "count", "avg", "max", "min"];

impl Expression {
    /// Reads a whole expression.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut rest = Rest(text.trim());
        let expression = rest.operators(0)?;
        match rest.0.is_empty() {
            true => Ok(expression),
            false => Err(format!("what is {:?}, in {text:?}?", rest.0)),
        }
    }

    /// The series that it returns of these.
    pub fn of(&self, series: &[LabelSet]) -> BTreeSet<LabelSet> {
        match self {
            Self::Number => BTreeSet::new(),
            Self::Series(name, matchers) => {
                let matches = |set: &&LabelSet| {
                    set["__name__"] == *name
                        && matchers
                            .iter()
                            .all(|(label, value)| set.get(label) == Some(value))
                };
                series.iter().filter(matches).cloned().collect()
            }
            Self::Function(of, drops) => {
                let less = |mut set: LabelSet| {
                    set.retain(|label, _| label != "__name__" && !drops.contains(&label.as_str()));
                    set
                };
                of.of(series).into_iter().map(less).collect()
            }
            Self::Grouped(of, by) => {
                let kept = |mut set: LabelSet| {
                    set.retain(|label, _| by.contains(label));
                    set
                };
                of.of(series).into_iter().map(kept).collect()
            }
            Self::Top(_, of) => of.of(series),
            Self::Two(one, other, both) => match (&**one, &**other) {
                (_, Self::Number) => one.of(series),
                (Self::Number, _) => other.of(series),
                _ if *both => one.of(series).into_iter().chain(other.of(series)).collect(),
                _ => one.of(series),
            },
        }
    }

    /// How many series it returns at most, whatever there is.
    pub fn most(&self) -> Option<usize> {
        match self {
            Self::Top(most, _) => Some(*most),
            _ => None,
        }
    }
}

/// What is still to be read.
struct Rest<'t>(&'t str);

impl<'t> Rest<'t> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0).trim_start();
        rest.is_some()
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        let rest = self.0;
        self.take(text)
            .then_some(())
            .ok_or_else(|| format!("no {text:?} at {rest:?}"))
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'t str {
        let (word, rest) = self.0.split_at(self.0.find(end).unwrap_or(self.0.len()));
        self.0 = rest.trim_start();
        word
    }

    fn word(&mut self) -> &'t str {
        self.until(|c| !c.is_ascii_alphanumeric() && !"_:.".contains(c))
    }

    fn operators(&mut self, level: usize) -> Result<Expression, String> {
        let Some(operators) = OPERATORS.get(level) else {
            return self.atom();
        };
        let mut one = self.operators(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            let other = self.operators(level + 1)?;
            one = Expression::Two(Box::new(one), Box::new(other), *operator == "or");
        }
        Ok(one)
    }

    fn atom(&mut self) -> Result<Expression, String> {
        if self.take("(") {
            return self.closed();
        }
        let word = self.word();
        if word.parse::<f64>().is_ok() {
            return Ok(Expression::Number);
        }
        if AGGREGATES.contains(&word) {
            let by = match self.take("by") {
                true => self.list()?.into_iter().map(str::to_owned).collect(),
                false => Vec::new(),
            };
            self.expect("(")?;
            return Ok(Expression::Grouped(Box::new(self.closed()?), by));
        }
        match word {
            "" => Err(format!("nothing is named at {:?}", self.0)),
            "topk" | "histogram_quantile" => {
                self.expect("(")?;
                let number = self.word();
                self.expect(",")?;
                let of = Box::new(self.closed()?);
                match word {
                    "topk" => number
                        .parse()
                        .map(|most| Expression::Top(most, of))
                        .map_err(|e| e.to_string()),
                    _ => Ok(Expression::Function(of, &["le"])),
                }
            }
            _ if FUNCTIONS.contains(&word) => {
                self.expect("(")?;
                Ok(Expression::Function(Box::new(self.closed()?), &[]))
            }
            name => self.series(name),
        }
    }

    /// What follows an open bracket, and the closed one.
    fn closed(&mut self) -> Result<Expression, String> {
        let expression = self.operators(0)?;
        self.expect(")")?;
        Ok(expression)
    }

    /// `(a, b)`.
    fn list(&mut self) -> Result<Vec<&'t str>, String> {
        self.expect("(")?;
        let words = self.until(|c| c == ')');
        self.expect(")")?;
        Ok(words.split(',').map(str::trim).collect())
    }

    fn series(&mut self, name: &str) -> Result<Expression, String> {
        let mut matchers = Vec::new();
        if self.take("{") {
            while !self.take("}") {
                let label = self.word().to_owned();
                self.expect("=")?;
                self.expect("\"")?;
                matchers.push((label, self.until(|c| c == '"').to_owned()));
                self.expect("\"")?;
                self.take(",");
            }
        }
        if self.take("[") {
            self.until(|c| c == ']');
            self.expect("]")?;
        }
        Ok(Expression::Series(name.to_owned(), matchers))
    }
}

fn set(labels: &[(&str, &str)]) -> LabelSet {
    labels
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn an_expression_returns_the_series_that_it_is_of() {
    let series = [
        set(&[("__name__", "a_total"), ("instance", "n1"), ("node", "0")]),
        set(&[("__name__", "a_total"), ("instance", "n1"), ("node", "1")]),
        set(&[("__name__", "b"), ("instance", "n1")]),
    ];
    for (text, number) in [
        ("a_total", 2),
        ("a_total{node=\"1\"}", 1),
        ("rate(a_total[5m])", 2),
        ("sum by (instance) (rate(a_total[5m])) > 0.5", 1),
        ("sum(a_total)", 1),
        ("topk(20, a_total)", 2),
        ("0.5 * a_total > 1 and b == 0", 2),
        ("b == 1 or a_total", 3),
    ] {
        assert_eq!(
            Expression::read(text).unwrap().of(&series).len(),
            number,
            "{text}"
        );
    }
    for wrong in [
        "",
        "sum by instance (a)",
        "a_total{node=~\"1\"}",
        "rate(a",
        "a b",
    ] {
        assert!(Expression::read(wrong).is_err(), "{wrong}");
    }
}
