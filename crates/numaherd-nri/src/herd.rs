//! The herd's control socket: asks it to read its configuration again.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// How long to wait for an answer: longer than the herd waits for its loop.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most of an answer that is read, in bytes.
const MOST_ANSWER: u64 = 1 << 20;

/// The result of asking the herd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The herd follows the file.
    Done,
    /// The herd refuses, for this reason, and continues as before.
    Refused(String),
    /// Nobody answers, for this reason. A herd that starts later reads the file by itself.
    Nobody(String),
}

/// Asks the herd that listens there to read its configuration again.
pub fn reload(socket: &Path) -> Asked {
    let answer = match ask(socket) {
        Ok(answer) => answer,
        Err(error) => return Asked::Nobody(error.to_string()),
    };
    let Ok(answer) = serde_json::from_slice::<Value>(&answer) else {
        return Asked::Nobody("what answers is no herd".to_owned());
    };
    match (answer["ok"].as_bool(), answer["error"].as_str()) {
        (Some(true), _) => Asked::Done,
        (_, Some(why)) => Asked::Refused(why.to_owned()),
        _ => Asked::Nobody("what answers is no herd".to_owned()),
    }
}

fn ask(socket: &Path) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"{\"do\":\"reload\"}\n")?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(MOST_ANSWER)).read_until(b'\n', &mut answer)?;
    Ok(answer)
}
