//! Copies a ledger out of a guest, whose file system ends with it. In the guest, `cat` runs after a run, or `tail`
//! during it; their output goes into a file of the host.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_herd::ledger::Writer;
use numaherd_lab_launcher::{Command, Guest, Stream};

use numaherd::exit::coded;
use numaherd::ledger;

/// What each ledger begins with.
const HEADER: &[u8] = b"{\"numaherd-ledger\":";

/// A ledger of the host into which a guest's ledger is written as it comes.
///
/// It is complete from its creation on: it has a header of the host's own, with the host's time, and the guest's
/// lines follow without theirs.
#[derive(Debug)]
pub struct HostLedger {
    ledger: Writer,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    is_empty: bool,
}

impl HostLedger {
    /// Creates it, as `numaherd run --ledger` does: an older ledger of that name is kept as `<name>.1`, and a file
    /// that is not a ledger is refused.
    ///
    /// # Errors
    /// It cannot be created; the message says why.
    pub fn create(path: &Path) -> Result<Self> {
        let mut ledger = ledger::create(path, u64::MAX)?;
        ledger.flush().map_err(coded)?;
        Ok(Self {
            ledger,
            begun: Vec::new(),
            is_empty: true,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.ledger.path()
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }
}

impl Write for HostLedger {
    /// Takes what came; whole lines are in the file when it returns.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let whole = match self.begun.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => self.begun.drain(..=end).collect::<Vec<u8>>(),
            None => return Ok(bytes.len()),
        };
        let lines = whole.split_inclusive(|&byte| byte == b'\n');
        let kept: Vec<&[u8]> = lines.filter(|line| !line.starts_with(HEADER)).collect();
        let written = self.ledger.copy(&kept.concat());
        written
            .and_then(|()| self.ledger.flush())
            .map_err(io::Error::other)?;
        self.is_empty &= kept.is_empty();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ledger.flush().map_err(io::Error::other)
    }
}

/// Copies a file of the guest as it is now.
///
/// # Errors
/// It takes longer than `limit`, the guest dies, or `to` cannot be written.
pub fn copy(guest: &Guest, from: &Path, to: &mut dyn Write, limit: Duration) -> Result<()> {
    let command = Command::inherited(["cat".as_ref(), from.as_os_str()])?;
    drain(guest, &command, to, Some(limit))
}

/// Copies a file of the guest once it exists and as it grows, until the process that writes it has ended.
///
/// # Errors
/// As [`copy`]; there is no limit to how long the process may run.
pub fn follow(guest: &Guest, from: &Path, writer: u32, to: &mut dyn Write) -> Result<()> {
    let pid = format!("--pid={writer}");
    let tail = ["tail", "--bytes=+1", "--follow=name", "--retry", &pid].map(OsString::from);
    let command = Command::inherited(tail.into_iter().chain([from.into()]))?;
    drain(guest, &command, to, None)
}

fn drain(
    guest: &Guest,
    command: &Command,
    to: &mut dyn Write,
    limit: Option<Duration>,
) -> Result<()> {
    let mut written = Ok(());
    // The exit code is ignored: tail complains about a file that does not exist yet.
    guest
        .stream(command, limit, |stream, bytes| {
            if stream == Stream::Stdout && written.is_ok() {
                written = to.write_all(bytes).and_then(|()| to.flush());
            }
        })
        .map_err(super::error)?;
    written.context("cannot write what comes out of the guest")
}

#[cfg(test)]
mod tests {
    use numaherd_herd::ledger::Ledger;

    use super::*;

    #[test]
    fn the_guests_lines_follow_the_hosts_header_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut ledger = HostLedger::create(&path).unwrap();
        let header = std::fs::read_to_string(&path).unwrap();
        assert!(Ledger::read(&path).unwrap().damage.is_none());
        for part in [
            "{\"numaherd-ledger\":1,\"prog",
            "ram\":\"x\"}\nfirst\nsec",
            "ond\nthi",
        ] {
            ledger.write_all(part.as_bytes()).unwrap();
        }
        let now = std::fs::read_to_string(&path).unwrap();
        assert_eq!(now, header + "first\nsecond\n");
        assert!(!ledger.is_empty());
    }

    #[test]
    fn an_earlier_ledger_is_kept_and_what_is_none_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        drop(HostLedger::create(&path).unwrap());
        drop(HostLedger::create(&path).unwrap());
        assert!(folder.path().join("ledger.1").exists());
        let notes = folder.path().join("notes");
        std::fs::write(&notes, "milk, bread\n").unwrap();
        let refused = HostLedger::create(&notes).unwrap_err().to_string();
        assert!(refused.contains("not a ledger already exists"), "{refused}");
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "milk, bread\n");
        let nowhere = HostLedger::create(&folder.path().join("no/ledger")).unwrap_err();
        assert_eq!(
            numaherd::exit::of(&nowhere),
            Some(numaherd::exit::Exit::Usage)
        );
    }
}
