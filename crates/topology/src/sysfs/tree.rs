//! Reading small files below a root, with bounds and with errors that name them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use numaherd_files::FileError;

use crate::error::ReadError;
use crate::set::{Id, IdSet, ListError};

/// No real file of sysfs is larger: they are a page, or a list of many CPUs.
const LARGEST_FILE: u64 = 1 << 20;

/// The error of reading a sysfs file whose device is being removed.
const ENODEV: i32 = 19;

/// Files below a root.
pub(super) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub fn new(root: &'a Path) -> Self {
        Self { root }
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    pub fn is_directory(&self, relative: &str) -> bool {
        self.path(relative).is_dir()
    }

    /// The whole text of a file; `None` where there is none.
    pub fn text(&self, relative: &str) -> Result<Option<String>, ReadError> {
        let path = self.path(relative);
        match bounded(&path) {
            Ok(Some(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(error) => Err(ReadError::contents(
                    &path,
                    &String::from_utf8_lossy(error.as_bytes()),
                    "it is not text",
                )),
            },
            Ok(None) => Err(ReadError::File(FileError::TooLarge {
                path,
                limit: LARGEST_FILE,
            })),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(ReadError::Io {
                path,
                why: error.to_string(),
                hint: "it must be a readable file, as in the kernel's own sysfs",
            }),
        }
    }

    /// The text of a file that must be there.
    pub fn required(&self, relative: &str, hint: &'static str) -> Result<String, ReadError> {
        self.text(relative)?
            .ok_or_else(|| self.missing(relative, hint))
    }

    /// A list of CPUs or nodes in the kernel's syntax.
    pub fn list<T: Id>(&self, relative: &str) -> Result<Option<IdSet<T>>, ReadError> {
        let Some(text) = self.text(relative)? else {
            return Ok(None);
        };
        let set = text
            .parse()
            .map_err(|error: ListError| self.wrong(relative, &text, error.to_string()))?;
        Ok(Some(set))
    }

    /// A list that must be there.
    pub fn required_list<T: Id>(
        &self,
        relative: &str,
        hint: &'static str,
    ) -> Result<IdSet<T>, ReadError> {
        self.list(relative)?
            .ok_or_else(|| self.missing(relative, hint))
    }

    /// A single number.
    pub fn number<T: FromStr>(&self, relative: &str) -> Result<Option<T>, ReadError> {
        let Some(text) = self.text(relative)? else {
            return Ok(None);
        };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.wrong(relative, &text, "it is not a number that fits here")),
        }
    }

    /// The numbers `N` of the entries called `<prefix>N` in a directory, ascending; none where
    /// there is no such directory.
    pub fn numbered(&self, directory: &str, prefix: &str) -> Vec<u32> {
        let entries = std::fs::read_dir(self.path(directory))
            .into_iter()
            .flatten();
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                name.to_str()?.strip_prefix(prefix)?.parse().ok()
            })
            .collect();
        numbers.sort_unstable();
        numbers
    }

    pub fn missing(&self, relative: &str, hint: &'static str) -> ReadError {
        ReadError::Io {
            path: self.path(relative),
            why: "there is no such file".to_owned(),
            hint,
        }
    }

    pub fn wrong(&self, relative: &str, found: &str, why: impl Into<String>) -> ReadError {
        ReadError::contents(&self.path(relative), found, why)
    }
}

/// The bytes of a regular file; `None` if it is too large.
fn bounded(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Opening a pipe would wait for its writer, and opening a device could have any effect.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= LARGEST_FILE).then_some(bytes))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(ENODEV)
}
