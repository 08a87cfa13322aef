//! The Debian packages: what is in them, that they are built the same twice, that systemd takes the unit,
//! and a life of `numaherd` under a real systemd in the lab's guest: installed, started, reloaded, killed,
//! stopped, upgraded, downgraded, removed, purged.
//!
//! Needs what `make setup` installs (dpkg-dev, systemd, the lab); without it the tests fail and say so.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The laboratory; `numaherd` is beside it.
const LABORATORY: &str = env!("CARGO_BIN_EXE_numaherd-lab");

fn program() -> PathBuf {
    Path::new(LABORATORY).with_file_name("numaherd")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a command says on standard output; fails with all that it says when it fails.
#[track_caller]
fn said(command: &mut Command) -> String {
    let output = ended(command);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{told}");
    String::from_utf8(output.stdout).expect("what it says is UTF-8")
}

#[track_caller]
fn ended(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; does `make setup` install it?"))
}

/// Packages of the programs under test, quickly packed, in this folder.
struct Packages {
    numaherd: PathBuf,
    laboratory: PathBuf,
    numad: PathBuf,
}

/// The script, with the programs under test and these options.
fn package_script(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(root().join("scripts/package.sh"));
    command
        .args(options)
        .arg(folder)
        .env("PROGRAMS", program().parent().unwrap())
        .env("COMPRESSION", "none")
        .env_remove("SOURCE_DATE_EPOCH");
    command
}

fn packages(folder: &Path) -> Packages {
    let said = said(&mut package_script(folder, &[]));
    let paths: Vec<&str> = said.lines().collect();
    let [.., numad, laboratory, numaherd] = paths[..] else {
        panic!("not three packages' paths: {said}");
    };
    Packages {
        numaherd: numaherd.into(),
        laboratory: laboratory.into(),
        numad: numad.into(),
    }
}

/// Packages that several tests look at.
static PACKAGES: LazyLock<Packages> =
    LazyLock::new(|| packages(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages")));

/// The same package under another version, in this folder.
fn of_version(package: &Path, version: &str, folder: &Path) -> PathBuf {
    let (root, other) = (folder.join("other"), folder.join("other.deb"));
    let deb = || Command::new("dpkg-deb");
    said(deb().arg("--raw-extract").args([package, &root]));
    let control = root.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    let of_version = |line: &str| match line.starts_with("Version: ") {
        true => format!("Version: {version}\n"),
        false => format!("{line}\n"),
    };
    fs::write(&control, text.lines().map(of_version).collect::<String>()).unwrap();
    let build = ["--root-owner-group", "-Znone", "--build"];
    said(deb().args(build).args([&root, &other]));
    other
}

/// The files of a package, each of which is root's and nobody else's to write.
#[track_caller]
fn files(package: &Path) -> BTreeSet<String> {
    let list = said(Command::new("dpkg-deb").arg("--contents").arg(package));
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], "root/root", "{line}");
        let is_open = words[0].as_bytes()[8] == b'w';
        assert!(!is_open, "anybody may write {line}");
        words[5].to_owned()
    };
    list.lines().map(of_line).collect()
}

#[test]
fn packages_are_built_the_same_twice_and_have_what_they_should() {
    let folder = tempfile::tempdir().unwrap();
    let first = &*PACKAGES;
    let again = packages(&folder.path().join("again"));
    for (first, again) in [
        (&first.numaherd, &again.numaherd),
        (&first.laboratory, &again.laboratory),
        (&first.numad, &again.numad),
    ] {
        assert!(
            fs::read(first).unwrap() == fs::read(again).unwrap(),
            "two builds of the same program differ: {} {}",
            first.display(),
            again.display()
        );
    }
    let sums = ["--check", "--strict", "SHA256SUMS"];
    let summed = said(
        Command::new("sha256sum")
            .args(sums)
            .current_dir(folder.path().join("again")),
    );
    assert_eq!(
        summed
            .lines()
            .filter(|line| line.ends_with(".deb: OK"))
            .count(),
        3,
        "{summed}"
    );
    let (first, laboratory, numad) = (&first.numaherd, &first.laboratory, &first.numad);

    let list = said(Command::new("dpkg-deb").arg("--contents").arg(numad));
    assert!(list.contains("./usr/bin/numad -> numaherd\n"), "{list}");
    let control = said(Command::new("dpkg-deb").arg("--field").arg(numad));
    for line in ["Provides: numad", "Conflicts: numad", "Replaces: numad"] {
        assert!(control.lines().any(|said| said == line), "{control}");
    }

    let of_laboratory = files(laboratory);
    for file in [
        "./usr/bin/numaherd-lab",
        "./usr/share/man/man1/numaherd-lab-run.1.gz",
        "./usr/share/doc/numaherd-lab/copyright",
    ] {
        assert!(
            of_laboratory.contains(file),
            "{file} is missing: {of_laboratory:?}"
        );
    }
    let field = |name: &str| {
        said(
            Command::new("dpkg-deb")
                .arg("--field")
                .args([laboratory, Path::new(name)]),
        )
    };
    let version = field("Version");
    let same = format!("numaherd (= {})", version.trim());
    assert!(field("Depends").starts_with(&same), "{}", field("Depends"));

    let files = files(first);
    let clash: Vec<_> = files
        .intersection(&of_laboratory)
        .filter(|file| !file.ends_with('/'))
        .collect();
    assert!(clash.is_empty(), "in both packages: {clash:?}");
    for file in [
        "./usr/bin/numaherd",
        "./usr/lib/systemd/system/numaherd.service",
        "./usr/share/numaherd/slurm/numaherd-job",
        "./etc/numaherd/numaherd.toml",
        "./usr/share/man/man1/numaherd.1.gz",
        "./usr/share/bash-completion/completions/numaherd",
        "./usr/share/zsh/vendor-completions/_numaherd",
        "./usr/share/fish/vendor_completions.d/numaherd.fish",
        "./usr/share/doc/numaherd/copyright",
        "./usr/share/doc/numaherd/changelog.Debian.gz",
        "./usr/share/doc/numaherd/README.Debian",
        "./usr/share/doc/numaherd/docs/ledger.md",
    ] {
        assert!(files.contains(file), "{file} is missing: {files:?}");
    }

    let unpacked = folder.path().join("unpacked");
    said(
        Command::new("dpkg-deb")
            .arg("--raw-extract")
            .args([first, &unpacked]),
    );
    let control = |file: &str| fs::read_to_string(unpacked.join("DEBIAN").join(file)).unwrap();
    assert_eq!(control("conffiles"), "/etc/numaherd/numaherd.toml\n");
    assert!(
        control("control").contains("\nDepends: libc6 (>= "),
        "{}",
        control("control")
    );
    // The configuration that it is started with is one that it takes.
    let configuration = unpacked.join("etc/numaherd/numaherd.toml");
    let text = fs::read_to_string(&configuration).unwrap();
    assert!(
        text.contains("\nledger = \"/var/lib/numaherd/ledger.zst\""),
        "no ledger is kept:\n{text}"
    );
    said(
        Command::new(program())
            .args(["config", "check"])
            .arg(&configuration),
    );
    for script in ["postinst", "prerm", "postrm"] {
        said(
            Command::new("sh")
                .arg("-n")
                .arg(unpacked.join("DEBIAN").join(script)),
        );
    }
}

#[test]
fn what_signs_is_given_the_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let said = package_script(folder.path(), &[])
        .env("SIGN", "cp --suffix=.signed --backup=simple /dev/null")
        .output()
        .expect("the script can be started");
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let signed = fs::read_to_string(folder.path().join("SHA256SUMS.signed")).unwrap();
    assert!(signed.contains("numaherd_"), "{signed}");
}

#[test]
fn an_architecture_that_cannot_be_built_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |architecture: &str, path: &str| {
        let said = package_script(folder.path(), &["--arch", architecture])
            .env("PATH", path)
            .output()
            .expect("the script can be started");
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(told.lines().count(), 1, "{told}");
        (said.status.code(), told)
    };
    let path = std::env::var("PATH").unwrap();
    let (code, told) = refused("s390x", &path);
    assert!(
        code == Some(1) && told.contains("there is no cross build of s390x"),
        "{told}"
    );
    // The tools of a machine without a cross compiler.
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let here = [
        "bash",
        "basename",
        "dirname",
        "sed",
        "dpkg",
        "dpkg-deb",
        "dpkg-parsechangelog",
        "dpkg-shlibdeps",
    ];
    for tool in here.iter().chain(&["strip", "gzip"]) {
        let found = said(Command::new("sh").args(["-c", "command -v \"$0\"", tool]));
        std::os::unix::fs::symlink(found.trim(), tools.join(tool)).unwrap();
    }
    let (code, told) = refused("arm64", tools.to_str().unwrap());
    assert!(
        code == Some(5) && told.contains("scripts/setup.sh arm64"),
        "{code:?} {told}"
    );
}

/// Of 10, by systemd's own reckoning: what a service that sees all processes can come to.
const MOST_EXPOSURE: f64 = 2.5;

#[test]
fn systemd_takes_the_unit_and_finds_little_exposed() {
    let folder = tempfile::tempdir().unwrap();
    // The unit names the program where a package puts it; here it is where cargo does.
    let unit = fs::read_to_string(root().join("contrib/systemd/numaherd.service")).unwrap();
    let here = unit.replace("/usr/bin/numaherd", &program().to_string_lossy());
    // Its manual pages are not installed here.
    let here: String = here
        .lines()
        .filter(|line| !line.starts_with("Documentation="))
        .map(|line| format!("{line}\n"))
        .collect();
    let path = folder.path().join("numaherd.service");
    fs::write(&path, here).unwrap();
    let verified = ended(Command::new("systemd-analyze").arg("verify").arg(&path));
    let told = String::from_utf8_lossy(&verified.stderr);
    let about_it: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("numaherd"))
        .collect();
    assert!(about_it.is_empty(), "{told}");

    let told = said(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(&path),
    );
    let overall = told
        .lines()
        .find_map(|line| line.split_once("exposure level for numaherd.service: "))
        .unwrap_or_else(|| panic!("no overall exposure in:\n{told}"));
    let exposure: f64 = overall.1.split(' ').next().unwrap().parse().unwrap();
    assert!(exposure <= MOST_EXPOSURE, "exposure is {exposure}:\n{told}");
}

/// Runs a script under systemd in the lab's guest, and holds that it says these lines.
#[track_caller]
fn holds(script: &str, packages: &[(&str, &Path)], lines: &[&str]) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/package");
    let output = Command::new(LABORATORY)
        .args(["lab", "run", "--real-time", "--limit", "10m", "--", "sh"])
        .args([scripts.join("boot.sh"), scripts.join(script)])
        .envs(packages.iter().copied())
        .current_dir(root())
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{told}", output.status);
    for line in lines {
        assert!(
            told.lines().any(|told| told == *line),
            "missing {line:?} in:\n{told}"
        );
    }
}

#[test]
fn a_package_is_installed_started_killed_stopped_and_removed() {
    let lines = [
        "installed",
        "it is not switched on",
        "it is not started",
        "its configuration is right",
        "its pages are there",
        "with its rights the doctor finds what root finds",
        "it is at work",
        "it has three capabilities",
        "a busy program was placed",
        "its sockets are served without any",
        "systemctl status tells the policy",
        "ctl tells the policy",
        "a wrong configuration is survived",
        "a right one is taken over",
        "after kill -9 it starts again",
        "after kill -9 the affinity is as found",
        "release gives back after kill -9",
        "after stop the affinity is as found",
        "it stopped well",
        "no call that it needs is filtered",
        "a call that is filtered ends it",
        "removing it gives back",
        "removing it stops it",
        "its configuration stays",
        "purging leaves nothing",
    ];
    holds("installed.sh", &[("PACKAGE", &PACKAGES.numaherd)], &lines);
}

#[test]
fn an_upgrade_and_a_downgrade_with_a_running_herd_keep_its_promises() {
    let folder = tempfile::tempdir().unwrap();
    let package = &PACKAGES.numaherd;
    let newer = of_version(package, "99.0-1", folder.path());
    let lines = [
        "an upgrade replaces the package",
        "an upgrade restarts a running herd",
        "an upgrade gives back",
        "an upgrade keeps the configuration",
        "an upgrade leaves a stopped herd stopped",
        "a downgrade replaces the package",
        "a downgrade restarts a running herd",
        "a downgrade gives back",
        "a downgrade keeps the configuration",
        "a downgrade leaves a stopped herd stopped",
        "a later journal is refused",
    ];
    let packages = [("PACKAGE", package.as_path()), ("NEWER", newer.as_path())];
    holds("upgraded.sh", &packages, &lines);
}
