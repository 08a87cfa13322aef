//! How guests end: nothing is left behind, and the reason is told.
//!
//! No test here waits by the clock: each waits for QEMU's process to be gone.

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

use numaherd_lab_launcher::error::Cause;
use numaherd_lab_launcher::{
    Command, Ending, Error, Event, Guest, KernelFiles, Options, RunOptions, Shape,
};
use numaherd_topology::Machine;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

fn options() -> Options {
    let files = KernelFiles::find(None).unwrap_or_else(|error| panic!("{error}"));
    Options::new(Shape::uniform(2, 1, 256), files)
}

fn start(options: &Options) -> Guest {
    Guest::start(options).unwrap_or_else(|error| panic!("{error}"))
}

/// Holds on to a process, so that its number cannot come to mean another.
fn hold(pid: u32) -> std::os::fd::OwnedFd {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    pidfd_open(pid, PidfdFlags::empty()).expect("it runs")
}

fn wait_until_gone(process: &std::os::fd::OwnedFd) {
    let mut waiting = [PollFd::new(process, PollFlags::IN)];
    assert_eq!(poll(&mut waiting, None), Ok(1));
}

fn shell(script: &str) -> Command {
    Command::inherited(["sh", "-c", script]).expect("a working directory")
}

#[test]
fn a_guest_over_its_time_limit_is_killed_and_says_so() {
    let limit = Duration::from_millis(300);
    match Guest::start(&Options {
        time_limit: Some(limit),
        ..options()
    }) {
        Err(Error::NoBoot { cause, .. }) => assert_eq!(cause, Cause::TimeLimit(limit)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_guest_that_is_dropped_in_the_middle_of_a_command_is_gone() {
    let guest = start(&options());
    let process = hold(guest.qemu_pid());
    let mut running = guest.spawn(&shell("sleep 100000")).expect("it starts");
    assert!(matches!(running.next(None), Ok(Some(Event::Started(_)))));
    drop(running);
    drop(guest);
    wait_until_gone(&process);
}

#[test]
fn a_kernel_that_panics_under_a_command_is_reported_with_its_last_lines() {
    let guest = start(&options());
    let process = hold(guest.qemu_pid());
    match guest.output(&shell("echo c > /proc/sysrq-trigger"), None) {
        Err(Error::Died {
            cause: Cause::Panic(line),
            console,
        }) => {
            assert!(line.contains("sysrq triggered crash"), "{line}");
            assert!(console.contains("Kernel panic"), "{console}");
        }
        other => panic!("{other:?}"),
    }
    wait_until_gone(&process);
    // And whoever comes later is told the same, not left waiting.
    assert!(matches!(
        guest.output(&shell("true"), None),
        Err(Error::Died { .. })
    ));
    assert!(matches!(guest.stop(), Err(Error::Died { .. })));
}

/// A program in QEMU's place: at its first `failures` starts it does what `failure` says in the shell's language; after
/// that it is QEMU.
fn in_place_of_qemu(directory: &Path, failures: usize, failure: &str) -> Options {
    let mut options = options();
    let program = directory.join("qemu");
    let script = format!(
        "#!/bin/sh\necho start >> '{starts}'\n\
         if [ $(wc -l < '{starts}') -le {failures} ]; then\n{failure}\nfi\nexec '{qemu}' \"$@\"\n",
        starts = directory.join("starts").display(),
        qemu = options.kernel.qemu.display(),
    );
    fs::write(&program, script).expect("a temporary directory");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is there");
    options.kernel.qemu = program;
    options
}

/// Shows a kernel that ends with `last`, and ends.
fn panic_after(last: &str) -> String {
    format!(
        "echo '[    1.5] {last}'\n\
         echo '[    1.6] Kernel panic - not syncing: Fatal exception in interrupt'\nexit 0"
    )
}

fn starts(directory: &Path) -> usize {
    let starts = fs::read_to_string(directory.join("starts")).expect("it was started");
    starts.lines().count()
}

#[test]
fn a_boot_in_which_the_kernel_crashes_is_tried_again_and_told_of() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let guest = start(&in_place_of_qemu(
        directory.path(),
        2,
        &panic_after("int3: 0000 [#1] PREEMPT SMP NOPTI"),
    ));
    assert_eq!(starts(directory.path()), 3);
    let told = guest.failed_boots();
    assert_eq!(told.len(), 2);
    assert!(told[0].contains("int3: 0000"), "{}", told[0]);
    assert!(guest.output(&shell("true"), None).is_ok());
}

#[test]
fn a_boot_that_crashes_always_or_panics_without_a_crash_is_given_up() {
    for (last, boots) in [
        ("BUG: unable to handle page fault", Guest::BOOTS),
        ("VFS: Cannot open root device", 1),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error =
            Guest::start(&in_place_of_qemu(directory.path(), 99, &panic_after(last))).unwrap_err();
        assert_eq!(starts(directory.path()), boots, "{error}");
        assert!(error.to_string().contains("Fatal exception"), "{error}");
    }
}

#[test]
fn a_boot_over_its_time_limit_is_tried_again_only_if_the_kernel_was_silent() {
    for (said, boots) in [("", Guest::BOOTS), ("echo '[    0.5] slowly'\n", 1)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let hang = format!("{said}exec sleep 100000");
        let limit = Duration::from_secs(3);
        match Guest::start(&Options {
            boot_limit: limit,
            ..in_place_of_qemu(directory.path(), 99, &hang)
        }) {
            Err(Error::NoBoot { cause, .. }) => assert_eq!(cause, Cause::BootLimit(limit)),
            other => panic!("{other:?}"),
        }
        assert_eq!(starts(directory.path()), boots);
    }
}

#[test]
fn a_boot_in_which_qemu_crashes_is_tried_again_and_one_that_it_ends_is_not() {
    for (end, boots) in [("kill -ABRT $$", Guest::BOOTS), ("exit 1", 1)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error = Guest::start(&in_place_of_qemu(directory.path(), 99, end)).unwrap_err();
        assert!(error.to_string().contains("QEMU ended"), "{error}");
        assert_eq!(starts(directory.path()), boots, "{error}");
    }
}

#[test]
fn a_kernel_parameter_that_breaks_the_boot_is_reported() {
    let broken = Options {
        kernel_parameters: vec!["rdinit=/no/init".to_owned()],
        ..options()
    };
    match Guest::start(&broken) {
        Err(Error::NoBoot {
            cause: Cause::Panic(line),
            ..
        }) => {
            assert!(line.contains("Kernel panic"), "{line}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_qemu_refuses_is_passed_on() {
    let mut options = options();
    options.kernel.image = "/no/such/kernel".into();
    match Guest::start(&options) {
        Err(Error::NoBoot {
            cause: Cause::Qemu { message, .. },
            ..
        }) => {
            assert!(message.contains("/no/such/kernel"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_command_that_runs_the_guest_out_of_memory_is_told_so() {
    // A string that doubles without end.
    let command = shell("x=x; while :; do x=$x$x; done");
    let mut run = RunOptions::new(Machine::preset("lab-2x4").expect("a preset"), command);
    run.time = numaherd_lab_launcher::Time::Real;
    run.memory_mib = Some(192);
    let finished = numaherd_lab_launcher::run(&run, &mut std::io::sink(), &mut std::io::sink())
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(finished.ending, Ending::Killed(9));
    let message = finished.out_of_memory.expect("the kernel says why");
    assert!(message.contains("(sh)"), "{message}");
}

/// Not a test by itself: starts a guest, says which process QEMU is, and waits to be killed.
#[test]
#[ignore = "run and killed by the test below"]
fn start_a_guest_and_wait() {
    let guest = start(&options());
    println!("qemu {}", guest.qemu_pid());
    let ended = guest.output(&shell("sleep 100000"), None);
    panic!("nobody killed this process: {ended:?}");
}

#[test]
fn a_killed_parent_leaves_no_qemu_behind() {
    let mut parent = process::Command::new(env::current_exe().expect("this program"))
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "ends::start_a_guest_and_wait",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let said = BufReader::new(parent.stdout.take().expect("piped"));
    let qemu: u32 = said
        .lines()
        .map(|line| line.expect("text"))
        .find_map(|line| line.split_once("qemu ")?.1.trim().parse().ok())
        .expect("it says which process QEMU is");
    let process = hold(qemu);
    // SIGKILL: nothing of the parent's own runs after this.
    parent.kill().expect("it runs");
    parent.wait().expect("our child");
    wait_until_gone(&process);
}

/// QEMU without the plugin, as if it had failed to load: the PMU module must refuse the memory
/// that nobody has filled, and say so.
#[test]
fn a_model_without_its_plugin_is_refused() {
    let mut options = options();
    let wrapper = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qemu-without-plugin");
    let script = format!(
        "#!/bin/bash\nkept=()\nwhile [ $# -gt 0 ]; do\n  if [ \"$1\" = -plugin ]; then shift 2; \
         else kept+=(\"$1\"); shift; fi\ndone\nexec {} \"${{kept[@]}}\"\n",
        options.kernel.qemu.display()
    );
    fs::write(&wrapper, script).expect("a script");
    fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).expect("executable");
    options.kernel.qemu = wrapper;
    options.model = Some(numaherd_lab_launcher::Model {
        plugin: "/no/such/plugin".into(),
        configuration: String::new(),
        last_level_bytes: 2 << 20,
        recording: None,
        kernel_accesses: false,
    });
    match Guest::start(&options) {
        Err(Error::NoBoot {
            cause: Cause::Init(reason),
            console,
        }) => {
            assert!(reason.contains("lab_pmu.ko"), "{reason}");
            assert!(
                console.contains("the shared memory is not the plugin's"),
                "{console}"
            );
        }
        other => panic!("{other:?}"),
    }
}
