//! Reads a journal. A damaged line is skipped: each line stands by itself. Half a line at the end is no damage: a
//! process killed while writing it has not set what it says.

use std::collections::BTreeMap;
use std::path::Path;

use numaherd_world::ThreadId;
use serde::Deserialize;

use super::{Header, Owed, VERSION, Written, owe};
use crate::error::HerdError;
use crate::sealed::is_whole;

/// What a journal holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The boot that it belongs to; `None` when it is empty.
    pub(super) boot: Option<String>,
    /// The threads to be given back.
    pub(super) owed: BTreeMap<ThreadId, Owed>,
    /// How many lines are damaged, and where the first is.
    pub(super) damage: Option<Damage>,
}

/// Lines that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// The number of the first.
    pub(super) line: usize,
    /// The byte at which it begins.
    pub(super) byte: usize,
    /// How many there are.
    pub(super) lines: usize,
}

#[derive(Deserialize)]
struct AnyHeader {
    #[serde(rename = "numaherd-journal")]
    version: u64,
}

/// Reads a journal's bytes. `path` is for messages.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Found, HerdError> {
    let mut found = Found::default();
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let Some(first) = lines.next() else {
        return Ok(found);
    };
    found.boot = Some(header(path, without_feed(first))?);
    let mut byte = first.len();
    for (number, line) in lines.enumerate() {
        let text = without_feed(line);
        let written = is_whole(text)
            .then(|| serde_json::from_slice(text).ok())
            .flatten();
        match written {
            Some(Written::Change(entry)) => owe(&mut found.owed, entry),
            Some(Written::Settled { thread }) => {
                found.owed.remove(&thread);
            }
            None if !line.ends_with(b"\n") => {}
            None => {
                let first = Damage {
                    line: number + 2,
                    byte,
                    lines: 0,
                };
                found.damage.get_or_insert(first).lines += 1;
            }
        }
        byte += line.len();
    }
    Ok(found)
}

fn header(path: &Path, line: &[u8]) -> Result<String, HerdError> {
    let not_ours = |why: &str| HerdError::NotOurs {
        path: path.to_owned(),
        what: "journal",
        why: why.to_owned(),
    };
    let Ok(AnyHeader { version }) = serde_json::from_slice(line) else {
        return Err(not_ours(
            "its first line is not a journal's header; nothing was touched. Move the file away, or \
             name another with --journal",
        ));
    };
    if !is_whole(line) {
        return Err(not_ours(
            "its header is damaged, so it is unknown which boot it belongs to; nothing was changed. Move \
             the file away; use taskset to restore affinities by hand",
        ));
    }
    if version > VERSION {
        return Err(HerdError::Newer {
            path: path.to_owned(),
            what: "a journal",
            version,
            known: VERSION,
        });
    }
    let header: Header = serde_json::from_slice(line)
        .map_err(|error| not_ours(&format!("its header cannot be read: {error}")))?;
    Ok(header.boot)
}

fn without_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}
