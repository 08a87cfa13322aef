//! Which threads a run looks after, as the command line says it.

use std::path::Path;

use anyhow::{Context, Result};
use numaherd_host::Selection;

use super::program::Program;
use super::{ROOT, host_error};
use crate::cli::SelectionOptions;

/// Whose threads: those of the program that was started, or those that the command line chooses.
///
/// # Errors
/// There is no such user, or the path of the control group is not one that the kernel could have.
pub fn selection(chosen: &SelectionOptions, program: Option<&Program>) -> Result<Selection> {
    if let Some(program) = program {
        return Ok(Selection::Child { pid: program.pid() });
    }
    if !chosen.pid.is_empty() {
        return Ok(Selection::Processes {
            pids: chosen.pid.clone(),
            descendants: true,
        });
    }
    if let Some(path) = &chosen.cgroup {
        let path = path.to_str().map(str::to_owned);
        let path = path.context("the cgroup's path is not UTF-8, as the kernel's are")?;
        return Ok(Selection::Cgroup { path });
    }
    if let Some(name) = &chosen.name {
        return Ok(Selection::Command { name: name.clone() });
    }
    if let Some(user) = &chosen.user {
        let uid = match user.parse() {
            Ok(uid) => uid,
            Err(_) => numaherd_host::user_number(Path::new(ROOT), user).map_err(host_error)?,
        };
        return Ok(Selection::User { uid });
    }
    Ok(Selection::Machine)
}
