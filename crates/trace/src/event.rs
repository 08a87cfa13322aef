//! What a trace holds: the events of each thread, in that thread's own order.

use serde::{Deserialize, Serialize};

/// One event of one thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// Bytes accessed; 0 if the event is not an access.
    pub bytes: u8,
    /// Instructions that the thread executed since its previous event, this one's included. It is 0
    /// for the second access of one instruction.
    pub gap: u32,
    /// Virtual address; for [`Kind::Wake`] the number of the woken thread.
    pub address: u64,
}

/// What an [`Event`] is.
///
/// Sleeps and wakes give the order between threads that a replay keeps: after a sleep, a thread continues only once
/// another has woken it. They count like a semaphore: a wake that comes early is remembered.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Kind {
    /// The thread read memory.
    Load,
    /// The thread wrote memory.
    Store,
    /// The thread gave up its CPU because it waits.
    Sleep,
    /// The thread woke the one that [`Event::address`] names.
    Wake,
}

/// A thread of the trace. Its place in the table is its number in the trace.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ThreadInfo {
    /// The process it belongs to.
    pub process: u32,
    /// Its own number in the operating system.
    pub tid: u32,
    /// Its name.
    pub name: String,
}

impl Event {
    /// A load of `bytes` bytes at `address`.
    pub const fn load(address: u64, bytes: u8, gap: u32) -> Self {
        Self {
            kind: Kind::Load,
            bytes,
            gap,
            address,
        }
    }

    /// A store of `bytes` bytes at `address`.
    pub const fn store(address: u64, bytes: u8, gap: u32) -> Self {
        Self {
            kind: Kind::Store,
            bytes,
            gap,
            address,
        }
    }

    /// The thread waits.
    pub const fn sleep(gap: u32) -> Self {
        Self {
            kind: Kind::Sleep,
            bytes: 0,
            gap,
            address: 0,
        }
    }

    /// The thread wakes thread number `thread` of the trace.
    pub const fn wake(thread: u32, gap: u32) -> Self {
        Self {
            kind: Kind::Wake,
            bytes: 0,
            gap,
            address: thread as u64,
        }
    }

    /// Instructions without an access: a load of 0 bytes. It stands before an event whose gap does not fit into 32
    /// bits; see [`Event::push_after`].
    pub const fn filler(gap: u32) -> Self {
        Self::load(0, 0, gap)
    }

    /// Whether it loads or stores anything.
    #[inline]
    pub const fn is_access(&self) -> bool {
        matches!(self.kind, Kind::Load | Kind::Store) && self.bytes > 0
    }

    /// Appends the event as one that comes `instructions` after the previous one, with as many fillers before it as
    /// that many instructions need. The event's own gap is ignored.
    pub fn push_after(mut self, mut instructions: u64, events: &mut Vec<Self>) {
        while instructions > u64::from(u32::MAX) {
            events.push(Self::filler(u32::MAX));
            instructions -= u64::from(u32::MAX);
        }
        self.gap = instructions as u32;
        events.push(self);
    }
}
