//! The program `numaherd-nri`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use numaherd_files::{read, setting};
use numaherd_nri::keeper::Keeper;
use numaherd_nri::rules::Rules;
use numaherd_nri::{herd, host_cgroups, runtime, say};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Makes the pods of a Kubernetes node groups of the herd
///
/// It registers with the container runtime (NRI), writes a group for each pod to a file that the herd reads, and asks the
/// herd to read it again when pods come and go. It never adjusts, refuses or delays a pod. See docs/kubernetes.md.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Other>,
    /// The runtime's NRI socket
    #[arg(long, value_name = "PATH", default_value = nri::SOCKET)]
    socket: PathBuf,
    /// The herd's control socket
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/numaherd/control.sock"
    )]
    control: PathBuf,
    /// The file of groups, in the directory that the herd's `groups_from` names
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/run/numaherd/groups.d/kubernetes.toml"
    )]
    groups: PathBuf,
    /// Rules that give pods policies [default: none but what their annotations ask for]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Where to stand among the runtime's plugins, which are asked in ascending order
    #[arg(long, value_name = "NUMBER", default_value_t = 90, value_parser = clap::value_parser!(u8).range(..100))]
    index: u8,
}

#[derive(Subcommand)]
enum Other {
    /// Start a program in the host's cgroup namespace, which a container that is not privileged does not have
    HostCgroups {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, required = true)]
        program: Vec<String>,
    },
}

/// The cgroup namespace of the host's first process, which a pod with `hostPID` sees.
const HOST_CGROUPS: &str = "/proc/1/ns/cgroup";

/// The largest file of rules, in bytes.
const LARGEST_RULES: u64 = 1 << 20;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Other::HostCgroups { program }) => {
            host_cgroups::start(Path::new(HOST_CGROUPS), program).map(|never| match never {})
        }
        None => watch(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn watch(cli: &Cli) -> Result<()> {
    let rules = match &cli.rules {
        None => Rules::default(),
        Some(path) => {
            let text = read::text(path, LARGEST_RULES)?;
            setting::read(&text, &path.display().to_string())?.0
        }
    };
    // Without a handler, these signals do not end the first process of a container. The program can exit at any moment:
    // the file of groups is always whole.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(0);
        }
    });
    let (sender, changes) = channel();
    let (file, control) = (cli.groups.clone(), cli.control.clone());
    let keeper = thread::Builder::new()
        .name("groups".to_owned())
        .spawn(move || {
            let keeper = Keeper {
                rules: &rules,
                file,
                reload: &mut || herd::reload(&control),
                say: &mut |told| say(told),
            };
            keeper.keep(&changes);
        });
    let keeper = keeper.context("cannot start a thread")?;
    let registration = nri::Registration::new("numaherd", cli.index);
    runtime::watch(&cli.socket, &registration, &sender, |time| {
        thread::park_timeout(time);
        // Without the keeper, nothing writes the file.
        !keeper.is_finished()
    });
    anyhow::bail!("the thread that writes the groups has ended")
}
