//! Scenario files (TOML) of the lab, the model and traces.
//!
//! Holds: no text makes the reader panic; an error names file and line; what is accepted has
//! something to run and to measure, and an end; what counts is among what will have been run.
//!
//! Reader: crates/experiment/src/scenario/read.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_experiment::in_lab::Placeholders;
use numaherd_experiment::scenario::{Count, Cpus, MOST_REPEATS, until_in_words};
use numaherd_experiment::{Scenario, World};
use numaherd_model::Until;

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    for world in [World::Lab, World::Model, World::Trace] {
        match Scenario::parse(text, "fuzz.toml", world) {
            Ok(scenario) => accepted(&scenario, world),
            Err(error) => refused(&error.to_string(), text),
        }
    }
});

fn refused(said: &str, text: &str) {
    let line = said.strip_prefix("fuzz.toml:").and_then(|rest| {
        let (line, why) = rest.split_once(": ")?;
        (!why.is_empty()).then(|| line.parse::<usize>())?.ok()
    });
    let lines = text.lines().count().max(1);
    assert!(
        line.is_some_and(|line| (1..=lines + 1).contains(&line)),
        "{said}"
    );
}

fn accepted(scenario: &Scenario, world: World) {
    assert!(!scenario.policies.is_empty());
    assert!((1..=MOST_REPEATS).contains(&scenario.repeat));
    let least = if scenario.count == Count::Second {
        2
    } else {
        1
    };
    match scenario.until {
        Until::Completions(all) => assert!(all >= least),
        Until::Time(time) => assert!(!time.is_zero() && scenario.count == Count::All),
    }
    assert!(!until_in_words(&scenario.until).is_empty());
    for program in &scenario.programs {
        assert!(program.copies > 0 && program.work > 0.0 && !program.name.trim().is_empty());
        assert!(program.start_after_s >= 0.0 && program.start_after_s.is_finite());
        match world {
            World::Lab => {
                let command = program
                    .lab
                    .command
                    .as_ref()
                    .expect("the lab runs something");
                let placeholders = Placeholders { copy: 0, dir: "/" };
                assert!(!command.words(placeholders, program.placement(0))[0].is_empty());
            }
            World::Model | World::Trace => assert!(!program.profile.is_empty()),
        }
        match &program.cpus {
            Cpus::Free => {}
            Cpus::StartOn(cpus) | Cpus::Within(cpus) | Cpus::Pinned(cpus) => {
                assert!(!cpus.is_empty());
            }
        }
    }
    let is_measured = scenario.programs.iter().any(|program| program.measured);
    assert!(is_measured || world == World::Trace);
    serde_json::to_string(&scenario).expect("a scenario can be written");
}
