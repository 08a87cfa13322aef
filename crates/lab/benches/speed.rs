//! Speed of the lab: accesses modelled per second of the host's CPU time, and what a modelled second costs, beside
//! cachegrind, which simulates two levels of one core's caches, without memory, coherence and time.
//!
//! The single programs are `speed.c`, the same under both; devils-on-one-node is the scenario's, shorter. CPU time is
//! that of QEMU with its plugin, or of valgrind, user and system, as the kernel accounts it: other load on the host
//! changes it less than the time on the wall. The lab's begins when the model is switched on, so that booting is left
//! out. Each figure is of all rounds together.
//!
//! `cargo bench -p numaherd-lab-launcher --bench speed [-- --before PLUGIN] [--rounds N] [--only NAME]
//! [--kernel-accesses on]`, after `scripts/build.sh guest`. `--before` measures another build of the plugin (its whole
//! path) in turns with the one that is there. With `--kernel-accesses on`, only the one that is there models the accesses
//! of the kernel, too.

use std::path::{Path, PathBuf};
use std::process;

use numaherd_lab_launcher::{Command, Error, Guest, KernelFiles, Options, machine, on_path};
use numaherd_topology::Machine;

/// What is measured: a name and a line for the shell, in which `speed` and `menagerie` are the programs' paths.
const PROGRAMS: [(&str, &str); 5] = [
    ("copy", "speed copy 48"),
    ("sort", "speed sort 8"),
    ("stream", "speed stream 24"),
    ("chase", "speed chase 12"),
    (
        "devils-on-one-node",
        "for i in 1 2 3 4; do menagerie compute --seconds 3600 & loops=\"$loops $!\"; done; \
         for i in 1 2 3 4; do menagerie chase --working-set 16MiB --home 0 --start-cpu any --rounds 12 --seed $i & \
         chases=\"$chases $!\"; done; wait $chases; kill $loops",
    ),
];

/// What a program took.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    accesses: f64,
    cpu_s: f64,
    modelled_s: f64,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.accesses += other.accesses;
        self.cpu_s += other.cpu_s;
        self.modelled_s += other.modelled_s;
    }

    /// CPU seconds that a modelled second takes.
    fn per_modelled_s(self) -> String {
        match self.modelled_s > 0.0 {
            true => format!("{:.1}", self.cpu_s / self.modelled_s),
            false => "-".to_owned(),
        }
    }

    fn millions_per_s(self) -> f64 {
        self.accesses / self.cpu_s / 1e6
    }
}

fn main() {
    let mut before = None;
    let mut rounds = 3;
    let mut only = None;
    let mut kernel_accesses = false;
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next();
        match (word.as_str(), value) {
            ("--before", Some(path)) => before = Some(PathBuf::from(path)),
            ("--rounds", Some(count)) => rounds = count.parse().expect("a number of rounds"),
            ("--only", Some(name)) => only = Some(name),
            ("--kernel-accesses", Some(on)) if on == "on" => kernel_accesses = true,
            _ => panic!(
                "{word}: known are --before PLUGIN, --rounds N, --only NAME and --kernel-accesses on"
            ),
        }
    }
    let (speed, menagerie) = (speed(), menagerie());
    let valgrind = on_path("valgrind");
    if valgrind.is_none() {
        println!("without cachegrind: valgrind is not installed; run `make setup`");
    }
    println!(
        "{:20} {:>15} {:>15} {:>15} {:>17} {:>17} {:>9}",
        "", "accesses", "lab, M/CPU s", "before", "cachegrind", "CPU s a mod. s", "before"
    );
    let wanted = |(name, _): &(&str, &str)| only.as_deref().is_none_or(|only| only == *name);
    for (name, line) in PROGRAMS.into_iter().filter(wanted) {
        let line = line
            .replace("speed ", &format!("{} ", speed.display()))
            .replace("menagerie", &menagerie.display().to_string());
        let (mut lab, mut lab_before, mut cachegrind) =
            (Cost::default(), Cost::default(), Cost::default());
        for _ in 0..rounds {
            if let Some(plugin) = &before {
                lab_before.add(in_lab(&line, Some(plugin), false));
            }
            lab.add(in_lab(&line, None, kernel_accesses));
            // It runs one thread at a time, so of several programs it says nothing, and nothing of what the kernel does.
            if valgrind.is_some() && !line.contains('&') && name != "copy" {
                cachegrind.add(under_cachegrind(&line));
            }
        }
        let beside = |other: Cost| match other.cpu_s > 0.0 {
            true => format!(
                "{:.1} ({:.2} x)",
                other.millions_per_s(),
                lab.millions_per_s() / other.millions_per_s()
            ),
            false => "-".to_owned(),
        };
        println!(
            "{name:20} {:>15.0} {:>15.1} {:>15} {:>17} {:>17} {:>9}",
            lab.accesses / f64::from(rounds),
            lab.millions_per_s(),
            beside(lab_before),
            beside(cachegrind),
            lab.per_modelled_s(),
            lab_before.per_modelled_s(),
        );
    }
}

/// Compiles `speed.c`.
fn speed() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/speed.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("speed");
    let status = process::Command::new("gcc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc is installed; run `make setup`");
    assert!(status.success());
    program
}

/// The static workloads that `scripts/build.sh guest` builds.
fn menagerie() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("../x86_64-unknown-linux-gnu/release/menagerie");
    path.canonicalize()
        .unwrap_or_else(|error| panic!("{}: {error}; run scripts/build.sh guest", path.display()))
}

/// Runs a line in a guest of its own, with the plugin of this tree or another.
fn in_lab(line: &str, plugin: Option<&Path>, kernel_accesses: bool) -> Cost {
    let timed = format!(
        "read began rest </proc/uptime; {line}; read ended rest </proc/uptime; echo modelled $began $ended"
    );
    let command = Command::inherited(["sh", "-c", &timed]).expect("here");
    let guest = boot(plugin, kernel_accesses).unwrap_or_else(|error| panic!("{error}"));
    let stat = PathBuf::from(format!("/proc/{}/stat", guest.qemu_pid()));
    let cpu = || ticks(&stat, [13, 14]);
    let before = cpu();
    guest
        .start_model()
        .unwrap_or_else(|error| panic!("{error}"));
    let output = guest
        .output(&command, None)
        .unwrap_or_else(|error| panic!("{error}"));
    let cpu_s = cpu() - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let times = text
        .lines()
        .find_map(|line| line.strip_prefix("modelled "))
        .unwrap_or_else(|| panic!("{line} did not end: {output:?}"));
    let mut times = times
        .split(' ')
        .map(|time| time.parse::<f64>().expect("seconds"));
    let began = times.next().expect("a time");
    let modelled_s = times.next().expect("a time") - began;
    guest.stop_model().unwrap_or_else(|error| panic!("{error}"));
    let report = guest.stop().ok().and_then(|stopped| stopped.report);
    let report: serde_json::Value =
        serde_json::from_str(&report.expect("a report")).expect("of JSON");
    let vcpus = report["vcpus"].as_array().expect("a list");
    let accesses = vcpus
        .iter()
        .filter_map(|vcpu| vcpu["accesses"].as_u64())
        .sum::<u64>() as f64;
    Cost {
        accesses,
        cpu_s,
        modelled_s,
    }
}

fn boot(plugin: Option<&Path>, kernel_accesses: bool) -> Result<Guest, Error> {
    let machine = Machine::preset("lab-4x2-half").expect("a preset");
    let mut model = machine::model(&machine, None)?;
    model.kernel_accesses = kernel_accesses;
    if let Some(plugin) = plugin {
        model.plugin = plugin.to_owned();
    }
    let options = Options::new(machine::shape(&machine, None)?, KernelFiles::find(None)?);
    Guest::start(&Options {
        model: Some(model),
        ..options
    })
}

/// Runs a line under cachegrind on the host.
fn under_cachegrind(line: &str) -> Cost {
    let own = Path::new("/proc/self/stat");
    let before = ticks(own, [15, 16]);
    let output = process::Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=yes",
            "--cachegrind-out-file=/dev/null",
        ])
        .args(line.split(' '))
        .output()
        .expect("valgrind is there");
    let cpu_s = ticks(own, [15, 16]) - before;
    let text = String::from_utf8_lossy(&output.stderr);
    // ==123== D   refs:       12,345,678  (9,876,543 rd + 2,469,135 wr)
    let refs = text
        .lines()
        .filter(|line| line.contains(" D ") && line.contains(" refs:"))
        .find_map(|line| line.split("refs:").nth(1)?.split('(').next());
    let refs = refs.unwrap_or_else(|| panic!("cachegrind said: {text}"));
    let digits: String = refs.chars().filter(char::is_ascii_digit).collect();
    Cost {
        accesses: digits.parse().expect("a number"),
        cpu_s,
        modelled_s: 0.0,
    }
}

/// The sum of fields of a `stat` of /proc, counted from 0, in seconds: the kernel's ticks are hundredths.
fn ticks(stat: &Path, fields: [usize; 2]) -> f64 {
    let text = std::fs::read_to_string(stat).expect("the process is there");
    // The name may have spaces, and is in brackets.
    let (_, rest) = text.rsplit_once(") ").expect("a name in brackets");
    let values: Vec<&str> = rest.split(' ').collect();
    let value = |field: usize| values[field - 2].parse::<f64>().expect("a number of ticks");
    fields.into_iter().map(value).sum::<f64>() / 100.0
}
