//! Who may hold a line: one entry for each line of memory, as a home agent's directory has it.
//!
//! Entries are never cleared when a cache drops a line, so a holder *may* hold the line and nobody
//! else does. Entries live in blocks that are made when first touched, so that a large memory
//! costs only what is used of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who may hold a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Holder {
    /// Nobody since the start.
    None,
    /// One core, in its private caches, and its domain's last-level cache.
    Core(usize),
    /// Several cores of one domain, and its last-level cache, which may have it dirty.
    Domain(usize),
    /// Cores of several domains, all of them clean.
    Several,
}

/// Domains are numbered from here on.
const DOMAINS: u16 = 0x8000;

/// Most cores and most domains that the encoding can name.
pub(crate) const MOST: usize = (DOMAINS - 2) as usize;

impl Holder {
    /// 16-bit form; 0 is None.
    pub(crate) fn encode(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Core(core) => core as u16 + 1,
            Self::Domain(domain) => DOMAINS + domain as u16,
            Self::Several => u16::MAX,
        }
    }

    pub(crate) fn decode(code: u16) -> Self {
        match code {
            0 => Self::None,
            u16::MAX => Self::Several,
            DOMAINS.. => Self::Domain(usize::from(code - DOMAINS)),
            _ => Self::Core(usize::from(code - 1)),
        }
    }
}

/// Lines in a block: 2 MiB of memory with 64-byte lines.
const BLOCK_LINES: usize = 1 << 15;

/// Locks for changes that touch several caches; far more than cores, so that they seldom meet.
const LOCKS: usize = 256;

pub(crate) struct Directory {
    blocks: Vec<OnceLock<Box<[AtomicU16]>>>,
    locks: Vec<Mutex<()>>,
}

impl Directory {
    /// A directory for this many lines.
    pub(crate) fn new(lines: u64) -> Self {
        let blocks = lines.div_ceil(BLOCK_LINES as u64).max(1);
        Self {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
        }
    }

    fn entry(&self, line: u64) -> &AtomicU16 {
        let block = (line / BLOCK_LINES as u64) as usize;
        let block = self.blocks[block]
            .get_or_init(|| (0..BLOCK_LINES).map(|_| AtomicU16::new(0)).collect());
        &block[line as usize % BLOCK_LINES]
    }

    #[inline]
    pub(crate) fn holder(&self, line: u64) -> Holder {
        Holder::decode(self.entry(line).load(Relaxed))
    }

    #[inline]
    pub(crate) fn set(&self, line: u64, holder: Holder) {
        self.entry(line).store(holder.encode(), Relaxed);
    }

    /// Makes `core` the holder of a line that nobody held when `seen` was read; returns who holds
    /// it now.
    #[inline]
    pub(crate) fn claim(&self, line: u64, core: usize, seen: Holder) -> Holder {
        if seen != Holder::None {
            return seen;
        }
        let mine = Holder::Core(core);
        match self
            .entry(line)
            .compare_exchange(0, mine.encode(), Relaxed, Relaxed)
        {
            Ok(_) => mine,
            Err(other) => Holder::decode(other),
        }
    }

    /// Keeps other changes of this line's holders away.
    pub(crate) fn lock(&self, line: u64) -> MutexGuard<'_, ()> {
        self.locks[line as usize % LOCKS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_survive_their_encoding() {
        for holder in [
            Holder::None,
            Holder::Several,
            Holder::Core(0),
            Holder::Core(MOST),
            Holder::Domain(0),
            Holder::Domain(MOST),
        ] {
            assert_eq!(Holder::decode(holder.encode()), holder);
        }
    }

    #[test]
    fn the_first_to_claim_a_line_holds_it() {
        let directory = Directory::new(1 << 20);
        assert_eq!(directory.claim(77, 3, Holder::None), Holder::Core(3));
        assert_eq!(directory.claim(77, 4, Holder::None), Holder::Core(3));
        assert_eq!(directory.holder(78), Holder::None);
    }
}
