// SPDX-License-Identifier: GPL-2.0-or-later
//! What the plugin is told on QEMU's command line: `-plugin FILE,key=value,…`.

use std::path::PathBuf;
use std::time::Duration;

use crate::guest_time::IdleRule;

/// The plugin's arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arguments {
    /// The file behind the guest's shared memory; it must have its full size already.
    pub shm: PathBuf,
    /// The machine: a [`numaherd_hardware::Config`] in TOML or JSON.
    pub config: PathBuf,
    /// How guest time runs while the gate is open.
    pub time: TimeMode,
    /// Whose accesses are modelled.
    pub accesses: Accesses,
    /// Modelled time between two looks at a vCPU's time.
    pub quantum_ns: u64,
    /// How far a vCPU's time may be ahead of the last one's. Less is truer, but has host threads take
    /// turns more often.
    pub skew_ns: u64,
    /// When time may jump while all vCPUs are idle.
    pub idle: IdleRule,
    /// Where the report is written at the end, in JSON.
    pub report: Option<PathBuf>,
    /// The trace file to record into, in place of modelling accesses.
    pub trace: Option<PathBuf>,
    /// A JSON object of what is to be known of the recording.
    pub about: Option<PathBuf>,
}

/// How guest time runs while the gate is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeMode {
    /// As on the host.
    Real,
    /// By the model.
    Modelled,
}

/// Whose accesses are modelled. Instructions are timed for user and kernel in any case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Accesses {
    /// Only those at user addresses. The default: what runs in user mode is what is studied, and
    /// counts then follow from the program alone, not from when the kernel interrupted it.
    User,
    /// Those of the kernel too.
    All,
}

/// Why the arguments are no good.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum ArgumentError {
    /// No such key.
    #[error(
        "unknown argument `{0}`; known are shm, config, time, accesses, quantum_ns, skew_ns, idle_grace_us, idle_patience_us, report, trace and about"
    )]
    Unknown(String),
    /// Not `key=value`.
    #[error("`{0}` is not of the form key=value")]
    NotAPair(String),
    /// The value does not fit the key.
    #[error("{key}={value}: expected {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A key that must be given is not.
    #[error("argument `{0}` is missing")]
    Missing(&'static str),
}

impl Arguments {
    /// Reads the arguments.
    ///
    /// # Errors
    /// The first argument that is wrong, or one that is missing.
    pub fn parse<S: AsRef<str>>(
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Self, ArgumentError> {
        let mut parsed = Self {
            shm: PathBuf::new(),
            config: PathBuf::new(),
            time: TimeMode::Modelled,
            accesses: Accesses::User,
            quantum_ns: 50_000,
            skew_ns: 200_000,
            idle: IdleRule {
                grace: Duration::from_micros(300),
                patience: Duration::from_millis(50),
            },
            report: None,
            trace: None,
            about: None,
        };
        for argument in arguments {
            let argument = argument.as_ref();
            let Some((key, value)) = argument.split_once('=') else {
                return Err(ArgumentError::NotAPair(argument.to_owned()));
            };
            let wrong = |expected| ArgumentError::Value {
                key: key.to_owned(),
                value: value.to_owned(),
                expected,
            };
            // Small enough to be calculated with in any unit.
            let number = || {
                let parsed = value.parse().ok();
                parsed
                    .filter(|number| (1..=1_000_000_000).contains(number))
                    .ok_or_else(|| wrong("a whole number from 1 to 1000000000"))
            };
            match (key, value) {
                ("shm", _) => parsed.shm = value.into(),
                ("config", _) => parsed.config = value.into(),
                ("report", _) => parsed.report = Some(value.into()),
                ("trace", _) => parsed.trace = Some(value.into()),
                ("about", _) => parsed.about = Some(value.into()),
                ("time", "real") => parsed.time = TimeMode::Real,
                ("time", "modelled") => parsed.time = TimeMode::Modelled,
                ("time", _) => return Err(wrong("real or modelled")),
                ("accesses", "user") => parsed.accesses = Accesses::User,
                ("accesses", "all") => parsed.accesses = Accesses::All,
                ("accesses", _) => return Err(wrong("user or all")),
                ("quantum_ns", _) => parsed.quantum_ns = number()?,
                ("skew_ns", _) => parsed.skew_ns = number()?,
                ("idle_grace_us", _) => parsed.idle.grace = Duration::from_micros(number()?),
                ("idle_patience_us", _) => parsed.idle.patience = Duration::from_micros(number()?),
                _ => return Err(ArgumentError::Unknown(key.to_owned())),
            }
        }
        for (key, path) in [("shm", &parsed.shm), ("config", &parsed.config)] {
            if path.as_os_str().is_empty() {
                return Err(ArgumentError::Missing(key));
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: [&str; 2] = ["shm=/s", "config=/c.toml"];

    fn with(argument: &str) -> Result<Arguments, ArgumentError> {
        Arguments::parse(NEEDED.into_iter().chain([argument]))
    }

    #[test]
    fn what_is_given_is_taken() {
        let arguments = Arguments::parse(NEEDED).unwrap();
        assert_eq!(arguments.shm, PathBuf::from("/s"));
        assert_eq!(arguments.time, TimeMode::Modelled);
        assert_eq!(with("time=real").unwrap().time, TimeMode::Real);
        assert_eq!(with("accesses=all").unwrap().accesses, Accesses::All);
        assert_eq!(with("quantum_ns=7").unwrap().quantum_ns, 7);
        assert_eq!(
            with("idle_grace_us=9").unwrap().idle.grace,
            Duration::from_micros(9)
        );
        assert_eq!(
            with("report=/a=b").unwrap().report,
            Some(PathBuf::from("/a=b"))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(
            with("shm").unwrap_err().to_string(),
            "`shm` is not of the form key=value"
        );
        assert!(
            with("gate=1")
                .unwrap_err()
                .to_string()
                .starts_with("unknown argument `gate`")
        );
        for wrong in [
            "time=fast",
            "skew_ns=-1",
            "skew_ns=0",
            "quantum_ns=1e3",
            "accesses=",
        ] {
            assert!(
                matches!(with(wrong), Err(ArgumentError::Value { .. })),
                "{wrong}"
            );
        }
        let missing = Arguments::parse(["shm=/s"]).unwrap_err();
        assert_eq!(missing.to_string(), "argument `config` is missing");
    }
}
