//! Events and formats of PMUs as sysfs describes them (`event=0xcd,ldlat=3`, `config1:0-15`).
//!
//! The input's first line is an event's terms; each further line is a term and its format.
//!
//! Holds: no description makes the reader panic.
//!
//! Reader: crates/host/src/pmu.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::fs;

use numaherd_fuzz::temporary;
use numaherd_host::files;
use numaherd_host::pmu;

numaherd_fuzz::target!(|text: &str| {
    let directory = temporary();
    let device = directory.path().join("sys/bus/event_source/devices/p");
    for folder in ["events", "format"] {
        fs::create_dir_all(device.join(folder)).expect("a directory of our own can be made");
    }
    let write = |name: &str, contents: &str| {
        fs::write(device.join(name), contents).expect("a file of our own can be written");
    };
    let mut lines = text.lines();
    write("type", "7\n");
    write("events/e", lines.next().unwrap_or(""));
    for (term, format) in lines.take(16).filter_map(|line| line.split_once(' ')) {
        let sane = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !term.is_empty() && term.len() <= 40 && term.bytes().all(sane) {
            write(&format!("format/{term}"), format);
        }
    }
    let root = files::Root::new(directory.path());
    assert_eq!(pmu::Pmu::names(&root), ["p"]);
    let pmu = pmu::Pmu::find(&root, "p").expect("it has a type");
    if let Some(attribute) = pmu.event("e") {
        assert_eq!(attribute.kind, 7);
    }
});
