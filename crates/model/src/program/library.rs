//! The programs there are: those that come with Numaherd, and files of a user's own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::{Program, read};
use crate::ModelError;

/// The largest file of profiles that is read, in bytes.
pub(super) const LARGEST_FILE: u64 = 4 << 20;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../data/programs/", $name, ".toml")))),*]
    };
}

/// Name and text of each file of `data/programs/`; a test holds this list and the folder equal.
pub(super) const FILES: &[(&str, &str)] =
    embedded!["cpu2006", "lamp", "menagerie", "mpi2007", "npb"];

/// Programs by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Library {
    programs: BTreeMap<String, Arc<Program>>,
}

impl Library {
    /// The programs that Numaherd carries with it: every file of `data/programs/`.
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Library> = LazyLock::new(|| {
            FILES.iter().fold(Library::default(), |all, (name, text)| {
                let path = format!("data/programs/{name}.toml");
                match Library::parse(text, Path::new(&path)) {
                    Ok(library) => all.merged(library),
                    Err(error) => unreachable!("a test reads every one of them: {error}"),
                }
            })
        });
        &BUILT_IN
    }

    /// Reads a file of profiles.
    ///
    /// # Errors
    /// As [`Library::parse`]; [`ModelError::ReadProfiles`] where the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text))
            .map_err(|error| ModelError::ReadProfiles {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
        Self::parse(&text, path)
    }

    /// The programs of a file's text; `path` is what errors call the file.
    ///
    /// # Errors
    /// [`ModelError::Profile`] names line and key of what is wrong;
    /// [`ModelError::ProfilesTooLarge`] for a text of more than 4 MiB.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ModelError> {
        if text.len() as u64 > LARGEST_FILE {
            return Err(ModelError::ProfilesTooLarge {
                path: path.to_owned(),
                limit: LARGEST_FILE,
            });
        }
        let programs = read::programs(text, path)?;
        Ok(Self {
            programs: programs
                .into_iter()
                .map(|program| (program.name.clone(), Arc::new(program)))
                .collect(),
        })
    }

    /// These programs and `other`'s; where both have one of a name, `other`'s.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        self.programs.extend(other.programs);
        self
    }

    /// The program of that name.
    ///
    /// # Errors
    /// [`ModelError::NoProgram`] with the nearest name.
    pub fn get(&self, name: &str) -> Result<&Arc<Program>, ModelError> {
        self.programs
            .get(name)
            .ok_or_else(|| ModelError::NoProgram {
                name: name.to_owned(),
                hint: match self.nearest(name) {
                    Some(nearest) => format!("did you mean {nearest:?}?"),
                    None => format!("there are {}", self.names().collect::<Vec<_>>().join(", ")),
                },
            })
    }

    /// All names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.programs.keys().map(String::as_str)
    }

    /// All programs, ascending by name.
    pub fn programs(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.programs.values()
    }

    /// The name that fewest edits lead to, if these are fewer than half of its letters; a suite's
    /// number before a name (`429.mcf`) costs nothing.
    fn nearest(&self, name: &str) -> Option<&str> {
        let bare = name.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        self.names()
            .map(|there| (edits(name, there).min(edits(bare, there)), there))
            .filter(|&(edits, there)| edits * 2 < there.chars().count().max(3))
            .min()
            .map(|(_, there)| there)
    }
}

/// Letters to insert, delete or replace to turn one text into the other (Levenshtein), of the
/// first 64 letters of `from`.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (at, &wanted) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != wanted);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests;
