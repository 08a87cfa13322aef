//! Counting a run, snapshot by snapshot.

use std::fs;

use anyhow::Result;
use numaherd::exit::ended;
use numaherd_world::Snapshot;

use super::measured::Measured;
use super::once::ROOT;
use crate::cli::ProfileRun;

/// The least CPU time of a run, in seconds: in a shorter run, too large a part is lost between the last reading and
/// the end.
const LEAST_CPU_SECONDS: f64 = 0.2;

/// Instructions that a run must give, so that start, end and interrupts are about a percent at most.
const LEAST_INSTRUCTIONS: u64 = 2_000_000;

impl Measured {
    /// Adds what threads did in a snapshot's interval. Returns their CPU time in seconds.
    pub fn add(&mut self, snapshot: &Snapshot) -> f64 {
        for thread in &snapshot.threads {
            let Some(counts) = thread.counts else {
                continue;
            };
            self.instructions += counts.instructions;
            self.cycles += counts.cycles.unwrap_or(0);
            self.lines += counts.lines;
            if let Some(local) = counts.local {
                *self.local_lines.get_or_insert(0) += local;
            }
            self.counted_share = self.counted_share.min(counts.counted_share);
        }
        for process in &snapshot.processes {
            let threads = snapshot.threads.iter();
            let at_work =
                threads.filter(|thread| thread.process == process.id && thread.cpu_share >= 0.5);
            let at_work = u32::try_from(at_work.count()).unwrap_or(u32::MAX);
            self.threads = self.threads.max(at_work);
        }
        let shares: f64 = snapshot.threads.iter().map(|thread| thread.cpu_share).sum();
        shares * snapshot.interval_ns as f64 / 1e9
    }

    /// Notes which processes there are and how much memory they have had so far.
    pub fn look_at_processes(&mut self, snapshot: &Snapshot) {
        for process in &snapshot.processes {
            self.pids.insert(process.id.pid);
            // It may have ended since.
            let status = fs::read_to_string(format!("{ROOT}proc/{}/status", process.id.pid));
            let bytes = status.ok().and_then(|status| high_water_bytes(&status));
            self.footprint_bytes = self.footprint_bytes.max(bytes.unwrap_or(0));
        }
    }

    /// Checks that there is enough for figures.
    ///
    /// # Errors
    /// There is too little: how much, and how much is needed.
    pub fn check(&self, cpu_seconds: f64, options: &ProfileRun) -> Result<()> {
        let name = options.program[0].display();
        if cpu_seconds < LEAST_CPU_SECONDS || self.instructions < LEAST_INSTRUCTIONS {
            let or_else = match options.part.skip {
                None => "",
                Some(_) => " or skip less",
            };
            return Err(ended!(
                Failure,
                "{name} ran too shortly to be measured: {} instructions in {cpu_seconds:.2} s of CPU time \
                 were counted, and at least {LEAST_INSTRUCTIONS} in {LEAST_CPU_SECONDS} s are \
                 needed; give it more work{or_else}",
                self.instructions,
            ));
        }
        if self.cycles == 0 {
            return Err(ended!(
                SignalMissing,
                "the cycles of {name} could not be counted beside its cache misses"
            ));
        }
        Ok(())
    }
}

/// `VmHWM` of a `/proc/PID/status`, in bytes.
fn high_water_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   16512 kB\nVmRSS:\t 3 kB\n";
        assert_eq!(high_water_bytes(status), Some(16512 << 10));
        assert_eq!(high_water_bytes("Name:\tkthreadd\n"), None);
    }
}
