//! Sockets at which another process listens: their paths from here, and connecting to them.
//!
//! A process names its sockets from its own working directory and under its own root, which differs
//! in a container; `/proc/PID/cwd` and `/proc/PID/root` lead there (proc_pid_cwd(5)). Symbolic
//! links in a container's paths are followed as if they were ours; since the listener is checked, a
//! wrong turn ends there.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use numaherd_world::ProcessId;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::files::Root;
use crate::proc::{decimal, lines, words};
use crate::vm::qmp::NoAnswer;

/// Connects, without waiting, to a socket that a process has made to listen.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn connect(
    root: &Root,
    process: ProcessId,
    path: &Path,
) -> Result<UnixStream, NoAnswer> {
    let file = open_socket(&reachable(root, process.pid, path))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| unreachable(format!("no socket could be made: {errno}")))?;
    // By its descriptor: a socket's name may have 107 bytes, its path any number.
    let by_number = root.path(&format!("proc/self/fd/{}", file.as_raw_fd()));
    let address = SocketAddrUnix::new(by_number.as_os_str().as_bytes()).map_err(|errno| {
        let path = by_number.display();
        unreachable(format!("{path} is not a valid socket path: {errno}"))
    })?;
    rustix::net::connect(&socket, &address).map_err(refusal)?;
    let peer = socket_peercred(&socket)
        .map_err(|errno| unreachable(format!("it is not known whose socket it is: {errno}")))?;
    let whose = peer.pid.as_raw_nonzero().get().unsigned_abs();
    if whose != process.pid {
        return Err(unreachable(format!(
            "it is a socket of process {whose}: left alone"
        )));
    }
    let socket = UnixStream::from(socket);
    socket
        .set_nonblocking(false)
        .map_err(|error| unreachable(format!("cannot wait for its socket: {error}")))?;
    Ok(socket)
}

fn unreachable(why: impl Into<String>) -> NoAnswer {
    NoAnswer::Unreachable(why.into())
}

/// The path from here of what a process calls `path`: from its working directory, under its root if
/// that differs (a container's).
pub(crate) fn reachable(root: &Root, pid: u32, path: &Path) -> PathBuf {
    let folder = root.path(&format!("proc/{pid}"));
    if path.is_relative() {
        return folder.join("cwd").join(path);
    }
    let own = root.path("proc/self");
    let differs = |what: &str| {
        let of = |folder: &Path| std::fs::read_link(folder.join(what));
        // If that may not be read, nothing below its root may be opened either.
        matches!((of(&folder), of(&own)), (Ok(its), Ok(ours)) if its != ours)
    };
    if !differs("ns/mnt") && !differs("root") {
        return path.to_owned();
    }
    let below = path.strip_prefix("/").unwrap_or(path);
    folder.join("root").join(below)
}

/// Opens a socket in the file system, without touching anything else that may be there.
fn open_socket(path: &Path) -> Result<OwnedFd, NoAnswer> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file = file.map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => refusal(errno),
        errno => unreachable(format!(
            "{errno}; it may have been removed: the threads' names must do"
        )),
    })?;
    match rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Socket) => Ok(file),
        Ok(_) => Err(unreachable("it is not a socket")),
        Err(errno) => Err(unreachable(format!("cannot examine it: {errno}"))),
    }
}

fn refusal(errno: Errno) -> NoAnswer {
    unreachable(match errno {
        Errno::AGAIN => {
            "others wait for it already; a monitor serves one program at a time".to_owned()
        }
        Errno::CONNREFUSED => "nothing listens there any longer".to_owned(),
        Errno::ACCESS | Errno::PERM => {
            format!("{errno}; it belongs to another user: run as root to ask it")
        }
        errno => errno.to_string(),
    })
}

/// The path of a listening socket that a process was handed as an open descriptor; `None` if the
/// kernel does not tell, or it has no path.
pub(crate) fn listening_at(root: &Root, pid: u32, descriptor: u32) -> Option<PathBuf> {
    let link = std::fs::read_link(root.path(&format!("proc/{pid}/fd/{descriptor}"))).ok()?;
    let name = link.to_str()?;
    let inode = name.strip_prefix("socket:[")?.strip_suffix(']')?;
    let table = root.read(&format!("proc/{pid}/net/unix")).ok()?;
    bound_path(&table, decimal(inode.as_bytes())?)
}

/// The path that a socket is bound to, from `/proc/PID/net/unix`: the eighth column, after the
/// inode (net/unix/af_unix.c).
fn bound_path(table: &[u8], inode: u64) -> Option<PathBuf> {
    lines(table).find_map(|line| {
        let number = words(line).nth(6)?;
        if decimal(number) != Some(inode) {
            return None;
        }
        // The path is the rest of the line, spaces and all.
        let after = number.as_ptr() as usize + number.len() - line.as_ptr() as usize;
        let path = line.get(after + 1..)?;
        path.starts_with(b"/")
            .then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_handed_over_open_is_found_by_its_inode() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17 @hidden\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 18\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 19 /run/a b/agent\n";
        let at = |inode| bound_path(table, inode);
        assert_eq!(at(19), Some(PathBuf::from("/run/a b/agent")));
        assert_eq!((at(17), at(18), at(20)), (None, None, None));
    }

    #[test]
    fn paths_are_from_where_the_process_is() {
        let root = Root::new(Path::new("/"));
        let own = std::process::id();
        let from = |path: &str| reachable(&root, own, Path::new(path));
        assert_eq!(from("/tmp/q"), PathBuf::from("/tmp/q"));
        let relative = from("q.sock");
        assert!(
            relative.ends_with(format!("{own}/cwd/q.sock")),
            "{relative:?}"
        );
    }
}
