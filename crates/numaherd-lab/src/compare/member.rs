//! One program of a trial: set up, started, waited for, held back until time is modelled, and ended with all that it
//! has started. Every error names the program and the step, and shows the end of what it printed.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use numaherd_experiment::in_lab::{Ready, Source};
use numaherd_experiment::scenario::Program;
use numaherd_experiment::statistics::mean;
use numaherd_host::CgroupMoves;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use super::cgroup::Cgroup;
use super::launch::{LAUNCH, Launch, Running, Site, full, how, is_served, step};
use super::outcome::ProgramResult;
use super::peer::Peer;
use crate::held::{END_LIMIT, Held};

/// The shortest time that counts as a completion (chosen here): a program that ends sooner has done nothing that can
/// be compared.
const SHORTEST: Duration = Duration::from_millis(10);

/// How long a counter may take, and how much it may print in bytes (chosen here).
const COUNTER_LIMIT: Duration = Duration::from_secs(5);
const COUNTER_BYTES: u64 = 64 << 10;

/// A program of a trial.
#[derive(Debug)]
pub struct Member<'a> {
    launch: Launch<'a>,
    running: Running,
    moves: Option<CgroupMoves>,
    ended: Option<(ExitStatus, Instant)>,
}

/// What a program that waits prints at its end.
#[derive(Deserialize)]
struct Report {
    complete: bool,
    seconds: f64,
    threads: Vec<ReportThread>,
}

#[derive(Deserialize)]
struct ReportThread {
    seconds: f64,
    migrations: Option<u64>,
}

impl<'a> Member<'a> {
    /// Sets a program up and starts it: it is ready before the trial if it says when it is, and held back otherwise.
    /// `number` is that of its entry in the scenario; `peer` decides where its new pages go.
    ///
    /// # Errors
    /// A step fails.
    pub fn start(
        site: &'a Site<'a>,
        peer: &Peer<'_>,
        program: &'a Program,
        number: usize,
        copy: u32,
    ) -> Result<Self> {
        let launch = Launch::of(site, program, number, copy)?;
        launch.set_up(peer)?;
        let running = launch.start(peer)?;
        let mut member = Self {
            launch,
            running,
            moves: None,
            ended: None,
        };
        if program.lab.ready.is_some() {
            member.wait_until_ready()?;
        }
        Ok(member)
    }

    /// What messages call it.
    pub fn who(&self) -> &str {
        &self.launch.who
    }

    /// Counts from now on how often its threads are moved to another CPU. A program that waits counts that itself.
    pub fn count_moves(&mut self) {
        if !self.launch.program.lab.waits {
            // Where the kernel refuses, the figure is unknown.
            self.moves = CgroupMoves::count(self.cgroup().folder(), cpus()).ok();
        }
    }

    /// Waits until it is held back, if it starts with the trial; otherwise its readiness was awaited before.
    ///
    /// # Errors
    /// It ends instead, or takes too long.
    pub fn wait_until_held(&mut self) -> Result<()> {
        match self.launch.program.lab.ready {
            Some(_) => Ok(()),
            None => self.wait_until_ready(),
        }
    }

    /// Waits until it is ready, or is held back.
    fn wait_until_ready(&mut self) -> Result<()> {
        enum Seen {
            Ready,
            Ended(ExitStatus),
        }
        let (launch, limit) = (&self.launch, self.launch.site.limit);
        let (who, cgroup) = (&launch.who, &launch.cgroup);
        step(&format!("{who} is not ready"));
        let (begun, ready) = (Instant::now(), launch.program.lab.ready.as_ref());
        let file = match ready {
            Some(Ready::File(file)) => PathBuf::from(launch.placeholders().fill(file)),
            _ => launch.held.clone(),
        };
        let awaited = match ready {
            Some(Ready::Port(port)) => format!(" (port {})", launch.port(*port)),
            Some(Ready::File(_)) => format!(" (file {})", file.display()),
            Some(Ready::Line(line)) => format!(" (a line that matches {:?})", line.0.as_str()),
            Some(Ready::After(_)) | None => String::new(),
        };
        let heard = self.running.heard.clone();
        let seen = self.running.held.watch(limit, |process| {
            full(who, cgroup)?;
            let is_ready = match ready {
                Some(Ready::Port(port)) => is_served(launch.port(*port)),
                Some(Ready::Line(_)) => heard.is_ready(),
                Some(Ready::After(time)) => begun.elapsed() >= *time,
                Some(Ready::File(_)) | None => file.exists(),
            };
            if is_ready {
                return Ok(Some(Seen::Ready));
            }
            Ok(process.try_wait()?.map(Seen::Ended))
        })?;
        let how = match seen {
            Some(Seen::Ready) => return Ok(()),
            Some(Seen::Ended(status)) if status.success() && ready.is_some() => {
                let how = "ended before it was ready";
                format!("{how}{awaited}: start it so that it stays in the foreground")
            }
            Some(Seen::Ended(status)) => format!("{} before it was ready{awaited}", how(status)),
            None => format!("was not ready after {} s{awaited}", limit.as_secs()),
        };
        bail!("{who} {how}; {}", self.running.last_words(cgroup))
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.running.pid()
    }

    /// Its cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.launch.cgroup
    }

    /// Whether its end has been seen.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the trial goes on until it ends.
    pub fn is_awaited(&self) -> bool {
        let program = self.launch.program;
        let has_end = program.lab.ready.is_none() && !self.is_counted();
        program.measured && has_end && !self.has_ended()
    }

    /// Whether its operations are counted.
    pub fn is_counted(&self) -> bool {
        let program = self.launch.program;
        program.measured && matches!(program.lab.measure.from, Source::Counter(_))
    }

    /// Notes its end during the trial, if it has ended.
    ///
    /// # Errors
    /// It should not have ended, or not in this way.
    pub fn look(&mut self, now: Instant) -> Result<()> {
        let (who, cgroup) = (&self.launch.who, &self.launch.cgroup);
        full(who, cgroup)?;
        let Some(status) = self.running.held.process.try_wait()? else {
            return Ok(());
        };
        self.ended = Some((status, now));
        let instead = match self.launch.program.lab.ready {
            Some(_) => " during the trial, which it should outlast",
            None if !status.success() => "",
            None => return Ok(()),
        };
        bail!(
            "{who} {}{instead}; {}",
            how(status),
            self.running.last_words(cgroup)
        )
    }

    /// What its counter says now; `None` where nothing is counted.
    ///
    /// # Errors
    /// The command fails, takes too long, or prints anything but a number.
    pub fn counter(&self) -> Result<Option<f64>> {
        let launch = &self.launch;
        let Source::Counter(counter) = &launch.program.lab.measure.from else {
            return Ok(None);
        };
        let (who, limit) = (&launch.who, launch.site.limit.min(COUNTER_LIMIT));
        step(&format!("the counter of {who} has not ended"));
        let [out, err] = ["counted", "refused"].map(|name| launch.site.scratch.join(name));
        let words = counter.words(launch.placeholders(), []);
        let mut command = Command::new("sh");
        command
            .args(["-c", LAUNCH, "sh", "/dev/null", "", ""])
            .arg(launch.user())
            .args(&words)
            .env("PATH", launch.site.search_path)
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let started = Held::start(who.clone(), &mut command, PathBuf::new());
        let mut held = started.with_context(|| format!("cannot run the counter of {who}"))?;
        let ended = held.watch(limit, |process| {
            if [&out, &err].iter().any(|file| is_long(file)) {
                bail!("the counter of {who} prints without end: it must print one number");
            }
            Ok(process.try_wait()?)
        })?;
        let status =
            ended.with_context(|| format!("the counter of {who} had not ended after {limit:?}"))?;
        let said = |file: &Path| -> Result<String> {
            Ok(String::from_utf8_lossy(&fs::read(file)?).trim().to_owned())
        };
        if !status.success() {
            bail!("the counter of {who} {}: {}", how(status), said(&err)?);
        }
        let printed = said(&out)?;
        let shown: String = printed.chars().take(80).collect();
        let number = finite(&printed).with_context(|| {
            format!("the counter of {who} printed {shown:?}: it must print one number")
        })?;
        Ok(Some(number))
    }

    /// Asks it to end, if it has not.
    pub fn end(&self) {
        if !self.has_ended() {
            // It may have ended in between.
            let _ = kill_process_group(self.pid(), Signal::TERM);
        }
    }

    /// Waits for its end, kills what is left of it, and returns its result; `began` is the start of the trial,
    /// `per_second` the rate of its counter.
    ///
    /// # Errors
    /// It is measured, but has not done its work or not reported what is to be measured.
    pub fn finish(mut self, began: Instant, per_second: Option<f64>) -> Result<ProgramResult> {
        let ended_itself = self.ended;
        if ended_itself.is_none() {
            let ended = |process: &mut Child| Ok(process.try_wait()?);
            self.running.held.watch(END_LIMIT, ended)?;
        }
        self.running.kill(&self.launch.cgroup)?;
        let Launch {
            program, copy, who, ..
        } = &self.launch;
        let seconds = match ended_itself {
            Some((_, at)) => at.saturating_duration_since(began),
            None => began.elapsed(),
        };
        let mut result = ProgramResult {
            name: program.name.clone(),
            copy: *copy,
            measured: program.measured,
            seconds: seconds.as_secs_f64(),
            mean_thread_seconds: seconds.as_secs_f64(),
            complete: ended_itself.is_some(),
            thread_moves: self.moves.as_ref().and_then(|moves| moves.so_far().ok()),
            figure: None,
        };
        if program.lab.waits {
            self.take_report(&mut result)?;
        }
        if !program.measured {
            return Ok(result);
        }
        match &program.lab.measure.from {
            Source::Counter(_) => result.figure = per_second,
            Source::Output(pattern) => {
                let (pattern, ending) = (pattern.0.as_str(), self.running.heard.ending());
                let Some(figure) = self.running.heard.figure() else {
                    bail!(
                        "nothing that {who} printed matches {pattern:?}, its `measure`; {ending}"
                    );
                };
                let number = finite(&figure).with_context(|| {
                    format!(
                        "what matches {pattern:?} in what {who} printed is {figure:?}, not a number: put ( ) around \
                         the number in `measure`"
                    )
                })?;
                result.figure = Some(number);
            }
            Source::Completion if !result.complete => {
                bail!("{who} had not ended in time (`until`)")
            }
            Source::Completion if !program.lab.waits && seconds < SHORTEST => bail!(
                "{who} ended after {:.1} ms, too soon to compare anything: give it more to do, and start it so that \
                 it stays in the foreground; {}",
                seconds.as_secs_f64() * 1e3,
                self.running.heard.ending()
            ),
            Source::Completion => {}
        }
        Ok(result)
    }

    /// Takes over what a program that waits says of itself.
    fn take_report(&self, result: &mut ProgramResult) -> Result<()> {
        let (printed, who) = (self.running.heard.stdout(), &self.launch.who);
        let report: Report = match serde_json::from_str(&printed) {
            Ok(report) => report,
            Err(_) if !result.measured => return Ok(()),
            Err(error) => bail!(
                "{who} waits for its start (`waits`), but its result cannot be read: {error}; {}",
                self.running.heard.ending()
            ),
        };
        if result.measured && !report.complete {
            bail!("{who} was ended before its work was done");
        }
        result.seconds = report.seconds;
        result.mean_thread_seconds = mean(report.threads.iter().map(|thread| thread.seconds));
        result.complete = report.complete;
        result.thread_moves = report.threads.iter().map(|thread| thread.migrations).sum();
        Ok(())
    }
}

/// Whether a counter has printed more than it may into a file.
fn is_long(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.len() > COUNTER_BYTES)
}

/// The number that a text is, unless it is infinite.
fn finite(text: &str) -> Option<f64> {
    let number = text.parse().ok();
    number.filter(|number: &f64| number.is_finite())
}

/// The numbers of the guest's CPUs, which are all online.
fn cpus() -> Range<u32> {
    let count = available_parallelism().map_or(1, usize::from);
    0..u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
