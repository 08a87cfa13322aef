//! What a report of a ledger of an hour costs: 200 threads of 25 processes, an interval a second, a
//! handful of moves a minute.
//!
//! Three are compared, in the same run, on the same file: reading it and doing nothing with it (the
//! least that any of them can take), the report of it, and `explain` of it. Printed besides the
//! times: report / reading, report / explain, and the size of the page.

mod hour;

use std::path::Path;

use std::sync::Arc;

use numaherd_herd::ledger::Reader;
use numaherd_show::explain::{self, Choice, text};
use numaherd_show::report::{Reading, page};

use hour::{SECONDS, THREADS, least, ms, write};

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hour.ledger");
    write(&path);
    let bytes = std::fs::metadata(&path).expect("the ledger").len();
    println!(
        "ledger: {THREADS} threads, {SECONDS} s, {} MB",
        bytes / 1_000_000
    );
    let reading = least(|| Reader::open(&path).expect("a ledger").count());
    let mut size = 0;
    let reporting = least(|| {
        let page = report(&path);
        size = page.len();
        page
    });
    let explaining = least(|| {
        let mut reader = Reader::open(&path).expect("a ledger");
        let mut reading = explain::Reading::new(reader.header(), Choice::default());
        for line in &mut reader {
            reading.line(&Arc::new(line.expect("a whole ledger")));
        }
        text(&reading.finish(0, None).expect("all of it"))
    });
    println!("read alone  {:>8.0} ms", ms(reading));
    println!(
        "report      {:>8.0} ms, a page of {} kB",
        ms(reporting),
        size / 1000
    );
    println!("explain     {:>8.0} ms", ms(explaining));
    println!(
        "report / read alone {:.2}, report / explain {:.2}",
        ms(reporting) / ms(reading),
        ms(reporting) / ms(explaining)
    );
}

fn report(path: &Path) -> String {
    let mut reader = Reader::open(path).expect("a ledger");
    let mut reading = Reading::new("hour.ledger", reader.header());
    for line in &mut reader {
        reading.line(&Arc::new(line.expect("a whole ledger")));
    }
    page(&[reading.finish(reader.skipped(), None)])
}
