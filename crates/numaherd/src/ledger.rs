//! Creates ledgers, and reads ledgers of whole runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use numaherd_herd::ledger::{Header, Reader, Writer};
use numaherd_herd::{HerdError, Line};

use crate::exit::coded;

/// What ledgers call this program.
pub const PROGRAM: &str = concat!("numaherd ", env!("CARGO_PKG_VERSION"));

/// The time in ms since 1970; `None` if the clock is before that.
pub fn now_ms() -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(now.as_millis()).ok()
}

/// A new ledger; when it takes more bytes than `largest` on disk, its older half is deleted.
///
/// # Errors
/// It cannot be created, or another kind of file is there.
pub fn create(path: &Path, largest: u64) -> Result<Writer> {
    Writer::create(path, PROGRAM, now_ms(), largest).map_err(coded)
}

/// A run that was read up to its end, or to its damage.
pub struct Read<R> {
    /// What `take` has made of the lines.
    pub reading: R,
    /// How many records of unknown kind were passed over.
    pub skipped: u64,
    /// What stopped the reading, if not the end.
    pub damage: Option<HerdError>,
}

/// Reads a run, which may still be going on: an incomplete last line is ignored.
///
/// # Errors
/// As [`Reader::open`].
pub fn read<R>(
    path: &Path,
    begin: impl FnOnce(&Header) -> R,
    take: impl Fn(&mut R, &Arc<Line>),
) -> Result<Read<R>, HerdError> {
    let mut reader = Reader::open(path)?;
    let mut reading = begin(reader.header());
    let mut damage = None;
    for line in &mut reader {
        match line {
            Ok(line) => take(&mut reading, &Arc::new(line)),
            Err(error) => damage = Some(error),
        }
    }
    Ok(Read {
        reading,
        skipped: reader.skipped(),
        damage,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use numaherd_herd::Record;
    use numaherd_herd::ledger::Notice;

    use super::*;

    fn lines_of(path: &Path) -> Read<u64> {
        read(path, |_| 0, |lines, _| *lines += 1).unwrap()
    }

    #[test]
    fn a_ledger_that_is_being_written_is_read_up_to_its_last_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let mut writer = Writer::create(&path, "test", None, 1 << 20).unwrap();
        let text = "to be known".to_owned();
        let line = |sequence| Line {
            sequence,
            time_ns: 0,
            record: Record::Notice(Notice { text: text.clone() }),
        };
        writer.write(line(0)).unwrap();
        writer.flush().unwrap();
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(b"{\"record\":1,\"at_ns\":0,\"kind\":\"not")
            .unwrap();
        let read = lines_of(&path);
        assert_eq!(read.reading, 1);
        assert!(read.damage.is_none());
        // A whole line that is wrong is damage.
        file.write_all(b"ice\"}\n").unwrap();
        let read = lines_of(&path);
        assert_eq!(read.reading, 1);
        let damage = read.damage.unwrap().to_string();
        assert!(damage.contains("its sum is wrong"), "{damage}");
    }
}
