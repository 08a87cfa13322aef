//! Finds what is in a trace file when it is opened: from its index or, where that is missing or damaged, by going from
//! frame to frame up to the damage.

use serde_json::{Map, Value};

use super::coding::most_bytes;
use super::header::{Content, Header, MAGIC, Start, Trailer, VERSION, check_sum};
use super::read::FrameInfo;
use super::source::Source;
use super::{FRAME_EVENTS, LONGEST_NAME};
use crate::error::{Damage, Error};
use crate::event::ThreadInfo;

/// The longest description that is read, in bytes.
const LONGEST_ABOUT: u64 = 1 << 24;
/// Bytes of one frame in the index: its offset and its header.
const ENTRY_BYTES: usize = 8 + Header::BYTES;

/// Everything in a trace except its events.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) page_bytes: u64,
    pub(super) about: Map<String, Value>,
    pub(super) threads: Vec<ThreadInfo>,
    pub(super) frames: Vec<FrameInfo>,
    pub(super) damage: Option<Damage>,
}

/// Why reading cannot continue: damage, which ends the trace, or an error of the system.
enum Stop {
    Damage(Damage),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

fn damage(at: u64, why: impl Into<String>) -> Stop {
    Stop::Damage(Damage {
        at,
        why: why.into(),
    })
}

impl Contents {
    /// # Errors
    /// When the source cannot be read or does not start as a trace does.
    pub(super) fn read(source: &Source) -> Result<Self, Error> {
        let (mut contents, first) = Self::start(source)?;
        let indexed = match index(source, first) {
            Some(entries) => entries
                .iter()
                .try_for_each(|(at, header)| contents.add(source, *at, header)),
            None => contents.scan(source, first),
        };
        match indexed {
            Ok(()) => {}
            Err(Stop::Damage(damage)) => contents.damage = Some(damage),
            Err(Stop::Error(error)) => return Err(error),
        }
        Ok(contents)
    }

    /// The start of the file, and where its frames start.
    fn start(source: &Source) -> Result<(Self, u64), Error> {
        let mut bytes = [0; Start::BYTES];
        if !source.read(0, &mut bytes)? {
            let short = vec![0; source.length().min(MAGIC.len() as u64) as usize];
            let mut first = short;
            let is_ours = source.read(0, &mut first)? && MAGIC.starts_with(&first);
            let why = if first.is_empty() {
                "it is empty"
            } else if is_ours {
                "it ends within its first bytes"
            } else {
                "it does not start as one"
            };
            return Err(Error::NoTrace(why.to_owned()));
        }
        let start = Start::read(&bytes).map_err(|why| Error::NoTrace(why.to_owned()))?;
        if start.version > VERSION {
            return Err(Error::Version {
                found: start.version,
                known: VERSION,
            });
        }
        let length = u64::from(start.about_bytes);
        let about = plain(source, Start::BYTES as u64, length.min(LONGEST_ABOUT))?;
        let about = about.filter(|about| start.is_of(about));
        let about = about.and_then(|about| serde_json::from_slice(&about).ok());
        let contents = Self {
            page_bytes: start.page_bytes,
            about: about.ok_or_else(|| Error::NoTrace("its description is damaged".to_owned()))?,
            threads: Vec::new(),
            frames: Vec::new(),
            damage: None,
        };
        Ok((contents, Start::BYTES as u64 + length))
    }

    /// Goes from frame to frame. It ends in damage, since it is used only where the index is
    /// missing or damaged.
    fn scan(&mut self, source: &Source, mut at: u64) -> Result<(), Stop> {
        loop {
            if at == source.length() {
                let why = "the file ends here without its index: the recording was cut off";
                return Err(damage(at, why));
            }
            let mut bytes = [0; Header::BYTES];
            if !source.read(at, &mut bytes)? {
                return Err(damage(at, "the file ends within a frame's header"));
            }
            let header = Header::read(&bytes).map_err(|why| damage(at, why))?;
            if header.content == Content::Index {
                return Err(damage(at, "the index is damaged; all before it was read"));
            }
            let end = at + Header::BYTES as u64 + header.stored_bytes();
            if end > source.length() {
                return Err(damage(at, "the file ends within this frame"));
            }
            self.add(source, at, &header)?;
            at = end;
        }
    }

    /// Adds a frame to the contents.
    fn add(&mut self, source: &Source, at: u64, header: &Header) -> Result<(), Stop> {
        let content_at = at + Header::BYTES as u64;
        let read = || {
            let content = plain(source, content_at, header.stored_bytes())?;
            let content = content.filter(|bytes| check_sum(&[bytes]) == header.content_sum);
            content.ok_or_else(|| damage(at, "a frame does not fit its check sum"))
        };
        match header.content {
            Content::Events => {
                let events = header.events as usize;
                let expanded = header.expanded as usize;
                let is_possible = events <= FRAME_EVENTS
                    && expanded <= most_bytes(events)
                    && header.stored as usize <= zstd::zstd_safe::compress_bound(expanded);
                if !is_possible {
                    return Err(damage(at, "a frame is longer than any that is written"));
                }
                if header.thread as usize >= self.threads.len() {
                    let why = format!("events of thread {}, which was not named", header.thread);
                    return Err(damage(at, why));
                }
                self.frames.push(FrameInfo::new(at, header));
            }
            Content::Threads => {
                let content = read()?;
                let mut rest = &content[..];
                while !rest.is_empty() {
                    self.name(&mut rest)
                        .ok_or_else(|| damage(at, "the thread table makes no sense"))?;
                }
            }
            Content::Note => {
                if header.stored_bytes() > LONGEST_ABOUT {
                    return Err(damage(at, "a note is longer than any that is written"));
                }
                let note = serde_json::from_slice(&read()?);
                let note: Map<_, _> = note.map_err(|why| damage(at, why.to_string()))?;
                self.about.extend(note);
            }
            Content::Index => return Err(damage(at, "an index among the frames")),
        }
        Ok(())
    }

    /// Reads an entry of the thread table.
    fn name(&mut self, rest: &mut &[u8]) -> Option<()> {
        let mut word = || {
            let (word, after) = rest.split_first_chunk()?;
            *rest = after;
            Some(u32::from_le_bytes(*word))
        };
        let (thread, process, tid) = (word()? as usize, word()?, word()?);
        let length = word()? as usize;
        if length > LONGEST_NAME || length > rest.len() {
            return None;
        }
        let (name, after) = rest.split_at(length);
        *rest = after;
        let info = ThreadInfo {
            process,
            tid,
            name: str::from_utf8(name).ok()?.to_owned(),
        };
        if thread == self.threads.len() {
            self.threads.push(info);
        } else {
            *self.threads.get_mut(thread)? = info;
        }
        Some(())
    }
}

/// Reads plain bytes; `None` if the file ends before their end.
fn plain(source: &Source, at: u64, length: u64) -> Result<Option<Vec<u8>>, Error> {
    if at
        .checked_add(length)
        .is_none_or(|end| end > source.length())
    {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    Ok(source.read(at, &mut bytes)?.then_some(bytes))
}

/// The frames that the index lists, from the first on without a gap; `None` if the index is missing, damaged or
/// unreadable.
fn index(source: &Source, first: u64) -> Option<Vec<(u64, Header)>> {
    let trailer_at = source.length().checked_sub(Trailer::BYTES as u64)?;
    let trailer = plain(source, trailer_at, Trailer::BYTES as u64).ok()??;
    let Trailer { index_at } = Trailer::read(trailer.first_chunk()?)?;
    let header = plain(source, index_at, Header::BYTES as u64).ok()??;
    let header = Header::read(header.first_chunk()?).ok()?;
    let content_at = index_at + Header::BYTES as u64;
    let is_last = content_at.checked_add(header.stored_bytes()) == Some(trailer_at);
    if header.content != Content::Index || !is_last {
        return None;
    }
    let content = plain(source, content_at, header.stored_bytes()).ok()??;
    let is_whole = check_sum(&[&content]) == header.content_sum;
    is_whole.then(|| entries(&content, first, index_at))?
}

fn entries(content: &[u8], first: u64, index_at: u64) -> Option<Vec<(u64, Header)>> {
    let (entries, rest) = content.as_chunks::<ENTRY_BYTES>();
    let mut expected = first;
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries {
        let (at, header) = entry.split_first_chunk()?;
        let header = Header::read(header.first_chunk()?).ok()?;
        let at = u64::from_le_bytes(*at);
        if at != expected {
            return None;
        }
        expected = at.checked_add(Header::BYTES as u64 + header.stored_bytes())?;
        found.push((at, header));
    }
    (rest.is_empty() && expected == index_at).then_some(found)
}
