//! One program of a trial: set up, started, waited for, held back until time is modelled, and ended with all that it
//! has started. Whatever goes wrong is said with the program's name, the step, and the end of what it printed.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use numaherd::print;
use numaherd_experiment::in_lab::{Copy, Ready, Source};
use numaherd_experiment::scenario::Program;
use numaherd_experiment::statistics::mean;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use super::cgroup::{Cgroup, Cgroups, MOST_TASKS};
use super::outcome::ProgramResult;
use super::output::{Heard, Stream, Wanted};
use super::peer::Peer;
use crate::held::{END_LIMIT, Held};

/// Begins each line in which a trial says what it waits for.
pub const STEP: &str = "step: ";
/// The shortest time that counts as a completion (chosen here): a program that ends sooner has done nothing that can
/// be compared.
const SHORTEST: Duration = Duration::from_millis(10);

/// Enters the cgroup `$1`; if there is a file `$2` to create, creates it and waits for the end of the FIFO `$3`;
/// becomes the user `$4`, if any; becomes the program.
const LAUNCH: &str = r#"
echo $$ >"$1" || exit
if [ -n "$2" ]; then : >"$2"; read -r _ <"$3"; fi
user=$4; shift 4
if [ -n "$user" ]; then
    HOME=$(getent passwd "$user" | cut -d: -f6) && export HOME || exit
    set -- setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups -- "$@"
fi
exec "$@"
"#;

/// Says what the trial waits for now.
pub fn step(what: &str) {
    print::aside(&format!("{STEP}{what}\n"));
}

/// What all programs of a trial share.
#[derive(Debug)]
pub struct Site<'a> {
    /// Their cgroups.
    pub cgroups: &'a Cgroups,
    /// The directory with the FIFO `go`, whose closing starts them.
    pub scratch: &'a Path,
    /// The directory that they have for themselves.
    pub dir: &'a str,
    /// Where they are looked for.
    pub search_path: &'a OsStr,
    /// How long each step of a set-up may take.
    pub limit: Duration,
}

/// A program of a trial.
#[derive(Debug)]
pub struct Member<'a> {
    program: &'a Program,
    copy: u32,
    dir: &'a str,
    user: &'a str,
    search_path: &'a OsStr,
    /// What messages call it.
    pub who: String,
    running: Running,
    cgroup: Cgroup,
    limit: Duration,
    ended: Option<(ExitStatus, Instant)>,
}

/// A process, and what it prints.
#[derive(Debug)]
struct Running {
    held: Held,
    heard: Heard,
    listeners: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(who: &str, command: &mut Command, ready: &Path, wanted: &Wanted) -> Result<Self> {
        let held = Held::start(who.to_owned(), command, ready.to_owned());
        let mut held = held.with_context(|| format!("cannot start {who}"))?;
        let heard = Heard::default();
        let (out, errors) = (held.process.stdout.take(), held.process.stderr.take());
        let out = out.map(|pipe| heard.listen(Stream::Out, pipe, wanted.clone()));
        let errors = errors.map(|pipe| heard.listen(Stream::Error, pipe, wanted.clone()));
        let listeners = out.into_iter().chain(errors).collect();
        Ok(Self {
            held,
            heard,
            listeners,
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.held.process)
    }

    /// Kills it with all that it has started, and hears the last of it.
    fn kill(&mut self, cgroup: &Cgroup) -> Result<()> {
        cgroup.kill();
        // Nobody may be left of it.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        self.held.finish()?;
        for listener in self.listeners.drain(..) {
            // One that has panicked has heard nothing.
            let _ = listener.join();
        }
        Ok(())
    }

    /// For a message: how its output ends. It is killed for that.
    fn last_words(&mut self, cgroup: &Cgroup) -> String {
        match self.kill(cgroup) {
            Ok(()) => self.heard.ending(),
            Err(error) => format!("it cannot be killed: {error:#}"),
        }
    }
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
    /// Sets a program up and starts it: to be ready before the trial if it says when it is, held back otherwise.
    /// `number` is that of its entry in the scenario; where its new pages go, the peer says.
    ///
    /// # Errors
    /// A step fails.
    pub fn start(
        site: &Site<'a>,
        peer: &Peer<'_>,
        program: &'a Program,
        number: usize,
        copy: u32,
    ) -> Result<Self> {
        let who = format!("{} {copy}", program.name);
        let lab = &program.lab;
        let command = lab.command.as_ref().context("nothing runs in the lab")?;
        let cgroup = site.cgroups.of(&format!("{number}.{copy}"))?;
        let user = lab.user.as_deref().unwrap_or_default();
        let filled = Copy {
            number: copy,
            dir: site.dir,
        };
        let launch = |held: Option<&Path>, words: &[String]| {
            let mut command = Command::new("sh");
            command
                .args(["-c", LAUNCH, "sh"])
                .arg(cgroup.entrance())
                .arg(held.unwrap_or(Path::new("")))
                .arg(site.scratch.join("go"))
                .arg(user)
                .args(words)
                .env("PATH", site.search_path)
                .process_group(0)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            peer.place_new_pages(&mut command)?;
            anyhow::Ok(command)
        };
        let ready = site.scratch.join(format!("{number}.{copy}.ready"));
        if let Some(setup) = &lab.setup {
            step(&format!("the setup of {who} has not ended"));
            let mut command = launch(None, &setup.words(filled, []))?;
            let mut running = Running::start(&who, &mut command, &ready, &Wanted::default())?;
            let status = running.held.watch(site.limit, |process| {
                full(&who, &cgroup)?;
                Ok(process.try_wait()?)
            })?;
            if !status.is_some_and(|status| status.success()) {
                let limit = site.limit.as_secs();
                let how = status.map_or_else(|| format!("had not ended after {limit} s"), how);
                bail!("the setup of {who} {how}; {}", running.last_words(&cgroup));
            }
        }
        let (mut words, mut hold) = (command.words(filled, []), None);
        if lab.waits {
            let mut further = program.placement(copy);
            let paths = [
                ("--ready-file", &ready),
                ("--go-file", &site.scratch.join("go")),
            ];
            further.push("--json".to_owned());
            for (option, path) in paths {
                further.extend([option.to_owned(), path.display().to_string()]);
            }
            words = command.words(filled, further);
        } else if lab.ready.is_none() {
            hold = Some(ready.as_path());
        }
        if let Some(Ready::Port(port)) = lab.ready {
            let port = port_of(port, copy);
            if is_served(port) {
                bail!(
                    "port {port} of {who} is taken before it starts: another program of the scenario serves it; the \
                     number of the copy is added to the port of `ready`"
                );
            }
        }
        let wanted = Wanted {
            ready: match &lab.ready {
                Some(Ready::Line(pattern)) => Some(pattern.clone()),
                _ => None,
            },
            figure: match &program.lab.measure.from {
                Source::Output(pattern) => Some(pattern.clone()),
                _ => None,
            },
        };
        let running = Running::start(&who, &mut launch(hold, &words)?, &ready, &wanted)?;
        let mut member = Self {
            program,
            copy,
            dir: site.dir,
            user,
            search_path: site.search_path,
            who,
            running,
            cgroup,
            limit: site.limit,
            ended: None,
        };
        if lab.ready.is_some() {
            member.wait_until_ready()?;
        }
        Ok(member)
    }

    fn filled(&self) -> Copy<'_> {
        Copy {
            number: self.copy,
            dir: self.dir,
        }
    }

    /// Waits until it is held back, if it starts with the trial; one that is ready before it has been waited for.
    ///
    /// # Errors
    /// It ends instead, or takes too long.
    pub fn wait_until_held(&mut self) -> Result<()> {
        match self.program.lab.ready {
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
        let (who, copy, cgroup) = (&self.who, self.copy, &self.cgroup);
        step(&format!("{who} is not ready"));
        let (begun, ready) = (Instant::now(), self.program.lab.ready.as_ref());
        let file = match ready {
            Some(Ready::File(file)) => PathBuf::from(self.filled().fill(file)),
            _ => self.running.held.ready.clone(),
        };
        let awaited = match ready {
            Some(Ready::Port(port)) => format!(" (port {})", port_of(*port, copy)),
            Some(Ready::File(_)) => format!(" (file {})", file.display()),
            Some(Ready::Line(line)) => format!(" (a line that matches {:?})", line.0.as_str()),
            Some(Ready::After(_)) | None => String::new(),
        };
        let heard = self.running.heard.clone();
        let seen = self.running.held.watch(self.limit, |process| {
            full(who, cgroup)?;
            let is_ready = match ready {
                Some(Ready::Port(port)) => is_served(port_of(*port, copy)),
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
            None => format!("was not ready after {} s{awaited}", self.limit.as_secs()),
        };
        bail!("{who} {how}; {}", self.running.last_words(cgroup))
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.running.pid()
    }

    /// Its cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Whether it has been seen to have ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the trial goes on until it ends.
    pub fn is_awaited(&self) -> bool {
        let has_end = self.program.lab.ready.is_none() && !self.is_counted();
        self.program.measured && has_end && !self.has_ended()
    }

    /// Whether its operations are counted.
    pub fn is_counted(&self) -> bool {
        self.program.measured && matches!(self.program.lab.measure.from, Source::Counter(_))
    }

    /// Takes note of its end during the trial, if that has come.
    ///
    /// # Errors
    /// It should not have ended, or not so.
    pub fn look(&mut self, now: Instant) -> Result<()> {
        let who = &self.who;
        full(who, &self.cgroup)?;
        let Some(status) = self.running.held.process.try_wait()? else {
            return Ok(());
        };
        self.ended = Some((status, now));
        let instead = match self.program.lab.ready {
            Some(_) => " during the trial, which it should outlast",
            None if !status.success() => "",
            None => return Ok(()),
        };
        bail!(
            "{who} {}{instead}; {}",
            how(status),
            self.running.last_words(&self.cgroup)
        )
    }

    /// What its counter says now; `None` where nothing is counted.
    ///
    /// # Errors
    /// The command fails, or prints no number.
    pub fn counter(&self) -> Result<Option<f64>> {
        let Source::Counter(counter) = &self.program.lab.measure.from else {
            return Ok(None);
        };
        let who = &self.who;
        let words = counter.words(self.filled(), []);
        let output = Command::new("sh")
            .args(["-c", LAUNCH, "sh", "/dev/null", "", ""])
            .arg(self.user)
            .args(&words)
            .env("PATH", self.search_path)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run the counter of {who}"))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "the counter of {who} {}: {}",
                how(output.status),
                said.trim()
            );
        }
        let number = printed
            .trim()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite());
        let shown: String = printed.trim().chars().take(80).collect();
        let number = number.with_context(|| {
            format!("the counter of {who} printed {shown:?}: it must print one number")
        })?;
        Ok(Some(number))
    }

    /// Asks it to end, if it has not.
    pub fn end(&self) {
        if !self.has_ended() {
            // Ended in between: nobody to ask.
            let _ = kill_process_group(self.pid(), Signal::TERM);
        }
    }

    /// Waits for its end, kills what is left of it, and gives its result; `began` is when the trial did, `per_second`
    /// what its counter came to.
    ///
    /// # Errors
    /// It is measured, and has not done its work or not said what is to be measured.
    pub fn finish(mut self, began: Instant, per_second: Option<f64>) -> Result<ProgramResult> {
        let ended_itself = self.ended;
        if ended_itself.is_none() {
            let ended = |process: &mut Child| Ok(process.try_wait()?);
            self.running.held.watch(END_LIMIT, ended)?;
        }
        self.running.kill(&self.cgroup)?;
        let seconds = match ended_itself {
            Some((_, at)) => at.saturating_duration_since(began),
            None => began.elapsed(),
        };
        let mut result = ProgramResult {
            name: self.program.name.clone(),
            copy: self.copy,
            measured: self.program.measured,
            seconds: seconds.as_secs_f64(),
            mean_thread_seconds: seconds.as_secs_f64(),
            complete: ended_itself.is_some(),
            thread_moves: None,
            figure: None,
        };
        if self.program.lab.waits {
            self.take_report(&mut result)?;
        }
        if !self.program.measured {
            return Ok(result);
        }
        let who = &self.who;
        match &self.program.lab.measure.from {
            Source::Counter(_) => result.figure = per_second,
            Source::Output(pattern) => {
                let (pattern, ending) = (pattern.0.as_str(), self.running.heard.ending());
                let Some(figure) = self.running.heard.figure() else {
                    bail!(
                        "nothing that {who} printed matches {pattern:?}, its `measure`; {ending}"
                    );
                };
                let number = figure
                    .parse()
                    .ok()
                    .filter(|number: &f64| number.is_finite());
                let number = number.with_context(|| {
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
            Source::Completion if !self.program.lab.waits && seconds < SHORTEST => bail!(
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
        let printed = self.running.heard.stdout();
        let who = &self.who;
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

/// Refuses what starts processes or threads without end.
fn full(who: &str, cgroup: &Cgroup) -> Result<()> {
    if cgroup.was_full() {
        cgroup.kill();
        bail!(
            "{who} has more than {MOST_TASKS} processes and threads at once, as many as the lab allows a program"
        );
    }
    Ok(())
}

fn port_of(port: u16, copy: u32) -> u16 {
    port.saturating_add(u16::try_from(copy).unwrap_or(u16::MAX))
}

/// Whether somebody serves a port.
fn is_served(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// How a process ended, in words.
fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(9)) => "was killed (signal 9; where nobody did, memory ran out)".to_owned(),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
