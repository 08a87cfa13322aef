//! `numaherd lab compare` with programs that know nothing of the lab. One boot for each test, little modelled time.
//!
//! Needs the lab (`make setup` and `make build`); without it the tests fail and say so.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// One trial on Linux as it is of a scenario with these programs, kept in a folder, and what `--json` holds of it.
fn compare(programs: &str, folder: &Path) -> (Output, Value) {
    let (file, json) = (folder.join("x.toml"), folder.join("x.json"));
    let head = "name = \"x\"\nabout = \"programs\"\nmachine = \"lab-4x2\"\n";
    fs::write(&file, format!("{head}{programs}")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(["lab", "compare", "--policies", "linux", "--repeat", "1"])
        .args(["--limit", "4m", "--json"])
        .arg(&json)
        .arg("--keep")
        .arg(folder.join("kept"))
        .arg(&file)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("the program can be started");
    let told = fs::read(&json).ok();
    let told = told.map(|text| serde_json::from_slice(&text).expect("--json writes JSON"));
    (output, told.unwrap_or_default())
}

/// The server's port is served by perl, as a user that every Debian has. The client's shell goes from CPU to CPU.
const SERVED: &str = r#"
[[program]]
name = "server"
user = "nobody"
setup = "sleep 1000 & [ $(id -un) = nobody ] && echo 7 >{dir}/figure"
command = '''exec perl -MIO::Socket::INET -e '
    $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 7001, Listen => 5) or die $!;
    $> == getpwnam "nobody" or die "as $>";
    while ($client = $server->accept) { open F, "<", $ARGV[0]; print $client <F>; close $client }
' {dir}/figure'''
ready = { port = 7001 }

[[program]]
name = "client"
command = '''
for cpu in 0 1 2 3 4 5 6 7; do taskset --cpu-list --pid $cpu $$ >/dev/null; done
perl -MIO::Socket::INET -e '$_ = IO::Socket::INET->new("127.0.0.1:7001")->getline; print "figure: $_"' '''
measure = { output = 'figure: ([0-9]+)', unit = "points", better = "higher" }
"#;

#[test]
fn a_server_is_set_up_and_waited_for_and_its_client_gives_the_figure() {
    let folder = tempfile::tempdir().unwrap();
    let (output, told) = compare(SERVED, folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        table.contains(" policy  mean points  ± points  worst points  trials "),
        "{table}"
    );
    let line = table.lines().find(|line| line.starts_with(" linux "));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(figure, Some("7.00"), "{table}");
    assert_eq!(told["summaries"][0]["unit"], "points", "{told}");
    let programs = told["trials"][0]["programs"].as_array().expect("programs");
    let measured = programs.iter().map(|program| program["measured"].as_bool());
    assert!(measured.eq([Some(false), Some(true)]), "{told}");
    let moves = programs
        .iter()
        .map(|program| program["thread_moves"].as_u64());
    let moves: Option<Vec<u64>> = moves.collect();
    let moves = moves.expect("the moves of all programs are counted");
    // It was on one of the CPUs at first.
    assert!(moves[1] >= 7, "{told}");
    // What was kept is not made again, and gives the same.
    assert!(said.contains("linux: 7.00 points ("), "{said}");
    let (again, _) = compare(SERVED, folder.path());
    assert_eq!(String::from_utf8_lossy(&again.stdout), table);
    assert!(!String::from_utf8_lossy(&again.stderr).contains("linux: "));
}

#[test]
fn who_forks_without_end_and_prints_without_end_is_ended_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let bomb = "[[program]]\nname = \"bomb\"\ncommand = \"yes & f() { f & f & wait; }; f\"\n";
    let (output, _) = compare(bomb, folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "linux, repeat 0: bomb 0 has more than 1024 processes and threads at once";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("no trial of x gave a figure"), "{said}");
}
