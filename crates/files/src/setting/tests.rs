//! Settings as a crate would define them, and the messages for wrong files.

use std::collections::BTreeMap;

use super::*;
use crate::{choices, settings};

choices! {
    /// How much may be taken.
    pub enum Most {
        /// Less than half.
        #[default]
        Half = "half",
        /// All of it.
        All = "all",
    }
}

settings! {
    /// What the example holds.
    pub struct Outer {
        /// A word.
        word: Most;
        /// A count.
        count: Option<u32>, unit: "moves", range: 1.0..=f64::MAX, left_out: "without end", example: "3";
        /// Figures by name.
        figures: BTreeMap<String, f64>, unit: "share", range: 0.0..=1.0;
        /// Numbers of processes.
        pids: Vec<u32>, unit: "processes";
        /// A table within.
        inner: Inner;
        /// Tables in a list.
        each: Vec<Inner>;
        /// Filled in by the program.
        own: BTreeMap<String, u32>, internal: true;
    }
}

settings! {
    /// What the inner one holds.
    #[derive(Copy)]
    pub struct Inner {
        /// The least. More than a sentence.
        least: f64 = 0.5, unit: "share", range: 0.0..=1.0, because: ", of a CPU";
        /// The most.
        most (was "utmost"): f64 = 0.7, unit: "share", source: "chosen here";
        /// Whether.
        switch: bool = true, restart: true;
    }
    where check = Inner::least_below_most
}

impl Inner {
    fn least_below_most(&self, wrong: &mut dyn FnMut(&str, String)) {
        if self.least > self.most {
            let (least, most) = (self.least, self.most);
            wrong(
                "most",
                format!("must be at least `least` ({least}), not {most}"),
            );
        }
    }
}

#[test]
fn what_is_defined_is_what_is_known() {
    let keys: Vec<String> = Outer::KIND
        .section()
        .unwrap()
        .keys()
        .into_iter()
        .map(|(name, setting)| {
            let optional = if setting.optional { "?" } else { "" };
            format!("{name}{optional}: {}", setting.wanted())
        })
        .collect();
    assert_eq!(
        keys,
        [
            "word: \"half\" or \"all\"",
            "count?: a whole number, 1 or more",
            "figures: a table of names, each with a number from 0 to 1",
            "pids: a list in brackets, each a whole number from 0 to 4294967295",
            "inner.least: a number from 0 to 1, of a CPU",
            "inner.most: a number",
            "inner.switch: true or false",
            "each.least: a number from 0 to 1, of a CPU",
            "each.most: a number",
            "each.switch: true or false",
        ]
    );
    let inner = Inner::KIND.section().unwrap();
    assert_eq!(inner.about, "What the inner one holds.");
    let least = &inner.settings[0];
    assert_eq!(
        (least.what, least.in_short()),
        ("The least. More than a sentence.", "The least")
    );
    assert_eq!(inner.settings[1].source, "chosen here");
    assert!(inner.settings[2].restart);
    let word = &Outer::KIND.section().unwrap().settings[0];
    assert_eq!(
        word.described(),
        "A word. \"half\": Less than half. \"all\": All of it."
    );
}

#[track_caller]
fn told(text: &str) -> String {
    read::<Outer>(text, "a.toml").unwrap_err().to_string()
}

#[test]
fn everything_that_is_wrong_is_told_at_its_line() {
    for (text, expected) in [
        (
            "wrod = \"all\"",
            "1: wrod: unknown key; did you mean `word`?",
        ),
        (
            "leest = 1",
            "1: leest: unknown key; did you mean `inner.least` or `each.least`?",
        ),
        (
            "\nleast = 1",
            "2: least: unknown key; it belongs in [inner] or [[each]]",
        ),
        ("own = {}", "1: own: unknown key"),
        (
            "word = \"al\"",
            "1: word: must be \"half\" or \"all\", not \"al\"; did you mean \"all\"?",
        ),
        (
            "count = 0",
            "1: count: must be a whole number, 1 or more, not 0",
        ),
        (
            "count = -1",
            "1: count: must be a whole number, 1 or more, not -1",
        ),
        (
            "pids = [1, \"x\"]",
            "1: pids: must be a whole number from 0 to 4294967295, not \"x\"",
        ),
        (
            "inner.switch = 1",
            "1: inner.switch: must be true or false, not 1",
        ),
        (
            "figures = { a = 0.5, b = 2 }",
            "1: figures.b: must be a number from 0 to 1, not 2",
        ),
        (
            "[inner]\nleast = nan",
            "2: inner.least: must be a number from 0 to 1, of a CPU, not NaN",
        ),
        (
            "[inner]\nmost = inf",
            "2: inner.most: must be a number, not inf",
        ),
        (
            "[inner]\nleast = 1",
            " inner.most: must be at least `least` (1), not 0.7 (its default)",
        ),
        (
            "[[each]]\n[[each]]\nmost = 0",
            "3: each.most: must be at least `least` (0.5), not 0",
        ),
        (
            "each = 1",
            "1: each: must be a list of tables, each under a heading in [[double brackets]], not 1",
        ),
        (
            "[inner]\nmost = 1\nutmost = 1",
            "3: inner.utmost: is the former name of `most`, which is there as well",
        ),
    ] {
        assert_eq!(told(text), format!("a.toml:{expected}"));
    }
    assert_eq!(
        told("wrod = 1\npids = 1\n"),
        "a.toml is wrong in 2 places:\n  a.toml:1: wrod: unknown key; did you mean `word`?\n  \
         a.toml:2: pids: must be a list in brackets, each a whole number from 0 to 4294967295, not 1"
    );
}

#[test]
fn a_former_name_is_read_with_a_notice() {
    let (settings, known) =
        read::<Outer>("word = \"all\"\n[inner]\nutmost = 0.9\n", "a.toml").unwrap();
    assert_eq!((settings.word, settings.inner.most), (Most::All, 0.9));
    assert_eq!(known.lines["inner.most"], 3);
    let notices: Vec<String> = known.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        ["a.toml:3: inner.utmost: is now called `most`: write that"]
    );
}

#[test]
fn what_is_left_out_is_not_written() {
    assert_eq!(
        toml::to_string(&Outer::default()).unwrap(),
        "word = \"half\"\n\n[inner]\nleast = 0.5\nmost = 0.7\nswitch = true\n"
    );
}
