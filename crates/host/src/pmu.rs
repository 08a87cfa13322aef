//! PMUs that describe themselves in sysfs: `events/NAME` holds terms (`event=0xcd,ldlat=3`), and
//! `format/TERM` the bits of a term's value (`config1:0-15`).
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-format.

use crate::files::Root;
use crate::kernel::Attribute;

const DEVICES: &str = "sys/bus/event_source/devices";

/// A PMU found in sysfs.
#[derive(Clone, Debug)]
pub struct Pmu {
    root: Root,
    pub name: String,
    pub kind: u32,
}

impl Pmu {
    /// The PMU of that name, if the machine has it.
    pub fn find(root: &Root, name: &str) -> Option<Self> {
        let kind = root.number(&format!("{DEVICES}/{name}/type"))?;
        Some(Self {
            root: root.clone(),
            name: name.to_owned(),
            kind,
        })
    }

    /// The names of all PMUs.
    pub fn names(root: &Root) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(root.path(DEVICES)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The attribute of a named event; `None` if the PMU has no such event, or does not explain all
    /// of its terms.
    pub fn event(&self, name: &str) -> Option<Attribute> {
        let terms = self
            .root
            .text(&format!("{DEVICES}/{}/events/{name}", self.name))?;
        let mut attribute = Attribute {
            kind: self.kind,
            ..Attribute::default()
        };
        for term in terms.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let (term, value) = term.split_once('=').unwrap_or((term, "1"));
            self.set(&mut attribute, term, number(value)?)?;
        }
        Some(attribute)
    }

    /// Sets a term's value; `None` if the PMU has no such term.
    pub fn set(&self, attribute: &mut Attribute, term: &str, value: u64) -> Option<()> {
        let format = self.format(term)?;
        let (word, bits) = place(&format)?;
        let word = match word {
            Word::Config => &mut attribute.config,
            Word::Config1 => &mut attribute.config1,
            Word::Config2 => &mut attribute.config2,
        };
        scatter(word, &bits, value);
        Some(())
    }

    fn format(&self, term: &str) -> Option<String> {
        let sane = !term.is_empty() && !term.contains(['/', '.']);
        sane.then(|| {
            self.root
                .text(&format!("{DEVICES}/{}/format/{term}", self.name))
        })?
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Config,
    Config1,
    Config2,
}

/// Reads `config1:0-7,32-35` into the word and its bits, first and last of each run.
fn place(format: &str) -> Option<(Word, Vec<(u32, u32)>)> {
    let (word, bits) = format.split_once(':')?;
    let word = match word.trim() {
        "config" => Word::Config,
        "config1" => Word::Config1,
        "config2" => Word::Config2,
        _ => return None,
    };
    let runs = bits
        .split(',')
        .map(|run| {
            let (first, last) = run
                .trim()
                .split_once('-')
                .unwrap_or((run.trim(), run.trim()));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && last < u64::BITS).then_some((first, last))
        })
        .collect::<Option<Vec<_>>>()?;
    Some((word, runs))
}

/// Spreads a value over runs of bits, lowest bits first.
fn scatter(word: &mut u64, runs: &[(u32, u32)], mut value: u64) {
    for &(first, last) in runs {
        for bit in first..=last {
            *word = *word & !(1 << bit) | (value & 1) << bit;
            value >>= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A PMU of type 8 with these files.
    fn pmu(files: &[(&str, &str)]) -> (tempfile::TempDir, Pmu) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(DEVICES).join("cpu");
        for (path, text) in files.iter().chain(&[("type", "8\n")]) {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let pmu = Pmu::find(&Root::new(root.path()), "cpu").unwrap();
        (root, pmu)
    }

    #[test]
    fn a_load_latency_event_as_intel_kernels_describe_it() {
        let (_root, pmu) = pmu(&[
            ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("format/event", "config:0-7\n"),
            ("format/umask", "config:8-15\n"),
            ("format/ldlat", "config1:0-15\n"),
        ]);
        let mut attribute = pmu.event("mem-loads").unwrap();
        assert_eq!(
            (attribute.kind, attribute.config, attribute.config1),
            (8, 0x1cd, 3)
        );
        pmu.set(&mut attribute, "ldlat", 128).unwrap();
        assert_eq!(attribute.config1, 128);
        assert_eq!(pmu.set(&mut attribute, "frobnicate", 1), None);
    }

    #[test]
    fn a_split_field_and_a_flag() {
        let (_root, pmu) = pmu(&[
            ("events/x", "event=0x1a5,l3missonly"),
            ("format/event", "config:0-7,32-35"),
            ("format/l3missonly", "config:16"),
        ]);
        assert_eq!(pmu.event("x").unwrap().config, 0x1_0001_00a5);
    }

    #[test]
    fn what_is_not_explained_is_not_guessed() {
        let (_root, pmu) = pmu(&[("events/x", "event=0x1"), ("events/y", "config=../type")]);
        assert!(pmu.event("x").is_none());
        assert!(pmu.event("y").is_none());
        assert!(pmu.event("z").is_none());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(format in ".{0,40}", value: u64) {
            if let Some((_, runs)) = place(&format) {
                scatter(&mut 0, &runs, value);
            }
            let _ = number(&format);
        }

        #[test]
        fn a_value_that_fits_can_be_read_back(first in 0u32..32, width in 1u32..32, value: u64) {
            let last = first + width - 1;
            let value = value & ((1 << width) - 1);
            let mut word = u64::MAX;
            scatter(&mut word, &[(first, last)], value);
            prop_assert_eq!((word >> first) & ((1 << width) - 1), value);
            prop_assert_eq!(word | (((1u64 << width) - 1) << first), u64::MAX);
        }
    }
}
