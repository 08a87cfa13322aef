//! How a program of a trial is run: its set-up, its start in its own cgroup, and the resulting process.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use numaherd::print;
use numaherd_experiment::in_lab::{Placeholders, Ready, Source};
use numaherd_experiment::scenario::Program;
use numaherd_lab_launcher::Stream;
use rustix::process::{Pid, Signal, kill_process_group};

use super::cgroup::{Cgroup, Cgroups, MOST_TASKS};
use super::check::INSTALL;
use super::output::{Heard, Wanted};
use super::peer::Peer;
use crate::held::Held;

/// Begins each line in which a trial says what it waits for.
pub const STEP: &str = "step: ";

/// Enters the cgroup `$1`; if there is a file `$2` to create, creates it and waits for the end of the FIFO `$3`;
/// becomes the user `$4`, if any; becomes the program.
pub const LAUNCH: &str = r#"
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
    /// Their own directory.
    pub dir: &'a str,
    /// The `PATH` on which they are found.
    pub search_path: &'a OsStr,
    /// How long each step of a set-up may take.
    pub limit: Duration,
}

/// How a program is set up and started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What it shares with the others.
    pub site: &'a Site<'a>,
    /// Its entry in the scenario.
    pub program: &'a Program,
    /// The number of the copy, from 0.
    pub copy: u32,
    /// What messages call it.
    pub who: String,
    /// All that it starts is in here.
    pub cgroup: Cgroup,
    /// The file that it creates while it is held back.
    pub held: PathBuf,
}

/// A process, and what it prints.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub held: Held,
    /// What it has printed so far.
    pub heard: Heard,
    listeners: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(who: &str, command: &mut Command, ready: &Path, wanted: &Wanted) -> Result<Self> {
        let held = Held::start(who.to_owned(), command, ready.to_owned());
        let mut held = held.with_context(|| format!("cannot start {who}"))?;
        let heard = Heard::default();
        let (out, errors) = (held.process.stdout.take(), held.process.stderr.take());
        let out = out.map(|pipe| heard.listen(Stream::Stdout, pipe, wanted.clone()));
        let errors = errors.map(|pipe| heard.listen(Stream::Stderr, pipe, wanted.clone()));
        let listeners = out.into_iter().chain(errors).collect();
        Ok(Self {
            held,
            heard,
            listeners,
        })
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.held.process)
    }

    /// Kills it with all that it has started, and reads the rest of its output.
    ///
    /// # Errors
    /// It cannot be killed or waited for.
    pub fn kill(&mut self, cgroup: &Cgroup) -> Result<()> {
        cgroup.kill();
        // It may have no process left.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        self.held.finish()?;
        for listener in self.listeners.drain(..) {
            // One that has panicked has heard nothing.
            let _ = listener.join();
        }
        Ok(())
    }

    /// The end of its output, for a message. Kills the program first.
    pub fn last_words(&mut self, cgroup: &Cgroup) -> String {
        match self.kill(cgroup) {
            Ok(()) => self.heard.ending(),
            Err(error) => format!("it cannot be killed: {error:#}"),
        }
    }
}

impl<'a> Launch<'a> {
    /// The launch of the program with this number in the scenario.
    ///
    /// # Errors
    /// Its cgroup cannot be created.
    pub fn of(site: &'a Site<'a>, program: &'a Program, number: usize, copy: u32) -> Result<Self> {
        let name = format!("{number}.{copy}");
        Ok(Self {
            site,
            program,
            copy,
            who: format!("{} {copy}", program.name),
            cgroup: site.cgroups.of(&name)?,
            held: site.scratch.join(name + ".ready"),
        })
    }

    /// The values of `{copy}` and `{dir}`.
    pub fn placeholders(&self) -> Placeholders<'a> {
        Placeholders {
            copy: self.copy,
            dir: self.site.dir,
        }
    }

    /// The user's name; empty if none is named.
    pub fn user(&self) -> &'a str {
        self.program.lab.user.as_deref().unwrap_or_default()
    }

    /// The port of this copy.
    pub fn port(&self, first: u16) -> u16 {
        first.saturating_add(u16::try_from(self.copy).unwrap_or(u16::MAX))
    }

    /// Starts a command in the program's cgroup; holds it back if there is a file `held` to create.
    fn run(
        &self,
        peer: &Peer<'_>,
        words: &[String],
        held: Option<&Path>,
        wanted: &Wanted,
    ) -> Result<Running> {
        let mut command = Command::new("sh");
        command
            .args(["-c", LAUNCH, "sh"])
            .arg(self.cgroup.entrance())
            .arg(held.unwrap_or(Path::new("")))
            .arg(self.site.scratch.join("go"))
            .arg(self.user())
            .args(words)
            .env("PATH", self.site.search_path)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        peer.place_new_pages(&mut command)?;
        Running::start(&self.who, &mut command, &self.held, wanted)
    }

    /// Runs its set-up to the end, if it has one.
    ///
    /// # Errors
    /// It fails, or takes too long.
    pub fn set_up(&self, peer: &Peer<'_>) -> Result<()> {
        let Some(setup) = &self.program.lab.setup else {
            return Ok(());
        };
        let (who, limit) = (&self.who, self.site.limit);
        step(&format!("the setup of {who} has not ended"));
        let words = setup.words(self.placeholders(), []);
        let mut running = self.run(peer, &words, None, &Wanted::default())?;
        let status = running.held.watch(limit, |process| {
            full(who, &self.cgroup)?;
            Ok(process.try_wait()?)
        })?;
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let limit = limit.as_secs();
        let how = status.map_or_else(|| format!("had not ended after {limit} s"), how);
        bail!(
            "the setup of {who} {how}; {}",
            running.last_words(&self.cgroup)
        )
    }

    /// Starts its command: at once if it says when it is ready, held back otherwise.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, peer: &Peer<'_>) -> Result<Running> {
        let lab = &self.program.lab;
        let command = lab.command.as_ref().context("nothing runs in the lab")?;
        self.check_port()?;
        let further = match lab.waits {
            true => self.further_arguments(),
            false => Vec::new(),
        };
        let words = command.words(self.placeholders(), further);
        let held = (!lab.waits && lab.ready.is_none()).then_some(self.held.as_path());
        let wanted = Wanted {
            ready: match &lab.ready {
                Some(Ready::Line(pattern)) => Some(pattern.clone()),
                _ => None,
            },
            figure: match &lab.measure.from {
                Source::Output(pattern) => Some(pattern.clone()),
                _ => None,
            },
        };
        self.run(peer, &words, held, &wanted)
    }

    /// The further arguments of a program that waits.
    fn further_arguments(&self) -> Vec<String> {
        let mut further = self.program.placement(self.copy);
        further.push("--json".to_owned());
        let go = self.site.scratch.join("go");
        for (option, path) in [("--ready-file", &self.held), ("--go-file", &go)] {
            further.extend([option.to_owned(), path.display().to_string()]);
        }
        further
    }

    /// Refuses a port that another program serves.
    fn check_port(&self) -> Result<()> {
        let Some(Ready::Port(port)) = self.program.lab.ready else {
            return Ok(());
        };
        let (port, who) = (self.port(port), &self.who);
        if is_served(port) {
            bail!(
                "port {port} of {who} is taken before it starts: another program of the scenario serves it"
            );
        }
        Ok(())
    }
}

/// Kills a program that starts processes or threads without end.
///
/// # Errors
/// It was such a program.
pub fn full(who: &str, cgroup: &Cgroup) -> Result<()> {
    if cgroup.was_full() {
        cgroup.kill();
        bail!(
            "{who} has more than {MOST_TASKS} processes and threads at once, as many as the lab allows a program"
        );
    }
    Ok(())
}

/// Whether a program serves a port.
pub fn is_served(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// How a process ended, in words.
pub fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(127), _) => format!(
            "ended with exit code 127, as a shell does where it finds no such program ({INSTALL})"
        ),
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(9)) => "was killed (signal 9; where nobody did, memory ran out)".to_owned(),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}
