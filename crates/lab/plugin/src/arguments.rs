// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's arguments on QEMU's command line: `-plugin FILE,key=value,…`.

use std::path::PathBuf;

/// The plugin's arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arguments {
    /// The file behind the guest's shared memory; it must have its full size already.
    pub shm: PathBuf,
    /// The machine file: see `machine_file`.
    pub config: PathBuf,
    /// The file for the final report, in JSON.
    pub report: Option<PathBuf>,
    /// The trace file to record into, in place of modelling accesses.
    pub trace: Option<PathBuf>,
    /// The file with the recording's description, a JSON object.
    pub about: Option<PathBuf>,
    /// Whether accesses of the guest's kernel are modelled, too.
    pub kernel: bool,
}

/// Why the arguments are wrong.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum ArgumentError {
    /// No such key.
    #[error("unknown argument `{0}`; known are shm, config, report, trace, about and kernel")]
    Unknown(String),
    /// Not `key=value`.
    #[error("`{0}` is not of the form key=value")]
    NotAPair(String),
    /// Neither on nor off.
    #[error("`{0}` is neither on nor off")]
    NotASwitch(String),
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
            report: None,
            trace: None,
            about: None,
            kernel: false,
        };
        for argument in arguments {
            let argument = argument.as_ref();
            let Some((key, value)) = argument.split_once('=') else {
                return Err(ArgumentError::NotAPair(argument.to_owned()));
            };
            match key {
                "shm" => parsed.shm = value.into(),
                "config" => parsed.config = value.into(),
                "report" => parsed.report = Some(value.into()),
                "trace" => parsed.trace = Some(value.into()),
                "about" => parsed.about = Some(value.into()),
                "kernel" => {
                    parsed.kernel = match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(ArgumentError::NotASwitch(argument.to_owned())),
                    }
                }
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

    const NEEDED: [&str; 2] = ["shm=/s", "config=/machine"];

    fn with(argument: &str) -> Result<Arguments, ArgumentError> {
        Arguments::parse(NEEDED.into_iter().chain([argument]))
    }

    #[test]
    fn what_is_given_is_taken() {
        let arguments = Arguments::parse(NEEDED).unwrap();
        assert_eq!(arguments.shm, PathBuf::from("/s"));
        assert_eq!(arguments.config, PathBuf::from("/machine"));
        assert_eq!(
            with("report=/a=b").unwrap().report,
            Some(PathBuf::from("/a=b"))
        );
        assert!(!arguments.kernel);
        assert!(with("kernel=on").unwrap().kernel);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(
            with("shm").unwrap_err().to_string(),
            "`shm` is not of the form key=value"
        );
        assert_eq!(
            with("kernel=yes").unwrap_err().to_string(),
            "`kernel=yes` is neither on nor off"
        );
        assert!(
            with("gate=1")
                .unwrap_err()
                .to_string()
                .starts_with("unknown argument `gate`")
        );
        let missing = Arguments::parse(["shm=/s"]).unwrap_err();
        assert_eq!(missing.to_string(), "argument `config` is missing");
    }
}
