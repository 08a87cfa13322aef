//! Frames of `top`: as people see them, whatever the machine, the screen and the keys.

mod crowd;

use numaherd_world::Unmanaged;
use std::sync::Arc;

use numaherd_herd::ledger::{Ledger, Reader};
use numaherd_herd::{Line, Record};
use numaherd_show::top::{Colors, Effect, Key, Look, Tab, Timeline, Top, svg, text};
use proptest::prelude::*;
use ratatui_core::buffer::Buffer;

use crate::{made, runs};
use crowd::crowd;

/// A run as it is looked at, with all of its lines.
struct Seen {
    top: Top,
    lines: Vec<Arc<Line>>,
}

impl Seen {
    fn of(lines: &[Line]) -> Self {
        Self::with(lines, Look::default())
    }

    fn with(lines: &[Line], look: Look) -> Self {
        let lines: Vec<Arc<Line>> = lines.iter().cloned().map(Arc::new).collect();
        let mut top = Top::new(Timeline::new(), "the ledger run.ledger", look);
        for line in &lines {
            top.take(line);
        }
        top.ended(None);
        Self { top, lines }
    }

    fn keys(mut self, keys: &str) -> Self {
        for key in keys.chars() {
            self.key(key);
        }
        self
    }

    /// A key by a letter: arrows are ←→↑↓, ⏎ is Enter, ⇤ and ⇥ are Home and End, and ␛ is Escape.
    fn key(&mut self, letter: char) {
        let key = match letter {
            '←' => Key::Left,
            '→' => Key::Right,
            '↑' => Key::Up,
            '↓' => Key::Down,
            '⏎' => Key::Enter,
            '⇤' => Key::Home,
            '⇥' => Key::End,
            '␛' => Key::Escape,
            letter => Key::Char(letter),
        };
        // What is on the screen decides what a key is about.
        self.frame(80, 24);
        assert_ne!(self.top.key(key), Effect::Quit);
    }

    fn frame(&mut self, columns: u16, rows: u16) -> Buffer {
        let lines = &self.lines;
        let mut again = |place| lines.get(usize::try_from(place).ok()?).cloned();
        self.top.frame(columns, rows, &mut again)
    }

    fn text(&mut self, columns: u16, rows: u16) -> String {
        text(&self.frame(columns, rows))
    }
}

#[test]
fn a_run_at_its_end_and_before_the_move() {
    let made = runs::faster();
    insta::assert_snapshot!(Seen::of(made.lines()).text(80, 24));
    insta::assert_snapshot!("wide", Seen::of(made.lines()).text(160, 20));
    insta::assert_snapshot!(
        "before_the_move",
        Seen::of(made.lines()).keys("⇤→").text(100, 20)
    );
    insta::assert_snapshot!(
        "at_the_decision",
        Seen::of(made.lines()).keys("⇤]").text(100, 20)
    );
}

#[test]
fn each_view_of_a_run() {
    let made = runs::faster();
    let view = |keys: &str| Seen::of(made.lines()).keys(keys).text(100, 20);
    insta::assert_snapshot!("threads", view("⏎"));
    insta::assert_snapshot!("heat", view("⇤]→3"));
    insta::assert_snapshot!("decisions", view("4"));
    insta::assert_snapshot!("a_decision", view("4↓⏎"));
    insta::assert_snapshot!("a_thread", view("2↓⏎"));
    insta::assert_snapshot!("filtered", view("2/10[1]⏎"));
    let help = Seen::of(made.lines()).keys("?").text(100, 40);
    insta::assert_snapshot!("help", help);
}

#[test]
fn memory_by_kind_has_columns_where_it_is_told_apart() {
    let made = runs::buffers();
    let view = |keys: &str| Seen::of(made.lines()).keys(keys).text(160, 24);
    insta::assert_snapshot!("kinds", view(""));
    insta::assert_snapshot!("kinds_of_a_thread", view("2⏎"));
}

#[test]
fn what_was_refused_undone_planned_or_failed() {
    let view = |made: made::Made, keys: &str| Seen::of(made.lines()).keys(keys).text(120, 24);
    insta::assert_snapshot!("refused", view(runs::refused_by_each_guard(), "4"));
    insta::assert_snapshot!("undone", view(runs::slower_and_undone(), "4"));
    insta::assert_snapshot!("planned", view(runs::dry(), "4"));
    insta::assert_snapshot!("failed", view(runs::refused_by_the_kernel(), "4"));
    insta::assert_snapshot!("pages_failed", view(runs::pages_fail(), "4⏎"));
    insta::assert_snapshot!("machine", view(runs::virtual_machine(), "⏎"));
}

#[test]
fn machines_of_one_node_and_of_sixty_four() {
    insta::assert_snapshot!("one_node", Seen::of(&crowd(1, 4, 12, 3)).text(80, 24));
    insta::assert_snapshot!("sixty_four", Seen::of(&crowd(64, 16, 300, 3)).text(120, 30));
    insta::assert_snapshot!(
        "sixty_four_small",
        Seen::of(&crowd(64, 16, 300, 3)).text(80, 24)
    );
    let heat = Seen::of(&crowd(64, 16, 300, 3)).keys("3").text(80, 30);
    insta::assert_snapshot!("sixty_four_heat", heat);
    let tiny = Seen::of(&crowd(4, 4, 12, 3)).text(40, 8);
    insta::assert_snapshot!("tiny", tiny);
}

#[test]
fn letters_of_ascii_alone() {
    let look = Look {
        colors: Colors::None,
        ascii: true,
    };
    for keys in ["", "2", "3", "4", "?"] {
        let made = runs::faster();
        let text = Seen::with(made.lines(), look).keys(keys).text(100, 30);
        assert!(text.is_ascii(), "{text}");
    }
    let made = runs::faster();
    insta::assert_snapshot!("ascii", Seen::with(made.lines(), look).text(100, 20));
}

#[test]
fn nothing_and_half_a_ledger() {
    insta::assert_snapshot!("empty", Seen::of(&[]).text(80, 12));
    let made = runs::faster();
    insta::assert_snapshot!("start_alone", Seen::of(&made.lines()[..1]).text(80, 12));
    // Without its first lines the machine is not known; what was seen of it is shown.
    let headless = Seen::of(&made.lines()[1..]).text(80, 16);
    insta::assert_snapshot!("headless", headless);
    let mut bytes = made.bytes();
    bytes.truncate(bytes.len() * 2 / 3);
    let ledger = Ledger::of(Reader::of_bytes(std::path::Path::new("run.ledger"), bytes).unwrap());
    let mut seen = Seen::of(&ledger.lines);
    seen.top
        .ended(ledger.damage.map(|damage| damage.to_string()));
    let text = seen.text(100, 16);
    assert!(text.contains("run.ledger is damaged at line"), "{text}");
}

#[test]
fn keys_go_where_they_say() {
    let made = runs::faster();
    let seen = |keys: &str| Seen::of(made.lines()).keys(keys);
    let at = |keys: &str| {
        let mut seen = seen(keys);
        seen.frame(80, 24);
        seen.top.timeline().at()
    };
    assert_eq!(at("⇤"), 0);
    assert_eq!(at("⇤→→"), 2);
    assert_eq!(at("⇤←"), 0);
    assert_eq!(at("⇤⇥"), 9);
    // The move is decided on the snapshot of the fourth second, and its pages follow in that moment.
    assert_eq!(at("⇤]"), 3);
    assert_eq!(at("⇥["), 3);
    assert_eq!(seen("⏎").top.ui().tab, Tab::Threads);
    assert_eq!(seen("⏎␛").top.ui().tab, Tab::Processes);
    assert_eq!(Seen::of(made.lines()).top.key(Key::Char('q')), Effect::Quit);
    assert_eq!(
        Seen::of(made.lines()).top.key(Key::Control('c')),
        Effect::Quit
    );
    assert_eq!(
        Seen::of(made.lines()).top.key(Key::Control('z')),
        Effect::Suspend
    );
}

#[test]
fn playing_ends_at_the_end() {
    let made = runs::faster();
    let mut seen = Seen::of(made.lines()).keys(" ");
    seen.frame(80, 24);
    assert_eq!(seen.top.timeline().at(), 0);
    assert!(seen.top.tick(3.0));
    seen.frame(80, 24);
    assert_eq!(seen.top.timeline().at(), 3);
    assert!(!seen.top.tick(0.5), "the moment is the same");
    assert!(seen.top.tick(1e6));
    assert!(!seen.top.is_playing());
    assert!(seen.top.timeline().is_newest());
}

#[test]
fn a_moment_is_the_same_however_one_comes_there() {
    // So many that checkpoints are thinned out more than once.
    const SECONDS: usize = 1_300;
    let lines = crowd(4, 4, 10, SECONDS as u64);
    let mut seen = Seen::of(&lines);
    let mut forward = Vec::new();
    seen.top.key(Key::Home);
    for _ in 0..SECONDS {
        forward.push(seen.text(100, 20));
        seen.top.key(Key::Right);
    }
    for moment in [1_299, 3, 150, 64, 65, 0, 128, 1_127, 600, 599] {
        seen.top.show_time((moment as u64 + 1) * made::SECOND);
        let there = seen.text(100, 20);
        assert_eq!(there, forward[moment], "moment {moment}");
    }
    // One that was only heard keeps its latest lines itself.
    let mut heard = Top::new(Timeline::keeping(), "a herd", Look::default());
    lines
        .iter()
        .for_each(|line| heard.take(&Arc::new(line.clone())));
    heard.ended(None);
    heard.show_time(64 * made::SECOND);
    let frame = heard.frame(100, 20, &mut |_| panic!("nobody else has them"));
    assert_eq!(text(&frame), forward[63]);
}

#[test]
fn a_heard_run_keeps_only_its_latest_lines() {
    let mut heard = Top::new(Timeline::keeping(), "a herd", Look::default()).growing();
    // Of 300,000 threads in snapshots, the latest 200,000 or so are kept.
    for line in crowd(2, 4, 1_000, 300) {
        heard.take(&Arc::new(line));
    }
    let moments = heard.timeline().moments().len();
    assert!((190..=201).contains(&moments), "{moments}");
    heard.key(Key::Home);
    let frame = text(&heard.frame(100, 20, &mut |_| None));
    assert!(frame.contains("held"), "{frame}");
}

#[test]
fn hostile_names_are_harmless() {
    let names = [
        "\x1b[2J\x1b]0;owned\x07",
        "a\nb\r\tc",
        "\u{202e}gnp.exe\u{2066}",
        "שלום עולם",
        "数据库服务器数据库服务器数据库服务器",
        "e\u{301}\u{301}\u{301}",
        "👩\u{200d}👩\u{200d}👧",
        "\u{9b}31m",
        "",
    ];
    let mut made = made::Made::new("\x1b[31mdino");
    let threads = (0..).zip(names).map(|(n, name)| {
        let mut thread = made::thread(100 + n, 100 + n, name, n % 8, 1_000, 41.0, 0.5);
        thread.unmanaged = Some(Unmanaged::other(format!("because {name}")));
        thread
    });
    let processes = (0..)
        .zip(names)
        .map(|(n, name)| made::process(100 + n, name, &[(0, 10)]));
    made.second(threads.collect(), processes.collect());
    made.placed(
        vec![made::placement(
            100,
            0,
            4,
            "\x1b]8;;x",
            "\x1b[5m why",
            "\u{202e}",
        )],
        vec![made::order(100, Some(4), "4-5")],
    );
    made.notice("\x07");
    for keys in ["", "2", "3", "4", "4⏎", "2⏎", "2/\u{1b}x⏎"] {
        let mut seen = Seen::of(made.lines()).keys(keys);
        for (columns, rows) in [(80, 24), (200, 50), (17, 9)] {
            let frame = seen.frame(columns, rows);
            harmless(&frame);
            let picture = svg(&frame, names[0]);
            assert!(
                !picture.contains(|c: char| c.is_control() && c != '\n'),
                "{picture}"
            );
        }
    }
}

/// Nothing in a frame does anything on a terminal but be seen, in the columns it has.
fn harmless(frame: &Buffer) {
    use unicode_width::UnicodeWidthStr;
    for cell in frame.content() {
        let symbol = cell.symbol();
        assert_eq!(symbol.chars().count(), 1, "{symbol:?}");
        assert!(!symbol.contains(char::is_control), "{symbol:?}");
        assert!(symbol.width() >= 1, "{symbol:?}");
        assert!(
            !symbol.contains(|c| matches!(c, '\u{590}'..='\u{8ff}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')),
            "{symbol:?}"
        );
    }
}

#[test]
fn a_picture_has_every_letter_of_its_frame() {
    let made = runs::faster();
    let frame = Seen::of(made.lines()).frame(100, 24);
    let picture = svg(&frame, "numaherd <top>");
    assert!(picture.contains("<title>numaherd &lt;top&gt;</title>"));
    let mut shown = String::new();
    for part in picture.split("textLength=").skip(1) {
        let inner = part.split_once('>').unwrap().1.split_once('<').unwrap().0;
        shown.push_str(
            &inner
                .replace("&gt;", ">")
                .replace("&lt;", "<")
                .replace("&amp;", "&"),
        );
    }
    let is_drawn = |c: &char| !c.is_whitespace() && !('\u{2581}'..='\u{2593}').contains(c);
    let letters = |text: &str| text.chars().filter(is_drawn).collect::<String>();
    assert_eq!(letters(&shown), letters(&text(&frame)));
}

#[test]
fn the_latest_line_of_a_run_that_goes_on_is_shown_unless_one_holds() {
    let lines = crowd(2, 4, 10, 5);
    let mut top = Top::new(Timeline::keeping(), "a herd", Look::default()).growing();
    let frame = |top: &mut Top| text(&top.frame(100, 20, &mut |_| None));
    let mut lines = lines.into_iter().map(Arc::new);
    let until = |top: &mut Top, lines: &mut dyn Iterator<Item = Arc<Line>>| {
        for line in lines {
            top.take(&line);
            if matches!(line.record, Record::Snapshot(_)) {
                return;
            }
        }
    };
    until(&mut top, &mut lines);
    assert!(frame(&mut top).contains("live 1.0 s"));
    until(&mut top, &mut lines);
    assert!(frame(&mut top).contains("live 2.0 s"));
    top.key(Key::Char(' '));
    until(&mut top, &mut lines);
    assert!(frame(&mut top).contains("held 2.0 s, now 3.0 s"));
    top.key(Key::Char(' '));
    assert!(frame(&mut top).contains("live 3.0 s"));
}

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        8 => prop::sample::select("123 pq?/rnhjkgG<>[]+-x*(.".chars().collect::<Vec<_>>()).prop_map(Key::Char),
        1 => any::<char>().prop_map(Key::Char),
        8 => prop::sample::select(vec![
            Key::Up, Key::Down, Key::Left, Key::Right, Key::Home, Key::End, Key::PageUp,
            Key::PageDown, Key::Enter, Key::Escape, Key::Tab, Key::BackTab, Key::Backspace,
            Key::Wheel { down: true }, Key::Wheel { down: false }, Key::Control('u'),
        ]),
        2 => (0u16..250, 0u16..70).prop_map(|(x, y)| Key::Click(x, y)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_state_size_or_key_makes_it_panic(
        nodes in prop::sample::select(vec![1u32, 2, 4, 64]),
        threads in 0u32..60,
        seconds in 0u64..6,
        cut in 0usize..30,
        steps in proptest::collection::vec((any_key(), 0u16..220, 0u16..70, 0.0f64..3.0), 0..25),
        ascii in any::<bool>(),
    ) {
        let mut lines = crowd(nodes, 16, threads, seconds);
        lines.drain(..cut.min(lines.len()) / 10);
        let look = Look { ascii, ..Look::default() };
        let mut seen = Seen::with(&lines, look);
        for (key, columns, rows, time) in steps {
            let frame = seen.frame(columns, rows);
            harmless(&frame);
            prop_assert_eq!(frame.area.width, columns);
            seen.top.key(key);
            seen.top.tick(time);
        }
        seen.frame(80, 24);
    }
}

#[test]
fn lost_cores_are_in_the_row_of_sums() {
    let made = crate::lost::losing();
    let text = Seen::of(made.lines()).text(120, 24);
    assert!(
        text.contains("3.1 of 64 cores lost, 2.4 recoverable"),
        "{text}"
    );
}
