//! The guest's end of the port to the host: found, opened, and written without ever waiting.
//!
//! udev links `/dev/virtio-ports/NAME` to the port's device; without udev, sysfs says which device has
//! the name. While the host does not listen, polling the port reports a hang-up at once, every time:
//! so the agent polls now and then, and does not wait for it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::protocol::PORT_NAME;
use crate::error::HostError;
use crate::files::Root;

/// What a machine needs for a port, as advice.
const REMEDY: &str = "give the machine one: on QEMU's command line
  -device virtio-serial-pci
  -chardev socket,id=numaherd,path=/run/NAME.numaherd,server=on,wait=off
  -device virtserialport,chardev=numaherd,name=org.numaherd.agent.0
or in libvirt's XML, under <devices>
  <channel type='unix'><target type='virtio' name='org.numaherd.agent.0'/></channel>
or name another port with --port";

/// An open port, and what is still to be written to it.
#[derive(Debug)]
pub(super) struct Port {
    descriptor: OwnedFd,
    rest: Vec<u8>,
}

impl Port {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self {
            descriptor,
            rest: Vec::new(),
        }
    }

    /// Opens the port at a path.
    pub(super) fn open(path: &Path) -> Result<Self, HostError> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let error = |errno: Errno| HostError::AgentPort {
            path: path.to_owned(),
            reason: errno.to_string(),
            remedy: match errno {
                Errno::BUSY => "another agent has it open: stop that one".to_owned(),
                Errno::ACCESS | Errno::PERM => "run as root".to_owned(),
                Errno::NOENT | Errno::NXIO | Errno::NODEV => REMEDY.to_owned(),
                _ => "is it a virtio serial port?".to_owned(),
            },
        };
        let descriptor = rustix::fs::open(path, flags, Mode::empty()).map_err(error)?;
        Ok(Self::new(descriptor))
    }

    /// Whether the host listens.
    pub(super) fn is_heard(&self) -> bool {
        let mut fds = [PollFd::new(&self.descriptor, PollFlags::OUT)];
        let gone = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&Timespec::default())).is_ok() && !fds[0].revents().intersects(gone)
    }

    /// Whether all has been written.
    pub(super) fn is_idle(&self) -> bool {
        self.rest.is_empty()
    }

    /// Adds bytes, and writes what can be written now.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.rest.extend_from_slice(bytes);
        while !self.rest.is_empty() {
            match rustix::io::write(&self.descriptor, &self.rest) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Where the port is: the one given, or the one of the agent's name.
pub(super) fn find(root: &Root, given: Option<&Path>) -> Result<PathBuf, HostError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let linked = root.path(&format!("dev/virtio-ports/{PORT_NAME}"));
    if linked.exists() {
        return Ok(linked);
    }
    let class = "sys/class/virtio-ports";
    let devices = std::fs::read_dir(root.path(class)).into_iter().flatten();
    devices
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|device| root.text(&format!("{class}/{device}/name")).as_deref() == Some(PORT_NAME))
        .map(|device| root.path(&format!("dev/{device}")))
        .ok_or_else(|| HostError::AgentPort {
            path: linked,
            reason: "this machine has no port with that name".to_owned(),
            remedy: REMEDY.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_port_is_found_with_and_without_udev() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::new(tree.path());
        let none = find(&root, None).unwrap_err().to_string();
        assert!(none.contains("virtserialport"), "{none}");
        assert!(none.contains("<channel type='unix'>"), "{none}");
        for (device, name) in [("vport0p1", "com.example.0"), ("vport0p2", PORT_NAME)] {
            let folder = tree.path().join("sys/class/virtio-ports").join(device);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        }
        let found = find(&root, None).unwrap();
        assert_eq!(found, tree.path().join("dev/vport0p2"));
        let linked = tree.path().join("dev/virtio-ports").join(PORT_NAME);
        std::fs::create_dir_all(&linked).unwrap();
        assert_eq!(find(&root, None).unwrap(), linked);
        let given = Path::new("/some/port");
        assert_eq!(find(&root, Some(given)).unwrap(), given);
    }

    #[test]
    fn a_port_that_cannot_be_opened_is_told_with_what_to_do() {
        let tree = tempfile::tempdir().unwrap();
        let error = Port::open(&tree.path().join("none")).unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("none: ") && told.contains("-device"),
            "{told}"
        );
    }

    #[test]
    fn a_reader_that_stops_reading_loses_nothing_but_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut port = Port::new(ours.into());
        assert!(port.is_heard());
        let line: Vec<u8> = (0..1 << 20).map(|at: u32| at as u8).collect();
        port.write(&line).unwrap();
        assert!(!port.is_idle(), "a socket takes no mebibyte at once");
        let mut read = vec![0; line.len()];
        let mut length = 0;
        while length < line.len() {
            length += theirs.read(&mut read[length..]).unwrap();
            port.write(&[]).unwrap();
        }
        assert!(port.is_idle());
        assert!(read == line);
    }

    #[test]
    fn a_reader_that_is_gone_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut port = Port::new(ours.into());
        drop(theirs);
        assert!(!port.is_heard());
        assert_eq!(port.write(b"x"), Err(Errno::PIPE));
    }
}
