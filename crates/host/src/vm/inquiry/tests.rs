use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::*;

const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;

/// Threads of this process for a monitor to report; they end with the value.
struct Crew {
    tids: Vec<u32>,
    ends: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl Crew {
    fn of(count: usize) -> Self {
        let mut crew = Self {
            tids: Vec::new(),
            ends: Vec::new(),
        };
        for _ in 0..count {
            let (began, begun) = channel();
            let (end, ended) = channel();
            let thread = std::thread::spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                began.send(tid.unsigned_abs()).unwrap();
                let _ = ended.recv();
            });
            crew.tids.push(begun.recv().unwrap());
            crew.ends.push((end, thread));
        }
        crew
    }

    fn cpus(&self) -> String {
        let cpus = self.tids.iter().enumerate();
        let cpus = cpus.map(|(i, tid)| format!("{{\"cpu-index\":{i},\"thread-id\":{tid}}}"));
        format!("[{}]", cpus.collect::<Vec<_>>().join(","))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (end, thread) in self.ends.drain(..) {
            drop(end);
            thread.join().unwrap();
        }
    }
}

/// What a monitor answers: the text for a question, or nothing but the end.
type Script = fn(&str, &Crew) -> Option<String>;

/// As a well-behaved QEMU does.
fn honest(question: &str, crew: &Crew) -> Option<String> {
    Some(match question {
        "query-cpus-fast" => crew.cpus(),
        "query-memory-size-summary" => r#"{"base-memory":1024,"plugged-memory":512}"#.into(),
        "query-memory-devices" => r#"[{"type":"dimm","data":{"size":512}}]"#.into(),
        "query-memdev" => {
            r#"[{"id":"ram","size":1024,"share":true,"host-nodes":[1],"policy":"bind"}]"#.into()
        }
        "query-name" => r#"{"name":"web"}"#.into(),
        "query-status" => r#"{"status":"postmigrate","running":false}"#.into(),
        _ => "{}".into(),
    })
}

/// A monitor in this process, and an inquiry at it.
fn asked(process: ProcessId, answers: Script) -> Result<Answers, Unheard> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let crew = Crew::of(3);
    std::thread::scope(|scope| {
        let crew = &crew;
        scope.spawn(move || serve(listener.accept().unwrap().0, answers, crew));
        let inquiry = Inquiry {
            process,
            monitor: path,
            // The test is not about this machine's speed.
            patience: Duration::from_secs(60),
        };
        let told = inquiry.run(&Root::new(Path::new("/")));
        if let Ok(told) = &told {
            let tids: Vec<u32> = told.vcpus.iter().map(|vcpu| vcpu.thread.tid).collect();
            assert_eq!(tids, crew.tids);
        }
        told
    })
}

/// Serves until the other side is gone.
fn serve(stream: UnixStream, answers: Script, crew: &Crew) {
    use std::io::BufRead;
    let mut out = &stream;
    // Who has gone hears nothing.
    let _ = writeln!(out, "{GREETING}");
    for line in io::BufReader::new(&stream).lines().map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let answer = answers(asked["execute"].as_str().unwrap(), crew);
        let Some(answer) = answer else {
            return;
        };
        let _ = writeln!(out, r#"{{"return":{answer},"id":{}}}"#, asked["id"]);
    }
}

/// This process, as a machine.
fn own() -> ProcessId {
    let pid = std::process::id();
    let root = Root::new(Path::new("/"));
    let born = thread_of(&root, pid, pid).unwrap().born;
    ProcessId { pid, born }
}

fn lie(answers: Script) -> String {
    match asked(own(), answers) {
        Err(lie) if matches!(lie.why, NoAnswer::Impossible(_)) => lie.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_monitor_is_asked_for_all_that_it_knows() {
    let told = asked(own(), honest).unwrap();
    assert_eq!(told.memory_bytes, Some(1536));
    assert_eq!(told.name.as_deref(), Some("web"));
    assert_eq!(told.notes.len(), 2, "{:?}", told.notes);
    assert!(told.notes[0].contains("nodes [1] (policy bind)"));
    assert!(told.notes[1].contains("gone to another host"));
}

#[test]
fn a_monitor_that_never_greets_is_given_up_after_the_inquirys_own_patience() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    // The kernel takes the connection; no process does.
    let _listener = UnixListener::bind(&path).unwrap();
    let inquiry = Inquiry {
        process: own(),
        monitor: path,
        patience: Duration::from_millis(40),
    };
    let error = inquiry.run(&Root::new(Path::new("/"))).unwrap_err();
    let expected = "at its greeting: it did not answer within 40 ms: it is serving another program";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(PATIENCE <= Duration::from_secs(1));
}

#[test]
fn a_monitor_that_closes_half_way_is_told_with_what_it_was_asked() {
    let error = asked(own(), |question, crew| match question {
        "query-memdev" => None,
        _ => honest(question, crew),
    });
    let error = error.unwrap_err().to_string();
    let expected = "failed at query-memdev: it closed the connection instead";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_thread_of_another_process_is_a_lie() {
    let foreign = lie(|question, crew| match question {
        "query-cpus-fast" => Some(r#"[{"cpu-index":0,"thread-id":1}]"#.into()),
        _ => honest(question, crew),
    });
    let expected = "gave an impossible answer to query-cpus-fast: the thread 1 of vCPU 0 is not a \
                    thread of this process; it is not queried again";
    assert!(foreign.contains(expected), "{foreign}");
}

#[test]
fn the_first_thread_runs_no_vcpu() {
    let first = lie(|question, crew| match question {
        "query-cpus-fast" => {
            let pid = std::process::id();
            Some(format!(r#"[{{"cpu-index":4,"thread-id":{pid}}}]"#))
        }
        _ => honest(question, crew),
    });
    assert!(first.contains("vCPU 4 is its first thread"), "{first}");
}

#[test]
fn what_cannot_be_is_a_lie_whatever_was_asked() {
    let twice = lie(|question, crew| match question {
        "query-cpus-fast" => Some(crew.cpus().replace("\"cpu-index\":1", "\"cpu-index\":0")),
        _ => honest(question, crew),
    });
    assert!(twice.contains("it names vCPU 0 twice"), "{twice}");
    let huge = lie(|question, crew| match question {
        "query-memory-size-summary" => Some(r#"{"base-memory":1e300,"plugged-memory":0}"#.into()),
        _ => honest(question, crew),
    });
    assert!(huge.contains("not as QEMU describes it"), "{huge}");
    let more = lie(|question, crew| match question {
        "query-memory-devices" => Some(r#"[{"data":{"size":4096}}]"#.into()),
        _ => honest(question, crew),
    });
    assert!(
        more.contains("devices of 4096 bytes in a machine of 1536"),
        "{more}"
    );
    let nothing = lie(|question, crew| match question {
        "query-status" => Some("[]".into()),
        _ => honest(question, crew),
    });
    assert!(nothing.contains("answer to query-status"), "{nothing}");
}

#[test]
fn a_process_that_has_ended_is_not_taken_for_its_successor() {
    let successor = ProcessId { born: 1, ..own() };
    let error = asked(successor, honest).unwrap_err().to_string();
    assert!(error.contains("the process has ended"), "{error}");
}

#[test]
fn anothers_socket_is_left_alone_whoever_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let ask = |monitor: &Path, pid: u32| {
        let process = ProcessId { pid, born: 1 };
        let root = Root::new(Path::new("/"));
        sockets::connect(&root, process, monitor)
            .unwrap_err()
            .to_string()
    };
    let own = std::process::id();
    let mut other = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let refused = ask(&path, other.id());
    drop(other.stdin.take());
    other.wait().unwrap();
    assert!(
        refused.contains(&format!("a socket of process {own}")),
        "{refused}"
    );
    let (mut taken, _) = listener.accept().unwrap();
    let mut said = Vec::new();
    taken.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"", "nothing was said to it");
    drop(listener);
    assert!(ask(&path, own).contains("nothing listens"));
    std::fs::write(folder.path().join("file"), "").unwrap();
    assert!(ask(&folder.path().join("file"), own).contains("not a socket"));
    assert!(ask(&folder.path().join("none"), own).contains("removed"));
}

#[test]
fn a_monitor_whose_queue_is_full_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than a socket's own name may be.
    let deep = folder.path().join("d".repeat(200));
    std::fs::create_dir(&deep).unwrap();
    let short = folder.path().join("qmp");
    let listener = UnixListener::bind(&short).unwrap();
    std::fs::rename(&short, deep.join("qmp")).unwrap();
    let root = Root::new(Path::new("/"));
    let connect = || sockets::connect(&root, own(), &deep.join("qmp"));
    let mut held = Vec::new();
    let refused = loop {
        match connect() {
            Ok(socket) => held.push(socket),
            Err(refused) => break refused.to_string(),
        }
    };
    assert!(refused.contains("others wait for it already"), "{refused}");
    drop(listener);
}

#[test]
fn numbers_of_threads_in_a_container_are_read_as_they_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, spaces: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("Name:\tq\nNSpid:\t{spaces}\nThreads:\t2\n")).unwrap();
    };
    write("proc/50/status", "50\t1");
    write("proc/50/task/50/status", "50\t1");
    write("proc/50/task/53/status", "53\t4");
    write("proc/60/status", "60");
    let root = Root::new(folder.path());
    let inside = Numbers::of(&root, 50);
    assert_eq!((inside.here(4), inside.here(53)), (Some(53), None));
    assert_eq!(Numbers::of(&root, 60).here(4), Some(4));
}
