//! The storm: herds are killed and ended among all that may happen on a machine, and then every thread is looked at.
//!
//! *Oracle.* After a herd's end, or after a kill and what restores then (`release`, or the start of the next herd), no
//! thread of the machine has an affinity that neither it nor its ancestors had before, unless its user set it.
//!
//! Each try has a machine of its own ([`machine`]): a namespace of processes and mounts, in which everything was
//! started by the try and ends with it. What happens in it ([`kinds`]) follows from the seed, the kind and the
//! number of the try, as far as the kernel's scheduling lets it.
//!
//! Some need a guest of the lab ([`lab`]), in which they have such a machine as well.
//!
//! By itself this is a test for each kind that needs none: a few tries. `make storm` (`storm long`) runs rounds of all
//! kinds for hours, from a file with the state so far, and writes the table.

mod calls;
mod herd;
mod kinds;
mod lab;
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
use numaherd_lab_launcher::{Ending, Guest, KernelFiles};
use numaherd_policy::Random;
use numaherd_world::in_step::lock;
use rand::SeedableRng;
use rustix::process::{Pid, WaitOptions};

use kinds::{KINDS, Kind};
use lab::{Lab, TRY_LIMIT};
use machine::{IN_GUEST, Machine, Seen, TRY_SECONDS};
use record::Record;

/// The seed of the tests.
const SEED: u64 = 1;

/// Tries of a kind in a test: the first makes all calls, the others are killed at one.
const SHORT: u64 = 3;

/// Lines of a guest's console that are shown of a try that does not come to its end.
const CONSOLE_LINES: usize = 4;

/// How long a storm goes on by default.
const LONG: Duration = Duration::from_secs(8 * 3600);

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
        ["tenant", "memory", mib] => tenants::memory(number(mib) as u32),
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

/// A test for each kind that needs no guest; ignored where no storm is possible.
fn tests() -> Vec<Trial> {
    let cannot = cannot();
    if let Some(why) = &cannot {
        eprintln!("storm: {} kinds skipped: {why}", KINDS.len());
    }
    let here = KINDS.iter().filter(|kind| kind.lab.is_none());
    let tests = here.map(|kind| {
        let short = move || {
            let storm = Storm {
                record: Mutex::new(Record::open(None, Some(SEED))?),
                state: None,
                until: None,
            };
            (0..SHORT).try_for_each(|_| storm.next(kind, None))?;
            let record = lock(&storm.record);
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
    let kinds: Vec<&'static Kind> = KINDS.iter().filter(is_wanted).collect();
    if let Some(number) = arguments.number {
        let seed = arguments.seed.unwrap_or(SEED);
        for kind in kinds {
            let guest = kind.lab.map(Lab::boot).transpose()?;
            let seen = attempt(kind, seed, number, arguments.at_call, guest.as_ref())?;
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
    let limit = arguments.time.unwrap_or(LONG);
    let storm = Storm {
        record: Mutex::new(record),
        state: arguments.state.clone(),
        until: Some(Instant::now() + limit),
    };
    storm.rage(&kinds)?;
    let record = lock(&storm.record);
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

/// How many tries of a kind are made in one turn: one, or in a guest all of a round.
fn tries_of_turn(kind: &Kind) -> u64 {
    kind.lab.map_or(1, |_| kind.share)
}

/// A storm that goes on.
struct Storm {
    record: Mutex<Record>,
    /// The file in which what came of it is kept after each try.
    state: Option<PathBuf>,
    /// When no try begins any more.
    until: Option<Instant>,
}

impl Storm {
    /// Makes rounds of all kinds until it is over: those that need a guest one after another, because one has enough with
    /// the CPUs there are, and beside them the others.
    fn rage(&self, kinds: &[&'static Kind]) -> Result<()> {
        let (in_lab, here): (Vec<&Kind>, Vec<&Kind>) =
            kinds.iter().partition(|kind| kind.lab.is_some());
        let in_lab = self.possible(in_lab)?;
        let round = here
            .iter()
            .flat_map(|&kind| iter::repeat_n(kind, kind.share as usize));
        // Each try mostly waits for one thing.
        let workers = available_parallelism()?.get();
        let (in_lab, here) = (
            Mutex::new(in_lab.into_iter().cycle()),
            Mutex::new(round.cycle()),
        );
        let work = |turn: &dyn Fn() -> Option<&'static Kind>| -> Result<()> {
            while let Some(kind) = turn().filter(|_| !self.is_over()) {
                self.turn(kind)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let guests = scope.spawn(|| work(&|| lock(&in_lab).next()));
            let others = (0..workers).map(|_| scope.spawn(|| work(&|| lock(&here).next())));
            let workers: Vec<_> = others.chain([guests]).collect();
            let mut ended = workers.into_iter().map(|worker| worker.join());
            ended.try_for_each(|ended| ended.expect("a try is a process of its own"))
        })
    }

    /// Those kinds of the lab that can be tried, where there is a lab; else each is counted as skipped.
    fn possible(&self, in_lab: Vec<&'static Kind>) -> Result<Vec<&'static Kind>> {
        let Err(error) = KernelFiles::find(None) else {
            return Ok(in_lab);
        };
        for kind in in_lab {
            self.skip(kind, &error)?;
        }
        Ok(Vec::new())
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() > until)
    }

    /// Makes the next tries of a kind. What cannot be made, because there is no lab, or because its
    /// guest fails or hangs, is counted as skipped; the guest ends with the turn.
    fn turn(&self, kind: &Kind) -> Result<()> {
        let tries = || -> Result<()> {
            let guest = kind.lab.map(Lab::boot).transpose()?;
            for _ in 0..tries_of_turn(kind) {
                if !self.is_over() {
                    self.next(kind, guest.as_ref())?;
                }
            }
            Ok(())
        };
        match tries() {
            Err(error) => match error.downcast_ref::<numaherd_lab_launcher::Error>() {
                Some(guests) => self.skip(kind, guests),
                None => Err(error),
            },
            ended => ended,
        }
    }

    fn skip(&self, kind: &Kind, why: &numaherd_lab_launcher::Error) -> Result<()> {
        println!("storm: {} skipped: {why}", kind.name);
        let begun = |record: &Record| record.lines.get(kind.name).map_or(0, |line| line.begun);
        let number = begun(&lock(&self.record));
        let skipped = Seen {
            skipped: Some(why.to_string()),
            ..Seen::default()
        };
        self.add(kind, number, skipped)
    }

    /// Makes the next try of a kind, here or in a guest. Others may be made meanwhile.
    ///
    /// # Errors
    /// The guest's; what came of it cannot be kept.
    fn next(&self, kind: &Kind, guest: Option<&Guest>) -> Result<()> {
        let mut known = lock(&self.record);
        let seed = known.seed;
        let line = known.lines.entry(kind.name.to_owned()).or_default();
        // The first makes all its calls, and so tells how many there are. The others' share of them are spread by the
        // golden ratio: after some tries no stretch is left out, and after many no call.
        let share = (line.begun as f64 * 0.618_033_988_749_895).fract();
        let at = (line.calls > 0).then(|| 1 + (share * line.calls as f64) as u64);
        let number = line.begun;
        line.begun += 1;
        drop(known);
        let seen = attempt(kind, seed, number, at, guest)?;
        for finding in &seen.findings {
            let at = at.map_or(String::new(), |at| format!(" --at-call {at}"));
            println!(
                "storm: {} --seed {seed} --try {number}{at}: {finding}",
                kind.name
            );
        }
        self.add(kind, number, seen)
    }

    fn add(&self, kind: &Kind, number: u64, seen: Seen) -> Result<()> {
        let mut record = lock(&self.record);
        record.add(kind, number, seen);
        self.state.iter().try_for_each(|state| record.keep(state))
    }
}

/// Why no storm is possible here.
fn cannot() -> Option<String> {
    if available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return Some("with one CPU no affinity differs from another".to_owned());
    }
    let output = namespace(TRY_SECONDS).arg("true").output();
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
fn namespace(seconds: u64) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    let seconds = seconds.to_string();
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

/// Makes one try, here or in a guest, and hears what came of it.
///
/// # Errors
/// The guest's.
fn attempt(
    kind: &Kind,
    seed: u64,
    number: u64,
    at_call: Option<u64>,
    guest: Option<&Guest>,
) -> numaherd_lab_launcher::Result<Seen> {
    let own = std::env::current_exe().expect("this program");
    let seconds = guest.map_or(TRY_SECONDS, |_| TRY_SECONDS * IN_GUEST);
    let mut command = namespace(seconds);
    command
        .arg(own)
        .args(["inside", kind.name, &seed.to_string()]);
    command.args([number, at_call.unwrap_or(0)].map(|number| number.to_string()));
    let (ending, said, complained) = match guest {
        None => {
            let output = command.output().expect("timeout can be started");
            (output.status.to_string(), output.stdout, output.stderr)
        }
        Some(guest) => {
            let words = iter::once(command.get_program()).chain(command.get_args());
            let command = numaherd_lab_launcher::Command::inherited(words)?;
            let output = guest.output(&command, Some(TRY_LIMIT))?;
            let ending = match output.ending {
                Ending::Exited(code) => format!("exit status: {code}"),
                Ending::Killed(signal) => format!("signal: {signal}"),
            };
            // If the guest's kernel ended it, it says so there.
            let console = guest.console();
            let last = console.lines().rev().take(CONSOLE_LINES);
            let last = last.flat_map(|line| ["\nguest's console, backwards: ", line]);
            let complained = [output.stderr, last.collect::<String>().into_bytes()].concat();
            (ending, output.stdout, complained)
        }
    };
    let said = String::from_utf8_lossy(&said);
    let seen = said
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok());
    Ok(seen.unwrap_or_else(|| Seen {
        findings: vec![format!(
            "the try did not come to its end: {ending}: {}",
            String::from_utf8_lossy(&complained)
                .trim()
                .replace('\n', "; ")
        )],
        ..Seen::default()
    }))
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
    let random = Random::seed_from_u64(named ^ number.rotate_left(32));
    let mut machine = Machine::new(random, kind.lab.is_some());
    (kind.storm)(&mut machine, (at_call > 0).then_some(at_call));
    machine.judge();
    println!("{}", serde_json::to_string(&machine.seen)?);
    Ok(())
}
