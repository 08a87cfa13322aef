//! Reads a scenario's text and checks its keys.
//!
//! A key without a meaning in the world that reads the file ([`ELSEWHERE`]) is refused.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use numaherd_files::{Document, FileError};
use numaherd_model::Until;
use numaherd_topology::CpuSet;
use toml::{Table, Value};

use super::file::{
    File, MeasureTable, MemoryKey, MemoryWord, Policies, ProgramTable, ReadyTable, UntilTable,
};
use super::in_lab::{Better, Command, InLab, Measure, Pattern, Ready, Source};
use super::{Count, Cpus, MOST_REPEATS, Memory, Program, Scenario, Tables, World};

/// Limits beyond which a figure counts as a mistake.
const MOST_COPIES: u32 = 1 << 20;
const MOST_COMPLETIONS: u32 = 1000;
const MOST_WORK: f64 = 1e9;
/// The longest time after which a program counts as ready, in seconds: shorter than the limit of a set-up.
const LONGEST_WAIT_S: f64 = 100.0;
/// A year.
const LONGEST_S: f64 = 365.0 * 86_400.0;

/// The keys that only some worlds understand, each with these worlds.
const ELSEWHERE: [(&str, &[World]); 15] = [
    ("until", &[World::Lab, World::Model]),
    ("count", &[World::Model]),
    ("governor", &[World::Model]),
    ("kernel_accesses", &[World::Lab]),
    ("model", &[World::Lab, World::Model]),
    ("profiles", &[World::Model]),
    ("trace", &[World::Trace]),
    ("herd", &[World::Trace]),
    ("program", &[World::Lab, World::Model]),
    ("program.start_on", &[World::Lab, World::Model]),
    ("program.best_on", &[World::Lab]),
    ("program.cpus", &[World::Model]),
    ("program.start_after_s", &[World::Model]),
    ("program.gang", &[World::Model]),
    ("program.stagger", &[World::Model]),
];

/// The scenario that a text describes.
///
/// # Errors
/// The text is wrong: the message names line, key and reason.
pub fn scenario(document: Document<'_>, world: World) -> Result<Scenario, FileError> {
    let file: File = document.parse()?;
    let written: Table = document.parse()?;
    understood(&document, &written, world)?;
    Reading { document, world }.scenario(file, written)
}

/// Checks that `world` understands all keys of a file.
fn understood(document: &Document<'_>, written: &Table, world: World) -> Result<(), FileError> {
    let check = |name: &str, key: &str| {
        let elsewhere = ELSEWHERE.iter().find(|(key, _)| *key == name);
        match elsewhere.filter(|(_, worlds)| !worlds.contains(&world)) {
            None => Ok(()),
            Some((_, worlds)) => {
                let worlds: Vec<&str> = worlds.iter().map(|world| world.name()).collect();
                let (here, there) = (world.name(), worlds.join(" and "));
                let why = format!("means nothing {here}, only {there}: leave it out");
                Err(document.wrong_key(key, why))
            }
        }
    };
    for key in written.keys() {
        check(key, key)?;
    }
    let programs = written.get("program").and_then(Value::as_array);
    for (number, program) in programs.into_iter().flatten().enumerate() {
        for key in program.as_table().into_iter().flat_map(Table::keys) {
            check(
                &format!("program.{key}"),
                &format!("program[{number}].{key}"),
            )?;
        }
    }
    let settings = written.get("settings").and_then(Value::as_table);
    let own = |key: &&String| matches!(key.as_str(), "herd" | "policies") || world == World::Lab;
    match settings.and_then(|settings| settings.keys().find(|key| !own(key))) {
        Some(key) => {
            let why = format!(
                "means nothing {}, only in the lab: leave it out",
                world.name()
            );
            Err(document.wrong_key(&format!("settings.{key}"), why))
        }
        None => Ok(()),
    }
}

/// The reading of a scenario's text in a world.
struct Reading<'t> {
    document: Document<'t>,
    world: World,
}

impl Reading<'_> {
    fn wrong<T>(&self, key: &str, why: impl std::fmt::Display) -> Result<T, FileError> {
        Err(self.document.wrong_key(key, why))
    }

    /// Refuses a figure that is out of range.
    fn within(
        &self,
        key: &str,
        value: u32,
        possible: RangeInclusive<u32>,
        hint: &str,
    ) -> Result<(), FileError> {
        if possible.contains(&value) {
            return Ok(());
        }
        let (least, most) = (possible.start(), possible.end());
        self.wrong(
            key,
            format!("{value} is not within {least} to {most}{hint}"),
        )
    }

    fn scenario(&self, file: File, written: Table) -> Result<Scenario, FileError> {
        let is_trace = self.world == World::Trace;
        let needed = |key: &str, given: Option<String>| match given {
            Some(text) if text.trim().is_empty() && key == "name" => {
                self.wrong(key, "give it a name")
            }
            Some(text) => Ok(text),
            None if is_trace => Ok(String::new()),
            None => self.wrong("", format!("missing field `{key}`")),
        };
        let (name, about) = (needed("name", file.name)?, needed("about", file.about)?);
        let machine = needed("machine", file.machine)?;
        let usual = self.world.usual_policies().iter();
        let usual = || usual.map(|&name| name.to_owned()).collect();
        let (policies, of_policies) = match file.policies {
            Some(Policies::Names(names)) if names.is_empty() => {
                return self.wrong("policies", "name at least one policy");
            }
            Some(Policies::Names(names)) => (names, Table::new()),
            Some(Policies::Settings(_)) if !is_trace => {
                return self.wrong(
                    "policies",
                    "give a list of policies; their settings are in [settings.policies]",
                );
            }
            Some(Policies::Settings(table)) => (usual(), table),
            None => (usual(), Table::new()),
        };
        let repeat = file.repeat.unwrap_or(self.world.usual_repeat());
        self.within("repeat", repeat, 1..=MOST_REPEATS, "")?;
        let until = self.until(&file.until.unwrap_or(UntilTable {
            completions: Some(1),
            ..UntilTable::default()
        }))?;
        let count = self.count(file.count.unwrap_or_default(), &until)?;
        let programs = (0..).zip(file.programs);
        let programs = programs.map(|(number, table)| self.program(number, table));
        let programs: Vec<Program> = programs.collect::<Result<_, FileError>>()?;
        if !is_trace && programs.is_empty() {
            return self.wrong("program", "what runs? give at least one [[program]]");
        }
        if !is_trace && !programs.iter().any(|program| program.measured) {
            return self.wrong(
                "program",
                "none is measured: leave out one measured = false",
            );
        }
        if self.world == World::Lab {
            self.one_measure(&programs, &until)?;
            self.one_port_each(&programs)?;
        }
        let settings = |key: &str, otherwise: Table| match file.settings.get(key) {
            None => Ok(otherwise),
            Some(Value::Table(table)) => Ok(table.clone()),
            Some(_) => self.wrong(&format!("settings.{key}"), "give a table"),
        };
        Ok(Scenario {
            world: self.world,
            name,
            about,
            machine,
            measured_are: file.measured_are.unwrap_or_else(|| "programs".to_owned()),
            policies,
            repeat,
            until,
            count,
            governor: file.governor,
            kernel_accesses: file.kernel_accesses,
            settings: Tables {
                herd: settings("herd", file.herd)?,
                policies: settings("policies", of_policies)?,
                model: file.model,
                trace: file.trace,
            },
            profiles: file.profiles,
            programs,
            written,
            from: self.document.file.to_owned(),
            text: self.document.text.to_owned(),
        })
    }

    fn until(&self, given: &UntilTable) -> Result<Until, FileError> {
        let wrong = |why: String| self.wrong("until", why);
        let time = |seconds: f64| match (1e-3..=LONGEST_S).contains(&seconds) {
            true => Ok(Until::Time(Duration::from_secs_f64(seconds))),
            false => wrong(format!("{seconds} s is not within 1 ms to a year")),
        };
        match (given.completions, given.seconds, given.hours) {
            (Some(2..), None, None) if self.world == World::Lab => self.wrong(
                "until.completions",
                "the lab runs each program once: leave it out, or give seconds",
            ),
            (Some(all), None, None) => {
                self.within("until.completions", all, 1..=MOST_COMPLETIONS, "")?;
                Ok(Until::Completions(all))
            }
            (None, Some(seconds), None) => time(seconds),
            (None, None, Some(hours)) => time(hours * 3600.0),
            _ => wrong("give one of completions, seconds and hours".to_owned()),
        }
    }

    fn count(&self, count: Count, until: &Until) -> Result<Count, FileError> {
        let why = match (count, until) {
            (Count::Second, Until::Completions(1)) => "there is no second of 1 completion",
            (Count::First | Count::Second, Until::Time(_)) => {
                "after a time, not each program has completed: leave it out, or say until = { completions = 3 }"
            }
            _ => return Ok(count),
        };
        self.wrong("count", why)
    }

    fn program(&self, number: u32, table: ProgramTable) -> Result<Program, FileError> {
        let key = |key: &str| format!("program[{number}].{key}");
        let wrong = |name: &str, why: &str| self.wrong(&key(name), why);
        let hint = ": to have none, leave the program out";
        self.within(&key("copies"), table.copies, 1..=MOST_COPIES, hint)?;
        if !(table.work > 0.0 && table.work <= MOST_WORK) {
            let why = format!("{} is not above 0 and at most {MOST_WORK}", table.work);
            return wrong("work", &why);
        }
        let lab = match self.world {
            World::Lab => self.in_lab(number, &table)?,
            World::Model | World::Trace => InLab::default(),
        };
        match self.world {
            World::Model if table.profile.is_none() => {
                return wrong("profile", "name the profile that the model runs");
            }
            _ => {}
        }
        let memory = match table.memory {
            Some(MemoryKey::Node(node)) => Memory::Node(node),
            Some(MemoryKey::Word(MemoryWord::Interleave)) if self.world == World::Lab => {
                return wrong("memory", "the lab takes a node's number, or nothing");
            }
            Some(MemoryKey::Word(MemoryWord::Interleave)) => Memory::Interleave,
            Some(MemoryKey::Word(MemoryWord::FirstTouch)) | None => Memory::FirstTouch,
        };
        if !(0.0..=LONGEST_S).contains(&table.start_after_s) {
            let why = format!("{} is not within 0 to a year", table.start_after_s);
            return wrong("start_after_s", &why);
        }
        let cpus = self.cpus(number, &table)?;
        let best_on = table.best_on.as_deref();
        let best_on = best_on
            .map(|text| self.cpu_set(&key("best_on"), text))
            .transpose()?;
        let profile = table.profile.unwrap_or_default();
        let name = match table.name {
            None if profile.is_empty() => match lab.command.as_ref().and_then(Command::name) {
                Some(name) => name.to_owned(),
                None => return wrong("name", "give it a name"),
            },
            None => profile.clone(),
            Some(name) if name.trim().is_empty() => {
                return wrong("name", "leave it out to have the profile's");
            }
            Some(name) => name,
        };
        Ok(Program {
            name,
            // A program that is ready before the trial serves the others, unless it has a measure.
            measured: table
                .measured
                .unwrap_or(table.ready.is_none() || table.measure.is_some()),
            lab,
            profile,
            work: table.work,
            copies: table.copies,
            memory,
            cpus,
            best_on,
            start_after_s: table.start_after_s,
            gang: table.gang,
            stagger: table.stagger,
        })
    }

    fn cpus(&self, number: u32, table: &ProgramTable) -> Result<Cpus, FileError> {
        type Make = fn(CpuSet) -> Cpus;
        let wrong = |key: &str, why: String| self.wrong(&format!("program[{number}].{key}"), why);
        let keys: [(&str, &Option<String>, Make); 3] = [
            ("start_on", &table.start_on, Cpus::StartOn),
            ("cpus", &table.cpus, Cpus::Within),
            ("pinned", &table.pinned, Cpus::Pinned),
        ];
        let mut given = keys
            .into_iter()
            .filter_map(|(key, given, make)| Some((key, given.as_ref()?, make)));
        let Some((key, text, make)) = given.next() else {
            return Ok(Cpus::Free);
        };
        if let Some((second, ..)) = given.next() {
            return wrong(second, format!("give either this or {key}, not both"));
        }
        let key = format!("program[{number}].{key}");
        self.cpu_set(&key, text).map(make)
    }

    fn cpu_set(&self, key: &str, text: &str) -> Result<CpuSet, FileError> {
        match text.parse::<CpuSet>() {
            Ok(set) if set.is_empty() => self.wrong(key, "name at least one CPU"),
            Ok(set) => Ok(set),
            Err(error) => self.wrong(key, error),
        }
    }
    /// A program in the lab.
    fn in_lab(&self, number: u32, table: &ProgramTable) -> Result<InLab, FileError> {
        let key = |key: &str| format!("program[{number}].{key}");
        let wrong = |name: &str, why: &str| self.wrong(&key(name), why);
        let command = table.command.clone().filter(|command| !command.is_empty());
        let Some(command) = command else {
            return wrong("command", "name the program that the lab runs");
        };
        if table.setup.as_ref().is_some_and(Command::is_empty) {
            return wrong("setup", "leave it out to set nothing up");
        }
        if table
            .user
            .as_ref()
            .is_some_and(|user| user.trim().is_empty())
        {
            return wrong("user", "leave it out to run as root");
        }
        let ready = table.ready.as_ref();
        let ready = ready.map(|ready| self.ready(number, ready)).transpose()?;
        let waits = table
            .waits
            .unwrap_or(command.is_menagerie() && ready.is_none());
        if waits && ready.is_some() {
            return wrong("ready", "give either this or waits, not both");
        }
        let placed = [
            ("memory", table.memory.is_some(), "numactl --membind=0"),
            ("start_on", table.start_on.is_some(), "taskset --cpu-list 0"),
            ("pinned", table.pinned.is_some(), "taskset --cpu-list 0"),
            ("best_on", table.best_on.is_some(), "taskset --cpu-list 0"),
        ];
        if let Some((name, _, instead)) = placed.iter().find(|(_, given, _)| *given && !waits) {
            let why = format!(
                "only a program that waits for its start understands it: put {instead} before the command"
            );
            return wrong(name, &why);
        }
        let measure = table.measure.as_ref();
        let measure = measure
            .map(|measure| self.measure(number, measure))
            .transpose()?;
        if ready.is_some() && table.measured == Some(true) && measure.is_none() {
            let why = "it serves the others and has no end: say what to measure (measure), or leave this out";
            return wrong("measured", why);
        }
        Ok(InLab {
            command: Some(command),
            setup: table.setup.clone(),
            user: table.user.clone(),
            waits,
            ready,
            measure: measure.unwrap_or_default(),
        })
    }

    fn ready(&self, number: u32, table: &ReadyTable) -> Result<Ready, FileError> {
        let key = format!("program[{number}].ready");
        let wrong = |name: &str, why: String| self.wrong(&format!("{key}.{name}"), why);
        match (table.port, &table.file, &table.line, table.seconds) {
            (Some(0), None, None, None) => {
                wrong("port", "0 is no port: give 1 to 65535".to_owned())
            }
            (Some(port), None, None, None) => Ok(Ready::Port(port)),
            (None, Some(file), None, None) => Ok(Ready::File(file.clone())),
            (None, None, Some(line), None) => {
                self.pattern(&format!("{key}.line"), line).map(Ready::Line)
            }
            (None, None, None, Some(seconds)) if (0.0..=LONGEST_WAIT_S).contains(&seconds) => {
                Ok(Ready::After(Duration::from_secs_f64(seconds)))
            }
            (None, None, None, Some(seconds)) => {
                let why = format!("{seconds} is not within 0 to {LONGEST_WAIT_S}");
                wrong("seconds", why)
            }
            _ => self.wrong(&key, "give one of port, file, line and seconds"),
        }
    }

    fn measure(&self, number: u32, table: &MeasureTable) -> Result<Measure, FileError> {
        let key = format!("program[{number}].measure");
        let wrong = |name: &str, why: &str| self.wrong(&format!("{key}.{name}"), why);
        match (&table.output, &table.counter, table.better) {
            (Some(_), None, None) => {
                wrong("better", "say which is better, \"higher\" or \"lower\"")
            }
            (Some(pattern), None, Some(better)) => Ok(Measure {
                from: Source::Output(self.pattern(&format!("{key}.output"), pattern)?),
                unit: table.unit.clone().unwrap_or_default(),
                better,
            }),
            (None, Some(_), Some(Better::Lower)) => wrong(
                "better",
                "of operations per second more are better: leave it out",
            ),
            (None, Some(counter), _) if counter.is_empty() => {
                wrong("counter", "give a command that prints a number")
            }
            (None, Some(counter), _) => Ok(Measure {
                from: Source::Counter(counter.clone()),
                unit: table.unit.as_deref().unwrap_or("operations").to_owned() + "/s",
                better: Better::Higher,
            }),
            _ => self.wrong(&key, "give one of output and counter"),
        }
    }

    fn pattern(&self, key: &str, text: &str) -> Result<Pattern, FileError> {
        let refused = |error| {
            self.document
                .wrong_key(key, format!("cannot read {text:?}: {error}"))
        };
        Pattern::new(text).map_err(refused)
    }

    /// Checks that there is one measure to compare, and that a trial ends.
    fn one_measure(&self, programs: &[Program], until: &Until) -> Result<(), FileError> {
        let measured = programs
            .iter()
            .enumerate()
            .filter(|(_, program)| program.measured);
        let mut first = None;
        for (number, program) in measured {
            let key = format!("program[{number}].measure");
            let measure = &program.lab.measure;
            let (name, first) = *first.get_or_insert((&program.name, measure));
            if (&measure.unit, measure.better) != (&first.unit, first.better) {
                let why = format!(
                    "{} is measured in {:?} and {name} in {:?}, and what is compared is one figure: say measured = \
                     false of one",
                    program.name, measure.unit, first.unit
                );
                return self.wrong(&key, why);
            }
            let has_end =
                program.lab.ready.is_none() && !matches!(measure.from, Source::Counter(_));
            if !has_end && matches!(until, Until::Completions(_)) {
                let why = "it has no end: say until = { seconds = 5 }, in modelled time";
                return self.wrong(&key, why);
            }
        }
        Ok(())
    }

    /// Checks that no two copies have the same port: a copy's port is its program's plus its number.
    fn one_port_each(&self, programs: &[Program]) -> Result<(), FileError> {
        let ports = programs.iter().map(|program| match program.lab.ready {
            Some(Ready::Port(first)) => u32::from(first)..u32::from(first) + program.copies,
            _ => 0..0,
        });
        let ports: Vec<_> = ports.collect();
        for (number, own) in ports.iter().enumerate() {
            let key = format!("program[{number}].ready.port");
            if let Some(last) = own.clone().last().filter(|&last| last > u16::MAX.into()) {
                let why = format!("its last copy would serve {last}, and the last port is 65535");
                return self.wrong(&key, why);
            }
            let shares = |other: &&Range<u32>| own.start < other.end && other.start < own.end;
            if let Some(other) = ports[..number].iter().find(shares) {
                let port = own.start.max(other.start);
                let why = format!(
                    "port {port} is another program's: the number of the copy is added to the port"
                );
                return self.wrong(&key, why);
            }
        }
        Ok(())
    }
}
