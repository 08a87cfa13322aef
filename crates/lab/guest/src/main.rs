//! The guest's first process, and its agent.
//!
//! As process 1 it mounts the file systems that programs expect, loads the kernel modules of the
//! initial file system, puts a writable overlay in memory over the host's root, and makes that its
//! root. Then it starts the agent and only reaps orphans. When the agent ends, for any reason, it
//! powers off: a guest never outlives its use.
//!
//! It writes errors to the kernel's console as `numaherd-guest: …`, where the host looks for them
//! when a boot fails.

mod agent;
mod caches;
mod interrupts;
mod mounts;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{WaitOptions, getpid, wait};
use rustix::system::{RebootCommand, finit_module, reboot, sethostname};

/// The initial file system's directory of kernel modules, which are loaded in the order of their
/// names.
const MODULES: &str = "/modules";

fn main() -> ExitCode {
    if !getpid().is_init() {
        return match agent::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("numaherd-guest: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if let Err(error) = start_and_reap() {
        eprintln!("numaherd-guest: {error}");
    }
    rustix::fs::sync();
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("numaherd-guest: could not power off: {error}");
    }
    ExitCode::FAILURE
}

/// Brings the guest up, starts the agent and reaps until the agent has ended.
fn start_and_reap() -> io::Result<()> {
    mounts::mount_kernel_file_systems(Path::new("/"))?;
    interrupts::end_lost()?;
    load_modules()?;
    mounts::enter_host_root()?;
    caches::show_last_level(Path::new("/"))?;
    settle()?;
    // This program's file is not in the new root, but /proc still refers to it.
    let agent = Command::new("/proc/self/exe")
        .arg0("numaherd-agent")
        .process_group(0)
        .spawn()
        .during("starting the agent")?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_nonzero().get().cast_unsigned() == agent.id() => {
                return Ok(());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).during("waiting for the agent"),
        }
    }
}

fn load_modules() -> io::Result<()> {
    let mut files: Vec<_> = fs::read_dir(MODULES)
        .during("reading /modules")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    for file in files {
        let image = fs::File::open(&file).about("opening", &file)?;
        finit_module(&image, c"", 0).about("loading the module", &file)?;
    }
    Ok(())
}

/// Settings for measurements: counters for all users, visible kernel addresses, a host name, loopback.
fn settle() -> io::Result<()> {
    let settings = [
        ("/proc/sys/kernel/perf_event_paranoid", "-1"),
        ("/proc/sys/kernel/perf_event_mlock_kb", "65536"),
        ("/proc/sys/kernel/perf_event_max_sample_rate", "1000000"),
        // Under the model, the time of sampling interrupts is no measure of overload. This setting
        // locks the rate above, so it comes after it.
        ("/proc/sys/kernel/perf_cpu_time_max_percent", "0"),
        ("/proc/sys/kernel/kptr_restrict", "0"),
        // IFF_UP and IFF_LOOPBACK: programs talk to each other by TCP.
        ("/sys/class/net/lo/flags", "0x9"),
    ];
    for (file, value) in settings {
        fs::write(file, value).about("writing", Path::new(file))?;
    }
    sethostname(b"lab").during("setting the host name")
}

/// Attaches what was tried to an error.
trait Context<T> {
    fn during(self, what: &str) -> io::Result<T>;
    fn about(self, what: &str, file: &Path) -> io::Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn during(self, what: &str) -> io::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            io::Error::new(error.kind(), format!("{what}: {error}"))
        })
    }

    fn about(self, what: &str, file: &Path) -> io::Result<T> {
        self.during(&format!("{what} {}", file.display()))
    }
}

/// No options for a mount.
const NONE: Option<&CStr> = None;
