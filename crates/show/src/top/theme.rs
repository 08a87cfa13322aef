//! How things look: colours that are legible on light and on dark backgrounds, and letters that every terminal has.
//!
//! No colour carries a meaning alone: bars have lengths, classes have names, and the selected row is reversed.
//! Backgrounds are never set, so that a person's own stay. Of 256 colours, we use those that stand out from both white
//! and black (contrast of at least 3.5 to 1 by WCAG 2.2, SC 1.4.3; its floor for large text and graphics is 3); of the
//! 16 old colours, which every terminal defines for itself, only red, green, magenta and blue.

use ratatui_core::style::{Color, Modifier, Style};

/// How many colours may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colors {
    /// None: bold, dim, underlined and reversed letters alone (`NO_COLOR`).
    None,
    /// The terminal's 16.
    Sixteen,
    /// 256.
    #[default]
    Many,
}

/// How things look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How many colours may be used.
    pub colors: Colors,
    /// Only letters of ASCII.
    pub ascii: bool,
}

/// The role of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    Plain,
    /// Of less weight.
    Dim,
    /// Of more weight.
    Strong,
    /// The head of a table.
    Head,
    /// Local, moved, near.
    Good,
    /// Far, failed, a super-devil.
    Bad,
    /// Worth a look: a devil, something undone or refused.
    Warn,
    /// Bars, and the present position.
    Accent,
}

/// Numbers of the 256 colours, each with its red, green and blue.
const GOOD: (u8, [u8; 3]) = (28, [0, 135, 0]);
const BAD: (u8, [u8; 3]) = (160, [215, 0, 0]);
const WARN: (u8, [u8; 3]) = (130, [175, 95, 0]);
const ACCENT: (u8, [u8; 3]) = (32, [0, 135, 215]);

impl Look {
    /// The style of a tone.
    pub fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let colored = |many: (u8, [u8; 3]), sixteen: Color, without: Modifier| match self.colors {
            Colors::None => plain.add_modifier(without),
            Colors::Sixteen => plain.fg(sixteen),
            Colors::Many => plain.fg(Color::Indexed(many.0)),
        };
        match tone {
            Tone::Plain => plain,
            Tone::Dim => plain.add_modifier(Modifier::DIM),
            Tone::Strong => plain.add_modifier(Modifier::BOLD),
            Tone::Head => plain.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            Tone::Good => colored(GOOD, Color::Green, Modifier::empty()),
            Tone::Bad => colored(BAD, Color::Red, Modifier::BOLD),
            Tone::Warn => colored(WARN, Color::Magenta, Modifier::BOLD),
            Tone::Accent => colored(ACCENT, Color::Blue, Modifier::empty()),
        }
    }

    /// A share of 0 to 1 as one letter; 0 is a dot.
    pub fn level(self, share: f64) -> char {
        const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const DIGITS: [char; 11] = ['-', '1', '2', '3', '4', '5', '6', '7', '8', '9', '#'];
        if share.is_nan() || share <= 0.0 {
            return if self.ascii { '.' } else { '·' };
        }
        let share = share.min(1.0);
        if self.ascii {
            DIGITS[(share * 10.0) as usize]
        } else {
            BLOCKS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
        }
    }

    /// A share of 0 to 1 as the shade of a field.
    pub fn shade(self, share: f64) -> char {
        const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
        const ASCII: [char; 5] = ['.', ':', '+', '*', '#'];
        let at = match share {
            _ if share.is_nan() || share <= 0.0 => 0,
            _ if share < 0.05 => 1,
            _ if share < 0.25 => 2,
            _ if share < 0.6 => 3,
            _ => 4,
        };
        if self.ascii { ASCII[at] } else { SHADES[at] }
    }

    /// A share of 0 to 1 as a bar of at most `columns` columns.
    pub fn bar(self, share: f64, columns: u16) -> String {
        const PARTS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        let share = if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 1.0)
        };
        let eighths = (share * f64::from(columns) * 8.0).round() as usize;
        let (full, part) = (eighths / 8, eighths % 8);
        if self.ascii {
            return "#".repeat(full + usize::from(part >= 4));
        }
        let mut bar = "█".repeat(full);
        if let Some(part) = part.checked_sub(1) {
            bar.push(PARTS[part]);
        }
        bar
    }

    /// An arrow from left to right.
    pub fn arrow(self) -> &'static str {
        if self.ascii { ">" } else { "→" }
    }

    /// The letter that ends a text that was cut.
    pub fn cut(self) -> char {
        if self.ascii { '~' } else { '…' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of a colour with a ground, by WCAG 2.2.
    fn contrast(color: [u8; 3], ground: [u8; 3]) -> f64 {
        let luminance = |color: [u8; 3]| {
            let linear = color.map(|part| {
                let part = f64::from(part) / 255.0;
                if part <= 0.04045 {
                    part / 12.92
                } else {
                    ((part + 0.055) / 1.055).powf(2.4)
                }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let (one, other) = (luminance(color), luminance(ground));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn colours_stand_out_from_white_and_from_black() {
        for (index, color) in [GOOD, BAD, WARN, ACCENT] {
            // The cube of 6 x 6 x 6 colours that begins at 16.
            let step = |part: u8| [0, 95, 135, 175, 215, 255][usize::from(part)];
            let cube = index - 16;
            assert_eq!(color, [cube / 36, cube / 6 % 6, cube % 6].map(step));
            for ground in [[0; 3], [255; 3]] {
                let contrast = contrast(color, ground);
                assert!(contrast >= 3.5, "{color:?} on {ground:?}: {contrast}");
            }
        }
    }

    #[test]
    fn without_colours_none_is_set() {
        let look = Look {
            colors: Colors::None,
            ascii: false,
        };
        for tone in [
            Tone::Plain,
            Tone::Dim,
            Tone::Strong,
            Tone::Head,
            Tone::Good,
            Tone::Bad,
            Tone::Warn,
            Tone::Accent,
        ] {
            let style = look.style(tone);
            assert_eq!((style.fg, style.bg), (None, None));
        }
    }

    #[test]
    fn nothing_and_something_can_be_told_apart() {
        for look in [true, false].map(|ascii| Look {
            ascii,
            ..Look::default()
        }) {
            assert_ne!(look.level(0.0), look.level(0.000_1));
            assert_ne!(look.level(0.95), look.level(0.5));
            assert_ne!(look.shade(0.0), look.shade(0.000_1));
            assert_eq!(look.bar(1.0, 7).chars().count(), 7);
            assert_eq!(look.bar(f64::NAN, 7), "");
        }
    }
}
