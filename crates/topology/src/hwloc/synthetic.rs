//! hwloc synthetic strings: `pack:2 [numa(memory=1GB)] l3:1(size=8MiB) core:4 pu:2`.
//!
//! A level is written `type:count`, with the count under each object of the level before; the last level is `pu`. NUMA
//! nodes are a level or, in brackets, attached to each object of the level before (or to the machine). Without any, one
//! node covers the whole machine. Types may be shortened to two letters and written in any case. Attributes follow in
//! parentheses, separated by blanks:
//!
//! * `memory=SIZE` of a NUMA node, 1 GiB when left out (hwloc's own default for a level);
//! * `size=SIZE` of a cache, unknown when left out (hwloc would invent one);
//! * `indexes=...`, the kernel's numbers: a list `0,2,1,3`; or an interleaving `2*4:1*2`, where
//!   number `k` belongs to the object at `(k % 4) * 2 + (k / 4 % 2) * 1`, and so on; or the types
//!   to interleave over, `core:pack`, where the last type may be left out.
//!
//! `SIZE` is in bytes or has a unit: kB, MB, GB, TB are powers of 1000 and KiB, MiB, GiB, TiB of
//! 1024, as since hwloc 2.9. Input that hwloc accepts with a warning or silently ignores (equal
//! numbers, levels without a type, a `memory` of a core) is refused here, with its position.

use numaherd_quantity::unit_bytes;

use crate::error::ReadError;
use crate::set::LARGEST_PARSED;
use crate::topology::{CacheKind, Topology};

/// The type of a level's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Package,
    Node,
    Cache(u8, CacheKind),
    Core,
    Pu,
    /// A group, die, tile or module: it shapes the tree and has no other meaning here.
    Group,
}

/// How a level's objects are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Indexes {
    List(Vec<u32>),
    /// Steps with their repeat counts, fastest first.
    Steps(Vec<(usize, usize)>),
    Types(Vec<Kind>),
}

/// Attributes, with the position of `indexes`.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    pub memory: Option<u64>,
    pub size: Option<u64>,
    pub indexes: Option<(Indexes, usize)>,
}

/// One level of the tree.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub kind: Kind,
    /// Number of objects on this level.
    pub objects: usize,
    pub attributes: Attributes,
}

/// NUMA nodes attached to each object of a level.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    /// Number of levels before it; 0 for the machine.
    pub depth: usize,
    pub attributes: Attributes,
}

/// A parsed string.
#[derive(Clone, Debug, Default)]
pub(super) struct Description {
    pub levels: Vec<Level>,
    pub attached: Vec<Attached>,
}

/// What is wrong, and at which character (from 0).
#[derive(Debug)]
pub(super) struct Wrong {
    pub at: usize,
    pub why: String,
}

pub(super) fn wrong<T>(at: usize, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong {
        at,
        why: why.into(),
    })
}

/// Reads an hwloc synthetic string.
///
/// # Errors
/// [`ReadError::Synthetic`] names the position; [`ReadError::Invalid`] if the parts do not fit.
pub fn synthetic(text: &str) -> Result<Topology, ReadError> {
    let told = |wrong: Wrong| ReadError::Synthetic {
        text: text.to_owned(),
        position: wrong.at + 1,
        why: wrong.why,
    };
    let description = describe(text).map_err(told)?;
    let parts = description.parts(text.trim()).map_err(told)?;
    Topology::new(parts).map_err(|why| ReadError::invalid(text, why))
}

fn describe(text: &str) -> Result<Description, Wrong> {
    let characters: Vec<char> = text.chars().collect();
    let mut scan = Scan {
        characters: &characters,
        at: 0,
    };
    let mut description = Description::default();
    let mut objects: usize = 1;
    loop {
        scan.skip_blanks();
        let start = scan.at;
        if scan.take('[') {
            let attached = scan.attached(description.levels.len())?;
            description.attached.push(attached);
        } else if scan.is_done() {
            break;
        } else {
            let level = scan.level(objects)?;
            check_level(&description, &level, start)?;
            objects = level.objects;
            if objects > LARGEST_PARSED as usize {
                let why = format!(
                    "{objects} objects; more than {LARGEST_PARSED} are taken for a mistake"
                );
                return wrong(start, why);
            }
            description.levels.push(level);
        }
    }
    let has_level = description
        .levels
        .iter()
        .any(|level| level.kind == Kind::Node);
    if has_level && !description.attached.is_empty() {
        return wrong(
            0,
            "NUMA nodes stand both as a level and attached in brackets",
        );
    }
    match description.levels.last() {
        Some(level) if level.kind == Kind::Pu => Ok(description),
        Some(_) => wrong(characters.len(), "the last level must be pu, such as pu:2"),
        None => wrong(
            0,
            "there is no level; write, for example, \"pack:2 [numa] core:4 pu:2\"",
        ),
    }
}

fn check_level(before: &Description, level: &Level, at: usize) -> Result<(), Wrong> {
    let last = before.levels.last().map(|level| level.kind);
    if last == Some(Kind::Pu) {
        return wrong(at, "pu must be the last level");
    }
    let once = |kind: Kind| kind != Kind::Group;
    if once(level.kind) && before.levels.iter().any(|other| other.kind == level.kind) {
        return wrong(at, "a second level of this type");
    }
    Ok(())
}

struct Scan<'a> {
    characters: &'a [char],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn is_done(&self) -> bool {
        self.at == self.characters.len()
    }

    fn take(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, wanted: char, what: &str) -> Result<(), Wrong> {
        if self.take(wanted) {
            Ok(())
        } else {
            wrong(self.at, format!("expected {wanted:?} {what}"))
        }
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        self.characters[start..self.at].iter().collect()
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, Wrong> {
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        match digits.parse() {
            Ok(number) => Ok(number),
            Err(_) if digits.is_empty() => wrong(start, format!("expected {what}")),
            Err(_) => wrong(start, format!("{digits} is too large for {what}")),
        }
    }

    fn kind(&mut self) -> Result<Kind, Wrong> {
        let start = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric());
        if word.chars().all(|c| c.is_ascii_digit()) {
            return wrong(start, "expected a level written type:count, such as core:4");
        }
        match kind_of(&word.to_ascii_lowercase()) {
            Some(kind) => Ok(kind),
            None => wrong(
                start,
                format!("{word:?} is not one of package, die, group, numa, l1 to l5, core, pu"),
            ),
        }
    }

    /// Parses a level below `above` objects.
    fn level(&mut self, above: usize) -> Result<Level, Wrong> {
        let kind = self.kind()?;
        self.expect(':', "and how many, such as core:4")?;
        let start = self.at;
        let count: usize = self.number("how many objects the level has")?;
        if count == 0 {
            return wrong(start, "a level of no objects");
        }
        let attributes = self.attributes(kind)?;
        Ok(Level {
            kind,
            objects: above.saturating_mul(count),
            attributes,
        })
    }

    fn attached(&mut self, depth: usize) -> Result<Attached, Wrong> {
        self.skip_blanks();
        let start = self.at;
        if self.kind()? != Kind::Node {
            return wrong(start, "only NUMA nodes can be attached in brackets");
        }
        let attributes = self.attributes(Kind::Node)?;
        self.skip_blanks();
        self.expect(']', "after the attached node")?;
        Ok(Attached { depth, attributes })
    }

    fn attributes(&mut self, kind: Kind) -> Result<Attributes, Wrong> {
        let mut attributes = Attributes::default();
        if !self.take('(') {
            return Ok(attributes);
        }
        loop {
            self.skip_blanks();
            if self.take(')') {
                return Ok(attributes);
            }
            let start = self.at;
            let name = self.take_while(|c| c.is_ascii_alphabetic());
            self.expect('=', "after an attribute's name (memory, size, indexes)")?;
            let twice = match (name.as_str(), kind) {
                ("memory", Kind::Node) => attributes.memory.replace(self.size()?).is_some(),
                ("size", Kind::Cache(..)) => attributes.size.replace(self.size()?).is_some(),
                ("indexes", _) => {
                    let at = self.at;
                    attributes.indexes.replace((self.indexes()?, at)).is_some()
                }
                ("memory", _) => return wrong(start, "only a NUMA node has a memory"),
                ("size", _) => return wrong(start, "only a cache has a size"),
                _ => return wrong(start, "the attributes are memory, size and indexes"),
            };
            if twice {
                return wrong(start, "an attribute given twice");
            }
            if self.peek().is_some_and(|c| c != ')' && !c.is_whitespace()) {
                return wrong(self.at, "expected a blank or ')' after an attribute");
            }
        }
    }

    fn size(&mut self) -> Result<u64, Wrong> {
        let start = self.at;
        let number: u64 = self.number("a size such as 1GiB")?;
        let unit = self.take_while(|c| c.is_ascii_alphabetic());
        let factor = match &unit[..] {
            "" => Some(1),
            unit => unit_bytes(unit),
        };
        let Some(factor) = factor else {
            let why = format!("{unit:?} is not a unit; write KiB, MiB, GiB or TiB");
            return wrong(start, why);
        };
        match number.checked_mul(factor) {
            Some(0) => wrong(start, "a size of 0"),
            Some(bytes) => Ok(bytes),
            None => wrong(start, "a size of more than 2^64 bytes"),
        }
    }

    fn indexes(&mut self) -> Result<Indexes, Wrong> {
        if self.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
            let mut types = vec![self.kind()?];
            while self.take(':') {
                types.push(self.kind()?);
            }
            return Ok(Indexes::Types(types));
        }
        let first = self.number("a list of numbers, an interleaving or types")?;
        if !self.take('*') {
            let mut list = vec![first];
            while self.take(',') {
                list.push(self.number("a number")?);
            }
            return Ok(Indexes::List(list));
        }
        let mut steps = vec![(first as usize, self.number("how often the step is made")?)];
        while self.take(':') {
            let step = self.number("a step")?;
            self.expect('*', "and how often the step is made")?;
            steps.push((step, self.number("how often the step is made")?));
        }
        Ok(Indexes::Steps(steps))
    }
}

/// The type of which a lower-case word of at least two letters is a prefix.
fn kind_of(word: &str) -> Option<Kind> {
    if let Some(rest) = word.strip_prefix('l')
        && let Some(level) = rest.chars().next().and_then(|c| c.to_digit(10))
    {
        let kind = match &rest[1..] {
            "" | "cache" if level == 1 => CacheKind::Data,
            "" | "u" | "cache" | "ucache" => CacheKind::Unified,
            "d" | "dcache" => CacheKind::Data,
            "i" | "icache" if level <= 3 => CacheKind::Instruction,
            _ => return None,
        };
        let level = u8::try_from(level)
            .ok()
            .filter(|level| (1..=5).contains(level))?;
        return Some(Kind::Cache(level, kind));
    }
    const NAMES: &[(&str, Kind)] = &[
        ("package", Kind::Package),
        ("socket", Kind::Package),
        ("numanode", Kind::Node),
        ("node", Kind::Node),
        ("core", Kind::Core),
        ("pu", Kind::Pu),
        ("group", Kind::Group),
        ("die", Kind::Group),
        ("tile", Kind::Group),
        ("module", Kind::Group),
        ("cluster", Kind::Group),
    ];
    let fits = |(name, _): &&(&str, Kind)| word.len() >= 2 && name.starts_with(word);
    NAMES.iter().find(fits).map(|&(_, kind)| kind)
}
