//! Ledgers built record by record (the feature `ledger`).

use std::path::Path;
use std::sync::Arc;

use numaherd_herd::ledger::{Placing, Start, Writer};
use numaherd_herd::{Line, Record, Settings};
use numaherd_topology::Topology;
use numaherd_world::{AffinityOutcome, AffinityResult, Outcome, Snapshot};

/// The start of a policy's run: with the default settings, on a world with a pager.
pub fn start(topology: &Topology, policy: &str) -> Start {
    Start {
        topology: topology.clone(),
        signals: Vec::new(),
        settings: Settings::default(),
        policy: policy.to_owned(),
        seed: 0,
        pager: true,
        paused: false,
    }
}

/// The first line of a run.
pub fn first_line(record: Record) -> Line {
    Line {
        sequence: 0,
        time_ns: 0,
        record,
    }
}

/// A ledger that grows.
#[derive(Debug)]
pub struct MadeLedger {
    /// Its lines so far.
    pub lines: Vec<Line>,
    /// The time of the records that are added next.
    pub time_ns: u64,
}

impl MadeLedger {
    /// A ledger whose run begins like this.
    pub fn begun(start: Start) -> Self {
        Self {
            lines: vec![first_line(Record::Start(start))],
            time_ns: 0,
        }
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record) {
        self.lines.push(Line {
            sequence: self.lines.len() as u64,
            time_ns: self.time_ns,
            record,
        });
    }

    /// Adds a snapshot, whose time becomes the present.
    pub fn saw(&mut self, snapshot: Snapshot) {
        self.time_ns = snapshot.time_ns;
        self.add(Record::Snapshot(snapshot));
    }

    /// Adds a placing and, if there are any, the results of its orders, one each.
    pub fn placed(&mut self, placing: Placing, results: Vec<AffinityResult>) {
        let orders = placing.affinities.iter().zip(results);
        let affinities: Vec<AffinityOutcome> = orders
            .map(|(order, result)| AffinityOutcome {
                thread: order.thread,
                result,
            })
            .collect();
        self.add(Record::Placing(placing));
        if !affinities.is_empty() {
            let pages = Vec::new();
            self.add(Record::Outcome(Outcome { affinities, pages }));
        }
    }

    /// Adds a placing whose orders were all carried out.
    pub fn obeyed(&mut self, placing: Placing) {
        let results = vec![AffinityResult::Done; placing.affinities.len()];
        let carried_out = true;
        self.placed(
            Placing {
                carried_out,
                ..placing
            },
            results,
        );
    }

    /// The lines in the form that readers take.
    pub fn shared(&self) -> impl Iterator<Item = Arc<Line>> {
        self.lines.iter().cloned().map(Arc::new)
    }

    /// Writes it to a file of at most `most_bytes` bytes, with a start time at the end of 2023.
    pub fn write(&self, path: &Path, most_bytes: u64) {
        let begun = Some(1_700_000_000_000);
        let mut writer = Writer::create(path, "numaherd 0.1.0", begun, most_bytes)
            .expect("a folder that can be written");
        for line in &self.lines {
            writer.write(line.clone()).expect("room on the disk");
        }
        writer.flush().expect("room on the disk");
    }
}
