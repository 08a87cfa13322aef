//! Herds of a try: started, asked to end or killed, and what they cost.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::machine::{field, wait_until};

/// A herd that runs.
pub struct Herd {
    child: Child,
    begun: Instant,
    said: PathBuf,
}

/// One that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub said: String,
    pub cpu_ms: u64,
    pub wall_ms: u64,
    pub memory_kib: u64,
}

impl Herd {
    pub fn start(mut command: Command) -> Self {
        let said = PathBuf::from(format!("herd.{}", fs::read_dir(".").unwrap().count()));
        let file = File::create(&said).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self {
            child,
            begun: Instant::now(),
            said,
        }
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    pub fn has_ended(&self) -> bool {
        let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let pid = Pid::from_child(&self.child);
        !matches!(waitid(WaitId::Pid(pid), only_look), Ok(None))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn end(self, signal: Signal) -> Ended {
        let memory_kib = memory_kib(self.pid());
        self.signal(signal);
        Ended {
            memory_kib,
            ..self.end_by_itself()
        }
    }

    pub fn end_by_itself(mut self) -> Ended {
        wait_until("a herd ends", || self.has_ended());
        let wall_ms = self.begun.elapsed().as_millis() as u64;
        let cpu_ms = cpu_ms(self.pid());
        let status = self.child.wait().unwrap();
        Ended {
            status,
            said: self.said(),
            cpu_ms,
            wall_ms,
            memory_kib: 0,
        }
    }
}

/// The most memory that a process that has not ended has had so far, in KiB.
pub fn memory_kib(pid: u32) -> u64 {
    let most = field(&format!("/proc/{pid}/status"), "VmHWM:");
    let kib = most.split_whitespace().next();
    kib.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Processor time of a process that has ended and has not been waited for.
fn cpu_ms(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, in parentheses: fields 3 and on; 14 and 15 are user and system time.
    let behind = text.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let words = behind.split_whitespace().skip(11).take(2);
    let ticks: u64 = words.filter_map(|word| word.parse::<u64>().ok()).sum();
    ticks * 1000 / rustix::param::clock_ticks_per_second()
}
