//! A line of the control socket of `numaherd serve`.
//!
//! Holds: no bytes make the reader panic; whatever is refused is answered with one line of JSON, of a few
//! hundred bytes, that says why; a request can be written and reads back the same.
//!
//! Reader: crates/numaherd/src/serve/protocol.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd::serve::protocol;

numaherd_fuzz::target!(|line: &[u8]| {
    match protocol::parse(line) {
        Ok(request) => {
            let written = protocol::line(&request);
            let (body, feed) = written.split_at(written.len() - 1);
            assert_eq!(feed, "\n");
            // A policy's name that only just fits need not fit once it is escaped.
            if written.len() < protocol::MOST_REQUEST {
                assert_eq!(protocol::parse(body.as_bytes()), Ok(request));
            }
        }
        Err(why) => {
            let answer = protocol::refused(&why);
            assert!(answer.len() < 1000, "{answer}");
            assert_eq!(answer.matches('\n').count(), 1);
            let value: serde_json::Value =
                serde_json::from_str(&answer).expect("an answer is JSON");
            assert_eq!(value["ok"], false);
        }
    }
});
