//! Puts text on a frame. All text from a ledger passes through here and is harmless afterwards.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};

use super::printable::{columns, letter};
use super::theme::{Look, Tone};

/// A frame, and how things look on it.
pub(super) struct Canvas<'b> {
    buffer: &'b mut Buffer,
    pub(super) look: Look,
}

impl<'b> Canvas<'b> {
    pub(super) fn new(buffer: &'b mut Buffer, look: Look) -> Self {
        Self { buffer, look }
    }

    /// Puts text at a place of an area (columns and rows from its corner), cut to the area; cut text ends in a mark.
    /// Returns the column after the text.
    pub(super) fn text(&mut self, area: Rect, x: u16, y: u16, text: &str, tone: Tone) -> u16 {
        self.styled(area, x, y, text, self.look.style(tone))
    }

    fn styled(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if y >= area.height {
            return x;
        }
        let row = area.y.saturating_add(y);
        let mut at = x;
        let mut last = None;
        for each in text.chars() {
            let (shown, width) = self.drawn(each);
            if at.saturating_add(width) > area.width {
                if let Some(last) = last {
                    let cut = self.look.cut();
                    self.put(area.x.saturating_add(last), row, cut, style);
                }
                return area.width;
            }
            self.put(area.x.saturating_add(at), row, shown, style);
            if width == 2 {
                self.put(area.x.saturating_add(at + 1), row, ' ', style);
            }
            last = Some(at);
            at += width;
        }
        at
    }

    /// A letter as it is drawn with this look, and its width in columns.
    fn drawn(&self, each: char) -> (char, u16) {
        match letter(each) {
            (shown, _) if self.look.ascii && !shown.is_ascii() => ('?', 1),
            drawn => drawn,
        }
    }

    fn put(&mut self, x: u16, y: u16, letter: char, style: Style) {
        if let Some(cell) = self.buffer.cell_mut((x, y)) {
            cell.set_char(letter).set_style(style);
        }
    }

    /// Puts text so that it ends at a column (from the area's left), not before `from`.
    pub(super) fn right(
        &mut self,
        area: Rect,
        from: u16,
        end: u16,
        y: u16,
        text: &str,
        tone: Tone,
    ) {
        let width = u16::try_from(columns(text)).unwrap_or(u16::MAX);
        let x = end.saturating_sub(width).max(from);
        let within = Rect {
            width: area.width.min(end),
            ..area
        };
        self.text(within, x, y, text, tone);
    }

    /// Reverses the colours of a row of an area, to show that it is selected.
    pub(super) fn select(&mut self, area: Rect, y: u16) {
        if y >= area.height {
            return;
        }
        for x in 0..area.width {
            let at = (area.x.saturating_add(x), area.y.saturating_add(y));
            if let Some(cell) = self.buffer.cell_mut(at) {
                cell.set_style(Style::new().add_modifier(Modifier::REVERSED));
            }
        }
    }

    /// Empties an area.
    pub(super) fn clear(&mut self, area: Rect) {
        for y in area.top()..area.bottom() {
            for x in area.left()..area.right() {
                if let Some(cell) = self.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
    }
}

/// Wraps a text to lines of `width` columns, between words where possible.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let needs = columns(word);
        if used > 0 && used + 1 + needs > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        for each in word.chars() {
            let needs = usize::from(letter(each).1);
            if used > 0 && used + needs > width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(each);
            used += needs;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_letter_is_lost_and_lines_keep_to_their_width(text in "\\PC{0,60}", width in 2usize..30) {
            let lines = wrapped(&text, width);
            prop_assert!(lines.iter().all(|line| columns(line) <= width));
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
