//! The built-in sets, one by one, and what is refused of a user's.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<EventTable, HostError> {
    EventTable::parse(text, Path::new("own.toml"))
}

/// A set that is right, with room for more before its tables.
fn with(keys: &str, tables: &str) -> String {
    let uncore = "[set.uncore]\nmissing = \"none is known\"\nremedy = \"the lab\"\n";
    format!(
        "[[set]]\nname = \"own\"\nsource = \"a manual\"\n\
         lines = [{{ name = \"misses\", event = 0x2e, umask = 0x41 }}]\n{keys}\n{tables}\n{uncore}"
    )
}

const INTEL: &str = "vendor = \"GenuineIntel\"\nfamily = 6\nmodels = [1, [4, 7]]";

fn intel(model: u32) -> Processor {
    Processor {
        vendor: "GenuineIntel".into(),
        family: 6,
        model,
        ..Processor::default()
    }
}

#[test]
fn every_file_of_the_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/events");
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    there.sort();
    let mut known: Vec<String> = FILES
        .iter()
        .map(|(name, _)| format!("{name}.toml"))
        .collect();
    known.sort();
    assert_eq!(there, known);
}

#[test]
fn the_built_in_sets_are_one_of_its_own_for_each_machine_and_one_for_the_rest() {
    // The same check as for a file: no machine is in two sets, and nothing comes after everywhere.
    let all: String = FILES.iter().map(|(_, text)| *text).collect();
    let all = parse(&all).unwrap();
    assert!(all.sets().eq(EventTable::built_in().sets()));
    let last = EventTable::built_in().sets().last().unwrap();
    assert_eq!(last.machine, AppliesTo::Any);
}

/// An event as the kernel is asked for it.
fn coded(event: &Event) -> String {
    let label = event.label();
    match event {
        Event::Coded {
            kind,
            config,
            config1,
            counters,
            ..
        } => {
            let mut text = format!("{kind} {config:#x}");
            if *config1 != 0 {
                text += &format!(" {config1:#x}");
            }
            if !counters.is_empty() {
                text += &format!(" on {counters:?}");
            }
            format!("{text} {label}")
        }
        Event::Named { .. } => label,
    }
}

/// Each event with what the kernel is asked for: the program's former constants, and the codes of
/// FACTS and the makers' manuals.
#[test]
fn every_event_is_coded_as_published() {
    let mut text = String::new();
    for set in EventTable::built_in().sets() {
        text += &format!("{}\n", set.name);
        for (role, event) in &set.events {
            text += &format!("  {:22} {}\n", role.to_string(), coded(event));
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_examples_of_the_page_and_of_this_module_are_files() {
    let page = include_str!("../../../../docs/events.md");
    let of_module: String = include_str!("../events.rs")
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect();
    for text in [page, &of_module] {
        let example = text.split_once("```toml\n").unwrap().1;
        let example = example.split_once("```").unwrap().0;
        let table = parse(example).unwrap();
        assert_eq!(table.names().collect::<Vec<_>>(), ["Example 3000"]);
        assert!(table.own[0].uncore.is_ok());
    }
}

#[test]
fn a_users_sets_come_before_the_built_in_ones() {
    let own = parse(&with(
        "vendor = \"GenuineIntel\"\nfamily = 6\nmodels = [0x55]",
        "",
    ))
    .unwrap();
    let table = own.before(EventTable::built_in());
    let of = |processor: &Processor| {
        let mut sets = table.sets();
        sets.find(|set| set.machine.is(processor))
            .unwrap()
            .name
            .clone()
    };
    assert_eq!(of(&intel(0x55)), "own");
    assert_eq!(of(&intel(0x2c)), "Intel Westmere-EP");
    assert_eq!(of(&intel(0xfff)), "the kernel's generic events");
    let neoverse = Processor {
        implementer: Some(0x41),
        part: 0xd40,
        ..Processor::default()
    };
    assert_eq!(of(&neoverse), "Arm Neoverse V1, N2 and V2");
}

#[test]
fn models_are_single_ones_and_ranges() {
    let table = parse(&with(INTEL, "")).unwrap();
    let of: Vec<u32> = (0..10)
        .filter(|model| table.own[0].machine.is(&intel(*model)))
        .collect();
    assert_eq!(of, [1, 4, 5, 6, 7]);
}

#[test]
fn a_codes_parts_are_where_the_processor_wants_them() {
    let config = |machine: &str, event: &str| {
        let text =
            with(machine, "").replace("{ name = \"misses\", event = 0x2e, umask = 0x41 }", event);
        match &parse(&text).unwrap().own[0].events[1] {
            (Role::Lines, Event::Coded { config, .. }) => *config,
            other => panic!("{other:?}"),
        }
    };
    let all = "{ name = \"m\", event = 0x60, umask = 0x07, cmask = 1, edge = true, inv = true }";
    assert_eq!(config(INTEL, all), 0x0184_0760);
    let amd = "vendor = \"AuthenticAMD\"\nfamily = 0x19\nmodels = [1]";
    assert_eq!(
        config(amd, "{ name = \"m\", event = 0x18e, umask = 0x1f }"),
        0x1_0000_1f8e
    );
    let arm = "implementer = 0x41\nparts = [0xd40]";
    assert_eq!(config(arm, "{ name = \"m\", event = 0x4005 }"), 0x4005);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let event = "lines = [{ name = \"misses\", event = 0x2e, umask = 0x41 }]";
    let uncore = "missing = \"none is known\"\nremedy = \"the lab\"";
    let right = with(INTEL, "");
    let twice = right.clone() + &right.replace("\"own\"", "\"other\"");
    let everywhere =
        with("everywhere = true", "").replace(event, "lines = [{ kernel = \"cache-misses\" }]");
    for (text, line, told) in [
        (with("", ""), 1, "identify the machine"),
        (
            with("vendor = \"GenuineIntel\"", ""),
            1,
            "vendor, family and models",
        ),
        (with("implementer = 0x41", ""), 1, "implementer and parts"),
        (
            with(&format!("{INTEL}\npmu = \"lab\""), ""),
            1,
            "in exactly one way",
        ),
        (
            with("vendor = \"Acme\"\nfamily = 6\nmodels = [1]", ""),
            5,
            "Acme",
        ),
        (
            with(
                "vendor = \"GenuineIntel\"\nfamily = 6\nmodels = [[9, 2]]",
                "",
            ),
            7,
            "ends before",
        ),
        (
            with(
                "vendor = \"GenuineIntel\"\nfamily = 6\nmodels = [\"x\"]",
                "",
            ),
            7,
            "first and last",
        ),
        (
            with(&format!("{INTEL}\nlinez = []"), ""),
            8,
            "unknown field `linez`",
        ),
        (
            with("pmu = \"lab\"", ""),
            4,
            "codes are of one kind of processor",
        ),
        (with("pmu = \"../x\"", ""), 5, "letters, digits"),
        (right.replace("0x41", "0x141"), 4, "umask is 0 to 0xff"),
        (right.replace("0x2e", "0x12e"), 4, "event is 0 to 0xff"),
        (right.replace(event, "lines = []"), 4, "one event"),
        (
            right.replace(event, "lines = [{ kernel = \"cash-misses\" }]"),
            4,
            "cash-misses",
        ),
        (
            right.replace(event, "lines = [{ kernel = \"cycles\", event = 1 }]"),
            4,
            "either a code",
        ),
        (
            right.replace("name = \"misses\", ", ""),
            4,
            "give the event a name",
        ),
        (right.replace("\"own\"", "\" \""), 2, "must not be empty"),
        (right.replace(uncore, "missing = \"why\""), 9, "remedy"),
        (
            with(INTEL, "[set.split]\nremote = { name = \"r\", event = 1 }"),
            8,
            "local, or both",
        ),
        (right.clone() + &right, 13, "two sets \"own\""),
        (twice, 13, "model 0x1 is in this set and in \"own\""),
        (
            everywhere + &right.replace("\"own\"", "\"other\""),
            11,
            "tried first",
        ),
        (
            right.replace(
                uncore,
                "busy_cycles = { name = \"b\", event = 1, counters = [0] }\n\
                 requests = [{ name = \"r\", event = 2, counters = [0] }]",
            ),
            10,
            "counter 0 only",
        ),
        ("[[set]\n".to_owned(), 1, ""),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        let place = format!("own.toml:{line}: ");
        assert!(
            error.starts_with(&place) && error.contains(told),
            "{error}\nof\n{text}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_or_too_large_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.toml");
    let error = EventTable::read(&missing).unwrap_err().to_string();
    assert!(
        error.contains("none.toml: there is no such file"),
        "{error}"
    );
    let large = folder.path().join("large.toml");
    std::fs::write(&large, "#".repeat((1 << 20) + 1)).unwrap();
    let error = EventTable::read(&large).unwrap_err().to_string();
    assert!(
        error.contains("large.toml is larger than 1048576 bytes"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn a_damaged_file_never_panics(
        file in 0..FILES.len(),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..20, ".{0,4}"), 0..6),
    ) {
        let mut text: Vec<char> = FILES[file].1.chars().collect();
        for (at, length, other) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, other.chars());
            prop_assume!(!text.is_empty());
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = parse(&text) {
            prop_assert!(error.to_string().contains("own.toml"));
        }
    }
}
