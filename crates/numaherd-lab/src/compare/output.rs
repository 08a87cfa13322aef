//! What a program prints: read as it comes, so that the program never waits for its reader. Only the end is kept,
//! however much it prints; each line is searched for patterns.

use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use numaherd_experiment::in_lab::Pattern;
use numaherd_lab_launcher::Stream;

/// How much of each stream is kept, in bytes (chosen here: the menagerie's results are far shorter).
const KEPT: usize = 1 << 20;
/// How much of a line is looked at, in bytes.
const LONGEST_LINE: usize = 64 << 10;
/// How many lines, and how much of each, a message shows.
const SHOWN_LINES: usize = 5;
const SHOWN_CHARACTERS: usize = 200;

/// What is looked for in each line.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Says that the program is ready.
    pub ready: Option<Pattern>,
    /// Holds the figure.
    pub figure: Option<Pattern>,
}

/// What a program has printed so far.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    is_ready: bool,
    figure: Option<String>,
}

impl Heard {
    /// Reads a stream to its end in a thread of its own.
    pub fn listen(
        &self,
        stream: Stream,
        mut pipe: impl Read + Send + 'static,
        wanted: Wanted,
    ) -> JoinHandle<()> {
        let heard = self.clone();
        thread::spawn(move || {
            let (mut piece, mut line) = (vec![0; 64 << 10], Vec::new());
            // A pipe that cannot be read has ended.
            while let Ok(length @ 1..) = pipe.read(&mut piece) {
                heard.take(stream, &piece[..length], &mut line, &wanted);
            }
            heard.take(stream, b"\n", &mut line, &wanted);
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is half done under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, stream: Stream, bytes: &[u8], line: &mut Vec<u8>, wanted: &Wanted) {
        let mut state = self.state();
        let kept = match stream {
            Stream::Stdout => &mut state.stdout,
            Stream::Stderr => &mut state.stderr,
        };
        kept.extend_from_slice(bytes);
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
        if wanted.ready.is_none() && wanted.figure.is_none() {
            return;
        }
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LONGEST_LINE.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                state.look_at(String::from_utf8_lossy(line).trim_end(), wanted);
                line.clear();
            }
        }
    }

    /// Whether it has printed the line that says so.
    pub fn is_ready(&self) -> bool {
        self.state().is_ready
    }

    /// The last figure that it has printed.
    pub fn figure(&self) -> Option<String> {
        self.state().figure.clone()
    }

    /// The end of its standard output.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.state().stdout).into_owned()
    }

    /// The end of the output for a message, with the errors if there are any.
    pub fn ending(&self) -> String {
        let state = self.state();
        let last = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let lines = text.lines().rev().filter(|line| !line.trim().is_empty());
            let mut lines: Vec<String> = lines.take(SHOWN_LINES).map(shown).collect();
            lines.reverse();
            lines.join("\n")
        };
        let (errors, output) = (last(&state.stderr), last(&state.stdout));
        match (errors.is_empty(), output.is_empty()) {
            (true, true) => "it printed nothing".to_owned(),
            (true, false) => format!("it printed:\n{output}"),
            (false, _) => format!("it printed:\n{errors}"),
        }
    }
}

fn shown(line: &str) -> String {
    let line = line.trim_end().chars().take(SHOWN_CHARACTERS);
    line.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl State {
    fn look_at(&mut self, line: &str, wanted: &Wanted) {
        if let Some(Pattern(ready)) = &wanted.ready {
            self.is_ready |= ready.is_match(line);
        }
        let found = wanted.figure.as_ref().and_then(|of| of.0.captures(line));
        if let Some(found) = found {
            let figure = found.get(1).or_else(|| found.get(0));
            self.figure = figure.map(|found| found.as_str().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn pattern(text: &str) -> Option<Pattern> {
        Pattern::new(text).ok()
    }

    fn heard(pipe: impl Read + Send + 'static, wanted: Wanted) -> Heard {
        let heard = Heard::default();
        heard.listen(Stream::Stdout, pipe, wanted).join().unwrap();
        heard
    }

    #[test]
    fn the_last_match_is_the_figure_wherever_lines_are_cut() {
        let wanted = Wanted {
            ready: pattern("^up$"),
            figure: pattern("rate: ([0-9.]+)"),
        };
        // One byte at a time.
        let text = &b"up\nrate: 1.5\nrate: 2.25"[..];
        let pieces = text.iter().map(std::slice::from_ref);
        let pipe = pieces.fold(
            Box::new(io::empty()) as Box<dyn Read + Send>,
            |pipe, byte| Box::new(pipe.chain(byte)),
        );
        let heard = heard(pipe, wanted);
        assert!(heard.is_ready());
        assert_eq!(heard.figure().as_deref(), Some("2.25"));
        assert_eq!(heard.ending(), "it printed:\nup\nrate: 1.5\nrate: 2.25");
    }

    #[test]
    fn of_a_flood_the_end_is_kept_and_its_lines_are_looked_at() {
        let flood = io::repeat(b'x').take(64 << 20);
        let pipe = flood.chain(&b"\nrate: 7\n"[..]);
        let wanted = Wanted {
            ready: pattern("x"),
            figure: pattern("[0-9]+"),
        };
        let heard = heard(pipe, wanted);
        assert!(heard.is_ready());
        assert_eq!(heard.figure().as_deref(), Some("7"));
        assert!(heard.stdout().len() <= 2 * KEPT);
        let shown = heard.ending();
        assert!(
            shown.ends_with("\nrate: 7") && shown.len() < 1000,
            "{shown}"
        );
    }

    #[test]
    fn errors_are_shown_before_output() {
        let heard = Heard::default();
        let listen = |stream, text: &'static [u8]| {
            heard
                .listen(stream, text, Wanted::default())
                .join()
                .unwrap();
        };
        assert_eq!(heard.ending(), "it printed nothing");
        listen(Stream::Stdout, b"all is well\n");
        assert_eq!(heard.ending(), "it printed:\nall is well");
        listen(Stream::Stderr, b"no\tsuch file\n\n");
        assert_eq!(heard.ending(), "it printed:\nno such file");
    }
}
