//! Reading a machine file: TOML to a checked [`Machine`], with errors that name file, line and key.

use std::path::Path;

use numaherd_files::{Document, read};

use super::Machine;
use crate::error::ReadError;

/// Limit of a file's size, far above any real machine file.
const LARGEST_FILE: u64 = 1 << 26;

impl Machine {
    /// The preset of that name, or else the machine file at that path.
    ///
    /// # Errors
    /// As [`Machine::read`]; if it is neither, [`ReadError::NoPreset`] lists the presets.
    pub fn find(name_or_path: &str) -> Result<Self, ReadError> {
        let path = Path::new(name_or_path);
        match Self::preset(name_or_path) {
            Err(ReadError::NoPreset { .. }) if path.exists() || path.extension().is_some() => {
                Self::read(path)
            }
            found => found,
        }
    }

    /// Reads a machine file.
    ///
    /// # Errors
    /// As [`Machine::parse`], and if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&read::text(path, LARGEST_FILE)?, path)
    }

    /// Parses the text of a machine file; `path` is only for messages.
    ///
    /// # Errors
    /// [`ReadError::File`] names file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ReadError> {
        let file = path.display().to_string();
        let document = Document::new(text, &file);
        let machine: Self = document.parse()?;
        machine
            .check()
            .map_err(|wrong| document.wrong_key(&wrong.key, wrong.why))?;
        Ok(machine)
    }
}
