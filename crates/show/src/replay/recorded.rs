//! Which policies a recording can be replayed with. It is reported at the recording's end, while another can still be
//! made.

use numaherd_herd::replay::Wants;
use numaherd_world::{Signal, SignalReport, SignalState};
use serde::Serialize;

use crate::run::content::is_single_accesses;
use crate::run::{Content, RunModel};
use crate::words::{counted, entry, indented, listed, paragraph, short, stopped, time};

/// The results of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// Intervals.
    pub intervals: u64,
    /// Length in ns of the world's time.
    pub duration_ns: u64,
    /// Size of the ledger in bytes.
    pub bytes: u64,
    /// What it holds.
    pub content: Content,
    /// Every policy, in the order in which people see them.
    pub policies: Vec<Replayable>,
    /// Signals that some policy lacks, and why.
    pub missing: Vec<Lacking>,
}

/// Whether a policy can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replayable {
    /// Its name.
    pub policy: String,
    /// Signals that its placement lacks; empty if its threads can be replayed.
    pub lacks: Vec<String>,
    /// Signals that its paging needs and that no ledger holds; empty if its pages can be replayed.
    pub pages_lack: Vec<String>,
}

/// A signal that is not in the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lacking {
    /// Its name.
    pub signal: String,
    /// Why, one sentence without its full stop.
    pub why: String,
    /// What would help, if anything is known.
    pub remedy: Option<String>,
}

impl Recorded {
    /// The results for this run, whose ledger has `bytes` bytes, on a machine with these signals.
    pub fn of(run: &RunModel, bytes: u64, wants: &[Wants], signals: &[SignalReport]) -> Self {
        let content = run.more.content;
        let mut missing: Vec<Lacking> = Vec::new();
        let mut policies = Vec::new();
        for wants in wants {
            for signal in content.lacks(wants) {
                let name = signal.to_string();
                if missing.iter().all(|lacking| lacking.signal != name) {
                    missing.push(lacking(signal, signals));
                }
            }
            policies.push(Replayable {
                policy: wants.policy.clone(),
                lacks: content.lacks_by_name(wants),
                pages_lack: wants.paging.iter().map(Signal::to_string).collect(),
            });
        }
        Self {
            intervals: run.totals.intervals,
            duration_ns: run.totals.duration_ns,
            bytes,
            content,
            policies,
            missing,
        }
    }
}

fn lacking(signal: Signal, signals: &[SignalReport]) -> Lacking {
    let state = signals.iter().find(|report| report.signal == signal);
    let (why, remedy) = match state.map(|report| &report.state) {
        _ if is_single_accesses(signal) => ("a ledger does not contain single accesses", None),
        Some(SignalState::Missing { reason, remedy }) => (&reason[..], Some(&remedy[..])),
        Some(SignalState::Measured { .. }) => (
            "no thread showed any during the recording",
            Some("record for longer, or for more threads, without --for-policies"),
        ),
        None => ("this kind of machine does not have this signal", None),
    };
    Lacking {
        signal: signal.to_string(),
        why: why.to_owned(),
        remedy: remedy.map(str::to_owned),
    }
}

/// The results of a recording, for people.
pub fn recorded(recorded: &Recorded) -> String {
    let megabytes = recorded.bytes as f64 / 1e6;
    let size = match recorded.bytes {
        0..1_000_000 => format!("{} kB", short(recorded.bytes as f64 / 1e3)),
        _ => format!("{} MB", short(megabytes)),
    };
    let hours = recorded.duration_ns as f64 / 3.6e12;
    let rate = match hours > 0.0 {
        true => format!(", {} MB an hour", short(megabytes / hours)),
        false => String::new(),
    };
    let mut text = paragraph(format!(
        "Recorded {} ({}): {size}{rate}. Nothing was decided and nothing was changed.",
        time(recorded.duration_ns),
        counted(recorded.intervals, "interval"),
    ));
    let names = |kept: &dyn Fn(&&Replayable) -> bool| -> Vec<&str> {
        let kept = recorded.policies.iter().filter(|policy| kept(policy));
        kept.map(|policy| &policy.policy[..]).collect()
    };
    let whole = names(&|policy| policy.lacks.is_empty() && policy.pages_lack.is_empty());
    let threads = names(&|policy| policy.lacks.is_empty() && !policy.pages_lack.is_empty());
    text += "It can be replayed with\n";
    if !whole.is_empty() {
        text += &indented(2, stopped(&listed(&whole)));
    }
    if !threads.is_empty() {
        text += &indented(
            2,
            format!(
                "For threads only: {}; their paging needs single accesses, which a ledger does not contain.",
                listed(&threads)
            ),
        );
    }
    let lacking = recorded.policies.iter().filter(|p| !p.lacks.is_empty());
    for (at, policy) in lacking.enumerate() {
        if at == 0 {
            text += "It cannot with\n";
        }
        let lacks = format!("no {}", policy.lacks.join(", no "));
        let lacks = lacks.replace("no which", "not known which");
        text += &entry(2, &policy.policy, 21, &stopped(&lacks));
    }
    for lacking in &recorded.missing {
        let mut said = format!("No {}: {}", lacking.signal, stopped(&lacking.why));
        if let Some(remedy) = &lacking.remedy {
            said += &format!(" Remedy: {}", stopped(remedy));
        }
        text += &paragraph(said);
    }
    text
}
