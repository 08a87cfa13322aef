//! Traces of other tools, as their text comes, with what goes wrong in it.

use std::io::Write as _;

use numaherd_trace::import::{self, BadLine, Format, Imported, Sampled, import};
use numaherd_trace::{Error, Event, FRAME_EVENTS, ThreadInfo, Trace};

use crate::read;

const LACKEY: &str = "\
==28696== Lackey, an example Valgrind tool
==28696== Using Valgrind-3.19.0 and LibVEX; rerun with -h for copyright info
==28696== Command: ./bin/cg -c A
==28696== 
I  0401ab70,3
 L 1fff000678,8
I  0401ab73,5
I  0401ab78,4
 M 04033e06,1
the program printed this
I  0401ab7c,4
 S 1fff000670,4
 L 04033e00,300
==28696== 
==28696== Counted 0 calls to main()
 S 1fff0006";

const SAMPLES: &str = "\
# ========
worker-1 700/701 10.000001:  4000 cpu/mem-loads,ldlat=30/P:     7f0000001000
worker-2 700/702 10.000002:  4000 cpu/mem-loads,ldlat=30/P:     7f0000002000
worker-1 700/701 10.000003:  2000 cpu/mem-stores/P:     7f0000001008
worker-1 700/701 10.000004:  4000 cpu/mem-loads,ldlat=30/P:     0
        7f39975a9b70 _start+0x0 (/usr/lib/ld-linux.so.2)

renamed 700/702 10.000005:  8000 cpu/mem-loads,ldlat=30/P:     7f0000002008
";

fn imported(text: &str) -> (Trace, Imported) {
    let (bytes, imported) = import(text.as_bytes(), Vec::new()).expect("it is of a known format");
    let trace = Trace::from_bytes(bytes).expect("a trace");
    assert_eq!(trace.damage(), None);
    (trace, imported)
}

#[test]
fn lackey_s_text_has_accesses_and_instructions_of_one_thread() {
    let (trace, imported) = imported(LACKEY);
    let info = ThreadInfo {
        process: 28_696,
        tid: 28_696,
        name: "cg".to_owned(),
    };
    assert_eq!(trace.threads(), [info]);
    let expected = [
        Event::load(0x1f_ff00_0678, 8, 1),
        Event::load(0x0403_3e06, 1, 2),
        Event::store(0x0403_3e06, 1, 0),
        Event::store(0x1f_ff00_0670, 4, 1),
        Event::load(0x0403_3e00, 64, 0),
        Event::load(0x0403_3e40, 64, 0),
        Event::load(0x0403_3e80, 64, 0),
        Event::load(0x0403_3ec0, 64, 0),
        Event::load(0x0403_3f00, 44, 0),
    ];
    assert_eq!(read(&trace), [expected]);
    let bad = |line, text: &str| BadLine {
        line,
        text: text.to_owned(),
    };
    let expected = Imported {
        format: Format::Lackey,
        lines: 16,
        events: 9,
        bad_lines: 2,
        bad_examples: vec![bad(10, "the program printed this"), bad(16, "S 1fff0006")],
        without_address: 0,
        sampled: Vec::new(),
    };
    assert_eq!(imported, expected);
    assert_eq!(trace.about()["imported"]["bad_lines"], 2);
}

#[test]
fn samples_have_threads_and_a_rate() {
    let (trace, imported) = imported(SAMPLES);
    let names: Vec<_> = trace
        .threads()
        .iter()
        .map(|thread| (thread.tid, &*thread.name))
        .collect();
    assert_eq!(names, [(701, "worker-1"), (702, "renamed")]);
    let expected = [
        vec![
            Event::load(0x7f00_0000_1000, 1, 1),
            Event::store(0x7f00_0000_1008, 1, 1),
        ],
        vec![
            Event::load(0x7f00_0000_2000, 1, 1),
            Event::load(0x7f00_0000_2008, 1, 1),
        ],
    ];
    assert_eq!(read(&trace), expected);
    let sampled = |event: &str, samples, happened| Sampled {
        event: event.to_owned(),
        samples,
        happened: Some(happened),
    };
    assert_eq!(
        imported.sampled,
        [
            sampled("cpu/mem-loads,ldlat=30/P", 3, 16_000),
            sampled("cpu/mem-stores/P", 1, 2000)
        ]
    );
    assert_eq!(imported.sampled[1].one_in(), Some(2000.0));
    assert_eq!((imported.without_address, imported.bad_lines), (1, 1));
    assert_eq!(trace.frames()[1].time_ns, 4000);
}

#[test]
fn long_texts_take_many_frames_and_long_lines_are_one_bad_line() {
    let mut text = LACKEY.to_owned();
    text.push('\n');
    text.push_str(&"x".repeat(100_000));
    text.push('\n');
    for at in 0..FRAME_EVENTS {
        text.push_str(&format!("I  401000,4\n L {:x},8\n", 0x5000 + 8 * at));
    }
    let (trace, imported) = imported(&text);
    assert_eq!(imported.bad_lines, 3);
    assert_eq!(imported.bad_examples[2].text.len(), 100);
    let events = read(&trace).remove(0);
    assert_eq!(events.len(), 9 + FRAME_EVENTS);
    assert_eq!(
        events[FRAME_EVENTS + 8],
        Event::load(0x5000 + 8 * (FRAME_EVENTS as u64 - 1), 8, 1)
    );
}

#[test]
fn a_text_is_opened_like_a_trace() {
    let directory = std::env::temp_dir().join(format!("numaherd-import-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory of our own");
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        let mut file = std::fs::File::create(&path).expect("a file of our own");
        file.write_all(bytes).expect("there is room");
        path
    };
    let (bytes, _) = import(LACKEY.as_bytes(), Vec::new()).expect("a known format");
    let (ours, none) = import::open(&write("x.trace", &bytes)).expect("a trace");
    assert_eq!(none, None);
    let (theirs, some) = import::open(&write("x.txt", LACKEY.as_bytes())).expect("a known text");
    assert_eq!(some.expect("it was imported").events, 9);
    assert_eq!(read(&ours), read(&theirs));
    let other = import::open(&write("other", b"lorem ipsum\n")).expect_err("it is of no tool");
    assert!(matches!(other, Error::UnknownText(_)));
    assert!(
        other
            .to_string()
            .ends_with("it starts with \"lorem ipsum\\n\""),
        "{other}"
    );
    std::fs::remove_dir_all(&directory).expect("it is ours");
}
