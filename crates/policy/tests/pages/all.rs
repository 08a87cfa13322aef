//! The page on all policies (`docs/policies.md`), drawn from the registry.

use std::fmt::Write;

use numaherd_files::setting::{Section, Setting, Value};

use numaherd_policy::Settings;
use numaherd_policy::registry::{self, NamedPolicy, PAGINGS, PLACEMENTS};

/// The page, in Markdown.
pub fn policies() -> String {
    let mut page = String::from(
        "<!-- Generated from the registry of crates/policy. To renew: \
         NUMAHERD_RENEW=1 cargo test -p numaherd-policy --test pages -->\n\
         # Policies\n\n\
         A policy is a *placement* (which core each thread runs on) joined with a *paging* (which \
         node each page lives on). A placement can be joined with any paging, such as `dino+whole-set` or \
         `di-plain+window`; `kmaf` and `tlb-miss-history` need one that finds out which threads share pages. Each \
         policy has a page of its own: the problem, the rule, the terms and the properties, as its file in \
         `crates/policy/src` states them, its settings, and which of the papers' claims about it hold here.\n\n\
         | policy | placement | paging | what it does | needs | from |\n\
         |---|---|---|---|---|---|\n",
    );
    for entry in registry::POLICIES.iter() {
        row(
            &mut page,
            &[
                &format!("[`{0}`](policies/{0}.md)", entry.name),
                &code(entry.placement),
                &code(entry.paging),
                entry.about,
                &needs(entry),
                entry.source,
            ],
        );
    }
    page.push_str("\n## Placements\n\n| placement | what it does | from |\n|---|---|---|\n");
    for half in PLACEMENTS.iter() {
        row(&mut page, &[&code(half.name), half.about, half.source]);
    }
    page.push_str("\n## Pagings\n\n| paging | what it does | from |\n|---|---|---|\n");
    for half in PAGINGS.iter() {
        row(&mut page, &[&code(half.name), half.about, half.source]);
    }
    page.push_str(
        "\n## Rules\n\nEvery decision in a plan, a ledger and `numaherd explain` names one of \
         these.\n\n| rule | what it does | from |\n|---|---|---|\n",
    );
    for rule in registry::rules() {
        row(&mut page, &[&code(rule.name), rule.what, rule.source]);
    }
    page.push_str(
        "\n## Settings\n\nKeys that `[classes]` lacks have the values of the preset: `paper` (2, 100, 7 of 10) or \
         `clavis` (1.5, 50, 5 of 10, and only when the mean moved by more than 3). How often threads are \
         placed (1000 ms, DINO 3.3.3; 10 ms for `brm`, BRM 5) and samples are read (10 ms, DINO 4.2) is \
         set for the loop: `placement_interval_ms` and `paging_interval_ms` in `[herd]`.\n\n",
    );
    page.push_str(&settings(&[]));
    page
}

/// The settings of a half as a table: those of these names (`n_mass.threshold`) or tables (`n_mass`);
/// all where none is named.
pub fn settings(names: &[&str]) -> String {
    let mut page =
        String::from("| key | default | meaning | unit | from |\n|---|---|---|---|---|\n");
    for (name, setting) in settings_of(names) {
        row(
            &mut page,
            &[
                &code(&name),
                &default_of(&name, setting),
                &setting.described(),
                &setting.counts(),
                setting.source,
            ],
        );
    }
    page
}

/// The settings of these names or tables; all where none is named.
pub fn settings_of(names: &[&str]) -> Vec<(String, &'static Setting)> {
    let all = Settings::KIND.section().map(Section::keys);
    let mut all = all.unwrap_or_default();
    all.retain(|(name, _)| {
        let table = name.split_once('.').map(|(table, _)| table);
        let is_named = |wanted: &&str| *wanted == name || Some(*wanted) == table;
        names.is_empty() || names.iter().any(is_named)
    });
    all
}

/// The default of a setting as TOML, or what leaving it out means.
fn default_of(name: &str, setting: &Setting) -> String {
    let defaults = toml::Value::try_from(Settings::default()).expect("settings are plain TOML");
    let find = |value: Option<toml::Value>, part: &str| value?.get(part).cloned();
    match name.split('.').fold(Some(defaults), find) {
        Some(default) => code(&default.to_string()),
        None if setting.optional => setting.left_out.to_owned(),
        None => "none".to_owned(),
    }
}

fn needs(entry: &NamedPolicy) -> String {
    let needs = registry::needs(entry.name).expect("a policy of the table can be built");
    if needs.is_empty() {
        return "nothing".into();
    }
    needs
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

fn row(page: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(page, "| {cell} ");
    }
    page.push_str("|\n");
}
