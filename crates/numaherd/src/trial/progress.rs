//! Where a trial's counter of progress comes from: a command that prints it, a Prometheus endpoint, or what the
//! machine counts of the selected threads.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use hyper::StatusCode;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::http::{Address, Limits};

/// How long a command or an endpoint may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The limits of one request.
const LIMITS: Limits = Limits {
    time: PATIENCE,
    bytes: 64 << 20,
};

/// How much of what a command printed is shown.
const SHOWN: usize = 60;

/// Where the counter comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This shell command prints it.
    Command(String),
    /// An endpoint's text has it.
    Prometheus(Endpoint),
    /// What the machine counts: CPU time, or instructions where it counts these.
    World,
}

/// A metric of a Prometheus endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    address: Address,
    metric: String,
    /// As written within the braces; a sample must have all of them.
    labels: Vec<String>,
}

impl Endpoint {
    /// Parses an address and a metric: `http://localhost:9100/metrics`, `requests_total{method="GET"}`.
    ///
    /// # Errors
    /// The address or the metric is invalid.
    pub fn parse(url: &str, metric: &str) -> Result<Self> {
        let address = Address::parse(url).map_err(|why| {
            anyhow!(
                "--prometheus: {why}; for anything else, use --progress with a command such as curl"
            )
        })?;
        let wrong = || {
            anyhow!("--prometheus: {metric:?} is no metric; write NAME or NAME{{LABEL=\"VALUE\"}}")
        };
        let (name, labels) = sample(metric)
            .filter(|(_, _, rest)| rest.is_empty())
            .map(|(name, labels, _)| (name, labels))
            .ok_or_else(wrong)?;
        Ok(Self {
            address,
            metric: name.to_owned(),
            labels: labels.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The sum of all samples of the metric.
    fn value(&self, text: &str) -> Result<f64> {
        let mut sum = None;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (name, labels, rest) in lines.filter_map(sample) {
            let is_meant = name == self.metric
                && self
                    .labels
                    .iter()
                    .all(|label| labels.contains(&label.as_str()));
            if !is_meant {
                continue;
            }
            // A time may follow the value.
            let value = rest
                .split_whitespace()
                .next()
                .and_then(|value| value.parse::<f64>().ok());
            let Some(value) = value.filter(|value| value.is_finite()) else {
                let (url, value) = (&self.address.url, rest.trim());
                bail!("{url}: {name} is {value:?}, which is no number");
            };
            sum = Some(sum.unwrap_or(0.0) + value);
        }
        sum.with_context(|| format!("{} has no metric {}", self.address.url, self.named()))
    }

    fn named(&self) -> String {
        match self.labels.as_slice() {
            [] => self.metric.clone(),
            labels => format!("{}{{{}}}", self.metric, labels.join(",")),
        }
    }

    /// The endpoint's text.
    fn text(&self) -> Result<String> {
        let path = match self.address.path.as_str() {
            "" => "/metrics",
            path => path,
        };
        let answer = self.address.get(path, LIMITS)?;
        match answer.status {
            StatusCode::OK => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
            status => bail!("cannot read {}: it answered {status}", self.address.url),
        }
    }
}

/// A line of Prometheus's text format as name, labels as they are written, and what follows: a value, and maybe a time.
fn sample(line: &str) -> Option<(&str, Vec<&str>, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let (name, mut rest) = line.split_at(line.find(|c| !is_name(c)).unwrap_or(line.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        let (mut quoted, mut escaped, mut begin) = (false, false, 0);
        let end = inside.char_indices().find_map(|(at, c)| {
            let ends = !quoted && matches!(c, ',' | '}');
            if ends {
                labels.push(inside[begin..at].trim());
                begin = at + 1;
            }
            quoted ^= c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            (ends && c == '}').then_some(at)
        })?;
        labels.retain(|label| !label.is_empty());
        rest = &inside[end + 1..];
    }
    Some((name, labels, rest))
}

impl Source {
    /// Reads a command or an endpoint; `None` for what the machine counts.
    ///
    /// # Errors
    /// A sentence with what was tried and why it failed.
    pub fn read(&self) -> Option<Result<f64>> {
        match self {
            Self::Command(command) => Some(printed(command)),
            Self::Prometheus(endpoint) => {
                Some(endpoint.text().and_then(|text| endpoint.value(&text)))
            }
            Self::World => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => write!(f, "what `{command}` prints"),
            Self::Prometheus(endpoint) => {
                write!(f, "{} of {}", endpoint.named(), endpoint.address.url)
            }
            Self::World => f.write_str("CPU time of the selected threads"),
        }
    }
}

/// The number that a command prints.
fn printed(command: &str) -> Result<f64> {
    let output = output(command).map_err(|why| anyhow!("--progress: `{command}` {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.trim();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said
            .trim()
            .lines()
            .last()
            .map(|line| format!(": {}", short(line)));
        let said = said.unwrap_or_default();
        bail!("--progress: `{command}` ended with {}{said}", output.status);
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.with_context(|| match text {
        "" => format!("--progress: `{command}` printed nothing; it has to print a number"),
        _ => {
            let text = short(text);
            format!("--progress: `{command}` printed {text:?}; it has to print a number and nothing else")
        }
    })
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Runs a shell command in a process group of its own, which a Ctrl-C for the trial does not reach.
fn output(command: &str) -> Result<Output> {
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| anyhow!("cannot be started: {error}"))?;
    let group = Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("progress".to_owned());
    let wait = move || {
        // The receiver may have given up.
        let _ = sender.send(child.wait_with_output());
    };
    thread
        .spawn(wait)
        .map_err(|error| anyhow!("cannot be waited for: {error}"))?;
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.map_err(|error| anyhow!("cannot be read: {error}")),
        Err(_) => {
            // It may have ended in between.
            let _ = kill_process_group(group, Signal::KILL);
            bail!("did not end within {} s", PATIENCE.as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP requests_total All requests.\n# TYPE requests_total counter\n\
        requests_total{method=\"GET\",path=\"/a b,}\\\"\"} 10 1700000000\n\
        requests_total{method=\"POST\",path=\"/\"} 5\n\
        requests_totals 99\nup 1\nodd NaN\nbig 1.5e9\n";

    fn value(metric: &str) -> std::result::Result<f64, String> {
        let endpoint = Endpoint::parse("http://localhost:9100", metric);
        let value = endpoint.and_then(|endpoint| endpoint.value(TEXT));
        value.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_metric_is_the_sum_of_its_samples_with_the_labels_that_are_named() {
        assert_eq!(value("requests_total"), Ok(15.0));
        assert_eq!(value("requests_total{method=\"GET\"}"), Ok(10.0));
        assert_eq!(
            value("requests_total{path=\"/\", method=\"POST\"}"),
            Ok(5.0)
        );
        assert_eq!(value("big"), Ok(1.5e9));
        assert_eq!(
            value("requests_total{method=\"PUT\"}"),
            Err("http://localhost:9100 has no metric requests_total{method=\"PUT\"}".to_owned())
        );
        assert_eq!(
            value("odd"),
            Err("http://localhost:9100: odd is \"NaN\", which is no number".to_owned())
        );
    }

    #[test]
    fn a_metric_is_a_name_with_labels() {
        for wrong in ["", "sum(a)", "a b", "a{b=\"c\"", "1a"] {
            let refused = Endpoint::parse("http://a", wrong).unwrap_err().to_string();
            assert!(
                refused.contains("is no metric; write NAME"),
                "{wrong}: {refused}"
            );
        }
    }

    #[test]
    fn a_command_prints_a_number_or_what_it_did_is_told() {
        assert_eq!(printed("echo 12.5").unwrap(), 12.5);
        let wrong = |command: &str| format!("{:#}", printed(command).unwrap_err());
        assert_eq!(
            wrong("echo OK 1"),
            "--progress: `echo OK 1` printed \"OK 1\"; it has to print a number and nothing else"
        );
        assert_eq!(
            wrong("true"),
            "--progress: `true` printed nothing; it has to print a number"
        );
        assert_eq!(
            wrong("echo inf"),
            "--progress: `echo inf` printed \"inf\"; it has to print a number and nothing else"
        );
        assert_eq!(
            wrong("echo no >&2; exit 3"),
            "--progress: `echo no >&2; exit 3` ended with exit status: 3: no"
        );
    }
}
