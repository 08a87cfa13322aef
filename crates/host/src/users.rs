//! Users: by name, of processes, and the only one whose processes this program may steer.

use std::path::Path;

use crate::error::HostError;
use crate::files::Root;
use crate::perf_errors::{SYS_NICE, SYS_PTRACE};
use crate::proc::status::{self, Status};

/// The user as which a process acts; `None` if there is no such process.
pub fn user_of(root: &Path, pid: u32) -> Option<u32> {
    of_process(&Root::new(root), pid)
}

/// The only user whose processes this program may steer, and the capability that it lacks for those of
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// The user.
    pub user: u32,
    /// The capability's name.
    pub lacks: &'static str,
}

/// What a program does to the processes that it steers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It places their threads (`CAP_SYS_NICE`).
    Threads,
    /// It also sees where their pages are, and moves them (`CAP_SYS_PTRACE`).
    Memory,
}

/// The user to whose processes this program is confined; `None` if it may steer all processes.
pub fn confined_to(root: &Path, reach: Reach) -> Option<Confined> {
    let own = read(&Root::new(root), "self")?;
    let lacks = match (own.has(SYS_NICE), own.has(SYS_PTRACE)) {
        (false, _) => "CAP_SYS_NICE",
        (true, false) if reach == Reach::Memory => "CAP_SYS_PTRACE",
        _ => return None,
    };
    let user = own.user?;
    Some(Confined { user, lacks })
}

pub(crate) fn of_process(root: &Root, pid: u32) -> Option<u32> {
    read(root, &pid.to_string())?.user
}

fn read(root: &Root, process: &str) -> Option<Status> {
    let text = root.read(&format!("proc/{process}/status")).ok()?;
    Some(status::parse(&text))
}

/// A user's id by name, from `/etc/passwd` under a root; a number stands for itself.
///
/// # Errors
/// The file cannot be read or does not name the user.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program with these capabilities may steer, without and with others' memory.
    fn confined(capabilities: &str) -> [Option<&'static str>; 2] {
        let tree = tempfile::tempdir().unwrap();
        let own = tree.path().join("proc/self");
        std::fs::create_dir_all(&own).unwrap();
        let status = format!("Uid:\t7\t7\t7\t7\nCapEff:\t{capabilities}\n");
        std::fs::write(own.join("status"), status).unwrap();
        [Reach::Threads, Reach::Memory].map(|reach| {
            let confined = confined_to(tree.path(), reach)?;
            assert_eq!(confined.user, 7);
            Some(confined.lacks)
        })
    }

    #[test]
    fn others_threads_need_one_capability_and_their_memory_another() {
        let (nice, trace) = (Some("CAP_SYS_NICE"), Some("CAP_SYS_PTRACE"));
        assert_eq!(confined("0000000000000000"), [nice, nice]);
        assert_eq!(confined("0000000000080000"), [nice, nice]);
        assert_eq!(confined("0000000000800000"), [None, trace]);
        assert_eq!(confined("0000000000880000"), [None, None]);
    }
}
