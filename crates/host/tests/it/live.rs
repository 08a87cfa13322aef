//! The host on the kernel that runs these tests, with a child process of its own as the herd.
//!
//! The machine may have one node and no counters: what cannot be had must be named, and is
//! asserted to be.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use numaherd_host::{
    EventTable, Host, HostOptions, Selection, doctor, start_with_new_pages,
    start_with_weighted_interleave,
};
use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{
    AffinityOrder, AffinityResult, NewPages, Orders, PageOrder, Pages, Progress, Signal,
    SignalState, Snapshot, Tag, Thread, Unmanaged, World,
};

use crate::this_machine::topology;

/// The program that is watched: two named threads and 8 MiB that it has touched. It prints the
/// address of that memory and runs until its input ends.
#[test]
#[ignore = "run by the other tests as the program that is watched"]
fn herd() {
    let memory: Vec<u8> = (0..8 << 20).map(|i| i as u8).collect();
    // A thread takes its name when it begins to run.
    let begun = Arc::new(Barrier::new(3));
    for name in ["grazer", "a (b) c"] {
        let begun = begun.clone();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                begun.wait();
                loop {
                    std::thread::park();
                }
            })
            .unwrap();
    }
    begun.wait();
    println!("memory {}", memory.as_ptr() as u64);
    let _ = std::io::stdin().read(&mut [0]);
    std::hint::black_box(&memory);
}

/// Each time that the table grows, whoever opens a file waits for all CPUs.
#[test]
fn the_table_of_open_files_has_room_before_the_first_look() {
    let herd = Herd::start();
    let _host = herd.host();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |key: &str, text: &str| -> u64 {
        let after = text.split(key).nth(1).unwrap();
        let first = after.split_whitespace().next().unwrap();
        first.parse().unwrap_or(u64::MAX)
    };
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let most = field("Max open files", &limits);
    assert!(
        field("FDSize:", &status) >= most.min(16384),
        "{status}{limits}"
    );
}

struct Herd {
    child: Child,
    /// Kept open so that the test harness in the child can say its last words.
    _output: BufReader<std::process::ChildStdout>,
    memory: u64,
}

impl Herd {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "live::herd",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let memory = (&mut output)
            .lines()
            .find_map(|line| line.unwrap().split_once("memory ")?.1.trim().parse().ok())
            .expect("the herd says where its memory is");
        Self {
            child,
            _output: output,
            memory,
        }
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }

    fn host(&self) -> Host {
        let pid = self.child.id();
        Host::new(HostOptions::new(Selection::Child { pid }), topology()).unwrap()
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.end();
    }
}

fn thread<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Thread {
    let found = snapshot.threads.iter().find(|thread| thread.name == name);
    found.unwrap_or_else(|| panic!("no thread {name:?} in {:?}", snapshot.threads))
}

fn order(thread: &Thread, core: Option<CpuId>, cpus: CpuSet) -> Orders {
    Orders {
        affinities: vec![AffinityOrder {
            thread: thread.id,
            core,
            cpus: Arc::new(cpus),
        }],
        pages: Vec::new(),
    }
}

fn result(host: &mut Host, orders: &Orders) -> AffinityResult {
    host.apply(orders).affinities.remove(0).result
}

#[test]
fn a_scan_finds_threads_by_name_with_their_process_and_cpus() {
    let herd = Herd::start();
    let snapshot = herd.host().observe().unwrap();
    let grazer = thread(&snapshot, "grazer");
    assert_eq!(grazer.process.pid, herd.child.id());
    assert_eq!(grazer.unmanaged, None);
    assert!(!grazer.cpuset.is_empty() && grazer.cpuset.is_subset(&snapshot.online));
    assert!(snapshot.online.contains(grazer.cpu));
    thread(&snapshot, "a (b) c");
    assert_eq!(snapshot.processes.len(), 1);
    assert!(snapshot.threads.is_sorted_by_key(|thread| thread.id));
    let own = std::process::id();
    assert!(
        snapshot
            .threads
            .iter()
            .all(|thread| thread.process.pid != own)
    );
}

#[test]
fn an_affinity_is_set_read_back_and_given_back() {
    let herd = Herd::start();
    let mut host = herd.host();
    let before = host.observe().unwrap();
    let grazer = thread(&before, "grazer");
    let core = grazer.cpuset.last().unwrap();
    let orders = order(grazer, Some(core), [core].into_iter().collect());
    assert_eq!(result(&mut host, &orders), AffinityResult::Done);
    let placed = host.observe().unwrap();
    let grazer = thread(&placed, "grazer");
    assert_eq!(grazer.assigned, Some(core));
    assert_eq!(grazer.affinity.iter().collect::<Vec<_>>(), [core]);
    assert_eq!(grazer.unmanaged, None, "our own mask is no foreign one");
    assert_eq!(grazer.tag, None, "nor a wish of its user");
    let orders = order(grazer, None, (*grazer.cpuset).clone());
    assert_eq!(result(&mut host, &orders), AffinityResult::Done);
    let restored = host.observe().unwrap();
    assert_eq!(thread(&restored, "grazer").assigned, None);
}

#[test]
fn a_mask_that_someone_else_set_is_left_alone_unless_asked_for() {
    let herd = Herd::start();
    let mut setter = herd.host();
    let snapshot = setter.observe().unwrap();
    let grazer = thread(&snapshot, "grazer");
    // With one CPU every mask is the whole cpuset, and no mask stands out.
    let stands_out = grazer.cpuset.len() > 1;
    let tag = stands_out.then_some(Tag::Mask);
    let core = grazer.cpuset.first().unwrap();
    let orders = order(grazer, Some(core), [core].into_iter().collect());
    assert_eq!(result(&mut setter, &orders), AffinityResult::Done);
    let seen_by_another = herd.host().observe().unwrap();
    let reason = thread(&seen_by_another, "grazer").unmanaged.clone();
    assert_eq!(reason.is_some(), stands_out);
    let is_users = |reason| matches!(reason, Unmanaged::UserAffinity { .. });
    assert!(reason.is_none_or(is_users));
    let mut options = HostOptions::new(Selection::Child {
        pid: herd.child.id(),
    });
    options.include_pinned = true;
    let mut asked = Host::new(options, topology()).unwrap();
    let asked_for = asked.observe().unwrap();
    assert_eq!(thread(&asked_for, "grazer").unmanaged, None);
    assert_eq!(thread(&asked_for, "grazer").tag, tag);
    // It is a candidate still when it has been given the whole machine, and one of ours.
    for cpus in [(*grazer.cpuset).clone(), [core].into_iter().collect()] {
        let orders = order(grazer, Some(core), cpus);
        assert_eq!(result(&mut asked, &orders), AffinityResult::Done);
        let placed = asked.observe().unwrap();
        assert_eq!(thread(&placed, "grazer").assigned, Some(core));
        assert_eq!(thread(&placed, "grazer").tag, tag);
    }
}

#[test]
fn the_world_ends_with_its_child_and_what_has_ended_is_not_touched() {
    let mut herd = Herd::start();
    let mut host = herd.host();
    let snapshot = host.observe().unwrap();
    let grazer = thread(&snapshot, "grazer").clone();
    assert_eq!(host.run_for(Duration::ZERO), Progress::Ran);
    herd.end();
    assert_eq!(host.run_for(Duration::from_secs(3600)), Progress::Ended);
    let orders = order(
        &grazer,
        Some(grazer.cpu),
        [grazer.cpu].into_iter().collect(),
    );
    assert_eq!(result(&mut host, &orders), AffinityResult::Gone);
    assert!(host.observe().unwrap().threads.is_empty());
    let mut reborn = grazer;
    reborn.id.tid = std::process::id();
    let orders = order(
        &reborn,
        Some(reborn.cpu),
        [reborn.cpu].into_iter().collect(),
    );
    assert_eq!(
        result(&mut host, &orders),
        AffinityResult::Gone,
        "another thread's number"
    );
}

#[test]
fn a_request_to_stop_ends_a_wait() {
    let herd = Herd::start();
    let mut host = herd.host();
    let stop = host.stop();
    let asker = std::thread::spawn(move || stop.ask());
    assert_eq!(host.run_for(Duration::from_secs(3600)), Progress::Ended);
    asker.join().unwrap();
}

#[test]
fn pages_that_are_where_they_should_be_are_reported_so() {
    let herd = Herd::start();
    let mut host = herd.host();
    let snapshot = host.observe().unwrap();
    let process = &snapshot.processes[0];
    if let Some(residency) = &process.residency {
        assert!(residency.total() >= 2048, "{residency:?}");
    }
    let home = match &process.residency {
        Some(residency) => residency.home().unwrap(),
        None => return assert_residency_is_missing(&host),
    };
    let page = snapshot.page_bytes;
    let window = Pages::Window {
        first: herd.memory.div_ceil(page),
        count: (8 << 20) / page - 1,
    };
    let orders = [PageOrder {
        process: process.id,
        thread: thread(&snapshot, "grazer").id,
        pages: window,
        to: home,
        rule: "test".into(),
        why: String::new(),
    }];
    let mut pager = host.pager().expect("the pager, once");
    assert!(host.pager().is_none());
    let outcome = pager.apply(&orders).remove(0);
    let count = (8 << 20) / page - 1;
    match outcome.error {
        // A kernel without page migration, or a filter, must be named.
        Some(error) => assert!(error.contains("move_pages"), "{error}"),
        None => assert_eq!(outcome.already_there + outcome.moved, count),
    }
    let late = Orders {
        affinities: Vec::new(),
        pages: orders.to_vec(),
    };
    let refused = host.apply(&late).pages.remove(0);
    assert!(refused.error.unwrap().contains("handed out"));
}

fn assert_residency_is_missing(host: &Host) {
    let report = &host.signals()[4];
    assert!(!report.is_measured(), "{report:?}");
}

#[test]
fn every_signal_is_measured_or_its_lack_explained() {
    let herd = Herd::start();
    let mut host = herd.host();
    let signals = host.signals().to_vec();
    let named: Vec<Signal> = signals.iter().map(|report| report.signal).collect();
    assert_eq!(named, Signal::ALL);
    for report in &signals {
        if let SignalState::Missing { reason, remedy } = &report.state {
            assert!(!reason.is_empty() && !remedy.is_empty(), "{report:?}");
        }
    }
    host.observe().unwrap();
    let snapshot = host.observe().unwrap();
    if !signals[1].is_measured() {
        assert!(
            snapshot
                .threads
                .iter()
                .all(|thread| thread.counts.is_none())
        );
    }
    let mut pager = host.pager().unwrap();
    if !signals[3].is_measured() {
        assert_eq!(pager.samples().unwrap(), []);
    }
}

#[test]
fn the_doctor_reports_as_data() {
    let report = doctor(Path::new("/"), &topology(), EventTable::built_in());
    assert!(report.kernel.is_some());
    let subjects: Vec<&str> = report
        .abilities
        .iter()
        .map(|f| f.subject.as_str())
        .collect();
    for subject in [
        "nodes",
        "perf events",
        "CAP_SYS_NICE",
        "CAP_SYS_PTRACE",
        "open files",
    ] {
        assert!(
            subjects.contains(&subject),
            "{subject} is not in {subjects:?}"
        );
    }
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::from_str::<numaherd_host::Doctor>(&text).unwrap(),
        report
    );
}

/// A shell whose two children are forked off it and run no other program has its memory in common with them.
#[test]
fn memory_that_a_fork_has_left_to_several_is_shared() {
    let mut shell = Command::new("sh")
        .args(["-c", "read x | { echo ready; read y; }"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(shell.stdout.take().unwrap());
    assert_eq!(output.lines().next().unwrap().unwrap(), "ready");
    let pid = shell.id();
    let mut host = Host::new(HostOptions::new(Selection::Child { pid }), topology()).unwrap();
    let snapshot = host.observe().unwrap();
    let of_shell = snapshot.processes.iter().find(|one| one.id.pid == pid);
    match &of_shell.unwrap().residency {
        Some(residency) => {
            let shared = &residency.kinds.as_ref().unwrap().shared;
            assert!(shared.again && !shared.pages.is_empty(), "{residency:?}");
        }
        None => assert_residency_is_missing(&host),
    }
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

#[test]
fn a_process_that_is_not_there_is_refused_by_number() {
    let selection = Selection::Processes {
        pids: vec![u32::MAX - 1],
        descendants: false,
    };
    let error = Host::new(HostOptions::new(selection), topology()).unwrap_err();
    assert!(
        error.to_string().contains("there is no such process"),
        "{error}"
    );
}

#[test]
fn a_program_can_be_started_with_its_new_pages_interleaved() {
    let topology = topology();
    let policies = |rule| {
        let mut command = Command::new("cat");
        command.arg("/proc/self/numa_maps");
        start_with_new_pages(&mut command, rule, &topology).unwrap();
        command
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let usual = policies(NewPages::FirstTouch).unwrap();
    assert!(!usual.contains("interleave"), "{usual}");
    let interleaved = policies(NewPages::Interleave);
    // A kernel without NUMA has no memory policies; the command does not start then.
    assert_eq!(interleaved.is_err(), usual.is_empty());
    let first = topology.memory_nodes().first().unwrap();
    for line in interleaved.iter().flat_map(|policies| policies.lines()) {
        let all = format!(" interleave:{first}");
        assert!(line.contains(&all), "{line}");
    }
    let mut weighted = Command::new("cat");
    start_with_weighted_interleave(weighted.arg("/proc/self/numa_maps"), &topology);
    let weighted = weighted.output();
    // Only a kernel that has such weights starts it.
    let has_weights = Path::new("/sys/kernel/mm/mempolicy/weighted_interleave").exists();
    assert_eq!(weighted.is_ok(), has_weights);
    for line in weighted.iter().flat_map(|output| output.stdout.lines()) {
        let line = line.unwrap();
        let all = format!(" weighted interleave:{first}");
        assert!(line.contains(&all), "{line}");
    }
    let mut random = Command::new("cat");
    let refused = start_with_new_pages(&mut random, NewPages::Random, &topology).unwrap_err();
    assert!(refused.reason.contains("simulate it"), "{refused}");
}
