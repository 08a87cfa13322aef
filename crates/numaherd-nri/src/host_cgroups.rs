//! Starts a program in the host's cgroup namespace.
//!
//! On machines with cgroup v2, a container that is not privileged has a cgroup namespace of its own: the control groups
//! of all other processes then read as `/../..`, so that numaherd cannot determine their CPUs or their pods. Kubernetes
//! has no key that shares the host's namespace without making the container privileged. Joining it takes CAP_SYS_ADMIN,
//! which numaherd gives up once it has started, like every capability that it does not need.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Replaces this process with `program` (its name and arguments), in the cgroup namespace of the file `namespace`. It
/// returns only on failure.
///
/// # Errors
/// The namespace cannot be joined, or the program cannot be started.
pub fn start(namespace: &Path, program: &[String]) -> Result<std::convert::Infallible> {
    let shown = namespace.display();
    let file = File::open(namespace)
        .with_context(|| format!("cannot open {shown}: the pod needs hostPID: true"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::ControlGroup))
        .with_context(|| format!("cannot join {shown}: the container needs CAP_SYS_ADMIN"))?;
    let (name, arguments) = program.split_first().context("no program is named")?;
    let error = Command::new(name).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {name}"))
}
