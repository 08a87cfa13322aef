//! A frame as text, and as SVG: the same letters at the same places, as a terminal would show them.

use itertools::Itertools as _;
use maud::{Markup, PreEscaped, html};
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};

use super::printable::{columns, letter};
use crate::report::Px;

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

/// The looks of a stretch of cells.
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
        self.class
            .into_iter()
            .chain(set.map(|(_, name)| name))
            .join(" ")
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

/// A frame as a picture for light and dark pages. Blocks and shades are drawn as shapes, so that they do not depend on
/// a reader's fonts.
pub fn svg(buffer: &Buffer, title: &str) -> String {
    let area = buffer.area;
    let width = (f64::from(area.width) * WIDE + 2.0 * MARGIN).round();
    let height = (f64::from(area.height) * HIGH + 2.0 * MARGIN).round();
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox={ "0 0 " (width) " " (height) } role="img" {
            title { (printable(title)) }
            style { (PreEscaped(STYLE)) }
            rect.ground width="100%" height="100%" rx="6" {}
            @for y in 0..area.height {
                @for stretch in stretches(buffer, y) { (stretch.draw()) }
            }
        }
    };
    picture.into_string() + "\n"
}

/// Adjacent letters with the same looks, either all blocks or none.
struct Stretch {
    /// Column and row.
    at: (u16, u16),
    columns: u16,
    letters: String,
    looks: Looks,
    is_blocks: bool,
}

fn stretches(buffer: &Buffer, y: u16) -> Vec<Stretch> {
    let area = buffer.area;
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut x = 0;
    while x < area.width
        && let Some(cell) = buffer.cell((area.x + x, area.y + y))
    {
        let letter = cell.symbol().chars().next().unwrap_or(' ');
        let wide = u16::try_from(columns(cell.symbol()).max(1)).unwrap_or(1);
        let (looks, is_blocks) = (Looks::of(cell), block(letter).is_some());
        match stretches.last_mut() {
            Some(last) if last.looks == looks && last.is_blocks == is_blocks => {
                last.columns += wide;
                last.letters.push(letter);
            }
            _ => stretches.push(Stretch {
                at: (x, y),
                columns: wide,
                letters: letter.to_string(),
                looks,
                is_blocks,
            }),
        }
        x += wide;
    }
    stretches
}

impl Stretch {
    fn draw(&self) -> Markup {
        let left = MARGIN + f64::from(self.at.0) * WIDE;
        let top = MARGIN + f64::from(self.at.1) * HIGH;
        let colour = self.looks.class.unwrap_or("plain");
        html! {
            @if self.looks.reversed {
                rect class=(colour) x=(Px(left)) y=(Px(top))
                    width=(Px(f64::from(self.columns) * WIDE)) height=(HIGH) {}
            }
            @if self.is_blocks {
                @let colour = if self.looks.reversed { "ground" } else { colour };
                @for (place, letter) in self.letters.chars().enumerate() {
                    (drawn(letter, colour, left + place as f64 * WIDE, top))
                }
            } @else {
                (self.text(left, top + HIGH * 0.75))
            }
        }
    }

    fn text(&self, left: f64, base: f64) -> Markup {
        let trimmed = self.letters.trim_start();
        let blanks = self.letters.chars().count() - trimmed.chars().count();
        let shown = trimmed.trim_end();
        let classes = Some(self.looks.classes()).filter(|classes| !classes.is_empty());
        html! {
            @if !shown.is_empty() {
                text class=[classes] x=(Px(left + blanks as f64 * WIDE)) y=(Px(base))
                    textLength=(Px(columns(shown) as f64 * WIDE)) { (printable(shown)) }
            }
        }
    }
}

/// A block or shade as a rectangle; nothing for any other letter.
fn drawn(letter: char, colour: &str, x: f64, top: f64) -> Markup {
    let Some((across, share, opacity)) = block(letter) else {
        return Markup::default();
    };
    let (wide, high) = match across {
        true => (WIDE * share, HIGH),
        false => (WIDE, HIGH * share),
    };
    html! {
        rect class=(colour) x=(Px(x)) y=(Px(top + HIGH - high)) width=(Px(wide)) height=(Px(high))
            opacity=(opacity) {}
    }
}

/// A block or shade: whether it fills from the left (otherwise from below), the share that it fills, and its opacity.
fn block(letter: char) -> Option<(bool, f64, f64)> {
    let number = u32::from(letter);
    match number {
        0x2581..=0x2588 => Some((false, f64::from(number - 0x2580) / 8.0, 1.0)),
        0x2589..=0x258f => Some((true, f64::from(0x2590 - number) / 8.0, 1.0)),
        0x2591..=0x2593 => Some((false, 1.0, f64::from(number - 0x2590) / 4.0)),
        _ => None,
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|each| letter(each).0).collect()
}
