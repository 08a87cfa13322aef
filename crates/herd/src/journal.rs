//! The journal: affinities as found, on disk before the first of them changes.
//!
//! JSON lines, each sealed with a sum: a [`Header`] with the boot it is of, then one [`SavedAffinity`]
//! (`"kind":"change"`) for every mask that is about to be set: the mask found, the one that gives it back, the one set.
//! Nothing is set before its line is written. A line `"kind":"settled"` says that a thread need not be given back any
//! more. A journal that owes nothing has no file.
//!
//! Nothing is synced to the disk: what is written outlives the process, however that ends, and after a crash of the
//! machine the journal belongs to another boot. A busy disk delays nothing.
//!
//! Beside it lies `<name>.lock`. The running instance holds it locked (`flock`) and writes its own name into it; the
//! lock ends with the process, however that ends. The next instance opens the journal that a killed one left, and
//! [`Journal::restore`] gives back what it owes. Opening a journal gives nothing back.
//!
//! Rules of giving back: the thread is the same (number and birth), and its mask is one that we set, or what the kernel
//! has left of one ([`is_mask`](numaherd_world::is_mask)). A mask that someone else has set since is left alone and
//! named. The same then holds for their heirs ([`heirs`](crate::heirs)), which are written down first, until none is
//! found. A damaged line is skipped and named; its file is kept as `<name>.damaged`. Thread numbers mean nothing after
//! a reboot: a journal of another boot is discarded with a message.

mod read;
mod restore;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numaherd_topology::CpuSet;
use numaherd_world::{Kinship, ProcessId, ThreadId};
use serde::{Deserialize, Serialize};

use crate::error::HerdError;
use crate::governor::ownership::Held;
use crate::sealed::seal;
use read::Found;

pub(crate) use restore::within_reach;
pub use restore::{Restored, restore};

/// The version of the format that is written, and the latest that is read.
pub const VERSION: u64 = 1;

/// A journal with this many more lines than twice its threads is rewritten.
const LINES_TO_SPARE: usize = 1024;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    #[serde(rename = "numaherd-journal")]
    pub version: u64,
    /// The boot that it is of (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
}

/// A mask that is about to be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAffinity {
    /// Of which thread.
    pub thread: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// The thread's name.
    pub name: String,
    /// Its mask as it was found.
    pub found: CpuSet,
    /// The mask that gives it back.
    pub back: CpuSet,
    /// The mask that is set.
    pub set: CpuSet,
    /// The kinship of its process.
    #[serde(default)]
    pub kin: Kinship,
    /// Threads born before this have not inherited the mask; in clock ticks since boot.
    #[serde(default)]
    pub since: u64,
}

impl SavedAffinity {
    /// The entry of a thread of which this is held.
    pub fn of(thread: ThreadId, held: &Held) -> Self {
        Self {
            thread,
            process: held.process,
            name: held.name.clone(),
            found: (*held.found).clone(),
            back: (*held.back).clone(),
            set: (*held.mask).clone(),
            kin: (*held.kin).clone(),
            since: held.since,
        }
    }
}

/// A line after the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Written {
    /// A mask is about to be set.
    Change(SavedAffinity),
    /// The thread need no longer be given back.
    Settled {
        /// Which.
        thread: ThreadId,
    },
}

/// A thread that is to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) entry: SavedAffinity,
    // All masks of ours that it may have now; `entry.set` is the latest.
    pub(crate) masks: Vec<CpuSet>,
}

impl Owed {
    /// What its heirs may have.
    fn held(&self) -> impl Iterator<Item = Held> {
        let entry = &self.entry;
        let (found, back) = (Arc::new(entry.found.clone()), Arc::new(entry.back.clone()));
        let kin = Arc::new(entry.kin.clone());
        self.masks.iter().map(move |mask| Held {
            process: entry.process,
            name: entry.name.clone(),
            found: found.clone(),
            back: back.clone(),
            mask: Arc::new(mask.clone()),
            kin: kin.clone(),
            // Journals of earlier versions do not say.
            since: entry.since.max(entry.thread.born),
        })
    }
}

/// How many threads the journal at `path` owes in this `boot`. Takes no lock and changes nothing. A journal that is
/// missing, or of another boot, owes nothing.
///
/// # Errors
/// [`HerdError::Io`] when it cannot be read; [`HerdError::NotOurs`] when it is no journal; [`HerdError::Newer`] when a
/// later program wrote it.
pub fn owed(path: &Path, boot: &str) -> Result<usize, HerdError> {
    let found = found(path)?;
    let is_of_this_boot = found.boot.is_some_and(|of| of == boot);
    Ok(if is_of_this_boot { found.owed.len() } else { 0 })
}

/// What the journal at `path` holds; nothing if there is none.
fn found(path: &Path) -> Result<Found, HerdError> {
    is_a_file(path)?;
    match fs::read(path) {
        Ok(bytes) => read::read(path, &bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Found::default()),
        Err(error) => Err(HerdError::io("read the journal", path, error)),
    }
}

/// An open journal, locked for this process.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    boot: String,
    owed: BTreeMap<ThreadId, Owed>,
    file: Option<File>,
    lines: usize,
    messages: Vec<String>,
    problems: Vec<String>,
    // Whether the file has lines that cannot be read.
    is_damaged: bool,
    // Held while the journal is open; `None` where no lock can be had.
    _lock: Option<File>,
}

impl Journal {
    /// Opens the journal at `path` and takes its lock; makes its directory if need be. `boot` is the id of this boot;
    /// `owner` is how this process names itself to a second instance, for instance `numaherd run, process 4711`. What
    /// an earlier instance of this boot left is only read; see [`Journal::restore`].
    ///
    /// # Errors
    /// [`HerdError::JournalHeld`] when an instance is running, [`HerdError::NotOurs`] when the file
    /// is no journal, [`HerdError::Newer`] when a later program wrote it, [`HerdError::Io`].
    pub fn open(path: &Path, boot: &str, owner: &str) -> Result<Self, HerdError> {
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(directory)
                .map_err(|error| HerdError::io("make the journal's directory", directory, error))?;
        }
        Self::locked(path, boot, Some(lock(path, owner)?))
    }

    /// The same where nothing need be written, even on a full or read-only disk.
    fn open_to_restore(path: &Path, boot: &str, owner: &str) -> Result<Self, HerdError> {
        match Self::open(path, boot, owner) {
            Err(HerdError::Io { source, .. }) if cannot_be_written(&source) => {}
            opened => return opened,
        }
        let at = beside(path, ".lock");
        let lock = match File::open(&at) {
            Ok(file) => Some(locked(file, path, &at)?),
            // Nobody can have made one.
            Err(_) => None,
        };
        Self::locked(path, boot, lock)
    }

    fn locked(path: &Path, boot: &str, lock: Option<File>) -> Result<Self, HerdError> {
        let mut journal = Self {
            path: path.to_owned(),
            boot: boot.to_owned(),
            owed: BTreeMap::new(),
            file: None,
            lines: 0,
            messages: Vec::new(),
            problems: Vec::new(),
            is_damaged: false,
            _lock: lock,
        };
        journal.take_over()?;
        Ok(journal)
    }

    /// How many threads are to be given back.
    pub fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Writes down masks that are about to be set.
    ///
    /// # Errors
    /// [`HerdError::Io`]; nothing may be set then. The journal works again when there is room.
    pub fn record(&mut self, entries: &[SavedAffinity]) -> Result<(), HerdError> {
        if entries.is_empty() {
            return Ok(());
        }
        let lines: Vec<Written> = entries.iter().cloned().map(Written::Change).collect();
        // What is owed comes first, so that a rewritten journal holds it too.
        let before: Vec<_> = entries
            .iter()
            .map(|entry| (entry.thread, self.owed.get(&entry.thread).cloned()))
            .collect();
        for entry in entries {
            owe(&mut self.owed, entry.clone());
        }
        self.append(&lines).inspect_err(|_| {
            for (thread, was) in before {
                match was {
                    Some(was) => self.owed.insert(thread, was),
                    None => self.owed.remove(&thread),
                };
            }
        })
    }

    /// Notes that threads need not be given back any more.
    ///
    /// # Errors
    /// [`HerdError::Io`]; at worst the next instance looks at them once more.
    pub fn settle(&mut self, threads: &[ThreadId]) -> Result<(), HerdError> {
        let owed: Vec<ThreadId> = threads
            .iter()
            .copied()
            .filter(|thread| self.owed.remove(thread).is_some())
            .collect();
        if owed.is_empty() {
            return Ok(());
        }
        if self.owed.is_empty() {
            return self.remove();
        }
        let lines: Vec<Written> = owed
            .into_iter()
            .map(|thread| Written::Settled { thread })
            .collect();
        self.append(&lines)
    }

    /// Closes the journal. Its file is removed if nothing is owed, else kept for the next instance or a release.
    /// Returns whether anything is owed.
    ///
    /// # Errors
    /// [`HerdError::Io`] when the file cannot be removed.
    pub fn close(mut self) -> Result<bool, HerdError> {
        if !self.owed.is_empty() {
            return Ok(true);
        }
        self.remove().map(|()| false)
    }

    /// Removes the file of a journal that owes nothing.
    fn remove(&mut self) -> Result<(), HerdError> {
        self.keep_damaged()?;
        self.file = None;
        match fs::remove_file(&self.path) {
            // On a disk that cannot be written, the kernel refuses before it checks that the file exists.
            Err(error) if fs::symlink_metadata(&self.path).is_ok() => {
                Err(HerdError::io("remove the journal", &self.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Keeps a file that is damaged under another name, before it goes.
    fn keep_damaged(&mut self) -> Result<(), HerdError> {
        if self.is_damaged {
            let kept = beside(&self.path, ".damaged");
            // An earlier one; if it stays, the link is refused.
            let _ = fs::remove_file(&kept);
            fs::hard_link(&self.path, &kept)
                .map_err(|error| HerdError::io("keep the damaged journal as", &kept, error))?;
            self.is_damaged = false;
        }
        Ok(())
    }

    fn take_over(&mut self) -> Result<(), HerdError> {
        let found = found(&self.path)?;
        if found.boot.as_ref().is_some_and(|boot| *boot != self.boot) {
            self.messages.push(format!(
                "the journal {} is of an earlier boot, whose threads are gone; it is discarded",
                self.path.display()
            ));
            return self.remove();
        }
        if let Some(read::Damage { line, byte, lines }) = found.damage {
            self.is_damaged = true;
            self.problems.push(format!(
                "the journal {} is damaged: {lines} of its lines cannot be read, the first is line {line} (byte \
                 {byte}); what the others say of {} threads is restored, and the damaged file is kept as {}",
                self.path.display(),
                found.owed.len(),
                beside(&self.path, ".damaged").display()
            ));
        }
        self.owed = found.owed;
        Ok(())
    }

    fn append(&mut self, lines: &[Written]) -> Result<(), HerdError> {
        let bytes: Vec<u8> = lines.iter().flat_map(seal).collect();
        let too_long = self.lines + lines.len() > 2 * self.owed.len() + LINES_TO_SPARE;
        match &mut self.file {
            Some(file) if !too_long => {
                let written = file.write_all(&bytes);
                if let Err(error) = written {
                    // Half a line may be there now: it goes, and the next write begins a new file.
                    keep_whole_lines(&self.path, file);
                    self.file = None;
                    return Err(HerdError::io("write the journal", &self.path, error));
                }
                self.lines += lines.len();
                Ok(())
            }
            _ => self.write_anew(),
        }
    }

    /// Writes all that is owed to a new file and puts it in place of the old one in one step.
    fn write_anew(&mut self) -> Result<(), HerdError> {
        let header = Header {
            version: VERSION,
            boot: self.boot.clone(),
        };
        let mut bytes = seal(&header);
        let mut lines = 0;
        for owed in self.owed.values() {
            for mask in &owed.masks {
                let entry = SavedAffinity {
                    set: mask.clone(),
                    ..owed.entry.clone()
                };
                bytes.extend(seal(&Written::Change(entry)));
                lines += 1;
            }
        }
        let new = beside(&self.path, ".new");
        let file =
            write(&new, &bytes).map_err(|error| HerdError::io("write the journal", &new, error))?;
        self.keep_damaged()?;
        fs::rename(&new, &self.path)
            .map_err(|error| HerdError::io("put the journal in place", &self.path, error))?;
        self.file = Some(file);
        self.lines = lines;
        Ok(())
    }
}

/// Notes a change: the mask found first stays, and every mask that may be there now is kept.
pub(crate) fn owe(owed: &mut BTreeMap<ThreadId, Owed>, entry: SavedAffinity) {
    match owed.get_mut(&entry.thread) {
        Some(known) => {
            known.entry.set = entry.set.clone();
            if !known.masks.contains(&entry.set) {
                known.masks.push(entry.set);
            }
        }
        None => {
            let masks = vec![entry.set.clone()];
            owed.insert(entry.thread, Owed { entry, masks });
        }
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(ending);
    path.with_file_name(name)
}

/// Refuses anything but a regular file: reading a FIFO or a device might never end.
fn is_a_file(path: &Path) -> Result<(), HerdError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(HerdError::NotOurs {
            path: path.to_owned(),
            what: "journal",
            why: "it is no regular file; name another with --journal".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Whether it failed because the disk is full or cannot be written at all.
fn cannot_be_written(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | ReadOnlyFilesystem | QuotaExceeded
    )
}

fn lock(path: &Path, owner: &str) -> Result<File, HerdError> {
    let at = beside(path, ".lock");
    is_a_file(&at)?;
    is_a_file(&beside(path, ".new"))?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&at)
        .map_err(|error| HerdError::io("open the journal's lock", &at, error))?;
    let mut file = locked(file, path, &at)?;
    // The owner's name is only for a message to others; a full disk has no room for it.
    let _ = file
        .set_len(0)
        .and_then(|()| file.write_all(owner.as_bytes()));
    Ok(file)
}

/// Locks the file `at`, the lock of the journal at `path`.
fn locked(mut file: File, path: &Path, at: &Path) -> Result<File, HerdError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // The name is only for the message.
            let _ = file.read_to_string(&mut owner);
            let path = path.to_owned();
            let owner = match owner.trim() {
                "" => "unknown process".to_owned(),
                owner => owner.to_owned(),
            };
            Err(HerdError::JournalHeld { path, owner })
        }
        Err(TryLockError::Error(error)) => Err(HerdError::io("lock the journal", at, error)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Cuts off what follows a file's last whole line. If that fails, a reader finds the half line.
fn keep_whole_lines(path: &Path, file: &File) {
    let Ok(bytes) = fs::read(path) else {
        return;
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n');
    let _ = file.set_len(whole.map_or(0, |at| at as u64 + 1));
}
