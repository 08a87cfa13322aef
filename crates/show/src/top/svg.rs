//! A frame as text, and as SVG: the same letters at the same places, as a terminal would show them.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::printable::columns;

/// Width and height of a letter in the picture's units.
const WIDE: f64 = 8.4;
const HIGH: f64 = 18.0;

/// Room around the letters.
const MARGIN: f64 = 10.0;

/// A frame as lines of text, without the blanks at their ends.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut line = String::new();
        let mut x = buffer.area.left();
        while x < buffer.area.right() {
            let symbol = buffer.cell((x, y)).map_or(" ", Cell::symbol);
            line.push_str(symbol);
            x = x.saturating_add(u16::try_from(columns(symbol).max(1)).unwrap_or(1));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What a stretch of cells looks like.
#[derive(Clone, Copy, PartialEq)]
struct Looks {
    class: Option<&'static str>,
    bold: bool,
    dim: bool,
    underlined: bool,
    reversed: bool,
}

impl Looks {
    fn of(cell: &Cell) -> Self {
        let class = match cell.fg {
            Color::Indexed(28) | Color::Green => Some("good"),
            Color::Indexed(160) | Color::Red => Some("bad"),
            Color::Indexed(130) | Color::Magenta => Some("warn"),
            Color::Indexed(32) | Color::Blue => Some("accent"),
            _ => None,
        };
        Self {
            class,
            bold: cell.modifier.contains(Modifier::BOLD),
            dim: cell.modifier.contains(Modifier::DIM),
            underlined: cell.modifier.contains(Modifier::UNDERLINED),
            reversed: cell.modifier.contains(Modifier::REVERSED),
        }
    }

    fn classes(self) -> String {
        let flags = [
            (self.bold, "bold"),
            (self.dim, "dim"),
            (self.underlined, "under"),
            (self.reversed, "turned"),
        ];
        let set = flags.into_iter().filter(|&(set, _)| set);
        let names: Vec<&str> = self.class.into_iter().chain(set.map(|(_, n)| n)).collect();
        names.join(" ")
    }
}

const STYLE: &str = "\
text{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:14px;\
fill:#1f2328;white-space:pre}\
.ground{fill:#fff}.plain{fill:#1f2328}\
.good{fill:#008700}.bad{fill:#d70000}.warn{fill:#af5f00}.accent{fill:#0087d7}\
.bold{font-weight:bold}.dim{opacity:.6}.under{text-decoration:underline}\
text.turned{fill:#fff}\
@media(prefers-color-scheme:dark){text,.plain{fill:#e6edf3}.ground{fill:#0d1117}\
text.turned{fill:#0d1117}.good{fill:#3fb950}.bad{fill:#ff7b72}.warn{fill:#f0883e}.accent{fill:#58a6ff}}";

/// A frame as a picture that suits light and dark pages. Blocks and shades are drawn, so that they do
/// not depend on a reader's letters.
pub fn svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let width = f64::from(area.width) * WIDE + 2.0 * MARGIN;
    let height = f64::from(area.height) * HIGH + 2.0 * MARGIN;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n",
        escaped(title)
    );
    for y in 0..area.height {
        row(&mut picture, buffer, y);
    }
    picture.push_str("</svg>\n");
    picture
}

fn row(picture: &mut String, buffer: &Buffer, y: u16) {
    let area = buffer.area;
    let mut x = 0;
    while x < area.width {
        let Some(first) = buffer.cell((area.x + x, area.y + y)) else {
            return;
        };
        let looks = Looks::of(first);
        let from = x;
        let mut letters = String::new();
        let mut is_blocks = None;
        while let Some(cell) = buffer.cell((area.x + x, area.y + y)) {
            let symbol = cell.symbol();
            let letter = symbol.chars().next().unwrap_or(' ');
            let is_block = block(letter).is_some();
            if x >= area.width
                || Looks::of(cell) != looks
                || is_blocks.is_some_and(|blocks| blocks != is_block)
            {
                break;
            }
            is_blocks = Some(is_block);
            letters.push(letter);
            x += u16::try_from(columns(symbol).max(1)).unwrap_or(1);
        }
        if x == from {
            return;
        }
        stretch(picture, (from, y), x - from, &letters, looks);
    }
}

/// Letters next to each other that look alike.
fn stretch(picture: &mut String, at: (u16, u16), columns: u16, letters: &str, looks: Looks) {
    let left = MARGIN + f64::from(at.0) * WIDE;
    let top = MARGIN + f64::from(at.1) * HIGH;
    let wide = f64::from(columns) * WIDE;
    // Whatever is written into a string is taken.
    if looks.reversed {
        let _ = writeln!(
            picture,
            "<rect class=\"{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{HIGH}\"/>",
            looks.class.unwrap_or("plain")
        );
    }
    if letters.trim().is_empty() {
        return;
    }
    if letters.chars().next().and_then(block).is_some() {
        let class = if looks.reversed {
            "ground"
        } else {
            looks.class.unwrap_or("plain")
        };
        for (place, letter) in letters.chars().enumerate() {
            let Some((across, share, opacity)) = block(letter) else {
                continue;
            };
            let (wide, high) = if across {
                (WIDE * share, HIGH)
            } else {
                (WIDE, HIGH * share)
            };
            let x = left + place as f64 * WIDE;
            let y = top + HIGH - high;
            let _ = writeln!(
                picture,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
                 height=\"{high:.1}\" opacity=\"{opacity}\"/>"
            );
        }
        return;
    }
    let trimmed = letters.trim_start();
    let blanks = letters.chars().count() - trimmed.chars().count();
    let left = left + blanks as f64 * WIDE;
    let shown = trimmed.trim_end();
    let length = super::printable::columns(shown) as f64 * WIDE;
    let base = top + HIGH * 0.75;
    let classes = looks.classes();
    let class = match classes.as_str() {
        "" => String::new(),
        classes => format!(" class=\"{classes}\""),
    };
    let _ = writeln!(
        picture,
        "<text{class} x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{length:.1}\">{}</text>",
        escaped(shown)
    );
}

/// A block or shade: whether it fills from the left (else from below), how much, how strongly.
fn block(letter: char) -> Option<(bool, f64, f64)> {
    let number = u32::from(letter);
    match number {
        0x2581..=0x2588 => Some((false, f64::from(number - 0x2580) / 8.0, 1.0)),
        0x2589..=0x258f => Some((true, f64::from(0x2590 - number) / 8.0, 1.0)),
        0x2591..=0x2593 => Some((false, 1.0, f64::from(number - 0x2590) / 4.0)),
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter => escaped.push(super::printable::letter(letter).0),
        }
    }
    escaped
}
