//! Where the server listens: parses and checks addresses, and binds sockets to them.
//!
//! A UNIX socket's file outlives its process. A file at which no process answers is replaced; one at which a process
//! does, and any other kind of file, is left alone.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::exit::{Exit, ended};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and port.
    Tcp(SocketAddr),
    /// A UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses addresses: `HOST:PORT`, `unix:PATH`, `none`.
///
/// # Errors
/// A text is not an address, or is one that other machines reach, without `allow_remote`.
pub fn addresses(given: &[String], allow_remote: bool) -> Result<Vec<Address>> {
    let mut addresses = Vec::new();
    for text in given {
        let wrong = |why: &str| ended!(Usage, "--listen {text}: {why}");
        if text == "none" {
            continue;
        }
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(wrong("the path of the socket is missing"));
            }
            addresses.push(Address::Unix(PathBuf::from(path)));
            continue;
        }
        let found = text
            .to_socket_addrs()
            .map_err(|error| wrong(&format!("{error}; give HOST:PORT, unix:PATH or none")))?;
        for address in found {
            if !address.ip().is_loopback() && !allow_remote {
                return Err(wrong(
                    "other machines reach this address; --allow-remote with --token-file allows it",
                ));
            }
            let address = Address::Tcp(address);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    Ok(addresses)
}

/// Listens at an address and port.
///
/// # Errors
/// The kernel refuses: another process listens there, or the address is not this machine's.
pub fn tcp(address: SocketAddr) -> Result<TcpListener> {
    let cannot = |error: io::Error| {
        let why = format!("cannot listen at {address}: {error}; choose another with --listen");
        ended(exit(&error), why)
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}

/// Listens at a UNIX socket, with this mode and, where given, for this group. A socket's file at which no process
/// answers is replaced.
///
/// # Errors
/// A process answers there already, another kind of file is there, or the kernel refuses.
pub fn unix(path: &Path, mode: u32, group: Option<u32>) -> Result<UnixListener> {
    let shown = path.display();
    let cannot = |error: io::Error| {
        ended(
            exit(&error),
            format!("cannot make the socket {shown}: {error}"),
        )
    };
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    free(path)?;
    // No other user may use it before its mode is set.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(cannot)?;
    if group.is_some() {
        std::os::unix::fs::chown(path, None, group).map_err(cannot)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}

/// The exit code of a program that cannot listen.
fn exit(error: &io::Error) -> Exit {
    match error.kind() {
        ErrorKind::AddrInUse => Exit::Busy,
        ErrorKind::PermissionDenied => Exit::Permission,
        _ => Exit::Failure,
    }
}

/// Removes a socket's file at which no process answers.
fn free(path: &Path) -> Result<()> {
    let shown = path.display();
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(ended!(Permission, "cannot look at {shown}: {error}"));
        }
    };
    if !meta.file_type().is_socket() {
        return Err(ended!(
            Usage,
            "{shown} exists and is not a socket; move it away, or choose another path"
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| {
                ended!(
                    Permission,
                    "cannot remove the unused socket {shown}: {error}"
                )
            }),
        Ok(_) => Err(ended!(
            Busy,
            "another numaherd serves at {shown}; end it, or choose another path"
        )),
        Err(error) => Err(ended!(
            Permission,
            "cannot find out whether another numaherd serves at {shown}: {error}"
        )),
    }
}

/// A socket's file, removed when the server ends.
#[derive(Debug)]
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already; any other failure has no remedy.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[&str], allow_remote: bool) -> Result<Vec<String>, String> {
        let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
        let addresses = addresses(&given, allow_remote).map_err(|error| error.to_string())?;
        Ok(addresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_are_loopback_unless_said_otherwise() {
        let given = [
            "127.0.0.1:9741",
            "[::1]:9741",
            "unix:/run/x",
            "127.0.0.1:9741",
        ];
        let all = [
            "http://127.0.0.1:9741/",
            "http://[::1]:9741/",
            "unix:/run/x",
        ];
        assert_eq!(read(&given, false).unwrap(), all);
        assert!(read(&["none"], false).unwrap().is_empty());
        let remote = read(&["0.0.0.0:9741"], false).unwrap_err();
        assert!(remote.contains("--allow-remote"), "{remote}");
        assert!(read(&["[::]:9741"], false).is_err());
        assert_eq!(
            read(&["0.0.0.0:9741"], true).unwrap(),
            ["http://0.0.0.0:9741/"]
        );
        for wrong in ["", "9741", "unix:", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(read(&[wrong], true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_socket_that_nobody_answers_at_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/control.sock");
        let listener = unix(&path, 0o600, None).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let busy = unix(&path, 0o600, None).unwrap_err();
        assert!(busy.to_string().contains("another numaherd serves at"));
        drop(listener);
        let listener = unix(&path, 0o660, None).unwrap();
        drop((listener, SocketFile(path.clone())));
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        let other = unix(&path, 0o600, None).unwrap_err();
        assert!(other.to_string().contains("is not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
