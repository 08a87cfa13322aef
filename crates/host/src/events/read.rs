//! Reading a file of events: TOML to checked [`CounterSet`]s; what is wrong is told with its line.
//!
//! A code that cannot be is refused here rather than handed to the kernel, which takes any number
//! and counts something.

use std::collections::BTreeSet;
use std::ops::Range;

use numaherd_files::{Document, FileError};
use serde::Deserialize;
use toml::Spanned;

use super::{CounterSet, Event, Machine, Split, Uncore, kernel};

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
    name: Spanned<String>,
    vendor: Option<Spanned<String>>,
    family: Option<u32>,
    models: Option<Spanned<Vec<Models>>>,
    implementer: Option<Spanned<u32>>,
    parts: Option<Spanned<Vec<u32>>>,
    pmu: Option<Spanned<String>>,
    everywhere: Option<Spanned<bool>>,
    source: Spanned<String>,
    instructions: Option<Spanned<EventTable>>,
    cycles: Option<Spanned<EventTable>>,
    lines: Spanned<Vec<Spanned<EventTable>>>,
    prefetches: Option<Spanned<EventTable>>,
    caveat: Option<Spanned<String>>,
    split: Option<Spanned<SplitTable>>,
    uncore: Spanned<UncoreTable>,
}

#[derive(Deserialize)]
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
    name: Option<Spanned<String>>,
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
    pmu: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitTable {
    local: Option<Spanned<EventTable>>,
    both: Option<Spanned<EventTable>>,
    remote: Spanned<EventTable>,
    caveat: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncoreTable {
    busy_cycles: Option<Spanned<EventTable>>,
    requests: Option<Spanned<Vec<Spanned<EventTable>>>>,
    caveat: Option<Spanned<String>>,
    missing: Option<Spanned<String>>,
    remedy: Option<Spanned<String>>,
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
    let mut names = BTreeSet::new();
    let mut sets: Vec<CounterSet> = Vec::with_capacity(file.sets.len());
    for table in file.sets {
        let at = table.span();
        let table = table.into_inner();
        let named_at = table.name.span();
        let set = set(table, at)?;
        if !names.insert(set.name.clone()) {
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
            Machine::Models {
                vendor,
                family,
                models,
            },
            Machine::Models {
                vendor: other_vendor,
                family: other_family,
                models: others,
            },
        ) if (vendor, family) == (other_vendor, other_family) => models
            .iter()
            .flat_map(|a| others.iter().map(move |b| (*a.start()).max(*b.start())))
            .find(|model| {
                let has = |ranges: &[std::ops::RangeInclusive<u32>]| {
                    ranges.iter().any(|range| range.contains(model))
                };
                has(models) && has(others)
            })
            .map(|model| format!("model {model:#x}")),
        (
            Machine::Parts { implementer, parts },
            Machine::Parts {
                implementer: other,
                parts: others,
            },
        ) if implementer == other => parts
            .iter()
            .find(|part| others.contains(part))
            .map(|part| format!("part {part:#x}")),
        _ => None,
    }
}

fn set(table: SetTable, at: Range<usize>) -> Result<CounterSet, Wrong> {
    let machine = machine(&table, at)?;
    let one = |event: Option<Spanned<EventTable>>, usual: &str| match event {
        Some(table) => event_of(table, &machine),
        None => Ok(kernels(usual).expect("the kernel names it")),
    };
    let instructions = one(table.instructions, "instructions")?;
    let cycles = one(table.cycles, "cycles")?;
    let lines = several(table.lines, &machine)?;
    let prefetches = table
        .prefetches
        .map(|table| event_of(table, &machine))
        .transpose()?;
    let (split, split_caveat) = match table.split {
        Some(table) => split(table, &machine)?,
        None => (None, None),
    };
    let uncore = uncore(table.uncore, &machine)?;
    Ok(CounterSet {
        name: words(table.name)?,
        source: words(table.source)?,
        instructions,
        cycles,
        lines,
        prefetches,
        split,
        caveat: table.caveat.map(words).transpose()?,
        split_caveat,
        uncore,
        machine,
    })
}

/// A text that people will read.
fn words(text: Spanned<String>) -> Result<String, Wrong> {
    let at = text.span();
    let text = text.into_inner();
    if text.trim().is_empty() {
        return wrong(at, "this must not be empty");
    }
    if text.len() > LONGEST_TEXT || text.contains(char::is_control) {
        let why = format!("this must be one line of at most {LONGEST_TEXT} bytes");
        return wrong(at, why);
    }
    Ok(text)
}

/// A name that is looked up in sysfs.
fn file_name(name: Spanned<String>) -> Result<String, Wrong> {
    let sane = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.get_ref().bytes().all(sane) && !name.get_ref().is_empty() {
        return words(name);
    }
    wrong(name.span(), "names in sysfs have letters, digits, _ and -")
}

fn machine(table: &SetTable, at: Range<usize>) -> Result<Machine, Wrong> {
    let x86 = table.vendor.is_some() || table.family.is_some() || table.models.is_some();
    let arm = table.implementer.is_some() || table.parts.is_some();
    let kinds = [x86, arm, table.pmu.is_some(), table.everywhere.is_some()];
    if kinds.into_iter().filter(|kind| *kind).count() != 1 {
        let why = "identify the machine in exactly one way: vendor, family and models; or \
                   implementer and parts; or pmu; or everywhere";
        return wrong(at, why);
    }
    if let Some(pmu) = &table.pmu {
        return file_name(pmu.clone()).map(Machine::Pmu);
    }
    if let Some(everywhere) = &table.everywhere {
        return match everywhere.get_ref() {
            true => Ok(Machine::Any),
            false => wrong(everywhere.span(), "either everywhere, or name the machine"),
        };
    }
    if let (Some(implementer), Some(parts)) = (&table.implementer, &table.parts) {
        if *implementer.get_ref() > 0xff {
            return wrong(implementer.span(), "implementers are 0 to 0xff");
        }
        let right = |part: &u32| *part <= 0xfff;
        if parts.get_ref().is_empty()
            || parts.get_ref().len() > MOST_MODELS
            || !parts.get_ref().iter().all(right)
        {
            let why = format!("parts are 0 to 0xfff, one to {MOST_MODELS} of them");
            return wrong(parts.span(), why);
        }
        return Ok(Machine::Parts {
            implementer: *implementer.get_ref(),
            parts: parts.get_ref().clone(),
        });
    }
    if let (Some(vendor), Some(family), Some(models)) = (&table.vendor, table.family, &table.models)
    {
        if Layout::of_vendor(vendor.get_ref()).is_none() {
            let why = format!(
                "codes of {:?} are not known here; they are of GenuineIntel, AuthenticAMD and \
                 HygonGenuine",
                vendor.get_ref()
            );
            return wrong(vendor.span(), why);
        }
        let given = models.get_ref();
        if given.is_empty() || given.len() > MOST_MODELS {
            let why = format!("name one model to {MOST_MODELS} of them");
            return wrong(models.span(), why);
        }
        let mut ranges = Vec::with_capacity(given.len());
        for model in given {
            ranges.push(match *model {
                Models::One(model) => model..=model,
                Models::Several((first, last)) if first <= last => first..=last,
                Models::Several((first, last)) => {
                    let why = format!("a range ends before it begins: [{first:#x}, {last:#x}]");
                    return wrong(models.span(), why);
                }
            });
        }
        return Ok(Machine::Models {
            vendor: vendor.get_ref().clone(),
            family,
            models: ranges,
        });
    }
    let why = if arm {
        "an Arm processor is identified by implementer and parts"
    } else {
        "a processor is identified by vendor, family and models"
    };
    wrong(at, why)
}

fn several(
    tables: Spanned<Vec<Spanned<EventTable>>>,
    machine: &Machine,
) -> Result<Vec<Event>, Wrong> {
    let at = tables.span();
    let tables = tables.into_inner();
    if tables.is_empty() || tables.len() > MOST_EVENTS {
        return wrong(at, format!("name one event to {MOST_EVENTS} of them"));
    }
    tables
        .into_iter()
        .map(|table| event_of(table, machine))
        .collect()
}

fn split(
    table: Spanned<SplitTable>,
    machine: &Machine,
) -> Result<(Option<Split>, Option<String>), Wrong> {
    let at = table.span();
    let table = table.into_inner();
    let remote = event_of(table.remote, machine)?;
    let split = match (table.local, table.both) {
        (Some(local), None) => Split::Each {
            local: event_of(local, machine)?,
            remote,
        },
        (None, Some(both)) => Split::All {
            both: event_of(both, machine)?,
            remote,
        },
        _ => {
            let why = "beside remote there is either local, or both: lines of either kind";
            return wrong(at, why);
        }
    };
    Ok((Some(split), table.caveat.map(words).transpose()?))
}

fn uncore(table: Spanned<UncoreTable>, machine: &Machine) -> Result<Uncore, Wrong> {
    let at = table.span();
    let table = table.into_inner();
    match (
        table.busy_cycles,
        table.requests,
        table.missing,
        table.remedy,
    ) {
        (Some(busy_cycles), Some(requests), None, None) => {
            let busy_at = busy_cycles.span();
            let busy_cycles = event_of(busy_cycles, machine)?;
            let requests = several(requests, machine)?;
            let mut taken = BTreeSet::new();
            for event in std::iter::once(&busy_cycles).chain(&requests) {
                if let [only] = event.counters()
                    && !taken.insert(*only)
                {
                    let why = format!(
                        "two of its events can be counted by counter {only} only, so never together"
                    );
                    return wrong(busy_at, why);
                }
            }
            Ok(Uncore::Counted {
                busy_cycles,
                requests,
                caveat: table.caveat.map(words).transpose()?,
            })
        }
        (None, None, Some(reason), Some(remedy)) if table.caveat.is_none() => Ok(Uncore::Missing {
            reason: words(reason)?,
            remedy: words(remedy)?,
        }),
        _ => wrong(
            at,
            "either busy_cycles and requests, or missing (why) and remedy",
        ),
    }
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
    let coded = table.umask.is_some()
        || table.cmask.is_some()
        || table.edge
        || table.inv
        || table.config1.is_some()
        || table.counters.is_some();
    match (&table.kernel, &table.pmu, &table.event) {
        (Some(_), None, None) if !coded && table.name.is_none() => {
            let name = table.kernel.expect("matched");
            kernels(name.get_ref()).ok_or_else(|| {
                let known: Vec<&str> = kernel::EVENTS.iter().map(|(name, _)| *name).collect();
                let why = format!(
                    "the kernel names no event {:?} for all processors; it names {}",
                    name.get_ref(),
                    known.join(", ")
                );
                (name.span(), why)
            })
        }
        (None, Some(_), None) if !coded => {
            let Some(event) = table.name else {
                return wrong(at, "give the PMU's name for the event: name = \"…\"");
            };
            Ok(Event::Named {
                pmu: file_name(table.pmu.expect("matched"))?,
                event: file_name(event)?,
            })
        }
        (None, None, Some(_)) => code(table, at, machine),
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
            Machine::Models { vendor, .. } => Self::of_vendor(vendor),
            Machine::Parts { .. } => Some(Self::Arm),
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
fn code(table: EventTable, at: Range<usize>, machine: &Machine) -> Result<Event, Wrong> {
    let Some(layout) = Layout::of_machine(machine) else {
        let why = "codes are of one kind of processor: name it with vendor, family and models, or \
                   with implementer and parts";
        return wrong(at, why);
    };
    let Some(name) = table.name else {
        return wrong(at, "give the event a name, as its maker's manual does");
    };
    let within = |value: Option<Spanned<u64>>, most: u64, what: &str| match value {
        Some(value) if *value.get_ref() > most => {
            let why = format!("{what} is 0 to {most:#x} on this kind of processor");
            wrong(value.span(), why)
        }
        Some(value) => Ok(value.into_inner()),
        None => Ok(0),
    };
    let event = within(table.event, layout.largest_event(), "event")?;
    let config = if layout == Layout::Arm {
        let parts = [table.umask.is_some(), table.cmask.is_some()];
        if parts.contains(&true) || table.edge || table.inv || table.config1.is_some() {
            return wrong(at, "an Arm event is its number alone");
        }
        event
    } else {
        let umask = within(table.umask, 0xff, "umask")?;
        let cmask = within(table.cmask, 0xff, "cmask")?;
        let high = event >> 8;
        event & 0xff
            | umask << 8
            | u64::from(table.edge) << 18
            | u64::from(table.inv) << 23
            | cmask << 24
            | high << 32
    };
    let counters = match table.counters {
        Some(counters)
            if counters.get_ref().is_empty()
                || counters.get_ref().iter().any(|&at| at >= MOST_COUNTERS)
                || counters.get_ref().len() > MOST_COUNTERS as usize =>
        {
            let why = format!("name the counters, 0 to {}, or none", MOST_COUNTERS - 1);
            return wrong(counters.span(), why);
        }
        Some(counters) => counters.into_inner(),
        None => Vec::new(),
    };
    Ok(Event::Coded {
        name: words(name)?,
        kind: RAW,
        config,
        config1: table.config1.unwrap_or(0),
        counters,
    })
}
