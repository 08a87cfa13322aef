//! The text of `valgrind --tool=lackey --trace-mem=yes`.
//!
//! One line per instruction and per access, the address hexadecimal, the size in bytes decimal:
//!
//! ```text
//! I  0401ab70,3      an instruction; accesses after it are its own
//!  L 1ffeffe7e8,8    it loads
//!  S 1ffeffe7e0,8    it stores
//!  M 0421c7cc,4      it does both
//! ==28696== Command: ...    whatever valgrind says
//! ```
//!
//! All threads are in one stream and nothing tells them apart, so the trace has one thread.
//! Accesses of more than 255 bytes (saving the state of vector units) are made in parts of 64.

use std::io::{BufRead, Write};

use super::sink::Sink;
use super::{Imported, decimal, each_line, hexadecimal};
use crate::error::Error;
use crate::event::{Event, Kind};

/// The largest access that is accepted, in bytes; an `xsave` has some 10 KiB.
const LARGEST: u64 = 64 << 10;

/// What a line says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Parsed {
    /// The accesses at the address; none for the instruction itself.
    kinds: &'static [Kind],
    address: u64,
    size: u64,
}

/// Whether a line is one of the tool's own.
pub(super) fn is_line(line: &[u8]) -> bool {
    parse(line).is_some()
}

fn parse(line: &[u8]) -> Option<Parsed> {
    let line = line.trim_ascii_end();
    let (kinds, rest): (&[Kind], _) = match line {
        [b'I', b' ', rest @ ..] => (&[], rest),
        [b' ', b'L', b' ', rest @ ..] => (&[Kind::Load], rest),
        [b' ', b'S', b' ', rest @ ..] => (&[Kind::Store], rest),
        [b' ', b'M', b' ', rest @ ..] => (&[Kind::Load, Kind::Store], rest),
        _ => return None,
    };
    let rest = rest.trim_ascii_start();
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let parsed = Parsed {
        kinds,
        address: hexadecimal(&rest[..comma])?,
        size: decimal(&rest[comma + 1..])?,
    };
    (1..=LARGEST).contains(&parsed.size).then_some(parsed)
}

/// A message of valgrind's: its process, and the rest of the line.
fn chatter(line: &[u8]) -> Option<(u32, &[u8])> {
    let rest = line.strip_prefix(b"==")?;
    let end = rest.windows(2).position(|two| two == b"==")?;
    let process = u32::try_from(decimal(&rest[..end])?).ok()?;
    Some((process, rest[end + 2..].trim_ascii()))
}

/// Reads all lines.
///
/// # Errors
/// When the text cannot be read or the trace cannot be written.
pub(super) fn read<W: Write>(
    text: &mut impl BufRead,
    sink: &mut Sink<'_, W>,
    imported: &mut Imported,
) -> Result<(), Error> {
    let mut process = 0;
    let mut name = "program".to_owned();
    let mut instructions = 0;
    let mut thread = None;
    each_line(text, imported, |line, _| {
        let Some(parsed) = parse(line) else {
            let Some((valgrind, said)) = chatter(line) else {
                return Ok(false);
            };
            if thread.is_none() {
                process = valgrind;
                if let Some(command) = said.strip_prefix(b"Command: ") {
                    name = name_of(command);
                }
            }
            return Ok(true);
        };
        if parsed.kinds.is_empty() {
            instructions += 1;
            return Ok(true);
        }
        let thread = *thread.get_or_insert_with(|| sink.thread(process, process, &name));
        for &kind in parsed.kinds {
            for (address, bytes) in parts(parsed.address, parsed.size) {
                let event = Event {
                    kind,
                    bytes,
                    gap: 0,
                    address,
                };
                sink.push(thread, 0, std::mem::take(&mut instructions), event)?;
            }
        }
        Ok(true)
    })
}

/// The program's name in a command.
fn name_of(command: &[u8]) -> String {
    let program = command.split(|&byte| byte == b' ').next();
    let file = program.and_then(|path| path.rsplit(|&byte| byte == b'/').next());
    String::from_utf8_lossy(file.unwrap_or(command)).into_owned()
}

/// An access as a whole, or in parts if it has more bytes than an event can hold.
fn parts(address: u64, size: u64) -> impl Iterator<Item = (u64, u8)> {
    let most = if size > u64::from(u8::MAX) { 64 } else { size };
    (0..size)
        .step_by(most as usize)
        .map(move |at| (address.wrapping_add(at), (size - at).min(most) as u8))
}
