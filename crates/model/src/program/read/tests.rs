//! What a file of profiles says, and what is refused, where and why.

use std::path::Path;

use proptest::prelude::*;

use super::*;

mod documentation;

fn programs(text: &str, file: &Path) -> Result<Vec<Program>, FileError> {
    super::programs(Document::new(text, file.to_str().unwrap()))
}

const EXAMPLE: &str = r#"source = "my own choice"
[[program]]
name = "stream"
about = "reads an array"
footprint_mib = 64
threads = 2
hot_pages = 0.25
hot_accesses = 0.5
shared_accesses = 0.5
[[program.phase]]
instructions = 2e9
cycles_per_instruction = 0.5
cache_accesses = 20
lines = [[1, 16.0], [4.0, 4]]
misses_in_flight = 10
busy = 0.5
sleep_ms = 2.5
"#;

#[test]
fn a_profile_is_read_as_it_is_written() {
    let programs = programs(EXAMPLE, Path::new("my.toml")).unwrap();
    let [program] = &programs[..] else {
        panic!("one program, not {}", programs.len());
    };
    assert_eq!(program.name, "stream");
    assert_eq!(program.source, "my own choice");
    assert_eq!(program.threads, 2);
    assert_eq!(program.footprint_bytes, 64 << 20);
    let hot = Hot {
        pages: 0.25,
        accesses: 0.5,
    };
    assert_eq!(program.hot, Some(hot));
    assert_eq!(
        (program.shared_accesses, program.shared_written),
        (0.5, 0.0)
    );
    assert!(!program.repeat);
    assert_eq!(program.instructions(), 2e9);
    let phase = &program.phases[0];
    assert_eq!(phase.lines.at(0.0), 20.0);
    assert!((phase.lines.at(2.0 * MIB) - 10.0).abs() < 1e-12);
    assert_eq!((phase.busy, phase.sleep_ns), (0.5, 2.5e6));
    assert_eq!(
        (phase.misses_in_flight, phase.written_per_line),
        (10.0, 0.0)
    );
}

/// A program by a sweep.
const SWEEP: &str = r#"source = "my own choice"
[[reference]]
name = "here"
source = "its manual"
clock_ghz = 2
memory_beyond_llc_ns = 50
lines_in_flight = 10
instructions_per_cycle = 4
private_cache_mib = 1
[[program]]
name = "swept"
about = "measured with less and less cache"
footprint_mib = 64
[program.sweep]
on = "here"
instructions = 2e9
cache_mib = [2, 8]
cycles_per_instruction = [1.5, 1.0]
lines = [[2, 20], [8, 10]]
demand_without_prefetch = [16, 8]
demand = [10, 5]
l2_misses = 12
written = 4
"#;

#[test]
fn a_sweep_is_read_into_the_one_phase_that_follows_from_it() {
    let programs = programs(SWEEP, Path::new("my.toml")).unwrap();
    let [phase] = &programs[0].phases[..] else {
        panic!("one phase");
    };
    // Half a cycle for 10 of 1000 instructions: 50 of the 100 cycles of a wait.
    assert_eq!(phase.misses_in_flight, 2.0);
    assert_eq!(phase.cycles_per_instruction, 0.5);
    assert_eq!(phase.written_per_line, 0.2);
    assert_eq!(phase.lines.at(2.0 * MIB), 20.0);
    assert_eq!(phase.lines.at(1.0 * MIB), 22.0);
    assert_eq!(phase.demand_at(8.0 * MIB), 5.0);
}

#[test]
fn phases_are_run_through_as_often_as_is_said() {
    let with = |line: &str| {
        let text = EXAMPLE.replace("threads = 2", line);
        programs(&text, Path::new("my.toml")).unwrap().remove(0)
    };
    let thrice = with("times = 3");
    assert_eq!(thrice.phases.len(), 3);
    assert_eq!(thrice.instructions(), 6e9);
    assert!(!thrice.repeat);
    assert!(with("repeat = true").repeat);
}

#[test]
fn a_short_text_cannot_ask_for_phases_without_bound() {
    let program = |number: usize| {
        format!(
            "[[program]]\nname = \"p{number}\"\nabout = \"\"\nfootprint_mib = 1\ntimes = 65536\n\
             [[program.phase]]\ninstructions = 1e9\ncycles_per_instruction = 1\ncache_accesses = 1\n\
             lines = [[1, 1]]\nmisses_in_flight = 1\n"
        )
    };
    let file = |many: usize| {
        let programs: String = (0..many).map(program).collect();
        format!("source = \"my own choice\"\n{programs}")
    };
    let read = |many: usize| programs(&file(many), Path::new("my.toml"));
    assert_eq!(read(16).unwrap().len(), 16);
    let told = read(17).unwrap_err().to_string();
    assert_eq!(
        told,
        "my.toml:179: program: more than 1048576 phases in one file, counted as often as they are run \
         through; split it"
    );
}

/// Each row: a line of a good file, what stands there instead, and how it is refused.
fn check_refusals(good: &str, rows: &[(&str, &str, &str)]) {
    assert!(programs(good, Path::new("my.toml")).is_ok());
    for &(line, instead, wanted) in rows {
        let at = 1 + good
            .lines()
            .position(|there| there == line)
            .unwrap_or_else(|| panic!("the good file has no line {line}"));
        let lines: Vec<&str> = good
            .lines()
            .map(|there| if there == line { instead } else { there })
            .collect();
        let error = programs(&lines.join("\n"), Path::new("my.toml"))
            .map(|_| ())
            .expect_err(instead)
            .to_string();
        let wanted = wanted.replace("HERE", &at.to_string());
        assert_eq!(error, format!("my.toml:{wanted}"), "for {instead:?}");
    }
}

#[test]
fn figures_that_cannot_be_are_refused_at_their_line() {
    check_refusals(
        EXAMPLE,
        &[
            (
                "cycles_per_instruction = 0.5",
                "cycles_per_instruction = -0.5",
                "HERE: stream: cycles_per_instruction: -0.5 is not above 0 and at most 10000",
            ),
            (
                "cycles_per_instruction = 0.5",
                "cycles_per_instruction = nan",
                "HERE: stream: cycles_per_instruction: NaN is not above 0 and at most 10000",
            ),
            (
                "instructions = 2e9",
                "instructions = inf",
                "HERE: stream: instructions: inf is not above 0 and at most 1e18",
            ),
            (
                "instructions = 2e9",
                "instructions = 1e300",
                "HERE: stream: instructions: 1e300 is not above 0 and at most 1e18",
            ),
            (
                "cache_accesses = 20",
                "cache_accesses = -1",
                "HERE: stream: cache_accesses: -1 is not within 0 to 10000",
            ),
            (
                "misses_in_flight = 10",
                "misses_in_flight = 0.5",
                "HERE: stream: misses_in_flight: 0.5 is not within 1 to 10000",
            ),
            (
                "misses_in_flight = 10",
                "misses_in_flight = 10\nwritten_per_line = nan",
                "16: stream: written_per_line: NaN is not within 0 to 10000",
            ),
            (
                "footprint_mib = 64",
                "footprint_mib = 0",
                "HERE: stream: footprint_mib: 0 is not above 0 and at most 1.073741824e9",
            ),
            (
                "footprint_mib = 64",
                "footprint_mib = 0.001",
                "HERE: stream: footprint_mib: less than a page of 4 KiB",
            ),
            (
                "threads = 2",
                "threads = 0",
                "HERE: stream: threads: 0 is not within 1 to 1048576",
            ),
            (
                "threads = 2",
                "numa_penalty = 0.2",
                "HERE: stream: numa_penalty: 0.2 is not within 0.5 to 100",
            ),
            (
                "threads = 2",
                "request_instructions = 0",
                "HERE: stream: request_instructions: 0 is not above 0 and at most \
                 1e18",
            ),
            (
                "threads = 2",
                "shared_written = -1",
                "HERE: stream: shared_written: -1 is not within 0 to 10000",
            ),
            (
                "shared_accesses = 0.5",
                "shared_accesses = 1.5",
                "HERE: stream: shared_accesses: 1.5 is not within 0 to 1",
            ),
            (
                "busy = 0.5",
                "busy = 1.5",
                "HERE: stream: busy: 1.5 is not above 0 and at most 1",
            ),
            (
                "busy = 0.5",
                "busy = 0",
                "HERE: stream: busy: 0 is not above 0 and at most 1",
            ),
            (
                "sleep_ms = 2.5",
                "sleep_ms = -2.5",
                "HERE: stream: sleep_ms: -2.5 is not above 0 and at most 8.64e7",
            ),
        ],
    );
}

#[test]
fn figures_that_do_not_go_together_are_refused_at_their_line() {
    check_refusals(
        EXAMPLE,
        &[
            (
                "sleep_ms = 2.5",
                "",
                "16: stream: busy: busy below 1 requires sleep_ms",
            ),
            (
                "busy = 0.5",
                "",
                "17: stream: sleep_ms: sleep_ms requires busy below 1",
            ),
            (
                "hot_accesses = 0.5",
                "",
                "7: stream: hot_pages: give hot_accesses with it",
            ),
            (
                "hot_pages = 0.25",
                "",
                "8: stream: hot_accesses: give hot_pages with it",
            ),
            (
                "hot_accesses = 0.5",
                "hot_accesses = 0.2",
                "HERE: stream: hot_accesses: 0.2 of the accesses to 0.25 of the pages is not hot",
            ),
            (
                "threads = 2",
                "repeat = true\ntimes = 2",
                "7: stream: times: give either this or repeat, which never ends, not both",
            ),
            (
                "threads = 2",
                "times = 100000",
                "HERE: stream: times: 100000 is not within 1 to 65536, for 1 phases",
            ),
        ],
    );
}

#[test]
fn curves_that_cannot_be_are_refused_at_their_line() {
    let good = "lines = [[1, 16.0], [4.0, 4]]";
    check_refusals(
        EXAMPLE,
        &[
            (
                good,
                "lines = [[4, 16], [1, 4]]",
                "HERE: stream: lines: sizes ascend, but 1 MiB follows 4 MiB",
            ),
            (
                good,
                "lines = [[1, 4], [4, 16]]",
                "HERE: stream: lines: more cache cannot fetch more, but 16 lines at 4 MiB follow \
                 4 at 1 MiB",
            ),
            (
                good,
                "lines = [[1, 21]]",
                "HERE: stream: lines: more cache cannot fetch more, but 21 lines at 1 MiB follow \
                 20 at 0 MiB",
            ),
            (
                good,
                "lines = []",
                "HERE: stream: lines: a curve needs one point at least",
            ),
            (
                good,
                "lines = [[nan, 16]]",
                "HERE: stream: lines: NaN MiB of cache is not above 0 and at most 1.073741824e9",
            ),
            (
                good,
                "lines = [[0, 16]]",
                "HERE: stream: lines: 0 MiB of cache is not above 0 and at most 1.073741824e9",
            ),
            (
                good,
                "lines = [[1, inf]]",
                "HERE: stream: lines: inf lines are not within 0 to 10000",
            ),
            (
                good,
                "lines = [[1, 1]]\ndemand = [[1, -1]]",
                "15: stream: demand: -1 lines are not within 0 to 10000",
            ),
        ],
    );
}

#[test]
fn what_is_no_profile_is_refused_at_its_line() {
    check_refusals(
        EXAMPLE,
        &[
            (
                "name = \"stream\"",
                "name = \"a b\"",
                "HERE: name: \"a b\" is no name: 1 to 64 letters, digits, dots, hyphens, \
                 underscores, plus signs",
            ),
            (
                "source = \"my own choice\"",
                "source = \" \"",
                "HERE: source: give the source of the figures, even if it is \"my own choice\"",
            ),
            (
                "threads = 2",
                "treads = 2",
                "HERE: program[0].treads: unknown field `treads`; did you mean `threads`?",
            ),
            (
                "threads = 2",
                "threads = \"two\"",
                "HERE: program[0].threads: invalid type: string \"two\", expected u32",
            ),
            (
                "instructions = 2e9",
                "",
                "10: program[0].phase[0]: missing field `instructions`",
            ),
            (
                "threads = 2",
                "threads =",
                "HERE: not TOML: string values must be quoted, expected literal string",
            ),
        ],
    );
    let nothing_to_run = EXAMPLE.split("[[program.phase]]").next().unwrap();
    let error = programs(nothing_to_run, Path::new("my.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.toml:2: stream: phase: the program has no phases: add [[program.phase]] or [program.sweep]"
    );
    let twice = format!("{EXAMPLE}{}", EXAMPLE.split_once('\n').unwrap().1);
    let error = programs(&twice, Path::new("my.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.toml:19: name: a second program \"stream\" in this file"
    );
    let many = format!(
        "source = 's'\n{}",
        "[[program]]\nname = 'x'\nabout = ''\nfootprint_mib = 1\n".repeat(4097)
    );
    let error = programs(&many, Path::new("my.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.toml:16386: program: more than 4096 programs in one file; split it"
    );
}

#[test]
fn sweeps_that_cannot_be_are_refused_at_their_line() {
    check_refusals(
        SWEEP,
        &[
            (
                "on = \"here\"",
                "on = \"there\"",
                "HERE: swept: on: no [[reference]] \"there\" in this file, but here",
            ),
            (
                "clock_ghz = 2",
                "clock_ghz = -2",
                "HERE: reference: clock_ghz: -2 is not above 0 and at most 1000",
            ),
            (
                "source = \"its manual\"",
                "source = \"\"",
                "HERE: reference: source: give the source of the figures, even if it is \"my own choice\"",
            ),
            (
                "cache_mib = [2, 8]",
                "cache_mib = [8, 2]",
                "HERE: swept: cache_mib: sizes ascend, but 2 MiB follows 8 MiB",
            ),
            (
                "cache_mib = [2, 8]",
                "cache_mib = [8]",
                "HERE: swept: cache_mib: 1 sizes are not within 2 to 1024",
            ),
            (
                "cache_mib = [2, 8]",
                "cache_mib = [0.5, 8]",
                "HERE: swept: cache_mib: 0.5 MiB is less than the 1 of the reference's private \
                 cache, which counts with it",
            ),
            (
                "cycles_per_instruction = [1.5, 1.0]",
                "cycles_per_instruction = [1.5]",
                "HERE: swept: cycles_per_instruction: 1 figures for 2 sizes of cache",
            ),
            (
                "cycles_per_instruction = [1.5, 1.0]",
                "cycles_per_instruction = [1.5, 0]",
                "HERE: swept: cycles_per_instruction: 0 is not above 0",
            ),
            (
                "lines = [[2, 20], [8, 10]]",
                "lines = [[2, 20]]",
                "HERE: swept: lines: give the lines of the largest size of cache at least",
            ),
            (
                "lines = [[2, 20], [8, 10]]",
                "lines = [[2, 20], [7, 10]]",
                "HERE: swept: lines: 7 MiB is not in cache_mib",
            ),
            (
                "lines = [[2, 20], [8, 10]]",
                "lines = [[2, 10], [8, 20]]",
                "HERE: swept: lines: more cache cannot fetch more, but 20 lines follow 10",
            ),
            (
                "lines = [[2, 20], [8, 10]]",
                "lines = [[8, 10]]",
                "23: swept: written: is per line read at the smallest size: give the lines read \
                 there, or one_input",
            ),
            (
                "written = 4",
                "written = 4\none_input = { lines = 9, written = 3 }",
                "HERE: swept: written: give either this or one_input, not both",
            ),
            (
                "written = 4",
                "one_input = { lines = 0, written = 3 }",
                "HERE: swept: one_input.lines: 0 is not above 0 and at most 10000",
            ),
            (
                "demand_without_prefetch = [16, 8]",
                "demand_without_prefetch = [8, 16]",
                "HERE: swept: demand_without_prefetch: more cache cannot miss more, but 16 \
                 follows 8",
            ),
            (
                "demand = [10, 5]",
                "demand = [nan, 5]",
                "HERE: swept: demand: NaN is not within 0 to 10000",
            ),
        ],
    );
    let both = SWEEP.to_owned()
        + EXAMPLE
            .split_once("hot_pages")
            .unwrap()
            .1
            .split_once("0.5\nshared_accesses = 0.5\n")
            .unwrap()
            .1;
    let error = programs(&both, Path::new("my.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "my.toml:14: swept: sweep: give either this or phases, not both"
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,400}") {
        let _ = programs(&text, Path::new("my.toml"));
    }

    /// Texts that are nearly profiles: a good one with a stretch of it replaced.
    #[test]
    fn no_figure_makes_the_reader_panic_or_a_program_that_cannot_be(
        sweep in any::<bool>(),
        line in 0_usize..24,
        figure in prop_oneof![
            any::<f64>().prop_map(|figure| format!("{figure:?}")),
            any::<i64>().prop_map(|figure| figure.to_string()),
            (0.0..100.0_f64, 0.0..100.0_f64).prop_map(|(a, b)| format!("[[{a:?}, {b:?}]]")),
            (0.0..100.0_f64, 0.0..100.0_f64).prop_map(|(a, b)| format!("[{a:?}, {b:?}]")),
            "\\PC{0,12}",
        ],
    ) {
        let good = if sweep { SWEEP } else { EXAMPLE };
        let text: Vec<String> = good
            .lines()
            .enumerate()
            .map(|(at, there)| match there.split_once(" = ") {
                Some((key, _)) if at == line => format!("{key} = {figure}"),
                _ => there.to_owned(),
            })
            .collect();
        if let Ok(programs) = programs(&text.join("\n"), Path::new("my.toml")) {
            for phase in programs.iter().flat_map(|program| &program.phases) {
                prop_assert!(phase.cycles_per_instruction > 0.0 && phase.misses_in_flight >= 1.0);
                prop_assert!(phase.written_per_line.is_finite() && phase.sleep_ns.is_finite());
                for bytes in [0.0, 1e3, 1e6, 1e9, 1e18] {
                    prop_assert!(phase.lines.at(bytes) >= 0.0);
                    prop_assert!(phase.lines.held_after(bytes).is_finite());
                }
            }
        }
    }
}
