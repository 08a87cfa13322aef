//! The contention model against the lab: scenarios that both can run, with the same programs on the
//! same CPUs and the same memory, their times in the lab as `scripts/agreement.sh` wrote them down.
//!
//! In the model a program begins again when it has ended, in the lab it does not; so the programs of a
//! scenario that disturb each other either end at about the same time or run on until all that are
//! measured have ended.
//!
//! The profiles are those of `data/programs/menagerie.toml`, each measured alone; what the programs
//! do to each other is the model's to say. The two must differ by less than 15 % in each completion
//! time, and agree on the order of those that are at least that far apart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use numaherd_model::{Hardware, Job, Library, Model, Options, Until};
use numaherd_topology::{CpuId, CpuSet, Machine, NodeId};
use numaherd_world::{Progress, World};
use serde::Deserialize;

/// How far the model may be off.
const TOLERANCE: f64 = 0.15;

#[derive(Deserialize)]
struct Scenario {
    machine: String,
    #[serde(rename = "program")]
    programs: Vec<Program>,
}

#[derive(Deserialize)]
struct Program {
    name: String,
    copies: u32,
    measured: bool,
    profile: String,
    #[serde(default = "whole")]
    work: f64,
    memory: Option<u32>,
    pinned: CpuSet,
}

fn whole() -> f64 {
    1.0
}

#[derive(Deserialize)]
struct Comparison {
    trials: Vec<Trial>,
}

#[derive(Deserialize)]
struct Trial {
    programs: Vec<Result>,
}

#[derive(Deserialize)]
struct Result {
    name: String,
    copy: u32,
    measured: bool,
    seconds: f64,
}

/// Completion time of each process of a scenario in seconds, by its name and copy.
type Times = BTreeMap<String, f64>;

/// The mean of each process's times.
fn means(times: impl Iterator<Item = (String, f64)>) -> Times {
    let mut all = BTreeMap::<String, Vec<f64>>::new();
    for (name, seconds) in times {
        all.entry(name).or_default().push(seconds);
    }
    let mean = |seconds: Vec<f64>| seconds.iter().sum::<f64>() / seconds.len() as f64;
    all.into_iter()
        .map(|(name, seconds)| (name, mean(seconds)))
        .collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/agreement")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What `scripts/agreement.sh` wrote down, a file for each repeat.
fn in_the_lab(name: &str) -> Times {
    let file = |repeat| folder().join(format!("measured/{name}.{repeat}.json"));
    let files = (1..).map(file).take_while(|file| file.exists());
    let comparisons: Vec<Comparison> = files
        .map(|file| serde_json::from_str(&read(&file)).unwrap())
        .collect();
    assert!(comparisons.len() >= 2, "{name} has not been measured twice");
    let trials = comparisons.iter().flat_map(|comparison| &comparison.trials);
    let programs = trials.flat_map(|trial| &trial.programs);
    let measured = programs.filter(|program| program.measured);
    means(measured.map(|done| (format!("{} {}", done.name, done.copy), done.seconds)))
}

fn in_the_model(name: &str) -> Times {
    let text = read(&folder().join(format!("{name}.toml")));
    let scenario: Scenario = toml::from_str(&text).unwrap();
    let machine = Machine::preset(&scenario.machine).unwrap();
    let (mut jobs, mut names) = (Vec::new(), Vec::new());
    for program in &scenario.programs {
        let mut profile = Library::built_in().get(&program.profile).unwrap().clone();
        for phase in &mut Arc::make_mut(&mut profile).phases {
            phase.instructions *= program.work;
        }
        let cpus: Vec<CpuId> = program.pinned.iter().collect();
        for copy in 0..program.copies {
            let cpu = cpus[copy as usize % cpus.len()];
            let mut job = Job::new(profile.clone()).on(vec![cpu]);
            job.measured = program.measured;
            if let Some(node) = program.memory {
                job = job.homed(NodeId(node));
            }
            jobs.push(job);
            names.push(format!("{} {copy}", program.name));
        }
    }
    let measured: Vec<bool> = jobs.iter().map(|job| job.measured).collect();
    let hardware = Hardware::of(&machine).unwrap();
    let mut model = Model::new(hardware, jobs, Until::Completions(1), Options::default()).unwrap();
    while model.run_for(Duration::from_secs(3600)) == Progress::Ran {}
    let completions = model.completions();
    let first = completions
        .iter()
        .filter(|done| done.run == 0 && measured[done.job]);
    first
        .map(|done| (names[done.job].clone(), done.seconds()))
        .collect()
}

/// Each process with how far the model is off, for whoever reads a failure.
fn table(name: &str, lab: &Times, model: &Times) -> String {
    let lines = lab.iter().map(|(program, seconds)| {
        let ours = model[program];
        let off = (ours / seconds - 1.0) * 100.0;
        format!("  {program:<16} lab {seconds:8.3} s  model {ours:8.3} s  {off:+6.1} %\n")
    });
    format!("{name}:\n{}", lines.collect::<String>())
}

#[track_caller]
fn assert_agree(name: &str) {
    let (lab, model) = (in_the_lab(name), in_the_model(name));
    let told = table(name, &lab, &model);
    println!("{told}");
    assert_eq!(lab.len(), model.len(), "{told}");
    for (program, &seconds) in &lab {
        assert!(
            (model[program] / seconds - 1.0).abs() <= TOLERANCE,
            "{told}"
        );
        for (other, &others) in &lab {
            if seconds > others * (1.0 + TOLERANCE) {
                assert!(
                    model[program] > model[other],
                    "{program} and {other}; {told}"
                );
            }
        }
    }
}

#[test]
fn devils_far_from_home_wait_longer() {
    assert_agree("devils-far-from-home");
}

#[test]
fn a_controller_gives_each_devil_less() {
    assert_agree("devils-on-one-controller");
}

#[test]
fn a_full_controller_is_divided() {
    assert_agree("streams-on-one-controller");
}

#[test]
fn a_full_link_is_divided() {
    assert_agree("streams-on-one-link");
}

#[test]
fn neighbours_take_each_others_cache() {
    assert_agree("neighbours-sharing-a-cache");
}

#[test]
fn turtles_and_devils_disturb_each_other_as_much_as_in_the_lab() {
    assert_agree("turtles-and-devils");
}
