//! `numaherd advise` on captured trees, called by its own name and by numad's, and beside the real
//! numad in a guest of four nodes (which needs the lab: `make setup`).

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use numaherd_lab_launcher::{Guest, KernelFiles, Options, machine};
use numaherd_testing::sysfs;
use numaherd_topology::{Machine, NodeSet};

const PROGRAM: &str = env!("CARGO_BIN_EXE_numaherd");

const GIB: u64 = 1 << 30;

/// A captured tree of four nodes, two CPUs each, as in a square: 0 and 3 are far from each other, as
/// are 1 and 2.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        let square = Machine::preset("lab-4x2").unwrap().topology().unwrap();
        sysfs::write(&square, tree.path()).unwrap();
        tree.busy([0; 8]);
        tree.free([2, 2, 2, 2]);
        tree
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Percent of the time that each CPU was busy.
    fn busy(&self, busy: [u64; 8]) {
        let mut text = "cpu  1 2 3 4 5 6 7 8 9 10\n".to_owned();
        for (cpu, busy) in busy.iter().enumerate() {
            writeln!(text, "cpu{cpu} {busy} 0 0 {} 0 0 0 0 0 0", 100 - busy).unwrap();
        }
        fs::write(self.path().join("proc/stat"), text).unwrap();
    }

    /// Free GiB of each node, half of it in old files.
    fn free(&self, free: [u64; 4]) {
        for (node, free) in free.iter().enumerate() {
            let path = format!("sys/devices/system/node/node{node}/meminfo");
            let half = free * GIB / 1024 / 2;
            let text = format!(
                "Node {node} MemTotal:  8388608 kB\nNode {node} MemFree:  {half} kB\n\
                 Node {node} Inactive(file):  {half} kB\n"
            );
            fs::write(self.path().join(path), text).unwrap();
        }
    }

    /// What this program may use.
    fn allow(&self, cpus: &str, nodes: &str) {
        fs::create_dir_all(self.path().join("proc/self")).unwrap();
        let text = format!("Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{nodes}\n");
        fs::write(self.path().join("proc/self/status"), text).unwrap();
    }

    fn call(&self, program: &Path, arguments: &[&str]) -> Output {
        Command::new(program)
            .args(arguments)
            .arg("--root")
            .arg(self.path())
            .output()
            .expect("the program can be started")
    }

    fn advise(&self, want: &str) -> String {
        let output = self.call(Path::new(PROGRAM), &["advise", "-w", want]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        shown(&output)
    }
}

/// Both streams, as they came.
fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_answer_is_a_list_of_nodes_and_nothing_else() {
    let tree = Tree::new();
    tree.free([1, 2, 3, 4]);
    assert_eq!(tree.advise("2"), "3\n");
    assert_eq!(tree.advise("2:4096"), "3\n");
    // 3 and 2, then 3 and 1, are neighbours.
    assert_eq!(tree.advise("4"), "2-3\n");
    tree.busy([0, 0, 0, 0, 100, 50, 0, 0]);
    assert_eq!(tree.advise("4"), "1,3\n");
    assert_eq!(tree.advise("2:9000"), "1-3\n");
}

#[test]
fn a_little_load_is_none() {
    let tree = Tree::new();
    tree.busy([10; 8]);
    assert_eq!(tree.advise("2"), "0\n");
    tree.busy([11; 8]);
    assert_eq!(tree.advise("2"), "0-1\n");
}

#[test]
fn what_is_too_much_for_all_nodes_is_answered_with_all_and_said() {
    let tree = Tree::new();
    tree.busy([0, 0, 0, 0, 0, 0, 0, 100]);
    insta::assert_snapshot!(tree.advise("8:10240"), @r"
    0-3
    numaherd: all nodes together lack 1.0 of 8 CPUs idle and 2048 of 10240 MiB of memory free; they are named all the same
    ");
}

#[test]
fn nodes_that_this_program_may_not_use_are_not_named() {
    let tree = Tree::new();
    tree.allow("0-3,6", "0-1,3");
    assert_eq!(tree.advise("2"), "0\n");
    assert_eq!(tree.advise("5"), "0-1,3\n");
    // Without its CPUs a node is only memory.
    tree.allow("0-3", "0-3");
    assert_eq!(tree.advise("1:6000"), "0-2\n");
    tree.allow("0-3", "9");
    let output = tree.call(Path::new(PROGRAM), &["advise", "-w", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown(&output).contains("see its cpuset"),
        "{}",
        shown(&output)
    );
}

#[test]
fn called_as_numad_it_answers_as_numad() {
    let tree = Tree::new();
    let folder = tempfile::tempdir().unwrap();
    let numad = folder.path().join("numad");
    symlink(PROGRAM, &numad).unwrap();
    for arguments in [&["-w", "3:1024"][..], &["-w3:1024"]] {
        assert_eq!(shown(&tree.call(&numad, arguments)), "0-1\n");
    }
    for arguments in [&["-V"][..], &["-i", "0"]] {
        let output = tree.call(&numad, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    }
    // What numad's daemon does is not done, and refused, as are mistakes: with numad's exit code.
    for arguments in [&["-i", "15"][..], &[], &["-w", "x"], &["-W", "2"], &["-h"]] {
        let output = tree.call(&numad, arguments);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn what_is_wanted_must_be_understood() {
    let tree = Tree::new();
    for wrong in ["0", "2:", "two", "-1", "2:5MiB"] {
        let output = tree.call(Path::new(PROGRAM), &["advise", &format!("-w={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", shown(&output));
        assert!(output.stdout.is_empty());
    }
}

/// numad counts a node that is busy by a hundredth as not quite enough for all of its CPUs, and so
/// names a node more now and then; with what else runs on the host, so may we.
#[test]
fn beside_the_real_numad_the_answer_is_of_the_same_form_and_size() {
    let shape = machine::shape(&Machine::preset("lab-4x2").unwrap(), Some(384)).unwrap();
    let files = KernelFiles::find(None).unwrap_or_else(|error| panic!("{error}"));
    let guest = Guest::start(&Options::new(shape, files)).unwrap_or_else(|error| panic!("{error}"));
    let script = format!(
        "for want in 1 5 8 9; do echo \"$want $(numad -w $want) $('{PROGRAM}' advise -w $want)\"; done"
    );
    let command = numaherd_lab_launcher::Command::inherited(["sh", "-c", &script]).unwrap();
    let output = guest
        .output(&command, None)
        .unwrap_or_else(|error| panic!("{error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<(usize, NodeSet, NodeSet)> = said
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [want, theirs, ours] = words[..] else {
                panic!("{line}: is numad installed (`make setup`)?");
            };
            let list = |text: &str| text.parse::<NodeSet>().unwrap();
            (want.parse().unwrap(), list(theirs), list(ours))
        })
        .collect();
    assert_eq!(answers.len(), 4, "{said}");
    for (want, theirs, ours) in answers {
        let least = want.div_ceil(2).min(4);
        assert!(
            (least..=least + 1).contains(&ours.len()),
            "for {want} CPUs:\n{said}"
        );
        assert!(
            (least..=4).contains(&theirs.len()),
            "for {want} CPUs:\n{said}"
        );
    }
}
