//! Text from a ledger on a terminal: whoever chose a name, it moves no cursor, changes no colour and takes exactly the
//! columns that are counted for it.
//!
//! A process can choose any name, and machines and rules come from files. Everything except letters and signs of one or
//! two columns, written from left to right, is shown as `\u{fffd}`: control characters, marks of direction, letters of
//! scripts that run from right to left (terminals that reorder lines would reorder the row), and everything without
//! width, such as joiners and combining marks.

use unicode_width::UnicodeWidthChar;

/// What is shown for a letter that cannot be shown.
pub const INSTEAD: char = '\u{fffd}';

/// The letter as it is shown, and the columns it takes: 1 or 2.
pub fn letter(letter: char) -> (char, u16) {
    // Most text.
    if letter.is_ascii_graphic() || letter == ' ' {
        return (letter, 1);
    }
    match letter.width() {
        Some(width @ 1..=2) if !reorders(letter) && !varies(letter) => {
            (letter, if width == 2 { 2 } else { 1 })
        }
        _ => (INSTEAD, 1),
    }
}

/// Letters and marks that run from right to left, or make others do so.
fn reorders(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0x0590..=0x08ff
            | 0x200e..=0x200f
            | 0x202a..=0x202e
            | 0x2066..=0x2069
            | 0xfb1d..=0xfdff
            | 0xfe70..=0xfeff
            | 0x10800..=0x10fff
            | 0x1e800..=0x1efff
    )
}

/// Letters whose width or looks each terminal decides for itself: private ones, tags, selectors, regional indicators,
/// fillers, and other line separators.
fn varies(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0x00ad
            | 0x115f..=0x11ff
            | 0x180b..=0x180f
            | 0x2028..=0x2029
            | 0x3164
            | 0xe000..=0xf8ff
            | 0xfe00..=0xfe0f
            | 0xffa0
            | 0xfff0..=0xfffb
            | 0x1f1e6..=0x1f1ff
            | 0x1f3fb..=0x1f3ff
            | 0xe0000..=0xfffff
            | 0x10_0000..=0x10_ffff
    )
}

/// The columns that a text takes as it is shown.
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| usize::from(letter(c).1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        text.chars().map(|c| letter(c).0).collect()
    }

    #[test]
    fn names_that_would_do_something_do_nothing() {
        assert_eq!(shown("\x1b[31mred\x07"), "\u{fffd}[31mred\u{fffd}");
        assert_eq!(
            shown("a\u{9b}2Jb\r\n\tc"),
            "a\u{fffd}2Jb\u{fffd}\u{fffd}\u{fffd}c"
        );
        assert_eq!(shown("x\u{202e}exe.txt"), "x\u{fffd}exe.txt");
        assert_eq!(shown("שלום"), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(
            shown("e\u{301}\u{200b}\u{200d}"),
            "e\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn other_scripts_are_shown_and_counted() {
        assert_eq!(shown("größe数据"), "größe数据");
        assert_eq!(columns("größe数据"), 9);
    }

    proptest! {
        #[test]
        fn what_is_shown_has_the_width_it_is_counted_for(any in any::<char>()) {
            let (shown, width) = letter(any);
            prop_assert!(!shown.is_control());
            prop_assert!(shown == INSTEAD || shown.width() == Some(usize::from(width)));
        }
    }
}
