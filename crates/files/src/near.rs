//! The known words that are nearest to a misspelled one.

/// The most letters of a word that is compared.
const LONGEST: usize = 64;

/// The words of `known` that are nearest to `written`, all at the same distance, in their order;
/// empty if none is near. Each missing, extra or wrong letter, or pair of swapped letters, adds 1
/// to the distance; case, and `-` or `_`, make no difference. Near is at most a third of the
/// letters, or one.
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let letters = written.chars().count();
    if letters > LONGEST {
        return Vec::new();
    }
    let written = plain(written);
    let mut near = (letters / 3).max(1);
    let mut found = Vec::new();
    for word in known {
        let distance = strsim::osa_distance(&written, &plain(word));
        if distance < near {
            found.clear();
            near = distance;
        }
        if distance == near {
            found.push(word);
        }
    }
    found
}

/// `did you mean `a` or `b`?`; `None` where none is near.
pub fn did_you_mean<'k>(near: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let near: Vec<String> = near.into_iter().map(|word| format!("`{word}`")).collect();
    (!near.is_empty()).then(|| format!("did you mean {}?", or(&near)))
}

/// The word in lower case, with `_` for each `-`.
fn plain(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

/// `a`, `a or b`, `a, b or c`; empty for none.
pub fn or(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_named_and_nothing_where_none_is_near() {
        let known = ["stray", "steal", "cpus", "nodes", "moves_per_second"];
        for (written, meant) in [
            ("moves_per_secnd", &["moves_per_second"][..]),
            ("Moves-Per-Second", &["moves_per_second"]),
            ("move_per_seconds", &["moves_per_second"]),
            ("cpu", &["cpus"]),
            ("cups", &["cpus"]),
            ("stral", &["stray", "steal"]),
            ("threads", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
        assert!(nearest(&"s".repeat(100_000), known).is_empty());
    }

    #[test]
    fn choices_read_as_a_sentence() {
        let words = |count| or(&["a", "b", "c"].map(str::to_owned)[..count]);
        assert_eq!([0, 1, 2, 3].map(words), ["", "a", "a or b", "a, b or c"]);
    }
}
