//! The record of claims (JSON) that `numaherd reproduce --record` renews.
//!
//! Holds: no text makes the reader panic; a record that was read can be written and read back the
//! same; nothing has fallen since itself; put together with the record that the program carries, no
//! line of either paper that only one has is lost; it makes a page.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

#[path = "../../crates/numaherd-lab/src/reproduce/claim.rs"]
#[allow(dead_code, reason = "the target uses a part of the module")]
mod claim;
#[path = "../../crates/numaherd-lab/src/reproduce/record.rs"]
#[allow(dead_code, reason = "the target uses a part of the module")]
mod record;

use claim::{Claim, Kind, Says};
use record::Record;

/// What the program's `reproduce` has beside the experiments: the effort, and the papers. That the
/// program's own record can be read holds their names to the program's.
pub struct Effort {
    runs: u32,
    hour_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    Dino,
    NMass,
}

impl Paper {
    const ALL: [Self; 2] = [Self::Dino, Self::NMass];
}

fuzz_target!(|text: &str| {
    let Ok(record) = serde_json::from_str::<Record>(text) else {
        return;
    };
    let written = record.to_json().expect("a record can be written");
    let again: Record = serde_json::from_str(&written).expect("and read back");
    assert_eq!(again, record);
    assert!(record.fallen(&record).is_empty());

    let built_in = Record::built_in().expect("the program's own record is right");
    let whole = record.clone().with_others_of(built_in.clone());
    for paper in Paper::ALL {
        let lines = |record: &Record| {
            let lines = record.lines.iter().filter(|line| line.paper == paper);
            lines.cloned().collect::<Vec<_>>()
        };
        let kept = if lines(&record).is_empty() {
            &built_in
        } else {
            &record
        };
        assert_eq!(lines(&whole), lines(kept));
    }
    for fallen in record.fallen(&built_in) {
        assert!(fallen.holds && built_in.lines.contains(fallen));
    }
});
