//! Machines in a captured tree, looked at over time.

use std::time::Duration;

use numaherd_world::{ThreadId, VirtualCpu};

use super::machine::Monitor;
use super::qmp::NoAnswer;
use super::*;
use crate::fake;

/// Processes as in /proc, without threads.
struct Tree(tempfile::TempDir);

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A process of a program, with the words of its command line after the first.
    fn process(&self, pid: u32, program: &str, words: &str) {
        let words = words.split(' ').map(|word| format!("{word}\0"));
        let line = format!("{program}\0{}", words.collect::<String>());
        self.write(&format!("proc/{pid}/cmdline"), &line);
        let exe = self.0.path().join(format!("proc/{pid}/exe"));
        let _ = std::fs::remove_file(&exe);
        std::os::unix::fs::symlink(program, exe).unwrap();
    }

    fn machines(&self) -> Watch {
        Watch {
            machines: Machines::new(Root::new(self.0.path())),
            gaps: Vec::new(),
        }
    }
}

/// Machines, and the reports of the last look.
struct Watch {
    machines: Machines,
    gaps: Vec<String>,
}

impl Watch {
    /// Looks at one process with threads of these names; returns it with their new names.
    fn look(
        &mut self,
        pid: u32,
        names: &[&str],
        at_s: u64,
    ) -> (Option<VirtualMachine>, Vec<String>) {
        let mut threads: Vec<Thread> = names.iter().zip(pid..).map(thread(pid)).collect();
        let process = process(pid);
        self.gaps.clear();
        self.machines.observe(
            std::iter::once((process, "qemu-system-x86")),
            &mut threads,
            at_s * SECOND_NS,
            &mut self.gaps,
        );
        let names = threads.into_iter().map(|thread| thread.name).collect();
        (
            self.machines.of(process).map(|machine| (*machine).clone()),
            names,
        )
    }

    fn machine(&mut self, pid: u32) -> &mut Machine {
        self.machines.machine(process(pid)).expect("it is one")
    }
}

fn process(pid: u32) -> ProcessId {
    ProcessId { pid, born: 1 }
}

fn thread(pid: u32) -> impl Fn((&&str, u32)) -> Thread {
    move |(name, tid)| Thread {
        name: (*name).to_owned(),
        ..fake::thread(process(pid), tid)
    }
}

fn numbers(machine: &VirtualMachine) -> Vec<(u32, u32)> {
    let vcpus = machine.vcpus.iter();
    vcpus.map(|vcpu| (vcpu.index, vcpu.thread.tid)).collect()
}

#[test]
fn vcpus_are_found_by_the_names_of_threads() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-name guest=web,debug-threads=on -m 2G");
    let names = [
        "qemu-system-x86",
        "worker",
        "CPU 1/KVM",
        "CPU 0/KVM",
        "CPU x/KVM",
        "CPU 2/",
    ];
    let (machine, shown) = tree.machines().look(10, &names, 0);
    let machine = machine.unwrap();
    assert_eq!(machine.name, "web");
    assert_eq!(numbers(&machine), [(0, 13), (1, 12)]);
    assert_eq!(machine.memory_bytes, Some(2 << 30));
    assert!(
        machine.source.starts_with("its threads' names ("),
        "{}",
        machine.source
    );
    let expected = [
        "qemu-system-x86",
        "worker",
        "vCPU 1",
        "vCPU 0",
        "CPU x/KVM",
        "CPU 2/",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_number_that_two_threads_claim_is_neithers() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let names = ["q", "CPU 0/KVM", "CPU 1/KVM", "CPU 1/KVM"];
    let machine = tree.machines().look(10, &names, 0).0.unwrap();
    assert_eq!(numbers(&machine), [(0, 11)]);
    assert_eq!(
        machine.name, "qemu-system-x86 10",
        "where its owner gave it none"
    );
}

#[test]
fn libvirts_cgroups_tell_the_vcpus_and_its_monitor_is_left_alone() {
    let tree = Tree::new();
    let monitor = "-chardev socket,id=m,path=/var/lib/libvirt/qemu/m,server=on,wait=off \
                   -mon chardev=m,mode=control";
    tree.process(10, "/usr/libexec/qemu-kvm", monitor);
    let scope = r"/machine.slice/machine-qemu\x2d7\x2ddb\x2d1.scope/libvirt";
    tree.write("proc/10/cgroup", &format!("0::{scope}/emulator\n"));
    for (tid, name) in [
        (10, "emulator"),
        (11, "vcpu1"),
        (12, "vcpu0"),
        (13, "iothread1"),
    ] {
        tree.write(
            &format!("proc/10/task/{tid}/cgroup"),
            &format!("0::{scope}/{name}\n"),
        );
    }
    let mut watch = tree.machines();
    let machine = watch.look(10, &["q", "q", "q", "q"], 0).0.unwrap();
    assert_eq!(machine.name, "db-1");
    assert_eq!(numbers(&machine), [(0, 12), (1, 11)]);
    let source = "libvirt's cgroups (its monitor belongs to libvirt and is left alone)";
    assert_eq!(machine.source, source);
    assert_eq!(watch.gaps, Vec::<String>::new());
}

#[test]
fn other_programs_are_no_machines_whatever_they_call_themselves() {
    let tree = Tree::new();
    for (pid, program) in [
        (10, "/usr/bin/qemu-img"),
        (11, "/usr/bin/qemu-x86_64"),
        (12, "/usr/bin/qemu-nbd"),
        (13, "/bin/bash"),
    ] {
        tree.process(pid, program, "-name qemu-system-x86_64");
        assert_eq!(
            tree.machines().look(pid, &["CPU 0/KVM"], 0).0,
            None,
            "{program}"
        );
    }
    for (pid, program) in [
        (14, "/usr/bin/qemu-system-aarch64 (deleted)"),
        (15, "/nix/store/x/bin/.qemu-system-x86_64-wrapped"),
        (16, "/usr/bin/kvm"),
    ] {
        tree.process(pid, program, "-m 1G");
        assert!(
            tree.machines().look(pid, &["CPU 0/KVM"], 0).0.is_some(),
            "{program}"
        );
    }
}

#[test]
fn a_process_that_becomes_a_machine_is_found_later() {
    let tree = Tree::new();
    tree.process(10, "/usr/bin/sh", "wrapper");
    let mut watch = tree.machines();
    assert_eq!(watch.look(10, &["q"], 0).0, None);
    tree.process(10, QEMU, "-name late");
    assert_eq!(
        watch.look(10, &["q"], 1).0,
        None,
        "not looked at in each tick"
    );
    assert_eq!(watch.look(10, &["q"], 11).0.unwrap().name, "late");
}

#[test]
fn a_process_that_is_just_becoming_qemu_is_looked_at_again_at_once() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-name web");
    tree.write("proc/10/cmdline", "");
    let mut watch = tree.machines();
    assert_eq!(watch.look(10, &["q"], 0).0, None);
    tree.process(10, QEMU, "-name web");
    assert_eq!(watch.look(10, &["q"], 0).0.unwrap().name, "web");
}

#[test]
fn that_no_vcpu_can_be_told_is_said_once_and_with_what_to_do() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-name web");
    let mut watch = tree.machines();
    watch.look(10, &["q", "q"], 0);
    assert_eq!(
        watch.gaps,
        Vec::<String>::new(),
        "it may only just have begun"
    );
    watch.look(10, &["q", "q"], 2);
    assert_eq!(watch.gaps.len(), 1);
    let gap = &watch.gaps[0];
    assert!(gap.contains("-name web,debug-threads=on"), "{gap}");
    watch.look(10, &["q", "q"], 3);
    assert_eq!(watch.gaps, Vec::<String>::new());
    watch.look(10, &["q", "CPU 0/TCG"], 4);
    watch.look(10, &["q", "q"], 5);
    assert_eq!(watch.gaps.len(), 1, "it had gone and is there again");
}

#[test]
fn single_threaded_emulation_has_one_thread_for_all() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-smp 2");
    let mut watch = tree.machines();
    watch.look(10, &["q", "ALL CPUs/TCG"], 0);
    let both = [0, 1].map(|index| VirtualCpu {
        index,
        thread: ThreadId { tid: 11, born: 1 },
    });
    watch.machine(10).told = Some(Answers {
        vcpus: both.to_vec(),
        ..Answers::default()
    });
    let (machine, names) = watch.look(10, &["q", "ALL CPUs/TCG"], 1);
    assert_eq!(numbers(&machine.unwrap()), [(0, 11), (1, 11)]);
    assert_eq!(names, ["q", "all vCPUs"]);
}

/// A machine with a monitor that can be asked, in a tree where none can.
fn with_monitor(watch: &mut Watch, waits: bool) {
    watch.machine(10).monitor = Monitor {
        paths: vec!["/one".into(), "/two".into()],
        waits,
        ..Monitor::default()
    };
}

fn unheard(why: NoAnswer) -> Unheard {
    Unheard {
        process: process(10),
        monitor: "/one".into(),
        asked: "query-cpus-fast",
        why,
    }
}

/// The seconds at which a machine's monitor is asked, looked at each second.
fn asked_at(watch: &mut Watch, seconds: u64, answer: fn() -> Result<Answers, Unheard>) -> Vec<u64> {
    let root = watch.machines.root.clone();
    let mut at = Vec::new();
    let mut gaps = Vec::new();
    for second in 0..seconds {
        let mut threads = [thread(10)((&"q", 10)), thread(10)((&"CPU 0/KVM", 11))];
        let threads: Vec<&mut Thread> = threads.iter_mut().collect();
        let now_ns = second * SECOND_NS;
        let machine = watch.machine(10);
        if machine.look(&root, process(10), &threads, now_ns) {
            at.push(second);
            assert!(machine.inquiry(process(10)).is_some());
            machine.hear(answer(), now_ns, &mut gaps);
        }
    }
    watch.gaps = gaps;
    at
}

#[test]
fn a_monitor_that_answers_is_asked_every_ten_seconds() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let mut watch = tree.machines();
    watch.look(10, &["q"], 0);
    with_monitor(&mut watch, false);
    let at = asked_at(&mut watch, 35, || Ok(Answers::default()));
    // First two seconds after its threads changed.
    assert_eq!(at, [2, 12, 22, 32]);
}

#[test]
fn a_machine_that_has_just_begun_may_not_have_its_monitor_yet() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let mut watch = tree.machines();
    watch.look(10, &["q"], 0);
    with_monitor(&mut watch, false);
    let mut hear = |at_s: u64| {
        let mut gaps = Vec::new();
        let unheard = unheard(NoAnswer::Unreachable("it has been removed".to_owned()));
        let machine = watch.machine(10);
        machine.hear(Err(unheard), at_s * SECOND_NS, &mut gaps);
        (machine.due_ns / SECOND_NS, gaps.len())
    };
    assert_eq!(hear(1), (3, 0));
    assert_eq!(hear(3), (13, 1));
}

#[test]
fn a_monitor_that_hangs_is_asked_less_and_less_and_that_is_said_once() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let mut watch = tree.machines();
    watch.look(10, &["q"], 0);
    with_monitor(&mut watch, false);
    let at = asked_at(&mut watch, 1500, || {
        Err(unheard(NoAnswer::Silent(Duration::from_secs(1))))
    });
    assert_eq!(at, [2, 12, 32, 72, 152, 312, 612, 912, 1212]);
    assert_eq!(watch.gaps.len(), 1, "{:?}", watch.gaps);
    let gap = &watch.gaps[0];
    let said = "querying the monitor at /one of process 10 failed at query-cpus-fast: it did not \
                answer within 1000 ms: it is serving another program, or the virtual machine \
                hangs; its vCPUs are found by its threads' names";
    assert!(gap.contains(said), "{gap}");
    let machine = watch.look(10, &["q", "CPU 0/KVM"], 1500).0.unwrap();
    assert_eq!(
        machine.source,
        "its threads' names (its monitor does not answer)"
    );
    assert_eq!(numbers(&machine), [(0, 11)]);
}

#[test]
fn a_monitor_that_lied_is_not_asked_again_and_nothing_is_taken_from_it() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let mut watch = tree.machines();
    watch.look(10, &["q"], 0);
    with_monitor(&mut watch, false);
    let at = asked_at(&mut watch, 1000, || {
        let why = "vCPU 0 is its first thread".to_owned();
        Err(unheard(NoAnswer::Impossible(why)))
    });
    assert_eq!(at, [2]);
    assert_eq!(watch.gaps.len(), 1);
    let machine = watch.look(10, &["q", "CPU 0/KVM"], 1000).0.unwrap();
    assert_eq!(
        machine.source,
        "its threads' names (its monitor gave an impossible answer)"
    );
}

#[test]
fn where_qemu_waits_for_the_first_to_connect_it_is_not_us() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let mut watch = tree.machines();
    watch.look(10, &["q"], 0);
    with_monitor(&mut watch, true);
    let root = watch.machines.root.clone();
    let mut look = |names: &[&str], at_s: u64| {
        let mut threads: Vec<Thread> = names.iter().zip(10..).map(thread(10)).collect();
        let threads: Vec<&mut Thread> = threads.iter_mut().collect();
        watch
            .machine(10)
            .look(&root, process(10), &threads, at_s * SECOND_NS)
    };
    assert!(!look(&["q"], 20));
    assert!(look(&["q", "CPU 0/KVM"], 40));
}

#[test]
fn what_a_monitor_told_holds_as_long_as_its_threads_live() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-name given -m 1G");
    let mut watch = tree.machines();
    watch.look(10, &["q", "q", "q"], 0);
    let vcpu = |index, tid| VirtualCpu {
        index,
        thread: ThreadId { tid, born: 1 },
    };
    watch.machine(10).told = Some(Answers {
        vcpus: vec![vcpu(0, 11), vcpu(1, 12), vcpu(2, 99)],
        memory_bytes: Some(3 << 30),
        name: Some("told\u{7}".to_owned()),
        notes: Vec::new(),
    });
    let machine = watch.look(10, &["q", "q", "q"], 1).0.unwrap();
    assert_eq!(machine.name, "told\u{fffd}");
    assert_eq!(machine.memory_bytes, Some(3 << 30));
    assert_eq!(numbers(&machine), [(0, 11), (1, 12)]);
    assert_eq!(machine.source, "its monitor (query-cpus-fast)");
    let machine = watch.look(10, &["q", "q"], 2).0.unwrap();
    assert_eq!(numbers(&machine), [(0, 11)]);
}

#[test]
fn a_machine_that_is_gone_is_forgotten() {
    let tree = Tree::new();
    tree.process(10, QEMU, "-m 1G");
    let mut watch = tree.machines();
    assert!(watch.look(10, &["q"], 0).0.is_some());
    watch.look(11, &["q"], 1);
    assert_eq!(watch.machines.of(process(10)), None);
    // An answer that comes too late is dropped.
    watch.machines.asking = 1;
    watch
        .machines
        .tell
        .send((process(10), Err(unheard(NoAnswer::Closed))))
        .unwrap();
    watch.look(11, &["q"], 2);
    assert_eq!((watch.machines.asking, watch.gaps.len()), (0, 0));
}

#[test]
fn the_port_of_an_agent_is_found_by_its_path_or_its_descriptor() {
    let tree = Tree::new();
    let port = "-device virtserialport,chardev=c,name=org.numaherd.agent.0";
    let by = |socket: &str, pid: u32| {
        let words = format!("{port} -chardev socket,id=c,{socket},server=on,wait=off");
        tree.process(pid, QEMU, &words);
        let mut watch = tree.machines();
        watch.look(pid, &["q"], 0);
        watch.machines.agent_ports().collect::<Vec<_>>()
    };
    assert_eq!(
        by("path=/srv/a", 10),
        [(process(10), PathBuf::from("/srv/a"))]
    );
    assert_eq!(by("fd=33", 11), [], "nothing is known of it");
    let bound = "0: 2 0 10000 1 1 77 /var/lib/libvirt/qemu/channel/a\n";
    tree.write("proc/12/net/unix", bound);
    std::fs::create_dir_all(tree.0.path().join("proc/12/fd")).unwrap();
    std::os::unix::fs::symlink("socket:[77]", tree.0.path().join("proc/12/fd/33")).unwrap();
    let path = PathBuf::from("/var/lib/libvirt/qemu/channel/a");
    assert_eq!(by("fd=33", 12), [(process(12), path)]);
}
