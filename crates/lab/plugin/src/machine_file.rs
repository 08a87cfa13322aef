// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the machine to be modelled: a [`Config`] in TOML or JSON.

use std::path::Path;

use numaherd_hardware::{Config, ConfigError};

/// Why a machine file is no good.
#[derive(Debug, thiserror::Error)]
pub enum MachineFileError {
    /// It cannot be read.
    #[error("machine file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It is neither TOML nor JSON of a machine.
    #[error("machine file {path}: {reason}")]
    Parse {
        /// The file.
        path: String,
        /// What the parser said.
        reason: String,
    },
    /// The machine makes no sense.
    #[error("machine file {path}: {source}")]
    Config {
        /// The file.
        path: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// QEMU and the machine file disagree.
    #[error(
        "machine file {path} has {cores} cores, QEMU at most {vcpus} vCPUs; they must be as many"
    )]
    Cores {
        /// The file.
        path: String,
        /// Its cores.
        cores: usize,
        /// QEMU's vCPUs.
        vcpus: usize,
    },
}

/// Reads the machine for a guest of this many vCPUs. JSON begins with a brace.
pub fn read(path: &Path, vcpus: usize) -> Result<Config, MachineFileError> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| MachineFileError::Read {
        path: name(),
        source,
    })?;
    let parsed = if text.trim_start().starts_with('{') {
        serde_json::from_str::<Config>(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str::<Config>(&text).map_err(|error| error.to_string())
    };
    let config = parsed.map_err(|reason| MachineFileError::Parse {
        path: name(),
        reason,
    })?;
    config
        .validate()
        .map_err(|source| MachineFileError::Config {
            path: name(),
            source,
        })?;
    if config.cores() != vcpus {
        return Err(MachineFileError::Cores {
            path: name(),
            cores: config.cores(),
            vcpus,
        });
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    fn read_text(text: &str, vcpus: usize) -> Result<Config, MachineFileError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "lab-machine-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let config = read(&path, vcpus);
        std::fs::remove_file(path).unwrap();
        config
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let mut config = Config::of_equal_nodes(2, vec![vec![90.0, 150.5], vec![150.5, 90.0]], 3.2);
        config.links.push(numaherd_hardware::Link {
            from: 0,
            to: 1,
            gb_per_s: 1.0,
        });
        config.links.push(numaherd_hardware::Link {
            from: 1,
            to: 0,
            gb_per_s: 1.0,
        });
        assert_eq!(
            read_text(&toml::to_string(&config).unwrap(), 4).unwrap(),
            config
        );
        assert_eq!(
            read_text(&serde_json::to_string(&config).unwrap(), 4).unwrap(),
            config
        );
    }

    #[test]
    fn files_that_lie_are_refused() {
        let config = Config::of_equal_nodes(2, vec![vec![90.0]], 3.2);
        let text = toml::to_string(&config).unwrap();
        assert!(matches!(
            read_text(&text, 3),
            Err(MachineFileError::Cores { cores: 2, .. })
        ));
        let lying = text.replace("latency_ns = [[90.0]]", "latency_ns = [[-90.0]]");
        assert!(matches!(
            read_text(&lying, 2),
            Err(MachineFileError::Config { .. })
        ));
        let unknown = format!("colour = 1\n{text}");
        assert!(matches!(
            read_text(&unknown, 2),
            Err(MachineFileError::Parse { .. })
        ));
        let gone = read(Path::new("/nonexistent"), 2).unwrap_err();
        assert!(gone.to_string().starts_with("machine file /nonexistent: "));
    }
}
