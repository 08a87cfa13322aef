//! Reads a file of events: TOML to checked [`CounterSet`]s; an error names the line.
//!
//! Impossible codes are refused here rather than handed to the kernel, which takes any number and
//! counts something.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use numaherd_files::{Document, FileError};
use serde::Deserialize;
use toml::Spanned;

use super::{CounterSet, Event, Machine, Maker, Role, kernel};
use crate::perf_errors::Refusal;

/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;

/// Limits beyond which something is taken for a mistake.
const MOST_SETS: usize = 4096;
const MOST_EVENTS: usize = 8;
const MOST_MODELS: usize = 256;
const LONGEST_TEXT: usize = 1000;
const MOST_COUNTERS: u32 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default, rename = "set")]
    sets: Vec<Spanned<SetTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetTable {
    name: Spanned<Text>,
    vendor: Option<Spanned<String>>,
    family: Option<u32>,
    models: Option<Spanned<Vec<Models>>>,
    implementer: Option<Spanned<u32>>,
    parts: Option<Spanned<Vec<u32>>>,
    pmu: Option<FileName>,
    everywhere: Option<Spanned<bool>>,
    source: Text,
    instructions: Option<Spanned<EventTable>>,
    cycles: Option<Spanned<EventTable>>,
    lines: Events,
    prefetches: Option<Spanned<EventTable>>,
    caveat: Option<Text>,
    split: Option<Spanned<SplitTable>>,
    uncore: Spanned<UncoreTable>,
}

/// Events whose counts are added up.
type Events = Spanned<Vec<Spanned<EventTable>>>;

/// A line that people will read.
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

/// A name that is looked up in sysfs.
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
    event: Option<Spanned<u64>>,
    umask: Option<Spanned<u64>>,
    cmask: Option<Spanned<u64>>,
    #[serde(default)]
    edge: bool,
    #[serde(default)]
    inv: bool,
    config1: Option<u64>,
    counters: Option<Spanned<Vec<u32>>>,
    kernel: Option<Spanned<String>>,
    pmu: Option<FileName>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitTable {
    local: Option<Spanned<EventTable>>,
    both: Option<Spanned<EventTable>>,
    remote: Spanned<EventTable>,
    caveat: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncoreTable {
    busy_cycles: Option<Spanned<EventTable>>,
    requests: Option<Events>,
    caveat: Option<Text>,
    missing: Option<Text>,
    remedy: Option<Text>,
}

/// What is wrong, and where in the text.
type Wrong = (Range<usize>, String);

fn wrong<T>(at: Range<usize>, why: impl Into<String>) -> Result<T, Wrong> {
    Err((at, why.into()))
}

/// The sets of a file, in its order.
pub(super) fn sets(document: Document<'_>) -> Result<Vec<CounterSet>, FileError> {
    checked(document.parse()?).map_err(|(at, why)| document.wrong(at, "", why))
}

fn checked(file: FileTable) -> Result<Vec<CounterSet>, Wrong> {
    if let Some(beyond) = file.sets.get(MOST_SETS) {
        let why = format!("more than {MOST_SETS} sets in one file: split it");
        return wrong(beyond.span(), why);
    }
    let mut sets: Vec<CounterSet> = Vec::with_capacity(file.sets.len());
    for table in file.sets {
        let at = table.span();
        let table = table.into_inner();
        let named_at = table.name.span();
        let set = set(table, at)?;
        if sets.iter().any(|before| before.name == set.name) {
            return wrong(named_at, format!("there are two sets {:?}", set.name));
        }
        for before in &sets {
            if let Some(both) = in_common(&before.machine, &set.machine) {
                let why = format!(
                    "{both} is in this set and in {:?}, which would always be tried first",
                    before.name
                );
                return wrong(named_at, why);
            }
        }
        sets.push(set);
    }
    Ok(sets)
}

/// What two sets of one file both apply to, so that the second would never be used.
fn in_common(first: &Machine, second: &Machine) -> Option<String> {
    match (first, second) {
        (Machine::Any, _) => Some("every machine".to_owned()),
        (Machine::Pmu(a), Machine::Pmu(b)) => (a == b).then(|| format!("PMU {a}")),
        (
            Machine::Models { maker, models },
            Machine::Models {
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

fn set(table: SetTable, at: Range<usize>) -> Result<CounterSet, Wrong> {
    let machine = machine(&table, at)?;
    let one = |role, table| Ok((role, event_of(table, &machine)?));
    let several = |role, tables: Events| {
        if tables.get_ref().is_empty() || tables.get_ref().len() > MOST_EVENTS {
            let why = format!("name one event to {MOST_EVENTS} of them");
            return wrong(tables.span(), why);
        }
        let events = tables.into_inner().into_iter();
        events
            .map(|table| one(role, table))
            .collect::<Result<Vec<_>, _>>()
    };
    let usual = |role, table, name| match table {
        Some(table) => one(role, table),
        None => Ok((role, kernels(name).expect("the kernel names it"))),
    };
    let mut events = vec![usual(
        Role::Instructions,
        table.instructions,
        "instructions",
    )?];
    events.extend(several(Role::Lines, table.lines)?);
    if let Some(prefetches) = table.prefetches {
        events.push(one(Role::Prefetches, prefetches)?);
    }
    let mut split_caveat = None;
    if let Some(split) = table.split {
        let at = split.span();
        let split = split.into_inner();
        events.push(match (split.local, split.both) {
            (Some(local), None) => one(Role::Local, local)?,
            (None, Some(both)) => one(Role::Both, both)?,
            _ => {
                let why = "beside remote there is either local, or both: lines of either kind";
                return wrong(at, why);
            }
        });
        events.push(one(Role::Remote, split.remote)?);
        split_caveat = split.caveat;
    }
    events.push(usual(Role::Cycles, table.cycles, "cycles")?);
    let at = table.uncore.span();
    let uncore = table.uncore.into_inner();
    let text = |text: Option<Text>| text.map(|Text(text)| text);
    let uncore = match (
        uncore.busy_cycles,
        uncore.requests,
        uncore.missing,
        uncore.remedy,
    ) {
        (Some(busy_cycles), Some(requests), None, None) => {
            let at = busy_cycles.span();
            let mut penalty = vec![one(Role::BusyCycles, busy_cycles)?];
            penalty.extend(several(Role::Requests, requests)?);
            fit_together(&penalty).or_else(|why| wrong(at, why))?;
            events.extend(penalty);
            Ok(text(uncore.caveat))
        }
        (None, None, Some(reason), Some(remedy)) if uncore.caveat.is_none() => {
            Err(Refusal::new(reason.0, remedy.0))
        }
        _ => {
            return wrong(
                at,
                "either busy_cycles and requests, or missing (why) and remedy",
            );
        }
    };
    Ok(CounterSet {
        name: table.name.into_inner().0,
        machine,
        source: table.source.0,
        events,
        caveat: text(table.caveat),
        split_caveat: text(split_caveat),
        uncore,
    })
}

/// Whether events can be counted at the same time, as far as their counters tell.
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

fn machine(table: &SetTable, at: Range<usize>) -> Result<Machine, Wrong> {
    let (vendor, family, models) = (&table.vendor, table.family, &table.models);
    let (implementer, parts) = (&table.implementer, &table.parts);
    let is_x86 = vendor.is_some() || family.is_some() || models.is_some();
    let is_arm = implementer.is_some() || parts.is_some();
    match (is_x86, is_arm, &table.pmu, &table.everywhere) {
        (true, false, None, None) => match (vendor, family, models) {
            (Some(vendor), Some(family), Some(models)) => x86(vendor, family, models),
            _ => wrong(at, "a processor is identified by vendor, family and models"),
        },
        (false, true, None, None) => match (implementer, parts) {
            (Some(implementer), Some(parts)) => arm(implementer, parts),
            _ => wrong(
                at,
                "an Arm processor is identified by implementer and parts",
            ),
        },
        (false, false, Some(FileName(pmu)), None) => Ok(Machine::Pmu(pmu.clone())),
        (false, false, None, Some(everywhere)) if *everywhere.get_ref() => Ok(Machine::Any),
        (false, false, None, Some(everywhere)) => {
            wrong(everywhere.span(), "either everywhere, or name the machine")
        }
        _ => wrong(
            at,
            "identify the machine in exactly one way: vendor, family and models; or implementer and \
             parts; or pmu; or everywhere",
        ),
    }
}

fn x86(
    vendor: &Spanned<String>,
    family: u32,
    models: &Spanned<Vec<Models>>,
) -> Result<Machine, Wrong> {
    if Layout::of_vendor(vendor.get_ref()).is_none() {
        let why = format!(
            "codes of {:?} are not known here; they are of GenuineIntel, AuthenticAMD and \
             HygonGenuine",
            vendor.get_ref()
        );
        return wrong(vendor.span(), why);
    }
    if models.get_ref().is_empty() || models.get_ref().len() > MOST_MODELS {
        let why = format!("name one model to {MOST_MODELS} of them");
        return wrong(models.span(), why);
    }
    let range = |model: &Models| match *model {
        Models::One(model) => Ok(model..=model),
        Models::Several((first, last)) if first <= last => Ok(first..=last),
        Models::Several((first, last)) => {
            let why = format!("a range ends before it begins: [{first:#x}, {last:#x}]");
            wrong(models.span(), why)
        }
    };
    let maker = Maker::X86 {
        vendor: vendor.get_ref().clone(),
        family,
    };
    let models: Result<Vec<RangeInclusive<u32>>, Wrong> =
        models.get_ref().iter().map(range).collect();
    Ok(Machine::Models {
        maker,
        models: models?,
    })
}

fn arm(implementer: &Spanned<u32>, parts: &Spanned<Vec<u32>>) -> Result<Machine, Wrong> {
    if *implementer.get_ref() > 0xff {
        return wrong(implementer.span(), "implementers are 0 to 0xff");
    }
    let given = parts.get_ref();
    let is_right = !given.is_empty() && given.len() <= MOST_MODELS;
    if !is_right || given.iter().any(|part| *part > 0xfff) {
        let why = format!("parts are 0 to 0xfff, one to {MOST_MODELS} of them");
        return wrong(parts.span(), why);
    }
    Ok(Machine::Models {
        maker: Maker::Arm {
            implementer: *implementer.get_ref(),
        },
        models: given.iter().map(|&part| part..=part).collect(),
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

fn event_of(table: Spanned<EventTable>, machine: &Machine) -> Result<Event, Wrong> {
    let at = table.span();
    let table = table.into_inner();
    let masks = [
        table.umask.is_some(),
        table.cmask.is_some(),
        table.edge,
        table.inv,
    ];
    let is_coded = masks.contains(&true) || table.config1.is_some() || table.counters.is_some();
    match (table.kernel, table.pmu, table.event) {
        (Some(name), None, None) if !is_coded && table.name.is_none() => kernels(name.get_ref())
            .ok_or_else(|| {
                let known: Vec<&str> = kernel::EVENTS.iter().map(|(name, _)| *name).collect();
                let why = format!(
                    "the kernel names no event {:?} for all processors; it names {}",
                    name.get_ref(),
                    known.join(", ")
                );
                (name.span(), why)
            }),
        (None, Some(FileName(pmu)), None) if !is_coded => {
            let Some(Text(name)) = table.name else {
                return wrong(at, "give the PMU's name for the event: name = \"…\"");
            };
            match FileName::try_from(Text(name)) {
                Ok(FileName(event)) => Ok(Event::Named { pmu, event }),
                Err(why) => wrong(at, why),
            }
        }
        (None, None, Some(event)) => {
            let code = EventTable {
                kernel: None,
                pmu: None,
                event: Some(event),
                ..table
            };
            coded(code, at, machine)
        }
        _ => wrong(
            at,
            "an event is either a code (event = …, with a name), or the kernel's (kernel = \
             \"cache-misses\"), or a PMU's (pmu = \"…\", name = \"…\")",
        ),
    }
}

/// Where the parts of an event's code go.
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

    fn of_machine(machine: &Machine) -> Option<Self> {
        match machine {
            Machine::Models { maker, .. } => match maker {
                Maker::X86 { vendor, .. } => Self::of_vendor(vendor),
                Maker::Arm { .. } => Some(Self::Arm),
            },
            Machine::Pmu(_) | Machine::Any => None,
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
fn coded(table: EventTable, at: Range<usize>, machine: &Machine) -> Result<Event, Wrong> {
    let Some(layout) = Layout::of_machine(machine) else {
        let why = "codes are of one kind of processor: name it with vendor, family and models, or \
                   with implementer and parts";
        return wrong(at, why);
    };
    let Some(Text(name)) = table.name else {
        return wrong(at, "give the event a name, as its maker's manual does");
    };
    let has_masks = table.umask.is_some() || table.cmask.is_some() || table.edge || table.inv;
    if layout == Layout::Arm && (has_masks || table.config1.is_some()) {
        return wrong(at, "an Arm event is its number alone");
    }
    let within = |value: Option<Spanned<u64>>, most: u64, what: &str| match value {
        Some(value) if *value.get_ref() > most => {
            let why = format!("{what} is 0 to {most:#x} on this kind of processor");
            wrong(value.span(), why)
        }
        value => Ok(value.map_or(0, Spanned::into_inner)),
    };
    let event = within(table.event, layout.largest_event(), "event")?;
    let umask = within(table.umask, 0xff, "umask")?;
    let cmask = within(table.cmask, 0xff, "cmask")?;
    let flags = u64::from(table.edge) << 18 | u64::from(table.inv) << 23;
    let config = match layout {
        Layout::Arm => event,
        Layout::Intel | Layout::Amd => {
            event & 0xff | umask << 8 | flags | cmask << 24 | event >> 8 << 32
        }
    };
    let counters = match table.counters {
        None => Vec::new(),
        Some(counters) => {
            let given = counters.get_ref();
            let is_right = (1..=MOST_COUNTERS as usize).contains(&given.len());
            if !is_right || given.iter().any(|&at| at >= MOST_COUNTERS) {
                let why = format!("name the counters, 0 to {}, or none", MOST_COUNTERS - 1);
                return wrong(counters.span(), why);
            }
            counters.into_inner()
        }
    };
    Ok(Event::Coded {
        name,
        kind: RAW,
        config,
        config1: table.config1.unwrap_or(0),
        counters,
    })
}
