//! What runs in the lab's guest needs: a directory with the FIFO whose closing starts programs, and the
//! switch of the modelled hardware.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

const GATE: &str = "/sys/module/lab_pmu/parameters/gate";

/// A directory that goes when the run is over, with the FIFO `go` in it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Makes both.
    ///
    /// # Errors
    /// The directory or the FIFO cannot be made.
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
pub struct Gate;

impl Gate {
    /// Switches it on.
    ///
    /// # Errors
    /// This is no guest of the lab, or not root.
    pub fn on() -> Result<Self> {
        fs::write(GATE, "1").with_context(|| format!("cannot switch the model on by {GATE}"))?;
        Ok(Self)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // The guest ends next; a model that stays on costs it time, no figure.
        let _ = fs::write(GATE, "0");
    }
}
