//! `numaherd report --fleet` and `--prometheus` as an operator meets them: directories of ledgers, some of them not
//! whole, and a Prometheus that answers, or does anything else.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;

use serde_json::{Value, json};

use crate::program::{assert_code, err, numaherd, out};

/// A ledger of a run that was recorded in the lab.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/devils.jsonl")
}

/// A directory with the ledgers of these hosts, each of which is `HOST/ledger.jsonl`.
fn hosts(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let host = folder.path().join(name);
        fs::create_dir(&host).unwrap();
        fs::copy(recorded(), host.join("ledger.jsonl")).unwrap();
    }
    folder
}

fn fleet(folder: &Path, more: &[&str]) -> Output {
    let folder = folder.to_str().unwrap();
    numaherd(&[&["report", "--fleet", folder], more].concat())
}

#[test]
fn a_directory_of_ledgers_is_a_fleet() {
    let folder = hosts(&["n1", "n2"]);
    fs::write(folder.path().join("notes.txt"), "milk, bread\n").unwrap();
    let output = fleet(folder.path(), &[]);
    assert_code(&output, 0);
    let told = out(&output);
    for said in [
        "2 hosts with 16 cores",
        "\nn1 ",
        "\nn2 ",
        "1 file in the directories without a ledger",
    ] {
        assert!(told.contains(said), "{said}\n{told}");
    }
    let output = fleet(folder.path(), &["--json"]);
    let fleet: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(
        (&fleet["schema"], &fleet["hosts"][0]["name"]),
        (&json!(1), &json!("n1"))
    );
}

#[test]
fn a_page_of_a_fleet_is_written_and_no_ledger_is_written_over() {
    let folder = hosts(&["n1"]);
    let page = folder.path().join("fleet.html");
    assert_code(&fleet(folder.path(), &["-o", page.to_str().unwrap()]), 0);
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .contains("<h2>Hosts</h2>")
    );
    let ledger = folder.path().join("n1/ledger.jsonl");
    assert_code(&fleet(folder.path(), &["-o", ledger.to_str().unwrap()]), 2);
    assert_eq!(fs::read(&ledger).unwrap(), fs::read(recorded()).unwrap());
}

#[test]
fn what_is_damaged_or_newer_is_named_and_the_rest_goes_on() {
    let folder = hosts(&["n1", "n2", "n3", "n4"]);
    let ledger = |host: &str| folder.path().join(host).join("ledger.jsonl");
    let text = fs::read_to_string(recorded()).unwrap();
    fs::write(
        ledger("n2"),
        text.replace("\"cpu_share\":", "\"cpu_shame\":"),
    )
    .unwrap();
    let newer = text.replacen("\"numaherd-ledger\":1", "\"numaherd-ledger\":99", 1);
    fs::write(ledger("n3"), newer).unwrap();
    fs::write(ledger("n4"), "").unwrap();
    let output = fleet(folder.path(), &[]);
    assert_code(&output, 8);
    let told = out(&output);
    assert!(told.contains("2 hosts"), "{told}");
    for (name, said) in [
        ("n2", "read up to the damage"),
        ("n3", "not read: "),
        ("other files", "1 file "),
    ] {
        let line = told
            .lines()
            .find(|line| line.trim_start().starts_with(name) && line.contains(said));
        assert!(line.is_some(), "{name}: {said}\n{told}");
    }
}

#[test]
fn where_nothing_can_be_read_there_is_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let output = fleet(folder.path(), &[]);
    assert_code(&output, 2);
    assert!(
        err(&output).contains("none of the files is a ledger"),
        "{}",
        err(&output)
    );
    assert_code(&numaherd(&["report", "--fleet", "/missing/ledger"]), 2);
}

#[test]
fn options_that_make_no_sense_together_are_refused() {
    for words in [
        &["report"][..],
        &["report", "a.ledger"],
        &["report", "a.ledger", "--json", "-o", "-"],
        &["report", "a.ledger", "--prometheus", "http://a"],
        &["report", "--prometheus", "http://a", "--over", "1s"],
        &["report", "--fleet", "a.ledger", "--over", "1h"],
        &["report", "--fleet", "a.ledger", "--json", "-o", "-"],
    ] {
        assert_code(&numaherd(words), 2);
    }
}

/// A server that does this with each request, whose path it is given; its address.
fn server(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = head.next() else {
                continue;
            };
            while head
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            answer(first.split(' ').nth(1).unwrap_or_default(), &mut stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    url
}

/// Writes an answer; whoever asked may be gone.
fn write(stream: &mut TcpStream, status: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + body).as_bytes());
}

/// What Prometheus answers to a query of a thousand hosts, every third of which lacks what is asked for, but for the
/// policy.
fn vector(path: &str) -> String {
    let is_policy = path.contains("numaherd_policy_info");
    let series =
        |labels: Value, value: f64| json!({"metric": labels, "value": [1.7e9, value.to_string()]});
    let of_host = |host: usize| {
        let instance = format!("n{host}:9741");
        let one = |label: &str, value: &str, figure: f64| {
            series(json!({"instance": instance, label: value}), figure)
        };
        let lost = host as f64 / 100.0;
        let estimates = |times: f64| {
            let figures = [("least", 0.5), ("mean", 1.0), ("most", 2.0)];
            figures
                .map(|(estimate, share)| one("estimate", estimate, lost * share * times))
                .to_vec()
        };
        if is_policy {
            vec![one("policy", "linux", 1.0)]
        } else if host.is_multiple_of(3) {
            vec![]
        } else if path.contains("numaherd_lost_cores%5B") {
            estimates(1.0)
        } else if path.contains("numaherd_recoverable_cores") {
            estimates(0.5)
        } else if path.contains("lost_cores_part") {
            vec![one("cause", "remote", lost)]
        } else if path.contains("basis_info") {
            vec![one("basis", "uncore", 1.0)]
        } else if path.contains("node_cpus") {
            vec![series(json!({"instance": instance}), 64.0)]
        } else {
            vec![]
        }
    };
    let mut result: Vec<Value> = (1..=1000).flat_map(of_host).collect();
    if path.contains("sum%20by%20%28group%29") {
        result = vec![series(json!({"group": "shop/cart"}), 12.5)];
    }
    json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
}

#[test]
fn a_prometheus_tells_of_a_thousand_hosts() {
    let url = server(|path, stream| write(stream, "200 OK", &vector(path)));
    let output = numaherd(&["report", "--prometheus", &url]);
    assert_code(&output, 0);
    let told = out(&output);
    for said in [
        "1,000 hosts",
        "over the last 1 h",
        "\nn1000:9741  64     10 (5 to 20)",
        "  333 hosts  a newer program",
        "a policy that places threads",
        "shop/cart",
        "and 980 more",
    ] {
        assert!(told.contains(said), "{said}\n{told}");
    }
}

/// What is said of a server that does this.
fn refused(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let output = numaherd(&["report", "--prometheus", &server(answer)]);
    assert_code(&output, 1);
    assert!(out(&output).is_empty(), "{}", out(&output));
    err(&output)
}

#[test]
fn whatever_is_at_the_address_there_is_one_sentence() {
    let empty =
        json!({"status": "success", "data": {"resultType": "vector", "result": []}}).to_string();
    let wrong = json!({"status": "error", "errorType": "execution", "error": "query timed out"})
        .to_string();
    let bodies = [
        ("200 OK", empty, "has no metrics of a numaherd"),
        (
            "422 Unprocessable Entity",
            wrong,
            "Prometheus says: query timed out",
        ),
        (
            "200 OK",
            "<html>".to_owned(),
            "the answer is not that of a Prometheus",
        ),
        (
            "401 Unauthorized",
            "go away".to_owned(),
            "it answered 401 Unauthorized",
        ),
        ("302 Found", String::new(), "it answered 302 Found"),
    ];
    for (status, body, why) in bodies {
        let told = refused(move |_, stream| write(stream, status, &body));
        assert!(told.contains(why), "{why}\n{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let told = refused(|_, stream| drop(stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")));
    assert!(told.contains("the answer is not HTTP"), "{told}");
    let told = refused(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        while stream.write_all(&[b'['; 1 << 16]).is_ok() {}
    });
    assert!(told.contains("the answer has more than 64 MiB"), "{told}");
}

#[test]
fn a_prometheus_that_is_down_or_no_address_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = numaherd(&["report", "--prometheus", &url]);
    assert_code(&output, 1);
    assert!(
        err(&output).contains("nothing listens there"),
        "{}",
        err(&output)
    );
    let output = numaherd(&["report", "--prometheus", "https://prometheus.example"]);
    assert!(
        err(&output).contains("is no http:// address"),
        "{}",
        err(&output)
    );
}
