//! Runs the workload that the options describe: checks, memory and threads.

use crate::access::{self, AccessKind, Chase, Growing, Update};
use crate::channel::Pipes;
use crate::compute::{self, Compute};
use crate::error::Error;
use crate::kernels;
use crate::machine::Machine;
use crate::memory::{Placement, SharedMemory, check_room, whole_pages};
use crate::micro::{self, Micro};
use crate::options::{
    self, BetweenLines, Command, Common, Memory, MemoryPolicy, Place, Via, WithMemory, name_of,
};
use crate::pair::{Pair, Service, Terms};
use crate::phases::{Level, PhaseLength, Phases};
use crate::random::mix;
use crate::report::Report;
use crate::share::{self, Share};
use crate::start_signal::StartSignal;
use crate::steady::Steady;
use crate::stop::Stop;
use crate::stream::Stream;
use crate::sys::{HugePages, LINE, Region};
use crate::threads::{self, Length, Outcome};
use crate::workload::{Cost, Detail, Workload};
use clap::Args;
use serde::Serialize;
use std::cell::Cell;
use std::ffi::OsString;
use std::sync::Arc;

/// Runs a workload on `machine` and returns its report; None for a serving process.
pub fn run(command: &Command, machine: &Machine, stop: &Stop) -> Result<Option<Report>, Error> {
    let (ready, go) = match command.conduct() {
        Some(conduct) => (conduct.ready_file.as_deref(), conduct.go_file.as_deref()),
        None => (None, None),
    };
    let host = Host {
        machine,
        stop,
        gate: &StartSignal::new(ready, go)?,
    };
    let report = match command {
        Command::Chase(options) => chase(options, host)?,
        Command::Stream(options) => stream(options, host)?,
        Command::Compute(options) => compute(options, host)?,
        Command::Update(options) => update(options, host)?,
        Command::Phases(options) => phases(options, host)?,
        Command::Share(options) => share(options, host)?,
        Command::Micro(options) => micro(options, host)?,
        Command::Pair(options) => pair(options, host)?,
        Command::Kernel(options) => kernel(options, host)?,
        Command::Serve(options) => {
            serve(options, machine)?;
            return Ok(None);
        }
    };
    Ok(Some(report))
}

/// The machine and the signals of a run, for every workload.
#[derive(Clone, Copy)]
struct Host<'h> {
    machine: &'h Machine,
    stop: &'h Stop,
    gate: &'h StartSignal,
}

fn chase(options: &WithMemory<BetweenLines>, host: Host<'_>) -> Result<Report, Error> {
    let compute = options.own.compute;
    let setup = Setup::new(&options.common, Some(&options.memory), host)?;
    let outcome = setup
        .own_memory(|region, index| Steady::new(Chase::new(region, setup.seed(index)), compute))?;
    let cost = Some(access::CHASE.cost(compute));
    Ok(options.report("chase", "hop", cost, outcome))
}

fn update(options: &WithMemory<options::Update>, host: Host<'_>) -> Result<Report, Error> {
    let compute = options.own.between.compute;
    let setup = Setup::new(&options.common, Some(&options.memory), host)?;
    let new = |region, index| Update::new(region, setup.seed(index));
    let outcome = match options.own.grow {
        None => setup.own_memory(|region, index| Steady::new(new(region, index), compute))?,
        Some(rounds) => setup.run(|index| {
            setup.placement.settle(index, || {
                let region = setup.placement.addresses(setup.bytes)?;
                let growing = Growing::new(new(region, index), rounds);
                Ok(Steady::new(growing, compute))
            })
        })?,
    };
    let cost = Some(access::UPDATE.cost(compute));
    Ok(options.report("update", "update", cost, outcome))
}

fn stream(options: &WithMemory<options::Stream>, host: Host<'_>) -> Result<Report, Error> {
    let kernel = options.own.kernel;
    let setup = Setup::new(&options.common, Some(&options.memory), host)?;
    let outcome = setup.own_memory(|region, _| Stream::new(region, kernel))?;
    let mut report = options.report("stream", "step", Some(kernel.cost()), outcome);
    report.set_bandwidth(kernel.arrays());
    Ok(report)
}

fn compute(common: &Common, host: Host<'_>) -> Result<Report, Error> {
    let setup = Setup::new(common, None, host)?;
    let outcome = setup.run(|index| {
        setup
            .placement
            .settle(index, || Ok(Compute::new(setup.seed(index))))
    })?;
    let (cost, parameters) = (Some(compute::COST), parameters(common, None));
    Ok(Report::new(
        "compute",
        "iteration",
        cost,
        parameters,
        outcome,
    ))
}

fn phases(options: &WithMemory<options::Phases>, host: Host<'_>) -> Result<Report, Error> {
    let own = &options.own;
    check_levels(&own.levels, own.access)?;
    let kind = own.access.instructions();
    let levels: Vec<_> = own
        .levels
        .iter()
        .map(|level| Level::new(*level, kind))
        .collect();
    let phase = own.phase.length();
    let mut setup = Setup::new(&options.common, Some(&options.memory), host)?;
    if let (Length::Rounds(rounds), PhaseLength::Time(duration)) = (setup.length, phase) {
        let phases = rounds.saturating_mul(levels.len() as u64);
        let phases = u32::try_from(phases).unwrap_or(u32::MAX);
        setup.length = Length::Time(duration.saturating_mul(phases));
    }
    let outcome = setup.own_memory(|region, index| {
        let seed = setup.seed(index);
        let offset = own.offset + index as f64 * own.stagger;
        Phases::new(
            own.access.to(region, seed),
            levels.clone(),
            phase,
            offset,
            seed,
        )
    })?;
    Ok(options.report("phases", "operation", None, outcome))
}

/// Refuses levels that no number of iterations can reach.
fn check_levels(levels: &[f64], kind: AccessKind) -> Result<(), Error> {
    let most = kind.instructions().cost(0).lines_per_1000_instructions;
    let access = match kind {
        AccessKind::Chase => "a chase",
        AccessKind::Update => "an update",
    };
    match levels.iter().find(|level| **level > most) {
        Some(level) => Err(Error::LevelTooHigh {
            level: *level,
            access,
            most,
        }),
        None => Ok(()),
    }
}

fn share(options: &WithMemory<options::Share>, host: Host<'_>) -> Result<Report, Error> {
    let write_percent = options.own.write_percent;
    let bytes = whole_pages(options.memory.working_set);
    check_room(host.machine, options.common.place.home, 1, bytes)?;
    let mut setup = Setup::new(&options.common, None, host)?;
    setup.placement.huge_pages = options.memory.thp;
    let shared = options.own.shared_memory.as_deref();
    let shared = shared.map(SharedMemory::open).transpose()?;
    let memory = || match &shared {
        None => setup.placement.memory(bytes),
        Some(shared) => setup.placement.shared_memory(bytes, shared),
    };
    let region = apart(|| setup.placement.settle(0, memory))?;
    let region = Arc::new(region);
    let outcome = setup.run(|index| {
        let share = Share::new(Arc::clone(&region), write_percent, setup.seed(index));
        setup.placement.settle(index, || Ok(share))
    })?;
    let cost = Some(share::cost(write_percent));
    Ok(options.report("share", "access", cost, outcome))
}

fn micro(options: &options::Micro, host: Host<'_>) -> Result<Report, Error> {
    let threads = options.common.threads;
    let entries = options.working_set / threads / LINE;
    let words = options.sharing_size / size_of::<u64>();
    if entries == 0 && options.working_set > 0 {
        return Err(Error::ListTooShort {
            bytes: options.working_set,
            threads,
        });
    }
    if entries == 0 && words == 0 {
        return Err(Error::NothingToTouch);
    }
    let shared_bytes = whole_pages((words * size_of::<u64>()).max(1));
    let list_bytes = whole_pages(entries * LINE);
    check_room(host.machine, options.common.place.home, threads, list_bytes)?;
    let mut setup = Setup::new(&options.common, None, host)?;
    setup.placement.huge_pages = options.thp;
    if options.memory == MemoryPolicy::Interleave {
        let nodes = host.machine.nodes_with_memory()?;
        setup.placement = setup.placement.interleaved(nodes);
    }
    let placement = &setup.placement;
    let shared = apart(|| placement.settle_beside_memory(0, || placement.memory(shared_bytes)))?;
    let shared = Arc::new(shared);
    let outcome = setup.run(|index| {
        placement.settle_beside_memory(index, || {
            let memory = (entries > 0).then(|| placement.memory(list_bytes));
            let shared = Arc::clone(&shared);
            Ok(Micro::new(
                memory.transpose()?,
                entries,
                shared,
                words,
                setup.seed(index),
            ))
        })
    })?;
    let mut report = Report::new("micro", "step", None, parameters(options, None), outcome);
    let (mut added, mut wrong_passes) = (Vec::new(), 0);
    for row in &report.threads {
        if let Detail::Micro {
            added: ones,
            wrong_passes: wrong,
        } = row.detail
        {
            added.push(ones);
            wrong_passes += wrong;
        }
    }
    let seconds: f64 = report.threads.iter().map(|row| row.seconds).sum();
    report.micro = Some(micro::MicroReport {
        mean_seconds: seconds / threads as f64,
        entries: entries as u64,
        shared_words: words as u64,
        wrong_words: micro::wrong_words(&shared.shared_words()[..words], added.into_iter()),
        wrong_passes,
    });
    Ok(report)
}

/// Runs `work` in a separate thread, so that the calling thread keeps its affinity.
fn apart<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn pair(options: &WithMemory<options::Pair>, host: Host<'_>) -> Result<Report, Error> {
    let setup = Setup::new(&options.common, Some(&options.memory), host)?;
    let options::Pair { via, processes, .. } = options.own;
    if processes && via == Via::Futex {
        return Err(Error::FutexBetweenProcesses);
    }
    let terms = Terms {
        via,
        processes,
        working_set: options.memory.working_set,
        pages: options.own.pages,
        think: options.own.think,
        server_command: server_command(options),
    };
    let outcome =
        setup.run(|index| Pair::start(&terms, &setup.placement, index, setup.seed(index)))?;
    Ok(options.report("pair", "request", None, outcome))
}

fn kernel(options: &options::Kernel, host: Host<'_>) -> Result<Report, Error> {
    let terms = kernels::Terms {
        kernel: options.kernel,
        class: options.class,
        threads: options.threads,
        seed: options.seed,
        placement: &placement(&options.place, host.machine, options.thp)?,
        machine: host.machine,
        bytes: Cell::new(0),
    };
    let (outcome, told) =
        apart(move || kernels::run(&terms, options.iterations, host.gate, host.stop))?;
    // A kernel has no working set to fill in, and defines its own length.
    let parameters = serde_json::to_value(options).unwrap_or_default();
    let kind = name_of(&options.kernel);
    let mut report = Report::new(kind, "iteration", None, parameters, outcome);
    report.kernel = Some(told);
    Ok(report)
}

/// The command line of serving processes, without the arguments that differ between them.
fn server_command(options: &WithMemory<options::Pair>) -> Vec<OsString> {
    let place = &options.common.place;
    let mut command = vec![
        "serve".to_owned(),
        format!("--pages={}", options.own.pages),
        format!("--working-set={}", options.memory.working_set),
        format!("--start-cpu={}", place.start_cpu),
        format!("--thp={}", name_of(&options.memory.thp)),
    ];
    if let Some(home) = place.home {
        command.push(format!("--home={home}"));
    }
    command.into_iter().map(OsString::from).collect()
}

/// Runs the serving process, which answers on standard input and output.
fn serve(options: &options::Serve, machine: &Machine) -> Result<(), Error> {
    let placement = placement(&options.place, machine, options.memory.thp)?;
    let service = placement.settle(0, || {
        let region = placement.memory(options.memory.working_set)?;
        Ok(Service::new(region, options.pages, options.seed))
    })?;
    let mut wire = Pipes::new(std::io::stdin(), std::io::stdout());
    service
        .serve(&mut wire)
        .map_err(Error::system("serve requests"))
}

/// The common part of the runs of all workloads but kernels.
struct Setup<'s> {
    host: Host<'s>,
    common: &'s Common,
    placement: Placement,
    length: Length,
    /// Bytes of each thread's memory, in whole pages.
    bytes: usize,
}

impl<'s> Setup<'s> {
    /// Checks that the machine can hold the threads and their `memory`, if each has its own.
    fn new(
        common: &'s Common,
        memory: Option<&Memory>,
        host: Host<'s>,
    ) -> Result<Setup<'s>, Error> {
        let thp = memory.map_or(HugePages::Default, |memory| memory.thp);
        let placement = placement(&common.place, host.machine, thp)?;
        let bytes = memory.map_or(0, |memory| whole_pages(memory.working_set));
        if bytes > 0 {
            check_room(host.machine, common.place.home, common.threads, bytes)?;
        }
        Ok(Setup {
            host,
            common,
            placement,
            length: common.length.length(),
            bytes,
        })
    }

    /// The seed of thread `index`.
    fn seed(&self, index: usize) -> u64 {
        mix(self.common.seed).wrapping_add(index as u64)
    }

    /// Runs threads with separate memories.
    fn own_memory<W: Workload>(
        &self,
        make: impl Fn(Region, usize) -> W + Sync,
    ) -> Result<Outcome, Error> {
        self.run(|index| {
            self.placement.settle(index, || {
                Ok(make(self.placement.memory(self.bytes)?, index))
            })
        })
    }

    fn run<W: Workload>(
        &self,
        make: impl Fn(usize) -> Result<W, Error> + Sync,
    ) -> Result<Outcome, Error> {
        let Host { gate, stop, .. } = self.host;
        let begin = || self.placement.begin();
        threads::run(self.common.threads, self.length, gate, stop, make, begin)
    }
}

impl<T: Args + Serialize> WithMemory<T> {
    /// The report of the workload `kind` with these options; see [`Report::new`].
    fn report(
        &self,
        kind: &str,
        operation: &'static str,
        cost: Option<Cost>,
        outcome: Outcome,
    ) -> Report {
        let parameters = parameters(self, Some(&self.memory));
        Report::new(kind, operation, cost, parameters, outcome)
    }
}

fn placement(place: &Place, machine: &Machine, thp: HugePages) -> Result<Placement, Error> {
    let pins = place.cpus.as_ref().map_or(&[][..], |cpus| &cpus.0);
    Placement::new(machine, place.home, place.start_cpu, pins, thp)
}

/// The options as JSON, with the actual working set and default lengths filled in.
fn parameters(options: &impl Serialize, memory: Option<&Memory>) -> serde_json::Value {
    // Plain fields with string keys, which JSON can always express.
    let mut parameters = serde_json::to_value(options).unwrap_or_default();
    if let Some(memory) = memory {
        parameters["working_set"] = whole_pages(memory.working_set).into();
    }
    let left_out = |names: [&str; 3]| names.iter().all(|name| parameters[name].is_null());
    let length = left_out(["rounds", "operations", "seconds"]);
    // Only phases have this field.
    let phase = parameters.get("phase_seconds").is_some()
        && left_out(["phase_operations", "phase_instructions", "phase_seconds"]);
    if length {
        parameters["seconds"] = options::DEFAULT_LENGTH.as_secs_f64().into();
    }
    if phase {
        parameters["phase_seconds"] = options::DEFAULT_PHASE.as_secs_f64().into();
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn lengths_left_out_are_told() {
        let parse = |line: &str| {
            let options = options::Options::parse_from(line.split_whitespace());
            parameters(&options.command, None)
        };
        let phases = parse("menagerie phases");
        assert_eq!(
            (&phases["seconds"], &phases["phase_seconds"]),
            (&10.0.into(), &4.0.into())
        );
        let phases = parse("menagerie phases --rounds 3 --phase-operations 9");
        assert!(phases["seconds"].is_null() && phases["phase_seconds"].is_null());
        let compute = parse("menagerie compute");
        assert_eq!(compute["seconds"], 10.0);
        assert!(compute.get("phase_seconds").is_none());
    }
}
