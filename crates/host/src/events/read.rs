//! Reads a file of events: TOML to checked [`CounterSet`]s; an error names the line.
//!
//! Impossible codes are refused here, since the kernel would take any number and count something.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use numaherd_files::{Document, FileError};
use serde::Deserialize;

use super::{AppliesTo, CounterSet, Event, Maker, Role, kernel};
use crate::perf_errors::Refusal;

/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;

/// Limits beyond which a file is considered wrong.
const MOST_SETS: usize = 4096;
const MOST_EVENTS: usize = 8;
const MOST_MODELS: usize = 256;
const LONGEST_TEXT: usize = 1000;
const MOST_COUNTERS: u32 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default, rename = "set")]
    sets: Vec<SetTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetTable {
    name: Text,
    vendor: Option<String>,
    family: Option<u32>,
    models: Option<Vec<Models>>,
    implementer: Option<u32>,
    parts: Option<Vec<u32>>,
    pmu: Option<FileName>,
    everywhere: Option<bool>,
    source: Text,
    instructions: Option<EventTable>,
    cycles: Option<EventTable>,
    lines: Vec<EventTable>,
    prefetches: Option<EventTable>,
    caveat: Option<Text>,
    split: Option<SplitTable>,
    uncore: UncoreTable,
}

/// A line for people to read.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Text(String);

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("this must not be empty".to_owned());
        }
        if text.len() > LONGEST_TEXT || text.contains(char::is_control) {
            return Err(format!(
                "this must be one line of at most {LONGEST_TEXT} bytes"
            ));
        }
        Ok(Self(text))
    }
}

/// A name to look up in sysfs.
#[derive(Deserialize)]
#[serde(try_from = "Text")]
struct FileName(String);

impl TryFrom<Text> for FileName {
    type Error = &'static str;

    fn try_from(Text(name): Text) -> Result<Self, &'static str> {
        let sane = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match name.bytes().all(sane) {
            true => Ok(Self(name)),
            false => Err("names in sysfs have letters, digits, _ and -"),
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(
    untagged,
    expecting = "a model is a number, or the first and last of several: [0x8f, 0x91]"
)]
enum Models {
    One(u32),
    Several((u32, u32)),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventTable {
    name: Option<Text>,
    event: Option<u64>,
    umask: Option<u64>,
    cmask: Option<u64>,
    #[serde(default)]
    edge: bool,
    #[serde(default)]
    inv: bool,
    config1: Option<u64>,
    counters: Option<Vec<u32>>,
    kernel: Option<String>,
    pmu: Option<FileName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitTable {
    local: Option<EventTable>,
    both: Option<EventTable>,
    remote: EventTable,
    caveat: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncoreTable {
    busy_cycles: Option<EventTable>,
    requests: Option<Vec<EventTable>>,
    caveat: Option<Text>,
    missing: Option<Text>,
    remedy: Option<Text>,
}

/// Which key is wrong, dotted, and why.
type Wrong = (String, String);

fn wrong<T>(key: impl Into<String>, why: impl Into<String>) -> Result<T, Wrong> {
    Err((key.into(), why.into()))
}

/// The sets of a file, in its order.
pub(super) fn sets(document: Document<'_>) -> Result<Vec<CounterSet>, FileError> {
    checked(document.parse()?).map_err(|(key, why)| document.wrong_key(&key, why))
}

fn checked(file: FileTable) -> Result<Vec<CounterSet>, Wrong> {
    let mut sets: Vec<CounterSet> = Vec::with_capacity(file.sets.len().min(MOST_SETS));
    for (number, table) in file.sets.into_iter().enumerate() {
        let key = format!("set[{number}]");
        if number >= MOST_SETS {
            return wrong(
                key,
                format!("more than {MOST_SETS} sets in one file: split it"),
            );
        }
        let set = set(table, &key)?;
        let name = format!("{key}.name");
        for before in &sets {
            if before.name == set.name {
                return wrong(name, format!("there are two sets {:?}", set.name));
            }
            if let Some(both) = in_common(&before.machine, &set.machine) {
                let why = format!(
                    "{both} is in this set and in {:?}, which would always be tried first",
                    before.name
                );
                return wrong(name, why);
            }
        }
        sets.push(set);
    }
    Ok(sets)
}

/// What two sets of one file both apply to, so that the second would never be used.
fn in_common(first: &AppliesTo, second: &AppliesTo) -> Option<String> {
    match (first, second) {
        (AppliesTo::Any, _) => Some("every machine".to_owned()),
        (AppliesTo::Pmu(a), AppliesTo::Pmu(b)) => (a == b).then(|| format!("PMU {a}")),
        (
            AppliesTo::Models { maker, models },
            AppliesTo::Models {
                maker: other,
                models: others,
            },
        ) if maker == other => {
            let what = match maker {
                Maker::X86 { .. } => "model",
                Maker::Arm { .. } => "part",
            };
            let pairs = models
                .iter()
                .flat_map(|a| others.iter().map(move |b| (a, b)));
            let mut both = pairs.map(|(a, b)| *a.start().max(b.start())..=*a.end().min(b.end()));
            let both = both.find(|both| !both.is_empty())?;
            Some(format!("{what} {:#x}", both.start()))
        }
        _ => None,
    }
}

fn set(table: SetTable, key: &str) -> Result<CounterSet, Wrong> {
    let machine = machine(&table, key)?;
    let one =
        |role, table, name: &str| Ok((role, event_of(table, &format!("{key}.{name}"), &machine)?));
    let several = |role, tables: Vec<EventTable>, name: &str| {
        if tables.is_empty() || tables.len() > MOST_EVENTS {
            let why = format!("name one event to {MOST_EVENTS} of them");
            return wrong(format!("{key}.{name}"), why);
        }
        let tables = tables.into_iter().enumerate();
        let events = tables.map(|(at, table)| one(role, table, &format!("{name}[{at}]")));
        events.collect::<Result<Vec<_>, _>>()
    };
    let usual = |role, table, name| match table {
        Some(table) => one(role, table, name),
        None => Ok((role, kernels(name).expect("the kernel names it"))),
    };
    let mut events = vec![usual(
        Role::Instructions,
        table.instructions,
        "instructions",
    )?];
    events.extend(several(Role::Lines, table.lines, "lines")?);
    if let Some(prefetches) = table.prefetches {
        events.push(one(Role::Prefetches, prefetches, "prefetches")?);
    }
    let mut split_caveat = None;
    if let Some(split) = table.split {
        events.push(match (split.local, split.both) {
            (Some(local), None) => one(Role::Local, local, "split.local")?,
            (None, Some(both)) => one(Role::Both, both, "split.both")?,
            _ => {
                let why = "beside remote there is either local, or both: lines of either kind";
                return wrong(format!("{key}.split"), why);
            }
        });
        events.push(one(Role::Remote, split.remote, "split.remote")?);
        split_caveat = split.caveat;
    }
    events.push(usual(Role::Cycles, table.cycles, "cycles")?);
    let text = |text: Option<Text>| text.map(|Text(text)| text);
    let uncore = table.uncore;
    let uncore = match (
        uncore.busy_cycles,
        uncore.requests,
        uncore.missing,
        uncore.remedy,
    ) {
        (Some(busy_cycles), Some(requests), None, None) => {
            const BUSY: &str = "uncore.busy_cycles";
            let mut penalty = vec![one(Role::BusyCycles, busy_cycles, BUSY)?];
            penalty.extend(several(Role::Requests, requests, "uncore.requests")?);
            fit_together(&penalty).or_else(|why| wrong(format!("{key}.{BUSY}"), why))?;
            events.extend(penalty);
            Ok(text(uncore.caveat))
        }
        (None, None, Some(reason), Some(remedy)) if uncore.caveat.is_none() => {
            Err(Refusal::new(reason.0, remedy.0))
        }
        _ => {
            let why = "either busy_cycles and requests, or missing (why) and remedy";
            return wrong(format!("{key}.uncore"), why);
        }
    };
    Ok(CounterSet {
        name: table.name.0,
        machine,
        source: table.source.0,
        events,
        caveat: text(table.caveat),
        split_caveat: text(split_caveat),
        uncore,
    })
}

/// Whether events can be counted at the same time, judging by their counters.
fn fit_together(events: &[(Role, Event)]) -> Result<(), String> {
    let mut taken = BTreeSet::new();
    for (_, event) in events {
        if let [only] = event.counters()
            && !taken.insert(*only)
        {
            return Err(format!(
                "two of its events can be counted by counter {only} only, so never together"
            ));
        }
    }
    Ok(())
}

fn machine(table: &SetTable, key: &str) -> Result<AppliesTo, Wrong> {
    let (vendor, family, models) = (&table.vendor, table.family, &table.models);
    let (implementer, parts) = (table.implementer, &table.parts);
    let is_x86 = vendor.is_some() || family.is_some() || models.is_some();
    let is_arm = implementer.is_some() || parts.is_some();
    match (is_x86, is_arm, &table.pmu, table.everywhere) {
        (true, false, None, None) => match (vendor, family, models) {
            (Some(vendor), Some(family), Some(models)) => x86(vendor, family, models, key),
            _ => wrong(
                key,
                "a processor is identified by vendor, family and models",
            ),
        },
        (false, true, None, None) => match (implementer, parts) {
            (Some(implementer), Some(parts)) => arm(implementer, parts, key),
            _ => wrong(
                key,
                "an Arm processor is identified by implementer and parts",
            ),
        },
        (false, false, Some(FileName(pmu)), None) => Ok(AppliesTo::Pmu(pmu.clone())),
        (false, false, None, Some(true)) => Ok(AppliesTo::Any),
        (false, false, None, Some(false)) => {
            let why = "either everywhere, or name the machine";
            wrong(format!("{key}.everywhere"), why)
        }
        _ => wrong(
            key,
            "identify the machine in exactly one way: vendor, family and models; or implementer and \
             parts; or pmu; or everywhere",
        ),
    }
}

fn x86(vendor: &str, family: u32, models: &[Models], key: &str) -> Result<AppliesTo, Wrong> {
    if Layout::of_vendor(vendor).is_none() {
        let why = format!(
            "codes of {vendor:?} are not known here; they are of GenuineIntel, AuthenticAMD and \
             HygonGenuine"
        );
        return wrong(format!("{key}.vendor"), why);
    }
    let key = format!("{key}.models");
    if models.is_empty() || models.len() > MOST_MODELS {
        return wrong(key, format!("name one model to {MOST_MODELS} of them"));
    }
    let range = |model: &Models| match *model {
        Models::One(model) => Ok(model..=model),
        Models::Several((first, last)) if first <= last => Ok(first..=last),
        Models::Several((first, last)) => {
            let why = format!("a range ends before it begins: [{first:#x}, {last:#x}]");
            wrong(&key, why)
        }
    };
    let models: Result<Vec<RangeInclusive<u32>>, Wrong> = models.iter().map(range).collect();
    Ok(AppliesTo::Models {
        maker: Maker::X86 {
            vendor: vendor.to_owned(),
            family,
        },
        models: models?,
    })
}

fn arm(implementer: u32, parts: &[u32], key: &str) -> Result<AppliesTo, Wrong> {
    if implementer > 0xff {
        return wrong(format!("{key}.implementer"), "implementers are 0 to 0xff");
    }
    let is_right = !parts.is_empty() && parts.len() <= MOST_MODELS;
    if !is_right || parts.iter().any(|part| *part > 0xfff) {
        let why = format!("parts are 0 to 0xfff, one to {MOST_MODELS} of them");
        return wrong(format!("{key}.parts"), why);
    }
    Ok(AppliesTo::Models {
        maker: Maker::Arm { implementer },
        models: parts.iter().map(|&part| part..=part).collect(),
    })
}

fn kernels(name: &str) -> Option<Event> {
    let (kind, config) = kernel::code(name)?;
    Some(Event::Coded {
        name: name.to_owned(),
        kind,
        config,
        config1: 0,
        counters: Vec::new(),
    })
}

fn event_of(table: EventTable, key: &str, machine: &AppliesTo) -> Result<Event, Wrong> {
    let name = table.name.as_ref().map(|Text(name)| name.as_str());
    let is_code = table.has_masks() || table.config1.is_some() || table.counters.is_some();
    match (&table.kernel, &table.pmu, table.event, name) {
        (Some(kernel), None, None, None) if !is_code => kernels(kernel).ok_or_else(|| {
            let known: Vec<&str> = kernel::EVENTS.iter().map(|(name, _)| *name).collect();
            let why = format!(
                "the kernel names no event {kernel:?} for all processors; it names {}",
                known.join(", ")
            );
            (format!("{key}.kernel"), why)
        }),
        (None, Some(_), None, None) if !is_code => {
            wrong(key, "give the PMU's name for the event: name = \"…\"")
        }
        (None, Some(FileName(pmu)), None, Some(name)) if !is_code => {
            match FileName::try_from(Text(name.to_owned())) {
                Ok(FileName(event)) => Ok(Event::Named {
                    pmu: pmu.clone(),
                    event,
                }),
                Err(why) => wrong(format!("{key}.name"), why),
            }
        }
        (None, None, Some(event), name) => coded(&table, event, name, key, machine),
        _ => wrong(
            key,
            "an event is either a code (event = …, with a name), or the kernel's (kernel = \
             \"cache-misses\"), or a PMU's (pmu = \"…\", name = \"…\")",
        ),
    }
}

impl EventTable {
    fn has_masks(&self) -> bool {
        self.umask.is_some() || self.cmask.is_some() || self.edge || self.inv
    }
}

/// The layout of an event's code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Intel,
    Amd,
    Arm,
}

impl Layout {
    fn of_vendor(vendor: &str) -> Option<Self> {
        match vendor {
            "GenuineIntel" => Some(Self::Intel),
            "AuthenticAMD" | "HygonGenuine" => Some(Self::Amd),
            _ => None,
        }
    }

    fn of_machine(machine: &AppliesTo) -> Option<Self> {
        match machine {
            AppliesTo::Models { maker, .. } => match maker {
                Maker::X86 { vendor, .. } => Self::of_vendor(vendor),
                Maker::Arm { .. } => Some(Self::Arm),
            },
            AppliesTo::Pmu(_) | AppliesTo::Any => None,
        }
    }

    fn largest_event(self) -> u64 {
        match self {
            Self::Intel => 0xff,
            Self::Amd => 0xfff,
            Self::Arm => 0xffff,
        }
    }
}

/// A code of the processor (`arch/x86/events/*/core.c`, `drivers/perf/arm_pmuv3.c`: the formats that
/// sysfs shows).
fn coded(
    table: &EventTable,
    event: u64,
    name: Option<&str>,
    key: &str,
    machine: &AppliesTo,
) -> Result<Event, Wrong> {
    let Some(layout) = Layout::of_machine(machine) else {
        let why = "codes are of one kind of processor: name it with vendor, family and models, or \
                   with implementer and parts";
        return wrong(key, why);
    };
    let Some(name) = name else {
        return wrong(key, "give the event a name, as its maker's manual does");
    };
    if layout == Layout::Arm && (table.has_masks() || table.config1.is_some()) {
        return wrong(key, "an Arm event is its number alone");
    }
    let within = |value: u64, most: u64, what: &str| match value <= most {
        true => Ok(value),
        false => {
            let why = format!("{what} is 0 to {most:#x} on this kind of processor");
            wrong(format!("{key}.{what}"), why)
        }
    };
    let event = within(event, layout.largest_event(), "event")?;
    let umask = within(table.umask.unwrap_or(0), 0xff, "umask")?;
    let cmask = within(table.cmask.unwrap_or(0), 0xff, "cmask")?;
    let flags = u64::from(table.edge) << 18 | u64::from(table.inv) << 23;
    let config = match layout {
        Layout::Arm => event,
        Layout::Intel | Layout::Amd => {
            event & 0xff | umask << 8 | flags | cmask << 24 | event >> 8 << 32
        }
    };
    let counters = table.counters.as_deref();
    let is_right = counters.is_none_or(|counters| {
        (1..=MOST_COUNTERS as usize).contains(&counters.len())
            && counters.iter().all(|&at| at < MOST_COUNTERS)
    });
    if !is_right {
        let why = format!("name the counters, 0 to {}, or none", MOST_COUNTERS - 1);
        return wrong(format!("{key}.counters"), why);
    }
    Ok(Event::Coded {
        name: name.to_owned(),
        kind: RAW,
        config,
        config1: table.config1.unwrap_or(0),
        counters: counters.unwrap_or_default().to_vec(),
    })
}
