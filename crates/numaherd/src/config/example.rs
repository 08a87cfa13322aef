//! `contrib/numaherd.toml`: a configuration file with every key, drawn from [`super::keys`] and the
//! defaults, so that it cannot lie.

use std::fmt::Write as _;

use super::file::look::heading;
use super::keys::{self, Known};

/// What the example file says before the keys.
const EXAMPLE_HEAD: &str = "\
# Numaherd's configuration, every key with its default.
#
# This is contrib/numaherd.toml of Numaherd: generated, and right for the version that it came with
# (`numaherd config example` prints that of yours). Copy it to /etc/numaherd/numaherd.toml and take the
# # away in front of what you change; what stays behind a # stays as it is. Then:
#
#   numaherd config check     is it right?
#   numaherd config show      what holds now, and what sets it
#   systemctl reload numaherd (or kill -HUP) has a running Numaherd read it again
";

/// How wide the comments of the example file are.
const WIDTH: usize = 98;

/// The file `contrib/numaherd.toml`.
pub fn example() -> String {
    let mut file = EXAMPLE_HEAD.to_owned();
    for table in keys::tables() {
        file.push('\n');
        for line in wrapped(table.what) {
            writeln!(file, "# {line}").expect("text can be written");
        }
        // An empty group is an error; any other heading may stay, so that a key whose # is taken away
        // is below its own.
        match table.name {
            "" => {}
            "group" => file += "#[[group]]\n",
            name => writeln!(file, "{}", heading(name)).expect("text can be written"),
        }
        for known in keys::of_table(table.name) {
            file.push('\n');
            file += &entry(&known);
        }
    }
    file
}

fn entry(known: &Known) -> String {
    let key = known.key;
    let mut what = key.what.to_owned();
    if key.restart {
        what += " Read at the start only.";
    }
    let mut text = String::new();
    for line in wrapped(&what) {
        writeln!(text, "# {line}").expect("text can be written");
    }
    let value = match known.default() {
        Ok(default) if key.example.is_empty() => default,
        _ => key.example.to_owned(),
    };
    let left_out = if key.left_out.is_empty() {
        String::new()
    } else {
        format!("left out: {}", key.left_out)
    };
    let words: Vec<&str> = [key.unit, &left_out]
        .into_iter()
        .filter(|w| !w.is_empty())
        .collect();
    let comment = match words.as_slice() {
        [] => String::new(),
        words => format!("  # {}", words.join("; ")),
    };
    writeln!(text, "#{} = {value}{comment}", known.last()).expect("text can be written");
    text
}

/// Text in lines of [`WIDTH`], broken between words.
pub fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A file in which every key that is there has another value than the default; `selection` takes one
/// kind of process only.
#[cfg(test)]
pub fn every_key_changed() -> String {
    use super::file::shape::Shape;
    use serde_json::Value;

    let mut file = String::new();
    for table in keys::tables() {
        if table.name == "group" {
            file += "[[group]]\nname = \"a\"\nusers = [\"b\"]\npolicy = \"none\"\n";
            continue;
        }
        if !table.name.is_empty() {
            writeln!(file, "{}", heading(table.name)).expect("text can be written");
        }
        for known in keys::of_table(table.name) {
            let default = keys::default_of(known.key.name);
            let figure = || default.and_then(Value::as_f64);
            let value = match (&known.field.shape, default) {
                (_, None) => known.key.example.to_owned(),
                (Shape::Switch, Some(value)) => (*value == Value::Bool(false)).to_string(),
                (Shape::Whole(_), Some(value)) => {
                    (value.as_u64().expect("a whole number") + 1).to_string()
                }
                (Shape::Number, _) => format!("{:?}", figure().expect("a number") / 2.0),
                (Shape::Choice(words), Some(value)) => {
                    let other = words.iter().find(|word| value != **word);
                    format!("{:?}", other.expect("a choice of several"))
                }
                _ => known.key.example.to_owned(),
            };
            if !["selection.cgroup", "selection.name"].contains(&known.key.name) {
                writeln!(file, "{} = {value}", known.last()).expect("text can be written");
            }
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::super::file::Config;
    use super::*;

    #[test]
    fn the_example_changes_nothing_as_it_is() {
        let (config, _) = Config::parse(&example(), "numaherd.toml").unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_key_is_in_the_example_and_right_when_its_mark_is_taken_away() {
        let (mut text, mut expected) = (String::new(), 0);
        for line in example().lines() {
            let bare = line
                .strip_prefix('#')
                .filter(|rest| !rest.starts_with([' ', '#']));
            text += bare.unwrap_or(line);
            text.push('\n');
        }
        // One kind of process is all that a selection takes.
        for key in [
            "name = \"postgres\"  # left out: processes of any name",
            "user = \"postgres\"",
        ] {
            assert!(text.contains(key), "{key}");
            text = text.replace(&format!("\n{key}"), &format!("\n#{key}"));
            expected += 1;
        }
        let group = "names = []";
        text = text.replace(&format!("\n{group}"), "\nnames = [\"a\"]");
        text = text.replace("\nname = \"\"", "\nname = \"a\"");
        let (config, lines) =
            Config::parse(&text, "numaherd.toml").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.group.len(), 1);
        let keys = keys::keys().filter(|key| {
            let path = key.name.replace("group.", "group[0].");
            lines.contains_key(&path)
        });
        assert_eq!(keys.count() + expected, keys::keys().count());
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("a b"), ["a b"]);
        let long = "word ".repeat(40);
        assert!(wrapped(&long).iter().all(|line| line.len() <= WIDTH));
        assert_eq!(wrapped(&long).join(" "), long.trim());
    }
}
