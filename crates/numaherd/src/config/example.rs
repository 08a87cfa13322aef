//! `contrib/numaherd.toml`: a configuration file with every key, generated from [`super::keys`] and the defaults.

use super::keys::{self, Key};

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
        for line in wrapped(table.section.about) {
            file += &format!("# {line}\n");
        }
        // The heading of an empty group is an error. Other headings stay, so that each key whose # is removed is
        // below its own.
        if !table.name.is_empty() {
            let mark = if table.in_list { "#" } else { "" };
            file += &format!("{mark}{}\n", table.heading());
        }
        for key in keys::of_table(&table) {
            file.push('\n');
            file += &entry(&key);
        }
    }
    file
}

fn entry(key: &Key) -> String {
    let setting = key.setting;
    let mut what = key.what();
    if setting.restart {
        what += " Read at the start only.";
    }
    let mut text = String::new();
    for line in wrapped(&what) {
        text += &format!("# {line}\n");
    }
    let value = match key.default() {
        Ok(default) if setting.example.is_empty() => default,
        _ => setting.example.to_owned(),
    };
    let left_out = match setting.left_out {
        "" => String::new(),
        left_out => format!("left out: {left_out}"),
    };
    let mut words = vec![setting.counts(), left_out];
    words.retain(|words| !words.is_empty());
    let comment = match words.as_slice() {
        [] => String::new(),
        words => format!("  # {}", words.join("; ")),
    };
    text += &format!("#{} = {value}{comment}\n", setting.name);
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

/// A file in which every key has another value than its default; `selection` takes one kind of process only.
#[cfg(test)]
pub fn every_key_changed() -> String {
    use std::fmt::Write as _;

    use numaherd_files::setting::Kind;
    use serde_json::Value;

    let mut file = String::new();
    for table in keys::tables() {
        if table.in_list {
            file += "[[group]]\nname = \"a\"\nusers = [\"b\"]\npolicy = \"none\"\n";
            continue;
        }
        if !table.name.is_empty() {
            writeln!(file, "{}", table.heading()).expect("text can be written");
        }
        for key in keys::of_table(&table) {
            let default = keys::default_of(&key.name);
            let figure = || default.and_then(Value::as_f64);
            let value = match (&key.setting.kind, default) {
                (_, None) => key.setting.example.to_owned(),
                (Kind::Switch, Some(value)) => (*value == Value::Bool(false)).to_string(),
                (Kind::Whole(_), Some(value)) => {
                    (value.as_u64().expect("a whole number") + 1).to_string()
                }
                (Kind::Number, _) => format!("{:?}", figure().expect("a number") / 2.0),
                (Kind::Choice(choices), Some(value)) => {
                    let other = choices.iter().find(|choice| value != choice.word);
                    format!("{:?}", other.expect("a choice of several").word)
                }
                _ => key.setting.example.to_owned(),
            };
            if !["selection.cgroup", "selection.name"].contains(&key.name.as_str()) {
                writeln!(file, "{} = {value}", key.setting.name).expect("text can be written");
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
        // A selection takes one kind of process only.
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
        let (config, read) =
            Config::parse(&text, "numaherd.toml").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(config.group.len(), 1);
        let all = keys::keys();
        let keys = all.iter().filter(|key| {
            let path = key.name.replace("group.", "group[0].");
            read.lines.contains_key(&path)
        });
        assert_eq!(keys.count() + expected, all.len());
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("a b"), ["a b"]);
        let long = "word ".repeat(40);
        assert!(wrapped(&long).iter().all(|line| line.len() <= WIDTH));
        assert_eq!(wrapped(&long).join(" "), long.trim());
    }
}
