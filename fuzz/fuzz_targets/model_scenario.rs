//! Scenario files (TOML) of `numaherd simulate`.
//!
//! Holds: no text makes the reader panic; an error names file and line; what is accepted has
//! something to run and to measure, and an end; what counts is among what will have been run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use numaherd_model::Until;

#[path = "../../crates/numaherd-lab/src/simulate/scenario.rs"]
#[allow(dead_code, reason = "the target runs none of it")]
mod scenario;

use scenario::{Count, Cpus, MOST_REPEATS, Scenario, until_in_words};

numaherd_fuzz::changes_figures!();

fuzz_target!(|text: &str| {
    let scenario = match Scenario::parse(text, "fuzz.toml") {
        Ok(scenario) => scenario,
        Err(error) => {
            let told = error.to_string();
            let line = told.strip_prefix("fuzz.toml:").and_then(|rest| {
                let (line, why) = rest.split_once(": ")?;
                (!why.is_empty()).then(|| line.parse::<usize>())?.ok()
            });
            let lines = text.lines().count().max(1);
            assert!(
                line.is_some_and(|line| (1..=lines + 1).contains(&line)),
                "{told}"
            );
            return;
        }
    };
    assert!(!scenario.name.trim().is_empty() && !scenario.policies.is_empty());
    assert!((1..=MOST_REPEATS).contains(&scenario.repeat));
    match scenario.until {
        Until::Completions(all) => assert!(
            all >= if scenario.count == Count::Second {
                2
            } else {
                1
            }
        ),
        Until::Time(time) => assert!(!time.is_zero() && scenario.count == Count::All),
    }
    assert!(!until_in_words(&scenario.until).is_empty());
    for entry in &scenario.programs {
        assert!(entry.copies > 0 && !entry.name.trim().is_empty());
        assert!(entry.start_after_s >= 0.0 && entry.start_after_s.is_finite());
        assert!((1..=text.lines().count()).contains(&entry.line));
        match &entry.cpus {
            Cpus::Free => {}
            Cpus::StartOn(cpus) | Cpus::Within(cpus) | Cpus::Pinned(cpus) => {
                assert!(!cpus.is_empty());
            }
        }
    }
    assert!(scenario.programs.iter().any(|entry| entry.measured));
    serde_json::to_string(&scenario).expect("a scenario can be written");
});
