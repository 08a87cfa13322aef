//! What the guest mounts: the kernel's own file systems, and the host's root.
//!
//! The host's root comes over 9p. It is read-only twice: QEMU exports it read-only, and the guest
//! mounts it read-only. The upper layer of the overlay above it is in the guest's memory, so
//! programs can write anywhere and nothing reaches the host.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_move};

use crate::{Context, NONE};

/// Tag under which QEMU exports the host's root.
const HOST_TAG: &str = "hostroot";

/// The kernel's file systems that any current system has: type, mount point, options.
const KERNEL: [(&str, &str, Option<&CStr>); 4] = [
    ("proc", "proc", NONE),
    ("sysfs", "sys", NONE),
    ("devtmpfs", "dev", NONE),
    ("tmpfs", "run", Some(c"mode=0755")),
];

/// File systems mounted inside those of `KERNEL`.
const INNER: [(&str, &str, Option<&CStr>); 6] = [
    ("devpts", "dev/pts", Some(c"ptmxmode=0666")),
    ("tmpfs", "dev/shm", Some(c"mode=1777")),
    ("cgroup2", "sys/fs/cgroup", NONE),
    ("bpf", "sys/fs/bpf", NONE),
    ("debugfs", "sys/kernel/debug", NONE),
    ("tracefs", "sys/kernel/tracing", NONE),
];

/// Mounts the kernel's file systems under `root`.
pub fn mount_kernel_file_systems(root: &Path) -> io::Result<()> {
    for (kind, place, options) in KERNEL.into_iter().chain(INNER) {
        let place = root.join(place);
        if !place.exists() {
            fs::create_dir_all(&place).about("creating", &place)?;
        }
        mount(kind, &place, kind, MountFlags::empty(), options).about("mounting", &place)?;
    }
    Ok(())
}

/// Copies the kernel's configuration from the initial file system to where programs such as libbpf look for it.
fn copy_configuration() -> io::Result<()> {
    const BOOT: &str = "/boot";
    let to = Path::new("/root").join("boot");
    fs::create_dir_all(&to).about("creating", &to)?;
    for file in fs::read_dir(BOOT).about("listing", Path::new(BOOT))? {
        let file = file?;
        let copy = to.join(file.file_name());
        fs::copy(file.path(), &copy).about("writing", &copy)?;
    }
    Ok(())
}

/// Mounts the host's root with an overlay over it and makes that this process's root.
pub fn enter_host_root() -> io::Result<()> {
    for directory in ["/host", "/upper", "/root"] {
        fs::create_dir_all(directory).about("creating", Path::new(directory))?;
    }
    mount(
        HOST_TAG,
        "/host",
        "9p",
        MountFlags::RDONLY,
        Some(c"trans=virtio,version=9p2000.L,cache=loose,msize=512000"),
    )
    .during("mounting the host's root over 9p")?;
    mount(
        "tmpfs",
        "/upper",
        "tmpfs",
        MountFlags::empty(),
        Some(c"mode=0755"),
    )
    .during("mounting the overlay's upper layer")?;
    for directory in ["/upper/data", "/upper/work"] {
        fs::create_dir(directory).about("creating", Path::new(directory))?;
    }
    mount(
        "overlay",
        "/root",
        "overlay",
        MountFlags::empty(),
        Some(c"lowerdir=/host,upperdir=/upper/data,workdir=/upper/work"),
    )
    .during("mounting the overlay")?;
    copy_configuration()?;
    mount_kernel_file_systems(Path::new("/root"))?;
    rustix::process::chdir("/root")?;
    mount_move(".", "/").during("moving the new root into place")?;
    rustix::process::chroot(".").during("entering the new root")?;
    rustix::process::chdir("/")?;
    // Debian's /var/run and /var/lock point into /run.
    fs::create_dir_all("/run/lock")
}
