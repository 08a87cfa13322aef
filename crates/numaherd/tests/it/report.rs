//! `numaherd report` as a person meets it: from a run to a page, and what a browser makes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use numaherd_experiment::{OnModel, Settings, Trial};
use numaherd_herd::ledger::{Reader, Writer};
use numaherd_model::{Hardware, Job, Library, Until};
use numaherd_topology::{Machine, NodeId};

use crate::program::{assert_code, numaherd};

/// The ledgers of small runs on the model, one a policy.
fn ledgers(folder: &Path) -> Vec<PathBuf> {
    let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
    let programs = ["mcf", "milc", "povray", "gamess"]
        .into_iter()
        .zip([0, 1].into_iter().cycle());
    let jobs = programs.map(|(name, node)| {
        let program = Library::built_in().get(name).unwrap().clone();
        Job::new(program).homed(NodeId(node))
    });
    let jobs: Vec<Job> = jobs.collect();
    let ledger = |policy: &str| {
        let path = folder.join(format!("{policy}.0.ledger"));
        let on_model = OnModel {
            hardware: &hardware,
            jobs: &jobs,
            until: Until::Time(Duration::from_secs(6)),
            settings: &Settings::default(),
        };
        let trial = Trial {
            ledger: Some(path.clone()),
            ..Trial::of(policy)
        };
        on_model.run(&trial).unwrap();
        path
    };
    ["dino", "linux"].map(ledger).into()
}

fn report(ledgers: &[PathBuf], output: &str) -> Output {
    let ledgers = ledgers
        .iter()
        .map(|path| path.to_str().expect("a path that is text"));
    let arguments: Vec<&str> = ["report"]
        .into_iter()
        .chain(ledgers)
        .chain(["-o", output])
        .collect();
    numaherd(&arguments)
}

#[test]
fn ledgers_become_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let ledgers = ledgers(folder.path());
    let page = folder.path().join("page.html");
    assert_code(&report(&ledgers, page.to_str().unwrap()), 0);
    let html = fs::read_to_string(&page).unwrap();
    let sections = html.matches("<section id=\"run-").count();
    assert_eq!(sections, ledgers.len());
    assert!(
        html.contains("Compared") && html.contains("linux.0.ledger"),
        "{html}"
    );
    let printed = report(&ledgers, "-");
    assert_code(&printed, 0);
    assert_eq!(String::from_utf8_lossy(&printed.stdout), html);
}

/// Copies a ledger into one that is turned over on the way.
fn turned_over(ledger: &Path, copy: &Path) {
    let reader = Reader::open(ledger).unwrap();
    let header = reader.header().clone();
    let bytes = fs::metadata(ledger).unwrap().len();
    let mut writer =
        Writer::create(copy, &header.program, header.begun_unix_ms, bytes * 3 / 2).unwrap();
    for line in reader {
        writer.write(line.unwrap()).unwrap();
    }
    writer.flush().unwrap();
}

#[test]
fn a_ledger_that_was_turned_over_is_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledgers(folder.path()).swap_remove(0);
    let [copy, earlier] = ["copy", "copy.1"].map(|name| folder.path().join(name));
    turned_over(&ledger, &copy);
    assert!(earlier.exists());
    let page = |ledgers: &[PathBuf]| {
        let printed = report(ledgers, "-");
        assert_code(&printed, 0);
        String::from_utf8(printed.stdout).unwrap()
    };
    let whole = page(&[ledger]).replace("dino.0.ledger", "copy");
    assert_eq!(page(std::slice::from_ref(&copy)), whole);
    assert_eq!(page(&[earlier.clone(), copy.clone()]), whole);
    let refused = report(&[copy], earlier.to_str().unwrap());
    assert_code(&refused, 2);
}

#[test]
fn a_damaged_ledger_is_drawn_and_the_damage_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let ledgers = ledgers(folder.path());
    let mut bytes = fs::read(&ledgers[0]).unwrap();
    bytes.truncate(bytes.len() * 2 / 3);
    fs::write(&ledgers[0], bytes).unwrap();
    let output = report(&ledgers[..1], "-");
    assert_code(&output, 8);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("drawn up to the damage"), "{told}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Damaged ledger."));
}

#[test]
fn what_is_no_ledger_is_refused_and_the_page_that_was_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    fs::write(&notes, "milk, bread\n").unwrap();
    let page = folder.path().join("page.html");
    fs::write(&page, "the one before").unwrap();
    assert_code(&report(&[notes], page.to_str().unwrap()), 2);
    assert_eq!(fs::read_to_string(&page).unwrap(), "the one before");
}

/// Runs a browser without a window on a page; what it printed.
fn browser(folder: &Path, page: &Path, options: &[&str]) -> Output {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new("timeout")
        .args([
            "-k",
            "5",
            "120",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
        ])
        .args(["--enable-logging=stderr", &profile])
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("timeout can be started");
    assert_code(&output, 0);
    output
}

#[test]
#[ignore = "needs Chromium: cargo test -p numaherd --test it report -- --ignored"]
fn a_browser_shows_every_chart_in_light_and_dark_without_a_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let ledgers = ledgers(folder.path());
    let page = folder.path().join("page.html");
    assert_code(&report(&ledgers, page.to_str().unwrap()), 0);
    let html = fs::read_to_string(&page).unwrap();
    let read = browser(folder.path(), &page, &["--dump-dom"]);
    let complaints = String::from_utf8_lossy(&read.stderr);
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
    let dom = String::from_utf8_lossy(&read.stdout);
    assert!(html.matches("<figure").count() > 5);
    assert_eq!(
        dom.matches("<figure").count(),
        html.matches("<figure").count()
    );
    assert_eq!(dom.matches("<path").count(), html.matches("<path").count());
    let shot = |scheme: u32| {
        let picture = folder.path().join(format!("{scheme}.png"));
        let options = [
            format!("--screenshot={}", picture.display()),
            format!("--blink-settings=preferredColorScheme={scheme}"),
            "--window-size=1200,2000".to_owned(),
        ];
        browser(
            folder.path(),
            &page,
            &options.each_ref().map(String::as_str),
        );
        fs::read(picture).expect("a picture was taken")
    };
    let (dark, light) = (shot(0), shot(1));
    assert!(
        dark.len() > 10_000 && light.len() > 10_000,
        "the page is not empty"
    );
    assert_ne!(dark, light, "it follows the reader's scheme");
}
