//! A page as a browser's parser sees it.

use std::rc::Rc;

use html5ever::tendril::TendrilSink;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Node, NodeData, RcDom};
use numaherd_show::report::{Run, page};

/// What a page is made of. No script, no image, nothing that is fetched.
const ELEMENTS: [&str; 49] = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "h3",
    "p",
    "b",
    "br",
    "small",
    "a",
    "bdi",
    "nav",
    "ol",
    "ul",
    "li",
    "div",
    "span",
    "section",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "figure",
    "figcaption",
    "svg",
    "g",
    "path",
    "rect",
    "circle",
    "text",
    "desc",
    "i",
    "em",
    "strong",
    "hr",
    "dl",
    "dt",
    "dd",
    "tfoot",
    "code",
    "link",
    "meter",
];

/// A page, as written and as read.
pub struct Page {
    pub html: String,
    dom: RcDom,
}

impl Page {
    pub fn of(runs: &[Run]) -> Self {
        Self::read(page(runs))
    }

    pub fn read(html: String) -> Self {
        let dom = parse_document(RcDom::default(), ParseOpts::default()).one(html.as_str());
        Self { html, dom }
    }

    /// Fails unless it is HTML without an error, of known elements, whose attributes are harmless and
    /// whose lengths are numbers.
    #[track_caller]
    pub fn assert_sound(&self) {
        let errors = self.dom.errors.borrow();
        assert!(
            errors.is_empty(),
            "a browser would have to mend it: {errors:?}"
        );
        let mut ids = Vec::new();
        walk(&self.dom.document, &mut |node| {
            let NodeData::Element { name, attrs, .. } = &node.data else {
                return;
            };
            let element = &*name.local;
            assert!(
                ELEMENTS.contains(&element),
                "<{element}> has no place on the page"
            );
            for attribute in attrs.borrow().iter() {
                let (key, value) = (&*attribute.name.local, &*attribute.value);
                assert!(!key.starts_with("on"), "<{element} {key}> runs something");
                assert!(key != "src" && key != "style", "<{element} {key}>");
                if key == "href" {
                    let is_served = ["style.css", "status", "metrics"].contains(&value);
                    assert!(value.starts_with('#') || is_served, "{value} is elsewhere");
                }
                if key == "id" {
                    ids.push(value.to_owned());
                }
                let is_length = ["d", "x", "y", "cx", "cy", "width", "height", "viewBox"];
                if is_length.contains(&key) {
                    let strange = value.contains("NaN") || value.contains("inf");
                    assert!(!strange, "<{element} {key}={value}>");
                }
            }
        });
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all, "an id is there twice");
        self.assert_charts_are_told();
    }

    /// Every chart has a title and a description.
    #[track_caller]
    fn assert_charts_are_told(&self) {
        walk(&self.dom.document, &mut |node| {
            if element(node) == Some("figure") {
                let mut told = Vec::new();
                walk(node, &mut |inner| {
                    if matches!(element(inner), Some("title" | "desc")) {
                        told.push(text_of(inner));
                    }
                });
                assert!(told.len() >= 2 && told.iter().all(|text| !text.trim().is_empty()));
            }
        });
    }

    /// What is written on it: a line for each heading, paragraph and row, cells divided by bars. Of a
    /// chart its caption, its title and description, and the titles in it, not its labels.
    pub fn text(&self) -> String {
        let mut lines = String::new();
        write(&self.dom.document, &mut lines);
        lines
    }
}

fn element(node: &Node) -> Option<&str> {
    match &node.data {
        NodeData::Element { name, .. } => Some(&name.local),
        _ => None,
    }
}

fn walk(node: &Rc<Node>, look: &mut impl FnMut(&Rc<Node>)) {
    look(node);
    for child in node.children.borrow().iter() {
        walk(child, look);
    }
}

fn text_of(node: &Rc<Node>) -> String {
    let mut text = String::new();
    walk(node, &mut |inner| {
        if let NodeData::Text { contents } = &inner.data {
            text.push_str(&contents.borrow());
        }
    });
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn write(node: &Rc<Node>, lines: &mut String) {
    let mut line = |mark: &str| {
        lines.push_str(mark);
        lines.push_str(&text_of(node));
        lines.push('\n');
    };
    match element(node) {
        Some("style" | "head") => {}
        Some("h1") => line("# "),
        Some("h2") => line("\n## "),
        Some("h3") => line("\n### "),
        Some("title") => line("  title: "),
        Some("desc") => line("  described: "),
        Some("p" | "caption") => line(""),
        Some("figcaption") => line("\nchart: "),
        Some("li") => line("* "),
        Some("text") => {}
        Some("tr") => {
            let cells = node.children.borrow();
            let cells: Vec<String> = cells.iter().map(text_of).collect();
            lines.push_str(&cells.join(" | "));
            lines.push('\n');
        }
        _ => {
            for child in node.children.borrow().iter() {
                write(child, lines);
            }
        }
    }
}
