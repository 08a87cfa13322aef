//! Inside the lab's guest: a directory with the FIFO whose closing starts the programs, and the switch of the
//! modelled hardware.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

const SWITCH: &str = "/sys/module/lab_pmu/parameters/gate";

/// A directory with the FIFO `go` in it, removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Creates both.
    ///
    /// # Errors
    /// The directory or the FIFO cannot be created.
    pub fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("numaherd-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let go = path.join("go");
        rustix::fs::mkfifoat(rustix::fs::CWD, &go, rustix::fs::Mode::from_raw_mode(0o600))
            .with_context(|| format!("cannot create the FIFO {}", go.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays in the guest's memory goes with the guest.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The modelled hardware, on until dropped.
pub struct Model;

impl Model {
    /// Switches it on.
    ///
    /// # Errors
    /// This is not a guest of the lab, or the user is not root.
    pub fn on() -> Result<Self> {
        fs::write(SWITCH, "1")
            .with_context(|| format!("cannot switch the model on by {SWITCH}"))?;
        Ok(Self)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // The guest ends next; a model that stays on costs only time.
        let _ = fs::write(SWITCH, "0");
    }
}
