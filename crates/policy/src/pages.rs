//! The page on policies (`docs/policies.md`), drawn from the registry so that it cannot lie.

use std::fmt::Write;

use crate::registry::{self, Entry, PAGINGS, PLACEMENTS, POLICIES};
use crate::rules::Rule;
use crate::settings::Settings;

/// The page, in Markdown.
pub fn policies() -> String {
    let mut page = String::from(
        "<!-- Generated from the registry of crates/policy. To renew: \
         NUMAHERD_RENEW=1 cargo test -p numaherd-policy --test pages -->\n\
         # Policies\n\n\
         A policy is a *placement* (which core each thread runs on) joined with a *paging* (which \
         node each page lives on). Any placement can be joined with any paging: `dino+whole-set`, \
         `di-plain+window`.\n\n\
         | policy | placement | paging | what it does | needs | from |\n\
         |---|---|---|---|---|---|\n",
    );
    for entry in POLICIES {
        row(
            &mut page,
            &[
                &code(entry.name),
                &code(entry.placement),
                &code(entry.paging),
                entry.about,
                &needs(entry),
                entry.source,
            ],
        );
    }
    page.push_str("\n## Placements\n\n| placement | what it does | from |\n|---|---|---|\n");
    for half in PLACEMENTS {
        row(&mut page, &[&code(half.name), half.about, half.source]);
    }
    page.push_str("\n## Pagings\n\n| paging | what it does | from |\n|---|---|---|\n");
    for half in PAGINGS {
        row(&mut page, &[&code(half.name), half.about, half.source]);
    }
    page.push_str(
        "\n## Rules\n\nEvery decision in a plan, a ledger and `numaherd explain` names one of \
         these.\n\n| rule | what it does | from |\n|---|---|---|\n",
    );
    for rule in rules() {
        row(&mut page, &[&code(rule.name), rule.what, rule.source]);
    }
    let defaults = toml::to_string(&Settings::default()).expect("settings are plain TOML");
    let _ = write!(
        page,
        "\n## Settings\n\nThese are the defaults. The values of `[classes]` are those of the \
         preset: `paper` (2, 100, 7 of 10) or `clavis` (1.5, 50, 5 of 10, and only when the mean \
         moved by more than 3); `devil_from`, `super_devil_above`, `votes` and `of_last` replace \
         single ones. How often threads are placed (1000 ms, DINO 3.3.3) and samples looked at (10 \
         ms, DINO 4.2) is set of the loop: `placement_interval_ms` and `paging_interval_ms` in \
         `[herd]`.\n\n```toml\n{defaults}```\n\n| key | meaning | unit | from |\n|---|---|---|---|\n",
    );
    for key in KEYS {
        row(&mut page, &[&code(key[0]), key[1], key[2], key[3]]);
    }
    page
}

/// Every rule of every policy, placements first.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let placements = PLACEMENTS.iter().flat_map(|half| half.rules);
    placements.chain(PAGINGS.iter().flat_map(|half| half.rules))
}

/// Key, meaning, unit, source.
#[rustfmt::skip]
const KEYS: &[[&str; 4]] = &[
    ["classes.preset", "Which values the class rule starts from", "`paper` or `clavis`", "DINO 3.3.2, 3.3.3; the authors' scheduler"],
    ["classes.devil_from", "Lowest miss rate of a devil", "cache lines per 1000 instructions", "DINO 3.3.2"],
    ["classes.super_devil_above", "Miss rate above which a thread is a super-devil", "cache lines per 1000 instructions", "DINO 3.3.2"],
    ["classes.votes", "Intervals that must speak for another class", "intervals", "DINO 3.3.3"],
    ["classes.of_last", "Of how many last intervals", "intervals", "DINO 3.3.3"],
    ["placement.least_cpu_share", "Threads that use less of a CPU are left to the kernel", "share of a CPU, 0 to 1", "the authors' scheduler"],
    ["paging.window_pages", "K: pages that one sampled access moves, in total", "base pages", "DINO 4.1; a total in the authors' scheduler"],
    ["paging.bounce_limit", "How often a chunk of K pages may change hands before it is frozen", "times", "the authors' scheduler"],
    ["paging.thaw_after_s", "When a frozen chunk gets another chance", "s of the samples' time", "chosen here"],
];

fn needs(entry: &Entry) -> String {
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
