//! `top` of recordings that nobody vouches for, whatever is pressed, on whatever screen.
//!
//! The input is a ledger whose lines have no sums yet ([`sealed`] adds them), and after a byte 0 keys of
//! three bytes: what is pressed, and the columns and rows of the screen after it.
//!
//! Holds: nothing makes it panic; a frame has the size of its screen, and in no cell anything but one
//! letter that is seen; a frame can be written as text and drawn as a picture.
//!
//! Reader: crates/show/src/top.rs crates/show/src/top
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;
use std::sync::Arc;

use numaherd_fuzz::sealed;
use numaherd_herd::Line;
use numaherd_herd::ledger::{Ledger, Reader};
use numaherd_show::top::{Key, Look, Timeline, Top, svg, text};

numaherd_fuzz::target!(|input: &[u8]| {
    let at = input.iter().position(|&byte| byte == 0);
    let (recording, keys) = input.split_at(at.unwrap_or(input.len()));
    let Ok(reader) = Reader::of_bytes(Path::new("fuzz.ledger"), sealed(recording)) else {
        return;
    };
    let ledger = Ledger::of(reader);
    let lines: Vec<Arc<Line>> = ledger.lines.into_iter().map(Arc::new).collect();
    let mut top = Top::new(Timeline::new(), "fuzz.ledger", Look::default());
    lines.iter().for_each(|line| top.take(line));
    let mut again = |place: u64| lines.get(usize::try_from(place).ok()?).cloned();
    let keys = keys.get(1..).unwrap_or_default();
    for &[kind, columns, rows] in keys.as_chunks::<3>().0.iter().take(50) {
        let letter = char::from(columns);
        let (columns, rows) = (u16::from(columns), u16::from(rows));
        top.key(key(kind, letter, columns, rows));
        top.tick(f64::from(kind));
        let frame = top.frame(columns, rows, &mut again);
        assert_eq!((frame.area.width, frame.area.height), (columns, rows));
        for cell in frame.content() {
            let mut letters = cell.symbol().chars();
            assert!(letters.next().is_some_and(|letter| !letter.is_control()));
            assert_eq!(letters.next(), None);
        }
        assert_eq!(text(&frame).lines().count(), usize::from(rows));
        assert!(svg(&frame, "fuzz").ends_with("</svg>\n"));
    }
});

fn key(kind: u8, letter: char, x: u16, y: u16) -> Key {
    const KEYS: [Key; 13] = [
        Key::Up,
        Key::Down,
        Key::Left,
        Key::Right,
        Key::Home,
        Key::End,
        Key::PageUp,
        Key::PageDown,
        Key::Enter,
        Key::Escape,
        Key::Tab,
        Key::BackTab,
        Key::Backspace,
    ];
    match kind % 32 {
        at @ 0..13 => KEYS[usize::from(at)],
        13 => Key::Click(x, y),
        14 => Key::Control(letter),
        15 => Key::Char(letter),
        at => Key::Char(
            "1234/?<>[]rpn ng"[..]
                .chars()
                .nth(usize::from(at) - 16)
                .unwrap_or(' '),
        ),
    }
}
