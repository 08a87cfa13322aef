//! The host and a real QEMU: its vCPUs found, one of them moved, its memory ordered about, and QEMU
//! killed or held in the middle of it.
//!
//! The machines have no system: they wait at their first instruction, with all of their threads.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use numaherd_host::{Host, HostOptions, Selection};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{
    AffinityOrder, AffinityResult, Orders, PageOrder, Pages, Process, Progress, Snapshot, ThreadId,
    VirtualMachine, World,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::this_machine::topology;

const VCPUS: u32 = 4;
/// Looks at a machine, 10 ms apart, after which it will not become what it should: two minutes.
const MANY: u32 = 12_000;

/// A QEMU that ends with the value, and by itself should this program be killed.
struct Machine {
    /// `timeout`, whose child QEMU is.
    timeout: Child,
    /// Where it was started: its monitor's path begins there.
    _folder: tempfile::TempDir,
}

impl Machine {
    /// Starts a machine of four vCPUs and 64 MiB.
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "180", "qemu-system-x86_64"])
            .args(["-accel", "tcg,thread=multi", "-machine", "q35"])
            .args(["-smp", "4", "-m", "64M", "-display", "none"])
            .args(["-nodefaults", "-S"])
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let timeout = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start QEMU: {error}; run `make setup`"));
        Self {
            timeout,
            _folder: folder,
        }
    }

    /// With its threads named and a monitor, as people start them.
    fn usual() -> Self {
        Self::start(&[
            "-name",
            "guest=test,debug-threads=on",
            "-qmp",
            "unix:monitor,server=on,wait=off",
        ])
    }

    fn host(&self) -> Host {
        let pid = self.timeout.id();
        Host::new(HostOptions::new(Selection::Child { pid }), topology()).unwrap()
    }

    /// Kills QEMU, and is back when it is gone.
    fn kill(&mut self, machine: &Process) {
        signal(machine, Signal::KILL);
        self.timeout.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It passes the request on to QEMU; one that is stopped takes no notice of it.
        for signal in [Signal::TERM, Signal::CONT] {
            let pid = i32::try_from(self.timeout.id())
                .ok()
                .and_then(Pid::from_raw);
            let _ = kill_process(pid.unwrap(), signal);
        }
        let _ = self.timeout.wait();
    }
}

fn signal(machine: &Process, signal: Signal) {
    let pid = i32::try_from(machine.id.pid).ok().and_then(Pid::from_raw);
    kill_process(pid.unwrap(), signal).unwrap();
}

fn machine_in(snapshot: &Snapshot) -> Option<(&Process, &VirtualMachine)> {
    snapshot
        .processes
        .iter()
        .find_map(|process| Some((process, process.machine.as_deref()?)))
}

/// Looks until a machine is as it should be.
fn until(
    host: &mut Host,
    mut as_it_should: impl FnMut(&Snapshot, &VirtualMachine) -> bool,
) -> Snapshot {
    let mut last = None;
    for _ in 0..MANY {
        let snapshot = host.observe().unwrap();
        let found = machine_in(&snapshot);
        if found.is_some_and(|(_, machine)| as_it_should(&snapshot, machine)) {
            return snapshot;
        }
        last = Some(snapshot);
        assert_eq!(
            host.run_for(Duration::from_millis(10)),
            Progress::Ran,
            "QEMU has ended: run `make setup`"
        );
    }
    panic!("it never was as it should: {last:?}");
}

fn by_monitor(_: &Snapshot, machine: &VirtualMachine) -> bool {
    machine.source.starts_with("its monitor")
}

fn by_names(_: &Snapshot, machine: &VirtualMachine) -> bool {
    machine.source.starts_with("its threads' names") && machine.vcpus.len() == VCPUS as usize
}

/// However they were found.
fn complete(_: &Snapshot, machine: &VirtualMachine) -> bool {
    machine.vcpus.len() == VCPUS as usize
}

fn indices(machine: &VirtualMachine) -> Vec<u32> {
    machine.vcpus.iter().map(|vcpu| vcpu.index).collect()
}

/// What the kernel calls a machine's vCPUs.
fn names(process: &Process, machine: &VirtualMachine) -> Vec<String> {
    let name = |thread: ThreadId| {
        let path = format!("/proc/{}/task/{}/comm", process.id.pid, thread.tid);
        std::fs::read_to_string(path).unwrap().trim_end().to_owned()
    };
    let vcpus = machine.vcpus.iter();
    vcpus.map(|vcpu| name(vcpu.thread)).collect()
}

/// The CPUs that the kernel lets each thread of a process have.
fn masks(process: &Process) -> BTreeMap<u32, String> {
    let folder = format!("/proc/{}/task", process.id.pid);
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let status = std::fs::read_to_string(path.join("status")).unwrap();
            let mut lines = status.lines();
            let mask = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
            let tid = path.file_name().unwrap().to_str().unwrap();
            (tid.parse().unwrap(), mask.unwrap().to_owned())
        })
        .collect()
}

fn place(thread: ThreadId, core: CpuId) -> Orders {
    Orders {
        affinities: vec![AffinityOrder {
            thread,
            core: Some(core),
            cpus: Arc::new([core].into_iter().collect()),
        }],
        pages: Vec::new(),
    }
}

#[test]
fn monitor_and_names_tell_the_same_vcpus() {
    let machine = Machine::usual();
    let mut host = machine.host();
    let snapshot = until(&mut host, by_monitor);
    let (process, told) = machine_in(&snapshot).unwrap();
    assert_eq!(told.name, "test");
    assert_eq!(indices(told), [0, 1, 2, 3]);
    assert_eq!(told.memory_bytes, Some(64 << 20));
    let expected: Vec<String> = (0..VCPUS).map(|index| format!("CPU {index}/TCG")).collect();
    assert_eq!(names(process, told), expected);
    for vcpu in &told.vcpus {
        let thread = snapshot.thread(vcpu.thread).unwrap();
        assert_eq!(thread.name, format!("vCPU {}", vcpu.index));
        assert_eq!(thread.process, process.id);
    }
}

#[test]
fn vcpus_without_names_are_told_by_the_monitor_alone() {
    let machine = Machine::start(&[
        "-chardev",
        "socket,id=m,path=monitor,server=on,wait=off",
        "-mon",
        "chardev=m,mode=control,pretty=on",
        "-name",
        "plain,debug-threads=off",
    ]);
    let snapshot = until(&mut machine.host(), by_monitor);
    let (process, told) = machine_in(&snapshot).unwrap();
    assert_eq!(told.name, "plain");
    assert_eq!(indices(told), [0, 1, 2, 3]);
    assert!(
        names(process, told)
            .iter()
            .all(|name| name.starts_with("qemu-system"))
    );
}

#[test]
fn vcpus_without_a_monitor_are_told_by_their_names() {
    let machine = Machine::start(&["-name", "quiet,debug-threads=on"]);
    let snapshot = until(&mut machine.host(), by_names);
    let (_, told) = machine_in(&snapshot).unwrap();
    assert_eq!(indices(told), [0, 1, 2, 3]);
    assert_eq!(told.memory_bytes, Some(64 << 20));
    let source = "its threads' names (it has no monitor in the file system)";
    assert_eq!(told.source, source);
}

#[test]
fn one_vcpu_is_moved_and_the_others_stay() {
    let machine = Machine::usual();
    let mut host = machine.host();
    let snapshot = until(&mut host, complete);
    let (process, told) = machine_in(&snapshot).unwrap();
    let vcpu = told.vcpus[2].thread;
    let core = snapshot.thread(vcpu).unwrap().cpuset.last().unwrap();
    let mut expected = masks(process);
    expected.insert(vcpu.tid, core.to_string());
    let outcome = host.apply(&place(vcpu, core));
    assert_eq!(outcome.affinities[0].result, AffinityResult::Done);
    assert_eq!(masks(process), expected);
    let after = host.observe().unwrap();
    assert_eq!(after.thread(vcpu).unwrap().assigned, Some(core));
    assert_eq!(after.thread(vcpu).unwrap().name, "vCPU 2");
}

/// All of a machine's memory, of a file in memory that is mapped to be shared: its first page and
/// the number of its pages.
fn shared_memory(process: &Process, page_bytes: u64) -> Pages {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.id.pid)).unwrap();
    let line = maps.lines().find(|line| line.contains("/memfd:")).unwrap();
    assert!(line.contains(" rw-s "), "{line}");
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let address = |text| u64::from_str_radix(text, 16).unwrap();
    assert_eq!(address(end) - address(start), 64 << 20);
    Pages::Window {
        first: address(start) / page_bytes,
        count: (64 << 20) / page_bytes,
    }
}

/// A machine whose memory others could map too, as with vhost-user, and that is all there.
fn with_shared_memory() -> Machine {
    Machine::start(&[
        "-object",
        "memory-backend-memfd,id=ram,size=64M,share=on,prealloc=on",
        "-machine",
        "memory-backend=ram",
        "-name",
        "shared,debug-threads=on",
    ])
}

fn page_order(snapshot: &Snapshot) -> PageOrder {
    let (process, told) = machine_in(snapshot).unwrap();
    PageOrder {
        process: process.id,
        thread: told.vcpus[0].thread,
        pages: shared_memory(process, snapshot.page_bytes),
        to: NodeId(0),
        rule: "test".into(),
        why: String::new(),
    }
}

#[test]
fn memory_that_could_be_shared_is_moved_while_qemu_alone_has_it() {
    let machine = with_shared_memory();
    let mut host = machine.host();
    let snapshot = until(&mut host, by_names);
    let order = page_order(&snapshot);
    let pages = (64 << 20) / snapshot.page_bytes;
    let orders = Orders {
        affinities: Vec::new(),
        pages: vec![order],
    };
    let outcome = host.apply(&orders).pages.remove(0);
    match &outcome.error {
        // A kernel without page migration, or a filter, must be named.
        Some(error) => assert!(error.contains("move_pages"), "{error}"),
        None => assert_eq!(outcome.moved + outcome.already_there, pages, "{outcome:?}"),
    }
}

#[test]
fn a_machine_killed_before_its_move_is_gone_and_others_are_moved() {
    let mut killed = Machine::usual();
    let other = Machine::usual();
    let mut host = killed.host();
    let mut others_host = other.host();
    let snapshot = until(&mut host, complete);
    let others = until(&mut others_host, complete);
    let (process, told) = machine_in(&snapshot).unwrap();
    killed.kill(process);
    let mut orders = Orders::default();
    for vcpu in &told.vcpus {
        let core = snapshot.thread(vcpu.thread).unwrap().cpu;
        orders
            .affinities
            .extend(place(vcpu.thread, core).affinities);
    }
    let (_, told_other) = machine_in(&others).unwrap();
    let alive = told_other.vcpus[0].thread;
    let core = others.thread(alive).unwrap().cpu;
    orders.affinities.extend(place(alive, core).affinities);
    orders.pages = vec![PageOrder {
        process: process.id,
        thread: told.vcpus[0].thread,
        pages: Pages::All,
        to: NodeId(0),
        rule: "test".into(),
        why: String::new(),
    }];
    let outcome = host.apply(&orders);
    let results: Vec<&AffinityResult> = outcome.affinities.iter().map(|o| &o.result).collect();
    let gone = &AffinityResult::Gone;
    assert_eq!(results, [gone, gone, gone, gone, &AffinityResult::Done]);
    let error = outcome.pages[0].error.as_ref().unwrap();
    assert!(error.contains("it may have ended"), "{error}");
    let after = host.observe().unwrap();
    assert!(machine_in(&after).is_none() && after.threads.is_empty());
    assert_eq!(after.gaps, Vec::<String>::new());
}

#[test]
fn a_machine_killed_while_its_memory_is_moved_ends_the_move() {
    let mut machine = with_shared_memory();
    let mut host = machine.host();
    let snapshot = until(&mut host, by_names);
    let orders = [page_order(&snapshot)];
    let mut pager = host.pager().unwrap();
    let (began, begun) = channel();
    let mover = std::thread::spawn(move || {
        loop {
            let outcome = pager.apply(&orders).remove(0);
            // The first is with QEMU alive.
            let _ = began.send(outcome.clone());
            if outcome.error.is_some() {
                return outcome;
            }
        }
    });
    let first = begun.recv().unwrap();
    let (process, told) = machine_in(&snapshot).unwrap();
    machine.kill(process);
    let last = mover.join().unwrap();
    let error = last.error.unwrap();
    if first.error.is_none() {
        assert!(error.contains("ended"), "{error}");
    }
    let vcpu = told.vcpus[0].thread;
    let outcome = host.apply(&place(vcpu, CpuId(0)));
    assert_eq!(outcome.affinities[0].result, AffinityResult::Gone);
}

#[test]
fn a_machine_that_hangs_is_given_up_and_known_by_its_names() {
    let machine = Machine::usual();
    let snapshot = until(&mut machine.host(), complete);
    let (process, _) = machine_in(&snapshot).unwrap();
    // Its kernel side still takes connections.
    signal(process, Signal::STOP);
    let expected = "at its greeting: it did not answer within 1000 ms";
    let after = until(&mut machine.host(), |snapshot, _| {
        snapshot.gaps.iter().any(|gap| gap.contains(expected))
    });
    let told = machine_in(&after).unwrap().1;
    assert_eq!(indices(told), [0, 1, 2, 3]);
    assert!(told.source.contains("does not answer"), "{}", told.source);
    signal(process, Signal::CONT);
}
