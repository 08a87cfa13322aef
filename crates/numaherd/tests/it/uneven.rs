//! Machines whose nodes differ: memory without CPUs, CPUs without memory, large and small nodes at all
//! distances. Every policy herds threads and pages on each of them, on the model or, where it needs single
//! accesses, on a trace; and every view shows what came of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use numaherd_experiment::{ExperimentError, OnModel, OnTrace, Ran, Settings, Trial, World};
use numaherd_herd::ledger::Reader;
use numaherd_herd::{Ending, Record};
use numaherd_model::{Hardware, Job, Library, Until};
use numaherd_policy::registry;
use numaherd_testing::traces::shared_pages;
use numaherd_topology::{Machine, NodeId, Topology};
use numaherd_trace::Trace;
use numaherd_trace::world::Hardware as Traced;
use numaherd_world::{PageOrder, Snapshot};

use crate::program::{assert_code, numaherd, out};

/// The preset, and the same nodes with their parts dealt otherwise: domains and MiB of each node.
fn machines() -> Vec<Machine> {
    const UNEVEN: &str = include_str!("../../../../data/machines/lab-uneven.toml");
    let with = |name: &str, domains: [u32; 4], mib: [u64; 4]| {
        let text = UNEVEN
            .replace("lab-uneven", name)
            .replace("[2, 1, 0, 1]", &format!("{domains:?}"))
            .replace("[1024, 0, 1024, 512]", &format!("{mib:?}"));
        Machine::parse(&text, Path::new(name)).unwrap()
    };
    vec![
        Machine::preset("lab-uneven").unwrap(),
        with("memory-first", [0, 2, 1, 1], [2048, 512, 0, 1024]),
        with("cpus-first", [1, 3, 0, 0], [0, 1024, 1024, 2048]),
        with("one-memory", [1, 1, 1, 2], [0, 0, 4096, 0]),
        with("one-with-cpus", [0, 0, 0, 2], [1024, 512, 1024, 1024]),
    ]
}

/// More busy threads than CPUs on small nodes, with memory on each node that has some.
fn jobs(topology: &Topology) -> Vec<Job> {
    let memory: Vec<NodeId> = topology.memory_nodes().iter().collect();
    let programs = ["mcf", "povray", "milc", "lbm", "gamess", "soplex"];
    let homes = memory.iter().cycle();
    let job = |(name, &home): (&str, &NodeId)| {
        let mut program = Library::built_in().get(name).unwrap().as_ref().clone();
        program.footprint_bytes = 64 << 20;
        Job::new(program.into()).homed(home)
    };
    programs.into_iter().zip(homes).map(job).collect()
}

/// Herds with a policy, recorded in a ledger; whether it was on a trace.
fn herd(machine: &Machine, policy: &str, trace: &Trace, ledger: &Path) -> bool {
    let trial = Trial {
        ledger: Some(ledger.to_owned()),
        ..Trial::of(policy)
    };
    let hardware = Hardware::of(machine).unwrap();
    let jobs = jobs(hardware.topology());
    let on_model = OnModel {
        hardware: &hardware,
        jobs: &jobs,
        until: Until::Time(Duration::from_secs(4)),
        settings: &Settings::default(),
    };
    match on_model.run(&trial) {
        // Single accesses are not the model's, nor are random nodes.
        Ok(Ran { summary, .. }) if matches!(summary.ending, Ending::Failed { .. }) => {}
        Err(ExperimentError::Herd(_)) => {}
        Ok(_) => return false,
        Err(error) => panic!("{policy} on {}: {error}", machine.name),
    }
    let mut traced = Traced::of(machine).unwrap();
    // Small caches and TLBs for a small program.
    traced.config.llc.bytes = 128 << 10;
    traced
        .config
        .tlb
        .as_mut()
        .unwrap()
        .l2
        .as_mut()
        .unwrap()
        .entries = 128;
    let mut settings = Settings::as_published(World::Trace);
    settings.trace.loops = 4;
    // Scans for hint faults, too, before it is over.
    settings.trace.scan_period_ms = 1;
    let on_trace = OnTrace {
        hardware: &traced,
        trace,
        settings: &settings,
        analysis: None,
    };
    let played = on_trace.run(&trial);
    played.unwrap_or_else(|error| panic!("{policy} on {}: {error}", machine.name));
    true
}

/// What a ledger shows that cannot be on the machine; and how many threads and pages were to move.
fn impossible(topology: &Topology, ledger: &Path) -> (Vec<String>, [usize; 2]) {
    let mut wrong = Vec::new();
    let mut wanted = [0, 0];
    let memory = topology.memory_nodes();
    let see = |snapshot: &Snapshot, wrong: &mut Vec<String>| {
        for thread in &snapshot.threads {
            if topology.cpu(thread.place()).is_none() {
                wrong.push(format!("{} is on CPU {}", thread.id, thread.place()));
            }
        }
        for process in &snapshot.processes {
            for &(node, pages) in process.residency.iter().flat_map(|there| &there.pages) {
                if pages > 0 && !memory.contains(node) {
                    wrong.push(format!(
                        "{pages} pages of {} are on node {node}",
                        process.id
                    ));
                }
            }
        }
    };
    let order = |order: &PageOrder, wrong: &mut Vec<String>| {
        if !memory.contains(order.to) {
            let (rule, to) = (&order.rule, order.to);
            wrong.push(format!(
                "{rule} wants pages on node {to}, which has no memory"
            ));
        }
    };
    let mut lines = Reader::open(ledger).unwrap();
    while let Some(line) = lines.next().transpose().unwrap() {
        match line.record {
            Record::Snapshot(snapshot) => see(&snapshot, &mut wrong),
            Record::Placing(placing) => {
                wanted[0] += placing.plan.placements.len();
                for placement in &placing.plan.placements {
                    if topology.cpu(placement.to).is_none() {
                        wrong.push(format!("{} wants CPU {}", placement.rule, placement.to));
                    }
                }
            }
            Record::Paging(tick) => {
                wanted[1] += tick.plan.len();
                tick.plan.iter().for_each(|it| order(it, &mut wrong));
            }
            Record::Notice(notice) => {
                let broken = notice.text.contains("no longer");
                wrong.extend(broken.then_some(notice.text));
            }
            _ => {}
        }
    }
    (wrong, wanted)
}

fn shown(arguments: &[&str]) -> String {
    let output = numaherd(arguments);
    assert_code(&output, 0);
    out(&output)
}

#[test]
fn every_policy_keeps_to_what_each_node_has() {
    let folder = tempfile::tempdir().unwrap();
    let trace = shared_pages(1, 8);
    let mut wanted: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut on_traces = 0;
    for machine in machines() {
        let topology = machine.topology().unwrap();
        for entry in registry::POLICIES.iter() {
            let ledger = folder
                .path()
                .join(format!("{}.{}", machine.name, entry.name));
            on_traces += usize::from(herd(&machine, entry.name, &trace, &ledger));
            let (wrong, moves) = impossible(&topology, &ledger);
            assert!(
                wrong.is_empty(),
                "{}: {}: {wrong:?}",
                machine.name,
                entry.name
            );
            let all = wanted.entry(entry.name).or_default();
            (all[0], all[1]) = (all[0] + moves[0], all[1] + moves[1]);
        }
    }
    assert!(on_traces > 0);
    // What does nothing breaks no rule either.
    for entry in registry::POLICIES.iter() {
        let [threads, pages] = wanted[entry.name];
        let places = entry.placement != "linux";
        let moves = entry.paging != "stay" || entry.name == "joint-oracle";
        assert_eq!(threads > 0, places, "{}: {threads} threads", entry.name);
        assert_eq!(pages > 0, moves, "{}: {pages} orders", entry.name);
    }
}

/// The ledger of a run on the preset, whose memory begins where there are no CPUs.
fn ledger(folder: &Path) -> PathBuf {
    let path = folder.join("ledger");
    herd(&machines()[0], "di-migrate", &shared_pages(1, 8), &path);
    path
}

#[test]
fn every_view_shows_nodes_without_cpus_and_without_memory() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let ledger = ledger.to_str().unwrap();
    insta::assert_snapshot!("topology", shown(&["topology", "lab-uneven"]));
    insta::assert_snapshot!("top", shown(&["top", "--once", ledger]));
    let explained = shown(&["explain", ledger]);
    // Before that, the ledger's path is named.
    let (_, moves) = explained.split_once("Thread moves, ").unwrap();
    insta::assert_snapshot!("explain", moves);
    let page = shown(&["report", ledger, "-o", "-"]);
    for node in 0..4 {
        assert!(page.contains(&format!("node {node}")), "node {node}");
    }
    assert!(!page.contains("NaN"), "{page}");
    // The kernel's view of it, as the doctor reads it.
    let tree = folder.path().join("tree");
    let topology = machines()[0].topology().unwrap();
    numaherd_testing::sysfs::write(&topology, &tree).unwrap();
    let doctor = shown(&["doctor", "--root", tree.to_str().unwrap()]);
    assert!(doctor.contains("3 memory nodes"), "{doctor}");
}
