//! The page of one policy: what its files' first lines say, its settings, and the papers' claims.
//!
//! A half's file is the one that holds the name of its first rule, or is called as the half is. Claims are
//! those of `docs/fidelity.json` that name the policy.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use numaherd_policy::registry::{self, NamedPolicy, Worlds};
use numaherd_policy::rules::Rule;
use numaherd_policy::{Means, NoCosts, Policy, Settings};
use numaherd_world::{AffinityScope, NewPages, Signal};
use serde::Deserialize;

/// What signals the contention model has; for the others there are traces.
const OF_THE_MODEL: [Signal; 6] = [
    Signal::CpuUse,
    Signal::MissRate,
    Signal::LocalRemote,
    Signal::UncorePenalty,
    Signal::MemorySamples,
    Signal::Residency,
];

/// One claim of a paper, as the record has it.
#[derive(Deserialize)]
struct Claim {
    id: String,
    paper: String,
    section: String,
    what: String,
    unit: String,
    says: String,
    figure: Option<f64>,
    tolerance: Option<f64>,
    ours: Option<f64>,
    holds: bool,
}

#[derive(Deserialize)]
struct Record {
    lines: Vec<Claim>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page, in Markdown.
pub fn page(entry: &NamedPolicy) -> String {
    let policy = made(entry.name);
    let mut page = format!(
        "<!-- Generated from the first lines of the policy's files, the registry and \
         docs/fidelity.json. To renew: NUMAHERD_RENEW=1 cargo test -p numaherd-policy --test pages -->\n\
         # {}\n\n{}. From: {}.\n\n",
        entry.name, entry.about, entry.source
    );
    in_short(&mut page, entry, &policy);
    let (placement, paging) = registry::halves(entry.name).expect("a policy of the table");
    let halves = [
        (
            "placement",
            placement.name,
            placement.rules,
            placement.settings,
        ),
        ("paging", paging.name, paging.rules, paging.settings),
    ];
    for (kind, name, rules, settings) in halves {
        half(&mut page, kind, name, rules, settings);
    }
    claims(&mut page, entry.name);
    see(&mut page, entry, &policy);
    page
}

/// The policy itself, as no world would make it: it is only asked what it needs.
fn made(name: &str) -> Policy {
    let means = Means {
        cost_model: Some(Arc::new(NoCosts)),
    };
    registry::build_with(name, &Settings::default(), &means).expect("a policy of the table")
}

fn in_short(page: &mut String, entry: &NamedPolicy, policy: &Policy) {
    let needs: Vec<String> = policy.needs().iter().map(ToString::to_string).collect();
    let needs = if needs.is_empty() {
        "nothing".into()
    } else {
        needs.join(", ")
    };
    let also: Vec<String> = (policy.also().iter())
        .map(|also| also.signal.to_string())
        .collect();
    let often = match policy.placement.needs().own.interval {
        Some(time) => format!("{} ms", time.as_millis()),
        None => "1000 ms".into(),
    };
    // A paging that looks at no accesses acts when threads are placed, or never.
    let paging = policy.paging.needs();
    let looks = !paging.signals.is_empty() || !paging.also.is_empty();
    let scope = match policy.placement.needs().own.scope.unwrap_or_default() {
        AffinityScope::Core => "its core",
        AffinityScope::Domain => "its memory domain",
        AffinityScope::Node => "its node",
    };
    let new_pages = match entry.new_pages {
        NewPages::FirstTouch => "on the node of the thread that touches them first",
        NewPages::Interleave => "on all nodes in turn",
        NewPages::Random => "on nodes drawn at random",
    };
    for (what, is) in [
        ("placement", format!("`{}`", entry.placement)),
        ("paging", format!("`{}`", entry.paging)),
        ("new pages", new_pages.into()),
        ("needs", needs),
        ("also uses, where it can be had", also.join(", ")),
        ("threads are placed every", often),
        (
            "pages are considered every",
            if looks { "10 ms".into() } else { String::new() },
        ),
        ("a thread may run within", scope.into()),
    ] {
        if is.is_empty() {
            continue;
        }
        if page.ends_with("\n\n") {
            page.push_str("| | |\n|---|---|\n");
        }
        let _ = writeln!(page, "| {what} | {is} |");
    }
}

fn half(page: &mut String, kind: &str, name: &str, rules: &[Rule], settings: &[&str]) {
    let file = file_of(kind, name, rules);
    let shown = file.strip_prefix(root()).expect("below the root").display();
    let title = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
    let _ = write!(
        page,
        "\n## {title}: `{name}`\n\nFrom [{shown}](../../{shown}):\n\n{}",
        first_lines(&file)
    );
    if !rules.is_empty() {
        let _ = write!(
            page,
            "\n### Rules of `{name}`\n\n| rule | what it does | from |\n|---|---|---|\n"
        );
    }
    for rule in rules {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            rule.name, rule.what, rule.source
        );
    }
    if !settings.is_empty() {
        let table = super::all::settings(settings);
        let _ = write!(page, "\n### Settings of `{name}`\n\n{table}");
    }
}

/// The file that a half is in.
pub fn file_of(kind: &str, name: &str, rules: &[Rule]) -> PathBuf {
    let sources = root().join("crates/policy/src");
    let mut files: Vec<PathBuf> = [kind, "added"]
        .iter()
        .flat_map(|folder| fs::read_dir(sources.join(folder)).expect("a folder"))
        .map(|entry| entry.expect("can be listed").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .collect();
    files.sort();
    let stem = name.replace('-', "_");
    let by_name = files
        .iter()
        .find(|path| path.file_stem().is_some_and(|own| *own == *stem));
    // Rules may have a file of their own.
    let by_rule = rules.first().and_then(|rule| {
        let names = format!("name: \"{}\"", rule.name);
        let holds = |path: &&PathBuf| {
            fs::read_to_string(path)
                .expect("sources are UTF-8")
                .contains(&names)
        };
        files.iter().find(holds)
    });
    let file = by_rule.or(by_name);
    file.unwrap_or_else(|| panic!("no file is of the {kind} {name}"))
        .clone()
}

/// The `//!` lines of a file as Markdown. What they link to is linked to as the file that it is in.
pub fn first_lines(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("sources are UTF-8");
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut page = String::new();
    for line in lines {
        page += line.strip_prefix(' ').unwrap_or(line);
        page.push('\n');
    }
    let mut linked = String::new();
    let mut rest = page.as_str();
    while let Some((before, after)) = rest.split_once("[`") {
        let (name, next) = after.split_once("`]").expect("a link ends");
        linked += before;
        linked += &link(name, file);
        rest = next;
    }
    linked + rest
}

/// A name of Rust as a link to its file, where that is one of this crate's.
fn link(name: &str, file: &Path) -> String {
    let parts: Vec<&str> = name.split("::").collect();
    let folder = file.parent().expect("sources are in folders");
    let own = file.with_extension("");
    let (folders, module, shown) = match parts[..] {
        ["crate", module, ..] => (vec![root().join("crates/policy/src")], module, &parts[1..]),
        ["super", module, ..] => (vec![folder.to_owned()], module, &parts[1..]),
        _ => (vec![own, folder.to_owned()], parts[0], &parts[..]),
    };
    let shown = shown.join("::");
    let found = folders
        .iter()
        .map(|folder| folder.join(format!("{module}.rs")))
        .find(|path| path.exists());
    match found {
        Some(path) => {
            let path = path.strip_prefix(root()).expect("below the root").display();
            format!("[`{shown}`](../../{path})")
        }
        None => format!("`{shown}`"),
    }
}

fn claims(page: &mut String, name: &str) {
    let record = fs::read_to_string(root().join("docs/fidelity.json")).expect("the record is here");
    let record: Record = serde_json::from_str(&record).expect("the record is JSON");
    let about: Vec<&Claim> = record
        .lines
        .iter()
        .filter(|claim| names(&claim.what.to_lowercase(), name) || names(&claim.id, name))
        .collect();
    page.push_str("\n## What holds\n\n");
    if about.is_empty() {
        page.push_str("No claim that we check names this policy.\n");
        return;
    }
    let held = about.iter().filter(|claim| claim.holds).count();
    let _ = write!(
        page,
        "Claims about it that hold on our models: {held} of {}. [FIDELITY.md](../FIDELITY.md), made by \
         `scripts/fidelity.sh`, explains each of them.\n\n\
         | paper | claim | says | ours | holds |\n|---|---|---|---|---|\n",
        about.len()
    );
    for claim in about {
        let _ = writeln!(
            page,
            "| {} {} | {} | {} | {} | {} |",
            claim.paper.to_uppercase(),
            claim.section,
            claim.what,
            said(claim),
            claim
                .ours
                .map_or_else(|| "-".into(), |ours| with_unit(ours, &claim.unit)),
            if claim.holds { "yes" } else { "**no**" }
        );
    }
}

/// Whether a text names a policy, as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
    text.match_indices(name).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + name.len()..].chars().next())
    })
}

fn said(claim: &Claim) -> String {
    let figure = with_unit(claim.figure.unwrap_or_default(), &claim.unit);
    let tolerance = claim.tolerance.filter(|&tolerance| tolerance > 0.0);
    let within = tolerance.map_or_else(String::new, |tolerance| format!(" ± {}", shown(tolerance)));
    match claim.says.as_str() {
        "ranking" => "so it is".into(),
        "at-most" => format!("at most {figure}{within}"),
        "at-least" => format!("at least {figure}{within}"),
        _ => format!("{figure}{within}"),
    }
}

fn with_unit(figure: f64, unit: &str) -> String {
    format!("{} {unit}", shown(figure)).trim_end().to_owned()
}

/// Three digits that count; what rounding has left of nothing is nothing.
fn shown(figure: f64) -> String {
    if figure.abs() < 1e-9 {
        return "0".into();
    }
    let whole = figure.abs().log10().floor() as i32 + 1;
    let digits = usize::try_from((3 - whole).max(0)).expect("not below 0");
    let text = format!("{figure:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn see(page: &mut String, entry: &NamedPolicy, policy: &Policy) {
    let name = entry.name;
    let beside = if name == "linux" {
        "linux,dino".to_owned()
    } else {
        format!("linux,{name}")
    };
    let modelled = policy
        .needs()
        .iter()
        .all(|need| OF_THE_MODEL.contains(need));
    page.push_str("\n## See it\n\n```\n");
    if modelled && entry.worlds != Worlds::Traces {
        let _ = writeln!(
            page,
            "numaherd simulate memory-on-one-node --policies {beside}"
        );
    }
    if entry.worlds != Worlds::Model {
        let _ = writeln!(
            page,
            "numaherd trace record -o cg.trace -- menagerie kernel cg --class S --threads 8\n\
             numaherd trace simulate cg.trace --machine ipm-simics-4x2 --policies {beside}"
        );
    }
    if entry.new_pages == NewPages::Interleave {
        let _ = writeln!(page, "numaherd run --policy {name} -- ./my-program");
    } else if modelled && entry.worlds == Worlds::All {
        let _ = writeln!(page, "numaherd run --policy {name} --dry-run --for 10s");
    }
    page.push_str("```\n");
}
