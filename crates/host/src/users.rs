//! Users: by name, of processes, and the one whose threads alone this program may place.

use std::path::Path;

use crate::error::HostError;
use crate::files::Root;
use crate::perf_errors::SYS_NICE;
use crate::proc::status::{self, Status};

/// The user of a process, as whom it acts; `None` where there is no such process.
pub fn user_of(root: &Path, pid: u32) -> Option<u32> {
    of_process(&Root::new(root), pid)
}

/// The user whose threads alone this program may place; `None` where it may place everyone's
/// (`CAP_SYS_NICE`).
pub fn confined_to(root: &Path) -> Option<u32> {
    let own = read(&Root::new(root), "self")?;
    own.user.filter(|_| !own.has(SYS_NICE))
}

pub(crate) fn of_process(root: &Root, pid: u32) -> Option<u32> {
    read(root, &pid.to_string())?.user
}

fn read(root: &Root, process: &str) -> Option<Status> {
    let text = root.read(&format!("proc/{process}/status")).ok()?;
    Some(status::parse(&text))
}

/// The number of a user by name, from `/etc/passwd` under a root; a number is taken as it is.
///
/// # Errors
/// When the file cannot be read or does not name the user.
pub fn user_number(root: &Path, name: &str) -> Result<u32, HostError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let path = root.join("etc/passwd");
    let text = std::fs::read_to_string(&path).map_err(|source| HostError::Read {
        path: path.clone(),
        source,
        remedy: "give the user's number instead",
    })?;
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
        })
        .next()
        .ok_or_else(|| HostError::NoSuchUser {
            name: name.to_owned(),
            path,
        })
}
