//! `scripts/setup.sh packages` on machines made up from fake apt commands: which QEMU it installs,
//! and that it says so.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use numaherd_tests::root;

/// A release whose apt offers QEMU, with the suite that it takes it from where it is asked to.
struct Release {
    os: &'static str,
    codename: &'static str,
    candidate: &'static str,
    backports: Option<&'static str>,
}

fn command(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// What the script says, and what it had apt-get do.
fn set_up(release: &Release) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Release {
        os,
        codename,
        candidate,
        backports,
    } = release;
    let os_release = format!("ID={os}\nVERSION_CODENAME={codename}\n");
    std::fs::write(at("os-release"), os_release).unwrap();
    let commands = at("commands");
    std::fs::create_dir(&commands).unwrap();
    let log = at("log").display().to_string();
    command(&commands, "apt-get", &format!("echo \"$@\" >>{log}"));
    command(&commands, "sudo", "exec \"$@\"");
    command(&commands, "dpkg", "echo amd64");
    command(&commands, "dpkg-query", "echo install ok installed");
    command(
        &commands,
        "qemu-system-x86_64",
        "echo QEMU emulator version 7.2.0",
    );
    let newest = backports.unwrap_or(candidate);
    let of_suite = backports.map_or("exit 100".to_owned(), |version| {
        format!("echo '  Candidate: {version}'")
    });
    command(
        &commands,
        "apt-cache",
        &format!(
            "case \"$*\" in
             madison*) echo 'qemu-system-x86 | {newest} | a mirror'
                       echo 'qemu-system-x86 | {candidate} | a mirror' ;;
             '-o APT::Default-Release={codename}-backports policy qemu-system-x86') {of_suite} ;;
             'policy qemu-system-x86') echo '  Candidate: {candidate}' ;;
             *) exit 1 ;;
             esac"
        ),
    );
    let output = Command::new(root().join("scripts/setup.sh"))
        .arg("packages")
        .env("NUMAHERD_OS_RELEASE", at("os-release"))
        .env("PATH", format!("{}:/usr/bin:/bin", commands.display()))
        .output()
        .unwrap();
    let done = std::fs::read_to_string(at("log")).unwrap_or_default();
    (output, done)
}

#[test]
fn the_candidate_is_installed_though_backports_offer_a_newer_one() {
    let (output, done) = set_up(&Release {
        os: "debian",
        codename: "trixie",
        candidate: "1:10.0.13+ds-1",
        backports: Some("1:11.1.3+ds-1~bpo13+1"),
    });
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("setup: installing QEMU 1:10.0.13+ds-1\n"),
        "{said}"
    );
    assert!(!done.contains("Default-Release"), "{done}");
}

#[test]
fn backports_are_taken_where_the_candidate_is_too_old() {
    let (output, done) = set_up(&Release {
        os: "debian",
        codename: "bookworm",
        candidate: "1:7.2+dfsg-7",
        backports: Some("1:10.0.2+ds-2~bpo12+1"),
    });
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("setup: installing QEMU 1:10.0.2+ds-2~bpo12+1\n"),
        "{said}"
    );
    assert!(
        done.contains("-o APT::Default-Release=bookworm-backports qemu-system-x86\n"),
        "{done}"
    );
}

#[test]
fn a_release_with_an_old_qemu_alone_is_refused() {
    let (output, done) = set_up(&Release {
        os: "ubuntu",
        codename: "noble",
        candidate: "1:8.2.2+ds-0ubuntu1",
        backports: None,
    });
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("ubuntu noble offers 1:8.2.2+ds-0ubuntu1"),
        "{said}"
    );
    assert!(!done.contains("install"), "{done}");
}

/// Steps that are refused at once, on Ubuntu 24.04 that offers no clang.
#[test]
fn a_newer_linux_and_peers_are_named_and_need_what_the_release_must_offer() {
    let folder = tempfile::tempdir().unwrap();
    let release = folder.path().join("os-release");
    std::fs::write(&release, "ID=ubuntu\nVERSION_CODENAME=noble\n").unwrap();
    for (name, script) in [
        ("cargo", ""),
        ("apt-cache", ""),
        ("dpkg-query", ""),
        ("dpkg", "echo amd64"),
    ] {
        command(folder.path(), name, script);
    }
    let refused = |step: &[&str]| {
        let output = Command::new(root().join("scripts/setup.sh"))
            .args(step)
            .env("NUMAHERD_OS_RELEASE", &release)
            .env("NUMAHERD_LAB_DIR", folder.path().join("lab"))
            .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    for step in [&["linux"][..], &["linux", "../7.3"]] {
        let said = refused(step);
        assert!(
            said.contains("which Linux? For example: scripts/setup.sh linux 7.3"),
            "{said}"
        );
    }
    let said = refused(&["linux", "7.3"]);
    assert!(
        said.contains("Linux 7.3 comes from Debian's packages: this is ubuntu"),
        "{said}"
    );
    let said = refused(&["peers", "scx_rustty"]);
    assert!(
        said.contains("there is no peer scx_rustty; there are: scx_rusty@"),
        "{said}"
    );
    let said = refused(&["peers"]);
    assert!(
        said.contains("need clang 18 or newer, which ubuntu noble does not offer"),
        "{said}"
    );
    assert!(!folder.path().join("lab").exists());
}

#[test]
fn the_programs_are_installed_while_no_server_may_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("os-release"), "ID=debian\nVERSION_CODENAME=bookworm\n").unwrap();
    let (commands, log) = (at("commands"), at("log").display().to_string());
    std::fs::create_dir(&commands).unwrap();
    // Nothing is done to this machine.
    for name in ["apt-get", "rm", "update-rc.d"] {
        command(&commands, name, &format!("echo {name} \"$@\" >>{log}"));
    }
    // It reads what it installs, or whoever writes that is killed by SIGPIPE now and then.
    let install = format!("cat >/dev/null; echo install \"$@\" >>{log}");
    command(&commands, "install", &install);
    command(&commands, "sudo", "exec \"$@\"");
    command(&commands, "dpkg", "echo amd64");
    command(&commands, "javac", "");
    let lacking = "case \"$*\" in *redis-server | *postgresql) exit 1 ;; *) echo install ok installed ;; esac";
    command(&commands, "dpkg-query", lacking);
    let set_up = || {
        let output = Command::new(root().join("scripts/setup.sh"))
            .arg("programs")
            .env("NUMAHERD_OS_RELEASE", at("os-release"))
            .env("PATH", format!("{}:/usr/bin:/bin", commands.display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    set_up();
    let done = std::fs::read_to_string(&log).unwrap();
    let forbids = "createcluster.d/numaherd.conf";
    // In this order.
    let steps = [
        forbids,
        "apt-get install -qq -y --no-install-recommends postgresql redis-server\n",
        "rm -f ",
        forbids,
        "update-rc.d redis-server disable\n",
    ];
    let mut rest = done.as_str();
    for step in steps {
        let (_, after) = rest
            .split_once(step)
            .unwrap_or_else(|| panic!("{step}: {done}"));
        rest = after;
    }

    command(&commands, "dpkg-query", "echo install ok installed");
    std::fs::write(&log, "").unwrap();
    assert!(set_up().contains("are installed\n"));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "");
}
