//! The record of claims (JSON) that `numaherd reproduce --record` renews.
//!
//! Holds: no text makes the reader panic; a record that was read can be written and reads back the same; nothing
//! has fallen since itself; put together with the record that the program was built with, no line of a paper
//! that only one of them has is lost.
//!
//! Reader: crates/experiment/src/claims/record.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_experiment::claims::{Paper, Record};

numaherd_fuzz::target!(|text: &str| {
    let path = "record.json".as_ref();
    let Ok(record) = Record::parse(text, path) else {
        return;
    };
    let written = record.to_json().expect("a record can be written");
    let again = Record::parse(&written, path).expect("and read back");
    assert_eq!(again, record);
    assert!(record.fallen(&record).is_empty());

    let built_in = Record::built_in().expect("the program's own record is right");
    let whole = record.clone().with_others_of(built_in.clone());
    for paper in Paper::ALL {
        let lines = |record: &Record| record.clone().of(&[paper]).lines;
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
