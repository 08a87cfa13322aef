//! The IPM unit of the lab's machine: pages to move and who shares pages, read from its device.
//!
//! The device (`/dev/numaherd_ipm`; [`crate::ipm_records`]) exists in a guest whose modelled machine has TLBs and
//! the unit. It is one stream of records for both halves of the host: the pager wants notifications every 10 ms;
//! once an interval, the world requests a snapshot of the Sharing Matrix. Each reader takes in everything, and
//! leaves what is the other's.
//!
//! The kernel reuses thread numbers. The roster of the last scan says which thread has a number now; numbers that
//! it lacks are skipped. Sharing is cumulative: an interval's value is the difference from the previous snapshot,
//! per pair of threads. A value that fell belongs to another thread with the same number, so it counts whole.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};

use numaherd_topology::NodeId;
use numaherd_world::{Notice, ProcessId, Sharing, ThreadId};

use crate::files::Root;
use crate::ipm_records::{NoRecord, Notification, Record, SharingPart, records};
use crate::perf_errors::Refusal;

/// Where the device is, below the root.
const DEVICE: &str = "dev/numaherd_ipm";
/// No record is longer.
const READ_BYTES: usize = 1 << 16;
/// The request for a snapshot of the Sharing Matrices.
const ASK_SHARING: [u8; 8] = 1_u64.to_le_bytes();

/// The thread and process of each number.
type Known = HashMap<u32, (ThreadId, ProcessId)>;

/// What can be read and written like the device.
pub(crate) trait Device: Read + Write + fmt::Debug + Send {}

impl<D: Read + Write + fmt::Debug + Send> Device for D {}

/// What two threads shared since the younger one began, as of the last snapshot.
type Cumulative = HashMap<(ThreadId, ThreadId), u64>;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct IpmUnit {
    device: Box<dyn Device>,
    buffer: Vec<u8>,
    /// Notifications not taken yet.
    waiting: Vec<Notification>,
    /// Whether notifications are unwanted.
    rests: bool,
    /// Parts of the snapshot being read.
    parts: HashMap<u32, Vec<(u32, u32, u64)>>,
    /// Processes whose part is whole.
    whole: HashMap<u32, Vec<(u32, u32, u64)>>,
    before: HashMap<ProcessId, Cumulative>,
}

/// Opens the device under a root.
///
/// # Errors
/// Why it is unavailable, and what would help.
pub(crate) fn open(root: &Root) -> Result<IpmUnit, Refusal> {
    let path = root.path(DEVICE);
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path);
    opened
        .map(|file| IpmUnit::new(Box::new(file)))
        .map_err(|error| {
            let reason = format!("cannot open {}: {error}", path.display());
            match error.kind() {
                io::ErrorKind::NotFound => Refusal::new(
                    "no processor on the market measures how long translations stay in its TLBs",
                    "the lab, whose modelled hardware does",
                ),
                io::ErrorKind::PermissionDenied => {
                    Refusal::new(reason, "run as root, or with the right to open it")
                }
                io::ErrorKind::ResourceBusy => {
                    Refusal::new(reason, "stop the other program that reads it")
                }
                _ => Refusal::new(reason, "see the kernel's log about numaherd's module"),
            }
        })
}

impl IpmUnit {
    pub(crate) fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            buffer: vec![0; READ_BYTES],
            waiting: Vec::new(),
            rests: false,
            parts: HashMap::new(),
            whole: HashMap::new(),
            before: HashMap::new(),
        }
    }

    /// The notices since the last call for pages of known processes, in time order, one per base page. Times
    /// count from `began_ns`.
    ///
    /// # Errors
    /// The device cannot be read, or its data are invalid.
    pub(crate) fn notices(
        &mut self,
        known: &Known,
        page_bytes: u64,
        began_ns: u64,
    ) -> io::Result<Vec<Notice>> {
        self.take_in()?;
        self.rests = false;
        let mut notices = Vec::new();
        for found in self.waiting.drain(..) {
            let Some(thread) = whose(&found, known) else {
                continue;
            };
            let first = found.address / page_bytes;
            let end = found.address.saturating_add(found.page_bytes.max(1));
            for page in first..end.div_ceil(page_bytes) {
                notices.push(Notice {
                    time_ns: found.time_ns.saturating_sub(began_ns),
                    thread: thread.0,
                    process: thread.1,
                    page,
                    from: NodeId(found.from),
                    to: NodeId(found.to),
                });
            }
        }
        notices.sort_by_key(|notice| notice.time_ns);
        Ok(notices)
    }

    /// Stops taking notices until the next request, and forgets those that wait.
    pub(crate) fn rest(&mut self) {
        self.rests = true;
        self.waiting.clear();
    }

    /// How much the threads of each known process shared since the last call; processes that the unit does not
    /// watch are missing.
    ///
    /// # Errors
    /// As [`IpmUnit::notices`].
    pub(crate) fn sharing(&mut self, known: &Known) -> io::Result<HashMap<ProcessId, Sharing>> {
        self.parts.clear();
        self.whole.clear();
        self.device.write_all(&ASK_SHARING)?;
        self.take_in()?;
        let mut before = std::mem::take(&mut self.before);
        let mut all = HashMap::new();
        for (tgid, pairs) in self.whole.drain() {
            let Some(&(_, process)) = known.get(&tgid) else {
                continue;
            };
            let was = before.remove(&process).unwrap_or_default();
            let of = |tid| known.get(tid).filter(|known| known.1 == process);
            let mut now = Cumulative::new();
            for (one, other, amount) in &pairs {
                if let (Some(one), Some(other)) = (of(one), of(other)) {
                    now.insert((one.0.min(other.0), one.0.max(other.0)), *amount);
                }
            }
            let more = |(&(one, other), &amount): (&(ThreadId, ThreadId), &u64)| {
                let was = was.get(&(one, other)).copied().unwrap_or(0);
                (one, other, amount.checked_sub(was).unwrap_or(amount))
            };
            all.insert(process, Sharing::of(now.iter().map(more)));
            self.before.insert(process, now);
        }
        Ok(all)
    }

    /// Reads all there is.
    fn take_in(&mut self) -> io::Result<()> {
        loop {
            let read = match self.device.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            for record in records(&self.buffer[..read]) {
                match record.map_err(nonsense)? {
                    Record::Notification(_) if self.rests => {}
                    Record::Notification(found) => self.waiting.push(found),
                    Record::Sharing(part) => note(&mut self.parts, &mut self.whole, part),
                    Record::Other => {}
                }
            }
        }
    }
}

/// Adds a part of a snapshot; a process's last part completes it.
fn note(
    parts: &mut HashMap<u32, Vec<(u32, u32, u64)>>,
    whole: &mut HashMap<u32, Vec<(u32, u32, u64)>>,
    part: SharingPart,
) {
    if part.is_first {
        parts.insert(part.tgid, Vec::new());
    }
    // Without its first part, a process belongs to an earlier snapshot.
    let Some(pairs) = parts.get_mut(&part.tgid) else {
        return;
    };
    pairs.extend(part.pairs);
    if part.is_last {
        whole.extend(parts.remove_entry(&part.tgid));
    }
}

/// The thread of a notification: the one it names, if that belongs to the process, else the process's first.
fn whose(found: &Notification, known: &Known) -> Option<(ThreadId, ProcessId)> {
    let of = |tid: &u32| known.get(tid).filter(|known| known.1.pid == found.tgid);
    of(&found.tid).or_else(|| of(&found.tgid)).copied()
}

fn nonsense(error: NoRecord) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests;
