//! The commands in a page of Markdown.
//!
//! Terms: a *block* is fenced by three backquotes, or indented by four blanks after an empty line. Where lines of a
//! block begin with `$ `, they alone are commands and the rest is what they print; in any other block a line is a
//! command if it begins with one. A `\` at its end joins a line with the next. A block that is fenced as `text` is a
//! picture. `sudo`, variables that are set (`A=b`), comments and redirections are ignored; `|`, `&&` and `;` separate
//! commands. A line with `[` shows the arguments that a command may have: it is read without the brackets, like
//! commands in the text.

use std::iter::Peekable;
use std::str::Chars;

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a code block: it is whole.
    Block,
    /// In the text, between backquotes: it may leave out what must be given.
    Text,
}

/// A command of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The line that it begins on, from 1.
    pub line: usize,
    /// Where it stands.
    pub place: Place,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// All commands of a page that are `numaherd`, `make` or a script of this tree, in their order.
pub fn commands(page: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    let mut fenced = false;
    let mut is_picture = false;
    let mut before_is_empty = true;
    for (line, text) in (1..).zip(page.lines()) {
        let is_fence = text.trim_start().starts_with("```");
        let is_indented = !fenced
            && text.starts_with("    ")
            && (before_is_empty || !block.is_empty())
            && !is_fence;
        if is_fence {
            let block = std::mem::take(&mut block);
            if !is_picture {
                of_block(&block, &mut found);
            }
            fenced = !fenced;
            is_picture = fenced && text.trim() == "```text";
        } else if fenced || is_indented {
            block.push((line, text));
        } else {
            of_block(&std::mem::take(&mut block), &mut found);
            of_text(line, text, &mut found);
        }
        before_is_empty = text.trim().is_empty();
    }
    of_block(&block, &mut found);
    found
}

fn of_block(block: &[(usize, &str)], found: &mut Vec<Found>) {
    let has_prompts = block
        .iter()
        .any(|(_, text)| text.trim_start().starts_with("$ "));
    let mut lines = block.iter();
    while let Some(&(line, text)) = lines.next() {
        let text = text.trim_start();
        let text = if has_prompts {
            let Some(after) = text.strip_prefix("$ ") else {
                continue;
            };
            after
        } else {
            text
        };
        let mut whole = text.to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            let Some((_, next)) = lines.next() else { break };
            whole += next.trim_start();
        }
        of_line(line, Place::Block, &whole, found);
    }
}

/// What stands between single backquotes on one line.
fn of_text(line: usize, text: &str, found: &mut Vec<Found>) {
    for (at, span) in text.split('`').enumerate() {
        if at % 2 == 1 {
            of_line(line, Place::Text, span, found);
        }
    }
}

fn of_line(line: usize, place: Place, text: &str, found: &mut Vec<Found>) {
    let (place, text) = if text.contains('[') {
        (Place::Text, text.replace(['[', ']'], ""))
    } else {
        (place, text.to_owned())
    };
    for words in split(&text) {
        let is_set = |word: &String| {
            let name = word.split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            })
        };
        let words: Vec<String> = words
            .into_iter()
            .skip_while(|word| is_set(word) || word == "sudo")
            .collect();
        let Some(program) = words.first() else {
            continue;
        };
        let is_ours = matches!(program.as_str(), "numaherd" | "make")
            || program.ends_with("/numaherd")
            || program.starts_with("scripts/");
        // `numaherd` alone is the name of the thing.
        if is_ours && (place == Place::Block || words.len() > 1) {
            found.push(Found { line, place, words });
        }
    }
}

/// A line of the shell as commands, each as its words.
fn split(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut letters = line.chars().peekable();
    let mut skip_next = false;
    while let Some(&letter) = letters.peek() {
        match letter {
            ' ' | '\t' => {
                letters.next();
            }
            '#' => break,
            '|' | '&' | ';' => {
                letters.next();
                commands.push(Vec::new());
            }
            '>' | '<' => {
                letters.next();
                skip_next = letters.peek() != Some(&'&') && letters.peek() != Some(&'>');
            }
            _ => {
                let word = word(&mut letters);
                let before_redirection =
                    word.chars().all(|c| c.is_ascii_digit()) && letters.peek() == Some(&'>');
                let last = commands.last_mut().expect("there is always one");
                if !std::mem::take(&mut skip_next) && !before_redirection {
                    last.push(word);
                }
            }
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// The word that comes next, its quotes taken off.
fn word(letters: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    let mut quote = None;
    while let Some(&letter) = letters.peek() {
        match (quote, letter) {
            (None, ' ' | '\t' | '|' | '&' | ';' | '>' | '<') => break,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), close) if open == close => quote = None,
            _ => word.push(letter),
        }
        letters.next();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<(usize, String)> {
        let found = commands(page).into_iter();
        found
            .map(|found| (found.line, found.words.join(" ")))
            .collect()
    }

    #[test]
    fn blocks_and_text_are_told_apart() {
        let page = "See `numaherd run`, numaherd itself and `numaherd`.\n\n```\n\
                    sudo target/release/numaherd doctor   # what is here\nls\n```\n\n\
                    text\n    numaherd not in a block\n\n    numaherd top x\n";
        assert_eq!(
            lines(page),
            [
                (1, "numaherd run".to_owned()),
                (4, "target/release/numaherd doctor".to_owned()),
                (11, "numaherd top x".to_owned()),
            ]
        );
        assert_eq!(commands(page)[0].place, Place::Text);
        assert_eq!(commands(page)[1].place, Place::Block);
    }

    #[test]
    fn with_prompts_only_what_follows_one_is_a_command() {
        let page = "```\n$ numaherd explain \\\n    x.jsonl\nnumaherd 0.1.0\n$ A=1 make test | tee x && \
                    numaherd doctor --json 2>/dev/null >x\n```\n";
        assert_eq!(
            lines(page),
            [
                (2, "numaherd explain x.jsonl".to_owned()),
                (5, "make test".to_owned()),
                (5, "numaherd doctor --json".to_owned()),
            ]
        );
    }

    #[test]
    fn a_picture_holds_no_commands() {
        let page = "```text\nnumaherd  the program\n```\n\n```\nnumaherd doctor\n```\n";
        assert_eq!(lines(page), [(6, "numaherd doctor".to_owned())]);
    }

    #[test]
    fn what_may_be_given_is_read_without_its_brackets() {
        let page = "```\nnumaherd record -o FILE [--for TIME] [-- CMD]\n```\n";
        assert_eq!(
            lines(page),
            [(2, "numaherd record -o FILE --for TIME -- CMD".to_owned())]
        );
        assert_eq!(commands(page)[0].place, Place::Text);
    }

    #[test]
    fn quotes_keep_words_together() {
        let page = "```\nnumaherd topology \"numa:4 core:2 # pu:1\"\n```\n";
        assert_eq!(commands(page)[0].words[2], "numa:4 core:2 # pu:1");
    }
}
