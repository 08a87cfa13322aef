//! What the targets share, and the replay of their seeds.
//!
//! A target is a file of `fuzz_targets`, twice: with the feature `fuzz` a program around libFuzzer, and without it a
//! function, so that an ordinary test compiles each of them and runs it on every input of `seeds`.

// The targets, which name this crate, are modules of its test.
#[cfg(test)]
extern crate self as numaherd_fuzz;

#[cfg(feature = "fuzz")]
mod figures;

use std::path::Path;

use arbitrary::{Arbitrary, Unstructured};

#[cfg(feature = "fuzz")]
pub use figures::figures_changed;

/// A target: what is done with an input, which is made from bytes as [`Arbitrary`] says. It panics where something does
/// not hold. It may return false for an input that is of no use to find others.
#[macro_export]
macro_rules! target {
    (|$input:ident: $type:ty| $body:expr) => {
        #[cfg(feature = "fuzz")]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| -> libfuzzer_sys::Corpus {
            if run(data) {
                libfuzzer_sys::Corpus::Keep
            } else {
                libfuzzer_sys::Corpus::Reject
            }
        });

        /// Runs the target; returns whether the input is of use.
        pub fn run(data: &[u8]) -> bool {
            let body = |$input: $type| $body;
            $crate::input(data).is_some_and(|input| $crate::Use::is_of_use(&body(input)))
        }
    };
}

/// Has the inputs of a target changed by [`figures_changed`].
#[macro_export]
macro_rules! changes_figures {
    () => {
        #[cfg(feature = "fuzz")]
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::figures_changed(data, size, max_size, seed)
        });
    };
}

/// The input that bytes stand for; `None` where they stand for none.
pub fn input<'d, T: Arbitrary<'d>>(data: &'d [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(data)).ok()
}

/// What a target says of an input.
pub trait Use {
    /// Whether it is of use to find others.
    fn is_of_use(&self) -> bool;
}

impl Use for () {
    fn is_of_use(&self) -> bool {
        true
    }
}

impl Use for bool {
    fn is_of_use(&self) -> bool {
        *self
    }
}

/// A new directory, in memory where the system has such a place; it goes when the value is dropped.
pub fn temporary() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a temporary directory can be made")
}

/// The lines of a text, each that ends like a JSON object sealed as ledger and journal seal theirs
/// (a last member `"sum"`, the CRC-32 of all before it). A fuzzer would not find the sum by itself,
/// and all readers of records lie behind it.
pub fn sealed(text: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match line.strip_suffix(b"}") {
            Some(body) => {
                sealed.extend_from_slice(body);
                sealed
                    .extend_from_slice(format!(",\"sum\":\"{:08x}\"}}\n", crc32(body)).as_bytes());
            }
            None => {
                sealed.extend_from_slice(line);
                sealed.push(b'\n');
            }
        }
    }
    sealed
}

/// CRC-32 as in IEEE 802.3, written from its definition, bit by bit: an independent second to the
/// table in `herd`.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for &byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0xEDB8_8320
            } else {
                sum >> 1
            };
        }
    }
    !sum
}

/// All targets, as modules.
#[cfg(test)]
#[path = "../fuzz_targets"]
mod fuzz_targets {
    macro_rules! all {
        ($($name:ident)*) => {
            $(mod $name;)*

            /// The name of each.
            pub const ALL: &[&str] = &[$(stringify!($name)),*];

            /// A test of each, which `scripts/fuzz.sh --coverage` runs alone.
            mod inputs {
                $(
                    #[test]
                    fn $name() {
                        crate::tests::passes(stringify!($name), super::$name::run);
                    }
                )*
            }
        };
    }

    all! {
        agent_lines
        claims_file
        claims_record
        configuration
        control_request
        cpulist
        event_table
        hardware_config
        hwloc_synthetic
        hwloc_xml
        ipm_records
        journal
        lab_protocol
        ledger
        machine_file
        model_run
        nri
        perf_records
        pmu_events
        proc_cgroup
        proc_cpu_times
        proc_cpuinfo
        proc_maps
        proc_meminfo
        proc_numa_maps
        proc_stat
        proc_status
        program_profiles
        prometheus_answer
        qemu_process
        qmp
        replay
        scenario
        served
        settings
        show
        sizes
        sysfs_tree
        top
        topology_json
        trace_file
        trace_import
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::fuzz_targets::ALL;

    fn in_folder(name: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let entries = fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    /// A folder with a corpus of each target, whose inputs are replayed as well.
    const CORPUS: &str = "NUMAHERD_FUZZ_CORPUS";

    /// A target passes its seeds, and every input that it failed on once.
    pub(super) fn passes(name: &str, run: fn(&[u8]) -> bool) {
        let seeds = in_folder(&format!("seeds/{name}"));
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let corpus = std::env::var(CORPUS).map(|folder| in_folder(&format!("{folder}/{name}")));
        let fails = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            std::panic::catch_unwind(|| run(&bytes)).is_err()
        };
        let failed: Vec<PathBuf> = seeds
            .into_iter()
            .chain(corpus.unwrap_or_default())
            .filter(fails)
            .collect();
        assert!(
            failed.is_empty(),
            "{failed:#?} failed; the panics above say why"
        );
    }

    #[test]
    fn every_target_names_the_files_of_its_reader() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for path in in_folder("fuzz_targets") {
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.lines();
            let files = lines.find_map(|line| line.strip_prefix("//! Reader: "));
            let files = files.unwrap_or_else(|| panic!("{} names no reader", path.display()));
            for file in files.split(' ') {
                assert!(root.join(file).exists(), "{}: {file}", path.display());
            }
        }
    }

    #[test]
    fn every_target_is_a_program_and_a_module() {
        let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let manifest: toml::Table = manifest.unwrap().parse().unwrap();
        let programs = manifest["bin"].as_array().unwrap().iter();
        let mut programs: Vec<&str> = programs.map(|b| b["name"].as_str().unwrap()).collect();
        programs.sort_unstable();
        assert_eq!(programs, ALL);
        for (folder, ending) in [("fuzz_targets", ".rs"), ("seeds", "")] {
            let paths = in_folder(folder);
            let names = paths
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap());
            let expected: Vec<String> = ALL.iter().map(|name| format!("{name}{ending}")).collect();
            assert_eq!(names.collect::<Vec<_>>(), expected, "{folder}");
        }
    }
}
