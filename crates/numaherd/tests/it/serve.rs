//! `numaherd serve` and `numaherd ctl` on this machine: a dry run that looks at one sleeping process, in a
//! directory of its own.

mod attack;
mod daemon;
mod memory;
mod privileges;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use self::daemon::{Daemon, ctl, json};
use serde_json::Value;

#[test]
fn it_shows_page_metrics_state_and_health() {
    let daemon = Daemon::start(&[]);
    daemon.await_snapshot();
    let page = daemon.get("/");
    assert_eq!(page.code, 200);
    assert!(page.body.starts_with("<!DOCTYPE html>") && page.body.contains("How to stop it"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(
        daemon.get("/style.css").header("content-type"),
        Some("text/css; charset=utf-8")
    );
    let metrics = daemon.get("/metrics");
    let kind = metrics.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(metrics.body.ends_with("# EOF\n"));
    assert!(metrics.body.contains("\nnumaherd_dry_run 1.0\n"));
    assert!(metrics.body.contains("policy=\"linux\""));
    let state = json(&daemon.get("/status").body);
    assert_eq!(state["status"]["policy"], "linux");
    assert_eq!(state["status"]["is_complete"], true);
    let health = daemon.get("/healthz");
    assert_eq!((health.code, health.body.as_str()), (200, "ok\n"));
}

#[test]
fn what_it_does_not_give_it_refuses() {
    let daemon = Daemon::start(&[]);
    assert_eq!(daemon.get("/nothing").code, 404);
    let ask = |text: &str| daemon.ask(text.as_bytes()).code;
    assert_eq!(ask("POST /status HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
    assert_eq!(ask("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
    assert_eq!(
        ask("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"),
        413
    );
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421);
    assert_eq!(ask("GET / HTTP/1.1\r\n\r\n"), 421);
    assert_eq!(
        ask("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"),
        421
    );
    let long = "x".repeat(100_000);
    assert_eq!(
        ask(&format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        431
    );
    assert_eq!(
        ask(&format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nA: {long}\r\n\r\n"
        )),
        431
    );
    let many = "A: b\r\n".repeat(200);
    assert_eq!(
        ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")),
        431
    );
    assert_eq!(ask("GET / HTTP/9.9\r\n\r\n"), 400);
}

#[test]
fn with_a_token_only_who_knows_it_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123\n").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let daemon = Daemon::start(&["--token-file", token.to_str().unwrap()]);
    let ask = |authorization: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: any.example\r\n{authorization}\r\n");
        daemon.ask(request.as_bytes()).code
    };
    assert_eq!(ask(""), 401);
    assert_eq!(ask("Authorization: Bearer 0123456789abcdef0124\r\n"), 401);
    assert_eq!(ask("Authorization: Bearer 0123456789abcdef0123\r\n"), 200);
    // The UNIX socket is for whom its file lets in.
    assert_eq!(daemon.get_unix("/metrics").code, 200);
}

#[test]
fn an_address_that_others_reach_needs_two_words_more() {
    let refused = daemon::refused(&["--listen", "0.0.0.0:0"]);
    assert!(
        refused.contains("--allow-remote with --token-file"),
        "{refused}"
    );
    let refused = daemon::refused(&["--listen", "0.0.0.0:0", "--allow-remote"]);
    assert!(refused.contains("--token-file"), "{refused}");
}

#[test]
fn ctl_asks_and_the_herd_obeys() {
    let daemon = Daemon::start(&[]);
    daemon.await_snapshot();
    let told = daemon.ctl(&["status"]);
    assert!(
        told.contains("linux on ") && told.contains("decides and carries nothing out"),
        "{told}"
    );
    assert_eq!(
        daemon.ctl(&["pause"]),
        "paused; threads stay where they are\n"
    );
    daemon.await_state("paused", &Value::Bool(true));
    let again = daemon.ctl_fails(&["pause"]);
    assert!(again.contains("the herd refused: "), "{again}");
    assert!(daemon.ctl(&["status"]).contains("is paused"));
    assert_eq!(daemon.ctl(&["resume"]), "resumed\n");
    daemon.await_state("paused", &Value::Bool(false));
    let policy = daemon.ctl(&["policy", "first-touch"]);
    assert_eq!(policy, "the policy is first-touch from now on\n");
    daemon.await_state("policy", &Value::String("first-touch".to_owned()));
    let unknown = daemon.ctl_fails(&["policy", "dyno"]);
    assert!(unknown.contains("dyno"), "{unknown}");
    // What a person asked for stays, though the configuration that is read again says otherwise.
    let reloaded = daemon.ctl(&["reload"]);
    assert!(
        reloaded.contains("nothing changed; a restart is needed for policy"),
        "{reloaded}"
    );
    let status = json(&daemon.ctl(&["status", "--json"]));
    assert_eq!(status["ok"], true);
    assert_eq!(status["status"]["policy"], "first-touch");
}

#[test]
fn another_policy_leaves_groups_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("numaherd.toml");
    let group = "[[group]]\nname = \"web\"\nnames = [\"nginx\"]\npolicy = \"homeward\"\n";
    std::fs::write(&config, group).unwrap();
    let config = config.to_str().unwrap().to_owned();
    let daemon = Daemon::start_in(directory, &["--config", &config]);
    daemon.await_state("policy", &Value::String("linux; web: homeward".to_owned()));
    assert_eq!(
        daemon.ctl(&["policy", "first-touch"]),
        "the policy is first-touch; web: homeward from now on\n"
    );
    let now = Value::String("first-touch; web: homeward".to_owned());
    daemon.await_state("policy", &now);
}

#[test]
fn the_socket_answers_line_by_line() {
    let daemon = Daemon::start(&[]);
    let stream = UnixStream::connect(daemon.control()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut ask = |request: &str| {
        (&stream).write_all(request.as_bytes()).unwrap();
        json(&lines.next().unwrap().unwrap())
    };
    assert_eq!(ask("{\"do\":\"version\"}\n")["ok"], true);
    let puase = ask("\n  \n{\"do\":\"puase\"}\n");
    assert!(
        puase["error"]
            .as_str()
            .unwrap()
            .contains("did you mean \"pause\"?")
    );
    assert!(
        ask("]\n")["error"]
            .as_str()
            .unwrap()
            .starts_with("a request is one JSON object")
    );
    assert_eq!(ask("{\"do\":\"version\"}\n")["ok"], true);
    let long = format!("{{\"do\":\"{}\"}}\n", "x".repeat(10_000));
    assert!(
        ask(&long)["error"]
            .as_str()
            .unwrap()
            .contains("at most 4096 bytes")
    );
}

#[test]
fn a_watcher_gets_a_ledger() {
    let daemon = Daemon::start(&[]);
    daemon.await_snapshot();
    let stream = UnixStream::connect(daemon.control()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    (&stream).write_all(b"{\"do\":\"watch\"}\n").unwrap();
    let from = BufReader::new(stream);
    let (mut watched, header) =
        numaherd_herd::ledger::Watched::begin(from, daemon.control()).unwrap();
    assert!(header.program.starts_with("numaherd "));
    let mut next = || watched.next().unwrap().unwrap().record;
    assert!(matches!(next(), numaherd_herd::Record::Start(start) if start.policy == "linux"));
    assert!(matches!(next(), numaherd_herd::Record::Snapshot(_)));
    // What comes then is new.
    next();
    daemon.stop();
    loop {
        match watched.next().unwrap() {
            Some(line) if matches!(line.record, numaherd_herd::Record::End(_)) => break,
            Some(_) => {}
            None => panic!("the end was not told"),
        }
    }
}

#[test]
fn one_serves_at_a_socket_and_a_dead_ones_is_taken_over() {
    let mut daemon = Daemon::start(&[]);
    let control = daemon.control().to_str().unwrap().to_owned();
    let refused = daemon::refused(&["--listen", "none", "--control", &control]);
    assert!(refused.contains("another numaherd serves at"), "{refused}");
    daemon.kill();
    assert!(daemon.control().exists(), "it had no time to take it away");
    let nobody = ctl(&["--socket", &control, "status"]);
    assert!(nobody.1.contains("no herd serves at"), "{}", nobody.1);
    let next = Daemon::start_in(daemon.into_directory(), &[]);
    next.await_snapshot();
    assert!(next.ctl(&["status"]).contains("linux on"));
}

#[test]
fn a_terminated_one_takes_its_sockets_away() {
    let daemon = Daemon::start(&[]);
    // Before it has begun a signal ends it as any program.
    daemon.await_snapshot();
    let directory = daemon.stop();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(
        !left
            .iter()
            .any(|entry| entry.as_ref().unwrap().path().extension() == Some("sock".as_ref())),
        "{left:?}"
    );
}
