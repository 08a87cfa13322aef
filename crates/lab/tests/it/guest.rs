//! A guest without a model: what programs see in it, and what comes back.
//!
//! These boot a real kernel, so they need `make setup` and fail with that message without it. All
//! tests that do not harm the guest share one boot.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fs};

use numaherd_lab_launcher::{
    Command, Ending, Error, Event, Guest, KernelFiles, NodeShape, Options, Output, Shape, Stream,
    machine,
};
use numaherd_topology::{Machine, Topology, sysfs};

/// The machine of the shared guest.
static SQUARE: LazyLock<Machine> = LazyLock::new(|| Machine::preset("lab-4x2").expect("a preset"));

/// The shared guest. QEMU ends with this process.
static GUEST: LazyLock<Guest> =
    LazyLock::new(|| boot(machine::shape(&SQUARE, Some(384)).expect("a shape")));

fn boot(shape: Shape) -> Guest {
    let files = KernelFiles::find(None).unwrap_or_else(|error| panic!("{error}"));
    Guest::start(&Options::new(shape, files)).unwrap_or_else(|error| panic!("{error}"))
}

fn shell(script: &str) -> Command {
    Command::inherited(["sh", "-c", script]).expect("a working directory")
}

fn run(command: &Command) -> Output {
    GUEST
        .output(command, Some(Duration::from_secs(60)))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn exit_code_and_both_streams_come_back() {
    let output = run(&shell("echo out; echo err >&2; exit 7"));
    assert_eq!(output.ending, Ending::Exited(7));
    assert_eq!(text(&output.stdout), "out\n");
    assert_eq!(text(&output.stderr), "err\n");
}

#[test]
fn a_signal_that_ends_a_command_is_told_from_an_exit_code() {
    assert_eq!(run(&shell("kill -9 $$")).ending, Ending::Killed(9));
}

#[test]
fn much_output_comes_whole_and_in_order() {
    let output = run(&shell(
        "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done",
    ));
    let expected: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    assert!(
        text(&output.stdout) == expected,
        "{} bytes came",
        output.stdout.len()
    );
}

#[test]
fn arguments_environment_and_directory_arrive_byte_for_byte() {
    let odd = "two words, 'quotes\" \\ $HOME `x`\n\ttab \u{fc}";
    let command = Command {
        arguments: [
            "sh",
            "-c",
            "printf %s \"$1|$ODD|$PWD\"; env | wc -l >&2",
            "sh",
            odd,
        ]
        .map(Into::into)
        .to_vec(),
        environment: [("ODD", odd), ("PATH", "/usr/bin:/bin")]
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec(),
        directory: "/usr/bin".into(),
    };
    let output = run(&command);
    assert_eq!(text(&output.stdout), format!("{odd}|{odd}|/usr/bin"));
}

#[test]
fn a_program_of_the_host_runs_and_finds_its_files() {
    // This very program, in the guest, lists its own tests.
    let program = env::current_exe().expect("this program");
    let output = run(&Command::inherited([program.as_os_str(), "--list".as_ref()]).expect("here"));
    assert_eq!(output.ending, Ending::Exited(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("a_program_of_the_host_runs_and_finds_its_files: test"));
}

#[test]
fn what_a_guest_writes_never_reaches_the_host() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("overlay");
    fs::create_dir_all(&directory).expect("a directory");
    let (kept, new) = (directory.join("kept"), directory.join("new"));
    fs::write(&kept, "the host's").expect("a file");
    let output = run(&shell(&format!(
        "set -e; echo changed > '{0}'; cat '{0}'; echo new > '{1}'; cat '{1}'",
        kept.display(),
        new.display()
    )));
    assert_eq!(
        text(&output.stdout),
        "changed\nnew\n",
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        fs::read_to_string(&kept).expect("still there"),
        "the host's"
    );
    assert!(!new.exists());
    // Nor by way of the host's root itself, which no program can mount again.
    let again =
        "mkdir /tmp/again && mount -t 9p -o trans=virtio,version=9p2000.L hostroot /tmp/again";
    assert_ne!(run(&shell(again)).ending, Ending::Exited(0));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let absent = Command::inherited(["/no/such/program"]).expect("here");
    match GUEST.output(&absent, None) {
        Err(Error::NotStarted(reason)) => {
            assert!(reason.contains("/no/such/program"), "{reason}");
            assert!(reason.contains("No such file"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let mut nowhere = shell("true");
    nowhere.directory = "/no/such/directory".into();
    match GUEST.output(&nowhere, None) {
        Err(Error::NotStarted(reason)) => assert!(reason.contains("/no/such/directory")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_run_at_the_same_time() {
    // The first waits for the second, which is started only once the first runs.
    let mut waiting = GUEST
        .spawn(&shell("mkfifo /tmp/lab-meet; cat /tmp/lab-meet"))
        .expect("it starts");
    assert!(matches!(waiting.next(None), Ok(Some(Event::Started(_)))));
    run(&shell(
        "until [ -p /tmp/lab-meet ]; do :; done; echo met > /tmp/lab-meet",
    ));
    let mut said = Vec::new();
    loop {
        match waiting.next(None).expect("the guest lives") {
            Some(Event::Output(Stream::Stdout, bytes)) => said.extend(bytes),
            Some(Event::Ended(ending)) => break assert_eq!(ending, Ending::Exited(0)),
            _ => {}
        }
    }
    assert_eq!(text(&said), "met\n");
}

#[test]
fn what_a_command_leaves_in_the_background_is_not_waited_for() {
    let output = run(&shell("sleep 100000 & echo done"));
    assert_eq!(text(&output.stdout), "done\n");
}

#[test]
fn a_command_over_its_time_limit_is_killed_and_the_guest_lives_on() {
    let limit = Duration::from_millis(500);
    match GUEST.output(
        &shell("echo $$ > /tmp/lab-slow; exec sleep 100000"),
        Some(limit),
    ) {
        Err(Error::CommandTimeLimit { limit: told }) => assert_eq!(told, limit),
        other => panic!("{other:?}"),
    }
    let output = run(&shell(
        "while kill -0 $(cat /tmp/lab-slow) 2>/dev/null; do :; done; echo gone",
    ));
    assert_eq!(text(&output.stdout), "gone\n");
}

#[test]
fn settings_that_a_measurement_needs_are_made() {
    let output = run(&shell(
        "cat /proc/sys/kernel/perf_event_paranoid /proc/sys/kernel/numa_balancing; \
         ls -d /sys/kernel/debug/sched/numa_balancing/scan_period_min_ms; \
         head -c 7 /sys/fs/cgroup/cgroup.controllers >/dev/null && echo cgroup; cat /sys/class/net/lo/flags",
    ));
    assert_eq!(
        text(&output.stdout),
        "-1\n1\n/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms\ncgroup\n0x9\n"
    );
}

#[test]
fn programs_can_sleep_on_every_cpu() {
    let output = run(&shell(
        "for cpu in $(seq 0 7); do taskset -c $cpu sleep 0.01 && echo $cpu; done",
    ));
    assert_eq!(text(&output.stdout), "0\n1\n2\n3\n4\n5\n6\n7\n");
}

#[test]
fn the_kernels_configuration_is_where_programs_look_for_it() {
    let output = run(&shell("grep -x CONFIG_NUMA=y /boot/config-$(uname -r)"));
    assert_eq!(
        text(&output.stdout),
        "CONFIG_NUMA=y\n",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn kernel_settings_can_be_written_and_refusals_are_told() {
    let file = "/proc/sys/vm/overcommit_ratio";
    GUEST.write_file(file, "51").expect("a setting");
    assert_eq!(text(&run(&shell(&format!("cat {file}"))).stdout), "51\n");
    match GUEST.write_file("/proc/version", "other") {
        Err(Error::NotStarted(reason)) => assert!(reason.contains("/proc/version"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_gate_needs_a_model() {
    match GUEST.start_model() {
        Err(Error::Gate(reason)) => assert!(reason.contains("lab_pmu"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn numad_runs() {
    let Some(numad) = ["/usr/bin/numad", "/usr/sbin/numad"]
        .into_iter()
        .find(|p| Path::new(p).exists())
    else {
        panic!("numad is not installed; run `make setup`");
    };
    // It becomes a daemon, keeps a log, and stops on -i 0. Its least interval is 5 s.
    let output = run(&shell(&format!(
        "log=/var/log/numad.log; {numad} -i 6 -l 7 && \
         until grep -q 'Nodes: 4' $log; do sleep 0.1; done && {numad} -i 0 && \
         until grep -q 'Shutting down' $log; do sleep 0.1; done; cat $log"
    )));
    assert_eq!(output.ending, Ending::Exited(0), "{}", text(&output.stderr));
    let log = text(&output.stdout);
    assert!(log.contains("Distance: 10 20 20 30  CPUs: 0-1"), "{log}");
}

/// Not a test by itself: prints the machine as the reader of sysfs sees it, when run in a guest.
#[test]
#[ignore = "run in the guest by the tests of its topology"]
fn print_topology() {
    let topology = sysfs::read(Path::new("/")).unwrap_or_else(|error| panic!("{error}"));
    println!(
        "topology {}",
        serde_json::to_string(&topology).expect("serializable")
    );
}

fn seen_in(guest: &Guest) -> Topology {
    let program = env::current_exe().expect("this program");
    let arguments = [
        "--ignored",
        "--exact",
        "--nocapture",
        "guest::print_topology",
    ];
    let command = [program.into_os_string()]
        .into_iter()
        .chain(arguments.map(Into::into));
    let output = guest
        .output(&Command::inherited(command).expect("here"), None)
        .expect("the guest lives");
    let line = text(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("topology "));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{}", text(&output.stdout)))).expect("ours")
}

/// Nodes, CPUs, domains and distances are the machine file's; memory is what the kernel leaves.
fn check_same(seen: &Topology, machine: &Machine) {
    let wanted = machine.topology().expect("a machine");
    assert_eq!(seen.distances(), wanted.distances());
    let nodes = |topology: &Topology| -> Vec<_> {
        topology
            .nodes()
            .iter()
            .map(|node| (node.id, node.online, node.cpus.clone()))
            .collect()
    };
    assert_eq!(nodes(seen), nodes(&wanted));
    let domains = |topology: &Topology| -> Vec<_> {
        topology
            .domains()
            .iter()
            .map(|domain| (domain.node, domain.cpus.clone()))
            .collect()
    };
    assert_eq!(domains(seen), domains(&wanted));
    let cores = |topology: &Topology| -> Vec<_> {
        topology
            .cores()
            .iter()
            .map(|core| core.cpus.clone())
            .collect()
    };
    assert_eq!(cores(seen), cores(&wanted));
}

#[test]
fn the_guest_is_the_machine_of_the_file() {
    check_same(&seen_in(&GUEST), &SQUARE);
}

/// Several last-level caches of a node, and cores of two threads, are the file's, as sysfs tells them
/// and as `numaherd` reads them.
#[test]
fn caches_of_a_node_and_siblings_of_a_core_are_those_of_the_file() {
    let cases = [
        ("lab-2x2x2", ["0-1", "2-3", "4-5", "6-7"], false),
        ("lab-smt", ["0-3", "0-3", "4-7", "4-7"], true),
    ];
    for (name, caches, has_siblings) in cases {
        let file = Machine::preset(name).expect("a preset");
        let guest = boot(machine::shape(&file, Some(384)).expect("a shape"));
        check_same(&seen_in(&guest), &file);
        let lists = |file: &str| {
            let script =
                format!("for cpu in 0 2 4 6; do cat /sys/devices/system/cpu/cpu$cpu/{file}; done");
            let output = guest.output(&shell(&script), Some(Duration::from_secs(60)));
            let output = output.unwrap_or_else(|error| panic!("{error}"));
            let lines = text(&output.stdout).lines().map(str::to_owned);
            lines.collect::<Vec<String>>()
        };
        assert_eq!(lists("cache/index3/shared_cpu_list"), caches, "{name}");
        let siblings = match has_siblings {
            true => ["0-1", "2-3", "4-5", "6-7"],
            false => ["0", "2", "4", "6"],
        };
        assert_eq!(lists("topology/thread_siblings_list"), siblings, "{name}");
        guest.stop().expect("it stops");
    }
}

#[test]
fn nodes_without_memory_or_without_cpus_and_cores_of_two_threads() {
    let shape = Shape {
        nodes: vec![
            NodeShape {
                cpus: 4,
                memory_mib: 384,
            },
            NodeShape {
                cpus: 2,
                memory_mib: 0,
            },
            NodeShape {
                cpus: 0,
                memory_mib: 256,
            },
        ],
        threads_per_core: 2,
        cores_per_socket: 1,
        distances: vec![vec![10, 21, 30], vec![22, 10, 31], vec![17, 28, 10]],
    };
    let guest = boot(shape);
    let seen = seen_in(&guest);
    let cpus: Vec<String> = seen
        .nodes()
        .iter()
        .map(|node| node.cpus.to_string())
        .collect();
    assert_eq!(cpus, ["0-3", "4-5", ""]);
    let memory: Vec<bool> = seen
        .nodes()
        .iter()
        .map(|node| node.memory_bytes > 0)
        .collect();
    assert_eq!(memory, [true, false, true]);
    let cores: Vec<String> = seen
        .cores()
        .iter()
        .map(|core| core.cpus.to_string())
        .collect();
    assert_eq!(cores, ["0-1", "2-3", "4-5"]);
    assert_eq!(
        seen.distances().rows,
        [[10, 21, 30], [22, 10, 31], [17, 28, 10]]
    );
    guest.stop().expect("it stops");
}

#[test]
fn sixteen_nodes_and_thirty_two_cpus() {
    let cube = Machine::preset("lab-16x2").expect("a preset");
    let guest = boot(machine::shape(&cube, None).expect("a shape"));
    check_same(&seen_in(&guest), &cube);
    guest.stop().expect("it stops");
}
