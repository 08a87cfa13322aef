//! hwloc XML of versions 2 and 3 (`lstopo --of xml`).
//!
//! Version 3 keeps version 2's DTD; it moved the machine's info to the end of the file and added
//! object ids, neither of which matters here. Version 1 nests nodes and objects differently and is
//! refused; `lstopo` of version 2 converts it.
//!
//! * Each CPU belongs to one node ([`super::dealt`]); other nodes near to it are memory without
//!   CPUs, as HBM and CXL memory are under Linux.
//! * CPUs in the machine's `complete_cpuset` without an object are offline (or were forbidden to
//!   the file's writer); nodes in its `complete_nodeset` likewise.
//! * Of the distances, the operating system's latency matrix between nodes (`NUMALatency`) is the
//!   SLIT; other matrices have unknown units and are not used.
//! * Memory attributes: `ReadLatency` or `Latency` (ns) and `ReadBandwidth` or `Bandwidth` (MiB/s),
//!   kept if they are complete.
//! * CPU kinds: `LinuxCapacity`, else `FrequencyMaxMHz`, gives the cores' relative power if every
//!   online CPU has it. `forced_efficiency` is only a rank.
//! * I/O, Misc and memory-side caches are ignored.

use std::path::Path;

use numaherd_files::read;
use roxmltree::{Document, Node as Element, ParsingOptions};

use super::objects;
use crate::error::ReadError;
use crate::topology::Topology;

/// Limit of a file's size, far above any real file: one of 4096 CPUs has some 4 MiB.
const LARGEST_FILE: u64 = 1 << 26;

/// Reads an hwloc XML file.
///
/// # Errors
/// As [`xml`], and if the file cannot be read.
pub fn read_xml(path: &Path) -> Result<Topology, ReadError> {
    xml(&read::text(path, LARGEST_FILE)?, path)
}

/// Parses the text of an hwloc XML file. `path` is for messages and, if the file names no host, for
/// the machine's name. External entities are never loaded.
///
/// # Errors
/// [`ReadError::Xml`] names file and line.
pub fn xml(text: &str, path: &Path) -> Result<Topology, ReadError> {
    // hwloc's files start with a DOCTYPE.
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|error| ReadError::Xml {
        path: path.to_owned(),
        line: error.pos().row,
        why: format!("it is not well-formed XML: {error}"),
    })?;
    let root = Tag {
        document: &document,
        path,
        element: document.root_element(),
    };
    check_version(root)?;
    Topology::new(objects::parts(root)?).map_err(|why| ReadError::invalid(path, why))
}

fn check_version(root: Tag<'_>) -> Result<(), ReadError> {
    let name = root.element.tag_name().name();
    if name != "topology" {
        let why = format!("it is not hwloc's: its root is <{name}>, not <topology>");
        return Err(root.wrong(why));
    }
    let version = root.attribute("version").unwrap_or("1");
    match version.split('.').next() {
        Some("2" | "3") => Ok(()),
        Some("1") => Err(root.wrong(
            "it is of hwloc 1, which nests nodes differently; lstopo of hwloc 2 converts it (lstopo \
             -i old.xml new.xml)",
        )),
        _ => Err(root.wrong(format!("it is of version {version:?}; 2 and 3 can be read"))),
    }
}

/// An element of a file, with the context for messages.
#[derive(Clone, Copy)]
pub(super) struct Tag<'a> {
    pub document: &'a Document<'a>,
    pub path: &'a Path,
    pub element: Element<'a, 'a>,
}

impl<'a> Tag<'a> {
    pub fn attribute(self, name: &str) -> Option<&'a str> {
        self.element.attribute(name)
    }

    /// The elements of that name directly below this one.
    pub fn children(self, name: &str) -> impl Iterator<Item = Self> {
        let named = self
            .element
            .children()
            .filter(move |e| e.has_tag_name(name));
        named.map(move |element| Self { element, ..self })
    }

    /// The elements of that name among this one and those below it.
    pub fn descendants(self, name: &str) -> impl Iterator<Item = Self> {
        let named = self
            .element
            .descendants()
            .filter(move |e| e.has_tag_name(name));
        named.map(move |element| Self { element, ..self })
    }

    /// An error at this element.
    pub fn wrong(self, why: impl Into<String>) -> ReadError {
        ReadError::Xml {
            path: self.path.to_owned(),
            line: self.document.text_pos_at(self.element.range().start).row,
            why: why.into(),
        }
    }
}
