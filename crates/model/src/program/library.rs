//! The available programs: those that come with Numaherd, and those in a user's own files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use numaherd_files::{Document, nearest, or, read as files};

use super::{Program, read};
use crate::ModelError;

/// The largest file of profiles that is read, in bytes.
pub(super) const LARGEST_FILE: u64 = 4 << 20;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../data/programs/", $name, ".toml")))),*]
    };
}

/// Name and text of each file of `data/programs/`; a test checks that this list and the folder agree.
pub(super) const FILES: &[(&str, &str)] =
    embedded!["cpu2006", "lamp", "menagerie", "mpi2007", "npb"];

/// Programs by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Library {
    programs: BTreeMap<String, Arc<Program>>,
}

impl Library {
    /// The programs that come with Numaherd: every file of `data/programs/`.
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
    /// As [`Library::parse`], and where the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        Self::parse(&files::text(path, LARGEST_FILE)?, path)
    }

    /// The programs of a file's text; `path` is what errors call the file.
    ///
    /// # Errors
    /// [`ModelError::File`] names the line and the key of the mistake.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ModelError> {
        let file = path.display().to_string();
        let programs = read::programs(Document::new(text, &file))?;
        Ok(Self {
            programs: programs
                .into_iter()
                .map(|program| (program.name.clone(), Arc::new(program)))
                .collect(),
        })
    }

    /// These programs and `other`'s; where both have a program of the same name, `other`'s is kept.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        self.programs.extend(other.programs);
        self
    }

    /// These programs and this one, which takes the place of one of its name.
    #[must_use]
    pub fn with(mut self, program: Program) -> Self {
        self.programs
            .insert(program.name.clone(), Arc::new(program));
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
                hint: match self.nearest(name).as_slice() {
                    [] => format!("there are {}", self.names().collect::<Vec<_>>().join(", ")),
                    near => format!("did you mean {}?", or(near)),
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

    /// The nearest names, in quotes; a suite's number before a name (`429.mcf`) costs nothing.
    fn nearest(&self, name: &str) -> Vec<String> {
        let bare = name.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let near = nearest(bare, self.names());
        near.into_iter().map(|name| format!("{name:?}")).collect()
    }
}

#[cfg(test)]
mod tests;
