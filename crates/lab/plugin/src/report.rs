// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's final report: counters of each vCPU and of each thread, from the shared memory and the thread tables.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Value, json};

use crate::layout::Counter;
use crate::shared::Shared;
use crate::sync::lock;
use crate::vcpu::{Threads, Work};

/// The report: the counters in the shared memory, the threads' work, and the members of `rest`.
pub fn report(shared: &Shared, threads: &[Threads], rest: Map<String, Value>) -> Value {
    let layout = shared.layout();
    let vcpus: Vec<Value> = (0..layout.vcpus as usize)
        .map(|vcpu| {
            let fetches = (0..layout.nodes as usize)
                .map(|node| shared.node_fetches(vcpu, node).load(Relaxed))
                .collect::<Vec<u64>>();
            let mut counters = json!({ "fetches_from": fetches });
            for &counter in Counter::ALL {
                counters[counter.name()] = shared.counter(vcpu, counter).load(Relaxed).into();
            }
            counters
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
