//! The machine of one try: a process namespace of its own. Nothing in it was started by anybody else, and all of it ends
//! with the try.
//!
//! Who started with which affinity is known by descent: a process whose user has set its affinity has it in its
//! environment (`STORM_MASK`), which its descendants inherit with the affinity. All others are to have what this
//! program has.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use numaherd_policy::Random;
use numaherd_topology::{CpuId, CpuSet};
use rand::Rng;
use rustix::event::Timespec;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::herd::{Ended, Herd};

/// The environment's word for the program that is tried, where that is not the one built with the tests.
const PROGRAM: &str = "STORM_NUMAHERD";

/// How long a try may take, in seconds; in a guest, which is emulated, [`IN_GUEST`] times as long.
pub const TRY_SECONDS: u64 = 90;
/// See [`TRY_SECONDS`].
pub const IN_GUEST: u64 = 6;

/// How long anything may take, in seconds. Far longer than it does: nothing is learnt from it but that it hangs.
const USUAL_PATIENCE_S: u64 = 40;
static PATIENCE_S: AtomicU64 = AtomicU64::new(USUAL_PATIENCE_S);

/// The most processes that there may be in a machine, those that nobody has waited for included. The kernel's numbers
/// are everybody's.
const MOST_PROCESSES: usize = 400;

/// The highest number of a process: more than there may be, by some, so that they are not used again at once.
const MOST_NUMBERS: &str = "2000";

/// What a stop or a release says that gives up after 10 s, because threads are started faster than they can be given back.
const GAVE_UP: &str = "stop what starts them, and run `numaherd release`";

/// The environment's word for the affinity that a user set.
const SET_BY_USER: &str = "STORM_MASK";

/// What came of a try.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Herds and releases that were killed.
    pub kills: u64,
    /// Herds that ended by themselves or when asked to.
    pub ends: u64,
    /// Threads that the oracle looked at.
    pub threads: u64,
    /// Threads that were bound when a herd had just been killed.
    pub bound_by_kills: u64,
    /// Threads that were bound when all was over.
    pub bound: u64,
    /// Threads to which `release` gave their affinity back, and how many of them were heirs.
    pub restored: u64,
    /// See `restored`.
    pub heirs: u64,
    /// The calls of a program that was traced.
    pub calls: u64,
    /// Processor time and time of herds that were not traced, in ms.
    pub cpu_ms: u64,
    /// See `cpu_ms`.
    pub wall_ms: u64,
    /// The most memory that a herd had, in KiB.
    pub memory_kib: u64,
    /// Stops and releases that said after 10 s that threads are started faster than they can be given back.
    pub gave_up: u64,
    /// What should not have been.
    pub findings: Vec<String>,
    /// Why it could not be tried here.
    pub skipped: Option<String>,
}

/// A thread that was looked at.
#[derive(Debug)]
struct Looked {
    process: u32,
    thread: u32,
    name: String,
    mask: String,
    /// The affinity that it should have; none if any.
    due: Option<String>,
    rests: bool,
}

impl Looked {
    fn is_bound(&self) -> bool {
        self.due.as_ref().is_some_and(|due| *due != self.mask)
    }
}

pub(crate) struct Machine {
    /// Whether it is in a guest.
    is_guests: bool,
    pub random: Random,
    pub seen: Seen,
    /// The affinity of whom nobody has given one.
    pub whole: String,
    /// What the tenants have said.
    said: Arc<AtomicU64>,
    output: std::io::PipeWriter,
    tenants: Vec<Child>,
    pub journal: PathBuf,
    /// The CPUs that tenants may be pinned to.
    pub pins: CpuSet,
    /// The cgroup that tenants are put into, if any.
    pub cgroup: Option<PathBuf>,
    /// What the kernel may leave of all CPUs in it now, where that is less.
    pub narrowed: Vec<String>,
}

impl Machine {
    /// Begins one in the working directory, which is empty.
    pub fn new(random: Random, is_guests: bool) -> Self {
        if is_guests {
            PATIENCE_S.store(USUAL_PATIENCE_S * IN_GUEST, Ordering::Relaxed);
        }
        fs::write("go", "").unwrap();
        fs::write("tenant.sh", include_str!("tenant.sh")).unwrap();
        assert!(ran("mkfifo", &["never"]));
        let (mut input, output) = std::io::pipe().unwrap();
        let said = Arc::new(AtomicU64::new(0));
        let heard = said.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = input.read(&mut bytes) {
                heard.fetch_add(n as u64, Ordering::Relaxed);
            }
        });
        let whole = mask("self");
        Self {
            is_guests,
            random,
            seen: Seen::default(),
            pins: whole.parse().expect("a list of CPUs"),
            cgroup: None,
            narrowed: Vec::new(),
            whole,
            said,
            output,
            tenants: Vec::new(),
            journal: PathBuf::from("journal"),
        }
    }

    /// One of several.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }

    /// Starts a tenant; its number.
    pub fn tenant(&mut self, way: &str) -> u32 {
        let mut command = match way {
            "threads" | "memory" => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["tenant", way]);
                command
            }
            _ => {
                let mut command = Command::new("sh");
                command.args(["tenant.sh", way]);
                command
            }
        };
        // MiB, or how many stay.
        command.arg(if way == "memory" { "8" } else { "24" });
        self.start(&command)
    }

    /// The same for a user who has set the affinity of his processes, to one of the machine's CPUs. It starts no
    /// daemons: in sessions of their own they could not be told from heirs (`docs/operators.md`).
    pub fn pinned_tenant(&mut self, way: &str) -> u32 {
        let cpus: Vec<CpuId> = self.pins.iter().collect();
        let cpu = self.one_of(&cpus).to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu, "sh", "tenant.sh", way, "24"]);
        command.env(SET_BY_USER, &cpu);
        let pid = self.start(&command);
        // By then it has the environment by which it is known.
        let is_up = || field(&format!("/proc/{pid}/status"), "Name:") == "sh";
        wait_until("a tenant is pinned", is_up);
        pid
    }

    /// One of another user, who changes the affinities of his own processes as he likes.
    pub fn hostile_tenant(&mut self) {
        let mut command = Command::new("prlimit");
        command.args([
            "--nproc=100",
            "setpriv",
            "--reuid",
            "65534",
            "--clear-groups",
            "sh",
            "tenant.sh",
        ]);
        command.args(["hostile", "24"]);
        command.env(SET_BY_USER, "any");
        self.start(&command);
    }

    /// Starts one in a session of its own, as logins and services have.
    fn start(&mut self, program: &Command) -> u32 {
        let mut command = Command::new("setsid");
        command.arg(program.get_program()).args(program.get_args());
        command.envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let output = self.output.try_clone().unwrap();
        let tenant = command.stdin(Stdio::null()).stdout(output).spawn().unwrap();
        let pid = tenant.id();
        if let Some(cgroup) = &self.cgroup {
            fs::write(cgroup.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        eprintln!("tenant {pid}: {program:?}");
        self.tenants.push(tenant);
        pid
    }

    /// Waits until the tenants have started so many more.
    pub fn go_on(&self, more: u64) {
        let until = self.said.load(Ordering::Relaxed) + more;
        wait_until("the tenants go on", || {
            self.said.load(Ordering::Relaxed) >= until
        });
    }

    /// A herd of this machine, or of whom `more` selects.
    pub fn command(&self, more: &[&str]) -> Command {
        let interval = if self.is_guests { "100ms" } else { "20ms" };
        let mut command = numaherd();
        command
            .args(["run", "--config", "none", "--interval", interval])
            .arg("--journal")
            .arg(&self.journal)
            .args(more);
        command
    }

    /// Starts it, quietly.
    pub fn herd(&self, more: &[&str]) -> Herd {
        self.herd_by("random", more)
    }

    /// The same by another policy.
    pub fn herd_by(&self, policy: &str, more: &[&str]) -> Herd {
        let mut command = self.command(&["--policy", policy, "--scope", "core"]);
        command.args(more);
        Herd::start(command)
    }

    /// Options that select tenants, by one way or another: all of them, or those that have the first one's name.
    pub fn selection(&mut self) -> Vec<String> {
        let ways = ["machine", "pid", "name", "user"];
        let words: Vec<String> = match self.one_of(&ways) {
            "pid" => {
                let pids = self.tenants.iter().map(|tenant| tenant.id().to_string());
                pids.flat_map(|pid| ["--pid".to_owned(), pid]).collect()
            }
            "name" => {
                let first = self.tenants.first().expect("there is a tenant").id();
                let name = || field(&format!("/proc/{first}/status"), "Name:");
                wait_until("a tenant has its name", || name() != "setsid");
                vec!["--name".to_owned(), name()]
            }
            "user" => vec!["--user".to_owned(), "0".to_owned()],
            _ => Vec::new(),
        };
        // It is shown if the try does not come to its end.
        eprintln!("selection: {words:?}");
        words
    }

    /// Waits until some thread is placed.
    pub fn placed(&self, herd: &Herd) {
        wait_until("a thread is placed", || {
            let mut threads = self.look().into_iter();
            assert!(!herd.has_ended(), "a herd ended: {}", herd.said());
            threads.any(|thread| self.is_placed(&thread))
        });
    }

    /// Whether a herd has given a thread its affinity.
    fn is_placed(&self, thread: &Looked) -> bool {
        let is_whole = thread.due.as_ref() == Some(&self.whole);
        thread.is_bound() && is_whole && !self.narrowed.contains(&thread.mask)
    }

    /// Notes that a herd, or a release, was killed.
    pub fn was_killed(&mut self) {
        self.seen.kills += 1;
        let threads = self.look().into_iter();
        self.seen.bound_by_kills += threads.filter(|thread| self.is_placed(thread)).count() as u64;
    }

    /// Kills a herd.
    pub fn kill(&mut self, herd: Herd) {
        let ended = herd.end(Signal::KILL);
        self.note(&ended);
        self.was_killed();
    }

    /// Ends a herd as a service manager does.
    pub fn end(&mut self, herd: Herd) {
        let ended = herd.end(Signal::TERM);
        self.note(&ended);
        // One that has not begun ends as any program does.
        let is_unbegun = ended.status.signal() == Some(Signal::TERM.as_raw());
        let success = ended.status.success() || is_unbegun && !self.journal.exists();
        self.has_ended(success, &ended.said);
    }

    /// Notes that a herd ended by itself, with what it said.
    pub fn has_ended(&mut self, success: bool, said: &str) {
        self.seen.ends += 1;
        if says(said, GAVE_UP) {
            self.seen.gave_up += 1;
            return;
        }
        if !success {
            self.found(format!("a herd failed: {said}"));
        }
        if self.journal.exists() {
            self.found(format!("a herd ended and left its journal: {said}"));
        }
    }

    fn note(&mut self, ended: &Ended) {
        self.seen.cpu_ms += ended.cpu_ms;
        self.seen.wall_ms += ended.wall_ms;
        self.seen.memory_kib = self.seen.memory_kib.max(ended.memory_kib);
    }

    pub fn found(&mut self, finding: String) {
        self.seen.findings.push(finding);
    }

    pub fn release_command(&self) -> Command {
        let mut command = numaherd();
        command.args(["release", "--json", "--journal"]);
        command.arg(&self.journal);
        command
    }

    /// Has the affinities restored that a killed herd owes: by `release`, or by the start of the next herd.
    pub fn restore(&mut self) {
        if self.random.random_bool(0.25) {
            let mut command = self.command(&["--policy", "random", "--scope", "core"]);
            command.args(["--for", "40ms"]);
            let herd = Herd::start(command);
            let ended = herd.end_by_itself();
            self.has_ended(ended.status.success(), &ended.said);
        } else {
            self.release();
        }
    }

    /// Runs `numaherd release`.
    pub fn release(&mut self) {
        let command = self.release_command();
        let output = output(command);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let report = String::from_utf8_lossy(&output.stdout).into_owned();
            if says(&report, GAVE_UP) {
                self.seen.gave_up += 1;
                return;
            }
            self.found(format!("release failed: {said}{report}"));
            return;
        }
        if self.journal.exists() {
            self.found("release ended and left the journal".to_owned());
        }
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("release --json prints JSON");
        let count = |name: &str| report[name].as_u64().unwrap_or(0);
        self.seen.restored += count("restored");
        self.seen.heirs += count("heirs");
    }

    /// All threads of the machine.
    fn look(&self) -> Vec<Looked> {
        let mut threads = Vec::new();
        for process in numbers(Path::new("/proc")) {
            for thread in numbers(Path::new(&format!("/proc/{process}/task"))) {
                let folder = format!("/proc/{process}/task/{thread}");
                let Ok(status) = fs::read_to_string(format!("{folder}/status")) else {
                    continue;
                };
                let value = |word: &str| {
                    let value = status.lines().find_map(|line| line.strip_prefix(word));
                    value.unwrap_or_default().trim().to_owned()
                };
                let state = value("State:");
                if state.starts_with(['Z', 'X']) {
                    continue;
                }
                let environment = fs::read(format!("{folder}/environ")).unwrap_or_default();
                let word = format!("{SET_BY_USER}=");
                let set = environment
                    .split(|&byte| byte == 0)
                    .find_map(|entry| entry.strip_prefix(word.as_bytes()));
                let due = match set {
                    Some(b"any") => None,
                    Some(mask) => Some(String::from_utf8_lossy(mask).into_owned()),
                    None => Some(self.whole.clone()),
                };
                threads.push(Looked {
                    process,
                    thread,
                    name: value("Name:"),
                    mask: value("Cpus_allowed_list:"),
                    due,
                    rests: state.starts_with('S'),
                });
            }
        }
        threads
    }

    /// Has all tenants rest, and looks at every thread. Where a stop or release gave up, another one is run before, as it
    /// has said.
    pub fn judge(&mut self) {
        fs::remove_file("go").unwrap();
        let before = Cell::new(BTreeSet::new());
        wait_until("the tenants rest", || {
            let threads = self.look();
            let numbers: BTreeSet<u32> = threads.iter().map(|thread| thread.thread).collect();
            let rests = threads
                .iter()
                .all(|thread| thread.rests || thread.process == std::process::id());
            rests && before.replace(numbers.clone()) == numbers
        });
        let gave_up = self.seen.gave_up;
        if gave_up > 0 {
            self.release();
        }
        if self.seen.gave_up > gave_up {
            self.found("a release gave up although nothing was started".to_owned());
        }
        let threads = self.look();
        self.seen.threads += threads.len() as u64;
        for thread in threads.iter().filter(|thread| thread.is_bound()) {
            self.seen.bound += 1;
            self.seen.findings.push(format!(
                "thread {} ({}) of process {} is left with {} in place of {}",
                thread.thread,
                thread.name,
                thread.process,
                thread.mask,
                thread.due.as_deref().unwrap_or_default()
            ));
        }
    }
}

/// Whether a text has these words, wherever its lines are broken.
fn says(text: &str, words: &str) -> bool {
    let words_of = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    words_of(text).contains(words)
}

/// The program that is tried.
fn numaherd() -> Command {
    let built = || env!("CARGO_BIN_EXE_numaherd").into();
    Command::new(std::env::var_os(PROGRAM).unwrap_or_else(built))
}

/// Ends the machine, with all that is in it, as soon as there are too many processes: such a try shows nothing of herds,
/// which start none, and counts as skipped. Where each namespace has a limit of the kernel's (since Linux 6.14; before,
/// it is the whole machine's), that holds in the meantime.
pub fn limit_processes() {
    if has_own_numbers() {
        fs::write("/proc/sys/kernel/pid_max", MOST_NUMBERS).unwrap();
    }
    thread::spawn(move || {
        loop {
            let processes = numbers(Path::new("/proc"));
            if processes.len() > MOST_PROCESSES {
                let state = |process: u32| field(&format!("/proc/{process}/status"), "State:");
                let ended = processes
                    .iter()
                    .filter(|&&process| state(process).starts_with('Z'));
                let seen = Seen {
                    skipped: Some(format!(
                        "{} processes, {} of which had ended and waited to be reaped, are too many for one machine",
                        processes.len(),
                        ended.count()
                    )),
                    ..Seen::default()
                };
                println!(
                    "{}",
                    serde_json::to_string(&seen).expect("it can be written")
                );
                std::process::exit(0);
            }
            pause(Duration::from_millis(10));
        }
    });
}

fn has_own_numbers() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map(|word| word.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 14)
}

/// Runs a program to its end. If it hangs, the try does, which has a limit.
pub fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// Whether a program ends well.
pub fn ran(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = output(command);
    // Those that fail say why.
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

/// Waits until something holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    let patience = Duration::from_secs(PATIENCE_S.load(Ordering::Relaxed));
    while !holds() {
        assert!(begun.elapsed() < patience, "waited in vain: {what}");
        // A machine's CPUs are few.
        pause(Duration::from_millis(1));
    }
}

/// Leaves the CPU to others before something is looked at again, of which nothing tells.
pub fn pause(time: Duration) {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut [], Some(&time));
}

/// What stands behind a word at the beginning of a line of a file; nothing where it cannot be read.
pub fn field(path: &str, word: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(word));
    value.unwrap_or_default().trim().to_owned()
}

/// The CPUs that a process may run on; nothing where there is none.
pub fn mask(process: &str) -> String {
    field(&format!("/proc/{process}/status"), "Cpus_allowed_list:")
}

/// The entries of a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
