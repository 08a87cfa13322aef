//! The lock for the machine, by which herds with different journals know of each other.
//!
//! A herd that takes over threads whose users have set their affinity would mistake another herd's masks for their
//! users', and each would restore the other's at its end. So every herd that places threads holds the lock:
//! exclusively with `--take-over`, shared without it.
//!
//! The lock (`flock`) ends with the process, however that ends. The kernel's list of locks names its holders, so nothing
//! need be written.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Result;
use itertools::Itertools as _;
use rustix::fs::{major, minor};

use crate::exit::ended;
use crate::print;
use crate::release::usual_journal;

/// The lock's file, beside the usual journal, whichever journal a herd has.
pub const HERDS_LOCK: &str = "herds.lock";

/// Takes the machine's lock, for as long as the file is kept. Returns `None` if it cannot be created: a user without
/// a runtime directory can still herd.
///
/// # Errors
/// Another herd holds it.
pub fn lock(take_over: bool) -> Result<Option<File>> {
    let path = usual_journal().with_file_name(HERDS_LOCK);
    match open(&path) {
        Ok(file) => take(&path, file, take_over, Path::new("/")).map(Some),
        Err(error) => {
            if take_over {
                print::say(format!(
                    "cannot make the lock {}: {error}; another herd would not be noticed",
                    path.display()
                ));
            }
            Ok(None)
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Otherwise any user could hold it and keep a herd from starting.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

fn take(path: &Path, file: File, take_over: bool, root: &Path) -> Result<File> {
    let taken = match take_over {
        true => file.try_lock(),
        false => file.try_lock_shared(),
    };
    match taken {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let who = shown(&holders(root, path));
            Err(match take_over {
                true => ended!(
                    Busy,
                    "another herd is running ({who}), and --take-over would take the affinities that it has \
                     set for those of its threads' users; stop it first, or run without --take-over"
                ),
                false => ended!(
                    Busy,
                    "a herd with --take-over is running ({who}), which takes over what others place; stop \
                     it first"
                ),
            })
        }
        Err(TryLockError::Error(error)) => Err(ended!(
            Failure,
            "cannot lock {}: {error}; is it on a file system without locks?",
            path.display()
        )),
    }
}

/// The processes that hold a lock on a file, from the kernel's list. In
/// `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`, the fifth word is the process, the sixth device and inode.
pub fn holders(root: &Path, file: &Path) -> Vec<u32> {
    let Ok(about) = fs::metadata(file) else {
        return Vec::new();
    };
    let device = about.dev();
    let (major, minor) = (major(device), minor(device));
    let name = format!("{major:02x}:{minor:02x}:{}", about.ino());
    let locks = fs::read_to_string(root.join("proc/locks")).unwrap_or_default();
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, at, ..] if at == name => process.parse().ok(),
            _ => None,
        }
    };
    locks.lines().filter_map(holder).collect()
}

/// Processes by number, for people.
pub fn shown(holders: &[u32]) -> String {
    match holders {
        [] => "its process is not known".to_owned(),
        [one] => format!("process {one}"),
        all => format!("processes {}", all.iter().format(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{self, Exit};

    #[test]
    fn herds_run_beside_each_other_unless_one_takes_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/herds.lock");
        let root = Path::new("/");
        let herd = |take_over| take(&path, open(&path).unwrap(), take_over, root);
        let busy = |refused: Result<File>| {
            let error = refused.unwrap_err();
            assert_eq!(exit::of(&error), Some(Exit::Busy), "{error}");
            let who = format!("(process {})", std::process::id());
            assert!(error.to_string().contains(&who), "{error}");
        };
        let one = herd(false).unwrap();
        let other = herd(false).unwrap();
        drop(one);
        busy(herd(true));
        drop(other);
        let alone = herd(true).unwrap();
        busy(herd(true));
        busy(herd(false));
        drop(alone);
        assert!(herd(false).is_ok());
    }
}
