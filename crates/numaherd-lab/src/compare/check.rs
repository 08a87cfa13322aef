//! Checks before a guest is booted: a program or user that is not here is not in the guest either, and a shell that
//! cannot read a command will not run it.

use std::path::Path;
use std::process::{Command as Process, Stdio};

use anyhow::Result;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd_experiment::Scenario;
use numaherd_experiment::in_lab::{Command, Placeholders, Source};

use super::field::ON_COMMAND_LINE;
use crate::lab;

/// What to do where something is missing.
pub const INSTALL: &str = "`scripts/setup.sh programs` installs what scenarios/programs needs";

/// Checks all programs of a scenario.
///
/// # Errors
/// One cannot run: the message names file, line, key and reason.
pub fn check(scenario: &Scenario) -> Result<()> {
    for (number, program) in scenario.programs.iter().enumerate() {
        let lab = &program.lab;
        let counter = match &lab.measure.from {
            Source::Counter(counter) => Some(counter),
            Source::Completion | Source::Output(_) => None,
        };
        let user = lab.user.as_deref();
        let wrong = [
            ("command", lab.command.as_ref().and_then(cannot_run)),
            ("setup", lab.setup.as_ref().and_then(cannot_run)),
            ("measure.counter", counter.and_then(cannot_run)),
            ("user", user.and_then(is_nobody)),
        ];
        for (key, why) in wrong {
            let Some(why) = why else {
                continue;
            };
            if scenario.from == ON_COMMAND_LINE {
                return Err(ended(Exit::Usage, why));
            }
            let key = format!("program[{number}].{key}");
            return Err(scenario.wrong(&key, why)).or_exit(Exit::Usage);
        }
    }
    Ok(())
}

/// Why a user's programs cannot run; `None` if the user exists.
fn is_nobody(user: &str) -> Option<String> {
    let number = numaherd_host::user_number(Path::new("/"), user);
    let error = number.err()?;
    Some(format!(
        "{error}; the guest sees the users of this machine: install what adds it ({INSTALL})"
    ))
}

/// Why a command cannot run, as far as can be told.
fn cannot_run(command: &Command) -> Option<String> {
    let first = Placeholders { copy: 0, dir: "/" };
    let shell = |option: &str, words: &[&str]| {
        let mut shell = Process::new("sh");
        shell
            .args([option, "-c"])
            .args(words)
            .stdin(Stdio::null())
            .output()
    };
    if let Command::Typed(text) = command {
        let read = shell("-n", &[&first.fill(text)]).ok()?;
        if !read.status.success() {
            let said = String::from_utf8_lossy(&read.stderr);
            return Some(format!("the shell cannot read it: {}", said.trim()));
        }
    }
    let program = command.program()?;
    // The trial's own directory is not there yet, and the menagerie comes with the lab.
    if program.contains("{dir}") || program == "menagerie" {
        return None;
    }
    let program = first.fill(program);
    let why = lab::is_missing(Path::new(&program))?;
    // The shell's own commands are in no directory.
    let known = || shell("-e", &["command -v -- \"$1\"", "sh", &program]);
    let of_shell = matches!(command, Command::Typed(_)) && !program.contains('/');
    let is_known = of_shell && known().is_ok_and(|known| known.status.success());
    (!is_known).then(|| format!("{why} ({INSTALL})"))
}

#[cfg(test)]
mod tests {
    use numaherd::exit;
    use numaherd_experiment::World;

    use super::*;

    fn checked(lines: &str) -> Result<()> {
        let head = "name = \"x\"\nabout = \"\"\nmachine = \"lab-4x2\"\n[[program]]\n";
        check(&Scenario::parse(&format!("{head}{lines}"), "x.toml", World::Lab).unwrap())
    }

    #[test]
    fn what_can_run_is_left_alone() {
        for there in [
            "command = \"sleep 1\"",
            "command = [\"/bin/sh\", \"-c\", \"no-such-program\"]",
            "command = \"menagerie chase --rounds 1\"",
            "command = \"cd / && LANG=C ls | wc -l\"\nname = \"p\"",
            "command = \"for i in 1 2; do ls; done\"",
            "command = \"{dir}/built-by-its-setup\"\nname = \"p\"\nsetup = \"true\"\nuser = \"root\"",
        ] {
            checked(there).unwrap_or_else(|error| panic!("{there}: {error}"));
        }
    }

    #[test]
    fn who_lacks_a_program_or_user_learns_what_installs_those_of_the_tree() {
        for lines in [
            "command = \"no-such-server\"",
            "command = \"ls\"\nuser = \"no-such-user\"",
        ] {
            let told = checked(lines).unwrap_err().to_string();
            assert!(told.ends_with(&format!("({INSTALL})")), "{told}");
        }
    }

    #[test]
    fn what_was_typed_has_no_line() {
        let text = "name = \"x\"\nabout = \"\"\nmachine = \"lab-4x2\"\n[[program]]\ncommand = [\"no-such\"]\n";
        let typed = Scenario::parse(text, ON_COMMAND_LINE, World::Lab).unwrap();
        let told = check(&typed).unwrap_err().to_string();
        assert!(
            told.starts_with("cannot find the program no-such"),
            "{told}"
        );
    }

    #[test]
    fn what_cannot_run_is_refused_before_a_guest_boots() {
        for (lines, told) in [
            (
                "command = \"no-such-server --port 1\"",
                "x.toml:5: program[0].command: cannot find the program no-such-server here",
            ),
            (
                "command = [\"no-such-server\"]",
                "x.toml:5: program[0].command: cannot find the program no-such-server here",
            ),
            (
                "command = \"/etc/passwd\"",
                "x.toml:5: program[0].command: /etc/passwd is not executable: chmod +x",
            ),
            (
                "command = \"echo 'a\"",
                "x.toml:5: program[0].command: the shell cannot read it: ",
            ),
            (
                "command = \"ls\"\nsetup = \"no-such-loader\"",
                "x.toml:6: program[0].setup: cannot find",
            ),
            (
                "command = \"ls\"\nuser = \"no-such-user\"",
                "x.toml:6: program[0].user: ",
            ),
            (
                "command = \"A=1 exec no-such-server\"",
                "x.toml:5: program[0].command: cannot find the program no-such-server here",
            ),
        ] {
            let refused = checked(lines).unwrap_err();
            assert_eq!(exit::of(&refused), Some(Exit::Usage), "{refused}");
            assert!(refused.to_string().starts_with(told), "{refused}");
        }
    }
}
