//! A herd that is asked by timetable, and what it recorded.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use numaherd_herd::control::pair;
use numaherd_herd::ledger::Controlled;
use numaherd_herd::{Change, Herd, Line, Record, Request, Requests, Settings, Summary};
use numaherd_policy::Policy;

use crate::fake::{Fake, machine, thread};

static GO: AtomicBool = AtomicBool::new(false);

/// What is asked in which interval.
pub type Timetable = Vec<(u64, Request)>;

/// Two threads on node 0 of two nodes of four CPUs, seen for eight intervals.
pub fn fake() -> Fake {
    let topology = machine(2, 4);
    let threads = (1..=2).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads);
    world.ends_after = 8;
    world
}

/// A world that is asked by timetable, with the other end.
pub fn asked(mut world: Fake, timetable: Timetable) -> (Fake, Requests) {
    let (control, requests) = pair();
    let mut timetable = timetable.into_iter().peekable();
    world = world.scripted(move |interval, _| {
        while let Some((_, request)) = timetable.next_if(|(at, _)| *at == interval) {
            control.named("the test").tell(request).unwrap();
        }
    });
    (world, requests)
}

pub fn change(policy: Option<Policy>, settings: Option<Settings>) -> Request {
    Request::Change(Box::new(Change {
        policy: policy.map(Into::into),
        settings,
        why: "the test wants it".to_owned(),
    }))
}

pub struct Ran {
    pub lines: Vec<Line>,
    pub summary: Summary,
}

/// Runs a herd, and returns what was recorded.
pub fn ran(herd: Herd<'_>) -> Ran {
    let (tell, lines) = channel();
    let herd = herd.watched(move |line| tell.send(line.clone()).unwrap());
    let summary = herd.run(&GO).unwrap();
    let lines = lines.into_iter().collect();
    Ran { lines, summary }
}

impl Ran {
    pub fn controlled(&self) -> Vec<&Controlled> {
        self.lines
            .iter()
            .filter_map(|line| match &line.record {
                Record::Control(controlled) => Some(controlled),
                _ => None,
            })
            .collect()
    }

    pub fn refusals(&self) -> Vec<&str> {
        let controlled = self.controlled().into_iter();
        controlled.filter_map(|c| c.refused.as_deref()).collect()
    }

    /// The kinds of records, in order, shortened.
    pub fn kinds(&self) -> String {
        let kind = |line: &Line| match &line.record {
            Record::Start(_) => "start",
            Record::Snapshot(_) => "snapshot",
            Record::Losses(_) => "losses",
            Record::Placing(_) => "placing",
            Record::Outcome(_) => "outcome",
            Record::Paging(_) => "paging",
            Record::Notice(_) => "notice",
            Record::Control(_) => "CONTROL",
            Record::Trial(_) => "trial",
            Record::End(_) => "end",
            Record::LedgerEnded { .. } => "ledger-ended",
            Record::Unknown => "unknown",
        };
        self.lines.iter().map(kind).collect::<Vec<_>>().join(" ")
    }

    pub fn times_ms(&self) -> Vec<u64> {
        let of = |line: &Line| match &line.record {
            Record::Snapshot(snapshot) => Some(snapshot.time_ns / 1_000_000),
            _ => None,
        };
        self.lines.iter().filter_map(of).collect()
    }
}
