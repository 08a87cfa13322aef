//! `report`: what its pages say, that they are sound HTML, and that nothing in a ledger can make them
//! anything else.

pub mod page;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use numaherd_herd::ledger::{Design, Pair, Reader, Side, Trial, TrialEnd, TrialPlan};
use numaherd_herd::{Guard, HerdError, Line, Record};
use numaherd_show::report::{Reading, Run};
use numaherd_topology::CpuId;
use numaherd_world::{Agent, Sharing, VirtualCpu, VirtualMachine};
use proptest::prelude::*;

use crate::made::*;
use crate::runs;
use page::Page;

/// The run that a ledger holds, read as the program reads it.
fn run_of(name: &str, bytes: Vec<u8>) -> Run {
    let reader = Reader::of_bytes(Path::new(name), bytes).unwrap();
    read_on(name, reader)
}

fn read_on(name: &str, mut reader: Reader) -> Run {
    let mut reading = Reading::new(name, reader.header());
    let mut damage: Option<HerdError> = None;
    for line in &mut reader {
        match line {
            Ok(line) => reading.line(&Arc::new(line)),
            Err(error) => damage = Some(error),
        }
    }
    reading.finish(reader.skipped(), damage.as_ref())
}

fn page_of(made: &Made) -> Page {
    Page::of(&[run_of("run.ledger", made.bytes())])
}

/// Two machines, one with an agent, the uncore penalty measured, and sharing within a process.
fn machines() -> Made {
    let mut made = Made::new("brm");
    for second in 0..6u64 {
        let mut threads: Vec<_> = (0..4)
            .map(|n| {
                let cpu = if second > 2 && n == 1 { 4 } else { n };
                let mut thread = thread(800 + n, 800, "CPU/KVM", cpu, 900, 12.0, 0.5);
                let counts = thread.counts.as_mut().unwrap();
                counts.uncore_busy_cycles = Some(if second > 2 { 40_000 } else { 90_000 });
                counts.uncore_requests = Some(1_000);
                thread
            })
            .collect();
        threads.push(thread(900, 900, "crew", 6, 500, 2.0, 1.0));
        threads.push(thread(901, 900, "crew", 7, 500, 2.0, 1.0));
        let mut machine = process(800, "qemu-system-x86", &[(0, 4_000), (2, 1_000)]);
        let vcpu = |n| VirtualCpu {
            index: n,
            thread: thread_id(800 + n),
        };
        machine.machine = Some(Arc::new(VirtualMachine {
            name: "web-1".to_owned(),
            vcpus: (0..4).map(vcpu).collect(),
            memory_bytes: Some(2 << 30),
            source: "its monitor".to_owned(),
            agent: Agent::Telling,
            fixed_memory: None,
        }));
        let mut crew = process(900, "crew", &[(3, 2_000)]);
        let pair = (thread_id(900), thread_id(901), 1_000 * (second + 1));
        crew.sharing = Some(Arc::new(Sharing::of([pair])));
        made.second(threads, vec![machine, crew]);
        if second == 2 {
            let why = "penalty 90.0 cycles, least on node 2";
            made.placed(
                vec![placement(801, 1, 4, "brm: bias", why, "")],
                vec![order(801, Some(4), "4-5")],
            );
        } else {
            made.placed(vec![], vec![]);
        }
    }
    made.end(ended("brm"));
    made
}

/// A trial of 20 pairs about this gain in percent, that ended when a difference was shown.
fn trial(gain: f64) -> Made {
    let mut made = Made::new("dino");
    let plan = TrialPlan {
        policy: "dino".to_owned(),
        against: "linux".to_owned(),
        counter: "what `cat done` prints".to_owned(),
        is_named: true,
        design: Design {
            block_ns: 10_000_000_000,
            washout_ns: 3_000_000_000,
            pairs_planned: 30,
            seed: 7,
            stop_early: true,
        },
    };
    let record = |pair, ended| Trial {
        plan: plan.clone(),
        pair,
        ended,
    };
    for second in 0..20 {
        made.second(vec![thread(1, 1, "server", 0, 900, 2.0, 1.0)], vec![]);
        made.trial(record(
            Some(Pair {
                first: Side::Policy,
                policy: 100.0 + gain + f64::from(second % 5) - 2.0,
                against: 100.0,
            }),
            None,
        ));
    }
    made.trial(record(None, Some(TrialEnd::Early)));
    made.end(ended("dino"));
    made
}

fn all_runs() -> Vec<Made> {
    let mut all = vec![trial(12.0), machines()];
    all.extend(runs::all());
    all
}

#[test]
fn a_page_is_html_that_needs_no_mending_and_nothing_from_elsewhere() {
    let runs: Vec<Run> = all_runs()
        .iter()
        .map(|made| run_of("run.ledger", made.bytes()))
        .collect();
    Page::of(&runs).assert_sound();
    for made in all_runs() {
        page_of(&made).assert_sound();
    }
}

#[test]
fn a_trial_has_its_result_how_it_was_made_and_its_pairs() {
    let page = page_of(&trial(12.0));
    let text = page.text();
    for expected in [
        "dino: +12.0 % +- 1.1 (20 pairs), 95 %",
        "Progress: what `cat done` prints.",
        "Method: 20 of 30 pairs of blocks of 10 s, of which the first 3 s do not count, in random order (seed 7); the \
         interval holds whenever a trial is ended; ended early, as a difference was shown.",
        "Carried over: no thread had to leave its CPU; no page was moved.",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert_eq!(page.html.matches("<circle class=\"run\"").count(), 20);
    let nothing = page_of(&trial(0.0)).text();
    assert!(
        nothing.contains("no difference could be shown; to see 1 % it would take"),
        "{nothing}"
    );
    assert!(!page_of(&runs::faster()).text().contains("Gain by pair"));
}

#[test]
fn moved_and_got_faster() {
    insta::assert_snapshot!(page_of(&runs::faster()).text());
}

#[test]
fn shared_memory_and_files_are_told_apart_in_a_process_s_pages() {
    let text = page_of(&runs::buffers()).text();
    let pages = "1: 50.7 %, 0: 49.3 % of 35,500 (32,000 shared, 1,500 of files)";
    assert!(text.contains(pages), "{text}");
}

#[test]
fn a_move_that_was_undone() {
    let text = page_of(&runs::slower_and_undone()).text();
    assert!(text.contains("| undone |"), "{text}");
}

#[test]
fn machines_their_penalty_and_who_shares() {
    insta::assert_snapshot!(page_of(&machines()).text());
}

#[test]
fn a_thread_that_was_given_to_an_idle_node_is_among_the_moves() {
    let text = page_of(&runs::virtual_machine()).text();
    assert!(text.contains("| given to an idle node |"), "{text}");
}

#[test]
fn refused_by_each_guard() {
    let text = page_of(&runs::refused_by_each_guard()).text();
    let placings = runs::refused_by_each_guard();
    let refusals = placings
        .lines()
        .iter()
        .filter_map(|line| match &line.record {
            Record::Placing(placing) => Some(&placing.refusals),
            Record::Paging(tick) => Some(&tick.refusals),
            _ => None,
        });
    let guards: Vec<Guard> = refusals.flatten().map(|refusal| refusal.guard).collect();
    assert!(guards.len() > 5);
    for guard in guards {
        assert!(
            text.contains(&format!("{guard} | ")),
            "{guard} is missing: {text}"
        );
    }
}

#[test]
fn a_dry_run_says_what_it_would_have_done() {
    let text = page_of(&runs::dry()).text();
    assert!(text.contains("Dry run: nothing was carried out."), "{text}");
    assert!(text.contains("| would move |"), "{text}");
}

#[test]
fn several_runs_are_compared_by_policy() {
    let several = [
        ("linux.0", runs::nothing()),
        ("dino.0", runs::faster()),
        ("dino.1", runs::faster()),
        ("di-plain.0", runs::slower_and_undone()),
    ];
    let runs: Vec<Run> = several
        .iter()
        .map(|(name, made)| run_of(name, made.bytes()))
        .collect();
    let text = Page::of(&runs).text();
    let end = text.find("## Run 1").expect("each run follows");
    insta::assert_snapshot!(&text[..end]);
}

#[test]
fn a_single_run_shows_no_interval_and_no_comparison() {
    let text = page_of(&runs::faster()).text();
    assert!(!text.contains('±') && !text.contains("Compared"), "{text}");
}

#[test]
fn a_ledger_without_a_snapshot_or_a_start_says_so() {
    let made = Made::new("dino");
    let text = page_of(&made).text();
    assert!(text.contains("ends before the first snapshot"), "{text}");
    let header = made
        .bytes()
        .split_inclusive(|&b| b == b'\n')
        .next()
        .unwrap()
        .to_vec();
    let page = Page::of(&[run_of("run.ledger", header)]);
    page.assert_sound();
    assert!(page.text().contains("whose start is lost"));
}

#[test]
fn a_damaged_ledger_is_drawn_up_to_the_damage() {
    let mut bytes = runs::faster().bytes();
    let lines = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let nineteenth = lines.map(|(at, _)| at).nth(18).unwrap();
    bytes[nineteenth + 40] ^= 1;
    let page = Page::of(&[run_of("run.ledger", bytes)]);
    page.assert_sound();
    let text = page.text();
    assert!(
        text.contains("Damaged ledger. The page shows what comes before the damage."),
        "{text}"
    );
    assert!(text.contains("line 20"), "{text}");
}

#[test]
fn the_later_part_of_a_long_ledger_says_that_there_was_an_earlier_one() {
    let later = run_of("run.ledger", runs::faster().later_bytes());
    let text = Page::of(&[later]).text();
    assert!(text.contains("begins in the middle of the run"), "{text}");
}

/// What someone might call a thread.
const HOSTILE: [&str; 5] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</style></svg></title><b>",
    "]]>--><!--\u{0}\u{202e}\u{ffff}",
    "' onload='alert(1)",
];

/// Every text that a ledger holds, changed.
fn with_texts(made: &Made, text: &str) -> Vec<Line> {
    fn change(value: &mut serde_json::Value, text: &str) {
        const TEXTS: [&str; 16] = [
            "against",
            "counter",
            "name",
            "why",
            "rule",
            "instead_of",
            "text",
            "policy",
            "error",
            "source",
            "reason",
            "remedy",
            "caveat",
            "hands_off",
            "program",
            "notices",
        ];
        match value {
            serde_json::Value::Object(members) => {
                for (key, value) in members {
                    match value {
                        serde_json::Value::String(old) if TEXTS.contains(&key.as_str()) => {
                            text.clone_into(old);
                        }
                        _ => change(value, text),
                    }
                }
            }
            serde_json::Value::Array(items) => {
                items.iter_mut().for_each(|item| change(item, text));
            }
            _ => {}
        }
    }
    let lines = made.lines().iter().map(|line| {
        let mut value = serde_json::to_value(line).unwrap();
        change(&mut value, text);
        Line::read(value.to_string().as_bytes()).unwrap()
    });
    lines.collect()
}

#[test]
fn what_a_ledger_says_is_text_and_never_markup() {
    let bytes = runs::nothing().bytes();
    let mut header = Reader::of_bytes(Path::new("x"), bytes)
        .unwrap()
        .header()
        .clone();
    for text in HOSTILE {
        text.clone_into(&mut header.program);
        let runs: Vec<Run> = all_runs()
            .iter()
            .map(|made| {
                let mut reading = Reading::new(text, &header);
                let lines = with_texts(made, text).into_iter().map(Arc::new);
                lines.for_each(|line| reading.line(&line));
                reading.finish(0, None)
            })
            .collect();
        let page = Page::of(&runs);
        page.assert_sound();
        let start: String = text.chars().take(8).collect();
        assert!(page.text().contains(&start), "{text} is not shown");
    }
}

#[test]
fn figures_gone_mad_are_drawn_within_the_chart() {
    let mut made = Made::new("dino");
    for second in 0..3 {
        let mut mad = thread(1, 1, "mad", 0, 1, 1.0, 1.0);
        let counts = mad.counts.as_mut().unwrap();
        counts.lines = u64::MAX;
        counts.instructions = 1 + second;
        counts.local = Some(u64::MAX);
        counts.remote = Some(u64::MAX);
        counts.uncore_busy_cycles = Some(u64::MAX);
        counts.uncore_requests = Some(1);
        mad.cpu_share = f64::MAX;
        made.second(vec![mad], vec![process(1, "mad", &[(0, u64::MAX), (9, 1)])]);
    }
    page_of(&made).assert_sound();
    for gain in [f64::MAX, -100.0, -1e300, 1e-300] {
        page_of(&trial(gain)).assert_sound();
    }
}

#[test]
fn the_page_of_a_large_machine_is_bounded() {
    let mut made = Made::new("dino");
    let number = 1_200;
    for second in 0..10u32 {
        let threads = (0..number)
            .map(|n| {
                thread(
                    10_000 + n,
                    10_000 + n / 3 * 3,
                    "crew",
                    (n + second * 3) % 8,
                    9,
                    3.0,
                    0.5,
                )
            })
            .collect();
        let processes = (0..number / 3)
            .map(|n| process(10_000 + n * 3, "crew", &[(0, 100)]))
            .collect();
        made.second(threads, processes);
    }
    let page = page_of(&made);
    assert!(page.html.len() < 5_000_000, "{} bytes", page.html.len());
    let text = page.text();
    assert!(
        text.contains("800 more are not"),
        "threads left out are counted"
    );
    assert!(
        text.contains("300 more are not shown"),
        "processes left out are counted"
    );
}

#[test]
fn a_thread_that_changes_node_is_drawn_on_both() {
    let mut made = Made::new("linux");
    for second in 0..8 {
        let cpu = if second < 4 { 0 } else { 6 };
        let mut there = thread(5, 5, "goer", cpu, 100, 1.0, 1.0);
        there.assigned = Some(CpuId(cpu));
        made.second(vec![there], vec![process(5, "goer", &[(0, 10)])]);
    }
    let text = page_of(&made).text();
    assert!(text.contains("goer 5: node 0 50 %, node 3 50 %"), "{text}");
}

/// Runs as bytes, to be damaged.
static RUNS: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| all_runs().iter().map(Made::bytes).collect());

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn wherever_a_ledger_is_damaged_the_rest_is_drawn(
        run in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), cut in any::<bool>(),
    ) {
        let bytes: &Vec<u8> = run.get(&RUNS);
        let Some(reader) = damaged(bytes, at, cut) else {
            return Ok(());
        };
        let run = read_on("run.ledger", reader);
        let is_damaged = run.damage().is_some();
        let page = Page::of(&[run]);
        page.assert_sound();
        prop_assert_eq!(is_damaged, page.text().contains("Damaged ledger."));
    }
}

#[test]
fn lost_cores_are_a_figure_and_a_chart() {
    let page = page_of(&crate::lost::losing());
    page.assert_sound();
    let text = page.text();
    assert!(
        text.contains("3.1cores lost to caches and memory, on average"),
        "{text}"
    );
    assert!(
        text.contains("another placement would have recovered 2.4 (1.9 to 3) of them"),
        "{text}"
    );
    assert!(text.contains("recoverable"), "{text}");
    assert!(!page_of(&runs::nothing()).text().contains("Lost cores"));
}
