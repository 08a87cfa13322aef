//! A ledger that was turned over: its size, and its two files as one run.

use std::fs;
use std::path::Path;

use numaherd_herd::Line;
use numaherd_herd::ledger::{Follow, Ledger, Next, Reader, Writer, earlier_part};
use tempfile::TempDir;

use crate::ledger::{notice, recorded};

#[test]
fn a_ledger_keeps_to_its_size_and_each_file_can_be_read_by_itself() {
    keeps_to_its_size("run.ledger", 2000);
    keeps_to_its_size("run.ledger.zst", 20_000);
}

fn keeps_to_its_size(name: &str, number: u64) {
    let (_, lines) = recorded();
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(name);
    let most = 40_000;
    let mut writer = Writer::create(&path, "numaherd test", None, most).unwrap();
    writer.write(lines[0].clone()).unwrap();
    for sequence in 1..number {
        let text = format!("sentence number {sequence}");
        writer.write(notice(sequence, &text)).unwrap();
        if sequence % 10 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    let older = directory.path().join(format!("{name}.1"));
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&path) + size(&older) <= most);
    // Beside the later one, it is read with it.
    let alone = directory.path().join("alone");
    fs::rename(&older, &alone).unwrap();
    let [older, newer] = [alone, path].map(|path| Ledger::read(&path).unwrap());
    for ledger in [&older, &newer] {
        assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
        assert_eq!(ledger.lines[0].record, lines[0].record);
    }
    assert_eq!(newer.lines.last().unwrap().sequence, number - 1);
    assert_eq!(
        older.lines.last().unwrap().sequence + 1,
        newer.lines[1].sequence,
        "nothing is lost between them"
    );
}

#[test]
fn both_files_of_a_run_are_read_as_one() {
    let (_, lines) = recorded();
    let lines: Vec<Line> = lines
        .into_iter()
        .take(1)
        .chain((1..200).map(|sequence| notice(sequence, "a sentence")))
        .collect();
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    let write = |most| {
        let mut writer = Writer::create(&path, "numaherd test", Some(1), most).unwrap();
        for line in &lines {
            writer.write(line.clone()).unwrap();
        }
        writer.flush().unwrap();
    };
    let read = || Ledger::of(Reader::open(&path).unwrap());
    let followed = || {
        let mut follow = Follow::new(&path);
        let mut lines = Vec::new();
        loop {
            match follow.next() {
                Ok(Next::Line(line, place)) => {
                    assert_eq!(place.read().as_ref(), Some(&line));
                    lines.push(line);
                }
                Ok(Next::Begins(_)) => {}
                Ok(Next::NothingYet) => return (lines, None),
                Err(damage) => return (lines, Some(damage.to_string())),
            }
        }
    };
    let older = directory.path().join("run.ledger.1");
    write(32_000);
    assert_eq!(earlier_part(&path), Some(older.clone()));
    assert_eq!(earlier_part(&older), None);
    assert_eq!(read().lines, lines);
    assert!(read().damage.is_none());
    assert_eq!(followed(), (lines.clone(), None));

    // A part that is damaged is where it ends.
    let bytes = fs::read(&older).unwrap();
    fs::write(&older, &bytes[..bytes.len() - 9]).unwrap();
    let damaged = read();
    assert!(lines.starts_with(&damaged.lines));
    let damage = damaged.damage.unwrap().to_string();
    assert!(damage.contains("run.ledger.1 is damaged"), "{damage}");
    let (before, damage) = followed();
    assert_eq!(before, damaged.lines);
    let damage = damage.expect("a cut line");
    assert!(damage.contains("run.ledger.1 is damaged"), "{damage}");
    let whole = bytes[..bytes.len() - 1]
        .iter()
        .rposition(|&byte| byte == b'\n');
    fs::write(&older, &bytes[..=whole.unwrap()]).unwrap();
    let damage = read().damage.unwrap().to_string();
    assert!(
        damage.contains("run.ledger is damaged at line 2"),
        "{damage}"
    );
    assert!(damage.contains("lines are missing"), "{damage}");

    // What lies beside is another run's.
    write(u64::MAX);
    assert_eq!(read().lines, lines);
    assert_eq!(followed().0, lines);
    assert_eq!(earlier_part(&path), None);
}
