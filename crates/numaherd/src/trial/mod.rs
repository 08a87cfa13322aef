//! `numaherd trial`: whether a policy helps on this machine, by experiment.
//!
//! A trial is a run whose policy is switched on and off. The loop, its governor and its journal are those of `run`. A
//! second thread conducts it ([`conduct`]) and switches over the herd's control, as `numaherd ctl` does: Linux is a
//! pause that first returns threads to where Linux had them, with their own affinities. Whatever ends a run therefore
//! ends a trial, and leaves nothing behind. Progress is what the user names, or else what the machine counts
//! ([`progress`]). [`numaherd_show::trial`] gives the result, from the records in the ledger.

mod conduct;
mod live;
mod paces;
mod progress;

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use numaherd_herd::ledger::{self, Design, Record, Side, TrialEnd, TrialPlan};
use numaherd_herd::{Change, Control, ControlError, Line, Request, Summary, control};
use numaherd_policy::groups::Policies;
use numaherd_quantity::{nanoseconds, time};
use numaherd_show::run::RunModel;
use numaherd_show::trial::{LEAST_PAIRS, LINUX, Trial};
use numaherd_world::{NewPages, Signal};

use crate::cli::{self, Run, Steering};
use crate::config::file::steering;
use crate::config::{Config, Effective};
use crate::exit::{Exit, OrExit, ended};
use crate::run::{self, Attached, Ender, Group, Purpose};
use crate::{lock, print};
use conduct::{Event, Halt, Machine, Reading, conduct};
use live::Live;
use paces::Paces;
use progress::{Endpoint, Source};

/// How long the herd may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of the asker in the ledger.
const BY: &str = "trial";

/// Tries a policy against Linux or another policy, and prints the result.
///
/// # Errors
/// As `numaherd run`; the trial is not possible as requested, or could not go on: what was known by then has been
/// printed.
pub fn trial(options: &cli::Trial) -> Result<()> {
    let run = as_run(options);
    let config = Effective::of(&run)?.config;
    let source = source(options)?;
    let plan = plan(options, &config, &source)?;
    let (news, heard) = mpsc::channel();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (herd, requests) = control::pair();
    let conductor = Conductor {
        began: Instant::now(),
        heard,
        control: herd.named(BY),
        source,
        seen: seen.clone(),
        config,
        plan,
        selected: selected(options),
        now: Some(Side::Policy),
    };
    let (begin, begun) = mpsc::channel();
    // Started now, while it has all privileges that the command of `--progress` may need.
    let thread = std::thread::Builder::new()
        .name("trial".to_owned())
        .spawn(move || Some(conductor.conduct(&begun.recv().ok()?)))
        .context("cannot start a thread for the trial")?;
    let failed = RefCell::new(None);
    let stop = news.clone();
    let printed = |summary: &Summary| {
        // It may have ended already.
        let _ = stop.send(News::Stop);
        let Ok(Some(trial)) = thread.join() else {
            return Err(ended!(Failure, "the thread of the trial has died"));
        };
        if let Some(TrialEnd::Failed(why)) = &trial.ended {
            *failed.borrow_mut() = Some(why.clone());
        }
        print::shown(options.json, &trial.report(summary), || trial.text(summary))
    };
    let attached = Attached {
        watchers: vec![Box::new(move |line: &Arc<Line>| {
            let mut seen = lock(&seen);
            let was_empty = seen.run.more.snapshots == 0;
            seen.take(line);
            if was_empty && seen.run.more.snapshots > 0 {
                // The conductor may have given up.
                let _ = news.send(News::First);
            }
        })],
        control: Some((herd, requests)),
        purpose: Some(Purpose {
            policy: None,
            group: Group::Own,
            begin: Box::new(move |ender| {
                // The conductor waits for this.
                let _ = begin.send(ender);
            }),
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

/// The same as options of `run`.
fn as_run(options: &cli::Trial) -> Run {
    Run {
        policy: options.policy.clone(),
        selection: options.selection.clone(),
        steering: Steering {
            seed: options.seed,
            ..Steering::default()
        },
        files: options.files.clone(),
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
/// A policy is unknown, or cannot be switched off; or the times do not fit together.
fn plan(options: &cli::Trial, config: &Config, source: &Source) -> Result<TrialPlan> {
    let (policy, against) = (config.policy(), &options.against);
    if config.herd.dry_run {
        return Err(ended!(
            Usage,
            "herd.dry_run is set: a trial of a dry run would compare Linux with Linux"
        ));
    }
    if policy == against {
        return Err(ended!(
            Usage,
            "a trial of {policy} against itself shows nothing"
        ));
    }
    let cadence = cadence(config, policy)?.max(cadence(config, against)?);
    Ok(TrialPlan {
        policy: policy.to_owned(),
        against: against.clone(),
        counter: source.to_string(),
        is_named: *source != Source::World,
        design: design(options, source, cadence)?,
    })
}

/// How often this policy decides, if it can be switched off.
fn cadence(config: &Config, name: &str) -> Result<Duration> {
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
    Ok(settings.placement_interval(u64::MAX))
}

/// The blocks of a trial of policies that decide at this cadence.
fn design(options: &cli::Trial, source: &Source, cadence: Duration) -> Result<Design> {
    let shown = |length: Duration| time(nanoseconds(length));
    let block = options.block;
    let washout = options.washout.unwrap_or(block.mul_f64(0.3));
    if washout < cadence {
        return Err(ended!(
            Usage,
            "the first {} of a block do not count, but a policy decides only every {}: take longer blocks (--block) or \
             drop more (--washout)",
            shown(washout),
            shown(cadence)
        ));
    }
    let least = match source {
        Source::World => cadence * 2,
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
        block_ns: nanoseconds(block),
        washout_ns: nanoseconds(washout),
        pairs_planned: pairs,
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

/// What the conductor learns.
enum News {
    /// The first snapshot has been taken.
    First,
    /// The herd has ended.
    Stop,
}

/// Whether instructions are counted; otherwise progress is CPU time in seconds.
fn counts_instructions(run: &RunModel) -> bool {
    let signals = run.start().map_or(&[][..], |start| &start.signals[..]);
    let mut signals = signals.iter();
    signals.any(|report| report.signal == Signal::MissRate && report.is_measured())
}

/// What the conductor sees of the run.
#[derive(Default)]
struct Seen {
    run: RunModel,
    paces: Paces,
}

impl Seen {
    fn take(&mut self, line: &Arc<Line>) {
        self.run.take(line);
        if let Record::Snapshot(snapshot) = &line.record {
            self.paces.take(snapshot);
        }
    }

    /// What the machine has counted of the selected threads.
    fn counted(&self) -> Option<Reading> {
        let value = match counts_instructions(&self.run) {
            true => self.paces.progress_s,
            false => self.run.more.cpu_s,
        };
        self.run.latest().map(|_| Reading {
            at: Duration::from_nanos(self.run.time_ns),
            value,
        })
    }
}

/// Conducts the trial of a running herd.
struct Conductor {
    began: Instant,
    heard: Receiver<News>,
    control: Control,
    source: Source,
    seen: Arc<Mutex<Seen>>,
    config: Config,
    plan: TrialPlan,
    selected: String,
    /// The side that places threads now; `None` after a failed switch.
    now: Option<Side>,
}

impl Conductor {
    /// Conducts the trial, shows its progress on standard error, records each pair, and ends the run.
    fn conduct(mut self, ender: &Ender) -> Trial {
        let ready = self.ready();
        let (plan, control) = (self.plan.clone(), self.control.clone());
        let record = |pair, ended| {
            Request::Trial(Box::new(ledger::Trial {
                plan: plan.clone(),
                pair,
                ended,
            }))
        };
        let mut live = Live::new(&plan, std::io::stderr().is_terminal());
        let (pairs, ended) = match ready {
            Err(halt) => (Vec::new(), halt.into_end()),
            Ok(()) => conduct(&plan.design, &mut self, |event| {
                // A terminal that has gone is no error.
                let _ = std::io::stderr().write_all(live.event(event).as_bytes());
                if let Event::Pair(pairs) = event {
                    // If the herd has ended meanwhile, only the ledger lacks the pair.
                    let _ = control.ask(record(pairs.last().copied(), None), PATIENCE);
                }
            }),
        };
        let _ = std::io::stderr().write_all(live.over().as_bytes());
        if ended.is_some() {
            // If the herd has ended meanwhile, the ledger says how.
            let _ = self.ask(record(None, ended.clone()));
        }
        ender.end();
        Trial { plan, pairs, ended }
    }

    /// Waits for the first snapshot, and checks that there is something to place and to measure.
    fn ready(&mut self) -> Result<(), Halt> {
        if !matches!(self.heard.recv(), Ok(News::First)) {
            return Err(Halt::Stopped);
        }
        self.some_match()?;
        let (threads, managed, is_instructions) = {
            let run = &lock(&self.seen).run;
            let managed = run.now.threads - run.now.hands_off;
            (run.now.threads, managed, counts_instructions(run))
        };
        if self.source == Source::World && is_instructions {
            "instructions of the selected threads, each beside its own speed so far"
                .clone_into(&mut self.plan.counter);
        }
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
        match lock(&self.seen).run.now.threads {
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

    /// Lets another policy decide. In between, all threads are where Linux had them.
    fn change(&self, name: &str) -> Result<(), Halt> {
        let policies =
            policies(&self.config, name).map_err(|error| Halt::Failed(format!("{error:#}")))?;
        let change = Change {
            policy: Some(policies),
            settings: None,
            why: format!("a block of {name}"),
        };
        self.ask(Request::TakeBack)?;
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
            match to {
                Side::Against if self.plan.against == LINUX => self.ask(Request::TakeBack)?,
                Side::Policy if self.plan.against == LINUX => self.ask(Request::Resume)?,
                Side::Against => self.change(&self.plan.against)?,
                Side::Policy => self.change(&self.plan.policy)?,
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
            Some(Err(why)) => Err(Halt::Failed(format!("{why:#}"))),
            None => lock(&self.seen).counted().ok_or(Halt::Stopped),
        }
    }
}
