//! The claims of a paper (TOML): `data/claims`.
//!
//! Holds: no text makes the reader panic; an error names the file; ids are unique; tolerances are distances; with
//! a figure for each claim and each detail of the notes, judging gives a line for each claim, in their order.
//!
//! Reader: crates/experiment/src/claims/file.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::collections::BTreeSet;

use numaherd_experiment::claims::{Measured, Statement, parse};

numaherd_fuzz::target!(|text: &str| {
    let claims = match parse(text, "claims.toml") {
        Ok(claims) => claims,
        Err(error) => {
            assert!(error.to_string().starts_with("claims.toml"), "{error}");
            return;
        }
    };
    let ids: BTreeSet<&str> = claims
        .claims
        .iter()
        .map(|claim| claim.id.as_str())
        .collect();
    assert_eq!(ids.len(), claims.claims.len());
    let mut measured = Measured::new();
    for claim in &claims.claims {
        if let Statement::Point { figure, tolerance }
        | Statement::AtMost { figure, tolerance }
        | Statement::AtLeast { figure, tolerance } = claim.statement
        {
            assert!(figure.is_finite() && tolerance.is_finite() && tolerance >= 0.0);
        }
        measured.figure(&claim.id, 1.0);
        for detail in claim.details() {
            measured.detail(detail, "measured");
        }
    }
    let lines = claims.judge(&measured).expect("every claim has a figure");
    let judged = lines.iter().map(|line| line.id.as_str());
    assert!(judged.eq(claims.claims.iter().map(|claim| claim.id.as_str())));
});
