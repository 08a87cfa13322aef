//! `numaherd trace` as a person meets it: from another tool's text to figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn numaherd(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the program can be started")
}

fn out(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What valgrind prints of a program that goes through 64 pages, twice over each line.
fn lackey() -> String {
    let mut text = "==77== Lackey, an example Valgrind tool\n==77== Command: ./sweep\n".to_owned();
    for line in 0..64 * 64 {
        let address = 0x1000_0000 + 64 * line;
        text.push_str(&format!(
            "I  00401000,4\n L {address:x},8\nI  00401004,4\n S {address:x},8\n"
        ));
    }
    text.push_str("the program says hello\n==77== Exit code:       0\n");
    text
}

fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(folder.path().join("text"), text).expect("it can be written");
    let path = folder.path().to_owned();
    (folder, path)
}

#[test]
fn a_text_becomes_a_trace_with_figures() {
    let (_kept, folder) = folder(&lackey());
    let imported = out(&numaherd(
        &["trace", "import", "text", "-o", "x.trace"],
        &folder,
    ));
    let info = out(&numaherd(&["trace", "info", "x.trace"], &folder));
    insta::assert_snapshot!("import-and-info", format!("{imported}\n{info}"));
    // The same figures without a file in between, but for the file's name.
    let direct = out(&numaherd(&["trace", "info", "text"], &folder));
    assert_eq!(
        direct.split_once(": ").map(|(_, rest)| rest),
        info.split_once(": ").map(|(_, rest)| rest)
    );
}

#[test]
fn a_text_is_read_from_standard_input() {
    let (_kept, folder) = folder(&lackey());
    let status = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(["trace", "import", "-", "-o", "x.trace", "--json"])
        .current_dir(&folder)
        .stdin(fs::File::open(folder.join("text")).expect("it was written"))
        .stdout(Stdio::piped())
        .output()
        .expect("the program can be started");
    let imported: serde_json::Value = serde_json::from_str(&out(&status)).expect("it is JSON");
    assert_eq!(
        (&imported["events"], &imported["bad_lines"]),
        (&8192.into(), &1.into())
    );
}

#[test]
fn saved_remote_accesses_are_a_table_a_file_and_a_chart() {
    let (_kept, folder) = folder(&lackey());
    let sra = [
        "trace", "sra", "text", "-k", "1,8", "--one-in", "1,64", "--csv", "x.csv", "--svg", "x.svg",
    ];
    insta::assert_snapshot!("sra", out(&numaherd(&sra, &folder)));
    let csv = fs::read_to_string(folder.join("x.csv")).expect("it was written");
    assert_eq!(csv.lines().count(), 1 + 4 * 2 * 2);
    let svg = fs::read_to_string(folder.join("x.svg")).expect("it was written");
    assert!(
        svg.starts_with("<svg") && svg.contains("one in 64 sampled"),
        "{svg}"
    );
    let machine = [
        "trace",
        "sra",
        "text",
        "--machine",
        "lab-4x2",
        "-k",
        "8",
        "--one-in",
        "64",
        "--json",
    ];
    let json: serde_json::Value =
        serde_json::from_str(&out(&numaherd(&machine, &folder))).expect("it is JSON");
    assert_eq!(json["remote"], 4096);
    assert_eq!(json["cells"].as_array().map(Vec::len), Some(4));
}

#[test]
fn what_is_no_trace_is_refused_and_nothing_is_left_behind() {
    let (_kept, folder) = folder("lorem ipsum\n");
    for arguments in [
        &["trace", "info", "text"][..],
        &["trace", "import", "text", "-o", "x.trace"],
        &["trace", "info", "missing"],
        &["trace", "sra", "text", "-k", "0"],
    ] {
        let refused = numaherd(arguments, &folder);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
    }
    assert!(!folder.join("x.trace").exists());
    let told = numaherd(&["trace", "info", "text"], &folder);
    let told = String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("valgrind --tool=lackey"), "{told}");
}
