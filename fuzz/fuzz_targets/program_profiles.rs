//! Program profiles (TOML): what `numaherd profile` writes, and what people write by hand.
//!
//! Holds: no text makes the reader panic, or take memory that no machine has; an error names the
//! file; of what is accepted every figure can be modelled: more cache never fetches more lines, a
//! thread that has it to itself never holds less as it goes on, nor more than its memory.
//!
//! Reader: crates/model/src/program/read.rs crates/model/src/program/read
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;

use numaherd_model::Library;
use numaherd_model::program::{Curve, Phase, Program};

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    let library = match Library::parse(text, Path::new("fuzz.toml")) {
        Ok(library) => library,
        Err(error) => {
            assert!(error.to_string().contains("fuzz.toml"));
            return;
        }
    };
    for program in library.programs() {
        let found = library.get(&program.name).expect("it is called that");
        assert_eq!(found, program);
        can_be_modelled(program);
    }
    if let Err(error) = library.get("4711.no-program") {
        assert!(!error.to_string().is_empty());
    }
    let twice = library.clone().merged(library.clone());
    assert_eq!(twice, library);
});

fn can_be_modelled(program: &Program) {
    assert!(program.threads > 0 && program.footprint_bytes >= 4096);
    assert!((0.0..=1.0).contains(&program.shared_accesses));
    assert!(program.shared_written >= 0.0);
    if let Some(hot) = program.hot {
        assert!(hot.pages > 0.0 && hot.pages <= hot.accesses && hot.accesses <= 1.0);
    }
    assert!(!program.phases.is_empty());
    assert!(program.instructions().is_finite() && program.instructions() > 0.0);
    // Phases that are run through many times are the same again.
    for phase in program.phases.iter().take(16) {
        let figures = [
            phase.instructions,
            phase.cycles_per_instruction,
            phase.busy,
            phase.misses_in_flight,
        ];
        assert!(figures.iter().all(|&f| f.is_finite() && f > 0.0));
        assert!(phase.misses_in_flight >= 1.0 && phase.busy <= 1.0);
        assert!(phase.written_per_line.is_finite() && phase.written_per_line >= 0.0);
        assert!(phase.sleep_ns.is_finite() && phase.sleep_ns >= 0.0);
        curve(&phase.lines, program);
        phase
            .demand
            .iter()
            .for_each(|demand| curve(demand, program));
        demand_is_a_part(phase);
    }
}

fn curve(curve: &Curve, program: &Program) {
    let given: Vec<f64> = curve.points().map(|(bytes, _)| bytes).collect();
    let between = given.windows(2).map(|pair| pair[0].midpoint(pair[1]));
    let mut sizes: Vec<f64> = given.iter().copied().chain(between).collect();
    sizes.extend([0.0, 64.0, 1e6, program.footprint_bytes as f64, 1e18]);
    sizes.sort_by(f64::total_cmp);
    let mut before = curve.cache_accesses();
    for &bytes in &sizes {
        let lines = curve.at(bytes);
        // Rounding of a logarithm is no rise.
        assert!(
            lines >= 0.0 && lines <= before * (1.0 + 1e-9),
            "{bytes} bytes: {lines}"
        );
        before = before.min(lines);
    }
    let mut held = 0.0;
    for decade in 0..40 {
        let now = curve.held_after(10_f64.powi(decade));
        // Its memory is rounded down to whole bytes.
        assert!(now >= held && now < program.footprint_bytes as f64 + 1.0);
        held = now;
    }
}

fn demand_is_a_part(phase: &Phase) {
    for bytes in [0.0, 4096.0, 1e6, 1e9] {
        assert!(phase.demand_at(bytes) <= phase.lines.at(bytes));
    }
}
