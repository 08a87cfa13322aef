// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the machine to be modelled: a [`Config`] in TOML or JSON, and in its table `ipm` the
//! [`IpmConfig`] of its IPM unit. A machine with TLBs has such a unit; without the table, that of the
//! paper.

use std::path::Path;

use numaherd_hardware::{Config, HardwareError, IpmConfig};
use serde_json::Value;

use crate::file_error::{FileError, Problem};

/// A machine, and the unit that one with TLBs has.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineFile {
    /// The machine.
    pub config: Config,
    /// Its IPM unit.
    pub ipm: Option<IpmConfig>,
}

/// Reads the machine for a guest of this many vCPUs.
pub fn read(path: &Path, vcpus: usize) -> Result<MachineFile, FileError> {
    let text = std::fs::read_to_string(path).map_err(Problem::Io);
    let machine = text.and_then(|text| parse(&text, vcpus));
    machine.map_err(FileError::of("machine file", path))
}

/// JSON begins with a brace.
fn parse(text: &str, vcpus: usize) -> Result<MachineFile, Problem> {
    let mut whole: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)?
    } else {
        toml::from_str(text)?
    };
    let ipm = whole.as_object_mut().and_then(|table| table.remove("ipm"));
    let config: Config = serde_json::from_value(whole)?;
    config.validate()?;
    let ipm = match ipm {
        Some(_) if config.tlb.is_none() => return Err(HardwareError::NoTlb.into()),
        Some(ipm) => Some(serde_json::from_value::<IpmConfig>(ipm).map_err(Problem::Ipm)?),
        None => config.tlb.map(|_| IpmConfig::of_paper()),
    };
    if let Some(ipm) = &ipm {
        ipm.validate()?;
    }
    let cores = config.cores();
    if cores != vcpus {
        return Err(Problem::Cores { cores, vcpus });
    }
    Ok(MachineFile { config, ipm })
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_hardware::{Tlb, TlbLevel, TlbManagement};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    fn read_text(text: &str, vcpus: usize) -> Result<MachineFile, Problem> {
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
        config.map_err(|error| *error.problem)
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
        let file = MachineFile { config, ipm: None };
        for text in [
            toml::to_string(&file.config).unwrap(),
            serde_json::to_string(&file.config).unwrap(),
        ] {
            assert_eq!(read_text(&text, 4).unwrap(), file);
        }
    }

    #[test]
    fn a_machine_with_tlbs_has_an_ipm_unit() {
        let level = TlbLevel {
            entries: 64,
            ways: 4,
            hit_ns: 0.0,
        };
        let none = Config::of_equal_nodes(2, vec![vec![90.0]], 3.2);
        let without = toml::to_string(&none).unwrap();
        let tlb = Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 80.0,
            l1: level,
            l2: None,
        };
        let tlb = Some(tlb);
        let with = toml::to_string(&Config { tlb, ..none }).unwrap();
        let ipm = read_text(&with, 2).unwrap().ipm.unwrap();
        assert_eq!(ipm, IpmConfig::of_paper());

        let own = IpmConfig {
            cr_mig: 1,
            ..IpmConfig::of_paper()
        };
        let table = format!("\n[ipm]\n{}", toml::to_string(&own).unwrap());
        assert_eq!(
            read_text(&format!("{with}{table}"), 2).unwrap().ipm,
            Some(own)
        );
        assert!(matches!(
            read_text(&format!("{without}{table}"), 2),
            Err(Problem::Config(HardwareError::NoTlb))
        ));
        let wrong = format!("{with}{}", table.replace("cr_mig = 1", "cr_mig = 99"));
        assert!(matches!(read_text(&wrong, 2), Err(Problem::Config(_))));
    }

    #[test]
    fn files_that_lie_are_refused() {
        let config = Config::of_equal_nodes(2, vec![vec![90.0]], 3.2);
        let text = toml::to_string(&config).unwrap();
        assert!(matches!(
            read_text(&text, 3),
            Err(Problem::Cores { cores: 2, .. })
        ));
        let lying = text.replace("latency_ns = [[90.0]]", "latency_ns = [[-90.0]]");
        assert!(matches!(read_text(&lying, 2), Err(Problem::Config(_))));
        let unknown = format!("colour = 1\n{text}");
        assert!(matches!(read_text(&unknown, 2), Err(Problem::Json(_))));
        let gone = read(Path::new("/nonexistent"), 2).unwrap_err();
        assert!(gone.to_string().starts_with("machine file /nonexistent: "));
    }
}
