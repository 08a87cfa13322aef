//! `numaherd trial`: whether a policy helps on this machine, by experiment.
//!
//! A run whose policy is switched on and off. The loop, its governor and its journal are those of `run`; a thread beside
//! it conducts ([`conduct`]) and switches over the herd's control, as `numaherd ctl` does: Linux is a pause in
//! which threads have their own affinities back. So whatever ends a run ends a trial, and leaves the same behind:
//! nothing. Progress is what the user names, or else what the machine counts ([`progress`]).

mod conduct;
mod progress;
mod report;

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use numaherd_herd::{Change, Control, ControlError, Line, Record, Request, Summary, control};
use numaherd_policy::groups::Policies;
use numaherd_quantity::time;
use numaherd_world::{NewPages, Signal, Snapshot};

use crate::cli::{self, Run};
use crate::config::file::steering;
use crate::config::{Config, Effective};
use crate::exit::{Exit, OrExit, ended};
use crate::print;
use crate::run::{self, Attached, Ender, Purpose};
use conduct::{Design, End, Event, Halt, LEAST_PAIRS, Machine, Pair, Reading, Side, conduct};
use progress::{Endpoint, Source};
use report::{Names, Report};

/// How long the herd may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which policy is a pause with affinities restored.
const LINUX: &str = "linux";

/// By which name the ledger knows who asked.
const BY: &str = "trial";

/// Tries a policy against Linux or another policy, and prints what came of it.
///
/// # Errors
/// As `numaherd run`; the trial could not be as it was asked for, or could not go on: what was known by then has been
/// printed.
pub fn trial(options: &cli::Trial) -> Result<()> {
    let run = as_run(options);
    let config = Effective::of(&run)?.config;
    let source = source(options)?;
    let design = design(options, &config, &source)?;
    let names = Names {
        policy: options.policy.clone(),
        against: options.against.clone(),
    };
    let (news, heard) = mpsc::channel();
    let counted = Arc::new(Mutex::new(Counted::default()));
    let (herd, requests) = control::pair();
    let conductor = Conductor {
        began: Instant::now(),
        heard,
        control: herd.named(BY),
        source: source.clone(),
        counted: counted.clone(),
        config,
        names: names.clone(),
        selected: selected(options),
        now: Some(Side::Policy),
    };
    let thread = RefCell::new(None);
    let failed = RefCell::new(None);
    let begin = |ender: Ender| {
        let builder = std::thread::Builder::new().name("trial".to_owned());
        let started = builder.spawn(move || conductor.conduct(&design, &ender));
        *thread.borrow_mut() = Some(started.context("cannot start a thread for the trial")?);
        Ok(())
    };
    let stop = news.clone();
    let printed = |summary: &Summary| {
        // It may have ended already.
        let _ = stop.send(News::Stop);
        let joined = thread.take().map(JoinHandle::<(Vec<Pair>, End)>::join);
        let Some(Ok((pairs, end))) = joined else {
            return Err(ended!(Failure, "the thread of the trial has died"));
        };
        if let End::Halted(Halt::Failed(why)) = &end {
            *failed.borrow_mut() = Some(why.clone());
        }
        let is_instructions = lock(&counted).is_instructions;
        let progress = report::progress(&source, is_instructions);
        let report = Report::of(&names, &design, progress, pairs, &end, summary);
        print::shown(options.json, &report, || report.text())
    };
    let seen = counted.clone();
    let attached = Attached {
        watchers: vec![Box::new(move |line: &Arc<Line>| {
            if lock(&seen).take_in(&line.record) {
                // The conductor may have given up.
                let _ = news.send(News::First);
            }
        })],
        control: Some((herd, requests)),
        purpose: Some(Purpose {
            policy: None,
            begin: Box::new(begin),
            printed: Box::new(printed),
        }),
        ..Attached::default()
    };
    run::herd(&run, attached)?;
    match failed.take() {
        Some(why) => Err(ended!(Failure, "the trial ended early: {why}")),
        None => Ok(()),
    }
}

/// What `run` would be told.
fn as_run(options: &cli::Trial) -> Run {
    Run {
        policy: Some(options.policy.clone()),
        selection: options.selection.clone(),
        seed: options.seed,
        config: options.config.clone(),
        events: options.events.clone(),
        ledger: options.ledger.clone(),
        journal: options.journal.clone(),
        program: options.program.clone(),
        ..Run::default()
    }
}

/// Which threads, for a message.
fn selected(options: &cli::Trial) -> String {
    let chosen = &options.selection;
    if let Some(program) = options.program.first() {
        return program.display().to_string();
    }
    if let Some(path) = &chosen.cgroup {
        return format!("--cgroup {}", path.display());
    }
    let named = [("--name", &chosen.name), ("--user", &chosen.user)];
    let named = named
        .into_iter()
        .find_map(|(option, value)| Some(format!("{option} {}", value.as_ref()?)));
    named.unwrap_or_else(|| "the selection".to_owned())
}

fn source(options: &cli::Trial) -> Result<Source> {
    if let Some(command) = &options.progress {
        return Ok(Source::Command(command.clone()));
    }
    match options.prometheus.as_deref() {
        Some([url, metric]) => Endpoint::parse(url, metric)
            .map(Source::Prometheus)
            .or_exit(Exit::Usage),
        _ => Ok(Source::World),
    }
}

/// The trial that was asked for.
///
/// # Errors
/// A policy is unknown, or cannot be switched off; or the times do not go together.
fn design(options: &cli::Trial, config: &Config, source: &Source) -> Result<Design> {
    if config.herd.dry_run {
        return Err(ended!(
            Usage,
            "herd.dry_run is set: a trial of a dry run would compare Linux with Linux"
        ));
    }
    if options.policy == options.against {
        return Err(ended!(
            Usage,
            "a trial of {} against itself shows nothing",
            options.policy
        ));
    }
    let mut interval = Duration::ZERO;
    for name in [&options.policy, &options.against] {
        let policies = policies(config, name)?;
        if policies.new_pages != NewPages::FirstTouch {
            return Err(ended!(
                Usage,
                "{name} places new pages by a rule ({}) which holds for a program's whole life, so that a trial cannot \
                 switch it off: compare two runs instead",
                policies.new_pages
            ));
        }
        let settings = steering::settings(config).resolved(&policies.own());
        interval = interval.max(settings.placement_interval(u64::MAX));
    }
    let shown = |length: Duration| time(length.as_nanos() as u64);
    let block = options.block;
    let washout = options.washout.unwrap_or(block.mul_f64(0.3));
    if washout < interval {
        return Err(ended!(
            Usage,
            "the first {} of a block do not count, but a policy decides only every {}: take longer blocks (--block) or \
             drop more (--washout)",
            shown(washout),
            shown(interval)
        ));
    }
    let least = match source {
        Source::World => interval * 2,
        _ => Duration::from_millis(1),
    };
    if block.saturating_sub(washout) < least {
        return Err(ended!(
            Usage,
            "a block of {} of which the first {} do not count leaves too little to measure, at least {} are needed: \
             take longer blocks (--block)",
            shown(block),
            shown(washout),
            shown(least)
        ));
    }
    let pairs = (options.time.as_secs_f64() / (2.0 * block.as_secs_f64()) + 1e-9) as usize;
    if pairs < LEAST_PAIRS {
        return Err(ended!(
            Usage,
            "{} hold {pairs} pairs of blocks of {}; an interval needs at least {LEAST_PAIRS}: --time {}s, or shorter \
             blocks",
            shown(options.time),
            shown(block),
            (block * 2 * LEAST_PAIRS as u32).as_secs_f64().ceil()
        ));
    }
    let from_clock = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| u64::from(now.subsec_micros()))
    };
    Ok(Design {
        block,
        washout,
        pairs,
        seed: options.seed.unwrap_or_else(from_clock),
        stop_early: options.stop_early,
    })
}

/// The policy of that name, as configured.
fn policies(config: &Config, name: &str) -> Result<Policies> {
    let mut config = config.clone();
    config.policy = Some(name.to_owned());
    steering::policy(&config).or_exit(Exit::Usage)
}

/// What the conductor is told.
enum News {
    /// The first snapshot has been taken.
    First,
    /// The herd has ended.
    Stop,
}

/// What the machine has counted of the selected threads.
#[derive(Default)]
struct Counted {
    /// Whether instructions are counted; CPU time in seconds otherwise.
    is_instructions: bool,
    snapshots: u64,
    /// Threads in the latest snapshot, and those that may be placed.
    threads: usize,
    managed: usize,
    reading: Option<Reading>,
}

impl Counted {
    /// Takes in a record. Says whether it was the first snapshot.
    fn take_in(&mut self, record: &Record) -> bool {
        match record {
            Record::Start(start) => {
                let counts =
                    |signal: &&numaherd_world::SignalReport| signal.signal == Signal::MissRate;
                self.is_instructions = start
                    .signals
                    .iter()
                    .find(counts)
                    .is_some_and(|signal| signal.is_measured());
                false
            }
            Record::Snapshot(snapshot) => {
                self.add(snapshot);
                self.snapshots += 1;
                self.snapshots == 1
            }
            _ => false,
        }
    }

    fn add(&mut self, snapshot: &Snapshot) {
        let threads = &snapshot.threads;
        self.threads = threads.len();
        self.managed = threads
            .iter()
            .filter(|thread| thread.unmanaged.is_none())
            .count();
        let counts = threads.iter().filter_map(|thread| thread.counts);
        let done = match self.is_instructions {
            true => counts.map(|counts| counts.instructions as f64).sum::<f64>(),
            false => {
                let shares = threads.iter().map(|thread| thread.cpu_share);
                shares.sum::<f64>() * snapshot.interval_ns as f64 / 1e9
            }
        };
        self.reading = Some(Reading {
            at: Duration::from_nanos(snapshot.time_ns),
            value: self.reading.map_or(0.0, |before| before.value) + done,
        });
    }
}

fn lock(counted: &Mutex<Counted>) -> std::sync::MutexGuard<'_, Counted> {
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Conducts the trial of a running herd.
struct Conductor {
    began: Instant,
    heard: Receiver<News>,
    control: Control,
    source: Source,
    counted: Arc<Mutex<Counted>>,
    config: Config,
    names: Names,
    selected: String,
    /// Who places threads now; `None`: a switch has failed.
    now: Option<Side>,
}

impl Conductor {
    /// Conducts, showing on standard error how it goes on, and ends the run.
    fn conduct(mut self, design: &Design, ender: &Ender) -> (Vec<Pair>, End) {
        let mut live = report::Live::new(&self.names, design, std::io::stderr().is_terminal());
        let control = self.control.clone();
        let mut happens = |event: Event<'_>| {
            // A terminal that has gone is no error.
            let _ = std::io::stderr().write_all(live.event(event).as_bytes());
            if let Event::Pair(pairs) = event {
                let why = report::pair_line(pairs, design);
                // What finds no room in the queue is missing in the ledger only.
                let _ = control.tell(Request::Change(Box::new(Change {
                    policy: None,
                    settings: None,
                    why,
                })));
            }
        };
        let (pairs, end) = match self.ready() {
            Ok(()) => conduct(design, &mut self, &mut happens),
            Err(halt) => (Vec::new(), End::Halted(halt)),
        };
        let _ = std::io::stderr().write_all(live.over().as_bytes());
        ender.end();
        (pairs, end)
    }

    /// Waits for the first snapshot, and looks whether there is anything to place and to measure.
    fn ready(&mut self) -> Result<(), Halt> {
        if !matches!(self.heard.recv(), Ok(News::First)) {
            return Err(Halt::Stopped);
        }
        self.some_match()?;
        let (threads, managed) = {
            let counted = lock(&self.counted);
            (counted.threads, counted.managed)
        };
        if managed == 0 {
            return Err(Halt::Failed(format!(
                "none of the {threads} threads may be placed, so that no policy can make a difference; `{} run --dry-run` \
                 and `explain` say why (--config FILE with herd.limits.take_over = true places those whose affinity a \
                 user has set)",
                print::called()
            )));
        }
        self.progress().map(drop)
    }

    fn some_match(&self) -> Result<(), Halt> {
        match lock(&self.counted).threads {
            0 => Err(Halt::Failed(format!(
                "no process matches {}",
                self.selected
            ))),
            _ => Ok(()),
        }
    }

    fn ask(&self, request: Request) -> Result<(), Halt> {
        self.control
            .ask(request, PATIENCE)
            .map_err(|error| match error {
                ControlError::Ended => Halt::Stopped,
                error => Halt::Failed(format!("the herd could not be switched: {error}")),
            })
    }

    /// Lets another policy decide. In between, all threads have their own affinities.
    fn change(&self, name: &str) -> Result<(), Halt> {
        let policies =
            policies(&self.config, name).map_err(|error| Halt::Failed(format!("{error:#}")))?;
        let change = Change {
            policy: Some(policies),
            settings: None,
            why: format!("a block of {name}"),
        };
        self.ask(Request::Pause { give_back: true })?;
        self.ask(Request::Change(Box::new(change)))?;
        self.ask(Request::Resume)
    }
}

impl Machine for Conductor {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait_until(&mut self, at: Duration) -> Result<(), Halt> {
        match self.heard.recv_timeout(at.saturating_sub(self.now())) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Halt::Stopped),
        }
    }

    fn switch(&mut self, to: Side) -> Result<(), Halt> {
        if self.now.take() != Some(to) {
            let name = match to {
                Side::Policy => &self.names.policy,
                Side::Against => &self.names.against,
            };
            let is_linux = self.names.against == LINUX;
            match to {
                Side::Against if is_linux => self.ask(Request::Pause { give_back: true })?,
                Side::Policy if is_linux => self.ask(Request::Resume)?,
                _ => self.change(name)?,
            }
        }
        self.now = Some(to);
        Ok(())
    }

    fn progress(&mut self) -> Result<Reading, Halt> {
        self.some_match()?;
        let before = self.now();
        match self.source.read() {
            Some(Ok(value)) => Ok(Reading {
                at: before + (self.now() - before) / 2,
                value,
            }),
            // A program that ends takes its counter along.
            Some(Err(_)) if self.heard.try_recv().is_ok() => Err(Halt::Stopped),
            Some(Err(why)) => Err(Halt::Failed(why)),
            None => lock(&self.counted).reading.ok_or(Halt::Stopped),
        }
    }
}
