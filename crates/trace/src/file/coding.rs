//! How the events of a frame become bytes: each is coded by how well it was predicted.
//!
//! A loop makes the same accesses again and again, each a fixed step further. A trace does not record the instruction
//! that made an access, but the last few events (their kinds, sizes and gaps) identify the place in the program nearly
//! as well. So the coder makes three guesses of each event's address, in the manner of value-predicting trace
//! compressors (Burtscher, VPC3, 2005):
//!
//! * *rhythm*: the steps from one access to the next repeat; the guess is the step that last followed these three
//!   steps;
//! * *near place*, *far place*: the address accessed when the last three (eight) events last looked as they do now,
//!   plus the step between the last two accesses there.
//!
//! The coder writes which guess was right and, only if none was, the distance from the nearest of four bases. In
//! regular code this is the same byte again and again, which zstd reduces to nearly nothing. Writer and reader keep the
//! same [`Guesses`], so the file does not contain them.
//!
//! A frame's bytes are four columns, each of similar bytes:
//!
//! | column | per event | holds |
//! |---|---|---|
//! | shapes | 1 byte | bits 0–1 kind, 2–4 size (0–6: 2^size bytes; 7: a byte in *extra*), 5–7 gap (0–5: itself; 6: a byte in *extra*; 7: four bytes there) |
//! | codes | 1 byte | 0 rhythm, 1 near place, 2 far place; 8 + 8·base + (width−1): a distance |
//! | extra | as the shape says | size, then gap, little-endian |
//! | distances | as the code says | `width` bytes little-endian, zigzag-coded distance from the base: 0 the previous access, 1 near place, 2 far place, 3 address 0 |
//!
//! preceded by the lengths of the last two columns, four bytes each. Sleeps and wakes have base 3 and do not change the
//! guesses of addresses.

use crate::event::{Event, Kind};

const RHYTHM: u8 = 0;
const NEAR: u8 = 1;
const FAR: u8 = 2;
const DISTANCE: u8 = 8;
const FROM_PREVIOUS: u8 = 0;
const FROM_NEAR: u8 = 1;
const FROM_FAR: u8 = 2;
const FROM_ZERO: u8 = 3;

const OTHER_SIZE: u8 = 7;
const BYTE_GAP: u8 = 6;
const WORD_GAP: u8 = 7;

const RHYTHM_BITS: u32 = 12;
const NEAR_BITS: u32 = 8;
const FAR_BITS: u32 = 10;

/// An odd number whose multiples are spread evenly over 64 bits (2^64 over the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The most bytes that an event takes before compression.
const MOST_BYTES: usize = 2 + 5 + 8;
/// Bytes after the columns that may be read together with the last distance.
const SLACK: usize = 8;
/// The lengths of two columns.
const LENGTHS: usize = 8;

/// The most bytes that the columns of `events` events take.
pub(super) const fn most_bytes(events: usize) -> usize {
    LENGTHS + events * MOST_BYTES
}

/// The last access at a place in the program.
#[derive(Clone, Copy, Default)]
struct Place {
    address: u64,
    step: u64,
}

impl Place {
    #[inline]
    fn next(self) -> u64 {
        self.address.wrapping_add(self.step)
    }

    #[inline]
    fn went_to(&mut self, address: u64) {
        self.step = address.wrapping_sub(self.address);
        self.address = address;
    }
}

/// The predictors of the next access.
pub(super) struct Guesses {
    rhythm: Box<[u64; 1 << RHYTHM_BITS]>,
    near: Box<[Place; 1 << NEAR_BITS]>,
    far: Box<[Place; 1 << FAR_BITS]>,
    /// Shapes of the last eight events, the latest in the lowest byte.
    shapes: u64,
    /// The last three steps from access to access, 21 bits of each.
    steps: u64,
    previous: u64,
}

/// Where the tables hold the guesses for the next access.
#[derive(Clone, Copy)]
struct Indices {
    rhythm: usize,
    near: usize,
    far: usize,
}

impl Guesses {
    pub(super) fn new() -> Self {
        Self {
            rhythm: Box::new([0; 1 << RHYTHM_BITS]),
            near: Box::new([Place::default(); 1 << NEAR_BITS]),
            far: Box::new([Place::default(); 1 << FAR_BITS]),
            shapes: 0,
            steps: 0,
            previous: 0,
        }
    }

    /// Forgets everything: each frame can be read alone.
    fn forget(&mut self) {
        self.rhythm.fill(0);
        self.near.fill(Place::default());
        self.far.fill(Place::default());
        (self.shapes, self.steps, self.previous) = (0, 0, 0);
    }

    #[inline]
    fn see(&mut self, shape: u8) -> Indices {
        self.shapes = self.shapes << 8 | u64::from(shape);
        let spread = |value: u64, bits: u32| (value.wrapping_mul(SPREAD) >> (64 - bits)) as usize;
        Indices {
            rhythm: spread(self.steps, RHYTHM_BITS),
            near: spread(self.shapes & 0xff_ffff, NEAR_BITS),
            far: spread(self.shapes, FAR_BITS),
        }
    }

    #[inline]
    fn went_to(&mut self, at: Indices, address: u64) {
        let step = address.wrapping_sub(self.previous);
        self.rhythm[at.rhythm] = step;
        self.near[at.near].went_to(address);
        self.far[at.far].went_to(address);
        self.steps = self.steps << 21 ^ step.wrapping_mul(SPREAD) >> 43;
        self.previous = address;
    }
}

/// The columns of a frame as they are filled.
pub(super) struct Columns {
    codes: Vec<u8>,
    extra: Vec<u8>,
    distances: Vec<u8>,
}

impl Columns {
    pub(super) const fn new() -> Self {
        Self {
            codes: Vec::new(),
            extra: Vec::new(),
            distances: Vec::new(),
        }
    }

    /// Replaces `bytes` by the columns of these events.
    pub(super) fn encode(&mut self, guesses: &mut Guesses, events: &[Event], bytes: &mut Vec<u8>) {
        let count = events.len();
        guesses.forget();
        bytes.clear();
        bytes.resize(LENGTHS + count, 0);
        self.codes.resize(count, 0);
        self.extra.clear();
        self.distances.resize(count * 8 + SLACK, 0);
        let shapes = &mut bytes[LENGTHS..];
        let mut written = 0;
        for ((event, shape), code) in events.iter().zip(shapes).zip(&mut self.codes) {
            *shape = shape_of(event, &mut self.extra);
            let at = guesses.see(*shape);
            let (found, distance) = if is_memory(event.kind) {
                let found = find(guesses, at, event.address);
                guesses.went_to(at, event.address);
                found
            } else {
                (DISTANCE + 8 * FROM_ZERO, zigzag(event.address))
            };
            if found < DISTANCE {
                *code = found;
            } else {
                let width = (64 - (distance | 1).leading_zeros()).div_ceil(8) as usize;
                *code = found + (width - 1) as u8;
                self.distances[written..written + 8].copy_from_slice(&distance.to_le_bytes());
                written += width;
            }
        }
        bytes[..4].copy_from_slice(&(self.extra.len() as u32).to_le_bytes());
        bytes[4..LENGTHS].copy_from_slice(&(written as u32).to_le_bytes());
        bytes.extend_from_slice(&self.codes);
        bytes.extend_from_slice(&self.extra);
        bytes.extend_from_slice(&self.distances[..written]);
    }
}

#[inline]
const fn is_memory(kind: Kind) -> bool {
    matches!(kind, Kind::Load | Kind::Store)
}

#[inline]
const fn zigzag(distance: u64) -> u64 {
    distance << 1 ^ (distance.cast_signed() >> 63).cast_unsigned()
}

#[inline]
const fn unzigzag(code: u64) -> u64 {
    code >> 1 ^ (code & 1).wrapping_neg()
}

/// The event's shape; what does not fit into it goes to `extra`.
#[inline]
fn shape_of(event: &Event, extra: &mut Vec<u8>) -> u8 {
    let size = if event.bytes.is_power_of_two() && event.bytes <= 64 {
        event.bytes.trailing_zeros() as u8
    } else {
        extra.push(event.bytes);
        OTHER_SIZE
    };
    let gap = if event.gap < u32::from(BYTE_GAP) {
        event.gap as u8
    } else if let Ok(byte) = u8::try_from(event.gap) {
        extra.push(byte);
        BYTE_GAP
    } else {
        extra.extend_from_slice(&event.gap.to_le_bytes());
        WORD_GAP
    };
    event.kind as u8 | size << 2 | gap << 5
}

/// The first right guess, or the nearest base and the zigzag-coded distance from it.
#[inline]
fn find(guesses: &Guesses, at: Indices, address: u64) -> (u8, u64) {
    let (near, far) = (guesses.near[at.near], guesses.far[at.far]);
    if guesses.previous.wrapping_add(guesses.rhythm[at.rhythm]) == address {
        return (RHYTHM, 0);
    }
    if near.next() == address {
        return (NEAR, 0);
    }
    if far.next() == address {
        return (FAR, 0);
    }
    let from = |base: u64| zigzag(address.wrapping_sub(base));
    let mut best = (FROM_PREVIOUS, from(guesses.previous));
    for (base, distance) in [
        (FROM_NEAR, from(near.address)),
        (FROM_FAR, from(far.address)),
        (FROM_ZERO, from(0)),
    ] {
        if distance < best.1 {
            best = (base, distance);
        }
    }
    (DISTANCE + 8 * best.0, best.1)
}

/// Reads columns back: appends the events that they hold. It lengthens `bytes` as a working buffer.
///
/// # Errors
/// What is wrong with the columns, when they do not hold `count` events.
pub(super) fn decode(
    guesses: &mut Guesses,
    count: usize,
    bytes: &mut Vec<u8>,
    events: &mut Vec<Event>,
) -> Result<(), &'static str> {
    const SHORT: &str = "a column is shorter than its events need";
    guesses.forget();
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let (extra, distances) = word(0).zip(word(4)).ok_or("it has no columns")?;
    let parts = [LENGTHS, 2 * count, extra, distances];
    if parts.iter().sum::<usize>() != bytes.len() {
        return Err("its columns do not have the length that they state");
    }
    bytes.resize(bytes.len() + SLACK, 0);
    let (shapes, rest) = bytes[LENGTHS..].split_at(count);
    let (codes, rest) = rest.split_at(count);
    let (mut extra, distances) = rest.split_at(extra);
    let end = distances.len() - SLACK;
    let mut read = 0;
    events.reserve(count);
    for (&shape, &code) in shapes.iter().zip(codes) {
        let (kind, size, gap) = event_of(shape, &mut extra).ok_or(SHORT)?;
        let at = guesses.see(shape);
        let address = match code {
            RHYTHM => guesses.previous.wrapping_add(guesses.rhythm[at.rhythm]),
            NEAR => guesses.near[at.near].next(),
            FAR => guesses.far[at.far].next(),
            DISTANCE..40 => {
                let width = usize::from(code & 7) + 1;
                let word = distances.get(read..read + 8).ok_or(SHORT)?;
                let word = u64::from_le_bytes(word.try_into().map_err(|_| SHORT)?);
                read += width;
                let distance = unzigzag(word & u64::MAX >> (64 - 8 * width));
                distance.wrapping_add(match code / 8 - 1 {
                    FROM_PREVIOUS => guesses.previous,
                    FROM_NEAR => guesses.near[at.near].address,
                    FROM_FAR => guesses.far[at.far].address,
                    _ => 0,
                })
            }
            _ => return Err("it has a code that means nothing"),
        };
        if is_memory(kind) {
            guesses.went_to(at, address);
        }
        events.push(Event {
            kind,
            bytes: size,
            gap,
            address,
        });
    }
    if read != end || !extra.is_empty() {
        return Err("a column is longer than its events need");
    }
    Ok(())
}

#[inline]
fn event_of(shape: u8, extra: &mut &[u8]) -> Option<(Kind, u8, u32)> {
    let kind = match shape & 3 {
        0 => Kind::Load,
        1 => Kind::Store,
        2 => Kind::Sleep,
        _ => Kind::Wake,
    };
    let bytes = match shape >> 2 & 7 {
        OTHER_SIZE => take::<1>(extra)?[0],
        size => 1 << size,
    };
    let gap = match shape >> 5 {
        BYTE_GAP => u32::from(take::<1>(extra)?[0]),
        WORD_GAP => u32::from_le_bytes(take(extra)?),
        gap => u32::from(gap),
    };
    Some((kind, bytes, gap))
}

#[inline]
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
