//! Under the name `numad`, the program answers as numad does, so that libvirt's `placement='auto'` and scripts that
//! call numad keep working: `-w` prints nodes and exits with 0, as does `-V`; `-h` and every mistake exit with 1.
//! Asked to start, change or end numad's daemon, it says that there is none.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use itertools::Itertools as _;

use crate::cli::{AsNumad, NUMAD_USAGE};
use crate::exit::{Exit, ended};
use crate::{advise, print};

/// Whether the program was started under numad's name.
pub fn is_called(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let name = arguments.next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new("numad")))
}

/// Answers as numad does.
///
/// # Errors
/// The request is for numad's daemon or cannot be read, or the machine cannot be read.
pub fn answer(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let asked = AsNumad::read(arguments).map_err(|error| {
        ended(
            Exit::Failure,
            format!("{error}; `numad -h` lists the options"),
        )
    })?;
    match asked {
        AsNumad::Version => {
            let version = env!("CARGO_PKG_VERSION");
            print::out(&format!("numad version: numaherd {version}\n"))?;
        }
        AsNumad::Usage => {
            print::aside(NUMAD_USAGE);
            return Ok(ExitCode::FAILURE);
        }
        AsNumad::Advise(root, want, ignored) => {
            if !ignored.is_empty() {
                print::say(format!(
                    "{} ignored: it is for numad's daemon",
                    listed(&ignored)
                ));
            }
            advise::advise(&AsNumad::advise(root, want))?;
        }
        AsNumad::End => print::say(
            "no numad daemon runs that could end; `systemctl stop numaherd` ends numaherd's service",
        ),
        AsNumad::Daemon(options) => {
            let with = match options.is_empty() {
                true => String::new(),
                false => format!(" ({} not applied)", listed(&options)),
            };
            let message = format!(
                "numad's daemon is not part of numaherd{with}: `systemctl enable --now numaherd` keeps this \
                 machine placed, and /etc/numaherd/numaherd.toml configures it"
            );
            return Err(ended(Exit::Failure, message));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `-i and -S are`.
fn listed(options: &[&str]) -> String {
    let names = options
        .iter()
        .map(|letter| format!("-{letter}"))
        .format(", ");
    let are = if options.len() == 1 { "is" } else { "are" };
    format!("{names} {are}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_of_the_name_counts() {
        let called = |name: &str| is_called([name, "-w"].map(OsString::from).into_iter());
        for name in ["numad", "/usr/bin/numad", "./numad"] {
            assert!(called(name), "{name}");
        }
        for name in ["numaherd", "/opt/numad/numaherd", "", "numad2"] {
            assert!(!called(name), "{name}");
        }
        assert!(!is_called(std::iter::empty()));
    }
}
