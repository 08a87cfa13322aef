//! The cgroups of a trial, one for each program: all that a program ever starts is in its cgroup. It is herded and
//! counted with the program, cannot grow without limit, and ends with the trial.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the guest has its cgroups.
pub const ROOT: &str = "/sys/fs/cgroup";
/// The most processes and threads of a program at once (chosen here: far above what a program of the lab needs, and so
/// few that the guest stays alive).
pub const MOST_TASKS: u32 = 1024;

/// The cgroup of a trial; removed when dropped, if all in it have ended.
#[derive(Debug)]
pub struct Cgroups {
    path: PathBuf,
    /// Its path from the root of the hierarchy, as the kernel shows it.
    pub name: String,
}

/// The cgroup of a program; all in it are killed when it is dropped.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroups {
    /// Creates it below `root`.
    ///
    /// # Errors
    /// It cannot be created, or the kernel does not limit the number of tasks.
    pub fn new(root: &Path) -> Result<Self> {
        let name = format!("/numaherd-trial-{}", std::process::id());
        let path = root.join(&name[1..]);
        allow_pids(root)?;
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        allow_pids(&path)?;
        Ok(Self { path, name })
    }

    /// Creates the cgroup of a program.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn of(&self, program: &str) -> Result<Cgroup> {
        let path = self.path.join(program);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        write(&path.join("pids.max"), &MOST_TASKS.to_string())?;
        Ok(Cgroup(path))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // One that stays, because a process of it is still ending, costs the guest nothing.
        let _ = fs::remove_dir(&self.path);
    }
}

impl Cgroup {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The file through which a process enters it.
    pub fn entrance(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// The file that notifies its readers when the cgroup is full (`POLLPRI`).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn events(&self) -> Result<File> {
        let path = self.0.join("pids.events");
        let opened = File::open(&path).and_then(|mut file| {
            // Earlier changes are not events.
            file.read_to_string(&mut String::new()).map(|_| file)
        });
        opened.with_context(|| format!("cannot read {}", path.display()))
    }

    /// Whether it has been full, so that a process or thread could not be started.
    pub fn was_full(&self) -> bool {
        let events = fs::read_to_string(self.0.join("pids.events")).unwrap_or_default();
        let mut counts = events.lines().filter_map(|line| line.strip_prefix("max "));
        counts.any(|count| count != "0")
    }

    /// Kills all in it.
    pub fn kill(&self) {
        // A cgroup that is gone has no processes.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir(&self.0);
    }
}

fn allow_pids(folder: &Path) -> Result<()> {
    write(&folder.join("cgroup.subtree_control"), "+pids")
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text:?} to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_refused_a_task_is_known() {
        let root = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::new(root.path()).unwrap();
        let cgroup = cgroups.of("0.0").unwrap();
        let folder = root.path().join(&cgroups.name[1..]).join("0.0");
        assert_eq!(fs::read_to_string(folder.join("pids.max")).unwrap(), "1024");
        assert!(!cgroup.was_full(), "nothing is known of it");
        for (events, full) in [("max 0\n", false), ("max 3\n", true)] {
            fs::write(folder.join("pids.events"), events).unwrap();
            assert_eq!(cgroup.was_full(), full);
        }
        let told = cgroups.of("0.0").unwrap_err().to_string();
        assert!(
            told.starts_with("cannot create ") && told.ends_with("/0.0"),
            "{told}"
        );
    }
}
