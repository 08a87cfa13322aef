//! From options to a run: each workload's checks, memory and threads.

use crate::access::{self, Access, Instructions};
use crate::channel::Pipes;
use crate::compute::{self, Compute};
use crate::error::Error;
use crate::kernels;
use crate::machine::Machine;
use crate::memory::{Placement, check_room, whole_pages};
use crate::micro::{self, Micro};
use crate::options::{
    self, AccessKind, BetweenLines, Command, Common, Memory, MemoryPolicy, Place, Thp, Via,
    WithMemory,
};
use crate::pair::{Between, Pair, Service, Terms};
use crate::phases::{Level, PhaseLength, Phases};
use crate::random::mix;
use crate::report::{Report, Subject};
use crate::share::{self, Share};
use crate::start_signal::StartSignal;
use crate::steady::Steady;
use crate::stop::Stop;
use crate::stream::Stream;
use crate::sys::{HugePages, LINE, Region};
use crate::threads::{self, Length, Outcome};
use crate::workload::{Detail, Workload};
use clap::ValueEnum;
use std::ffi::OsString;
use std::sync::Arc;

/// Runs a workload on `machine` and says what it did.
pub fn run(command: &Command, machine: &Machine, stop: &Stop) -> Result<Option<Report>, Error> {
    let report = match command {
        Command::Chase(options) => {
            let subject = ("chase", "hop", access::CHASE);
            steady(options, subject, machine, stop, access::Chase::new)?
        }
        Command::Stream(options) => stream(options, machine, stop)?,
        Command::Compute(options) => compute(options, machine, stop)?,
        Command::Update(options) => {
            let subject = ("update", "update", access::UPDATE);
            steady(options, subject, machine, stop, access::Update::new)?
        }
        Command::Phases(options) => phases(options, machine, stop)?,
        Command::Share(options) => share(options, machine, stop)?,
        Command::Micro(options) => micro(options, machine, stop)?,
        Command::Pair(options) => pair(options, machine, stop)?,
        Command::Kernel(options) => kernel(options, machine, stop)?,
        Command::Serve(options) => {
            serve(options, machine)?;
            return Ok(None);
        }
    };
    Ok(Some(report))
}

/// chase and update: the same number of instructions between accesses.
fn steady<A: Access>(
    options: &WithMemory<BetweenLines>,
    subject: (&'static str, &'static str, Instructions),
    machine: &Machine,
    stop: &Stop,
    access: impl Fn(Region, u64) -> A + Sync,
) -> Result<Report, Error> {
    let compute = options.own.compute;
    let (kind, operation, each) = subject;
    let cost = Some(each.cost(compute));
    let subject = Subject::new(
        kind,
        operation,
        cost,
        parameters(options, Some(&options.memory)),
    );
    let setup = Setup::new(&options.common, Some(&options.memory), machine)?;
    setup.own_memory(subject, stop, |region, index| {
        Steady::new(access(region, setup.seed(index)), compute)
    })
}

fn stream(
    options: &WithMemory<options::Stream>,
    machine: &Machine,
    stop: &Stop,
) -> Result<Report, Error> {
    let subject = Subject {
        stream: true,
        ..Subject::new(
            "stream",
            "step",
            Some(options.own.kernel.cost()),
            parameters(options, Some(&options.memory)),
        )
    };
    let setup = Setup::new(&options.common, Some(&options.memory), machine)?;
    setup.own_memory(subject, stop, |region, _| {
        Stream::new(region, options.own.kernel)
    })
}

fn compute(options: &options::Compute, machine: &Machine, stop: &Stop) -> Result<Report, Error> {
    let subject = Subject::new(
        "compute",
        "iteration",
        Some(compute::COST),
        parameters(options, None),
    );
    let setup = Setup::new(&options.common, None, machine)?;
    setup.run(subject, stop, |index| {
        setup
            .placement
            .settle(index, || Ok(Compute::new(setup.seed(index))))
    })
}

fn phases(
    options: &WithMemory<options::Phases>,
    machine: &Machine,
    stop: &Stop,
) -> Result<Report, Error> {
    let (kind, access) = match options.own.access {
        AccessKind::Chase => (access::CHASE, "a chase"),
        AccessKind::Update => (access::UPDATE, "an update"),
    };
    check_levels(&options.own.levels, kind, access)?;
    let levels: Vec<Level> = options
        .own
        .levels
        .iter()
        .map(|level| Level::new(*level, kind))
        .collect();
    let phase = options.own.phase.length();
    let subject = Subject::new(
        "phases",
        "operation",
        None,
        parameters(options, Some(&options.memory)),
    );
    let mut setup = Setup::new(&options.common, Some(&options.memory), machine)?;
    if let (Length::Rounds(rounds), PhaseLength::Time(duration)) = (setup.length, phase) {
        let phases = rounds.saturating_mul(levels.len() as u64);
        let phases = u32::try_from(phases).unwrap_or(u32::MAX);
        setup.length = Length::Time(duration.saturating_mul(phases));
    }
    let offset = |index: usize| options.own.offset + index as f64 * options.own.stagger;
    match options.own.access {
        AccessKind::Chase => setup.own_memory(subject, stop, |region, index| {
            let access = access::Chase::new(region, setup.seed(index));
            Phases::new(
                access,
                levels.clone(),
                phase,
                offset(index),
                setup.seed(index),
            )
        }),
        AccessKind::Update => setup.own_memory(subject, stop, |region, index| {
            let access = access::Update::new(region, setup.seed(index));
            Phases::new(
                access,
                levels.clone(),
                phase,
                offset(index),
                setup.seed(index),
            )
        }),
    }
}

/// Refuses levels that no number of iterations can reach.
fn check_levels(levels: &[f64], kind: Instructions, access: &'static str) -> Result<(), Error> {
    let most = kind.cost(0).lines_per_1000_instructions();
    match levels.iter().find(|level| **level > most) {
        Some(level) => Err(Error::LevelTooHigh {
            level: *level,
            access,
            most,
        }),
        None => Ok(()),
    }
}

fn share(
    options: &WithMemory<options::Share>,
    machine: &Machine,
    stop: &Stop,
) -> Result<Report, Error> {
    let subject = Subject::new(
        "share",
        "access",
        Some(share::cost(options.own.write_percent)),
        parameters(options, Some(&options.memory)),
    );
    let bytes = whole_pages(options.memory.working_set);
    check_room(machine, options.common.place.home, 1, bytes)?;
    let setup = Setup::new(&options.common, None, machine)?.with_huge_pages(options.memory.thp);
    let region = apart(|| setup.placement.settle(0, || setup.placement.memory(bytes)))?;
    let region = Arc::new(region);
    setup.run(subject, stop, |index| {
        let share = Share::new(
            Arc::clone(&region),
            options.own.write_percent,
            setup.seed(index),
        );
        setup.placement.settle(index, || Ok(share))
    })
}

fn micro(options: &options::Micro, machine: &Machine, stop: &Stop) -> Result<Report, Error> {
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
    let subject = Subject::new("micro", "step", None, parameters(options, None));
    let shared_bytes = whole_pages((words * size_of::<u64>()).max(1));
    let list_bytes = whole_pages(entries * LINE);
    let home = options.common.place.home;
    check_room(machine, home, threads, list_bytes)?;
    let mut setup = Setup::new(&options.common, None, machine)?.with_huge_pages(options.thp);
    if options.memory == MemoryPolicy::Interleave {
        setup.placement = setup.placement.interleaved(machine.nodes_with_memory()?);
    }
    let placement = &setup.placement;
    let shared = apart(|| placement.settle_beside_memory(0, || placement.memory(shared_bytes)))?;
    let shared = Arc::new(shared);
    let mut report = setup.run(subject, stop, |index| {
        placement.settle_beside_memory(index, || {
            let memory = (entries > 0).then(|| placement.memory(list_bytes));
            let memory = memory.transpose()?;
            let seed = setup.seed(index);
            Ok(Micro::new(
                memory,
                entries,
                Arc::clone(&shared),
                words,
                seed,
            ))
        })
    })?;
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
    report.micro = Some(micro::Told {
        mean_seconds: seconds / threads as f64,
        entries: entries as u64,
        shared_words: words as u64,
        wrong_words: micro::wrong_words(&shared.shared_words()[..words], added.into_iter()),
        wrong_passes,
    });
    Ok(report)
}

/// Runs `work` in a thread of its own, so that the calling one keeps its affinity.
fn apart<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn pair(
    options: &WithMemory<options::Pair>,
    machine: &Machine,
    stop: &Stop,
) -> Result<Report, Error> {
    let subject = Subject::new(
        "pair",
        "request",
        None,
        parameters(options, Some(&options.memory)),
    );
    let setup = Setup::new(&options.common, Some(&options.memory), machine)?;
    let terms = Terms {
        between: match (options.own.processes, options.own.via) {
            (true, Via::Futex) => return Err(Error::FutexBetweenProcesses),
            (true, Via::Pipe) => Between::Processes,
            (false, Via::Pipe) => Between::Pipes,
            (false, Via::Futex) => Between::Mailboxes,
        },
        working_set: options.memory.working_set,
        pages: options.own.pages,
        think: options.own.think,
        server_command: server_command(options),
    };
    setup.run(subject, stop, |index| {
        Pair::start(&terms, &setup.placement, index, setup.seed(index))
    })
}

fn kernel(options: &options::Kernel, machine: &Machine, stop: &Stop) -> Result<Report, Error> {
    // No working set to fill in, and a length of its own.
    let parameters = serde_json::to_value(options).unwrap_or_default();
    let subject = Subject {
        kind: options.kernel.name,
        operation: "iteration",
        cost: None,
        stream: false,
        parameters,
    };
    let placement = placement(&options.place, machine, options.thp)?;
    let conduct = &options.conduct;
    let gate = StartSignal::new(conduct.ready_file.as_deref(), conduct.go_file.as_deref())?;
    let run = kernels::Run {
        entry: options.kernel,
        class: options.class,
        threads: options.threads,
        iterations: options.iterations,
        seed: options.seed,
        placement: &placement,
        gate: &gate,
    };
    let (outcome, told) = apart(|| kernels::run(&run, machine, stop))?;
    let mut report = Report::new(subject, outcome, std::process::id());
    report.kernel = Some(told);
    Ok(report)
}

/// The command line of a serving process, without what each has of its own.
fn server_command(options: &WithMemory<options::Pair>) -> Vec<OsString> {
    let place = &options.common.place;
    let mut command = vec![
        "serve".to_owned(),
        format!("--pages={}", options.own.pages),
        format!("--working-set={}", options.memory.working_set),
        format!("--start-cpu={}", options::start_text(place.start_cpu)),
    ];
    if let Some(thp) = options.memory.thp.to_possible_value() {
        command.push(format!("--thp={}", thp.get_name()));
    }
    if let Some(home) = place.home {
        command.push(format!("--home={home}"));
    }
    command.into_iter().map(OsString::from).collect()
}

/// The serving process: answers on standard input and output.
fn serve(options: &options::Serve, machine: &Machine) -> Result<(), Error> {
    let placement = placement(&options.place, machine, options.memory.thp)?;
    let service = placement.settle(0, || {
        let region = placement.memory(options.memory.working_set)?;
        Ok(Service::new(region, options.pages, options.seed))
    })?;
    let mut wire = Pipes::new(std::io::stdin(), std::io::stdout());
    service.serve(&mut wire).map_err(|source| Error::System {
        action: "serve requests",
        source,
    })
}

/// What all workloads' runs are made of.
struct Setup<'o> {
    common: &'o Common,
    placement: Placement,
    length: Length,
    gate: StartSignal,
    /// Bytes of each thread's memory, whole pages.
    bytes: usize,
}

impl<'o> Setup<'o> {
    /// Checks that `machine` can hold the threads and their `memory`, if each has its own.
    fn new(
        common: &'o Common,
        memory: Option<&Memory>,
        machine: &Machine,
    ) -> Result<Setup<'o>, Error> {
        let thp = memory.map_or(Thp::Default, |memory| memory.thp);
        let placement = placement(&common.place, machine, thp)?;
        let bytes = memory.map_or(0, |memory| whole_pages(memory.working_set));
        if bytes > 0 {
            check_room(machine, common.place.home, common.threads, bytes)?;
        }
        let conduct = &common.conduct;
        let gate = StartSignal::new(conduct.ready_file.as_deref(), conduct.go_file.as_deref())?;
        Ok(Setup {
            common,
            placement,
            length: common.length.length(),
            gate,
            bytes,
        })
    }

    fn with_huge_pages(mut self, thp: Thp) -> Setup<'o> {
        self.placement.huge_pages = HugePages::from(thp);
        self
    }

    /// The seed of thread `index`.
    fn seed(&self, index: usize) -> u64 {
        mix(self.common.seed).wrapping_add(index as u64)
    }

    /// Runs threads that each have memory of their own.
    fn own_memory<W: Workload>(
        &self,
        subject: Subject,
        stop: &Stop,
        make: impl Fn(Region, usize) -> W + Sync,
    ) -> Result<Report, Error> {
        self.run(subject, stop, |index| {
            self.placement.settle(index, || {
                Ok(make(self.placement.memory(self.bytes)?, index))
            })
        })
    }

    fn run<W: Workload>(
        &self,
        subject: Subject,
        stop: &Stop,
        make: impl Fn(usize) -> Result<W, Error> + Sync,
    ) -> Result<Report, Error> {
        let outcome: Outcome =
            threads::run(self.common.threads, self.length, &self.gate, stop, make)?;
        Ok(Report::new(subject, outcome, std::process::id()))
    }
}

fn placement(place: &Place, machine: &Machine, thp: Thp) -> Result<Placement, Error> {
    let pins = place.cpus.as_ref().map_or(&[][..], |cpus| &cpus.0);
    Placement::new(machine, place.home, place.start_cpu, pins, thp.into())
}

/// The options as JSON, the working set as it really is and lengths left out filled in.
fn parameters(options: &impl serde::Serialize, memory: Option<&Memory>) -> serde_json::Value {
    // Plain fields with string keys: nothing that JSON cannot express.
    let mut parameters = serde_json::to_value(options).unwrap_or_default();
    if let Some(memory) = memory {
        parameters["working_set"] = whole_pages(memory.working_set).into();
    }
    let left_out = |names: [&str; 3]| names.iter().all(|name| parameters[name].is_null());
    let length = left_out(["rounds", "operations", "seconds"]);
    // Only phases have this field at all.
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
