//! `numaherd ctl`: asks a herd that serves, over its control socket.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_herd::ledger::Watched;
use numaherd_show::live::Live;
use serde_json::Value;

use crate::cli::Ctl;
use crate::exit::{Exit, OrExit, ended};
use crate::serve::protocol::{self, Request};
use crate::serve::usual_socket;

/// How long an answer may take: longer than the herd waits for its loop.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest answer that is read, in bytes: the state of a machine of 100,000 processes.
const MOST_ANSWER: u64 = 256 << 20;

/// Asks, and prints the answer.
///
/// # Errors
/// No herd serves there, this user may not ask it, or it refuses: the message says why.
pub fn ctl(options: &Ctl) -> Result<()> {
    let path = options.socket.clone().unwrap_or_else(usual_socket);
    let from = ask(&path, &options.ask, PATIENCE).map_err(|error| unanswered(&path, &error))?;
    match options.ask {
        Request::Watch => watch(from, &path, options.json),
        _ => print(&answer(from, &path)?, options.json),
    }
}

/// Sends a request to the herd at a socket; returns the stream to read the answer from.
///
/// # Errors
/// No herd listens there, this user may not use it, or the request is not taken.
pub fn ask(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> io::Result<BufReader<UnixStream>> {
    put(UnixStream::connect(path)?, request, patience)
}

fn put(
    mut stream: UnixStream,
    request: &Request,
    patience: Duration,
) -> io::Result<BufReader<UnixStream>> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    match stream.write_all(protocol::line(request).as_bytes()) {
        // A herd that refuses this user says why and hangs up without waiting for the request; its answer can still
        // be read.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(BufReader::new(stream))
}

fn unanswered(path: &Path, error: &io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ended!(
            Failure,
            "no herd serves at {shown}: `numaherd serve` starts one (or `systemctl start \
                 numaherd`); --socket names another place"
        ),
        ErrorKind::PermissionDenied => ended!(
            Permission,
            "this user may not control the herd at {shown}: only root, the user who started it, \
                 and its --control-group may"
        ),
        _ => ended!(Failure, "cannot reach the herd at {shown}: {error}"),
    }
}

/// Reads the answer, an object that reports success.
fn answer(from: impl BufRead, path: &Path) -> Result<Value> {
    let mut line = Vec::new();
    let read = from.take(MOST_ANSWER).read_until(b'\n', &mut line);
    read.with_context(|| format!("the herd at {} does not answer", path.display()))?;
    if line.is_empty() {
        let why = format!(
            "{} closed the connection: the herd is ending, or it is not a herd",
            path.display()
        );
        return Err(ended(Exit::Failure, why));
    }
    let answer: Value = serde_json::from_slice(&line)
        .with_context(|| format!("the program at {} is not a numaherd herd", path.display()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(why) => Err(ended!(Failure, "the herd refused: {why}")),
        None => Ok(answer),
    }
}

fn print(answer: &Value, as_json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    let word = |key: &str| answer.get(key).and_then(Value::as_str);
    if as_json {
        serde_json::to_writer_pretty(&mut out, answer)?;
        writeln!(out)?;
    } else if let Some(text) = word("text") {
        write!(out, "{text}")?;
    } else if let Some(done) = word("done") {
        writeln!(out, "{done}")?;
    }
    out.flush().context("cannot print")
}

/// Shows what happens until one side ends.
fn watch(mut from: BufReader<UnixStream>, path: &Path, as_json: bool) -> Result<()> {
    // An answer that does not begin like a ledger is a refusal.
    let first = from
        .fill_buf()
        .with_context(|| format!("cannot watch {}", path.display()))?;
    if !first.starts_with(b"{\"numaherd-ledger\"") {
        answer(from, path)?;
        return Ok(());
    }
    let mut out = io::stdout().lock();
    // From here on, lines come only when something happens.
    from.get_ref().set_read_timeout(None)?;
    if as_json {
        io::copy(&mut from, &mut out).context("cannot go on watching")?;
        return Ok(());
    }
    let (mut watched, _) = Watched::begin(from, path).or_exit(Exit::Failure)?;
    let mut live = Live::new();
    loop {
        match watched.next() {
            Ok(Some(line)) => {
                if let Some(text) = live.line(&Arc::new(line)) {
                    writeln!(out, "{text}")
                        .and_then(|()| out.flush())
                        .context("cannot print")?;
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => return Err(ended(Exit::Failure, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_although_nobody_takes_the_request() {
        let (mut herd, own) = UnixStream::pair().unwrap();
        let refusal = protocol::refused("uid 7 may not ask this herd");
        herd.write_all(refusal.as_bytes()).unwrap();
        drop(herd);
        let from = put(own, &Request::Version, PATIENCE).unwrap();
        let why = answer(from, Path::new("herd")).unwrap_err().to_string();
        assert_eq!(why, "the herd refused: uid 7 may not ask this herd");
    }
}
