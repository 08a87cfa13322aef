// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the machine to be modelled: a [`Config`] in JSON, and in its member `ipm` the [`IpmConfig`] of its IPM unit. A
//! machine with TLBs always has a unit, by default with the paper's configuration.

use std::path::Path;

use numaherd_hardware::{Config, HardwareError, IpmConfig};
use serde_json::Value;

use crate::file_error::{FileError, Problem};

/// A machine, with its IPM unit if it has TLBs.
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

fn parse(text: &str, vcpus: usize) -> Result<MachineFile, Problem> {
    let mut whole: Value = serde_json::from_str(text)?;
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
    use serde_json::json;

    fn config() -> Config {
        Config::of_equal_nodes(2, vec![vec![90.0]], 3.2)
    }

    fn parse_value(value: &Value, vcpus: usize) -> Result<MachineFile, Problem> {
        parse(&value.to_string(), vcpus)
    }

    #[test]
    fn what_the_launcher_writes_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine");
        std::fs::write(&path, json!(config()).to_string()).unwrap();
        let (config, ipm) = (config(), None);
        assert_eq!(read(&path, 2).unwrap(), MachineFile { config, ipm });
    }

    #[test]
    fn a_machine_with_tlbs_has_an_ipm_unit() {
        let level = TlbLevel {
            entries: 64,
            ways: 4,
            hit_ns: 0.0,
        };
        let tlb = Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 80.0,
            l1: level,
            l2: None,
        };
        let mut with = json!(config());
        with["tlb"] = json!(tlb);
        let ipm = parse_value(&with, 2).unwrap().ipm.unwrap();
        assert_eq!(ipm, IpmConfig::of_paper());

        let own = IpmConfig {
            cr_mig: 1,
            ..IpmConfig::of_paper()
        };
        with["ipm"] = json!(own);
        assert_eq!(parse_value(&with, 2).unwrap().ipm, Some(own));
        let mut without = json!(config());
        without["ipm"] = json!(own);
        assert!(matches!(
            parse_value(&without, 2),
            Err(Problem::Config(HardwareError::NoTlb))
        ));
        with["ipm"]["cr_mig"] = 99.into();
        assert!(matches!(parse_value(&with, 2), Err(Problem::Config(_))));
    }

    #[test]
    fn files_that_lie_are_refused() {
        let of = |key: &str, value: Value| {
            let mut machine = json!(config());
            machine[key] = value;
            machine
        };
        assert!(matches!(
            parse_value(&json!(config()), 3),
            Err(Problem::Cores { cores: 2, .. })
        ));
        let lying = of("latency_ns", json!([[-90.0]]));
        assert!(matches!(parse_value(&lying, 2), Err(Problem::Config(_))));
        let unknown = of("colour", 1.into());
        assert!(matches!(parse_value(&unknown, 2), Err(Problem::Json(_))));
        assert!(matches!(parse("colour = 1", 2), Err(Problem::Json(_))));
        let gone = read(Path::new("/nonexistent"), 2).unwrap_err();
        assert!(gone.to_string().starts_with("machine file /nonexistent: "));
    }
}
