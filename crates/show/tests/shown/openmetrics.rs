//! A strict reader of OpenMetrics text, as far as `serve` writes it (OpenMetrics 1.0, sections "Text
//! format" and "Metric types"): whatever it does not take, some scraper may not.

use std::collections::{BTreeMap, BTreeSet};

/// A family: its kind, its unit, and its samples.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub unit: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// Reads a whole exposition.
pub fn read(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("it does not end in # EOF")?;
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut now = String::new();
    let mut seen = BTreeSet::new();
    for line in body.split_inclusive('\n') {
        let line = line
            .strip_suffix('\n')
            .ok_or("the last line has no line feed")?;
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(described) = line.strip_prefix("# ") {
            let mut words = described.splitn(3, ' ');
            let (word, name, rest) = (words.next(), words.next(), words.next());
            let (Some(word), Some(name), Some(rest)) = (word, name, rest) else {
                return wrong("no descriptor");
            };
            if !is_name(name) || rest.is_empty() {
                return wrong("no descriptor");
            }
            if name != now
                && families
                    .insert(name.to_owned(), Family::default())
                    .is_some()
            {
                return wrong("a family is there twice");
            }
            name.clone_into(&mut now);
            let family = families.get_mut(name).ok_or("no family")?;
            if !family.samples.is_empty() {
                return wrong("described after its samples");
            }
            match word {
                "HELP" => {}
                "TYPE" => rest.clone_into(&mut family.kind),
                "UNIT" if name.ends_with(&format!("_{rest}")) => rest.clone_into(&mut family.unit),
                _ => return wrong("no descriptor"),
            }
            continue;
        }
        let sample = sample(line)?;
        let family = families
            .get_mut(&now)
            .ok_or("a sample before all families")?;
        let part = sample.name.strip_prefix(&now).unwrap_or("?");
        let parts: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "gauge" => &[""],
            "histogram" => &["_sum", "_count", "_bucket"],
            _ => return wrong("of no kind"),
        };
        if !parts.contains(&part) {
            return wrong("of another family");
        }
        if family.kind == "counter" && (sample.value.is_nan() || sample.value < 0.0) {
            return wrong("a counter that cannot be");
        }
        if !seen.insert((sample.name.clone(), sample.labels.clone())) {
            return wrong("twice");
        }
        family.samples.push(sample);
    }
    for (name, family) in &families {
        if family.kind == "histogram" {
            histogram(name, family)?;
        }
    }
    Ok(families)
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line
        .find(['{', ' '])
        .ok_or_else(|| format!("no sample: {line}"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (key, after) = rest
                .split_once("=\"")
                .ok_or_else(|| format!("no label: {line}"))?;
            let (value, after) = quoted(after).ok_or_else(|| format!("no end: {line}"))?;
            if !is_name(key) || labels.iter().any(|(known, _)| known == key) {
                return Err(format!("label {key}: {line}"));
            }
            labels.push((key.to_owned(), value));
            match after.split_at_checked(1) {
                Some((",", after)) => rest = after,
                Some(("}", after)) => {
                    rest = after;
                    break;
                }
                _ => return Err(format!("after a label: {line}")),
            }
        }
    }
    let number = rest
        .strip_prefix(' ')
        .ok_or_else(|| format!("no value: {line}"))?;
    let value = number.parse().map_err(|_| format!("no number: {line}"))?;
    if !is_name(name) {
        return Err(format!("no name: {line}"));
    }
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// A value up to its closing quote, and what comes after.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            }),
            _ => value.push(letter),
        }
    }
    None
}

/// Buckets ascend, end at +Inf, and hold as many as are counted.
fn histogram(name: &str, family: &Family) -> Result<(), String> {
    let of = |part: &str| {
        let name = format!("{name}{part}");
        family
            .samples
            .iter()
            .filter(move |sample| sample.name == name)
    };
    let (mut bound, mut count) = (f64::NEG_INFINITY, 0.0);
    for bucket in of("_bucket") {
        let [(key, le)] = bucket.labels.as_slice() else {
            return Err(format!("{name} has a bucket without its bound alone"));
        };
        let le: f64 = le.parse().map_err(|_| format!("{name}: {le}"))?;
        if key != "le" || le <= bound || bucket.value < count {
            return Err(format!("the buckets of {name} do not ascend"));
        }
        (bound, count) = (le, bucket.value);
    }
    let counted: Vec<f64> = of("_count").map(|sample| sample.value).collect();
    if bound != f64::INFINITY || counted != [count] || of("_sum").count() != 1 {
        return Err(format!("{name} is not whole"));
    }
    Ok(())
}

#[test]
fn what_is_no_openmetrics_is_not_taken() {
    let whole =
        "# HELP a_s x\n# TYPE a_s counter\n# UNIT a_s s\na_s_total{b=\"c\\\"\\n\"} 1\n# EOF\n";
    let families = read(whole).unwrap();
    assert_eq!(families["a_s"].samples[0].labels[0].1, "c\"\n");
    for (from, to) in [
        ("# EOF\n", ""),
        ("a_s_total{", "a_s{"),
        ("a_s_total{", "b_total{"),
        ("# UNIT a_s s", "# UNIT a_s t"),
        ("counter", "thing"),
        ("\\\"", "\""),
        ("\\n", "\n"),
        ("} 1", "} one"),
        ("} 1", "} -1"),
        ("b=\"", "b=\"c\",b=\""),
        ("# HELP a_s x\n", "a_s_total 1\n# HELP a_s x\n"),
    ] {
        assert!(
            read(&whole.replacen(from, to, 1)).is_err(),
            "{from} as {to}"
        );
    }
}
