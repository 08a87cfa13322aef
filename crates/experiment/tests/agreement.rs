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

use numaherd_experiment::plan::Plan;
use numaherd_experiment::statistics::mean;
use numaherd_experiment::{Scenario, Trial, World};
use serde::Deserialize;

/// How far the model may be off.
const TOLERANCE: f64 = 0.15;

#[derive(Deserialize)]
struct Comparison {
    trials: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
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
    let means = all.into_iter().map(|(name, seconds)| (name, mean(seconds)));
    means.collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/agreement")
}

/// What `scripts/agreement.sh` measured, a file for each repeat.
fn in_the_lab(name: &str) -> Times {
    let file = |repeat| folder().join(format!("measured/{name}.{repeat}.json"));
    let files = (1..).map(file).take_while(|file| file.exists());
    let comparisons: Vec<Comparison> = files
        .map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
        .collect();
    assert!(comparisons.len() >= 2, "{name} has not been measured twice");
    let trials = comparisons.iter().flat_map(|comparison| &comparison.trials);
    let programs = trials.flat_map(|trial| &trial.programs);
    let measured = programs.filter(|program| program.measured);
    means(measured.map(|done| (format!("{} {}", done.name, done.copy), done.seconds)))
}

/// The first run of each measured process.
fn in_the_model(name: &str) -> Times {
    let path = folder().join(format!("{name}.toml"));
    let scenario = Scenario::find(path.to_str().unwrap(), World::Model).unwrap();
    let plan = Plan::of(&scenario, None, &[], &[], 0).unwrap();
    let ran = plan.on_model().run(&Trial::of("linux")).unwrap();
    let first = ran.completions.iter();
    let first = first.filter(|done| done.run == 0 && plan.jobs[done.job].measured);
    let of = |job: usize| format!("{} {}", plan.labels[job].program, plan.labels[job].copy);
    first.map(|done| (of(done.job), done.seconds())).collect()
}

/// Each process with how far the model is off, for the message of a failure.
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
