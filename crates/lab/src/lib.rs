//! The lab: a NUMA machine in a box.
//!
//! It boots a stock Linux kernel with any number of NUMA nodes under Debian's unmodified QEMU and
//! runs programs of the host's own file system in it. With the plugin (`plugin/`), caches, memory
//! controllers, links and time follow a model of the machine, and the PMU module (`pmu/`) shows the
//! modelled counters to the guest's perf.
//!
//! | part | file |
//! |---|---|
//! | what the guest looks like: nodes, CPUs, memory, distances | [`shape`] |
//! | both shape and model from a machine file | [`machine`] |
//! | what `make setup` prepared: kernel, modules, plugin | [`files`] |
//! | the initial file system | [`initrd`] |
//! | a command for a guest | [`command`] |
//! | QEMU's command line, a pure function | [`command_line`] |
//! | QEMU's process: started, watched, never left behind | [`qemu`] |
//! | a running guest: many commands in one boot | [`guest`] |
//! | one command in a guest of its own | [`run`](mod@run) |
//! | the same, recorded into a trace file | [`record`](mod@record) |
//!
//! ```no_run
//! use numaherd_lab_launcher::{Command, Guest, KernelFiles, Options, Shape};
//!
//! let shape = Shape::uniform(4, 2, 512);
//! let guest = Guest::start(&Options::new(shape, KernelFiles::find(None)?))?;
//! let output = guest.output(&Command::inherited(["numactl", "--hardware"])?, None)?;
//! print!("{}", String::from_utf8_lossy(&output.stdout));
//! guest.stop()?;
//! # Ok::<(), numaherd_lab_launcher::Error>(())
//! ```

pub mod command;
pub mod command_line;
pub mod error;
pub mod files;
pub mod guest;
pub mod initrd;
pub mod machine;
pub mod qemu;
pub mod record;
pub mod run;
pub mod shape;

pub use command::Command;
pub use command_line::{Model, SerialPort};
pub use error::{Error, Result};
pub use files::{KernelFiles, find_plugin, on_path, peers};
pub use guest::{Ending, Event, Guest, Options, Output, Running, Stopped, Stream};
pub use record::{RecordOptions, Recorded, record};
pub use run::{Finished, RunOptions, Time, run, run_beside};
pub use shape::{NodeShape, Shape};
