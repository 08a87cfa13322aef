//! The scheduler for hints: one that already runs with the map, or one that is started and ended here.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use numaherd_topology::Topology;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::hints::Hints;
use super::layers::Layers;
use crate::error::HostError;
use crate::files::Root;
use crate::kernel::{HintMap, of_root};
use crate::sys;

/// The scheduler's program, found through `PATH`.
pub const SCX_LAYERED: &str = "scx_layered";
/// The BPF file system, and in it the folder and the map of hints.
const BPF: &str = "sys/fs/bpf";
const FOLDER: &str = "sys/fs/bpf/numaherd";
const MAP: &str = "sys/fs/bpf/numaherd/hints";
/// What the kernel says of sched_ext.
const STATE: &str = "sys/kernel/sched_ext/state";
const NAME: &str = "sys/kernel/sched_ext/root/ops";
/// The scheduler's output.
const PRINTED: &str = "run/numaherd/scx_layered.log";

/// `BPF_FS_MAGIC` (include/uapi/linux/magic.h).
const BPF_FILE_SYSTEM: u64 = 0xcafe_4a11;

/// How long the scheduler may take to start (the kernel checks its programs first) and to end.
const START_LIMIT: Duration = Duration::from_secs(120);
const END_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(50);

/// Its options. A slice of 5 ms, and at most three in a row: a thread from another place soon goes home. Threads
/// outside the layers of places, and those with an affinity of their own, get up to half of each CPU, so that hints
/// starve none.
const OPTIONS: [&str; 8] = [
    "--slice-us",
    "5000",
    "--max-exec-us",
    "10000",
    "--lo-fb-wait-us",
    "5000",
    "--lo-fb-share",
    "0.5",
];

/// What sched_ext does on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The kernel has none.
    Missing,
    /// No scheduler runs.
    Free,
    /// One that takes our hints.
    Ours,
    /// Another one, with its name.
    Other(String),
}

/// What sched_ext does on the machine under a root.
pub(crate) fn state(root: &Root) -> State {
    match root.text(STATE).as_deref() {
        None => State::Missing,
        Some("disabled") => State::Free,
        Some(_) => {
            let name = root.text(NAME).unwrap_or_else(|| "unnamed".to_owned());
            match name.starts_with("layered") && root.path(MAP).exists() {
                true => State::Ours,
                false => State::Other(name),
            }
        }
    }
}

/// Whether a scheduler runs that takes hints.
pub(crate) fn is_enabled(root: &Root) -> bool {
    state(root) == State::Ours
}

/// The scheduler that this program has started, unless one was running. It ends when this is dropped, and when the
/// thread that started it ends.
#[derive(Debug)]
pub struct Scheduler {
    root: Root,
    child: Option<Child>,
}

impl Scheduler {
    /// Finds the running scheduler, or starts one (`program`), and opens its map. Takes back what a former run has left
    /// in the map of a scheduler that goes on.
    ///
    /// # Errors
    /// None runs and none can be started.
    pub fn start(
        root: &Path,
        topology: &Topology,
        program: &Path,
    ) -> Result<(Self, Hints), HostError> {
        let root = Root::new(root);
        let layers = Layers::of(topology)?;
        let child = match state(&root) {
            State::Missing => {
                let linux = root.text("proc/sys/kernel/osrelease").unwrap_or_default();
                return Err(refusal(
                    format!("Linux {linux} has no sched_ext (no /{STATE})"),
                    "use Linux 6.12 or newer built with CONFIG_SCHED_CLASS_EXT, or --enforce affinity",
                ));
            }
            State::Other(name) => {
                return Err(refusal(
                    format!("the sched_ext scheduler {name} runs, and takes no hints in /{MAP}"),
                    "stop it, or use --enforce affinity",
                ));
            }
            State::Ours => None,
            State::Free => Some(launch(&root, &layers, program)?),
        };
        let scheduler = Self { root, child };
        let map = open(&scheduler.root)?;
        let hints = Hints { map, layers };
        if scheduler.child.is_none() {
            hints.take_back(&*of_root(&scheduler.root), &scheduler.root);
        }
        Ok((scheduler, hints))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        // It may already have ended.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        if !has_ended(child, END_LIMIT) {
            let _ = child.kill();
        }
        let _ = child.wait();
        remove_map(&self.root);
    }
}

/// Takes back the hints that a killed run left with a scheduler that goes on; returns how many. Removes the map of an
/// ended scheduler.
///
/// # Errors
/// There is a map that cannot be opened.
pub fn take_back(root: &Path, topology: &Topology) -> Result<u64, HostError> {
    let root = Root::new(root);
    if !root.path(MAP).exists() {
        return Ok(0);
    }
    if !is_enabled(&root) {
        remove_map(&root);
        return Ok(0);
    }
    let (map, layers) = (open(&root)?, Layers::of(topology)?);
    Ok(Hints { map, layers }.take_back(&*of_root(&root), &root))
}

fn remove_map(root: &Root) {
    // If they are gone, or someone else's, nothing happens.
    let _ = fs::remove_file(root.path(MAP));
    let _ = fs::remove_dir(root.path(FOLDER));
}

fn open(root: &Root) -> Result<HintMap, HostError> {
    let path = CString::new(root.path(MAP).as_os_str().as_bytes()).unwrap_or_default();
    HintMap::open(&path).map_err(|errno| {
        refusal(
            format!("cannot open the map of hints /{MAP}: {errno}"),
            "run as root; a map of another program in its place must be removed",
        )
    })
}

/// Starts the scheduler and waits until the kernel uses it.
fn launch(root: &Root, layers: &Layers, program: &Path) -> Result<Child, HostError> {
    let is_bpf = rustix::fs::statfs(root.path(BPF))
        .is_ok_and(|of| u64::try_from(of.f_type) == Ok(BPF_FILE_SYSTEM));
    if !is_bpf {
        return Err(refusal(
            format!("there is no BPF file system at /{BPF}"),
            "mount -t bpf bpf /sys/fs/bpf",
        ));
    }
    // Of one that has ended: its hints are nobody's.
    remove_map(root);
    let printed = root.path(PRINTED);
    let (output, errors) = outputs(root, &printed)?;
    let mut command = Command::new(program);
    command
        .args(OPTIONS)
        .arg("--task-hint-map")
        .arg(root.path(MAP));
    command.arg(layers.specification());
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    // A terminal's Ctrl-C ends this program first, which gives threads back.
    command.process_group(0);
    sys::child::end_with_parent(&mut command);
    let child = command.spawn().map_err(|error| {
        refusal(
            format!("cannot start {}: {error}", program.display()),
            "install it (`cargo install scx_layered`, or your distribution's package scx-scheds) where PATH \
             leads, or use --enforce affinity",
        )
    })?;
    let mut scheduler = Scheduler {
        root: root.clone(),
        child: None,
    };
    wait_until_enabled(root, scheduler.child.insert(child), &printed)?;
    // The caller takes it over.
    Ok(scheduler.child.take().expect("it is there"))
}

/// Makes the folder of the map of hints, and the file for the scheduler's output; opens that twice.
fn outputs(root: &Root, printed: &Path) -> Result<(File, File), HostError> {
    let failed = |what: &str, path: PathBuf| {
        let what = what.to_owned();
        move |error: io::Error| {
            refusal(
                format!("cannot {what} {}: {error}", path.display()),
                "run as root",
            )
        }
    };
    let folders = [
        Some(root.path(FOLDER)),
        printed.parent().map(Path::to_owned),
    ];
    for folder in folders.into_iter().flatten() {
        fs::create_dir_all(&folder).map_err(failed("create", folder))?;
    }
    let output = File::create(printed).map_err(failed("create", printed.to_owned()))?;
    let errors = output.try_clone();
    Ok((output, errors.map_err(failed("open", printed.to_owned()))?))
}

/// Waits until the kernel uses the scheduler.
fn wait_until_enabled(root: &Root, child: &Child, printed: &Path) -> Result<(), HostError> {
    let begun = Instant::now();
    while !is_enabled(root) {
        let why = match (has_ended(child, PAUSE), begun.elapsed() > START_LIMIT) {
            (true, _) => "ended at once".to_owned(),
            (false, true) => format!("did not schedule after {} s", START_LIMIT.as_secs()),
            (false, false) => continue,
        };
        return Err(refusal(
            format!("{SCX_LAYERED} {why}"),
            &format!("{} has what it printed", printed.display()),
        ));
    }
    Ok(())
}

/// Whether a child ends within a time.
fn has_ended(child: &Child, within: Duration) -> bool {
    let Ok(descriptor) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return true;
    };
    let within = Timespec::try_from(within).ok();
    let mut ends = [PollFd::new(&descriptor, PollFlags::IN)];
    matches!(poll(&mut ends, within.as_ref()), Ok(ended) if ended > 0)
}

fn refusal(reason: String, remedy: &str) -> HostError {
    HostError::Scx {
        reason,
        remedy: remedy.to_owned(),
    }
}
