//! The storm: herds are killed and ended among all that may happen on a machine, and then every thread is looked at.
//!
//! *Oracle.* After a herd's end, or after a kill and what restores then (`release`, or the start of the next herd), no
//! thread of the machine has an affinity that neither it nor its ancestors had before, unless its user set it.
//!
//! Each try has a machine of its own ([`machine`]): a namespace of processes and mounts, in which everything was
//! started by the try and ends with it. What happens in it ([`kinds`]) follows from the seed, the kind and the
//! number of the try, as far as the kernel's scheduling lets it.
//!
//! Without options this is a test: one round of all kinds. `make storm` runs rounds for hours, from a file with the
//! state so far, and writes the table.

mod calls;
mod kinds;
mod machine;
mod record;
mod sys;
mod tenants;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use numaherd_policy::Random;
use rand::SeedableRng;

use kinds::{KINDS, Kind};
use machine::{Machine, Seen};
use record::Record;

/// The seed of the test.
const SEED: u64 = 1;

/// How long a test may go on; the kinds that it has not come to by then are named.
const SHORT: Duration = Duration::from_secs(240);

/// How long one try may take, in seconds.
const TRY_SECONDS: u32 = 90;

/// Kills and ends herds among all that may happen on a machine, and looks at every thread afterwards.
#[derive(Parser)]
#[command(name = "storm")]
struct Arguments {
    /// How long, for instance 8h [default: one round]
    #[arg(long = "for", value_parser = numaherd_quantity::parse_time)]
    time: Option<Duration>,
    /// The seed of a new storm [default: the time; 1 for one round]
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
    let number = |word: &str| word.parse().expect("a number");
    match words[1..] {
        ["tenant", "threads", most] => tenants::threads(number(most) as u32),
        ["inside", name, seed, try_, at] => {
            inside(named(name), number(seed), number(try_), number(at))?
        }
        _ => return storm(&Arguments::parse()),
    }
    Ok(ExitCode::SUCCESS)
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
    let seed = match arguments.time {
        Some(_) => arguments.seed,
        None => arguments.seed.or(Some(SEED)),
    };
    let mut record = Record::open(arguments.state.as_deref(), seed)?;
    println!("storm: commit {}, seed {}", record.commit, record.seed);
    let begun = Instant::now();
    let limit = arguments.time.unwrap_or(SHORT);
    'rounds: loop {
        for kind in &kinds {
            for _ in 0..kind.share {
                if begun.elapsed() > limit {
                    break 'rounds;
                }
                next(&mut record, kind);
                if let Some(state) = &arguments.state {
                    record.keep(state)?;
                }
            }
        }
        if arguments.time.is_none() {
            break;
        }
    }
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

/// Makes the next try of a kind.
fn next(record: &mut Record, kind: &Kind) {
    let line = record.lines.entry(kind.name.to_owned()).or_default();
    // The first makes all its calls, and so tells how many there are. The others' share of them are spread by the
    // golden ratio: after some tries no stretch is left out, and after many no call.
    let share = (line.tries as f64 * 0.618_033_988_749_895).fract();
    let at = (line.calls > 0).then(|| 1 + (share * line.calls as f64) as u64);
    let number = line.tries;
    let seen = attempt(kind, record.seed, number, at);
    for finding in &seen.findings {
        let at = at.map_or(String::new(), |at| format!(" --at-call {at}"));
        println!(
            "storm: {} --seed {} --try {number}{at}: {finding}",
            kind.name, record.seed
        );
    }
    record.add(kind, seen);
}

/// Why no storm is possible here.
fn cannot() -> Option<String> {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
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
/// limit or what is run, all of the namespace ends with it. Its first process is a shell, which waits for orphans: else
/// each would keep its number.
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
    command.args(["sh", "-c", "setsid --wait \"$0\" \"$@\"; exit $?"]);
    command
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
