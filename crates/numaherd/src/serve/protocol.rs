//! What can be said on the control socket: one JSON object a line in, one out. Self-contained, so that
//! the fuzzer reads it as the server does. Told to people in `docs/serve.md`.

use serde_json::{Map, Value, json};

/// Longest request in bytes, its line feed among them.
pub const MOST_REQUEST: usize = 4096;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What the herd and its machine are like.
    Status,
    /// Decide nothing until resumed.
    Pause {
        /// Whether threads get the affinities back that they were found with.
        give_back: bool,
    },
    /// Go on.
    Resume,
    /// Go on by another policy.
    Policy {
        /// Its name.
        name: String,
    },
    /// Read the configuration again.
    Reload,
    /// Stream the ledger's lines.
    Watch,
    /// Which program answers.
    Version,
}

/// What can be asked, with what each may be told.
const WORDS: [(&str, &[&str]); 7] = [
    ("status", &[]),
    ("pause", &["give_back"]),
    ("resume", &[]),
    ("policy", &["name"]),
    ("reload", &[]),
    ("watch", &[]),
    ("version", &[]),
];

/// Reads a request from a line, its line feed left out.
///
/// # Errors
/// Why it is none, as a sentence for whoever sent it.
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
    let Some((word, may)) = WORDS.into_iter().find(|(known, _)| *known == word) else {
        let known = WORDS.into_iter().map(|(known, _)| known);
        return Err(format!(
            "there is nothing called {}{}; `do` is one of {}",
            shown(word),
            instead(word, known),
            words()
        ));
    };
    let unknown = object
        .keys()
        .find(|key| *key != "do" && !may.contains(&key.as_str()));
    if let Some(key) = unknown {
        let known = may.iter().copied().chain(["do"]);
        return Err(format!(
            "{word} has no key {}{}",
            shown(key),
            instead(key, known)
        ));
    }
    Ok(match word {
        "status" => Request::Status,
        "pause" => Request::Pause {
            give_back: match object.get("give_back") {
                None => false,
                Some(Value::Bool(give_back)) => *give_back,
                Some(_) => return Err("`give_back` is true or false".to_owned()),
            },
        },
        "resume" => Request::Resume,
        "policy" => match object.get("name") {
            Some(Value::String(name)) => Request::Policy { name: name.clone() },
            Some(_) => return Err("`name` is a policy's name".to_owned()),
            None => return Err("policy needs a `name`, that of the policy".to_owned()),
        },
        "reload" => Request::Reload,
        "watch" => Request::Watch,
        _ => Request::Version,
    })
}

/// A request as a line, its line feed included.
pub fn line(request: &Request) -> String {
    let object = match request {
        Request::Status => json!({"do": "status"}),
        Request::Pause { give_back } => json!({"do": "pause", "give_back": give_back}),
        Request::Resume => json!({"do": "resume"}),
        Request::Policy { name } => json!({"do": "policy", "name": name}),
        Request::Reload => json!({"do": "reload"}),
        Request::Watch => json!({"do": "watch"}),
        Request::Version => json!({"do": "version"}),
    };
    format!("{object}\n")
}

/// An answer that says what was wrong, as a line.
pub fn refused(why: &str) -> String {
    format!("{}\n", json!({"ok": false, "error": why}))
}

fn words() -> String {
    WORDS.map(|(word, _)| word).join(", ")
}

/// A word of somebody's, cut where it is long and quoted so that nothing in it acts on a terminal.
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
