//! What places threads and pages in a trial beside our own policies: the kernel in several settings, and programs of
//! others. Inside the guest, each is set up before time is modelled, and in effect until its [`Peer`] is dropped. A
//! peer that cannot run there gives the reason.
//!
//! Of the kernel's own means, only those that a peer is named after are on, for the whole guest: NUMA balancing, or
//! that and cache-aware scheduling. Other peers and our policies run with both off, `@balancing` with the first on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use numaherd::print;
use numaherd_experiment::scenario::{
    BEST_KNOWN, INTERLEAVE, LINUX_BALANCING, LINUX_CACHE_AWARE, NUMAD, Ours, SCHED_EXT,
    WEIGHTED_INTERLEAVE,
};
use numaherd_host::{SCX_LAYERED, Scheduler, start_with_new_pages, start_with_weighted_interleave};
use numaherd_topology::{Topology, sysfs};
use numaherd_world::{Enforcement, NewPages};

use super::BASELINE;
use crate::held::{Held, SETUP_LIMIT};
use crate::lab;

/// Kernel files of the guest, below its root.
const BALANCING: &str = "proc/sys/kernel/numa_balancing";
const CACHE_AWARE: &str = "sys/kernel/debug/sched/llc_balancing/enabled";
const WEIGHTS: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
const SCHED_EXT_STATE: &str = "sys/kernel/sched_ext/state";

/// How many lines of the output of a peer's program a message shows.
const SHOWN_LINES: usize = 3;

/// Where peers find what they need.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// The guest's root.
    pub root: PathBuf,
    /// The programs of others.
    pub programs: PathBuf,
    /// The weight of each node under weighted interleaving, in the order of their numbers.
    pub weights: Vec<u32>,
}

/// What places threads and pages in a trial, by its name.
#[derive(Debug)]
pub struct Peer<'a> {
    name: &'a str,
    ground: &'a Ground,
    program: Program,
}

/// The program that a peer consists of, if any.
#[derive(Debug)]
enum Program {
    None,
    Numad,
    Scheduler {
        process: Held,
        printed: PathBuf,
    },
    /// The scheduler that takes the hints of our policy; it ends when this is dropped.
    Hinted(#[expect(dead_code, reason = "held for as long as it is to run")] Scheduler),
}

/// The weight of each node under weighted interleaving: its bandwidth in whole multiples of the smallest (chosen here;
/// the kernel takes 1 to 255). All are 1 where the machine does not say.
pub fn weights(machine: &Topology) -> Vec<u32> {
    let nodes = machine.nodes().iter();
    let bandwidths = machine.timing().node_gb_per_s.as_deref();
    let of_node = |at: usize| bandwidths.map_or(1.0, |of| of[at]);
    let bandwidths = nodes.enumerate().map(|(at, node)| match node.memory_bytes {
        // A node without memory gets no pages, whatever its weight.
        0 => f64::INFINITY,
        _ => of_node(at),
    });
    let bandwidths: Vec<f64> = bandwidths.collect();
    let smallest = bandwidths.iter().copied().fold(f64::INFINITY, f64::min);
    let weight = |of: &f64| match of.is_finite() {
        true => (of / smallest).round().clamp(1.0, 255.0) as u32,
        false => 1,
    };
    bandwidths.iter().map(weight).collect()
}

impl<'a> Peer<'a> {
    /// The peer of this name, if it can run here. Neither it nor anything of the kernel's is in effect yet.
    ///
    /// # Errors
    /// It cannot run here: the message says what is missing.
    pub fn of(name: &'a str, ground: &'a Ground) -> Result<Self> {
        let peer = Self {
            name,
            ground,
            program: Program::None,
        };
        let needs = |file: &str, what: &str| {
            let file = ground.root.join(file);
            if file.exists() {
                return Ok(());
            }
            let linux = kernel(&ground.root);
            bail!("Linux {linux} has no {what} (it has no {})", file.display())
        };
        match name {
            LINUX_CACHE_AWARE => needs(CACHE_AWARE, "cache-aware scheduling")?,
            WEIGHTED_INTERLEAVE => needs(WEIGHTS, "weighted interleaving")?,
            NUMAD if lab::is_missing(Path::new(NUMAD)).is_some() => {
                bail!("there is no program numad; `make setup` installs it")
            }
            _ => {
                if let Some(scheduler) = peer.scheduler() {
                    needs(SCHED_EXT_STATE, "sched_ext")?;
                    let program = ground.programs.join(scheduler);
                    if !program.is_file() {
                        let program = program.display();
                        bail!(
                            "{program} is missing; `scripts/setup.sh peers {scheduler}` builds it"
                        );
                    }
                }
            }
        }
        Ok(peer)
    }

    /// Before programs are set up: turns off what the kernel would do by itself, and sets what programs start with.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn prepare(&self) -> Result<()> {
        self.turn_on(&[])?;
        if self.name != WEIGHTED_INTERLEAVE {
            return Ok(());
        }
        for (node, weight) in self.ground.weights.iter().enumerate() {
            let file = format!("{WEIGHTS}/node{node}");
            // A node without memory may have no weight.
            if self.ground.root.join(&file).exists() {
                self.write(&file, &weight.to_string())?;
            }
        }
        Ok(())
    }

    /// The program of sched_ext that it needs, if any.
    fn scheduler(&self) -> Option<&'a str> {
        match (
            SCHED_EXT.contains(&self.name),
            Ours::of(self.name).enforcement,
        ) {
            (true, _) => Some(self.name),
            (false, Enforcement::Scx) => Some(SCX_LAYERED),
            (false, Enforcement::Affinity) => None,
        }
    }

    fn program(&self) -> PathBuf {
        self.ground
            .programs
            .join(self.scheduler().unwrap_or(self.name))
    }

    /// The options of a scheduler: none, except for layered, which does nothing without its example layers.
    fn options(&self) -> &'static [&'static str] {
        match self.name {
            "scx_layered" => &["--run-example"],
            _ => &[],
        }
    }

    /// Sets where the new pages of a program that is about to start go, and those of what it starts.
    ///
    /// # Errors
    /// The nodes of the guest cannot be read.
    pub fn place_new_pages(&self, command: &mut Command) -> Result<()> {
        let topology = || sysfs::read(&self.ground.root).context("cannot read the guest's nodes");
        match self.name {
            INTERLEAVE => start_with_new_pages(command, NewPages::Interleave, &topology()?)?,
            WEIGHTED_INTERLEAVE => start_with_weighted_interleave(command, &topology()?),
            _ => {}
        }
        Ok(())
    }

    /// Puts it into effect. What its program prints goes to a file in `scratch`.
    ///
    /// # Errors
    /// The kernel refuses it, or its program does not start.
    pub fn start(&mut self, scratch: &Path) -> Result<()> {
        self.turn_on(match self.name {
            LINUX_BALANCING => &[BALANCING],
            LINUX_CACHE_AWARE => &[BALANCING, CACHE_AWARE],
            name if Ours::of(name).balancing => &[BALANCING],
            _ => &[],
        })?;
        match self.name {
            NUMAD => {
                let status = Command::new(NUMAD).stdin(Stdio::null()).status();
                let status = status.context("cannot run numad")?;
                if !status.success() {
                    bail!("numad did not start: {status}");
                }
                self.program = Program::Numad;
            }
            name if SCHED_EXT.contains(&name) => self.start_scheduler(scratch)?,
            _ if self.scheduler().is_some() => {
                let root = &self.ground.root;
                let topology = sysfs::read(root).context("cannot read the guest's nodes")?;
                // `numaherd run` finds it: it would start its own in modelled time, which passes slowly.
                let (scheduler, _) = Scheduler::start(root, &topology, &self.program())?;
                self.program = Program::Hinted(scheduler);
            }
            _ => {}
        }
        Ok(())
    }

    fn start_scheduler(&mut self, scratch: &Path) -> Result<()> {
        let name = self.name;
        let printed = scratch.join("peer");
        let output = File::create(&printed)
            .with_context(|| format!("cannot create {}", printed.display()))?;
        let mut command = Command::new(self.program());
        command.args(self.options()).stderr(output.try_clone()?);
        command.env("RUST_BACKTRACE", "0");
        let process = Held::start(name.to_owned(), command.stdout(output), printed.clone());
        let mut process = process.with_context(|| format!("cannot start {name}"))?;
        let enabled = process.watch(SETUP_LIMIT, |process| {
            if is_enabled(&self.ground.root) {
                return Ok(Some(()));
            }
            match process.try_wait()? {
                Some(status) => Err(anyhow!("{name} did not start ({status})")),
                None => Ok(None),
            }
        });
        let limit = SETUP_LIMIT.as_secs();
        enabled
            .and_then(|enabled| {
                enabled.with_context(|| format!("{name} had not started after {limit} s"))
            })
            .map_err(|error| anyhow!("{error:#}; {}", last_words(&printed)))?;
        self.program = Program::Scheduler { process, printed };
        Ok(())
    }

    /// Checks that it was in effect until the end of a trial.
    ///
    /// # Errors
    /// It was not.
    pub fn check(&mut self) -> Result<()> {
        let (process, printed) = match &mut self.program {
            Program::Scheduler { process, printed } => (process, printed),
            Program::Hinted(_) if !is_enabled(&self.ground.root) => {
                bail!("{SCX_LAYERED} ended during the trial")
            }
            Program::None | Program::Numad | Program::Hinted(_) => return Ok(()),
        };
        if process.process.try_wait()?.is_none() && is_enabled(&self.ground.root) {
            return Ok(());
        }
        let name = self.name;
        bail!("{name} ended during the trial; {}", last_words(printed))
    }

    /// Its version and settings, for people; `None` if the kernel's version and its name say all.
    pub fn settings(&self) -> Option<String> {
        let shown = match self.name {
            BASELINE => return None,
            LINUX_BALANCING => "NUMA balancing on".to_owned(),
            LINUX_CACHE_AWARE => "NUMA balancing and cache-aware scheduling on".to_owned(),
            INTERLEAVE => "programs start with MPOL_INTERLEAVE over all nodes".to_owned(),
            WEIGHTED_INTERLEAVE => {
                let weights = self.ground.weights.iter().map(u32::to_string);
                let weights = weights.collect::<Vec<_>>().join(", ");
                format!("programs start with MPOL_WEIGHTED_INTERLEAVE, weights {weights}")
            }
            NUMAD => format!("{}, without options", version(Path::new(NUMAD), "-V")),
            BEST_KNOWN => "the placement that the scenario gives (`best_on`)".to_owned(),
            scheduler if SCHED_EXT.contains(&scheduler) => {
                let version = version(&self.program(), "--version");
                match self.options() {
                    [] => format!("{version}, without options"),
                    options => format!("{version}, {}", options.join(" ")),
                }
            }
            _ => {
                let ours = concat!("numaherd ", env!("CARGO_PKG_VERSION"));
                match self.scheduler() {
                    None if Ours::of(self.name).balancing => format!("{ours}, NUMA balancing on"),
                    None => ours.to_owned(),
                    Some(scheduler) => {
                        let version = version(&self.program(), "--version");
                        format!("{ours}, placements by hints to {scheduler} {version}")
                    }
                }
            }
        };
        Some(shown)
    }

    /// Turns these of NUMA balancing and cache-aware scheduling on, and the others off. A kernel may not have the latter.
    fn turn_on(&self, files: &[&str]) -> Result<()> {
        for file in [BALANCING, CACHE_AWARE] {
            if file == BALANCING || self.ground.root.join(file).exists() {
                self.write(file, if files.contains(&file) { "1" } else { "0" })?;
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let file = self.ground.root.join(file);
        fs::write(&file, value).with_context(|| format!("cannot set {}", file.display()))
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        match &mut self.program {
            // The scheduler for hints ends by itself when it is dropped.
            Program::None | Program::Hinted(_) => {}
            Program::Numad => {
                // `-i 0` tells the running numad to end. If it stays, it interferes with the next trial in this
                // guest, so a message says so.
                let ended = Command::new(NUMAD)
                    .args(["-i", "0"])
                    .stdin(Stdio::null())
                    .status();
                if !ended.is_ok_and(|status| status.success()) {
                    print::say("numad did not end as `numad -i 0` asked it to");
                }
            }
            Program::Scheduler { process, .. } => {
                // The kernel takes over when this process has ended; `finish` kills one that does not.
                let _ = process.end();
                let _ = process.finish();
            }
        }
    }
}

fn kernel(root: &Path) -> String {
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease"));
    release.unwrap_or_default().trim().to_owned()
}

fn is_enabled(root: &Path) -> bool {
    let state = fs::read_to_string(root.join(SCHED_EXT_STATE));
    state.is_ok_and(|state| state.trim() == "enabled")
}

/// The version that a program reports: the first word that begins with a digit.
fn version(program: &Path, option: &str) -> String {
    let output = Command::new(program)
        .arg(option)
        .stdin(Stdio::null())
        .output();
    let output = output.map(|output| [output.stdout, output.stderr].concat());
    let output = output.unwrap_or_default();
    let printed = String::from_utf8_lossy(&output);
    let mut words = printed.split([' ', ':', ',', '\n']);
    let version = words.find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    version.map_or_else(
        || "version unknown".to_owned(),
        |version| format!("version {version}"),
    )
}

/// The end of what it printed, for a message.
fn last_words(printed: &Path) -> String {
    let text = fs::read(printed).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().rev().filter(|line| !line.trim().is_empty());
    let mut lines: Vec<&str> = lines.take(SHOWN_LINES).collect();
    lines.reverse();
    match lines[..] {
        [] => "it printed nothing".to_owned(),
        _ => format!("it printed:\n{}", lines.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use numaherd_topology::Machine;
    use tempfile::TempDir;

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// A guest with an old Linux, which lacks all that is new.
    fn guest() -> (TempDir, Ground) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/sys/kernel/osrelease", "6.1.0\n");
        write(root.path(), BALANCING, "1");
        let ground = Ground {
            root: root.path().to_owned(),
            programs: root.path().join("programs"),
            weights: vec![2, 1, 1],
        };
        (root, ground)
    }

    #[track_caller]
    fn refused(name: &str, ground: &Ground, told: &str) {
        let refused = Peer::of(name, ground).unwrap_err().to_string();
        let refused = refused.replace(&ground.root.display().to_string(), "");
        assert_eq!(refused, told, "{name}");
    }

    #[test]
    fn what_cannot_run_says_what_is_missing() {
        let (root, ground) = guest();
        refused(
            "linux-cache-aware",
            &ground,
            "Linux 6.1.0 has no cache-aware scheduling (it has no /sys/kernel/debug/sched/llc_balancing/enabled)",
        );
        refused(
            "weighted-interleave",
            &ground,
            "Linux 6.1.0 has no weighted interleaving (it has no /sys/kernel/mm/mempolicy/weighted_interleave)",
        );
        refused(
            "scx_rusty",
            &ground,
            "Linux 6.1.0 has no sched_ext (it has no /sys/kernel/sched_ext/state)",
        );
        write(root.path(), SCHED_EXT_STATE, "disabled\n");
        refused(
            "scx_rusty",
            &ground,
            "/programs/scx_rusty is missing; `scripts/setup.sh peers scx_rusty` builds it",
        );
        for name in [
            "linux",
            "linux-balancing",
            "interleave",
            "best-known",
            "dino",
        ] {
            Peer::of(name, &ground).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn the_kernel_does_by_itself_what_the_name_says_and_only_once_programs_are_set_up() {
        let (root, ground) = guest();
        write(root.path(), CACHE_AWARE, "1");
        let kernel = || {
            [BALANCING, CACHE_AWARE].map(|file| fs::read_to_string(root.path().join(file)).unwrap())
        };
        for (name, balancing, cache_aware) in [
            ("linux-balancing", "1", "0"),
            ("linux-cache-aware", "1", "1"),
            ("linux", "0", "0"),
            ("interleave", "0", "0"),
            ("dino", "0", "0"),
            ("dino@balancing", "1", "0"),
        ] {
            let mut peer = Peer::of(name, &ground).unwrap();
            peer.prepare().unwrap();
            assert_eq!(kernel(), ["0", "0"], "{name}");
            peer.start(root.path()).unwrap();
            assert_eq!(kernel(), [balancing, cache_aware], "{name}");
        }
    }

    #[test]
    fn nodes_are_weighted_by_their_bandwidth() {
        let weights = |machine| weights(&Machine::find(machine).unwrap().topology().unwrap());
        assert_eq!(weights("lab-uneven"), [2, 1, 1, 2], "node 1 has no memory");
        assert_eq!(weights("lab-4x2"), [1; 4]);
        let (root, ground) = guest();
        // The second node has no memory, and no weight.
        let of_node = |node| format!("{WEIGHTS}/node{node}");
        write(root.path(), &of_node(0), "1");
        write(root.path(), &of_node(2), "7");
        let peer = Peer::of("weighted-interleave", &ground).unwrap();
        peer.prepare().unwrap();
        let weight = |node| fs::read_to_string(root.path().join(of_node(node))).ok();
        let set = [0, 1, 2].map(weight);
        assert_eq!(set, [Some("2".to_owned()), None, Some("1".to_owned())]);
        assert_eq!(
            peer.settings().as_deref(),
            Some("programs start with MPOL_WEIGHTED_INTERLEAVE, weights 2, 1, 1")
        );
    }

    /// A guest whose sched_ext has a scheduler that does as a script says.
    fn with_scheduler(script: &str) -> (TempDir, Ground) {
        let (root, ground) = guest();
        write(root.path(), SCHED_EXT_STATE, "disabled\n");
        write(
            root.path(),
            "programs/scx_rusty",
            &format!("#!/bin/sh\n{script}\n"),
        );
        let program = ground.programs.join("scx_rusty");
        fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
        (root, ground)
    }

    #[test]
    fn a_scheduler_is_in_effect_until_it_is_dropped() {
        let (root, ground) = with_scheduler(
            "cd \"$(dirname \"$0\")\"/..
             if [ \"$1\" = --version ]; then echo 'scx_rusty: 1.1.4 x86_64'; exit; fi
             sleep 1000 &
             trap 'kill $!; echo disabled >sys/kernel/sched_ext/state; exit' TERM
             echo enabled >sys/kernel/sched_ext/state
             wait",
        );
        let mut peer = Peer::of("scx_rusty", &ground).unwrap();
        peer.start(root.path()).unwrap();
        assert!(is_enabled(&ground.root));
        peer.check().unwrap();
        assert_eq!(
            peer.settings().as_deref(),
            Some("version 1.1.4, without options")
        );
        // Ended by the kernel, for instance because a task was not run for too long.
        write(root.path(), SCHED_EXT_STATE, "disabled\n");
        let told = peer.check().unwrap_err().to_string();
        assert_eq!(told, "scx_rusty ended during the trial; it printed nothing");
        write(root.path(), SCHED_EXT_STATE, "enabled\n");
        drop(peer);
        assert!(!is_enabled(&ground.root));
    }

    #[test]
    fn a_scheduler_that_does_not_start_is_told_with_what_it_printed() {
        let (root, ground) = with_scheduler("echo libbpf: no BTF >&2; exit 3");
        let mut peer = Peer::of("scx_rusty", &ground).unwrap();
        let told = format!("{:#}", peer.start(root.path()).unwrap_err());
        assert_eq!(
            told,
            "scx_rusty did not start (exit status: 3); it printed:\nlibbpf: no BTF"
        );
    }
}
