//! Why a file is refused: one error for every reader.
//!
//! Each message is complete in itself (no `source` chain), so that it reads the same however a
//! program prints it.

use std::fmt;
use std::path::PathBuf;

/// The most findings of one file that a message lists.
const MOST_LISTED: usize = 20;

/// Why a file cannot be read, or is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is no such file.
    #[error("cannot read {path}: there is no such file", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// This user may not read the file.
    #[error("cannot read {path}: permission denied; run as root or as its owner", path = path.display())]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// There is something else under that name.
    #[error("cannot read {path}: it is {kind}, not a file", path = path.display())]
    NotAFile {
        /// What was to be read.
        path: PathBuf,
        /// What it is: `a directory`.
        kind: &'static str,
    },
    /// The operating system refuses to open or read the file.
    #[error("cannot read {path}: {why}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        why: String,
    },
    /// The file is larger than any honest one.
    #[error("{path} is larger than {limit} bytes, which no such file is; nothing was read", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// The file is not text.
    #[error("cannot read {path}: byte {at} is not UTF-8 text", path = path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The first byte that is not text, from 0.
        at: usize,
    },
    /// The file can be read and is wrong. At least one finding.
    #[error("{}", Listed(findings))]
    Wrong {
        /// What is wrong, in the order of the file.
        findings: Vec<Finding>,
    },
    /// A `KEY=VALUE` of a command line is not a setting.
    #[error("cannot set {text:?}: {why}")]
    Set {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl FileError {
    /// The findings of a file that is wrong; empty for a file that cannot be read.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Wrong { findings } => findings,
            _ => &[],
        }
    }
}

/// One thing that is wrong in a file, and where: `my.toml:7: shape.nodes: must be 1 or more`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, as messages call it.
    pub file: String,
    /// The line, from 1; `None` for a default that conflicts with what the file says.
    pub line: Option<usize>,
    /// The key, dotted; empty where no key is to blame.
    pub key: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.why)
    }
}

/// One finding as it is; several as a list.
struct Listed<'f>(&'f [Finding]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(all) = self;
        let ([first, _, ..] | [first]) = all else {
            return Ok(());
        };
        if all.len() == 1 {
            return first.fmt(f);
        }
        write!(f, "{} is wrong in {} places:", first.file, all.len())?;
        for finding in all.iter().take(MOST_LISTED) {
            write!(f, "\n  {finding}")?;
        }
        if all.len() > MOST_LISTED {
            write!(f, "\n  and {} more", all.len() - MOST_LISTED)?;
        }
        Ok(())
    }
}

/// The first line of a text from a file, for a message: at most 80 letters, none of them a control
/// character, so that a hostile file can neither fill nor confuse the screen.
pub fn shortened(text: &str) -> String {
    cut(text, 80)
}

/// The first line of a text, up to `most` letters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default();
    let plain = |letter: char| match letter.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    };
    let mut short: String = line.chars().take(most).map(plain).collect();
    if line.chars().nth(most).is_some() || line.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_findings_are_a_list_that_ends() {
        let finding = |line| Finding {
            file: "a.toml".to_owned(),
            line: Some(line),
            key: "x".to_owned(),
            why: "unknown key".to_owned(),
        };
        let told = |lines| FileError::Wrong {
            findings: (1..=lines).map(finding).collect(),
        };
        assert_eq!(told(1).to_string(), "a.toml:1: x: unknown key");
        assert_eq!(
            told(2).to_string(),
            "a.toml is wrong in 2 places:\n  a.toml:1: x: unknown key\n  a.toml:2: x: unknown key"
        );
        let many = told(50).to_string();
        assert_eq!(many.lines().count(), 22);
        assert!(many.ends_with("\n  and 30 more"));
    }

    #[test]
    fn a_text_is_shortened_to_a_line_that_a_screen_can_show() {
        assert_eq!(shortened(" a b \n"), "a b");
        assert_eq!(shortened("a\nb"), "a…");
        assert_eq!(shortened("a\u{7}b"), "a\u{fffd}b");
        let long = shortened(&"x".repeat(1000));
        assert_eq!(long.chars().count(), 81);
    }
}
