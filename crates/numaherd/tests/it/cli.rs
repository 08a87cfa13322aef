//! The command line as a person meets it: help, answers, and what is said when something is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::{NUMAHERD, assert_code, err, numaherd, out};

#[test]
fn help_names_every_option() {
    insta::assert_snapshot!("help-run", out(&numaherd(&["run", "--help"])));
    insta::assert_snapshot!("help-trial", out(&numaherd(&["trial", "--help"])));
}

#[test]
fn policies_are_listed_and_told() {
    insta::assert_snapshot!("policies", out(&numaherd(&["policies"])));
    insta::assert_snapshot!("policies-dino", out(&numaherd(&["policies", "dino"])));
    let json: serde_json::Value = serde_json::from_slice(&numaherd(&["policies", "--json"]).stdout)
        .expect("--json prints JSON");
    assert!(
        json.as_array()
            .unwrap()
            .iter()
            .any(|policy| policy["name"] == "di-migrate")
    );
}

#[test]
fn an_unknown_policy_is_refused_with_the_nearest() {
    for command in [
        &["policies", "dimo"][..],
        &["run", "--policy", "dimo", "--", "true"],
    ] {
        let output = numaherd(command);
        assert_code(&output, 2);
        let said = err(&output);
        assert!(said.contains("did you mean \"dino\"?"), "{said}");
        assert!(!said.contains("policy: policy"), "{said}");
    }
}

/// A folder with `numaherd` alone, which finds no other program, or with a laboratory that says what it
/// was asked.
fn folder_with(laboratory: Option<&str>) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    // On the file system of the program, so that it can be linked; a link to it would be seen through.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::hard_link(NUMAHERD, folder.path().join("numaherd")).unwrap();
    if let Some(script) = laboratory {
        let path = folder.path().join("numaherd-lab");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Runs the `numaherd` of a folder, and finds programs in `path` alone.
fn run_in(folder: &Path, path: &Path, arguments: &[&str]) -> Output {
    Command::new(folder.join("numaherd"))
        .args(arguments)
        .env("PATH", path)
        .output()
        .expect("the program can be started")
}

const ECHO: &str = "#!/bin/sh\necho \"$@\"\n";

#[test]
fn without_the_laboratory_its_commands_say_how_to_get_it() {
    let alone = folder_with(None);
    let run = |arguments: &[&str]| run_in(alone.path(), alone.path(), arguments);
    insta::assert_snapshot!("help-alone", out(&run(&["--help"])));
    for arguments in [&["lab", "run", "--", "true"][..], &["help", "lab"]] {
        let output = run(arguments);
        assert_code(&output, 5);
        insta::assert_snapshot!("lab-alone", err(&output));
    }
    // Its commands are known all the same.
    let output = run(&["simulat"]);
    assert_code(&output, 2);
    assert!(err(&output).contains("'simulate'"), "{}", err(&output));
}

#[test]
fn the_laboratorys_commands_are_listed_and_passed_on() {
    let beside = folder_with(Some(ECHO));
    let (alone, elsewhere) = (folder_with(None), folder_with(Some(ECHO)));
    for (folder, path) in [(&beside, &alone), (&alone, &elsewhere)] {
        let run = |arguments: &[&str]| run_in(folder.path(), path.path(), arguments);
        insta::assert_snapshot!("help", out(&run(&["--help"])));
        let asked = ["simulate", "--set", "a=1", "x", "--help"];
        assert_eq!(out(&run(&asked)), "simulate --set a=1 x --help\n");
        assert_eq!(out(&run(&["help", "simulate"])), "help simulate\n");
    }
}

#[test]
fn a_wrong_word_is_refused_with_the_nearest_command_of_both_programs() {
    for (word, nearest) in [
        ("rum", "'run'"),
        ("proflie", "'profile'"),
        ("tracs", "'trace'"),
    ] {
        let output = numaherd(&[word]);
        assert_code(&output, 2);
        assert!(err(&output).contains(nearest), "{}", err(&output));
    }
}

#[test]
fn a_topology_file_that_lies_is_refused_with_file_and_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lie.toml");
    let lie = "name='lie'\ndescription=''\nsource='none'\n[shape]\nnodes=2\ncores_per_domain=1\n\
               memory_per_node_mib=1\n[memory]\ndistance=[[10,20],[20]]\n";
    fs::write(&path, lie).unwrap();
    let output = numaherd(&["topology", path.to_str().unwrap()]);
    assert_code(&output, 2);
    assert!(err(&output).contains("lie.toml"), "{}", err(&output));
    assert!(err(&output).contains("distance"), "{}", err(&output));
    assert_eq!(out(&output), "");
}

#[test]
fn a_preset_is_drawn_and_given_as_json() {
    let output = numaherd(&["topology", "lab-4x2"]);
    assert_code(&output, 0);
    assert!(out(&output).contains("lab-4x2"), "{}", out(&output));
    let json: serde_json::Value =
        serde_json::from_slice(&numaherd(&["topology", "lab-4x2", "--json"]).stdout).unwrap();
    assert_eq!(json["nodes"].as_array().map(Vec::len), Some(4));
}

#[test]
fn doctor_tells_each_signal_measured_or_why_not() {
    let output = numaherd(&["doctor", "--json"]);
    assert_code(&output, 0);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for signal in report["signals"].as_array().unwrap() {
        let named = match signal["state"].as_str() {
            Some("measured") => &signal["source"],
            Some("missing") => &signal["remedy"],
            other => panic!("{other:?} is no state of a signal"),
        };
        assert!(
            named.as_str().is_some_and(|text| !text.is_empty()),
            "{signal}"
        );
    }
    assert_code(&numaherd(&["doctor", "--root", "/nonexistent"]), 2);
}

#[test]
fn a_users_events_are_tried_and_a_wrong_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.toml");
    let right = "[[set]]\nname = \"my processor\"\neverywhere = true\nsource = \"its manual\"\n\
                 lines = [{ kernel = \"cache-misses\" }]\n[set.uncore]\nmissing = \"none\"\n\
                 remedy = \"another\"\n";
    fs::write(&own, right).unwrap();
    let own_events = ["--events", own.to_str().unwrap()];
    let output = numaherd(&[&["doctor"], own_events.as_slice()].concat());
    assert_code(&output, 0);
    assert!(
        out(&output).contains("Events of my processor"),
        "{}",
        out(&output)
    );

    fs::write(&own, right.replace("lines", "lanes")).unwrap();
    let configuration = folder.path().join("herd.toml");
    fs::write(&configuration, "events = \"own.toml\"\n").unwrap();
    let configured = ["--config", configuration.to_str().unwrap()];
    let dry = ["run", "--policy", "linux", "--dry-run", "--for", "1ms"];
    for arguments in [
        [&["doctor"], own_events.as_slice()].concat(),
        [dry.as_slice(), own_events.as_slice()].concat(),
        [dry.as_slice(), configured.as_slice()].concat(),
    ] {
        let output = numaherd(&arguments);
        assert_code(&output, 2);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            told.contains("own.toml:5") && told.contains("lanes"),
            "{told}"
        );
    }
}

#[test]
fn a_process_that_does_not_exist_is_named() {
    // Above the largest process number there can be.
    let output = numaherd(&["run", "--policy", "linux", "--dry-run", "--pid", "4194305"]);
    assert_code(&output, 2);
    assert!(err(&output).contains("4194305"), "{}", err(&output));
}

#[test]
fn a_selection_of_nobody_is_named_and_waited_for() {
    let options = [
        "run",
        "--policy",
        "linux",
        "--dry-run",
        "--for",
        "20ms",
        "--interval",
        "10ms",
    ];
    for (chosen, nobody) in [
        (
            ["--name", "no-such-program"],
            "no process has the name no-such-program so far",
        ),
        (
            ["--cgroup", "/no/such"],
            "no process is in the control group /no/such so far",
        ),
        (
            ["--user", "4000000000"],
            "no process is of user 4000000000 so far",
        ),
    ] {
        let output = numaherd(&[&options[..], &chosen].concat());
        assert_code(&output, 0);
        assert_eq!(err(&output).matches(nobody).count(), 1, "{}", err(&output));
    }
    let output = numaherd(&[&options[..], &["--", "sleep", "1"]].concat());
    assert!(!err(&output).contains("so far"), "{}", err(&output));
}

#[test]
fn cpus_and_nodes_that_the_machine_lacks_are_refused() {
    let options = ["run", "--policy", "linux", "--dry-run", "--for", "20ms"];
    for (limit, why) in [
        (
            ["--cpus", "0,60000"],
            "--cpus: this machine has no CPUs 60000; it has ",
        ),
        (
            ["--nodes", "60000"],
            "--nodes: this machine has no nodes 60000; it has ",
        ),
    ] {
        let output = numaherd(&[&options[..], &limit].concat());
        assert_code(&output, 2);
        assert!(err(&output).contains(why), "{}", err(&output));
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_file_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numaherd.toml");
    fs::write(&path, "[herd.limits]\npages_mib_per_seconds = 3\n").unwrap();
    let output = numaherd(&["run", "--config", path.to_str().unwrap(), "--", "true"]);
    assert_code(&output, 2);
    assert!(err(&output).contains("numaherd.toml"), "{}", err(&output));
    assert!(
        err(&output).contains("pages_mib_per_seconds"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_program_that_is_herded_passes_its_exit_code_on() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let journal = journal.to_str().unwrap();
    let run = |program: &[&str]| {
        let options = ["run", "--policy", "linux", "--journal", journal, "--"];
        numaherd(&[&options, program].concat())
    };
    assert_code(&run(&["sh", "-c", "exit 7"]), 7);
    assert_code(&run(&["sh", "-c", "kill -9 $$"]), 137);
    let output = run(&["/nonexistent/program"]);
    assert_code(&output, 2);
    assert!(
        err(&output).contains("/nonexistent/program"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_ledger_of_a_run_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (journal, ledger) = (path("journal"), path("ledger"));
    let options = [
        "run",
        "--policy",
        "linux",
        "--interval",
        "20ms",
        "--for",
        "60ms",
    ];
    let files = ["--journal", &journal, "--ledger", &ledger, "--pid"];
    let own = std::process::id().to_string();
    let output = numaherd(&[&options[..], &files[..], &[&own]].concat());
    assert_code(&output, 0);
    let output = numaherd(&["explain", &ledger]);
    assert_code(&output, 0);
    assert!(out(&output).contains("linux"), "{}", out(&output));
    let output = numaherd(&["explain", &ledger, "--json"]);
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());

    // Cut off in its last line, it is damaged: nobody writes it any more.
    let changed = path("changed");
    let mut bytes = fs::read(&ledger).unwrap();
    bytes.truncate(bytes.len() - 10);
    fs::write(&changed, &bytes).unwrap();
    for command in [
        &["explain"][..],
        &["top", "--once"],
        &["replay", "--policy", "linux"],
    ] {
        let output = numaherd(&[command, &[&changed]].concat());
        assert_code(&output, 8);
        assert!(!output.stdout.is_empty(), "what is whole is shown");
        assert!(err(&output).contains("cut off"), "{}", err(&output));
    }
    // While somebody holds it as a herd does, the line is not damage.
    let written = fs::File::open(&changed).unwrap();
    written.try_lock().unwrap();
    let output = numaherd(&["explain", &changed]);
    assert_code(&output, 0);
    let unended: Vec<_> = out(&output).split_whitespace().map(str::to_owned).collect();
    let unended = unended.join(" ");
    assert!(unended.contains("Its end is not recorded"), "{unended}");
    drop(written);
    // In any other line a change is damage.
    let second = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 20;
    bytes[second] ^= 1;
    fs::write(&changed, &bytes).unwrap();
    let output = numaherd(&["explain", &changed]);
    assert_code(&output, 8);
    assert!(out(&output).contains("DAMAGED"), "{}", out(&output));
    let output = numaherd(&["explain", "/proc/self/status"]);
    assert_code(&output, 2);
}

#[test]
fn nothing_to_release_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join("journal");
    let output = numaherd(&["release", "--journal", journal.to_str().unwrap()]);
    assert_code(&output, 0);
    assert!(
        out(&output).contains("Nothing to restore"),
        "{}",
        out(&output)
    );
}

#[test]
fn full_outputs_are_a_failure_and_no_panic() {
    for (command, code) in [
        (&["policies"][..], 1),
        (&["topology"], 1),
        (&["explain", "/dev/zero"], 2),
        (&["report", "/dev/zero", "--output", "-"], 2),
    ] {
        let full = || {
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
        };
        let status = Command::new(NUMAHERD)
            .args(command)
            .env("NUMAHERD_CONFIG", "none")
            .stdout(full())
            .stderr(full())
            .status()
            .expect("the program can be started");
        assert_eq!(status.code(), Some(code), "{command:?}");
    }
}

/// Runs numaherd as a user without rights or a runtime directory. Only root can; nothing where he cannot
/// run the program.
fn as_nobody(arguments: &[&str]) -> Option<Output> {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let output = Command::new(NUMAHERD)
        .args(arguments)
        .env("NUMAHERD_CONFIG", "none")
        .env_remove("XDG_RUNTIME_DIR")
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    output.ok()
}

#[test]
fn an_ordinary_user_is_refused_others_threads_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let journal = folder.path().join("journal");
    let run = |selection: [&str; 2]| {
        let journal = journal.to_str().unwrap();
        let policy = ["run", "--policy", "linux", "--journal", journal];
        as_nobody(&[&policy[..], &selection].concat())
    };
    for (selection, said) in [
        (["--pid", "1"], "process 1 is of another user"),
        (
            ["--user", "root"],
            "the processes of root are of another user",
        ),
    ] {
        let Some(output) = run(selection) else { return };
        assert_code(&output, 4);
        assert!(err(&output).contains(said), "{}", err(&output));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_configuration_that_the_user_may_not_read_is_a_matter_of_permission() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("numaherd.toml");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [&["config", "check", file][..], &["run", "--config", file]] {
        let Some(output) = as_nobody(arguments) else {
            return;
        };
        assert_code(&output, 4);
        assert!(
            err(&output).contains("run as root or as its owner"),
            "{}",
            err(&output)
        );
    }
}

#[test]
fn a_user_without_a_runtime_directory_is_told_of_journal() {
    let run = ["run", "--policy", "linux", "--", "true"];
    let Some(output) = as_nobody(&run) else {
        return;
    };
    assert_code(&output, 4);
    assert!(
        err(&output).contains("; --journal FILE, or"),
        "{}",
        err(&output)
    );
}
