//! What a Prometheus, or whatever is at its address, answers to the queries of `report --prometheus`.
//!
//! Holds: no answer makes the reader panic; each value is a number; of any answers, to whichever queries, text, page and
//! JSON can be made, and the text has no control characters.
//!
//! Reader: crates/show/src/fleet/prometheus.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::collections::BTreeMap;

use numaherd_show::fleet::prometheus::{Query, answer, fleet};
use numaherd_show::fleet::{page, text};

numaherd_fuzz::target!(|bytes: &[u8]| {
    // The first byte says for which queries it is the answer.
    let Some((&which, bytes)) = bytes.split_first() else {
        return;
    };
    let Ok(samples) = answer(bytes) else {
        return;
    };
    assert!(samples.iter().all(|sample| sample.value.is_finite()));
    let asked = Query::ALL.into_iter().enumerate();
    let asked = asked.filter(|(at, _)| which == 0 || which & (1 << (at % 8)) != 0);
    let answers: BTreeMap<_, _> = asked.map(|(_, query)| (query, samples.clone())).collect();
    let fleet = fleet("http://fuzz".to_owned(), &answers);
    assert!(!text(&fleet).contains(|c: char| c.is_control() && c != '\n'));
    let page = page(&fleet);
    assert!(page.ends_with("</html>") && !page.contains("<script"));
    serde_json::to_string(&fleet).expect("a fleet can be written");
});
