//! The description of modelled hardware (TOML) that the lab's plugin is given.
//!
//! Holds: no text makes the reader or the check panic; a description that was read can be written
//! and read back the same; what passes the check is a machine.
//!
//! Reader: crates/hardware/src/config.rs crates/hardware/src/config
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_hardware::{Config, Machine, Memory, Span};

/// Sizes above which a machine is checked but not built: building takes memory by cache size.
const LARGEST_BUILT: u64 = 1 << 22;

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    let Ok(config) = toml::from_str::<Config>(text) else {
        return;
    };
    if let Err(error) = config.validate() {
        assert!(!error.to_string().is_empty());
        return;
    }
    let json = serde_json::to_string(&config).expect("a description can be written");
    let again: Config = serde_json::from_str(&json).expect("and read back");
    assert_eq!(again, config);

    let caches = config.llc.bytes.saturating_mul(config.domains() as u64);
    if caches > LARGEST_BUILT || config.nodes() > 64 || config.line_bytes > LARGEST_BUILT {
        return;
    }
    let memory = Memory::new([Span {
        start: 0,
        end: 1 << 20,
        node: 0,
    }]);
    // The links may leave two nodes unjoined, which only building finds.
    if let Err(error) = Machine::new(config, memory.expect("one span is a map")) {
        assert!(!error.to_string().is_empty());
    }
});
