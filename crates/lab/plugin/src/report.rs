// SPDX-License-Identifier: GPL-2.0-or-later
//! What the plugin says at the end, or when a `REPORT` NOP asks: counters of each vCPU and of each
//! thread. Drawn from the shared memory and the thread tables, so any thread may ask; a vCPU that
//! runs just then is up to a quantum behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Value, json};

use crate::layout::Counter;
use crate::shared::Shared;
use crate::sync::lock;
use crate::vcpu::{Threads, Work};

/// Counters of one vCPU, then its fetches from each node.
type Figures = Vec<u64>;

/// All counters as they are in the shared memory now.
pub fn figures(shared: &Shared) -> Vec<Figures> {
    let layout = shared.layout();
    let of = |vcpu| {
        let counters = Counter::ALL
            .iter()
            .map(|&counter| shared.counter(vcpu, counter));
        let nodes = (0..layout.nodes as usize).map(|node| shared.node_fetches(vcpu, node));
        counters
            .chain(nodes)
            .map(|word| word.load(Relaxed))
            .collect()
    };
    (0..layout.vcpus as usize).map(of).collect()
}

/// The report: figures since `baseline`, work of the threads since their tables were emptied, and
/// whatever `rest` adds.
pub fn report(
    shared: &Shared,
    baseline: &[Figures],
    threads: &[Threads],
    rest: Map<String, Value>,
) -> Value {
    let since = |now: &Figures, then: Option<&Figures>| -> Figures {
        let then = then.map_or(&[][..], Vec::as_slice);
        let before = then.iter().copied().chain(std::iter::repeat(0));
        now.iter()
            .zip(before)
            .map(|(now, then)| now.wrapping_sub(then))
            .collect()
    };
    let vcpus: Vec<Value> = figures(shared)
        .iter()
        .enumerate()
        .map(|(vcpu, now)| {
            let figures = since(now, baseline.get(vcpu));
            let (counters, nodes) = figures.split_at(Counter::ALL.len());
            let mut vcpu = json!({ "fetches_from": nodes });
            for (counter, &value) in Counter::ALL.iter().zip(counters) {
                vcpu[counter.name()] = value.into();
            }
            vcpu
        })
        .collect();
    let mut all = BTreeMap::<(u32, u32), Work>::new();
    for table in threads {
        for (&thread, &work) in lock(table).iter() {
            let sum = all.entry(thread).or_default();
            sum.add(Work::default(), work);
        }
    }
    let threads: Vec<Value> = all
        .iter()
        .map(|(&(tid, tgid), work)| {
            let mut thread = json!({ "tid": tid, "tgid": tgid });
            for (name, figure) in Work::NAMES.iter().zip(work.0) {
                thread[name] = figure.into();
            }
            thread
        })
        .collect();
    let mut report = Map::new();
    report.insert("vcpus".to_owned(), vcpus.into());
    report.insert("threads".to_owned(), threads.into());
    report.extend(rest);
    Value::Object(report)
}

/// The report for a person: one line for each vCPU and each thread that fetched anything.
pub fn text(report: &Value) -> String {
    let mut out = String::from("numaherd-lab-plugin: report\n");
    for (name, value) in report.as_object().into_iter().flatten() {
        let Some(list) = value.as_array() else {
            let _ = writeln!(out, "  {name} {value}");
            continue;
        };
        for (number, entry) in list.iter().enumerate() {
            let _ = write!(out, "  {name}[{number}]");
            for (field, value) in entry.as_object().into_iter().flatten() {
                let _ = write!(out, " {field} {value}");
            }
            out.push('\n');
        }
    }
    out
}
