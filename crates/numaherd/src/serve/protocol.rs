//! The protocol of the control socket: one JSON object a line in, one out. Self-contained, so that the fuzzer reads
//! it as the server does. Documented in `docs/serve.md`.

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Longest request in bytes, its line feed among them.
pub const MOST_REQUEST: usize = 4096;

/// A request; also the subcommands of `numaherd ctl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Subcommand)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Show what the herd does and the state of the machine
    Status,
    /// Stop all decisions; threads stay where they are
    Pause {
        /// Also restore the original affinities
        #[arg(long)]
        #[serde(default)]
        give_back: bool,
    },
    /// Resume decisions after a pause
    Resume,
    /// Switch to another policy
    Policy {
        /// The name of the policy (see `numaherd policies`)
        name: String,
    },
    /// Reload the configuration; a faulty one changes nothing
    Reload,
    /// Print what happens as it happens, until interrupted
    Watch,
    /// Which program answers.
    #[command(skip)]
    Version,
}

/// The requests, with the key that each may have, and a description of its value.
const WORDS: [(&str, Option<(&str, &str)>); 7] = [
    ("status", None),
    ("pause", Some(("give_back", "true or false"))),
    ("resume", None),
    ("policy", Some(("name", "a policy's name"))),
    ("reload", None),
    ("watch", None),
    ("version", None),
];

/// Reads a request from a line, its line feed left out.
///
/// # Errors
/// Why it is not a request, as a sentence for its sender.
pub fn parse(line: &[u8]) -> Result<Request, String> {
    if line.len() >= MOST_REQUEST {
        return Err(format!("a request has at most {MOST_REQUEST} bytes"));
    }
    let wrong = "a request is one JSON object, for instance {\"do\":\"status\"}";
    let object: Map<String, Value> = match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(wrong.to_owned()),
        Err(error) => return Err(format!("{wrong}: {error}")),
    };
    let word = match object.get("do") {
        Some(Value::String(word)) => word.as_str(),
        Some(_) => return Err("`do` is a word, for instance \"status\"".to_owned()),
        None => return Err(format!("`do` is missing; it is one of {}", words())),
    };
    let Some((word, key)) = WORDS.into_iter().find(|(known, _)| *known == word) else {
        let known = WORDS.into_iter().map(|(known, _)| known);
        return Err(format!(
            "there is nothing called {}{}; `do` is one of {}",
            shown(word),
            instead(word, known),
            words()
        ));
    };
    let may = key.map(|(key, _)| key);
    let known = || may.into_iter().chain(["do"]);
    if let Some(key) = object
        .keys()
        .find(|key| !known().any(|known| known == *key))
    {
        let (key, instead) = (shown(key), instead(key, known()));
        return Err(format!("{word} has no key {key}{instead}"));
    }
    let is_given = may.is_some_and(|key| object.contains_key(key));
    serde_json::from_value(Value::Object(object)).map_err(|_| match key {
        Some((key, value)) if is_given => format!("`{key}` is {value}"),
        Some((key, value)) => format!("{word} needs a `{key}`: {value}"),
        None => wrong.to_owned(),
    })
}

/// A request as a line, its line feed included.
pub fn line(request: &Request) -> String {
    format!("{}\n", json!(request))
}

/// An answer that says what was wrong, as a line.
pub fn refused(why: &str) -> String {
    format!("{}\n", json!({"ok": false, "error": why}))
}

fn words() -> String {
    WORDS.map(|(word, _)| word).join(", ")
}

/// A word from a request, shortened, and quoted so that nothing in it acts on a terminal.
fn shown(word: &str) -> String {
    let mut letters = word.chars();
    let mut cut: String = letters.by_ref().take(30).collect();
    if letters.next().is_some() {
        cut.push('…');
    }
    format!("{cut:?}")
}

/// `; did you mean "pause"?` where a known word is near.
fn instead<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    match numaherd_files::nearest(word, known).first() {
        Some(nearest) => format!("; did you mean {nearest:?}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn why(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let name = "dino+whole-set".to_owned();
        for request in [
            Request::Status,
            Request::Pause { give_back: false },
            Request::Pause { give_back: true },
            Request::Resume,
            Request::Policy { name },
            Request::Reload,
            Request::Watch,
            Request::Version,
        ] {
            assert_eq!(parse(line(&request).trim_end().as_bytes()), Ok(request));
        }
        let pause = Request::Pause { give_back: false };
        assert_eq!(parse(b" {\"do\" : \"pause\"} "), Ok(pause));
    }

    #[test]
    fn what_is_unknown_is_refused_with_what_is_near() {
        assert_eq!(
            why(r#"{"do":"puase"}"#),
            "there is nothing called \"puase\"; did you mean \"pause\"?; `do` is one of status, \
             pause, resume, policy, reload, watch, version"
        );
        assert_eq!(
            why(r#"{"do":"pause","giveback":true}"#),
            "pause has no key \"giveback\"; did you mean \"give_back\"?"
        );
        assert_eq!(
            why(r#"{"do":"status","\u001b[2J":1}"#),
            "status has no key \"\\u{1b}[2J\""
        );
        assert!(why("{}").starts_with("`do` is missing"));
        assert!(why(r#"{"do":7}"#).starts_with("`do` is a word"));
        assert!(why(r#"{"do":"policy"}"#).starts_with("policy needs a `name`"));
        assert!(why("[]").starts_with("a request is one JSON object"));
        let text = format!("{:?}", "x".repeat(4000));
        assert_eq!(why(&text), why("7"));
        assert!(why(&"[".repeat(4000)).starts_with("a request is one JSON object"));
        assert!(why(&" ".repeat(MOST_REQUEST)).starts_with("a request has at most"));
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_answered_with_one_line(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Err(why) = parse(&bytes) {
                prop_assert_eq!(refused(&why).matches('\n').count(), 1);
            }
        }

        #[test]
        fn words_of_any_length_are_refused(word in "\\PC{0,300}", key in "\\PC{0,60}") {
            let line = json!({"do": word, key: 1}).to_string();
            if let Err(why) = parse(line.as_bytes()) {
                prop_assert!(why.len() < 1000);
            }
        }
    }
}
