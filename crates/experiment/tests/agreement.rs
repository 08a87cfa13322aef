//! The contention model against the lab: scenarios that both can run, their times in the lab as `scripts/agreement.sh`
//! wrote them down.
//!
//! The profiles are those of `data/programs/menagerie.toml`, each measured alone; what the programs do to each other,
//! and what a policy does about it, is the model's to say. In `scenarios/agreement` programs and memory stay where the
//! scenario puts them, and each completion time is compared. In `scenarios/agreement/free` threads and pages move; the
//! mean of the measured programs' times under each of three policies is compared, and the order of the policies.
//!
//! Times must differ by less than 10 %, and what the lab has apart by more must come in the same order on the model.
//! [`BEYOND`] names what differs by more, for which no order is checked; whatever is mended leaves the list. In the
//! model a program begins again when it has ended, in the lab it does not; so the programs of a scenario that disturb
//! each other either end at about the same time or run on until all that are measured have ended.
//!
//! docs/model.md shows the times. To renew its tables: `NUMAHERD_RENEW=1 cargo test -p numaherd-experiment --test
//! agreement`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use numaherd_experiment::plan::Plan;
use numaherd_experiment::statistics::mean;
use numaherd_experiment::{Scenario, Trial, World};
use serde::Deserialize;

/// How far the model may be off.
const TOLERANCE: f64 = 0.10;

/// Runs of the model, each with its seed.
const SEEDS: u64 = 3;

/// Fewest runs in the lab.
const FEWEST: usize = 1;

/// Scenario, policy, and the program if it is one of several: where the model is further off. docs/model.md says why.
const BEYOND: [[&str; 3]; 1] = [["turtles-and-devils", "dino", ""]];

const POLICIES: [&str; 3] = ["linux", "dino", "n-mass"];

#[derive(Deserialize)]
struct Comparison {
    trials: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    programs: Vec<Program>,
}

#[derive(Deserialize)]
struct Program {
    name: String,
    copy: u32,
    measured: bool,
    seconds: f64,
}

/// Completion time of each measured process in seconds, by its name and copy.
type Times = BTreeMap<String, f64>;

/// One figure of both worlds, in seconds.
struct Pair {
    /// Scenario, policy and program (or nothing).
    of: [String; 3],
    lab: f64,
    model: f64,
}

impl Pair {
    fn off(&self) -> f64 {
        self.model / self.lab - 1.0
    }

    fn is_beyond(&self) -> bool {
        BEYOND.iter().any(|known| self.of == *known)
    }

    fn line(&self) -> String {
        let [scenario, policy, program] = &self.of;
        let (lab, model, off) = (self.lab, self.model, self.off() * 100.0);
        format!("{scenario} {policy} {program}: lab {lab:.3} s, model {model:.3} s, {off:+.1} %")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn folder() -> PathBuf {
    root().join("scenarios/agreement")
}

/// The scenarios of a folder, by name.
fn scenarios(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let scenarios = files.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    scenarios.map(stem).collect()
}

/// The mean of each process's times.
fn means(times: impl Iterator<Item = (String, f64)>) -> Times {
    let mut all = BTreeMap::<String, Vec<f64>>::new();
    for (name, seconds) in times {
        all.entry(name).or_default().push(seconds);
    }
    let means = all.into_iter().map(|(name, seconds)| (name, mean(seconds)));
    means.collect()
}

/// What `scripts/agreement.sh` measured, a file for each repeat.
fn in_the_lab(folder: &Path, name: &str, policy: &str) -> Times {
    let file = |repeat| folder.join(format!("measured/{name}.{policy}.{repeat}.json"));
    let files = (1..).map(file).take_while(|file| file.exists());
    let comparisons: Vec<Comparison> = files
        .map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
        .collect();
    let enough = comparisons.len() >= FEWEST;
    assert!(
        enough,
        "{name} under {policy} is not measured: run scripts/agreement.sh"
    );
    let trials = comparisons.iter().flat_map(|comparison| &comparison.trials);
    let programs = trials.flat_map(|trial| &trial.programs);
    let measured = programs.filter(|program| program.measured);
    means(measured.map(|done| (format!("{} {}", done.name, done.copy), done.seconds)))
}

/// The first run of each measured process.
fn on_the_model(folder: &Path, name: &str, policy: &str) -> Times {
    let path = folder.join(format!("{name}.toml"));
    let scenario = Scenario::find(path.to_str().unwrap(), World::Model).unwrap();
    let plan = Plan::of(&scenario, None, &[], &[], 0).unwrap();
    let runs = (0..SEEDS).flat_map(|seed| {
        let trial = Trial {
            seed,
            ..Trial::of(policy)
        };
        let ran = plan.on_model().run(&trial).unwrap();
        let first = ran.completions.iter();
        let first = first.filter(|done| done.run == 0 && plan.jobs[done.job].measured);
        let label = |job: usize| format!("{} {}", plan.labels[job].program, plan.labels[job].copy);
        let times = first.map(|done| (label(done.job), done.seconds()));
        times.collect::<Vec<_>>()
    });
    means(runs)
}

/// Each process of a scenario without moves.
fn bound(name: &str) -> Vec<Pair> {
    let (lab, model) = (
        in_the_lab(&folder(), name, "linux"),
        on_the_model(&folder(), name, "linux"),
    );
    assert!(lab.keys().eq(model.keys()), "{name}: {lab:?}, {model:?}");
    let pair = |(program, &lab): (&String, &f64)| Pair {
        of: [name.to_owned(), "linux".to_owned(), program.clone()],
        lab,
        model: model[program],
    };
    lab.iter().map(pair).collect()
}

/// Each policy of a scenario with moves: the means of the measured processes.
fn free(name: &str) -> Vec<Pair> {
    let folder = folder().join("free");
    let pair = |policy: &str| Pair {
        of: [name.to_owned(), policy.to_owned(), String::new()],
        lab: mean(in_the_lab(&folder, name, policy).into_values()),
        model: mean(on_the_model(&folder, name, policy).into_values()),
    };
    POLICIES.map(pair).into()
}

fn told(pairs: &[Pair]) -> String {
    let lines: Vec<String> = pairs.iter().map(Pair::line).collect();
    lines.join("\n")
}

/// Checks times and their order.
fn assert_agree(pairs: &[Pair]) {
    let told = told(pairs);
    for pair in pairs {
        let agrees = pair.off().abs() < TOLERANCE;
        assert_ne!(agrees, pair.is_beyond(), "{}; all:\n{told}", pair.line());
        for other in pairs {
            let beyond = pair.is_beyond() || other.is_beyond();
            if !beyond && pair.lab > other.lab * (1.0 + TOLERANCE) {
                let (one, two) = (pair.line(), other.line());
                assert!(pair.model > other.model, "{one}\n{two}\nall:\n{told}");
            }
        }
    }
}

#[test]
fn programs_that_stay_disturb_each_other_as_much_as_in_the_lab() {
    let names = scenarios(&folder());
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        assert_agree(&bound(&name));
    }
}

#[test]
fn policies_that_move_threads_and_pages_gain_as_much_as_in_the_lab() {
    let names = scenarios(&folder().join("free"));
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        assert_agree(&free(&name));
    }
}

/// The tables of docs/model.md.
fn tables() -> String {
    let cell = |pair: &Pair| {
        let (lab, model, off) = (pair.lab, pair.model, pair.off() * 100.0);
        format!("{lab:.2} / {model:.2} ({off:+.1} %)")
    };
    let mut text = format!(
        "| threads and pages may move | {} |\n|---|---|---|---|\n",
        POLICIES.join(" | ")
    );
    for name in scenarios(&folder().join("free")) {
        let cells: Vec<String> = free(&name).iter().map(cell).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text += "\n| all stay where they are | lab / model in s, by program |\n|---|---|\n";
    for name in scenarios(&folder()) {
        let cells = bound(&name);
        let cells = cells
            .iter()
            .map(|pair| format!("{} {}", pair.of[2], cell(pair)));
        text += &format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(", "));
    }
    text
}

#[test]
fn the_page_shows_the_times() {
    const MARKS: [&str; 2] = ["<!-- agreement -->\n", "<!-- /agreement -->"];
    let path = root().join("docs/model.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(MARKS[0]).expect("where the tables begin");
    let (_, after) = rest.split_once(MARKS[1]).expect("where the tables end");
    let now = format!("{before}{}{}{}{after}", MARKS[0], tables(), MARKS[1]);
    if std::env::var_os("NUMAHERD_RENEW").is_some() {
        std::fs::write(path, now).unwrap();
    } else {
        assert_eq!(
            page, now,
            "run NUMAHERD_RENEW=1 cargo test -p numaherd-experiment --test agreement"
        );
    }
}
