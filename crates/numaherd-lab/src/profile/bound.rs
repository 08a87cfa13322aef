//! The program that is measured, bound to CPUs and memory, and held back until its counters are open.
//!
//! `numactl` binds it: affinity and memory policy are inherited over exec, so they hold for whatever
//! it starts.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use numaherd::exit::{Exit, ended};
use numaherd::print::quoted;
use numaherd_topology::CpuSet;

use crate::cli::ProfileRun;
use crate::held::Held;

/// Holds a program back that does not know a start signal: creates the file, waits for the FIFO's end, becomes the
/// program.
const HOLD: &str = r#"ready=$1 go=$2; shift 2; : >"$ready"; read -r _ <"$go"; exec "$@""#;

/// Starts the program, bound and held back; `scratch` holds the FIFO `go`.
///
/// # Errors
/// numactl cannot be run.
pub fn start(options: &ProfileRun, cpus: &CpuSet, scratch: &Path) -> Result<Held> {
    let (ready, go) = (scratch.join("ready"), scratch.join("go"));
    let mut command = Command::new("numactl");
    command
        // The program may use CPUs from which this process is kept away.
        .args(["--all", &format!("--physcpubind={cpus}")])
        .args([&format!("--membind={}", options.memory_node), "--"]);
    if options.part.waits {
        command.args(&options.program);
        command.arg("--ready-file").arg(&ready);
        command.arg("--go-file").arg(&go);
    } else {
        command.args(["sh", "-c", HOLD, "sh"]).arg(&ready).arg(&go);
        command.args(&options.program);
    }
    let name = options.program[0].display().to_string();
    let started = Held::start(name, command.stdout(Stdio::null()), ready);
    started.map_err(|error| ended(Exit::NotSetUp, numactl_missing(&error)))
}

/// The error when numactl cannot be run.
pub fn numactl_missing(error: &std::io::Error) -> String {
    format!(
        "cannot run numactl, which binds a program to CPUs and memory: {error}; `make setup` \
         installs it, and so does the package numactl"
    )
}

/// A command line as one would type it: the program's file name, quotes where a shell needs them.
pub fn shown(command: &[OsString]) -> String {
    let program = Path::new(&command[0]);
    let program = program.file_name().unwrap_or(&command[0]);
    let words = std::iter::once(program).chain(command[1..].iter().map(OsString::as_os_str));
    let words = words.map(|word| word.to_string_lossy().replace(char::is_control, " "));
    let words = words.map(|word| quoted(Path::new(&word)));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let shown = |words: &[&str]| shown(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            shown(&["/a/b/menagerie", "chase", "--rounds", "3"]),
            "menagerie chase --rounds 3"
        );
        assert_eq!(shown(&["sh", "-c", "it's\na"]), r"sh -c 'it'\''s a'");
    }
}
