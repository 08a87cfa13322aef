//! Starts together with other processes. A harness that compares placements starts several
//! menageries, waits until each has set up its memory, and releases them all at the same moment.
//!
//! The ready file tells the harness that set-up is over. The go file is a FIFO, which each
//! menagerie opens for reading before its ready file appears. The harness opens it for writing and
//! closes it again (`: > go`), which releases all menageries at once; none can miss it. Waiting
//! costs nothing: the kernel wakes the program.

use crate::error::Error;
use crate::stop::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The agreement with a harness; without files, there is no waiting.
#[derive(Debug)]
pub struct StartSignal {
    ready: Option<PathBuf>,
    go: Option<(PathBuf, File)>,
}

impl StartSignal {
    /// Opens the FIFO `go` and removes an earlier run's file at `ready`.
    pub fn new(ready: Option<&Path>, go: Option<&Path>) -> Result<StartSignal, Error> {
        if let Some(path) = ready {
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::file("remove the old ready file", path))?,
            }
        }
        let go = go.map(open_fifo).transpose()?;
        Ok(StartSignal {
            ready: ready.map(Path::to_path_buf),
            go,
        })
    }

    /// Announces that `threads` have set up, then waits for the release or for `stop`.
    pub fn pass(&self, threads: &[u32], stop: &Stop) -> Result<(), Error> {
        if let Some(path) = &self.ready {
            announce(path, threads).map_err(Error::file("write the ready file", path))?;
        }
        let Some((path, fifo)) = &self.go else {
            return Ok(());
        };
        let mut awaited = vec![PollFd::new(fifo, PollFlags::IN)];
        awaited.extend(
            stop.woken()
                .map(|woken| PollFd::from_borrowed_fd(woken, PollFlags::IN)),
        );
        loop {
            match poll(&mut awaited, None) {
                Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(Error::file("wait for the go file", path)(errno.into())),
            }
        }
    }
}

/// Opens a FIFO without waiting for a writer. Polling it reports the first writer's byte or end.
fn open_fifo(path: &Path) -> Result<(PathBuf, File), Error> {
    let failed = Error::file("open the go file", path);
    let kind = fs::metadata(path).map_err(&failed)?.file_type();
    let path = path.to_path_buf();
    if !kind.is_fifo() {
        return Err(Error::NotAFifo { path });
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(&path).map_err(&failed)?;
    Ok((path, file))
}

/// Writes the process id and the ids of the measured threads, one per line, into a file that
/// appears atomically.
fn announce(path: &Path, threads: &[u32]) -> io::Result<()> {
    let mut text = format!("{}\n", std::process::id());
    for thread in threads {
        text.push_str(&format!("{thread}\n"));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let unfinished = path.with_file_name(name);
    fs::write(&unfinished, text)?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fifo(directory: &Path) -> PathBuf {
        let path = directory.join("go");
        let status = std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success());
        path
    }

    #[test]
    fn closing_the_fifo_releases_all_who_wait() {
        let directory = tempfile::tempdir().unwrap();
        let go = fifo(directory.path());
        let gates = [0, 1, 2].map(|_| StartSignal::new(None, Some(&go)).unwrap());
        // Before any gate waits: the end of the writer is not lost.
        drop(OpenOptions::new().write(true).open(&go).unwrap());
        for gate in gates {
            gate.pass(&[], &Stop::new()).unwrap();
        }
    }

    #[test]
    fn nobody_passes_before_the_release() {
        let directory = tempfile::tempdir().unwrap();
        let (ready, go) = (directory.path().join("ready"), fifo(directory.path()));
        let gate = StartSignal::new(Some(&ready), Some(&go)).unwrap();
        let (passed, passes) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.pass(&[7, 8], &Stop::new()).unwrap();
                passed.send(()).unwrap();
            });
            let writer = OpenOptions::new().write(true).open(&go).unwrap();
            assert!(passes.try_recv().is_err());
            drop(writer);
            passes.recv().unwrap();
        });
        let text = fs::read_to_string(ready).unwrap();
        assert_eq!(text, format!("{}\n7\n8\n", std::process::id()));
    }

    #[test]
    fn what_is_no_fifo_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("go");
        assert!(matches!(
            StartSignal::new(None, Some(&path)),
            Err(Error::File { .. })
        ));
        fs::write(&path, "").unwrap();
        let error = StartSignal::new(None, Some(&path)).unwrap_err();
        assert!(matches!(error, Error::NotAFifo { .. }), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn an_old_ready_file_is_removed_first() {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        fs::write(&ready, "old").unwrap();
        StartSignal::new(Some(&ready), None).unwrap();
        assert!(!ready.exists());
    }
}
