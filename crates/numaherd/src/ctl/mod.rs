//! `numaherd ctl`: asks a herd that serves, over its control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_herd::ledger::Watched;
use numaherd_show::live::Live;
use serde_json::Value;

use crate::cli::{Ask, Ctl};
use crate::exit::{Exit, ended};
use crate::serve::protocol::{self, Request};
use crate::serve::usual_socket;

/// How long an answer may take: longer than the herd waits for its loop.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest answer that is taken, in bytes: the state of a machine of 100,000 processes.
const MOST_ANSWER: u64 = 256 << 20;

/// Asks, and prints the answer.
///
/// # Errors
/// Nobody serves there, it may not be asked, or it refuses: the message says why.
pub fn ctl(options: &Ctl) -> Result<()> {
    let path = options.socket.clone().unwrap_or_else(usual_socket);
    let request = match &options.ask {
        Ask::Status => Request::Status,
        Ask::Pause { give_back } => Request::Pause {
            give_back: *give_back,
        },
        Ask::Resume => Request::Resume,
        Ask::Policy { name } => Request::Policy { name: name.clone() },
        Ask::Reload => Request::Reload,
        Ask::Watch => Request::Watch,
    };
    let mut stream = connect(&path)?;
    let asked = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| stream.write_all(protocol::line(&request).as_bytes()));
    asked.with_context(|| format!("cannot ask the herd at {}", path.display()))?;
    let from = BufReader::new(stream);
    if request == Request::Watch {
        watch(from, &path, options.json)
    } else {
        let answer = answer(from, &path)?;
        print(&answer, options.json)
    }
}

fn connect(path: &Path) -> Result<UnixStream> {
    UnixStream::connect(path).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => ended(
                Exit::Failure,
                format!(
                    "no herd serves at {shown}: `numaherd serve` starts one (or `systemctl start \
                     numaherd`); --socket names another place"
                ),
            ),
            std::io::ErrorKind::PermissionDenied => ended(
                Exit::Permission,
                format!(
                    "this user may not control the herd at {shown}: only root, the user who started it, and its --control-group may"
                ),
            ),
            _ => ended(Exit::Failure, format!("cannot reach the herd at {shown}: {error}")),
        }
    })
}

/// The answer, an object that says that all is well.
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
        Some(why) => Err(ended(Exit::Failure, format!("the herd refused: {why}"))),
        None => Ok(answer),
    }
}

fn print(answer: &Value, as_json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
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
    // What does not begin as a ledger does is a refusal.
    let first = from
        .fill_buf()
        .with_context(|| format!("cannot watch {}", path.display()))?;
    if !first.starts_with(b"{\"numaherd-ledger\"") {
        answer(from, path)?;
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    // From here on it says something when something happens.
    from.get_ref().set_read_timeout(None)?;
    if as_json {
        std::io::copy(&mut from, &mut out).context("cannot go on watching")?;
        return Ok(());
    }
    let (mut watched, _) = Watched::begin(from, path).map_err(|e| ended(Exit::Failure, e))?;
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
