//! The traces that experiments play: kernels of the menagerie, recorded once in the lab and kept.
//!
//! A trace file says which command it is a recording of. A trace of another command or size, or an unfinished
//! one, is recorded again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use numaherd::exit::{self, Exit};
use numaherd_experiment::claims::{Measured, Paper};
use numaherd_lab_launcher::{Command, KernelFiles, RecordOptions, RunOptions, find_plugin};
use numaherd_trace::Trace;
use serde_json::Value;

use crate::{compare, lab};

/// The machine whose guest records: eight CPUs. What is recorded does not depend on its caches.
const RECORDED_ON: &str = "lab-4x2";

/// A kernel at one size, as the menagerie names both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// The published size.
    pub class: &'static str,
    /// Time steps, or rounds of what it computes.
    pub iterations: u32,
    /// How many threads share the work.
    pub threads: u32,
}

impl Kernel {
    /// The command that runs it.
    fn command(&self) -> Vec<String> {
        let Self {
            name,
            class,
            iterations,
            threads,
        } = self;
        let command = format!(
            "menagerie kernel {name} --class {class} --iterations {iterations} --threads {threads}"
        );
        command.split(' ').map(str::to_owned).collect()
    }

    /// The name of its trace's file.
    fn file(&self) -> String {
        format!(
            "{}-{}-{}x{}.trace",
            self.name, self.class, self.iterations, self.threads
        )
    }
}

const fn kernel(name: &'static str, class: &'static str, iterations: u32, threads: u32) -> Kernel {
    Kernel {
        name,
        class,
        iterations,
        threads,
    }
}

/// Threads of a recording for machines of eight cores.
const FEW: u32 = 8;
/// And for larger ones: class W has 24 to 36 planes to distribute.
const MANY: u32 = 16;

/// The NAS kernels, at sizes whose recordings have some ten to two hundred million events; mg, whose
/// class W is 64 times S, four hundred.
const fn nas(threads: u32) -> [Kernel; 9] {
    [
        kernel("bt", "W", 1, threads),
        kernel("cg", "W", 1, threads),
        kernel("ep", "S", 1, threads),
        kernel("ft", "W", 1, threads),
        kernel("is", "W", 1, threads),
        kernel("lu", "W", 1, threads),
        kernel("mg", "W", 1, threads),
        kernel("sp", "W", 1, threads),
        kernel("ua", "S", 1, threads),
    ]
}

/// The NAS kernels with eight threads.
pub const NAS: [Kernel; 9] = nas(FEW);
/// The same with sixteen.
pub const NAS_MANY: [Kernel; 9] = nas(MANY);
/// Stand-ins for PARSEC: a pipeline like ferret and dedup, a grid like fluidanimate.
pub const PARSEC: [Kernel; 2] = [
    kernel("pipeline", "W", 100, FEW),
    kernel("grid", "S", 4, FEW),
];
/// Stand-in for Ondes3D.
pub const STENCIL: Kernel = kernel("stencil", "W", 1, FEW);

/// What stands for the two suites of IPM's experiments, with eight threads.
pub fn nas_and_parsec() -> Vec<&'static Kernel> {
    NAS.iter().chain(&PARSEC).collect()
}

/// All kernels with eight threads.
pub fn few() -> Vec<&'static Kernel> {
    let mut kernels = nas_and_parsec();
    kernels.push(&STENCIL);
    kernels
}

/// All kernels that are recorded.
fn all() -> impl Iterator<Item = &'static Kernel> {
    few().into_iter().chain(&NAS_MANY)
}

/// A kernel with eight threads, by its name.
///
/// # Panics
/// There is none of that name.
pub fn named(name: &str) -> &'static Kernel {
    let found = few().into_iter().find(|kernel| kernel.name == name);
    found.unwrap_or_else(|| panic!("there is no kernel {name}"))
}

/// The kernels whose traces the experiments of a paper play.
fn of_paper(paper: Paper) -> Vec<&'static Kernel> {
    match paper {
        Paper::Dino | Paper::Adaptive => few(),
        Paper::Ipm => all().collect(),
        Paper::NMass | Paper::Brm | Paper::Autonuma => Vec::new(),
    }
}

/// The results on traces; or why there are none, if the lab, which records traces, is not set up.
///
/// # Errors
/// All other errors.
pub fn where_recorded(on_traces: Result<Measured>) -> Result<Measured> {
    match on_traces {
        Err(error) if exit::of(&error) == Some(Exit::NotSetUp) => {
            let mut nothing = Measured::new();
            nothing.without_traces = Some(format!("{error:#}"));
            Ok(nothing)
        }
        other => other,
    }
}

/// A folder of traces.
#[derive(Debug)]
pub struct Traces {
    folder: PathBuf,
    /// Those opened so far. Locked while one is recorded: two guests at once would only slow each other down.
    opened: Mutex<HashMap<Kernel, Arc<Trace>>>,
}

impl Traces {
    /// The traces in a folder, which is created if need be.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn within(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder of traces {}", folder.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
            opened: Mutex::default(),
        })
    }

    /// Removes the traces of all kernels, so that each is recorded when it is next needed.
    ///
    /// # Errors
    /// They could not be recorded again, or a file cannot be removed.
    pub fn forget(&self) -> Result<()> {
        can_record()?;
        for kernel in all() {
            let path = self.folder.join(kernel.file());
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.with_context(|| format!("cannot remove {}", path.display()))?,
            }
        }
        Ok(())
    }

    /// Checks that each trace of a paper's experiments is there or can be recorded.
    ///
    /// # Errors
    /// One is missing, and the lab that records it is not set up.
    pub fn check(&self, paper: Paper) -> Result<()> {
        let mut kernels = of_paper(paper).into_iter();
        match kernels.find(|kernel| !is_of(&self.folder.join(kernel.file()), &kernel.command())) {
            Some(missing) => can_record().with_context(|| cannot_record(missing)),
            None => Ok(()),
        }
    }

    /// A kernel's trace, recorded first where there is none.
    ///
    /// # Errors
    /// It cannot be recorded (the message says what the lab needs), or is damaged.
    pub fn of(&self, kernel: &Kernel) -> Result<Arc<Trace>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trace) = opened.get(kernel) {
            return Ok(trace.clone());
        }
        let path = self.folder.join(kernel.file());
        if !is_of(&path, &kernel.command()) {
            record_into(&path, kernel)?;
        }
        let trace = Trace::open(&path)?;
        if let Some(damage) = trace.damage() {
            bail!(
                "the trace {} is damaged: {damage}; remove it to record it again",
                path.display()
            );
        }
        let trace = Arc::new(trace);
        opened.insert(*kernel, trace.clone());
        Ok(trace)
    }
}

/// Whether a file is a complete trace of that command.
fn is_of(path: &Path, command: &[String]) -> bool {
    let Ok(trace) = Trace::open(path) else {
        return false;
    };
    let words = trace.about().get("command").and_then(Value::as_array);
    let words = words.into_iter().flatten().map(Value::as_str);
    // The first word is the path that the menagerie had then.
    let expected = command.iter().map(|word| Some(word.as_str()));
    trace.damage().is_none() && words.skip(1).eq(expected.skip(1))
}

/// Checks that what records a trace is set up.
fn can_record() -> Result<()> {
    compare::menagerie()?;
    KernelFiles::find(None).map_err(lab::error)?;
    find_plugin().map_err(lab::error)?;
    Ok(())
}

fn cannot_record(kernel: &Kernel) -> String {
    format!("cannot record `{}`", kernel.command().join(" "))
}

/// Records a kernel into a file that appears only when it is complete.
fn record_into(path: &Path, kernel: &Kernel) -> Result<()> {
    let run = || {
        let mut words = kernel.command();
        words[0] = compare::menagerie()?.to_string_lossy().into_owned();
        let unfinished = path.with_extension("unfinished");
        let command = Command::inherited(&words).map_err(lab::error)?;
        let options = RecordOptions {
            run: RunOptions::new(lab::machine(RECORDED_ON)?, command),
            file: unfinished.clone(),
            limit: None,
        };
        let (mut said, mut complained) = (Vec::new(), Vec::new());
        let recorded =
            numaherd_lab_launcher::record(&options, || false, &mut said, &mut complained)
                .map_err(lab::error)?;
        let code = recorded.finished.exit_code();
        if code != 0 {
            let told = String::from_utf8_lossy(&complained);
            bail!("it ended with exit code {code}: {}", told.trim());
        }
        fs::rename(&unfinished, path)
            .with_context(|| format!("cannot rename {}", unfinished.display()))
    };
    run().with_context(|| cannot_record(kernel))
}

/// Small traces in place of the kernels' own, for tests without the lab.
#[cfg(test)]
pub mod made {
    use super::*;
    use numaherd_trace::{Encoder, Event, ThreadInfo, Writer};

    /// Writes a trace for each kernel: every thread goes through pages of its own and through pages that it
    /// shares with its neighbour. The first thread touches all pages first.
    pub fn all(folder: &Path) -> Traces {
        for kernel in super::all() {
            let path = folder.join(kernel.file());
            fs::write(path, trace(kernel)).expect("the folder takes files");
        }
        Traces::within(folder).expect("the folder is there")
    }

    fn trace(kernel: &Kernel) -> Vec<u8> {
        let mut about = serde_json::Map::new();
        about.insert("command".to_owned(), kernel.command().into());
        let mut writer = Writer::new(Vec::new(), 4096, &about).expect("memory takes all");
        let mut encoder = Encoder::new();
        let load = |page: u64, line: u64| Event::load(0x7000_0000 + page * 4096 + line * 64, 8, 4);
        for number in 0..kernel.threads {
            let thread = writer.thread(&ThreadInfo {
                process: 10,
                tid: 10 + number,
                name: "worker".to_owned(),
            });
            let mut events = Vec::new();
            if number == 0 {
                let pages = u64::from(kernel.threads) * 16;
                events.extend(
                    (0..pages)
                        .chain(5000..5000 + pages)
                        .map(|page| load(page, 0)),
                );
                events.extend((1..kernel.threads).map(|other| Event::wake(other, 0)));
            } else {
                events.push(Event::sleep(0));
            }
            let number = u64::from(number);
            for line in 0..8 {
                for page in 0..16 {
                    events.push(load(number * 16 + page, line));
                    events.push(load(5000 + number / 2 * 16 + page, line));
                }
            }
            let frame = encoder
                .encode(thread, 0, &events)
                .expect("a frame has room");
            writer.append(frame).expect("memory takes all");
        }
        writer.finish().expect("memory takes all")
    }
}
