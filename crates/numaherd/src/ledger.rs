//! New ledgers, as this program begins them.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use numaherd_herd::ledger::Writer;

use crate::exit::coded;

/// What ledgers call this program.
pub const PROGRAM: &str = concat!("numaherd ", env!("CARGO_PKG_VERSION"));

/// The time in ms since 1970; nothing where the clock is before that.
pub fn now_ms() -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(now.as_millis()).ok()
}

/// A new ledger; when it takes more bytes than `largest` on disk, its older half is deleted.
///
/// # Errors
/// It cannot be created, or something else is there.
pub fn create(path: &Path, largest: u64) -> Result<Writer> {
    Writer::create(path, PROGRAM, now_ms(), largest).map_err(coded)
}
