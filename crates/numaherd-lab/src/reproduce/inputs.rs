//! What the papers' experiments run on: machines, programs and the model's options, as they are or changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use numaherd::exit::{Exit, OrExit, ended};
use numaherd_experiment::claims::{ProgramChange, Variation};
use numaherd_model::{Library, Options, Program};
use numaherd_topology::Machine;

use super::testbed::Testbed;

/// Presets and the programs that come with Numaherd, and what takes the place of some of them and of the model's options.
#[derive(Debug)]
pub struct Inputs {
    machines: Vec<Machine>,
    programs: Arc<Library>,
    model: toml::Table,
}

impl Default for Inputs {
    fn default() -> Self {
        Self {
            machines: Vec::new(),
            programs: Arc::new(Library::built_in().clone()),
            model: toml::Table::new(),
        }
    }
}

impl Inputs {
    /// Reads machine files. Each takes the place of the preset of its name, which must be among `used`.
    ///
    /// # Errors
    /// A file cannot be read or is wrong; no experiment uses a machine of its name.
    pub fn read(files: &[PathBuf], used: &[&str]) -> Result<Self> {
        let read = |file: &PathBuf| {
            let machine = Machine::read(file).or_exit(Exit::Usage)?;
            if used.contains(&machine.name.as_str()) {
                return Ok(machine);
            }
            let (file, name) = (file.display(), &machine.name);
            let used = match used {
                [] => "none; --machine is for dino, n-mass, brm and autonuma".to_owned(),
                used => used.join(", "),
            };
            let why = format!(
                "--machine {file}: no experiment here runs on `{name}`; give a copy, with its `name`, of the file of one \
                 of these: {used}"
            );
            Err(ended(Exit::Usage, why))
        };
        Ok(Self {
            machines: files.iter().map(read).collect::<Result<_>>()?,
            ..Self::default()
        })
    }

    /// The presets and programs with what a variation changes.
    ///
    /// # Errors
    /// A machine, program or option is unknown, or cannot be changed like that.
    pub fn varied(variation: &Variation) -> Result<Self> {
        let changed = |(name, keys): (&String, &toml::Table)| changed(name, keys);
        let machines = variation.machines.iter().map(changed);
        let machines = machines.collect::<Result<_>>();
        let programs = with_changes(Library::built_in(), &variation.programs);
        let of_it = || format!("variation `{}`", variation.name);
        let model = &variation.model;
        Options::default().with(model).with_context(of_it)?;
        Ok(Self {
            machines: machines.with_context(of_it)?,
            programs: Arc::new(programs.with_context(of_it)?),
            model: model.clone(),
        })
    }

    /// The machine of this name.
    ///
    /// # Errors
    /// There is none, or the model cannot run it.
    pub fn testbed(&self, name: &str) -> Result<Testbed> {
        let (programs, model) = (self.programs.clone(), self.model.clone());
        match self.machines.iter().find(|machine| machine.name == name) {
            Some(machine) => Testbed::new(machine, programs, model),
            None => Testbed::new(&Machine::preset(name)?, programs, model),
        }
    }
}

/// A preset with other values for some keys of its file.
fn changed(name: &str, keys: &toml::Table) -> Result<Machine> {
    let mut file = toml::Table::try_from(Machine::preset(name)?)?;
    merge(&mut file, keys);
    let text = toml::to_string(&file)?;
    Ok(Machine::parse(&text, Path::new(name))?)
}

/// Replaces values by those of `changes`, table by table.
fn merge(table: &mut toml::Table, changes: &toml::Table) {
    for (key, change) in changes {
        match (table.get_mut(key), change) {
            (Some(toml::Value::Table(there)), toml::Value::Table(change)) => merge(there, change),
            _ => {
                table.insert(key.clone(), change.clone());
            }
        }
    }
}

/// The programs, some of them changed.
fn with_changes(programs: &Library, changes: &BTreeMap<String, ProgramChange>) -> Result<Library> {
    let mut all = programs.clone();
    for (name, change) in changes {
        let mut program = Program::clone(programs.get(name)?);
        for phase in &mut program.phases {
            phase.misses_in_flight = (phase.misses_in_flight * change.misses_in_flight).max(1.0);
            phase.cycles_per_instruction *= change.cycles_per_instruction;
        }
        all = all.with(program);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use numaherd_experiment::claims::{Claims, Paper};
    use numaherd_model::{Job, Until, alone};
    use numaherd_topology::CpuId;

    use super::super::testbed::{KERNEL, Workload};
    use super::*;

    #[test]
    fn a_changed_copy_takes_the_place_of_the_machine_of_its_name() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/machines");
        let text = std::fs::read_to_string(format!("{data}/uma-4x2.toml")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy.toml");
        std::fs::write(&copy, text.replace("clock_ghz = ", "clock_ghz = 1")).unwrap();
        let files = [copy.clone()];
        let machines = Inputs::read(&files, &["uma-4x2"]).unwrap();
        let cores = |name| {
            let [changed, built_in] =
                [&machines, &Inputs::default()].map(|of| of.testbed(name).unwrap());
            (
                format!("{:?}", changed.hardware),
                format!("{:?}", built_in.hardware),
            )
        };
        let (changed, built_in) = cores("uma-4x2");
        assert_ne!(changed, built_in);
        let (other, built_in) = cores("opteron-8356-4s");
        assert_eq!(other, built_in);
        let wrong = |used: &[&str]| Inputs::read(&files, used).unwrap_err().to_string();
        let copy = copy.display();
        assert_eq!(
            wrong(&["opteron-8356-4s", "opteron-2350-2s"]),
            format!(
                "--machine {copy}: no experiment here runs on `uma-4x2`; give a copy, with its `name`, of the file of \
                 one of these: opteron-8356-4s, opteron-2350-2s"
            )
        );
        assert!(wrong(&[]).ends_with("none; --machine is for dino, n-mass, brm and autonuma"));
    }

    #[test]
    fn every_variation_of_a_paper_can_be_made() {
        for paper in Paper::ALL {
            for variation in Claims::built_in(paper).unwrap().variations {
                let inputs = Inputs::varied(&variation).unwrap();
                for machine in &inputs.machines {
                    assert_ne!(machine, &Machine::preset(&machine.name).unwrap());
                }
            }
        }
    }

    /// One with these tables.
    fn variation(tables: &str) -> Variation {
        let head = "name = \"other\"\nwhat = \"something else\"\n";
        toml::from_str(&format!("{head}{tables}")).unwrap()
    }

    #[test]
    fn a_variation_changes_keys_of_a_machine_and_figures_of_a_program() {
        let variation = |machine: &str, program: &str| {
            variation(&format!("[machine]\n{machine}\n[program]\n{program}"))
        };
        let other = "uma-4x2.memory.node_gb_per_s = 3.5";
        let inputs = Inputs::varied(&variation(other, "mcf.misses_in_flight = 2")).unwrap();
        let preset = toml::Table::try_from(Machine::preset("uma-4x2").unwrap()).unwrap();
        let mut changed = toml::Table::try_from(&inputs.machines[0]).unwrap();
        let memory = changed["memory"].as_table_mut().unwrap();
        let now = memory.insert(
            "node_gb_per_s".to_owned(),
            preset["memory"]["node_gb_per_s"].clone(),
        );
        assert_eq!(now, Some(3.5.into()));
        assert_eq!(changed, preset);
        let in_flight = |inputs: &Inputs, name| {
            let testbed = inputs.testbed("uma-4x2").unwrap();
            testbed.phase(name).unwrap().misses_in_flight
        };
        let as_it_is = Inputs::default();
        assert_eq!(in_flight(&inputs, "mcf"), 2.0 * in_flight(&as_it_is, "mcf"));
        assert_eq!(in_flight(&inputs, "lbm"), in_flight(&as_it_is, "lbm"));
        for (machine, program, why) in [
            ("uma-4x2.memory.nod_gb_per_s = 3.5", "", "nod_gb_per_s"),
            ("uma-9.memory.node_gb_per_s = 3.5", "", "uma-9"),
            ("", "mfc.misses_in_flight = 2", "did you mean \"mcf\"?"),
        ] {
            let error = Inputs::varied(&variation(machine, program)).unwrap_err();
            let error = format!("{error:#}");
            assert!(
                error.starts_with("variation `other`: ") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn a_variation_changes_options_of_the_model_for_every_workload() {
        let of_model = |text: &str| variation(&format!("[model]\n{text}"));
        let inputs = Inputs::varied(&of_model("llc_gb_per_s = 1\nsmt_throughput = 1.2")).unwrap();
        let asked = Options {
            page_move_ns: 5.0,
            ..Options::default()
        };
        let given = asked.with(&inputs.model).unwrap();
        let expected = Options {
            llc_gb_per_s: 1.0,
            smt_throughput: 1.2,
            ..asked
        };
        assert_eq!(given, expected);
        let mcf = |inputs: &Inputs| {
            let testbed = inputs.testbed("uma-4x2").unwrap();
            let phase = testbed.phase("mcf").unwrap();
            let workload = Workload::new(
                vec![Job::new(testbed.program("mcf").unwrap().clone())],
                Until::Time(Duration::from_secs(1)),
            );
            let ran = testbed.run(KERNEL, &workload, 0).unwrap();
            (
                alone(&testbed.hardware, phase, CpuId(0)).ns,
                ran.work[0].instructions,
            )
        };
        let (slow, little) = mcf(&inputs);
        let (fast, much) = mcf(&Inputs::default());
        assert!(slow > 2.0 * fast && 2.0 * little < much, "{slow} {little}");
        for (text, why) in [
            ("llc_gb_per_sec = 1", "did you mean"),
            ("write_turnaround = 2", "write_turnaround"),
        ] {
            let error = Inputs::varied(&of_model(text)).unwrap_err();
            let error = format!("{error:#}");
            assert!(
                error.starts_with("variation `other`: ") && error.contains(why),
                "{error}"
            );
        }
    }
}
