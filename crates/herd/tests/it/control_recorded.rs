//! What is asked of a running herd is recorded, and seen by whoever watches.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_herd::control::pair;
use numaherd_herd::ledger::{Ledger, Writer};
use numaherd_herd::{Herd, Line, Record, Request, Settings};
use tempfile::TempDir;

use crate::asking::{asked, change, fake};
use crate::fake::{everyone_to, policy};

static GO: AtomicBool = AtomicBool::new(false);

#[test]
fn every_watcher_sees_every_line_and_may_keep_it() {
    let (control, requests) = pair();
    control.tell(Request::Resume).unwrap();
    let mut world = fake();
    let (mut one, mut other) = (Vec::new(), Vec::<Arc<Line>>::new());
    Herd::new(&mut world, policy(everyone_to(5)))
        .watched(|line| one.push(line.clone()))
        .watched_by(Box::new(|line| other.push(line.clone())))
        .controlled(requests)
        .run(&GO)
        .unwrap();
    assert!(one.iter().eq(other.iter().map(|line| &**line)));
    assert!(one.len() > 8);
}

#[test]
fn what_was_asked_is_in_the_ledger_and_the_later_part_of_it_begins_with_what_holds() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ledger");
    let mut other = policy(everyone_to(2));
    other.name = "another".to_owned();
    let settings = Settings {
        seed: 7,
        ..Settings::default()
    };
    let (mut world, requests) = asked(
        fake(),
        vec![
            (1, change(Some(other), Some(settings))),
            (3, Request::Pause { give_back: false }),
        ],
    );
    world.ends_after = 120;
    let writer = Writer::create(&path, "the test", None, 32 * 1024).unwrap();
    let mut asked: Vec<Line> = Vec::new();
    Herd::new(&mut world, policy(everyone_to(5)))
        .ledger(writer)
        .watched(|line| {
            if matches!(line.record, Record::Control(_)) {
                asked.push(line.clone());
            }
        })
        .controlled(requests)
        .run(&GO)
        .unwrap();
    assert_eq!(asked.len(), 2);
    for line in &asked {
        let text = serde_json::to_string(line).unwrap();
        assert_eq!(&Line::read(text.as_bytes()).unwrap(), line);
    }
    // Beside the earlier part, it is read with it.
    let alone = directory.path().join("alone");
    std::fs::rename(&path, &alone).unwrap();
    let later = Ledger::read(&alone).unwrap();
    assert!(later.damage.is_none(), "{:?}", later.damage);
    let Record::Start(start) = &later.lines[0].record else {
        panic!("{:?}", later.lines[0])
    };
    assert!(later.lines[0].sequence > asked[1].sequence, "turned over");
    assert_eq!((start.policy.as_str(), start.seed), ("another", 7));
    assert!(start.paused);
}
