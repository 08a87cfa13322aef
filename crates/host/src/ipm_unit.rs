//! The IPM unit of the lab's machine: pages to move and who shares pages, read from its device.
//!
//! The device (`/dev/numaherd_ipm`; [`crate::ipm_records`]) is there in a guest whose modelled machine
//! has TLBs and the unit. It is one stream of records for both halves of the host: the pager wants the
//! notifications every 10 ms, the world once an interval a snapshot of the Sharing Matrix, which it asks
//! for. Whoever reads takes in everything, and leaves what is the other's.
//!
//! Numbers of threads are the kernel's, which it gives out again. Which thread has a number now is known from the
//! roster of the last scan; what nobody there has is passed over. Sharing is cumulative: an interval's is
//! the difference to the snapshot before, thread by thread; a value that fell is of another thread that
//! got the number, so it counts whole.

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

/// Which thread and process have which number.
type Known = HashMap<u32, (ThreadId, ProcessId)>;

/// What can be read and written as the device can.
pub(crate) trait Device: Read + Write + fmt::Debug + Send {}

impl<D: Read + Write + fmt::Debug + Send> Device for D {}

/// What two threads shared since the younger began, as the last snapshot had it.
type Cumulative = HashMap<(ThreadId, ThreadId), u64>;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct IpmUnit {
    device: Box<dyn Device>,
    buffer: Vec<u8>,
    /// Notifications that nobody has taken yet.
    waiting: Vec<Notification>,
    /// Whether nobody wants notifications.
    rests: bool,
    /// Parts of the snapshot that is being read.
    parts: HashMap<u32, Vec<(u32, u32, u64)>>,
    /// Processes whose part is whole.
    whole: HashMap<u32, Vec<(u32, u32, u64)>>,
    before: HashMap<ProcessId, Cumulative>,
}

/// Opens the device under a root.
///
/// # Errors
/// Why there is none to be had, and what would help.
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

    /// The notices since the last call, in time order, of pages of known processes: one for each base
    /// page. Times are from `began_ns` on.
    ///
    /// # Errors
    /// When the device cannot be read, or says what it should not.
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

    /// Notices are not wanted until they are asked for again: those of before are forgotten.
    pub(crate) fn rest(&mut self) {
        self.rests = true;
        self.waiting.clear();
    }

    /// How much the threads of each known process shared since the last call; for a process that the
    /// unit does not watch there is nothing.
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

/// Adds a part of a snapshot; the last of a process makes it whole.
fn note(
    parts: &mut HashMap<u32, Vec<(u32, u32, u64)>>,
    whole: &mut HashMap<u32, Vec<(u32, u32, u64)>>,
    part: SharingPart,
) {
    if part.is_first {
        parts.insert(part.tgid, Vec::new());
    }
    // A process whose beginning was not seen is of a snapshot that was asked for before.
    let Some(pairs) = parts.get_mut(&part.tgid) else {
        return;
    };
    pairs.extend(part.pairs);
    if part.is_last {
        whole.extend(parts.remove_entry(&part.tgid));
    }
}

/// The thread that a notification is about: the one that it names if that is the process's, else the
/// process's first.
fn whose(found: &Notification, known: &Known) -> Option<(ThreadId, ProcessId)> {
    let of = |tid: &u32| known.get(tid).filter(|known| known.1.pid == found.tgid);
    of(&found.tid).or_else(|| of(&found.tgid)).copied()
}

fn nonsense(error: NoRecord) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests;
