//! `numaherd top` as a person meets it: on a terminal (a pseudo-terminal whose screen is read), as one
//! frame in a script, beside a run that is still writing, and beside a herd that serves.

mod made;
mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use self::made::{Run, write};
use self::terminal::Terminal;
use rustix::process::Signal;

fn numaherd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaherd"))
        .arg("top")
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("the program can be started")
}

fn ledger(folder: &Path) -> String {
    let path = folder.join("run.ledger");
    write(&path, &Run::new().lines(5));
    path.to_str().expect("a path of letters").to_owned()
}

#[test]
fn a_ledger_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(&[&ledger(folder.path())], 24, 80);
    terminal.wait_for("ended 5.0 s");
    assert!(terminal.is_taken(), "it has a screen of its own");
    terminal.type_keys("2");
    terminal.wait_for("    TID NAME");
    terminal.type_keys("\x1b[H");
    terminal.wait_for("1.0 s of 5.0 s");
    terminal.type_keys("]");
    terminal.wait_for("3.0 s of 5.0 s");
    terminal.type_keys("4\r");
    terminal.wait_for("Decision 0 at 3.0 s");
    terminal.wait_for("CPU 0: the layout wants a turtle there");
    terminal.type_keys("\x1b");
    terminal.wait_for("OUTCOME");
    terminal.type_keys("1/nobody\r");
    terminal.wait_for("with nobody, 0 rows");
    terminal.type_keys("?");
    terminal.wait_for("redraw");
    terminal.resize(30, 120);
    terminal.wait_for("to the first moment, the newest");
    // One by one: together, they could be read as one key.
    terminal.type_keys("\x1b");
    terminal.wait_for("with nobody, 0 rows");
    terminal.type_keys("\x1b");
    terminal.wait_for("WHY");
    terminal.type_keys("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_it_was() {
    use std::os::unix::process::ExitStatusExt;
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::start(&[&ledger(folder.path()), "--mouse"], 24, 80);
    terminal.wait_for("ended 5.0 s");
    terminal.signal(Signal::TERM);
    // How it ended is told by the signal, and `end` looks at the terminal.
    assert_eq!(terminal.end().signal(), Some(15));
}

#[test]
fn a_ledger_that_is_still_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ledger");
    let shown = path.to_str().unwrap();
    let mut terminal = Terminal::start(&[shown, "--follow"], 24, 100);
    terminal.wait_for("waiting for");
    let lines = Run::new().lines(4);
    let mut writer = made::writer(&path);
    for line in &lines[..3] {
        writer.write(line.clone()).unwrap();
    }
    writer.flush().unwrap();
    terminal.wait_for("live 2.0 s");
    for line in &lines[3..] {
        writer.write(line.clone()).unwrap();
    }
    writer.flush().unwrap();
    terminal.wait_for("ended 4.0 s");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_herd_that_serves_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let ledger = folder.path().join("run.ledger");
    write(&ledger, &Run::new().lines(3));
    let lines = std::fs::read(&ledger).unwrap();
    let served = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        BufReader::new(&stream).read_line(&mut asked).unwrap();
        (&stream).write_all(&lines).unwrap();
        (asked, stream)
    });
    let socket = path.to_str().unwrap();
    let mut terminal = Terminal::start(&["--socket", socket], 24, 100);
    terminal.wait_for("ended 3.0 s");
    terminal.wait_for("chase");
    let (asked, stream) = served.join().unwrap();
    let asked: serde_json::Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(asked["do"], "watch");
    // Moments that were only heard can be gone back to.
    terminal.type_keys("\x1b[H");
    terminal.wait_for("1.0 s");
    drop(stream);
    terminal.wait_for("the herd has ended");
    terminal.type_keys("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_herd_that_refuses_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let socket = path.to_str().unwrap();
    let output = numaherd(&["--once", "--socket", socket]);
    assert_eq!(output.status.code(), Some(1));
    let listener = UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"{\"error\":\"too many watch\"}\n")
            .unwrap();
    });
    let output = numaherd(&["--once", "--socket", socket]);
    served.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is `numaherd serve` running there"), "{said}");
}

#[test]
fn this_machine_without_a_herd() {
    let output = numaherd(&["--here", "--once", "--width", "100", "--height", "20"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let frame = String::from_utf8(output.stdout).unwrap();
    assert!(frame.contains("linux (dry run)"), "{frame}");
    assert!(frame.contains("CPUS IN USE"), "{frame}");
    assert_eq!(frame.lines().count(), 20);
}

#[test]
fn one_frame_for_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let frame = |more: &[&str]| {
        let size = ["--once", "--width", "100", "--height", "24"];
        let output = numaherd(&[&[ledger.as_str()][..], &size, more].concat());
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    insta::assert_snapshot!("top-once", frame(&[]));
    insta::assert_snapshot!("top-once-at", frame(&["--at", "2s", "--view", "threads"]));
    assert!(!frame(&[]).contains('\x1b'));
    assert!(frame(&["--ascii"]).is_ascii());
    let sorted = frame(&["--sort", "name", "--filter", "^100 "]);
    assert!(sorted.contains("NAME▴"), "{sorted}");
    let output = numaherd(&[&ledger, "--once", "--sort", "colour"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("LAST MOVE"), "{said}");
}

#[test]
fn a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let path = folder.path().join("top.svg");
    let output = numaherd(&[&ledger, "--svg", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty());
    let picture = std::fs::read_to_string(&path).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("numaherd top"));
    let printed = numaherd(&[&ledger, "--svg", "-"]);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), picture);
}

#[test]
fn what_cannot_be_shown_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes");
    let shown = path.to_str().unwrap();
    assert_eq!(numaherd(&[shown, "--once"]).status.code(), Some(2));
    std::fs::write(&path, "milk, bread\n").unwrap();
    let output = numaherd(&[shown, "--once"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("not a ledger's header"), "{said}");
    let output = numaherd(&[&ledger(folder.path())]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--once"), "{said}");
}

#[test]
fn a_ledger_that_is_cut_off_is_shown_up_to_there() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let bytes = std::fs::read(&ledger).unwrap();
    std::fs::write(&ledger, &bytes[..bytes.len() - 5]).unwrap();
    let output = numaherd(&[&ledger, "--once", "--height", "24"]);
    assert_eq!(output.status.code(), Some(8));
    let frame = String::from_utf8(output.stdout).unwrap();
    assert!(frame.contains("last 5.0 s"), "{frame}");
    assert!(frame.contains("damaged at line"), "{frame}");
}
