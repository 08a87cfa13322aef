//! Runs that the tests tell of, each made for one thing that can happen.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_herd::governor::{Stolen, Undone};
use numaherd_herd::ledger::{PagingTick, Placing};
use numaherd_herd::{CountSums, Guard, Summary, Totals};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{
    AffinityResult, Agent, Mapped, MemoryKinds, PageFailure, Plan, Process, Tag, Thread,
    VirtualCpu, VirtualMachine,
};

use crate::made::*;

/// The kernel places, and nobody minds.
pub fn nothing() -> Made {
    let mut made = Made::new("linux");
    for _ in 0..3 {
        made.second(
            vec![thread(100, 100, "chase", 0, 500, 40.0, 1.0)],
            vec![process(100, "chase", &[(0, 5_000)])],
        );
        made.placed(vec![], vec![]);
    }
    made.end(ended("linux"));
    made
}

/// A database's process reads buffers that it shares with others; they are spread in the third second.
pub fn buffers() -> Made {
    let mut made = Made::new("linux");
    for second in 1..=4 {
        let shared: &[(u32, u64)] = match second {
            1 | 2 => &[(0, 32_000)],
            _ => &[(0, 16_000), (1, 16_000)],
        };
        let all: &[(u32, u64)] = match second {
            1 | 2 => &[(0, 33_500), (1, 2_000)],
            _ => &[(0, 17_500), (1, 18_000)],
        };
        let mut postgres = process(100, "postgres", all);
        let mapped = |pages: &[(u32, u64)]| Mapped {
            pages: pages.iter().map(|&(node, n)| (NodeId(node), n)).collect(),
            again: true,
            ..Mapped::default()
        };
        if let Some(residency) = &mut postgres.residency {
            residency.kinds = Some(MemoryKinds {
                shared: mapped(shared),
                file: mapped(&[(0, 1_500)]),
            });
        }
        made.second(
            vec![thread(100, 100, "postgres", 2, 500, 40.0, 0.5)],
            vec![postgres],
        );
        made.placed(vec![], vec![]);
    }
    made.end(ended("linux"));
    made
}

const DEVIL: &str = "devil (41.0 lines per 1000 instructions); domain 2 on node 2 is to run 1 devil \
                     and 1 turtle";

/// A devil is moved to another node in the fourth second, its pages follow, and it gains; its
/// process has a thread that stays where it is.
pub fn faster() -> Made {
    let mut made = Made::new("dino");
    let seconds = |second: u64, made: &mut Made| {
        let moved = second > 4;
        let (cpu, speed, local) = match second {
            0..=4 => (0, 1_000, 1.0),
            5 => (4, 700, 0.1),
            6 => (4, 1_100, 0.6),
            _ => (5, 1_500, 0.98),
        };
        let mut devil = thread(101, 100, "chase", cpu, speed, 41.0, local);
        devil.assigned = moved.then_some(CpuId(4));
        let there = if moved { 250 * 40 } else { 0 };
        made.second(
            vec![thread(100, 100, "chase", 1, 1_000, 0.5, 1.0), devil],
            vec![process(100, "chase", &[(0, 20_000 - there), (2, there)])],
        );
    };
    for second in 1..=4 {
        seconds(second, &mut made);
        if second < 4 {
            made.placed(vec![], vec![]);
        }
    }
    made.placed(
        vec![
            placement(
                100,
                1,
                1,
                "dino: keep core",
                "turtle (0.5 lines per 1000 instructions)",
                "",
            ),
            placement(
                101,
                0,
                4,
                "dino: fill slots",
                DEVIL,
                "CPU 0: the layout wants a turtle there",
            ),
        ],
        vec![order(100, Some(1), "0-1"), order(101, Some(4), "4-5")],
    );
    for tick in 0..40 {
        let order = window(101, 100, 0x7f00_0000 + tick * 256, 256, 2);
        made.paging(
            10 * (tick + 1),
            PagingTick {
                samples: 12,
                remote: 9,
                outcomes: vec![page_outcome(&order, 250)],
                plan: vec![order],
                carried_out: true,
                ..PagingTick::default()
            },
        );
    }
    for second in 5..=10 {
        seconds(second, &mut made);
        made.placed(vec![], vec![]);
    }
    made.placed(
        vec![],
        vec![order(100, None, "0-7"), order(101, None, "0-7")],
    );
    made.end(Summary {
        totals: Totals {
            thread_moves: 1,
            pages_moved: 10_000,
            restored: Some(2),
            counted: CountSums {
                instructions: 22_800_000_000,
                lines: 530_000_000,
                local: 470_000_000,
                remote: 60_000_000,
                ..CountSums::default()
            },
            ..Totals::default()
        },
        ..ended("dino")
    });
    made
}

/// A move turns out to be for the worse and is undone.
pub fn slower_and_undone() -> Made {
    let mut made = Made::new("di-plain");
    let second = |made: &mut Made, cpu, speed, local| {
        made.second(
            vec![thread(300, 300, "stream", cpu, speed, 80.0, local)],
            vec![process(300, "stream", &[(0, 9_000)])],
        );
    };
    for _ in 0..3 {
        second(&mut made, 0, 900, 1.0);
    }
    made.placed(
        vec![placement(
            300,
            0,
            6,
            "di: deal by miss rate",
            "80.0 lines per 1000 instructions is rank 1 of 1, dealt to domain 3 on node 3",
            "",
        )],
        vec![order(300, Some(6), "6-7")],
    );
    for _ in 0..5 {
        second(&mut made, 6, 500, 0.0);
    }
    let why = "since its move to CPU 6 it runs 44 % fewer instructions per second of CPU time, and \
               all threads together run at 0.56 times their speed before";
    made.placing(
        Placing {
            affinities: vec![order(300, None, "0-7")],
            undone: vec![Undone {
                thread: thread_id(300),
                from: CpuId(6),
                to: None,
                why: why.to_owned(),
            }],
            carried_out: true,
            ..Placing::default()
        },
        vec![AffinityResult::Done],
    );
    made.notice(&format!("thread 300 (stream): {why}; undone"));
    for _ in 0..2 {
        second(&mut made, 1, 900, 1.0);
        made.placing(
            Placing {
                plan: Plan {
                    placements: vec![placement(
                        300,
                        1,
                        6,
                        "di: deal by miss rate",
                        "80.0 lines per 1000 instructions is rank 1 of 1, dealt to domain 3 on node 3",
                        "",
                    )],
                    pages: vec![],
                    ..Plan::default()
                },
                refusals: vec![refusal(
                    Some(0),
                    300,
                    Guard::Worse,
                    "its last move made it slower; it stays for 60 s",
                )],
                carried_out: true,
                ..Placing::default()
            },
            vec![],
        );
    }
    made.end(Summary {
        totals: Totals {
            thread_moves: 1,
            undone: 1,
            refusals: BTreeMap::from([(Guard::Worse, 2)]),
            ..Totals::default()
        },
        notices: vec![format!("thread 300 (stream): {why}; undone")],
        ..ended("di-plain")
    });
    made
}

/// Every guard refuses once.
pub fn refused_by_each_guard() -> Made {
    let mut made = Made::new("dino");
    made.second(
        vec![thread(400, 400, "mixed", 0, 1_000, 10.0, 1.0)],
        vec![process(400, "mixed", &[(0, 1_000)])],
    );
    let of_threads = [
        (
            Guard::UnknownThread,
            "thread 400 is not among the threads that were observed",
        ),
        (
            Guard::Duplicate,
            "it has been given a core in this interval already",
        ),
        (Guard::HandsOff, "it must be left alone: a kernel thread"),
        (
            Guard::ForeignAffinity,
            "it has an affinity of its own (0-1)",
        ),
        (Guard::UnknownCpu, "the machine has no CPU 9"),
        (Guard::Offline, "CPU 3 is offline"),
        (Guard::Cpuset, "CPU 4 is beyond its cpuset (0-3)"),
        (Guard::Limits, "CPU 5 is beyond the CPUs that may be used"),
        (Guard::Unchanged, "CPU 4 is given to it already"),
        (
            Guard::Bounce,
            "it is frozen for 60 s because it went to and fro",
        ),
        (
            Guard::Worse,
            "its last move made it slower; it stays for 60 s",
        ),
        (Guard::Rate, "the limit is 128 thread moves per interval"),
        (
            Guard::Journal,
            "cannot write the journal: no space left on the device",
        ),
    ];
    let wish = |_| placement(400, 0, 4, "dino: fill slots", DEVIL, "");
    made.placing(
        Placing {
            plan: Plan {
                placements: of_threads.iter().map(wish).collect(),
                pages: vec![],
                ..Plan::default()
            },
            refusals: of_threads
                .iter()
                .enumerate()
                .map(|(entry, &(guard, why))| refusal(Some(entry), 400, guard, why))
                .collect(),
            carried_out: true,
            ..Placing::default()
        },
        vec![],
    );
    let of_pages = [
        (
            Guard::UnknownProcess,
            "process 400 is not among the processes that were observed",
        ),
        (Guard::UnknownNode, "node 2 has no memory or is offline"),
        (
            Guard::FullNode,
            "node 2 has 40 MiB free, of which 51 MiB are kept free, and 1 MiB would come",
        ),
        (Guard::Bandwidth, "page moves are limited to 1024 MiB/s"),
    ];
    made.paging(
        10,
        PagingTick {
            plan: of_pages
                .iter()
                .map(|_| window(400, 400, 0x1000, 256, 2))
                .collect(),
            refusals: of_pages
                .iter()
                .enumerate()
                .map(|(entry, &(guard, why))| refusal(Some(entry), 400, guard, why))
                .collect(),
            carried_out: true,
            ..PagingTick::default()
        },
    );
    // One that waited, and whose place a later one takes.
    let waits = |refusals| PagingTick {
        plan: vec![whole_set(400, 400, 2)],
        waiting: vec![0],
        refusals,
        carried_out: true,
        ..PagingTick::default()
    };
    made.paging(20, waits(vec![]));
    let why = "a later order for all pages of this process has come";
    made.paging(30, waits(vec![refusal(None, 400, Guard::Superseded, why)]));
    let guards = of_threads
        .iter()
        .chain(&of_pages)
        .map(|&(guard, _)| (guard, 1));
    made.end(Summary {
        totals: Totals {
            refusals: guards.chain([(Guard::Superseded, 1)]).collect(),
            ..Totals::default()
        },
        ..ended("dino")
    });
    made
}

/// The target node is full, some pages are shared, one order is stopped short; an order that waited
/// is carried out at last.
pub fn pages_fail() -> Made {
    let mut made = Made::new("dino+whole-set");
    let second = |made: &mut Made, there| {
        made.second_with_gaps(
            vec![thread(500, 500, "big", 2, 800, 60.0, 0.2)],
            vec![process(500, "big", &[(0, 8_000 - there), (1, there)])],
            vec!["where the pages of process 501 are: it had ended".to_owned()],
        );
    };
    second(&mut made, 0);
    let order = whole_set(500, 500, 1);
    made.paging(
        10,
        PagingTick {
            plan: vec![order.clone()],
            waiting: vec![0],
            carried_out: true,
            ..PagingTick::default()
        },
    );
    made.paging(
        60,
        PagingTick {
            outcomes: vec![numaherd_world::PageOutcome {
                failed: BTreeMap::from([(PageFailure::Shared, 20), (PageFailure::NodeFull, 5_000)]),
                not_tried: 980,
                error: Some(
                    "moving pages of process 500 to node 1: node 1 is full; free memory there"
                        .to_owned(),
                ),
                ..page_outcome(&order, 2_000)
            }],
            carried_out: true,
            ..PagingTick::default()
        },
    );
    second(&mut made, 2_000);
    made.end(Summary {
        totals: Totals {
            pages_moved: 2_000,
            pages_failed: BTreeMap::from([
                (PageFailure::Shared, 20),
                (PageFailure::NodeFull, 5_000),
            ]),
            ..Totals::default()
        },
        ..ended("dino+whole-set")
    });
    made
}

/// Nothing is carried out.
pub fn dry() -> Made {
    let mut made = Made::in_dry_run("dino");
    for _ in 0..2 {
        made.second(
            vec![thread(600, 600, "chase", 0, 900, 41.0, 1.0)],
            vec![process(600, "chase", &[(0, 1_000)])],
        );
    }
    made.placing(
        Placing {
            plan: Plan {
                placements: vec![placement(600, 0, 4, "dino: fill slots", DEVIL, "")],
                pages: vec![],
                ..Plan::default()
            },
            affinities: vec![order(600, Some(4), "4-5")],
            ..Placing::default()
        },
        vec![],
    );
    made.paging(
        10,
        PagingTick {
            plan: vec![window(600, 600, 0x1000, 256, 2)],
            ordered_pages: 256,
            ..PagingTick::default()
        },
    );
    made.end(Summary {
        totals: Totals {
            planned_thread_moves: 1,
            planned_pages: 256,
            ..Totals::default()
        },
        dry_run: true,
        ..ended("dino")
    });
    made
}

/// Orders that the kernel does not carry out as ordered.
pub fn refused_by_the_kernel() -> Made {
    let mut made = Made::new("random");
    let threads = (0..3)
        .map(|n| thread(700 + n, 700, "crew", n, 900, 1.0, 1.0))
        .collect();
    made.second(threads, vec![process(700, "crew", &[(0, 1_000)])]);
    let drawn = "drawn from the 8 CPUs it may have";
    made.placing(
        Placing {
            plan: Plan {
                placements: (0..3)
                    .map(|n| placement(700 + n, n, 6, "random: draw once", drawn, ""))
                    .collect(),
                pages: vec![],
                ..Plan::default()
            },
            affinities: (0..3).map(|n| order(700 + n, Some(6), "6-7")).collect(),
            carried_out: true,
            ..Placing::default()
        },
        vec![
            AffinityResult::Gone,
            AffinityResult::Narrowed { now: cpus("7") },
            AffinityResult::Failed {
                error:
                    "sched_setaffinity of thread 702: operation not permitted; CAP_SYS_NICE helps"
                        .to_owned(),
            },
        ],
    );
    made.end(Summary {
        totals: Totals {
            thread_moves: 1,
            ..Totals::default()
        },
        ..ended("random")
    });
    made
}

/// A vCPU of a virtual machine, with its uncore penalty in cycles.
fn vcpu(index: u32, cpu: u32, penalty: u64) -> Thread {
    let name = format!("CPU {index}/KVM");
    let mut vcpu = thread(701 + index, 700, &name, cpu, 1_000, 20.0, 1.0);
    let counts = vcpu.counts.as_mut().unwrap();
    counts.uncore_requests = Some(1_000_000);
    counts.uncore_busy_cycles = Some(1_000_000 * penalty);
    vcpu.assigned = Some(CpuId(cpu));
    vcpu.tag = Some(if index < 3 { Tag::Agent } else { Tag::Clear });
    vcpu
}

/// The process of a virtual machine of four vCPUs.
fn guest() -> Process {
    let vcpu = |index| VirtualCpu {
        index,
        thread: thread_id(701 + index),
    };
    let machine = VirtualMachine {
        name: "guest-a".to_owned(),
        vcpus: (0..4).map(vcpu).collect(),
        memory_bytes: Some(4 << 30),
        source: "its monitor".to_owned(),
        agent: Agent::Telling,
        fixed_memory: None,
    };
    Process {
        machine: Some(Arc::new(machine)),
        ..process(700, "qemu-system-x86", &[(0, 800_000), (1, 200_000)])
    }
}

/// A virtual machine: one vCPU goes to the node with the least penalty, another is given to an idle
/// one.
pub fn virtual_machine() -> Made {
    let mut made = Made::new("brm");
    let seen = |cpus: [u32; 4], penalty, made: &mut Made| {
        let vcpus = (0..).zip(cpus).map(|(n, cpu)| {
            let mut vcpu = vcpu(n, cpu, penalty);
            vcpu.wait_share = if cpu == 2 && n == 2 { 0.5 } else { 0.0 };
            vcpu
        });
        made.second(vcpus.collect(), vec![guest()]);
    };
    seen([0, 2, 2, 3], 30, &mut made);
    made.placed(vec![], vec![]);
    seen([0, 2, 2, 3], 31, &mut made);
    made.placed(
        vec![placement(
            702,
            2,
            1,
            "brm: bias random pick",
            "17 of 100, and the least penalty is 24.0 on node 0",
            "",
        )],
        vec![order(702, Some(1), "0-1")],
    );
    seen([0, 1, 2, 3], 24, &mut made);
    let why = "it waited 50 % of the time; threads wait for 1.0 more CPUs than 2-3, to which it is \
               held, have, while of 4-5 2.0 CPUs are free and no thread waits that the kernel \
               could take there";
    let stolen = Stolen {
        thread: thread_id(703),
        from: CpuId(2),
        to: CpuId(4),
        why: why.to_owned(),
    };
    made.placing(
        Placing {
            affinities: vec![order(703, Some(4), "4-5")],
            stolen: vec![stolen],
            carried_out: true,
            ..Placing::default()
        },
        vec![AffinityResult::Done],
    );
    seen([0, 1, 4, 3], 22, &mut made);
    made.placed(vec![], vec![]);
    made.end(Summary {
        totals: Totals {
            thread_moves: 2,
            stolen: 1,
            planned_thread_moves: 2,
            counted: CountSums {
                uncore_busy_cycles: 428_000_000,
                uncore_requests: 16_000_000,
                ..CountSums::default()
            },
            ..Totals::default()
        },
        ..ended("brm")
    });
    made
}

/// What is told of each run, under its name.
pub fn titled(runs: &[(&str, Made)], told: impl Fn(&Made) -> String) -> Vec<String> {
    let titled = |(name, made): &(&str, Made)| format!("## {name}\n{}", told(made));
    runs.iter().map(titled).collect()
}

/// Runs of a herd on a machine of its own, without those of a trial.
pub fn all() -> Vec<Made> {
    vec![
        nothing(),
        faster(),
        slower_and_undone(),
        refused_by_each_guard(),
        pages_fail(),
        dry(),
        refused_by_the_kernel(),
        virtual_machine(),
    ]
}
