//! A daemon for a test, ended with it; and how it is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_numaherd");

/// How long anything may take on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Daemon {
    child: Child,
    looked_at: Child,
    address: String,
    control: PathBuf,
    directory: Option<TempDir>,
    _stderr: BufReader<ChildStderr>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Options of a daemon that decides nothing and looks at one process.
fn command(directory: &Path, pid: u32) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["serve", "--dry-run", "--policy", "linux", "--pid"])
        .arg(pid.to_string())
        .env("XDG_CONFIG_HOME", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

impl Daemon {
    pub fn start(more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), more)
    }

    pub fn start_in(directory: TempDir, more: &[&str]) -> Self {
        let looked_at = Command::new("sleep").arg("3600").spawn().unwrap();
        let control = directory.path().join("control.sock");
        let http = format!("unix:{}", directory.path().join("http.sock").display());
        let mut child = command(directory.path(), looked_at.id())
            .args(["--listen", "127.0.0.1:0", "--listen", &http, "--control"])
            .arg(&control)
            .args(more)
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut address = None;
        let mut said = String::new();
        while address.is_none() {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            let at = line.trim().strip_prefix("numaherd: serving at http://");
            address = at.map(|at| at.trim_end_matches('/').to_owned());
            said += &line;
        }
        Self {
            child,
            looked_at,
            address: address.unwrap(),
            control,
            directory: Some(directory),
            _stderr: stderr,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn control(&self) -> &Path {
        &self.control
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// What is answered to these bytes.
    pub fn ask(&self, request: &[u8]) -> Answer {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        answer(&stream, request)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).as_bytes())
    }

    pub fn get_unix(&self, path: &str) -> Answer {
        let stream = UnixStream::connect(self.control.with_file_name("http.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        answer(&stream, format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes())
    }

    pub fn ctl(&self, words: &[&str]) -> String {
        let (out, error, code) = self.ctl_ended(words);
        assert!(code == Some(0), "{words:?}: {error}");
        out
    }

    pub fn ctl_fails(&self, words: &[&str]) -> String {
        let (out, error, code) = self.ctl_ended(words);
        assert!(code == Some(1), "{words:?}: {out}{error}");
        error
    }

    fn ctl_ended(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let socket = self.control.to_str().unwrap();
        let words: Vec<&str> = ["--socket", socket]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        ctl(&words)
    }

    /// Waits until the status has something.
    pub fn await_state(&self, key: &str, value: &Value) {
        self.await_that(|status| status[key] == *value);
    }

    pub fn await_snapshot(&self) {
        self.await_state("is_complete", &Value::Bool(true));
    }

    /// Asks until something holds of the status; how it is then.
    pub fn await_that(&self, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = json(&self.get("/status").body)["status"].take();
            if holds(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{status}");
            std::thread::yield_now();
        }
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() << 10
    }

    /// Ends it as a service manager does.
    pub fn stop(mut self) -> TempDir {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.directory.take().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn into_directory(mut self) -> TempDir {
        self.directory.take().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in [&mut self.child, &mut self.looked_at] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Why a daemon that must not begin does not.
pub fn refused(more: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(directory.path(), std::process::id());
    if !more.contains(&"--control") {
        command
            .arg("--control")
            .arg(directory.path().join("control.sock"));
    }
    let output = command.args(more).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// What `numaherd ctl` prints, says on standard error, and ends with.
pub fn ctl(words: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(PROGRAM)
        .arg("ctl")
        .args(words)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code(),
    )
}

fn answer<S>(stream: &S, request: &[u8]) -> Answer
where
    for<'s> &'s S: Read + Write,
{
    let (mut from, mut to) = (stream, stream);
    // Whoever is refused early is not read to the end.
    let _ = to.write_all(request);
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let code = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let headers = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Answer {
        code: code.unwrap_or(0),
        headers: headers.collect(),
        body: body.to_owned(),
    }
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
