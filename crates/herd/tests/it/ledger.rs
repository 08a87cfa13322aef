//! A ledger is read back as written, bounded in size, and read up to the damage.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::{Follow, Header, Ledger, Next, Notice, Reader, VERSION, Writer};
use numaherd_herd::{Herd, HerdError, Line, Record};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::Snapshot;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{Fake, MIB, everyone_to, machine, policy, thread};

/// The bytes of a recorded run, and its lines.
pub fn recorded() -> (Vec<u8>, Vec<Line>) {
    recorded_as("run.ledger")
}

fn recorded_as(name: &str) -> (Vec<u8>, Vec<Line>) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(name);
    let writer = Writer::create(&path, "numaherd test", Some(1), 100 * MIB).unwrap();
    let topology = machine(2, 2);
    let threads = (1..=2).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads);
    world.ends_after = 3;
    let mut lines = Vec::new();
    Herd::new(&mut world, policy(everyone_to(3)))
        .ledger(writer)
        .watched(|line| lines.push(line.clone()))
        .run(&AtomicBool::new(false))
        .unwrap();
    (fs::read(&path).unwrap(), lines)
}

fn read(bytes: Vec<u8>) -> Result<Ledger, HerdError> {
    Reader::of_bytes(Path::new("the ledger"), bytes).map(Ledger::of)
}

pub fn notice(sequence: u64, text: &str) -> Line {
    Line {
        sequence,
        time_ns: 0,
        record: Record::Notice(Notice {
            text: text.to_owned(),
        }),
    }
}

#[test]
fn a_ledger_is_read_back_as_written() {
    let (bytes, lines) = recorded();
    let ledger = read(bytes).unwrap();
    assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
    assert_eq!(ledger.lines, lines);
    assert_eq!(ledger.skipped, 0);
    let header = Header {
        version: VERSION,
        program: "numaherd test".to_owned(),
        begun_unix_ms: Some(1),
    };
    assert_eq!(ledger.header, header);
}

#[test]
fn a_cut_off_ledger_is_read_up_to_the_cut_with_line_and_byte() {
    let (mut bytes, lines) = recorded();
    bytes.truncate(bytes.len() - 10);
    let last = bytes.iter().rposition(|&b| b == b'\n').unwrap() + 1;
    let ledger = read(bytes).unwrap();
    assert_eq!(ledger.lines, lines[..lines.len() - 1]);
    assert_eq!(
        ledger.damage.unwrap().to_string(),
        format!(
            "the ledger is damaged at line {} (byte {last}): the line is cut off or its sum is \
             wrong; everything before that is intact",
            lines.len() + 1
        )
    );
}

#[test]
fn a_missing_line_is_damage() {
    let (bytes, lines) = recorded();
    let text = String::from_utf8(bytes).unwrap();
    let kept: Vec<&str> = text
        .lines()
        .enumerate()
        .filter(|&(at, _)| at != 4)
        .map(|l| l.1)
        .collect();
    let ledger = read(kept.join("\n").into_bytes()).unwrap();
    assert_eq!(ledger.lines, lines[..3]);
    assert!(
        ledger
            .damage
            .unwrap()
            .to_string()
            .contains("lines are missing")
    );
}

#[test]
fn a_snapshot_that_no_world_takes_is_damage() {
    let (bytes, lines) = recorded();
    let reread = |change: &dyn Fn(&mut Snapshot)| {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("run.ledger");
        let mut writer = Writer::create(&path, "numaherd test", Some(1), 100 * MIB).unwrap();
        for mut line in lines.clone() {
            if let Record::Snapshot(snapshot) = &mut line.record {
                change(snapshot);
            }
            writer.write(line).unwrap();
        }
        writer.flush().unwrap();
        let ledger = read(fs::read(&path).unwrap()).unwrap();
        assert_eq!(ledger.lines, lines[..1], "the start comes before it");
        ledger.damage.unwrap().to_string()
    };
    let third = bytes.iter().enumerate().filter(|&(_, &b)| b == b'\n');
    let third = third.map(|(at, _)| at + 1).nth(1).unwrap();
    let told = |what: &str| {
        format!(
            "the ledger is damaged at line 3 (byte {third}): the line is intact but {what}; \
             everything before that is intact"
        )
    };
    let disorder = |what: &str| told(&format!("its snapshot lists {what} out of order or twice"));
    assert_eq!(reread(&|s| s.threads.swap(0, 1)), disorder("threads"));
    assert_eq!(reread(&|s| s.processes.swap(0, 1)), disorder("processes"));
    assert_eq!(
        reread(&|s| s.nodes[1].id = s.nodes[0].id),
        disorder("nodes")
    );
    let absurd = |id: &str| {
        told(&format!(
            "it contains {id}; numbers above 65536 are considered errors"
        ))
    };
    assert_eq!(
        reread(&|s| s.threads[1].cpu = CpuId(u32::MAX)),
        absurd("CPU 4294967295")
    );
    assert_eq!(
        reread(&|s| s.nodes[1].id = NodeId(65537)),
        absurd("node 65537")
    );
}

#[test]
fn a_ledger_of_a_later_version_is_refused() {
    let error = read(b"{\"numaherd-ledger\":3,\"program\":\"numaherd 9\"}\n".to_vec());
    assert_eq!(
        error.unwrap_err().to_string(),
        "the ledger is a ledger with format version 3, but this program reads versions up to 2; use \
         the program that wrote it"
    );
}

#[test]
fn a_file_that_is_no_ledger_is_refused_and_never_written_over() {
    let error = read(b"topology:\n".to_vec()).unwrap_err();
    assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "my notes").unwrap();
    let error = Writer::create(&path, "numaherd test", None, MIB).unwrap_err();
    assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "my notes");
    for (name, notes) in [
        ("notes.zst", zstd::encode_all(&b"my notes"[..], 1).unwrap()),
        // What a compressed file may begin with, too.
        ("notes.txt", b"(".to_vec()),
        ("notes.txt", b"(my) notes".to_vec()),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, &notes).unwrap();
        let error = Writer::create(&path, "numaherd test", None, MIB).unwrap_err();
        assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
        let error = Reader::open(&path).unwrap_err();
        assert!(matches!(error, HerdError::NotOurs { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), notes);
    }
}

#[test]
fn a_compressed_ledger_is_the_same_text_and_recognised_whatever_its_name() {
    let (plain, lines) = recorded();
    let (packed, _) = recorded_as("run.zst");
    assert_eq!(zstd::decode_all(&packed[..]).unwrap(), plain);
    assert!(packed.len() * 2 < plain.len(), "{}", packed.len());
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    fs::write(&path, packed).unwrap();
    let ledger = Ledger::read(&path).unwrap();
    assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
    assert_eq!(ledger.lines, lines);
    Writer::create(&path, "numaherd test", None, MIB).unwrap();
    let older = directory.path().join("run.ledger.1");
    assert_eq!(Ledger::read(&older).unwrap().lines, lines);
}

#[test]
fn what_was_flushed_of_a_compressed_ledger_survives_a_kill() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.zst");
    let mut writer = Writer::create(&path, "numaherd test", None, MIB).unwrap();
    for sequence in 0..10 {
        writer.write(notice(sequence, "flushed")).unwrap();
        writer.flush().unwrap();
    }
    writer.write(notice(10, "not flushed")).unwrap();
    let left = read(fs::read(&path).unwrap()).unwrap();
    assert!(left.damage.is_none(), "{:?}", left.damage);
    assert_eq!(left.lines.len(), 10);
}

#[test]
fn a_compressed_ledger_takes_no_more_memory_than_a_plain_one_may() {
    use zstd::stream::raw::CParameter;
    let (plain, lines) = recorded();
    let packed = |window: u32| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        let window = CParameter::WindowLog(window);
        encoder.set_parameter(window).unwrap();
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(read(packed(23)).unwrap().lines, lines);
    let error = read(packed(24)).unwrap_err().to_string();
    assert!(error.contains("it cannot be decompressed"), "{error}");
    // A line without end is given up as early as in a plain file.
    let bomb = zstd::encode_all(&vec![b'x'; 100_000][..], 1).unwrap();
    assert!(bomb.len() < 100);
    let error = read(bomb).unwrap_err().to_string();
    assert!(error.contains("longer than 65536 bytes"), "{error}");
}

#[test]
fn records_of_unknown_kind_are_passed_over_and_counted() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    let mut writer = Writer::create(&path, "numaherd test", None, MIB).unwrap();
    writer.write(notice(0, "before")).unwrap();
    let strange = Line {
        sequence: 1,
        time_ns: 0,
        record: Record::Unknown,
    };
    writer.write(strange).unwrap();
    writer.write(notice(2, "after")).unwrap();
    writer.flush().unwrap();
    let ledger = Ledger::read(&path).unwrap();
    assert_eq!(ledger.lines, [notice(0, "before"), notice(2, "after")]);
    assert_eq!(ledger.skipped, 1);
    assert!(ledger.damage.is_none());
}

/// Where a test has a disk of its own, in a process of its own.
const DISK: &str = "NUMAHERD_TEST_DISK";

/// Runs a test of this file once more, with a disk of 128 KiB.
fn on_a_small_disk(test: &str) {
    let disk = TempDir::new().unwrap();
    let mounts = "mount -t tmpfs -o size=128k none \"$1\" && exec \"$2\" --exact \"$3\"";
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            mounts,
            "sh",
        ])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(DISK, disk.path())
        .output()
        .expect("unshare, of util-linux");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    assert!(output.status.success(), "{said:?}");
    assert!(said[0].contains("1 passed"), "{said:?}");
}

/// Leaves so many bytes of a disk.
fn leave(disk: &Path, bytes: u64) {
    let mut filler = File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let full = filler.metadata().unwrap().len();
    filler.set_len(full - bytes).unwrap();
}

#[test]
fn on_a_disk_that_is_full_nothing_is_lost_that_was_written() {
    let Some(disk) = std::env::var_os(DISK) else {
        return on_a_small_disk("ledger::on_a_disk_that_is_full_nothing_is_lost_that_was_written");
    };
    let disk = Path::new(&disk);
    let (_, lines) = recorded();
    let [path, older, filler] =
        ["run.ledger", "run.ledger.1", "filler"].map(|name| disk.join(name));
    // A file has half of this.
    let most = 40_000;
    let mut at_the_turn = 0;
    for left in (4096..=61_440).step_by(4096) {
        leave(disk, left);
        let mut writer = Writer::create(&path, "numaherd test", Some(1), most).unwrap();
        let mut flushed = 0;
        let mut write = |sequence: u64| {
            let line = match sequence {
                0 => lines[0].clone(),
                _ => notice(sequence, &"a sentence ".repeat(20)),
            };
            writer.write(line)?;
            writer.flush()?;
            flushed = sequence + 1;
            Ok::<(), HerdError>(())
        };
        let failed = (0..110).find_map(|sequence| write(sequence).err());
        drop(writer);
        let read = Ledger::of(Reader::open(&path).unwrap());
        assert!(read.damage.is_none(), "{:?}", read.damage);
        assert_eq!(read.lines.len() as u64, flushed, "with {left} bytes left");
        if let Some(error) = failed {
            let error = error.to_string();
            assert!(error.contains("No space left"), "{error}");
            assert!(error.contains("make room there"), "{error}");
            let is_at_the_turn = fs::metadata(&path).unwrap().len() > most / 2 - 400;
            at_the_turn += u32::from(is_at_the_turn && !older.exists());
        } else {
            assert!(older.exists() && left > most / 2);
        }
        for file in [&path, &older, &filler] {
            let _ = fs::remove_file(file);
        }
    }
    assert!(at_the_turn > 0);
}

#[test]
fn an_earlier_ledger_is_kept_beside() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    Writer::create(&path, "the first", None, MIB)
        .unwrap()
        .flush()
        .unwrap();
    Writer::create(&path, "the second", None, MIB)
        .unwrap()
        .flush()
        .unwrap();
    let program = |path: &Path| Ledger::read(path).unwrap().header.program;
    assert_eq!(program(&path), "the second");
    assert_eq!(program(&directory.path().join("run.ledger.1")), "the first");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_happens_to_a_ledger_a_prefix_is_read(
        name in prop::sample::select(vec!["run.ledger", "run.zst"]),
        cut in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..3),
    ) {
        let (mut bytes, lines) = recorded_as(name);
        let whole = bytes.clone();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let changed = bytes != whole;
        if let Ok(ledger) = read(bytes) {
            prop_assert!(lines.starts_with(&ledger.lines));
            prop_assert!(changed || ledger.lines == lines);
        } else {
            prop_assert!(changed);
        }
    }
}

/// The smallest run there is: one thread is moved from one node of one CPU to the other.
fn example() -> String {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    let writer = Writer::create(&path, "numaherd 0.1.0", Some(1_700_000_000_000), MIB).unwrap();
    let topology = machine(2, 1);
    let threads = vec![thread(4711, 4711, 0, &topology)];
    let mut world = Fake::new(topology, threads);
    world.ends_after = 2;
    Herd::new(&mut world, policy(everyone_to(1)))
        .ledger(writer)
        .run(&AtomicBool::new(false))
        .unwrap();
    fs::read_to_string(&path).unwrap()
}

#[test]
fn the_format_is_as_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ledger.md");
    let text = fs::read_to_string(path).unwrap();
    let shown = text
        .split("```json\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let written = example();
    if shown != written && std::env::var_os("NUMAHERD_RENEW").is_some() {
        fs::write(path, text.replacen(shown, &written, 1)).unwrap();
    } else {
        assert!(
            shown == written,
            "docs/ledger.md is stale: NUMAHERD_RENEW=1 cargo test -p numaherd-herd renews it"
        );
    }
    for kind in [
        "start", "snapshot", "changes", "placing", "outcome", "paging", "notice", "end",
    ] {
        assert!(
            text.contains(&format!("### `{kind}`")),
            "{kind} is not documented"
        );
    }
}

#[test]
fn every_field_of_the_example_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ledger.md");
    let text = fs::read_to_string(path).unwrap();
    for line in example().lines().skip(1) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in value.as_object().unwrap().keys() {
            assert!(
                text.contains(&format!("`{field}`")),
                "{field} is not documented"
            );
        }
    }
}

#[test]
fn nobody_waits_for_the_writer_of_a_named_pipe() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let refused = Reader::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(
        refused.contains("it is a named pipe; give a file"),
        "{refused}"
    );
    assert!(Follow::new(&path).next().is_err());
}

#[test]
fn a_first_line_without_end_is_no_ledger_and_is_not_held() {
    let refused = Reader::open(Path::new("/dev/zero"))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("its first line is longer than 65536 bytes"),
        "{refused}"
    );
    let followed = Follow::new(Path::new("/dev/zero")).next();
    assert_eq!(followed.unwrap_err().to_string(), refused);
}

#[test]
fn a_line_that_is_being_written_is_no_damage_until_its_writer_is_gone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    let mut writer = Writer::create(&path, "numaherd test", Some(1), 100 * MIB).unwrap();
    writer.write(notice(0, "whole")).unwrap();
    writer.flush().unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"record\":1,\"at_").unwrap();
    let follow = || {
        let mut follow = Follow::new(&path);
        while !matches!(follow.next().unwrap(), Next::NothingYet) {}
        follow.cut().map(|damage| damage.to_string())
    };
    let ledger = Ledger::read(&path).unwrap();
    assert_eq!(ledger.lines, [notice(0, "whole")]);
    assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
    assert_eq!(follow(), None);
    drop(writer);
    let ledger = Ledger::read(&path).unwrap();
    assert_eq!(ledger.lines, [notice(0, "whole")]);
    assert!(ledger.damage.unwrap().to_string().contains("line 3"));
    let cut = follow().unwrap();
    assert!(cut.contains("line 3"), "{cut}");
    assert!(cut.contains("cut off after 16 bytes"), "{cut}");
}
