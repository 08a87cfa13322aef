//! The command line of numad(8), as the program reads it when it is started under that name.
//!
//! Source: `numad -h` and the observed behaviour of numad 20150602 of Debian: it reads only the digits of `-w 4x` or
//! `-w 4:5MiB`, a further `-w` replaces the one before, and 0 CPUs are permitted.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command, value_parser};

use super::{Advise, Wanted};

/// numad's options with a value, beside `-w`.
const WITH_VALUE: [&str; 13] = [
    "C", "H", "i", "K", "l", "m", "p", "r", "R", "S", "t", "u", "x",
];

/// What is asked of numad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsNumad {
    /// `-V`: its version.
    Version,
    /// `-h`: how it is called.
    Usage,
    /// `-w`: nodes for a new program, with the daemon's options that came along.
    Advise(PathBuf, Wanted, Vec<&'static str>),
    /// `-i 0`: the daemon is to end.
    End,
    /// The daemon is to start, or to change: with these options.
    Daemon(Vec<&'static str>),
}

impl AsNumad {
    /// Reads the arguments, of which the first is the name.
    ///
    /// # Errors
    /// A message: numad has no such option, or the value cannot be read.
    pub fn read(arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut matches = definition()
            .try_get_matches_from(arguments)
            .map_err(|error| {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                first.trim_start_matches("error: ").to_owned()
            })?;
        if matches.get_flag("V") {
            return Ok(Self::Version);
        }
        if matches.get_flag("h") {
            return Ok(Self::Usage);
        }
        let given = |letter: &&str| matches.value_source(letter) == Some(ValueSource::CommandLine);
        let all = ["d", "v"].into_iter().chain(WITH_VALUE);
        let given: Vec<&str> = all.filter(given).collect();
        if let Some(want) = matches.remove_one::<Wanted>("w") {
            let root = matches.remove_one::<PathBuf>("root");
            let root = root.unwrap_or_else(|| PathBuf::from("/"));
            return Ok(Self::Advise(root, want, given));
        }
        let interval = matches.remove_one::<String>("i");
        Ok(match interval.as_deref() {
            Some("0") => Self::End,
            _ => Self::Daemon(given),
        })
    }

    /// The equivalent options of `advise`.
    pub fn advise(root: PathBuf, want: Wanted) -> Advise {
        Advise { want, root }
    }
}

/// The parts of `numad -h` that matter here.
pub const USAGE: &str = "\
Usage: numad <options> ...
-h to print this usage info
-V to show version info
-w <CPUs>[:<MBs>] for NUMA node suggestions
numad's other options are for its daemon, which numaherd's service replaces: see systemctl status numaherd
";

fn definition() -> Command {
    let option = |letter: &'static str| Arg::new(letter).short(letter.chars().next());
    let flag = |letter| option(letter).action(ArgAction::SetTrue);
    let value = |letter| option(letter).allow_hyphen_values(true);
    Command::new("numad")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .args(["d", "h", "v", "V"].map(flag))
        .args(WITH_VALUE.map(value))
        .arg(value("w").value_parser(wanted))
        // For tests: the machine below another directory.
        .arg(
            Arg::new("root")
                .long("root")
                .value_parser(value_parser!(PathBuf)),
        )
}

/// Reads `4` or `4:2048`. Like numad, it ignores what follows the digits of either.
fn wanted(text: &str) -> Result<Wanted, String> {
    let number = |text: &str| -> Option<u64> {
        let text = text.trim_start();
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text.find(|letter: char| !letter.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse().ok()
    };
    let (cpus, mib) = text.split_once(':').unwrap_or((text, "0"));
    match (number(cpus), number(mib)) {
        (Some(cpus), Some(mib)) => Ok(Wanted { cpus, mib }),
        _ => Err("write CPUs, or CPUs and MB, such as 4 or 4:2048".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Result<AsNumad, String> {
        AsNumad::read(line.split(' ').map(OsString::from))
    }

    #[test]
    fn what_numad_takes_is_taken_and_what_it_refuses_is_refused() {
        let taken = [
            ("4", 4, 0),
            ("16:65536", 16, 65536),
            ("0", 0, 0),
            ("4x", 4, 0),
            ("+4", 4, 0),
            ("4:5MiB", 4, 5),
            ("4:5:6", 4, 5),
        ];
        for (text, cpus, mib) in taken {
            assert_eq!(wanted(text), Ok(Wanted { cpus, mib }), "{text}");
        }
        for refused in ["", "x", "-1", ":5", "4:", "4:x"] {
            assert!(wanted(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn one_thing_is_asked_at_a_time() {
        assert_eq!(read("numad -w 2 -V"), Ok(AsNumad::Version));
        assert_eq!(read("numad -h"), Ok(AsNumad::Usage));
        assert_eq!(read("numad -i 0"), Ok(AsNumad::End));
        assert_eq!(
            read("numad -i 15 -S 0"),
            Ok(AsNumad::Daemon(vec!["i", "S"]))
        );
        assert_eq!(read("numad"), Ok(AsNumad::Daemon(vec![])));
        let want = Wanted { cpus: 3, mib: 0 };
        let root = PathBuf::from("/");
        let asked = AsNumad::Advise(root, want, vec!["d", "C"]);
        assert_eq!(read("numad -w 1 -C 0 -dw 3"), Ok(asked));
        for refused in ["numad -W 2", "numad -w 2 more", "numad -w", "numad -w x"] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", cpus in 0u64..1 << 40, mib in 0u64..1 << 40) {
            let _ = wanted(&text);
            prop_assert_eq!(wanted(&format!("{cpus}:{mib}")), Ok(Wanted { cpus, mib }));
        }
    }
}
