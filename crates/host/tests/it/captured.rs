//! The host on a captured tree: a machine of four nodes that the test machine need not be.
//!
//! The tree is written out here, file by file, so that each test says what it rests on.

use std::path::Path;
use std::sync::Arc;

use numaherd_host::{
    EventTable, GroupRule, Host, HostOptions, Matches, Selection, Verdict, doctor, user_number,
};
use numaherd_testing::machine;
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{
    AffinityOrder, AffinityResult, Orders, SignalState, Snapshot, Tag, Thread, Unmanaged, World,
};

struct Tree(tempfile::TempDir);

/// One thread as /proc shows it.
struct Shown<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    flags: u64,
    class: u32,
    mask: &'a str,
    cgroup: &'a str,
}

impl Tree {
    /// Four nodes of two CPUs, without processes.
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.write("sys/devices/system/cpu/online", "0-7\n");
        tree.write("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
        tree.write("sys/fs/cgroup/jobs/cpuset.cpus.effective", "2-5\n");
        for node in 0..4 {
            let free = 1000 * (node + 1);
            tree.write(
                &format!("sys/devices/system/node/node{node}/meminfo"),
                &format!("Node {node} MemTotal: 8000 kB\nNode {node} MemFree: {free} kB\n"),
            );
        }
        tree.write("proc/self/numa_maps", "");
        tree
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn show(&self, thread: &Shown<'_>, threads: u32, ran_ns: u64) {
        let Shown {
            pid,
            tid,
            name,
            flags,
            class,
            mask,
            cgroup,
        } = thread;
        let stat = format!(
            "{tid} ({name}) S 1 {pid} {pid} 0 -1 {flags} 0 0 0 0 7 5 0 0 20 0 {threads} 0 {} 0 0 0 0 \
             0 0 0 0 0 0 0 0 0 0 0 17 3 50 {class} 0 0\n",
            tid * 10
        );
        let status = format!(
            "Name:\t{name}\nUid:\t{pid}\t{pid}\t{pid}\t{pid}\nCpus_allowed_list:\t{mask}\n\
             Mems_allowed_list:\t0-2\n"
        );
        let task = format!("proc/{pid}/task/{tid}");
        for folder in [format!("proc/{tid}"), task.clone()] {
            self.write(&format!("{folder}/stat"), &stat);
            self.write(&format!("{folder}/status"), &status);
            self.write(&format!("{folder}/cgroup"), &format!("0::{cgroup}\n"));
        }
        self.write(&format!("{task}/schedstat"), &format!("{ran_ns} 0 1\n"));
    }

    fn observe(&self, selection: Selection) -> Snapshot {
        self.host(selection).observe().unwrap()
    }

    fn host(&self, selection: Selection) -> Host {
        let mut options = HostOptions::new(selection);
        options.root = self.root().to_owned();
        Host::new(options, machine(4, 2)).unwrap()
    }
}

fn ordinary<'a>(pid: u32, name: &'a str) -> Shown<'a> {
    Shown {
        pid,
        tid: pid,
        name,
        flags: 0,
        class: 0,
        mask: "0-7",
        cgroup: "/",
    }
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.threads.iter().map(|t| t.name.as_str()).collect()
}

fn thread<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Thread {
    let found = snapshot.threads.iter().find(|thread| thread.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", names(snapshot)))
}

#[test]
fn threads_to_leave_alone_are_there_with_the_reason() {
    let tree = Tree::new();
    tree.show(
        &Shown {
            flags: 0x0020_0000,
            ..ordinary(2, "kswapd0")
        },
        1,
        0,
    );
    tree.show(
        &Shown {
            class: 1,
            ..ordinary(3, "audio")
        },
        1,
        0,
    );
    tree.show(
        &Shown {
            mask: "1",
            ..ordinary(4, "pinned")
        },
        1,
        0,
    );
    tree.show(&ordinary(5, "free"), 1, 0);
    let snapshot = tree.observe(Selection::Machine);
    let reason = |name: &str| {
        thread(&snapshot, name)
            .unmanaged
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    assert_eq!(reason("kswapd0"), "kernel thread");
    assert_eq!(reason("audio"), "real-time class (SCHED_FIFO 50)");
    assert!(reason("pinned").contains("affinity 1 was set by its user"));
    assert_eq!(reason("free"), "");
}

#[test]
fn a_thread_whose_user_bound_it_is_tagged_and_a_kernel_thread_never() {
    let tree = Tree::new();
    let kernels = Shown {
        flags: 0x0020_0000,
        mask: "1",
        ..ordinary(2, "migration/1")
    };
    let pinned = Shown {
        mask: "1",
        ..ordinary(4, "pinned")
    };
    let all_it_can_have = Shown {
        mask: "2-5",
        cgroup: "/jobs",
        ..ordinary(5, "free")
    };
    let part_of_it = Shown {
        mask: "2-3",
        cgroup: "/jobs",
        ..ordinary(6, "bound")
    };
    for shown in [kernels, pinned, all_it_can_have, part_of_it] {
        tree.show(&shown, 1, 0);
    }
    let snapshot = tree.observe(Selection::Machine);
    let tagged: Vec<&str> = snapshot
        .threads
        .iter()
        .filter(|thread| thread.tag == Some(Tag::Mask))
        .map(|thread| thread.name.as_str())
        .collect();
    assert_eq!(tagged, ["pinned", "bound"]);
}

#[test]
fn a_thread_has_its_cpusets_cpus_and_its_process_its_nodes() {
    let tree = Tree::new();
    // The whole of its cpuset is nobody's mask, although it is not the whole machine.
    let job = Shown {
        mask: "2-5",
        cgroup: "/jobs/7",
        ..ordinary(4, "job")
    };
    tree.show(&job, 1, 0);
    tree.write(
        "proc/4/numa_maps",
        "1000 default anon=700 N0=600 N2=100 kernelpagesize_kB=4\n2000 default huge N2=1 \
         kernelpagesize_kB=2048\n",
    );
    let snapshot = tree.observe(Selection::Machine);
    let thread = thread(&snapshot, "job");
    assert_eq!(thread.cpuset.to_string(), "2-5");
    assert_eq!(thread.unmanaged, None);
    let process = &snapshot.processes[0];
    assert_eq!(process.allowed_nodes.to_string(), "0-2");
    let residency = process.residency.as_ref().unwrap();
    assert_eq!(residency.pages, [(NodeId(0), 600), (NodeId(2), 612)]);
    let free: Vec<u64> = snapshot
        .nodes
        .iter()
        .map(|node| node.free_bytes / 1024)
        .collect();
    assert_eq!(free, [1000, 2000, 3000, 4000]);
}

#[test]
fn selections() {
    let tree = Tree::new();
    tree.show(
        &Shown {
            cgroup: "/jobs/7",
            ..ordinary(4, "a-name-of-fiftee")
        },
        1,
        0,
    );
    tree.show(
        &Shown {
            cgroup: "/jobs-old",
            ..ordinary(5, "other")
        },
        1,
        0,
    );
    let select = |selection| {
        tree.observe(selection)
            .threads
            .iter()
            .map(|t| t.id.tid)
            .collect()
    };
    let path = "/jobs".to_owned();
    let name = "other".to_owned();
    let cases: [(Selection, Vec<u32>); 6] = [
        (Selection::Machine, vec![4, 5]),
        (Selection::Cgroup { path }, vec![4]),
        (Selection::Command { name }, vec![5]),
        (Selection::User { uid: 4 }, vec![4]),
        (
            Selection::Processes {
                pids: vec![5],
                descendants: false,
            },
            vec![5],
        ),
        // Both have process 1 for a parent, which is not selected.
        (
            Selection::Processes {
                pids: vec![4],
                descendants: true,
            },
            vec![4],
        ),
    ];
    for (selection, want) in cases {
        let found: Vec<u32> = select(selection.clone());
        assert_eq!(found, want, "{selection:?}");
    }
}

#[test]
fn threads_come_and_go_between_ticks() {
    let tree = Tree::new();
    tree.show(&ordinary(4, "main"), 1, 0);
    let mut host = tree.host(Selection::Machine);
    assert_eq!(names(&host.observe().unwrap()), ["main"]);
    let worker = Shown {
        tid: 9,
        name: "wor) ker",
        ..ordinary(4, "")
    };
    tree.show(&worker, 2, 1);
    tree.show(&ordinary(4, "main"), 2, 0);
    let both = host.observe().unwrap();
    assert_eq!(names(&both), ["main", "wor) ker"]);
    assert_eq!(both.threads[1].id.born, 90);
    assert_eq!((both.sequence, both.processes.len()), (1, 1));
}

#[test]
fn cpu_time_is_of_the_interval_alone() {
    let tree = Tree::new();
    tree.show(&ordinary(4, "main"), 1, 5_000_000_000);
    let mut host = tree.host(Selection::Machine);
    let first = host.observe().unwrap();
    assert!(
        first.threads[0].cpu_share.abs() < 1e-12,
        "before it was watched"
    );
    tree.show(&ordinary(4, "main"), 1, 6_000_000_000);
    let second = host.observe().unwrap();
    // A second of work in an interval of some microseconds: no more than all of a CPU.
    assert!((second.threads[0].cpu_share - 1.0).abs() < 1e-12);
}

#[test]
fn a_captured_tree_takes_no_orders_and_says_so() {
    let tree = Tree::new();
    tree.show(&ordinary(4, "main"), 1, 0);
    let mut host = tree.host(Selection::Machine);
    let snapshot = host.observe().unwrap();
    let orders = Orders {
        affinities: vec![AffinityOrder {
            thread: snapshot.threads[0].id,
            core: Some(CpuId(1)),
            cpus: Arc::new("1".parse().unwrap()),
        }],
        pages: Vec::new(),
    };
    match &host.apply(&orders).affinities[0].result {
        AffinityResult::Failed { error } => assert!(error.contains("captured tree"), "{error}"),
        other => panic!("{other:?}"),
    }
    for report in &host.signals()[1..4] {
        assert!(
            matches!(report.state, SignalState::Missing { .. }),
            "{report:?}"
        );
    }
}

#[test]
fn the_doctor_names_who_else_steers() {
    let tree = Tree::new();
    tree.show(&ordinary(70, "numad"), 1, 0);
    tree.write("proc/70/comm", "numad\n");
    tree.write("proc/sys/kernel/numa_balancing", "1\n");
    tree.write("proc/sys/kernel/perf_event_paranoid", "2\n");
    tree.write("sys/kernel/sched_ext/state", "enabled\n");
    tree.write("sys/kernel/sched_ext/root/ops", "lavd\n");
    tree.write(
        "var/lib/kubelet/cpu_manager_state",
        r#"{"policyName":"static"}"#,
    );
    let report = doctor(tree.root(), &machine(4, 2), EventTable::built_in());
    let subjects: Vec<&str> = report.others.iter().map(|f| f.subject.as_str()).collect();
    assert_eq!(
        subjects,
        ["kernel NUMA balancing", "sched_ext", "numad", "kubelet"]
    );
    assert!(report.others[1].found.contains("lavd"));
    assert!(report.others.iter().all(|finding| finding.remedy.is_some()));
    let perf = report
        .abilities
        .iter()
        .find(|f| f.subject == "perf events")
        .unwrap();
    assert_eq!(perf.verdict, Verdict::Bad);
    assert!(perf.found.contains("perf_event_paranoid is 2"));
    let quiet = doctor(Tree::new().root(), &machine(4, 2), EventTable::built_in());
    assert!(quiet.others.is_empty(), "{:?}", quiet.others);
}

#[test]
fn users_by_name_or_number() {
    let tree = Tree::new();
    tree.write(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nanna:x:1042:100::/:/bin/sh\n",
    );
    assert_eq!(user_number(tree.root(), "anna").unwrap(), 1042);
    assert_eq!(user_number(tree.root(), "77").unwrap(), 77);
    let error = user_number(tree.root(), "ann").unwrap_err().to_string();
    assert!(
        error.contains("\"ann\"") && error.contains("number"),
        "{error}"
    );
}

#[test]
fn a_tree_without_proc_is_refused_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let mut options = HostOptions::new(Selection::Machine);
    options.root = empty.path().to_owned();
    let error = Host::new(options, machine(4, 2)).unwrap_err().to_string();
    assert!(error.contains("is /proc mounted?"), "{error}");
}

#[test]
fn waiting_for_a_cpu_is_of_the_interval_alone() {
    let tree = Tree::new();
    tree.show(&ordinary(4, "main"), 1, 0);
    let waited = |ns: u64| {
        tree.write("proc/4/task/4/schedstat", &format!("7 {ns} 1\n"));
    };
    waited(5_000_000_000);
    let mut host = tree.host(Selection::Machine);
    let share = |host: &mut Host| host.observe().unwrap().threads[0].wait_share;
    assert!(share(&mut host).abs() < 1e-12, "before it was watched");
    waited(6_000_000_000);
    // A second in an interval of some microseconds: no more than all of it.
    assert!((share(&mut host) - 1.0).abs() < 1e-12);
    assert!(share(&mut host).abs() < 1e-12);
    // A kernel that does not keep it.
    tree.write("proc/4/task/4/schedstat", "7\n");
    assert!(share(&mut host).abs() < 1e-12);
}

/// Processes of several kinds; the number of each is that of its user too.
fn mixed() -> Tree {
    let tree = Tree::new();
    tree.show(&ordinary(11, "postgres"), 1, 0);
    tree.show(&ordinary(12, "postgres"), 1, 0);
    tree.show(&ordinary(13, "cc1plus"), 1, 0);
    let in_jobs = |pid, name| Shown {
        cgroup: "/jobs/night",
        ..ordinary(pid, name)
    };
    tree.show(&in_jobs(14, "cc1plus"), 1, 0);
    tree.show(&in_jobs(15, "sshd"), 1, 0);
    tree
}

fn rule(name: &str, steered: bool, matches: Matches) -> GroupRule {
    GroupRule {
        name: Arc::from(name),
        steered,
        matches,
    }
}

fn commands(names: &[&str]) -> Matches {
    Matches {
        commands: names.iter().map(|&name| name.to_owned()).collect(),
        ..Matches::default()
    }
}

fn grouped(tree: &Tree, rules: Vec<GroupRule>) -> Host {
    let mut options = HostOptions::new(Selection::Machine);
    options.root = tree.root().to_owned();
    options.groups = rules;
    Host::new(options, machine(4, 2)).unwrap()
}

/// Each process with its group.
fn groups(snapshot: &Snapshot) -> Vec<(u32, Option<&str>)> {
    let processes = snapshot.processes.iter();
    processes
        .map(|process| (process.id.pid, process.group.as_deref()))
        .collect()
}

#[test]
fn the_first_rule_that_matches_says_the_group() {
    let of_user = Matches {
        users: vec![12, 13],
        ..Matches::default()
    };
    let of_jobs = Matches {
        cgroups: vec!["/jobs".to_owned()],
        ..commands(&["cc1*"])
    };
    let by_number = Matches {
        pids: vec![13, 15],
        ..Matches::default()
    };
    let rules = vec![
        rule("nobody", true, Matches::default()),
        rule("night", true, of_jobs),
        rule("mine", true, of_user),
        rule("databases", true, commands(&["mysqld", "post*"])),
        rule("chosen", true, by_number),
    ];
    let tree = mixed();
    let snapshot = grouped(&tree, rules).observe().unwrap();
    assert_eq!(
        groups(&snapshot),
        [
            (11, Some("databases")),
            (12, Some("mine")),
            (13, Some("mine")),
            (14, Some("night")),
            (15, Some("chosen")),
        ]
    );
    assert!(snapshot.threads.iter().all(|t| t.unmanaged.is_none()));
}

#[test]
fn the_threads_of_a_group_without_a_policy_are_left_alone() {
    let tree = mixed();
    let rules = vec![rule("web", false, commands(&["sshd"]))];
    let snapshot = grouped(&tree, rules).observe().unwrap();
    let reasons: Vec<(u32, Option<Unmanaged>)> = snapshot
        .threads
        .iter()
        .map(|thread| (thread.id.tid, thread.unmanaged.clone()))
        .collect();
    let left_alone = Some(Unmanaged::Group { name: "web".into() });
    assert_eq!(
        reasons,
        [
            (11, None),
            (12, None),
            (13, None),
            (14, None),
            (15, left_alone)
        ]
    );
}

#[test]
fn rules_can_be_replaced_and_a_process_that_runs_another_program_changes_its_group() {
    let tree = mixed();
    let compilers = || vec![rule("compilers", true, commands(&["cc1plus"]))];
    let mut host = grouped(&tree, compilers());
    let of = |host: &mut Host, pid: u32| {
        let snapshot = host.observe().unwrap();
        let found = groups(&snapshot).into_iter().find(|&(p, _)| p == pid);
        found.unwrap().1.map(str::to_owned)
    };
    assert_eq!(of(&mut host, 13).as_deref(), Some("compilers"));
    let rules = host.groups();
    rules.set(vec![rule("builds", true, commands(&["cc1*"]))]);
    assert_eq!(of(&mut host, 13).as_deref(), Some("builds"), "at once");
    // Descriptors of stat files stay open: what a process shows is written in place.
    tree.show(&ordinary(13, "postgres"), 1, 0);
    of(&mut host, 13);
    assert_eq!(of(&mut host, 13), None, "seen by its name a scan later");
    rules.set(Vec::new());
    assert_eq!(of(&mut host, 14), None);
}
