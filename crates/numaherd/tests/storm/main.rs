//! The storm: herds are killed and ended among all that may happen on a machine, and then every thread is looked at.
//!
//! *Oracle.* After a herd's end, or after a kill and what restores then (`release`, or the start of the next herd), no
//! thread of the machine has an affinity that neither it nor its ancestors had before, unless its user set it.
//!
//! Each try has a machine of its own ([`machine`]): a namespace of processes and mounts, in which everything was
//! started by the try and ends with it. What happens in it ([`kinds`]) follows from the seed, the kind and the
//! number of the try, as far as the kernel's scheduling lets it.
//!
//! By itself this is a test for each kind: a few tries. `make storm` (`storm long`) runs rounds of all kinds for hours,
//! from a file with the state so far, and writes the table.

mod calls;
mod kinds;
mod machine;
mod record;
mod sys;
mod tenants;

use std::iter;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use libtest_mimic::Trial;
use numaherd_policy::Random;
use numaherd_world::in_step::lock;
use rand::SeedableRng;
use rustix::process::{Pid, WaitOptions};

use kinds::{KINDS, Kind};
use machine::{Machine, Seen};
use record::Record;

/// The seed of the tests.
const SEED: u64 = 1;

/// Tries of a kind in a test: the first makes all calls, the others are killed at one.
const SHORT: u64 = 3;

/// How long a storm goes on by default.
const LONG: Duration = Duration::from_secs(8 * 3600);

/// How long one try may take, in seconds.
const TRY_SECONDS: u32 = 90;

/// Kills and ends herds among all that may happen on a machine, and looks at every thread afterwards.
#[derive(Parser)]
#[command(name = "storm long")]
struct Arguments {
    /// How long, for instance 30m [default: 8h]
    #[arg(long = "for", value_parser = numaherd_quantity::parse_time)]
    time: Option<Duration>,
    /// The seed of a new storm [default: the time; 1 with --try]
    #[arg(long)]
    seed: Option<u64>,
    /// The file with the state, from which a storm goes on
    #[arg(long)]
    state: Option<PathBuf>,
    /// The page to write the table to
    #[arg(long)]
    page: Option<PathBuf>,
    /// Only the try of this number, with all that it says
    #[arg(long = "try")]
    number: Option<u64>,
    /// The call at which that try kills
    #[arg(long, requires = "number")]
    at_call: Option<u64>,
    /// Only kinds with this in their names
    names: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[1..] {
        ["tenant", "threads", most] => tenants::threads(number(most) as u32),
        ["inside", name, seed, try_, at] => {
            inside(named(name), number(seed), number(try_), number(at))?;
        }
        ["first", ref program @ ..] => return first(program),
        ["long", ..] => return storm(&Arguments::parse_from(&words[1..])),
        _ => {
            let arguments = libtest_mimic::Arguments::from_args();
            return Ok(libtest_mimic::run(&arguments, tests()).exit_code());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// A test for each kind; ignored where no storm is possible.
fn tests() -> Vec<Trial> {
    let cannot = cannot();
    if let Some(why) = &cannot {
        eprintln!("storm: {} kinds skipped: {why}", KINDS.len());
    }
    let tests = KINDS.iter().map(|kind| {
        let short = move || {
            let record = Mutex::new(Record::open(None, Some(SEED))?);
            for _ in 0..SHORT {
                next(&record, kind);
            }
            let record = lock(&record);
            match record.findings() {
                0 => Ok(()),
                _ => Err(record.remarks().into()),
            }
        };
        Trial::test(kind.name, short).with_ignored_flag(cannot.is_some())
    });
    tests.collect()
}

fn named(name: &str) -> &'static Kind {
    let kind = KINDS.iter().find(|kind| kind.name == name);
    kind.unwrap_or_else(|| panic!("there is no storm {name:?}"))
}

fn storm(arguments: &Arguments) -> Result<ExitCode> {
    let is_named = |kind: &Kind, name: &String| match KINDS.iter().any(|kind| kind.name == name) {
        true => kind.name == name,
        false => kind.name.contains(name),
    };
    let names = &arguments.names;
    let is_wanted =
        |kind: &&Kind| names.is_empty() || names.iter().any(|name| is_named(kind, name));
    let kinds: Vec<&Kind> = KINDS.iter().filter(is_wanted).collect();
    if let Some(number) = arguments.number {
        let seed = arguments.seed.unwrap_or(SEED);
        for kind in kinds {
            let seen = attempt(kind, seed, number, arguments.at_call);
            println!("{}", serde_json::to_string_pretty(&seen)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = cannot() {
        println!("storm: {} kinds skipped: {why}", kinds.len());
        return Ok(ExitCode::SUCCESS);
    }
    let record = Record::open(arguments.state.as_deref(), arguments.seed)?;
    println!("storm: commit {}, seed {}", record.commit, record.seed);
    let begun = Instant::now();
    let limit = arguments.time.unwrap_or(LONG);
    let round = kinds
        .iter()
        .flat_map(|&kind| iter::repeat_n(kind, kind.share as usize));
    let (record, turns) = (Mutex::new(record), Mutex::new(round.cycle()));
    let turn = || lock(&turns).next().filter(|_| begun.elapsed() <= limit);
    let work = || -> Result<()> {
        while let Some(kind) = turn() {
            next(&record, kind);
            if let Some(state) = &arguments.state {
                lock(&record).keep(state)?;
            }
        }
        Ok(())
    };
    // Each try mostly waits for one thing.
    let workers = available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut ended = workers.into_iter().map(|worker| worker.join());
        ended.try_for_each(|ended| ended.expect("a try is a process of its own"))
    })?;
    let record = lock(&record);
    println!("{}\n{}", record.table(KINDS), record.remarks());
    if let Some(page) = &arguments.page {
        std::fs::write(page, record.page(KINDS))
            .with_context(|| format!("cannot write the page {}", page.display()))?;
    }
    for kind in kinds {
        let tries = record.lines.get(kind.name).map_or(0, |line| line.tries);
        if tries < kind.share {
            println!(
                "storm: {}: only {tries} of {} tries in {} s",
                kind.name,
                kind.share,
                limit.as_secs()
            );
        }
    }
    Ok(match record.findings() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Makes the next try of a kind. Others may be made meanwhile.
fn next(record: &Mutex<Record>, kind: &Kind) {
    let mut known = lock(record);
    let seed = known.seed;
    let line = known.lines.entry(kind.name.to_owned()).or_default();
    // The first makes all its calls, and so tells how many there are. The others' share of them are spread by the
    // golden ratio: after some tries no stretch is left out, and after many no call.
    let share = (line.begun as f64 * 0.618_033_988_749_895).fract();
    let at = (line.calls > 0).then(|| 1 + (share * line.calls as f64) as u64);
    let number = line.begun;
    line.begun += 1;
    drop(known);
    let seen = attempt(kind, seed, number, at);
    for finding in &seen.findings {
        let at = at.map_or(String::new(), |at| format!(" --at-call {at}"));
        println!(
            "storm: {} --seed {seed} --try {number}{at}: {finding}",
            kind.name
        );
    }
    lock(record).add(kind, number, seen);
}

/// Why no storm is possible here.
fn cannot() -> Option<String> {
    if available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return Some("with one CPU no affinity differs from another".to_owned());
    }
    let output = namespace().arg("true").output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "this user may make no namespace of processes: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("cannot start unshare: {error}")),
    }
}

/// Runs what follows in a namespace of processes and mounts, for a limited time. Whoever ends first, this program, the
/// limit or what is run, all of the namespace ends with it.
fn namespace() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    let seconds = TRY_SECONDS.to_string();
    command.args([
        "timeout",
        "--foreground",
        "--kill-after=5",
        &seconds,
        "unshare",
    ]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--fork", "--kill-child", "--pid", "--mount-proc"]);
    let own = std::env::current_exe().expect("this program");
    command.arg(own).args(["first", "setsid", "--wait"]);
    command
}

/// The first process of a namespace: starts a program, and waits for it and for all orphans, each of which would keep its
/// number otherwise.
fn first(program: &[&str]) -> Result<ExitCode> {
    let child = Command::new(program[0]).args(&program[1..]).spawn()?;
    let pid = Pid::from_child(&child);
    loop {
        let ended = rustix::process::wait(WaitOptions::empty());
        if let Ok(Some((who, status))) = ended
            && who == pid
        {
            let code = status
                .exit_status()
                .and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
}

/// Makes one try, and hears what came of it.
fn attempt(kind: &Kind, seed: u64, number: u64, at_call: Option<u64>) -> Seen {
    let own = std::env::current_exe().expect("this program");
    let mut command = namespace();
    command
        .arg(own)
        .args(["inside", kind.name, &seed.to_string()]);
    command.args([number, at_call.unwrap_or(0)].map(|number| number.to_string()));
    let output = command.output().expect("timeout can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let seen = said
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    seen.unwrap_or_else(|| Seen {
        findings: vec![format!(
            "the try did not come to its end: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ")
        )],
        ..Seen::default()
    })
}

/// A try, in the namespace that is its machine.
fn inside(kind: &Kind, seed: u64, number: u64, at_call: u64) -> Result<()> {
    // Sockets, locks and journals of the machine around are not this one's.
    assert!(machine::ran("mount", &["-t", "tmpfs", "none", "/run"]));
    std::env::set_current_dir("/run")?;
    let named = kind.name.bytes().fold(seed, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    machine::limit_processes();
    let mut machine = Machine::new(Random::seed_from_u64(named ^ number.rotate_left(32)));
    (kind.storm)(&mut machine, (at_call > 0).then_some(at_call));
    machine.judge();
    println!("{}", serde_json::to_string(&machine.seen)?);
    Ok(())
}
