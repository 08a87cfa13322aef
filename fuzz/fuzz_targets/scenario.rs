//! Scenario files (TOML) of `numaherd lab compare`.
//!
//! Holds: no text makes the reader panic; what is accepted has something to run and to measure, and
//! can be written and read back the same.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use numaherd_fuzz::temporary;

#[path = "../../crates/numaherd-lab/src/compare/scenario.rs"]
#[allow(dead_code, reason = "the target runs none of the programs")]
mod scenario;

use scenario::Scenario;

numaherd_fuzz::changes_figures!();

fuzz_target!(|text: &str| {
    let Some(scenario) = read(text) else { return };
    assert!(
        scenario
            .programs
            .iter()
            .all(|p| p.copies > 0 && !p.command.is_empty())
    );
    assert!(scenario.programs.iter().any(|program| program.measured));
    let written = toml::to_string(&scenario).expect("a scenario can be written");
    // As text, since a setting may be no number, which equals nothing.
    let again = read(&written).expect("and read back");
    assert_eq!(toml::to_string(&again), Ok(written));
});

fn read(text: &str) -> Option<Scenario> {
    let directory = temporary();
    let path = directory.path().join("fuzz.toml");
    fs::write(&path, text).expect("a file of our own can be written");
    match Scenario::find(path.to_str().expect("a plain path")) {
        Ok(scenario) => Some(scenario),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}
