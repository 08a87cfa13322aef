//! The page on policies (`docs/policies.md`), drawn from the registry so that it cannot lie. The pages of
//! single policies are drawn by `tests/pages.rs`, which may read the files that they are in.

use std::fmt::Write;

use crate::registry::{self, Entry, PAGINGS, PLACEMENTS};
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
         `di-plain+window`. Each has a page of its own: the problem, the rule, the terms and the \
         properties, as its file in `crates/policy/src` states them, its settings, and what of the \
         papers' claims about it holds here.\n\n\
         | policy | placement | paging | what it does | needs | from |\n\
         |---|---|---|---|---|---|\n",
    );
    for entry in registry::policies() {
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
         single ones. How often threads are placed (1000 ms, DINO \
         3.3.3; 10 ms for `brm`, BRM 5) and samples looked at (10 \
         ms, DINO 4.2) is set of the loop: `placement_interval_ms` and `paging_interval_ms` in \
         `[herd]`.\n\n```toml\n{defaults}```\n\n| key | meaning | unit | from |\n|---|---|---|---|\n",
    );
    for key in KEYS {
        row(&mut page, &[&code(key[0]), key[1], key[2], key[3]]);
    }
    page
}

/// The settings that a half goes by, each with its meaning, unit and source.
pub fn settings_of(names: &[&str]) -> impl Iterator<Item = &'static [&'static str; 4]> {
    KEYS.iter().filter(move |key| {
        let section = key[0].split_once('.').map(|(section, _)| section);
        names
            .iter()
            .any(|name| *name == key[0] || Some(*name) == section)
    })
}

/// Every rule of every policy, placements first, each once however many policies share it.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let placements = PLACEMENTS.iter().flat_map(|half| half.rules);
    let pagings = PAGINGS.iter().flat_map(|half| half.rules);
    let all = crate::stage::RULES.iter().chain(placements).chain(pagings);
    let mut seen: Vec<&Rule> = Vec::new();
    all.filter(move |rule| {
        let new = !seen.contains(rule);
        seen.extend(new.then_some(*rule));
        new
    })
}

/// All settings of policies: key, meaning, unit, source.
#[rustfmt::skip]
pub const KEYS: &[[&str; 4]] = &[
    ["classes.preset", "Which values the class rule starts from", "`paper` or `clavis`", "DINO 3.3.2, 3.3.3; the authors' scheduler"],
    ["classes.devil_from", "Lowest miss rate of a devil", "cache lines per 1000 instructions", "DINO 3.3.2"],
    ["classes.super_devil_above", "Miss rate above which a thread is a super-devil", "cache lines per 1000 instructions", "DINO 3.3.2"],
    ["classes.votes", "Intervals that must speak for another class", "intervals", "DINO 3.3.3"],
    ["classes.of_last", "Of how many last intervals", "intervals", "DINO 3.3.3"],
    ["placement.least_cpu_share", "Threads that use less of a CPU are left to the kernel", "share of a CPU, 0 to 1", "the authors' scheduler"],
    ["paging.window_pages", "K: pages that one sampled access moves, in total", "base pages", "DINO 4.1; a total in the authors' scheduler"],
    ["paging.bounce_limit", "How often a chunk of K pages may change hands before it is frozen", "times", "the authors' scheduler"],
    ["paging.thaw_after_s", "When a frozen chunk gets another chance", "s of the samples' time", "chosen here"],
    ["n_mass.threshold", "Pressure that a processor must stay below when a thread is moved there that is not at home there", "cache lines per 1000 instructions", "N-MASS 3.4"],
    ["n_mass.changed_by", "Threads are placed anew when a miss rate changed by more than this", "share of the miss rate", "N-MASS 3.4"],
    ["n_mass.most_moved", "How much a thread that leaves its home may take along: less than half the difference of the pressures, or as long as the difference falls", "`half` or `difference`", "N-MASS 3.1"],
    ["n_mass.exchange", "Whether threads may change places where there is no free core", "`true` or `false`", "chosen here"],
    ["ipm.age", "What is left after an interval of what was known to be shared", "share, 0 to 1", "IPM 4.4.4"],
    ["ipm.changed_by", "Threads are mapped anew when more than this of all sharing is between other pairs", "share, 0 to 1", "chosen here"],
    ["ipm.mapper", "What maps threads to CPUs by what they share", "`eager`, `refined` or `exact`", "IPM 4.4.4"],
    ["ipm.evidence", "What pages and threads are judged by: TLB residency, or memory samples in its place where there is no such hardware", "`residency` or `samples`", "IPM 3"],
    ["ipm.cr_aging", "`CR_aging` of events (misses, samples) credited in place of residency", "binary digits, 1 to 15", "IPM 6.4"],
    ["ipm.cr_mig", "`CR_mig`, likewise", "binary digits, below `ipm.cr_aging`", "IPM 6.4"],
    ["kmaf.exclusivity", "The share of a page's faults that a node must have to get it", "share, 0 to 1", "chosen here"],
    ["brm.candidates", "Which threads are moved: those that are tagged, those that are seen to go to the uncore often, all; `auto` is by tags in processes of which anybody tells, else by what is seen", "`auto`, `tagged`, `inferred` or `all`", "BRM 4.3, 8"],
    ["brm.requests_per_s", "Requests to the uncore that make a thread a candidate where nobody tells", "requests per second", "chosen here"],
    ["brm.least_change", "Such a candidate that was on another node, and whose own uncore penalty changed by less, is none any more", "share of the uncore penalty", "BRM 8; the figure chosen here"],
    ["brm.forget_after_least_ms", "What a thread knows of nodes is forgotten after a random time, at least this", "ms for each other node that it may have", "BRM 4.4; the figure chosen here"],
    ["brm.forget_after_most_ms", "And at most this", "the same", "BRM 4.4; the figure chosen here"],
    ["brm.least_gain", "A node counts as better where the system-wide penalty was less by more than this", "share of the system-wide penalty", "BRM prints 0; chosen here"],
    ["brm.average", "Whether average penalties begin anew when a candidate has come to another node, or go on", "`anew` or `through`", "BRM 5 (does not say)"],
    ["brm.steps", "With more than two nodes: one step of the probability a tick, or one for each other node", "`text` or `printed`", "BRM 4.4; Algorithm 1"],
    ["brm.system_penalty", "How the system-wide penalty is kept: one total, or a shard for each node that sees the others as of the last tick", "`plain` or `sharded`", "BRM 4.2; 8"],
    ["oracle.layouts", "How many layouts are tried at most; where there are no more, all are", "layouts", "chosen here"],
    ["oracle.changed_by", "Threads are placed anew when a miss rate changed by more than this", "share of the miss rate", "as N-MASS 3.4"],
    ["penalty.estimate", "Where NUMA penalties come from: the profile of the program and else the regression, or the regression for all", "`profile` or `regression`", "N-MASS 3.4, 4.5"],
    ["penalty.intercept", "The regression's penalty of a program that never goes to memory", "cycles per instruction remote / local", "N-MASS 4.5"],
    ["penalty.slope", "What a line per 1000 instructions adds to it", "the same, per line per 1000 instructions", "N-MASS 4.5"],
    ["penalty.miss_rates", "Miss rates by process name, recorded of the program alone, in place of those seen now", "cache lines per 1000 instructions", "N-MASS 3.4"],
    ["penalty.programs", "Measured penalties by process name, for instance `{ mcf = 1.21 }`", "cycles per instruction remote / local, at least 1", "N-MASS 3.2"],
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
