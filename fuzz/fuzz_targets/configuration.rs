//! The configuration file: TOML held against what a configuration may hold.
//!
//! Holds: no text makes the reader panic; what is wrong is told with the file's name, in a bounded number
//! of bytes without control characters but line feeds, however long the keys and values are; what is
//! accepted is written and read back the same, and every key that it has is on a line of the file.
//!
//! Reader: crates/numaherd/src/config/file
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd::config::file::Config;

numaherd_fuzz::changes_figures!();

/// The most that is told of one file, in bytes: 20 findings, of which each has a key, a value, a few
/// near names and the reason.
const MOST_TOLD: usize = 20_000;

numaherd_fuzz::target!(|text: &str| {
    match Config::parse(text, "fuzz.toml") {
        Err(wrong) => {
            assert!(!wrong.findings().is_empty());
            for finding in wrong.findings() {
                let finding = finding.to_string();
                assert!(finding.contains("fuzz.toml"), "{finding}");
                assert!(!finding.contains(char::is_control), "{finding:?}");
            }
            let told = wrong.to_string();
            assert!(told.len() <= MOST_TOLD, "{told}");
        }
        Ok((config, read)) => {
            let all = text.lines().count().max(1);
            assert!(read.lines.values().all(|line| (1..=all).contains(line)));
            // A whole number that TOML cannot write is one that it cannot read either.
            let written = toml::to_string(&config).expect("a configuration can be written");
            let (again, _) = Config::parse(&written, "again.toml").expect("and read back");
            assert_eq!(again, config);
        }
    }
});
