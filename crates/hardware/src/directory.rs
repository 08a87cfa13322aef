//! Who may hold a line: one entry for each line of memory, as a home agent's directory has it.
//!
//! Entries are not cleared when a cache drops a line: a recorded holder *may* hold the line, and no other cache does.
//! Entries lie in blocks that are allocated at first use, so a large memory costs only its used part. If there are few
//! enough cores and domains, an entry is a byte: the host waits for one at nearly every modelled miss, and more of
//! these fit into its caches.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who may hold a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Holder {
    /// No core has held it since the start.
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

/// Largest number of cores, and of domains, that the encoding can name.
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

/// Lines in a block: 256 MiB of memory with 64-byte lines. Blocks of several MiB can use huge pages of the host.
const BLOCK_LINES: usize = 1 << 22;

/// Locks for changes to several caches; far more than cores, so contention is rare.
const LOCKS: usize = 256;

pub(crate) struct Directory {
    entries: Entries,
    locks: Vec<Mutex<()>>,
}

type Blocks<T> = Vec<OnceLock<Box<[T]>>>;

enum Entries {
    /// A byte each: 0 for none, then the cores, then the domains, and 255 for several.
    Narrow { cores: u8, blocks: Blocks<AtomicU8> },
    /// As encoded by [`Holder::encode`].
    Wide(Blocks<AtomicU16>),
}

/// The byte of a holder, on a machine with this many cores.
fn narrow(holder: Holder, cores: u8) -> u8 {
    match holder {
        Holder::None => 0,
        Holder::Core(core) => core as u8 + 1,
        Holder::Domain(domain) => cores + domain as u8 + 1,
        Holder::Several => u8::MAX,
    }
}

fn from_narrow(byte: u8, cores: u8) -> Holder {
    match byte {
        0 => Holder::None,
        u8::MAX => Holder::Several,
        core if core <= cores => Holder::Core(usize::from(core - 1)),
        domain => Holder::Domain(usize::from(domain - cores - 1)),
    }
}

/// The entry of a line; allocates its block if necessary.
#[inline]
fn entry<T: Default>(blocks: &Blocks<T>, line: u64) -> &T {
    let block = &blocks[(line / BLOCK_LINES as u64) as usize];
    let block = match block.get() {
        Some(block) => block,
        None => make(block),
    };
    &block[line as usize % BLOCK_LINES]
}

#[cold]
#[inline(never)]
fn make<T: Default>(block: &OnceLock<Box<[T]>>) -> &[T] {
    block.get_or_init(|| (0..BLOCK_LINES).map(|_| T::default()).collect())
}

#[inline]
fn host_address<T>(blocks: &Blocks<T>, line: u64) -> Option<usize> {
    let block = blocks.get((line / BLOCK_LINES as u64) as usize)?.get()?;
    Some(&raw const block[line as usize % BLOCK_LINES] as usize)
}

impl Directory {
    /// A directory for this many lines, which this many cores and domains may hold.
    pub(crate) fn new(lines: u64, cores: usize, domains: usize) -> Self {
        let blocks = lines.div_ceil(BLOCK_LINES as u64).max(1);
        let entries = match u8::try_from(cores) {
            Ok(cores) if usize::from(cores) + domains < usize::from(u8::MAX) => Entries::Narrow {
                cores,
                blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            },
            _ => Entries::Wide((0..blocks).map(|_| OnceLock::new()).collect()),
        };
        Self {
            entries,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
        }
    }

    #[inline]
    pub(crate) fn holder(&self, line: u64) -> Holder {
        match &self.entries {
            Entries::Narrow { cores, blocks } => {
                from_narrow(entry(blocks, line).load(Relaxed), *cores)
            }
            Entries::Wide(blocks) => Holder::decode(entry(blocks, line).load(Relaxed)),
        }
    }

    /// The host address of a line's entry, if its block exists.
    #[inline]
    pub(crate) fn host_address(&self, line: u64) -> Option<usize> {
        match &self.entries {
            Entries::Narrow { blocks, .. } => host_address(blocks, line),
            Entries::Wide(blocks) => host_address(blocks, line),
        }
    }

    #[inline]
    pub(crate) fn set(&self, line: u64, holder: Holder) {
        match &self.entries {
            Entries::Narrow { cores, blocks } => {
                entry(blocks, line).store(narrow(holder, *cores), Relaxed);
            }
            Entries::Wide(blocks) => entry(blocks, line).store(holder.encode(), Relaxed),
        }
    }

    /// Makes `core` the holder of a line if `seen` is [`Holder::None`] and it still has no holder;
    /// returns the holder.
    #[inline]
    pub(crate) fn claim(&self, line: u64, core: usize, seen: Holder) -> Holder {
        if seen != Holder::None {
            return seen;
        }
        let mine = Holder::Core(core);
        let other = match &self.entries {
            Entries::Narrow { cores, blocks } => entry(blocks, line)
                .compare_exchange(0, narrow(mine, *cores), Relaxed, Relaxed)
                .map_err(|other| from_narrow(other, *cores)),
            Entries::Wide(blocks) => entry(blocks, line)
                .compare_exchange(0, mine.encode(), Relaxed, Relaxed)
                .map(|_| 0)
                .map_err(Holder::decode),
        };
        other.err().unwrap_or(mine)
    }

    /// Locks out other changes of this line's holders.
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

    /// The largest sizes for which an entry is a byte, with one more core, with one more domain, and a large machine.
    const SIZES: [(usize, usize); 4] = [(200, 54), (201, 54), (200, 55), (300, 300)];

    #[test]
    fn entries_name_every_holder() {
        for (cores, domains) in SIZES {
            let directory = Directory::new(1 << 20, cores, domains);
            for holder in [
                Holder::Core(0),
                Holder::Core(cores - 1),
                Holder::Domain(0),
                Holder::Domain(domains - 1),
                Holder::Several,
                Holder::None,
            ] {
                directory.set(5, holder);
                assert_eq!(directory.holder(5), holder, "{cores} and {domains}");
            }
        }
    }

    #[test]
    fn the_first_to_claim_a_line_holds_it() {
        for (cores, domains) in SIZES {
            let directory = Directory::new(1 << 20, cores, domains);
            assert_eq!(directory.claim(77, 3, Holder::None), Holder::Core(3));
            assert_eq!(directory.claim(77, 4, Holder::None), Holder::Core(3));
            assert_eq!(directory.holder(78), Holder::None);
        }
    }
}
