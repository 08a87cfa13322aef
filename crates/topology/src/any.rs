//! Reads a machine by the words of a user: one function for the command line.

use std::path::Path;

use crate::error::ReadError;
use crate::machine::Machine;
use crate::topology::Topology;
use crate::{hwloc, sysfs};

/// Reads a machine, by the first of these that fits:
///
/// 1. a directory: the root of a sysfs tree (`/` for this machine);
/// 2. a file that ends in `.xml`: hwloc XML; in `.toml`: a machine file;
/// 3. the name of a preset;
/// 4. a text with a colon: an hwloc synthetic string.
///
/// # Errors
/// The error of the reader that fits; if none fits, [`ReadError::Unrecognised`] lists what was tried.
pub fn read_any(spec: &str) -> Result<Topology, ReadError> {
    let path = Path::new(spec);
    if path.is_dir() {
        return sysfs::read(path);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("xml") => return hwloc::read_xml(path),
        Some("toml") => return topology_of(&Machine::read(path)?, path),
        _ => {}
    }
    match Machine::preset(spec) {
        Ok(machine) => topology_of(&machine, path),
        Err(_) if path.exists() => Err(ReadError::Unrecognised {
            spec: spec.to_owned(),
            tried: "a file must end in .xml (hwloc) or .toml (a machine file)".to_owned(),
        }),
        Err(_) if spec.contains(':') => hwloc::synthetic(spec),
        Err(no_preset) => Err(ReadError::Unrecognised {
            spec: spec.to_owned(),
            tried: format!(
                "there is no such directory or file; {no_preset}; an hwloc synthetic string has a \
                 colon, as in \"numa:4 core:2 pu:1\""
            ),
        }),
    }
}

fn topology_of(machine: &Machine, path: &Path) -> Result<Topology, ReadError> {
    machine
        .topology()
        .map_err(|why| ReadError::invalid(path, why))
}
