//! Files of events (TOML): a user's own file as well as the built-in ones.
//!
//! Holds: no text makes the reader panic; an error names the file; of what is accepted every set has
//! a name of its own, and with the built-in ones behind it none is lost.
//!
//! Reader: crates/host/src/events.rs crates/host/src/events
#![cfg_attr(feature = "fuzz", no_main)]

use std::collections::BTreeSet;
use std::path::Path;

use numaherd_host::EventTable;

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    let table = match EventTable::parse(text, Path::new("fuzz.toml")) {
        Ok(table) => table,
        Err(error) => {
            assert!(error.to_string().contains("fuzz.toml"));
            return;
        }
    };
    let names: Vec<String> = table.names().map(str::to_owned).collect();
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    assert!(names.iter().all(|name| !name.trim().is_empty()));
    let built_in = EventTable::built_in();
    let all: Vec<String> = table.before(built_in).names().map(str::to_owned).collect();
    assert!(all.starts_with(&names));
    assert!(all.iter().skip(names.len()).eq(built_in.names()));
});
