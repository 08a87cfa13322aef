//! What `numaherd serve` shows of recordings that nobody vouches for: the state, the page, the metrics.
//!
//! The input is a ledger whose lines have no sums yet ([`sealed`] adds them).
//!
//! Holds: no recording makes any of them panic, wherever lines are lost; the page has the size of a page,
//! and its text is no markup; the metrics are whole, a sample a line; the state is JSON.
//!
//! Reader: crates/show/src/status.rs crates/show/src/metrics.rs crates/show/src/metrics crates/show/src/page.rs crates/show/src/page
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_fuzz::sealed;
use numaherd_herd::ledger::{Ledger, Reader};
use numaherd_show::metrics::{self, View};
use numaherd_show::page::page;
use numaherd_show::run::RunModel;
use numaherd_show::status;

numaherd_fuzz::target!(|recording: &[u8]| {
    let Ok(reader) = Reader::of_bytes(Path::new("fuzz.ledger"), sealed(recording)) else {
        return;
    };
    let mut run = RunModel::new();
    for line in Ledger::of(reader).lines {
        if line.sequence % 7 == 3 {
            run.lost(1);
        }
        run.take(&Arc::new(line));
    }
    let view = View {
        run: &run,
        serving: None,
    };
    let page = page(view, Some(Duration::from_secs(3)));
    assert!(page.ends_with("</html>") && page.len() < 2_000_000);
    assert!(!page.contains("<script") && !page.contains("<img"));
    let metrics = metrics::text(view);
    assert!(metrics.ends_with("# EOF\n"));
    let is_one = |line: &str| line.starts_with("# ") || line.starts_with("numaherd_");
    assert!(metrics.lines().all(is_one));
    assert!(!status::text(&run, None).contains(|c: char| c.is_control() && c != '\n'));
    serde_json::to_string(&run).expect("a status can be written");
});
