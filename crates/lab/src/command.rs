//! A command for a guest, and its form in the protocol.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use numaherd_lab_guest::protocol::CommandLine;

use crate::error::{Context, Error, Result};

/// A command for a guest: program, arguments, environment and directory, as on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Directory to start in.
    pub directory: PathBuf,
}

impl Command {
    /// A command with this program's own environment and working directory.
    ///
    /// # Errors
    /// [`Error::Io`] if the working directory does not exist any more.
    pub fn inherited<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        Ok(Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: env::vars_os().collect(),
            directory: env::current_dir().context(|| "finding the working directory".into())?,
        })
    }

    /// The command as the protocol sends it. [`Error::Nul`] if a part has a NUL byte.
    pub(crate) fn line(&self) -> Result<CommandLine> {
        let whole = |what, bytes: Vec<u8>| {
            if bytes.contains(&0) {
                Err(Error::Nul { what })
            } else {
                Ok(bytes)
            }
        };
        let arguments = self
            .arguments
            .iter()
            .map(|a| whole("an argument", a.as_bytes().to_vec()));
        let environment = self.environment.iter().map(|(name, value)| {
            let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
            whole("a variable of the environment", entry)
        });
        Ok(CommandLine {
            arguments: arguments.collect::<Result<_>>()?,
            environment: environment.collect::<Result<_>>()?,
            directory: whole(
                "the working directory",
                self.directory.clone().into_os_string().into_vec(),
            )?,
        })
    }
}
