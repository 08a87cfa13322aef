//! A run's report: one JSON object for programs, a table for people. The README describes the
//! JSON's fields; `schema` rises when one of them changes its meaning or is removed.

use crate::kernels::{KernelReport, Verdict};
use crate::micro;
use crate::sys::LINE;
use crate::threads::Outcome;
use crate::workload::{Cost, Detail};
use numaherd_quantity::{counted, noun};
use serde::Serialize;
use std::fmt::Write;

/// A run's result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this form.
    pub schema: u32,
    /// The program's version.
    pub version: &'static str,
    /// The workload.
    pub kind: String,
    /// A description of one operation.
    pub operation: &'static str,
    /// This process's id.
    pub pid: u32,
    /// Whether every thread reached its length. If not, a signal ended the run.
    pub complete: bool,
    /// Time from the first thread's start to the last one's end.
    pub seconds: f64,
    /// Operations of all threads.
    pub operations: u64,
    /// Operations per second of all threads.
    pub rate: f64,
    /// The cost of an operation, if it is constant and the processor is x86-64.
    pub expected: Option<Cost>,
    /// The command line, with defaults filled in.
    pub parameters: serde_json::Value,
    /// The result of a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelReport>,
    /// The result of the micro-benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro: Option<micro::MicroReport>,
    /// One entry per thread, in order.
    pub threads: Vec<Row>,
}

/// A thread's result.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The kernel's thread id.
    pub tid: u32,
    /// Operations done.
    pub operations: u64,
    /// Time taken.
    pub seconds: f64,
    /// Time for one operation; 0 if none was done.
    pub ns_per_operation: f64,
    /// Operations per second.
    pub rate: f64,
    /// How often the kernel moved it to another CPU, if the kernel reports that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// Figures of this workload only.
    #[serde(flatten)]
    pub detail: Detail,
}

impl Report {
    /// The report of the outcome of the workload `kind`. `operation` describes one operation, `cost` is its cost if
    /// that is constant, `parameters` is the command line.
    pub fn new(
        kind: impl Into<String>,
        operation: &'static str,
        cost: Option<Cost>,
        parameters: serde_json::Value,
        outcome: Outcome,
    ) -> Report {
        let operations = outcome.works.iter().map(|work| work.operations).sum();
        let threads = outcome
            .works
            .into_iter()
            .map(|work| {
                let (seconds, operations) = (work.seconds(), work.operations as f64);
                let rate = ratio(operations, seconds);
                let ns_per_operation = ratio(seconds * 1e9, operations);
                Row {
                    tid: work.tid,
                    operations: work.operations,
                    seconds,
                    ns_per_operation,
                    rate,
                    migrations: work.migrations,
                    detail: work.detail,
                }
            })
            .collect();
        Report {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            kind: kind.into(),
            operation,
            pid: std::process::id(),
            complete: outcome.complete,
            seconds: outcome.seconds,
            operations,
            rate: ratio(operations as f64, outcome.seconds),
            expected: cost.filter(|_| cfg!(target_arch = "x86_64")),
            parameters,
            kernel: None,
            micro: None,
            threads,
        }
    }

    /// Adds the bandwidth that follows from its rate to each thread of a stream, which moves
    /// `lines` lines in an operation.
    pub fn set_bandwidth(&mut self, lines: usize) {
        let lines = lines as f64;
        for row in &mut self.threads {
            row.detail = Detail::Stream {
                bytes_per_second: row.rate * lines * LINE as f64,
                ns_per_line: row.ns_per_operation / lines,
            };
        }
    }

    /// Whether the run computed a wrong result.
    pub fn has_failed(&self) -> bool {
        let kernel = self.kernel.as_ref();
        kernel.is_some_and(|told| told.verification.verdict == Verdict::Failed)
            || self.micro.is_some_and(|told| !told.is_right())
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let of_memory = self.parameters["working_set"]
            .as_u64()
            .map(|bytes| format!(", working set {}", numaherd_quantity::bytes(bytes)))
            .unwrap_or_default();
        let home = self.parameters["home"]
            .as_u64()
            .map(|node| format!(", home node {node}"))
            .unwrap_or_default();
        let threads = counted(self.threads.len(), "thread");
        let _ = writeln!(text, "{}: {threads}{of_memory}{home}", self.kind);
        if let Some(told) = &self.kernel {
            let class = self.parameters["class"].as_str().unwrap_or_default();
            let _ = writeln!(
                text,
                "class {class}: {}, {} iterations, {}\n{}",
                told.problem,
                told.iterations,
                numaherd_quantity::bytes(told.bytes),
                told.verification.text()
            );
        }
        if let Some(told) = &self.micro {
            let _ = writeln!(text, "{}", told.text());
        }
        if let Some(expected) = self.expected {
            let _ = writeln!(
                text,
                "expected: {:.2} instructions per {}, {:.1} lines per 1000 instructions",
                expected.instructions_per_operation,
                self.operation,
                expected.lines_per_1000_instructions
            );
        }
        let operations = noun(2_u32, self.operation);
        let each = format!("ns/{}", self.operation);
        let rate = format!("{operations}/s");
        let _ = writeln!(
            text,
            "{:>10} {operations:>16} {:>10} {each:>14} {rate:>16}",
            "thread", "seconds"
        );
        for row in &self.threads {
            let _ = write!(
                text,
                "{:>10} {:>16} {:>10.3} {:>14.2} {:>16.0}",
                row.tid, row.operations, row.seconds, row.ns_per_operation, row.rate
            );
            row.add_extras(&mut text);
        }
        let _ = writeln!(
            text,
            "{:>10} {:>16} {:>10.3} {:>14} {:>16.0}{}",
            "all",
            self.operations,
            self.seconds,
            "",
            self.rate,
            if self.complete {
                ""
            } else {
                "  ended early by a signal"
            }
        );
        text
    }
}

impl Row {
    /// Ends the thread's line with the figures of its workload.
    fn add_extras(&self, text: &mut String) {
        match &self.detail {
            Detail::None {} | Detail::Micro { .. } => text.push('\n'),
            Detail::Stream {
                bytes_per_second,
                ns_per_line,
            } => {
                let bandwidth = bytes_per_second / 1e9;
                let _ = writeln!(text, "  {bandwidth:.2} GB/s, {ns_per_line:.2} ns/line");
            }
            Detail::Pair {
                server_pid,
                server_tid,
                latency_ns,
            } => {
                let _ = writeln!(
                    text,
                    "  latency mean {:.2} us, p99 {:.2} us, server {server_pid}/{server_tid}",
                    latency_ns.mean / 1e3,
                    latency_ns.p99 as f64 / 1e3
                );
            }
            Detail::Phases { phases } => {
                text.push('\n');
                for phase in phases {
                    let _ = writeln!(
                        text,
                        "{:>10} {:>16} {:>10.3}   {} phases of {:.1} lines per 1000 instructions",
                        "",
                        phase.operations,
                        phase.seconds,
                        phase.phases,
                        phase.lines_per_1000_instructions
                    );
                }
            }
        }
    }
}

/// A ratio; 0 if the denominator is 0.
fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 {
        numerator / denominator
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::kernels::{Check, Verification};
    use crate::threads::Work;
    use crate::workload::PhaseTotal;
    use proptest::prelude::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn report(kind: &'static str, cost: Option<Cost>, details: Vec<Detail>) -> Report {
        let works = details
            .into_iter()
            .enumerate()
            .map(|(index, detail)| Work {
                tid: 100 + index as u32,
                detail,
                ..work(1_000_000 * (index as u64 + 1), 0.5)
            })
            .collect();
        let parameters = json!({ "working_set": 64 << 20, "home": 0, "threads": 2 });
        let outcome = Outcome {
            works,
            seconds: 0.625,
            complete: true,
        };
        let report = Report::new(kind, "line", cost, parameters, outcome);
        Report { pid: 99, ..report }
    }

    /// Work of `operations` operations in `seconds` seconds.
    fn work(operations: u64, seconds: f64) -> Work {
        let start = Instant::now();
        Work {
            tid: 1,
            operations,
            start,
            end: start + Duration::from_secs_f64(seconds),
            complete: true,
            migrations: None,
            detail: Detail::None {},
        }
    }

    const COST: Cost = Cost::new(20.0, 2.0);

    fn stream() -> Report {
        let mut report = report("stream", Some(COST), vec![Detail::None {}, Detail::None {}]);
        report.set_bandwidth(2);
        report
    }

    fn phases() -> Report {
        let phase = PhaseTotal {
            level: 20.0,
            lines_per_1000_instructions: 20.4,
            phases: 3,
            operations: 1_000_000,
            seconds: 0.5,
        };
        report(
            "phases",
            None,
            vec![Detail::Phases {
                phases: vec![phase],
            }],
        )
    }

    fn pair() -> Report {
        let latency_ns = Latencies {
            mean: 8200.5,
            p50: 8000,
            p99: 12_000,
            max: 40_000,
        };
        let detail = Detail::Pair {
            server_pid: 99,
            server_tid: 101,
            latency_ns,
        };
        report("pair", None, vec![detail])
    }

    fn json(report: &Report) -> String {
        serde_json::to_string_pretty(report).unwrap()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn json_of_a_stream() {
        insta::assert_snapshot!(json(&stream()));
    }

    #[test]
    fn json_of_phases() {
        insta::assert_snapshot!(json(&phases()));
    }

    #[test]
    fn json_of_a_pair() {
        insta::assert_snapshot!(json(&pair()));
    }

    /// The micro-benchmark with `wrong_words` words that hold a wrong sum.
    fn micro(wrong_words: u64) -> Report {
        let detail = Detail::Micro {
            added: 64_000,
            wrong_passes: 0,
        };
        let mut report = report("micro", None, vec![detail]);
        report.micro = Some(micro::MicroReport {
            mean_seconds: 0.5,
            entries: 65_536,
            shared_words: 64,
            wrong_words,
            wrong_passes: 0,
        });
        report
    }

    #[test]
    fn json_of_the_micro_benchmark() {
        insta::assert_snapshot!(json(&micro(0)));
    }

    #[test]
    fn a_lost_addition_is_a_failure() {
        assert!(!micro(0).has_failed());
        assert!(micro(1).has_failed());
        let heads = [0, 1].map(|wrong| {
            let table = micro(wrong).table();
            table.lines().take(3).collect::<Vec<_>>().join("\n")
        });
        insta::assert_snapshot!(heads.join("\n\n"), @r"
        micro: 1 thread, working set 64 MiB, home node 0
        65536 entries a thread, 64 shared words; mean run time 0.500 s
        verified: every list passed once a loop, no addition lost

        micro: 1 thread, working set 64 MiB, home node 0
        65536 entries a thread, 64 shared words; mean run time 0.500 s
        FAILED: 1 of 64 shared words hold a wrong sum, 0 ways through a list read wrong words
        ");
    }

    /// A kernel whose one result is `value` where the published one is 2.
    fn kernel(value: f64) -> Report {
        let check = Check::published("zeta", value, Some(2.0), 1e-8);
        let mut report = report("cg", None, vec![Detail::None {}]);
        report.parameters = json!({ "class": "W", "threads": 1 });
        report.kernel = Some(KernelReport {
            problem: "7000 rows".to_owned(),
            bytes: 7 << 20,
            iterations: 15,
            verification: Verification::new(vec![check], 15, 15),
        });
        report
    }

    #[test]
    fn json_of_a_kernel() {
        insta::assert_snapshot!(json(&kernel(2.0)));
    }

    #[test]
    fn a_kernel_that_computes_wrongly_has_failed() {
        assert!(!kernel(2.0).has_failed());
        assert!(kernel(2.1).has_failed());
        assert!(!stream().has_failed());
        let table = kernel(2.1).table();
        insta::assert_snapshot!(table.lines().take(3).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn tables() {
        let mut ended = pair();
        ended.complete = false;
        insta::assert_snapshot!(
            [stream(), phases(), ended]
                .map(|report| report.table())
                .concat()
        );
    }

    proptest! {
        #[test]
        fn rate_and_time_of_an_operation_are_one_figure(
            operations in 1u64..1 << 50, seconds in 1e-6f64..1e6
        ) {
            let works = vec![work(operations, seconds)];
            let outcome = Outcome { works, seconds, complete: true };
            let report = Report::new("chase", "hop", None, json!({}), outcome);
            let row = &report.threads[0];
            prop_assert!((row.rate * row.ns_per_operation / 1e9 - 1.0).abs() < 1e-9);
            prop_assert!((row.rate * row.seconds / operations as f64 - 1.0).abs() < 1e-9);
            prop_assert_eq!(report.operations, operations);
        }
    }

    #[test]
    fn nothing_done_is_no_rate() {
        let outcome = Outcome {
            works: vec![work(0, 0.0)],
            seconds: 0.0,
            complete: false,
        };
        let report = Report::new("chase", "hop", None, json!({}), outcome);
        assert_eq!(
            (report.rate, report.threads[0].ns_per_operation),
            (0.0, 0.0)
        );
    }
}
