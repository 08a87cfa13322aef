//! Reasons as values: a sentence with named figures, which is put into words in one place.
//!
//! Problem: a decision without its figures cannot be judged, and every policy that words its own
//! decisions words them in its own way. Rule: a policy says why as a [`Reason`]: the rule that decided,
//! [`Words`] for what counted, and [`Words`] for the alternative that lost. Words are a template with
//! named places and the figures that belong there; [`words!`](crate::words) makes them, and a name without a figure, or
//! a figure without a name, does not compile. The stage words them when it makes a plan
//! ([`crate::stage`]).
//!
//! Properties: the words of a reason depend on its values alone; numbers are rounded here and nowhere
//! else.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use numaherd_topology::{CpuId, DomainId, NodeId};
use numaherd_world::{ProcessId, ThreadId};

use crate::classes::Class;
use crate::rules::Rule;

/// Why a thread gets its CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The rule that decided.
    pub rule: Rule,
    /// What counted.
    pub why: Words,
    /// Why the thread does not stay where it is; `None` where the rule leaves no choice. Left out for a thread that
    /// stays, and replaced if the thread may not stay.
    pub instead_of: Option<Words>,
}

impl Rule {
    /// A reason of this rule, which leaves no choice.
    pub fn because(self, why: Words) -> Reason {
        Reason {
            rule: self,
            why,
            instead_of: None,
        }
    }
}

impl Reason {
    /// The same with the alternative that lost.
    pub fn instead_of(self, instead_of: impl Into<Option<Words>>) -> Self {
        Self {
            instead_of: instead_of.into(),
            ..self
        }
    }
}

/// A template and the figures for its places. Made by [`words!`](crate::words).
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// The sentence, with `{name}` for each figure.
    pub template: Cow<'static, str>,
    /// The figures by name.
    pub figures: Vec<(&'static str, Figure)>,
}

impl Words {
    /// The same with more words behind it. Figures of one name are one figure, the first.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.template.to_mut().push_str(&more.template);
        self.figures.extend(more.figures);
        self
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &*self.template;
        while let Some((before, after)) = rest.split_once('{') {
            f.write_str(before)?;
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            let figure = self.figures.iter().find(|(known, _)| *known == name);
            figure.map_or(Ok(()), |(_, figure)| figure.fmt(f))?;
            rest = after;
        }
        f.write_str(rest)
    }
}

/// Words from a template and its figures: `words!("node {home} has {pages} pages", home, pages = 7)`.
///
/// A figure is anything that a [`Figure`] can be made from.
#[macro_export]
macro_rules! words {
    ($template:literal $(, $name:ident $(= $figure:expr)?)* $(,)?) => {{
        // Never run: the compiler holds the names of the template against those of the figures.
        const _: fn() = || { let _ = ::std::format_args!($template $(, $name = 0)*); };
        $crate::reason::Words {
            template: ::std::borrow::Cow::Borrowed($template),
            figures: ::std::vec![$((
                ::std::stringify!($name),
                $crate::reason::Figure::from($crate::words!(@figure $name $(= $figure)?)),
            )),*],
        }
    }};
    (@figure $name:ident = $figure:expr) => { $figure };
    (@figure $name:ident) => { $name };
}

/// What a reason is made of, besides words.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A number of things.
    Count(u128),
    /// A measured number, and how many decimals of it count.
    Measured(f64, usize),
    /// A CPU.
    Cpu(CpuId),
    /// A memory node.
    Node(NodeId),
    /// A memory domain.
    Domain(DomainId),
    /// A thread.
    Thread(ThreadId),
    /// A process.
    Process(ProcessId),
    /// A class of miss rates.
    Class(Class),
    /// Anything else, in words.
    Text(Arc<str>),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Measured(value, 1) => tenths(*value, f),
            Self::Measured(value, decimals) => write!(f, "{value:.decimals$}"),
            Self::Cpu(cpu) => cpu.fmt(f),
            Self::Node(node) => node.fmt(f),
            Self::Domain(domain) => domain.fmt(f),
            Self::Thread(thread) => thread.fmt(f),
            Self::Process(process) => process.fmt(f),
            Self::Class(class) => class.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Several times faster than the standard formatting, which is exact for any number and would take
/// most of the time of a plan that places every thread.
fn tenths(value: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let tenths = (value * 10.0).round() as u64;
    write!(f, "{}.{}", tenths / 10, tenths % 10)
}

macro_rules! figures {
    ($($kind:ty => $figure:expr;)*) => {$(
        impl From<$kind> for Figure {
            fn from(value: $kind) -> Self {
                #[allow(clippy::redundant_closure_call)]
                ($figure)(value)
            }
        }
    )*};
}

figures! {
    usize => |count: usize| Self::Count(count as u128);
    u32 => |count: u32| Self::Count(count.into());
    u64 => |count: u64| Self::Count(count.into());
    u128 => Self::Count;
    f64 => |value| Self::Measured(value, 1);
    CpuId => Self::Cpu;
    NodeId => Self::Node;
    DomainId => Self::Domain;
    ThreadId => Self::Thread;
    ProcessId => Self::Process;
    Class => Self::Class;
    Arc<str> => Self::Text;
    String => |text: String| Self::Text(text.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_with_its_figures() {
        let home = NodeId(3);
        let words = words!(
            "{pages} pages on node {home}, {share} % of {pages}",
            pages = 7u64,
            home,
            share = Figure::Measured(41.66, 0),
        );
        assert_eq!(words.to_string(), "7 pages on node 3, 42 % of 7");
        assert_eq!(words!("no figure at all").to_string(), "no figure at all");
    }

    #[test]
    fn a_measured_number_has_one_decimal_unless_it_says_otherwise() {
        let worded = [0.0, 0.04, 0.05, 1.96, 12.34, 1000.0].map(|x| Figure::from(x).to_string());
        assert_eq!(worded, ["0.0", "0.0", "0.1", "2.0", "12.3", "1000.0"]);
        assert_eq!(Figure::Measured(1.0 / 3.0, 4).to_string(), "0.3333");
    }
}
