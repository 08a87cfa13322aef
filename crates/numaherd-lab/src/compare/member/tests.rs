//! Programs of a trial as processes of this machine, in cgroups that are mere files.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use numaherd_experiment::{Scenario, World};
use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

use super::super::cgroup::Cgroups;
use super::super::inside::wait;
use super::super::peer::Ground;
use super::*;
use crate::held::release;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A folder with the FIFO `go` for the programs of a trial.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    mkfifoat(CWD, folder.path().join("go"), Mode::from_raw_mode(0o600)).unwrap();
    folder
}

/// Does something with the first program of a scenario, called `p`, once that has started.
fn with<T>(
    lines: &str,
    limit: Duration,
    then: impl FnOnce(Member<'_>, &Path) -> Result<T>,
) -> Result<T> {
    let head = "name = \"x\"\nabout = \"\"\nmachine = \"lab-4x2\"\nuntil = { seconds = 60 }\n";
    // A client for a server.
    let client = match lines.contains("ready") && !lines.contains("measure") {
        true => "[[program]]\ncommand = \"ls\"\n",
        false => "",
    };
    let text = format!("{head}[[program]]\nname = \"p\"\n{lines}\n{client}");
    let scenario = Scenario::parse(&text, "x.toml", World::Lab).unwrap();
    let folder = folder();
    let cgroups = Cgroups::new(folder.path()).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let site = Site {
        cgroups: &cgroups,
        scratch: folder.path(),
        dir: folder.path().to_str().unwrap(),
        search_path: &path,
        limit,
    };
    let ground = Ground::default();
    let linux = Peer::of("linux", &ground).unwrap();
    let member = Member::start(&site, &linux, &scenario.programs[0], 0, 0)?;
    fs::write(
        member.cgroup().entrance().with_file_name("pids.events"),
        "max 0\n",
    )
    .unwrap();
    then(member, folder.path())
}

/// The error when the first program fails to start.
#[track_caller]
fn refused(lines: &str, limit: Duration, told: &str) {
    let error = with(lines, limit, |_, _| Ok(())).unwrap_err();
    assert_eq!(format!("{error:#}"), told, "{lines}");
}

/// The result of a program that ran to its end, or the error.
fn ran(lines: &str) -> Result<ProgramResult> {
    with(lines, LONG, |mut member, folder| {
        member.wait_until_held()?;
        let began = Instant::now();
        release(&folder.join("go"))?;
        let mut members = [member];
        wait(&mut members, None)?;
        let [member] = members;
        member.finish(began, Some(12.5))
    })
}

#[test]
fn a_setup_that_fails_or_does_not_end_is_told_with_what_it_printed() {
    refused(
        "command = \"ls\"\nsetup = \"echo all is well; echo no space >&2; exit 3\"",
        LONG,
        "the setup of p 0 ended with exit code 3; it printed:\nno space",
    );
    refused(
        "command = \"ls\"\nsetup = \"exec sleep 1000\"",
        Duration::ZERO,
        "the setup of p 0 had not ended after 0 s; it printed nothing",
    );
}

#[test]
fn a_server_that_never_gets_ready_is_told_with_what_it_was_waited_for() {
    let never = |ready: &str, told: &str| {
        let lines = format!("command = \"exec sleep 1000\"\nready = {{ {ready} }}");
        let told = format!("p 0 was not ready after 0 s{told}; it printed nothing");
        refused(&lines, Duration::ZERO, &told);
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    never(&format!("port = {port}"), &format!(" (port {port})"));
    never("file = \"/no/such/{copy}\"", " (file /no/such/0)");
    never("line = \"^up\"", " (a line that matches \"^up\")");
    never("seconds = 99.0", "");
}

#[test]
fn a_server_that_ends_instead_of_getting_ready_is_told() {
    refused(
        "command = \"echo bad option >&2; exit 4\"\nready = { line = \"up\" }",
        LONG,
        "p 0 ended with exit code 4 before it was ready (a line that matches \"up\"); it printed:\nbad option",
    );
    refused(
        "command = \"echo in the background\"\nready = { file = \"/no/such\" }",
        LONG,
        "p 0 ended before it was ready (file /no/such): start it so that it stays in the foreground; it printed:\n\
         in the background",
    );
}

#[test]
fn a_port_that_is_taken_is_told_before_its_server_starts() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let lines = format!("command = \"exec sleep 1000\"\nready = {{ port = {port} }}");
    let told = with(&lines, LONG, |_, _| Ok(())).unwrap_err().to_string();
    let expected = format!("port {port} of p 0 is taken before it starts: ");
    assert!(told.starts_with(&expected), "{told}");
}

#[test]
fn a_server_is_ready_by_a_line_a_file_or_a_time_and_ends_when_asked() {
    for lines in [
        "command = \"echo now up; exec sleep 1000\"\nready = { line = \"up$\" }",
        "command = \": >{dir}/there; exec sleep 1000\"\nready = { file = \"{dir}/there\" }",
        "command = \"exec sleep 1000\"\nready = { seconds = 0.0 }",
        // Its setup has made what it serves.
        "command = \"cat {dir}/made; exec sleep 1000\"\nsetup = \"echo up >{dir}/made\"\nready = { line = \"up\" }",
    ] {
        let result = with(lines, LONG, |member, _| {
            member.end();
            member.finish(Instant::now(), None)
        });
        let result = result.unwrap_or_else(|error| panic!("{lines}: {error:#}"));
        assert!(!result.measured && !result.complete, "{lines}");
    }
}

#[test]
fn what_is_measured_is_the_time_or_the_last_figure_or_the_counted_rate() {
    let figure = ran(
        "command = \"exec >&2; echo rate: 1; echo rate: 2.5\"\nmeasure = { output = 'rate: ([0-9.]+)', better = \"lower\" }",
    );
    let result = figure.unwrap();
    assert_eq!((result.figure, result.complete), (Some(2.5), true));
    let waits = ran(
        "command = 'f() { : >\"$3\"; read -r _ <\"$5\"; echo {\\\"complete\\\": true, \\\"seconds\\\": 1.5, \\\"threads\\\": []}; }; f'\nwaits = true",
    );
    let result = waits.unwrap();
    assert_eq!((result.seconds, result.thread_moves), (1.5, Some(0)));
    let counted = with(
        "command = \"exec sleep 1000\"\nready = { seconds = 0.0 }\nmeasure = { counter = \"echo 1 2 | cut -d' ' -f2\" }",
        LONG,
        |member, _| {
            assert_eq!(member.counter()?, Some(2.0));
            member.end();
            member.finish(Instant::now(), Some(12.5))
        },
    );
    assert_eq!(counted.unwrap().figure, Some(12.5));
}

#[test]
fn what_goes_wrong_with_a_measured_program_is_told() {
    let told = |lines: &str| format!("{:#}", ran(lines).unwrap_err());
    assert_eq!(
        told("command = \"echo no data >&2; exit 5\""),
        "p 0 ended with exit code 5; it printed:\nno data"
    );
    assert_eq!(
        told("command = \"kill -TERM $$\""),
        "p 0 was ended by signal 15; it printed nothing"
    );
    assert_eq!(
        told("command = \"echo fast\"\nmeasure = { output = \"rate\", better = \"higher\" }"),
        "nothing that p 0 printed matches \"rate\", its `measure`; it printed:\nfast"
    );
    assert_eq!(
        told(
            "command = \"echo rate 7\"\nmeasure = { output = \"rate [0-9]\", better = \"higher\" }"
        ),
        "what matches \"rate [0-9]\" in what p 0 printed is \"rate 7\", not a number: put ( ) around the number in \
         `measure`"
    );
    assert_eq!(
        told("command = [\"true\"]\nwaits = true\nmeasured = true"),
        "p 0 ended with exit code 0 before it was ready; it printed nothing"
    );
}

#[test]
fn what_goes_wrong_with_a_counter_is_told() {
    let within = |limit: Duration, counter: &str| {
        let lines = format!(
            "command = \"exec sleep 1000\"\nready = {{ seconds = 0.0 }}\nmeasure = {{ counter = \"{counter}\" }}"
        );
        let told = with(&lines, limit, |member, _| member.counter());
        format!("{:#}", told.unwrap_err())
    };
    let counter = |counter: &str| within(LONG, counter);
    assert_eq!(
        counter("echo no connection >&2; exit 1"),
        "the counter of p 0 ended with exit code 1: no connection"
    );
    assert!(
        counter("echo many")
            .starts_with("the counter of p 0 printed \"many\": it must print one number")
    );
    let without_end = "the counter of p 0 prints without end: it must print one number";
    assert_eq!(counter("exec yes"), without_end);
    assert_eq!(counter("exec yes >&2"), without_end);
    assert_eq!(
        within(Duration::from_millis(1), "exec sleep 1000"),
        "the counter of p 0 had not ended after 1ms"
    );
}

#[test]
fn who_ends_at_once_gives_nothing_to_compare() {
    let told = with("command = \"true\"", LONG, |mut member, folder| {
        member.wait_until_held()?;
        release(&folder.join("go"))?;
        let mut members = [member];
        wait(&mut members, None)?;
        let [member] = members;
        // It began when it had ended.
        member.finish(Instant::now(), None)
    });
    let told = told.unwrap_err().to_string();
    assert!(
        told.starts_with("p 0 ended after 0.0 ms, too soon to compare anything: "),
        "{told}"
    );
}

#[test]
fn who_has_not_ended_when_the_time_is_over_has_no_completion_time() {
    let told = with(
        "command = \"exec sleep 1000\"",
        LONG,
        |mut member, folder| {
            member.wait_until_held()?;
            release(&folder.join("go"))?;
            let mut members = [member];
            wait(&mut members, Some(Instant::now()))?;
            members.iter().for_each(Member::end);
            let [member] = members;
            member.finish(Instant::now(), None)
        },
    );
    assert_eq!(
        told.unwrap_err().to_string(),
        "p 0 had not ended in time (`until`)"
    );
}

#[test]
fn who_forks_without_end_is_told_and_a_server_must_outlast_the_trial() {
    let lines = "command = \"exec sleep 1000\"\nready = { seconds = 0.0 }";
    let told = with(lines, LONG, |mut member, _| {
        let events = member.cgroup().entrance().with_file_name("pids.events");
        fs::write(events, "max 17\n").unwrap();
        member.look(Instant::now())
    });
    let expected =
        "p 0 has more than 1024 processes and threads at once, as many as the lab allows a program";
    assert_eq!(told.unwrap_err().to_string(), expected);
    let counted = format!("{lines}\nmeasure = {{ counter = \"echo 1\" }}");
    let told = with(&counted, LONG, |member, _| {
        member.end();
        wait(&mut [member], Some(Instant::now() + LONG))
    });
    assert_eq!(
        told.unwrap_err().to_string(),
        "p 0 was ended by signal 15 during the trial, which it should outlast; it printed nothing"
    );
}
