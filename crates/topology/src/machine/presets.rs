//! The machines embedded in the program: every file of `data/machines/`.

use std::path::Path;

use super::Machine;
use crate::error::ReadError;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../data/machines/", $name, ".toml")))),*]
    };
}

/// Name and text of each file; a test checks that this list matches the directory.
const FILES: &[(&str, &str)] = embedded![
    "epyc-7742-1s",
    "epyc-9224-2s-nps2",
    "epyc-9355p-1s",
    "epyc-9355p-1s-nps4",
    "epyc-9654-1s",
    "epyc-9654-1s-nps4",
    "grace-superchip",
    "ipm-simics-4x2",
    "itanium-9030-4s",
    "lab-16x2",
    "lab-2x2x2",
    "lab-2x4",
    "lab-4x2",
    "lab-4x2-fast",
    "lab-4x2-half",
    "lab-8x2",
    "lab-smt",
    "lab-uneven",
    "opteron-2350-2s",
    "opteron-8356-4s",
    "uma-4x2",
    "xeon-6980p-2s",
    "xeon-6980p-2s-snc3",
    "xeon-8180-2s",
    "xeon-8269cy-2s",
    "xeon-8269cy-2s-snc2",
    "xeon-clx-24c-2s",
    "xeon-e5-2650-2s",
    "xeon-e5520-2s",
    "xeon-e5620-2s",
    "xeon-e7-4800v2-4s",
    "xeon-max-9480-2s-flat",
    "xeon-x7550-4s",
];

impl Machine {
    /// The names of all presets, ascending.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The preset of that name.
    ///
    /// # Errors
    /// [`ReadError::NoPreset`] lists all names.
    pub fn preset(name: &str) -> Result<Self, ReadError> {
        let Some((_, text)) = FILES.iter().find(|(there, _)| *there == name) else {
            return Err(ReadError::NoPreset {
                name: name.to_owned(),
                presets: Self::presets().collect::<Vec<_>>().join(", "),
            });
        };
        Self::parse(text, Path::new(name))
    }
}
