//! Which threads a run looks after, as the command line or the configuration says it.

use std::path::Path;

use anyhow::Result;
use numaherd_host::{HostError, Selection};

use super::ROOT;
use super::program::Program;
use crate::config::file::SelectionSettings;
use crate::exit::coded;

/// Whose threads: those of the program that was started, or those that are chosen.
///
/// # Errors
/// There is no such user.
pub fn selection(
    pids: &[u32],
    chosen: &SelectionSettings,
    program: Option<&Program>,
) -> Result<Selection> {
    if let Some(program) = program {
        return Ok(Selection::Child { pid: program.pid() });
    }
    if !pids.is_empty() {
        return Ok(Selection::Processes {
            pids: pids.to_vec(),
            descendants: true,
        });
    }
    if let Some(path) = &chosen.cgroup {
        return Ok(Selection::Cgroup { path: path.clone() });
    }
    if let Some(name) = &chosen.name {
        return Ok(Selection::Command { name: name.clone() });
    }
    if let Some(user) = &chosen.user {
        let uid = user_number(Path::new(ROOT), user).map_err(coded)?;
        return Ok(Selection::User { uid });
    }
    Ok(Selection::Machine)
}

/// A user's number, where it is given by that or by name.
///
/// # Errors
/// There is no such user.
pub fn user_number(root: &Path, user: &str) -> Result<u32, HostError> {
    match user.parse() {
        Ok(number) => Ok(number),
        Err(_) => numaherd_host::user_number(root, user),
    }
}
