//! The parts of HTML pages: a document in the style of reports, tables, and text from a ledger, which is always text
//! and never markup, whoever wrote it.

use std::fmt::Write;

use maud::{DOCTYPE, Escaper, Markup, PreEscaped, Render, html};

/// Letters of a name that are shown.
const MOST_NAME: usize = 40;

/// Letters of any other text that are shown.
const MOST_SAID: usize = 1_000;

/// The style sheet: one drawing for light, dark and print by its variables.
const STYLE: &str = include_str!("report/page/style.css");

/// What the page lets a browser fetch or run: nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A self-contained page, with this title as its heading.
pub(crate) fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("numaherd ", env!("CARGO_PKG_VERSION")));
                title { (Escaped(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (Escaped(title)) }
                (body)
            }
        }
    };
    page.into_string()
}

/// A table, which scrolls by itself where it is too wide. The title of a column of figures begins with `#`.
pub(crate) fn table(titles: &[&str], rows: &Markup) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                @for title in titles {
                    @match title.strip_prefix('#') {
                        Some(title) => { th.n { (title) } },
                        None => { th { (title) } },
                    }
                }
            } }
            tbody { (rows) }
        } }
    }
}

/// Text from a ledger: escaped, and cut if it is too long. Characters that are not visible or that change how other
/// text is shown (control characters, marks of writing direction) are replaced.
pub(crate) struct Escaped<'t>(pub(crate) &'t str);

impl Render for Escaped<'_> {
    fn render_to(&self, buffer: &mut String) {
        let mut escaper = Escaper::new(buffer);
        let mut letters = self.0.chars();
        for letter in letters.by_ref().take(MOST_SAID) {
            // An escaper takes whatever is written.
            let _ = escaper.write_char(seen(letter));
        }
        if letters.next().is_some() {
            let _ = escaper.write_char('…');
        }
    }
}

/// A letter as it is shown: a letter that is not visible, or that would change others, is replaced.
pub(crate) fn seen(letter: char) -> char {
    if is_seen(letter) { letter } else { '\u{fffd}' }
}

/// Whether a letter is visible and does not change how others are shown.
fn is_seen(letter: char) -> bool {
    let is_mark = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let is_none = matches!(letter, '\u{fdd0}'..='\u{fdef}') || u32::from(letter) & 0xfffe == 0xfffe;
    !(letter.is_control() || is_mark || is_none)
}

/// A name, cut if it is too long, with invisible letters replaced.
pub(crate) fn name(text: &str) -> String {
    let mut letters = text.chars().map(seen);
    let mut name: String = letters.by_ref().take(MOST_NAME).collect();
    if letters.next().is_some() {
        name.push('…');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ledger_says_is_never_markup() {
        let said = Escaped("<script>\"&'\u{202e}\u{0}\u{ffff}</script>")
            .render()
            .into_string();
        assert_eq!(
            said,
            "&lt;script&gt;&quot;&amp;'\u{fffd}\u{fffd}\u{fffd}&lt;/script&gt;"
        );
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(name("chase"), "chase");
        let said = Escaped(&"&".repeat(MOST_SAID + 1)).render().into_string();
        assert_eq!(said, format!("{}…", "&amp;".repeat(MOST_SAID)));
        assert_eq!(name(&"ü".repeat(41)), format!("{}…", "ü".repeat(40)));
    }
}
