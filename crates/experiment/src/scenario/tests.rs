//! Every scenario of the source tree can be read in its worlds, and wrong ones are refused.

use std::time::Duration;

use super::in_lab::{Better, Ready};
use super::*;

const HEAD: &str = "name = \"x\"\nabout = \"\"\nmachine = \"lab-4x2\"\n";

fn read(text: &str) -> Scenario {
    Scenario::parse(text, "x.toml", World::Model).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// Program and arguments of a copy in the lab, with its placement.
fn words(program: &Program, number: u32) -> Vec<String> {
    let placeholders = in_lab::Placeholders {
        copy: number,
        dir: "/t",
    };
    let command = program.lab.command.as_ref().unwrap();
    command.words(placeholders, program.placement(number))
}

fn program(lines: &str) -> String {
    format!("{HEAD}until = {{ seconds = 5 }}\n[[program]]\nprofile = \"mcf\"\n{lines}\n")
}

#[test]
fn the_scenarios_that_come_with_the_program_are_right() {
    for world in [World::Lab, World::Model] {
        for (name, text) in world.built_in() {
            let scenario = Scenario::parse(text, name, world).unwrap();
            assert_eq!(scenario.name, *name);
            assert!(!scenario.about.is_empty());
        }
    }
}

#[test]
fn every_scenario_of_the_tree_is_read_in_its_worlds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut read = 0;
    for (part, worlds) in [
        (".", &[World::Lab][..]),
        ("brm", &[World::Lab]),
        ("kernels", &[World::Lab]),
        ("programs", &[World::Lab]),
        ("model", &[World::Model]),
        ("agreement", &[World::Lab, World::Model]),
        ("agreement/free", &[World::Lab, World::Model]),
    ] {
        for entry in std::fs::read_dir(folder.join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            for &world in worlds {
                let scenario = Scenario::find(path.to_str().unwrap(), world);
                scenario.unwrap_or_else(|error| panic!("{world:?}: {error}"));
                read += 1;
            }
        }
    }
    assert!(read >= 20, "{read}");
}

#[test]
fn accesses_of_the_kernel_are_modelled_where_a_scenario_says_so() {
    let program = "[[program]]\ncommand = \"a\"\n";
    let read = |line: &str| {
        let text = format!("{HEAD}{line}\n{program}");
        Scenario::parse(&text, "x.toml", World::Lab)
    };
    assert!(!read("").unwrap().kernel_accesses);
    assert!(!read("kernel_accesses = false").unwrap().kernel_accesses);
    assert!(read("kernel_accesses = true").unwrap().kernel_accesses);
    assert_eq!(
        read("kernel_accesses = \"on\"").unwrap_err().to_string(),
        "x.toml:4: kernel_accesses: invalid type: string \"on\", expected a boolean"
    );
}

#[test]
fn a_key_that_means_nothing_in_a_world_is_refused_there() {
    let refused = |text: &str, world| {
        let read = Scenario::parse(text, "x.toml", world);
        read.unwrap_err().to_string()
    };
    let in_lab = format!("{HEAD}[[program]]\nname = \"p\"\ncommand = [\"a\"]\n");
    assert!(Scenario::parse(&in_lab, "x.toml", World::Lab).is_ok());
    assert_eq!(
        refused(&format!("{in_lab}gang = true\n"), World::Lab),
        "x.toml:7: program[0].gang: means nothing in the lab, only on the model: leave it out"
    );
    assert_eq!(
        refused(&format!("{HEAD}count = \"first\"\n"), World::Lab),
        "x.toml:4: count: means nothing in the lab, only on the model: leave it out"
    );
    assert_eq!(
        refused(&format!("{HEAD}kernel_accesses = true\n"), World::Model),
        "x.toml:4: kernel_accesses: means nothing on the model, only in the lab: leave it out"
    );
    assert_eq!(
        refused(
            "name = \"x\"\n[[program]]\nprofile = \"mcf\"\n",
            World::Trace
        ),
        "x.toml:2: program: means nothing on a trace, only in the lab and on the model: leave it out"
    );
    assert_eq!(
        refused(&program("[settings]\npolicy = \"dino\""), World::Model),
        "x.toml:8: settings.policy: means nothing on the model, only in the lab: leave it out"
    );
    assert_eq!(
        refused(&in_lab, World::Model),
        "x.toml:4: program[0].profile: name the profile that the model runs"
    );
    assert_eq!(
        refused(&program(""), World::Lab),
        "x.toml:5: program[0].command: name the program that the lab runs"
    );
}

#[test]
fn copies_are_dealt_their_cpus_and_get_their_numbers() {
    let text = "[[program]]\nname = \"p\"\ncopies = 3\ncommand = [\"menagerie\", \"{copy}\", \"{dir}/f\"]\n\
                memory = 1\npinned = \"2,5\"\n";
    let scenario = Scenario::parse(&format!("{HEAD}{text}"), "x.toml", World::Lab).unwrap();
    let words = |number| words(&scenario.programs[0], number).join(" ");
    assert_eq!(words(0), "menagerie 0 /t/f --home 1 --cpus 2");
    assert_eq!(words(1), "menagerie 1 /t/f --home 1 --cpus 5");
    assert_eq!(words(2), "menagerie 2 /t/f --home 1 --cpus 2");
}

#[test]
fn a_text_is_for_a_shell_as_it_is_typed() {
    let read = |command: &str| {
        let text = format!("{HEAD}[[program]]\ncommand = '''{command}'''\n");
        let mut scenario = Scenario::parse(&text, "x.toml", World::Lab).unwrap();
        scenario.programs.remove(0)
    };
    let piped = read("echo \"a {copy}\" | sort -u\n");
    assert_eq!((piped.name.as_str(), piped.lab.waits), ("echo", false));
    assert_eq!(words(&piped, 3), ["sh", "-c", "echo \"a 3\" | sort -u"]);
    let waits = read("OMP_NUM_THREADS=2 numactl -m 0 menagerie chase");
    assert!(waits.lab.waits);
    let command = waits.lab.command.as_ref().unwrap();
    assert_eq!(command.program(), Some("numactl"));
    let of_server = read("PGDATA={dir} exec postgres -F");
    assert_eq!(of_server.name, "postgres");
    for unknown in ["PATH=$(ls -d /opt/*/bin) server", "$SERVER -F", "A=1"] {
        let command = in_lab::Command::Typed(unknown.to_owned());
        assert_eq!(command.program(), None, "{unknown}");
    }
    let placeholders = in_lab::Placeholders { copy: 0, dir: "/t" };
    let words = command.words(placeholders, ["--json".to_owned()]);
    let text = "OMP_NUM_THREADS=2 numactl -m 0 menagerie chase \"$@\"";
    assert_eq!(words, ["sh", "-c", text, "sh", "--json"]);
}

#[test]
fn a_server_is_ready_before_the_trial_and_counts_only_where_it_says_how() {
    let server =
        "command = \"server\"\nsetup = \"load\"\nuser = \"root\"\nready = { port = 6379 }\n";
    let client = "command = \"client\"\nmeasure = { output = 'rate ([0-9]+)', unit = \"requests/s\", \
                  better = \"higher\" }\n";
    let counted = format!("{server}measure = {{ counter = \"stat\" }}\n");
    let parse = |until: &str, programs: &[&str]| {
        let programs = programs.iter().map(|lines| format!("[[program]]\n{lines}"));
        let text = format!("{HEAD}{until}{}", programs.collect::<String>());
        Scenario::parse(&text, "x.toml", World::Lab)
    };
    let until = "until = { seconds = 2 }\n";
    let scenario = parse(until, &[server, client]).unwrap();
    let [served, asked] = &scenario.programs[..] else {
        panic!("two programs")
    };
    assert_eq!(served.lab.ready, Some(Ready::Port(6379)));
    assert_eq!(served.lab.user.as_deref(), Some("root"));
    assert!(!served.measured && asked.measured);
    let measure = scenario.measure();
    let expected = ("requests/s", Better::Higher);
    assert_eq!((measure.unit.as_str(), measure.better), expected);
    assert_eq!(scenario.until, Until::Time(Duration::from_secs(2)));

    let scenario = parse(until, &[&counted]).unwrap();
    assert!(scenario.programs[0].measured);
    assert_eq!(scenario.measure().unit, "operations/s");
    assert_eq!(
        parse("", &[&counted]).unwrap_err().to_string(),
        "x.toml:9: program[0].measure: it has no end: say until = { seconds = 5 }, in modelled time"
    );
    assert_eq!(
        parse(until, &[&counted, client]).unwrap_err().to_string(),
        "x.toml:13: program[1].measure: client is measured in \"requests/s\" and server in \"operations/s\", \
         and what is compared is one figure: say measured = false of one"
    );
}

#[test]
fn a_wrong_program_of_the_lab_is_refused_with_line_key_and_reason() {
    let told = |lines: &str, expected: &str| {
        let text = format!("{HEAD}[[program]]\ncommand = \"ls\"\n{lines}\n");
        let told = Scenario::parse(&text, "x.toml", World::Lab).unwrap_err();
        let expected = format!("x.toml:6: program[0].{expected}");
        assert_eq!(told.to_string(), expected, "{lines}");
    };
    told(
        "reddy = { port = 1 }",
        "reddy: unknown field `reddy`; did you mean `ready`?",
    );
    told(
        "ready = { prt = 1 }",
        "ready.prt: unknown field `prt`; did you mean `port`?",
    );
    told(
        "ready = { port = 1, file = \"x\" }",
        "ready: give one of port, file, line and seconds",
    );
    told(
        "ready = { port = 0 }",
        "ready.port: 0 is no port: give 1 to 65535",
    );
    told(
        "ready = { port = 65535 }\ncopies = 2\nmeasured = false\n[[program]]\ncommand = \"cp\"",
        "ready.port: its last copy would serve 65536, and the last port is 65535",
    );
    told(
        "ready = { seconds = -1.0 }",
        "ready.seconds: -1 is not within 0 to 100",
    );
    told(
        "ready = { line = \"(\" }",
        "ready.line: cannot read \"(\": found open group without closing ')'",
    );
    told(
        "measure = { output = \"x\" }",
        "measure.better: say which is better, \"higher\" or \"lower\"",
    );
    told("measure = {}", "measure: give one of output and counter");
    told(
        "measure = { counter = \"x\", better = \"lower\" }",
        "measure.better: of operations per second more are better: leave it out",
    );
    told(
        "measured = true\nready = { port = 1 }",
        "measured: it serves the others and has no end: say what to measure (measure), or leave this out",
    );
    told("setup = \"\"", "setup: leave it out to set nothing up");
    told(
        "pinned = \"0\"",
        "pinned: only a program that waits for its start understands it: put taskset --cpu-list 0 before the command",
    );
    told(
        "ready = { port = 1 }\nwaits = true",
        "ready: give either this or waits, not both",
    );
    let two = format!(
        "{HEAD}[[program]]\ncommand = \"ls\"\n[[program]]\ncommand = \"a\"\nready = {{ port = 80 }}\ncopies = 3\n\
         [[program]]\ncommand = \"b\"\nready = {{ port = 82 }}\n"
    );
    assert_eq!(
        Scenario::parse(&two, "x.toml", World::Lab)
            .unwrap_err()
            .to_string(),
        "x.toml:12: program[2].ready.port: port 82 is another program's: the number of the copy is added to the port"
    );
    let twice = format!("{HEAD}until = {{ completions = 3 }}\n[[program]]\ncommand = \"ls\"\n");
    assert_eq!(
        Scenario::parse(&twice, "x.toml", World::Lab)
            .unwrap_err()
            .to_string(),
        "x.toml:4: until.completions: the lab runs each program once: leave it out, or give seconds"
    );
}

#[test]
fn what_is_for_the_lab_is_no_concern_of_the_model() {
    let lines = "command = \"server\"\nsetup = \"load\"\nuser = \"nobody-here\"\nwaits = false\n\
                 ready = { port = 1 }\nmeasure = { counter = \"count\" }";
    let scenario = read(&program(lines));
    assert_eq!(scenario.programs[0].lab, InLab::default());
}

#[test]
fn the_best_placement_known_binds_each_copy_from_the_start() {
    let text =
        "[[program]]\nname = \"p\"\ncopies = 2\ncommand = [\"menagerie\"]\nstart_on = \"0,1\"\n";
    let read = |text: &str| Scenario::parse(&format!("{HEAD}{text}"), "x.toml", World::Lab);
    let without = read(text).unwrap();
    let placement = |scenario: &Scenario| scenario.programs[0].placement(1).join(" ");
    assert_eq!(placement(&without), "--start-cpu 1");
    assert_eq!(
        without.best_known().unwrap_err().to_string(),
        "x.toml:4: program[0]: say on which CPUs it is best (`best_on`), or leave out best-known"
    );
    let best = read(&format!("{text}best_on = \"2,4\"\n")).unwrap();
    assert_eq!(placement(&best), "--start-cpu 1");
    let best = best.best_known().unwrap();
    assert_eq!(placement(&best), "--start-cpu 4 --cpus 4");
    assert_eq!(
        read(&format!("{text}best_on = \"\"\n"))
            .unwrap_err()
            .to_string(),
        "x.toml:9: program[0].best_on: name at least one CPU"
    );
}

#[test]
fn a_file_without_end_is_refused() {
    let told = Scenario::find("/dev/zero", World::Lab)
        .unwrap_err()
        .to_string();
    assert!(told.contains("larger than 1048576 bytes"), "{told}");
}

#[test]
fn the_example_of_the_documentation_is_right() {
    let page = include_str!("../../../../docs/simulate.md");
    let example = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let scenario = read(example.expect("docs/simulate.md has an example"));
    assert_eq!(scenario.name, "example");
    for entry in &scenario.programs {
        numaherd_model::Library::built_in()
            .get(&entry.profile)
            .unwrap();
    }
    // The page describes every key that a file may have.
    let refusal = |text: &str| {
        Scenario::parse(text, "x.toml", World::Model)
            .unwrap_err()
            .to_string()
    };
    let keys = [
        refusal("no_such_key = 1"),
        refusal(&program("no_such_key = 1")),
        refusal("until = { no_such_key = 1 }"),
    ];
    let keys = keys
        .iter()
        .flat_map(|told| told.split('`').skip(3).step_by(2));
    let keys: Vec<&str> = keys.collect();
    assert!(
        keys.contains(&"start_after_s") && keys.contains(&"hours"),
        "{keys:?}"
    );
    for key in keys {
        let told = page.contains(&format!("`{key}`")) || page.contains(&format!("[{key}"));
        assert!(told, "docs/simulate.md says nothing of {key}");
    }
}

#[test]
fn the_examples_of_the_lab_are_right() {
    let page = include_str!("../../../../docs/lab.md");
    let examples = page.split("```toml\n").skip(1);
    let examples: Vec<Scenario> = examples
        .filter_map(|rest| rest.split("```").next())
        .map(|text| Scenario::parse(text, "docs/lab.md", World::Lab).unwrap())
        .collect();
    assert_eq!(examples.len(), 2);
}

#[test]
fn what_is_left_out_is_the_usual() {
    let scenario = read(&program(""));
    assert_eq!(scenario.policies, ["linux", "linux-balancing", "dino"]);
    assert_eq!((scenario.repeat, scenario.count), (1, Count::All));
    assert_eq!(scenario.until, Until::Time(Duration::from_secs(5)));
    let entry = &scenario.programs[0];
    assert_eq!((entry.name.as_str(), entry.copies), ("mcf", 1));
    assert_eq!(
        (entry.memory, &entry.cpus),
        (Memory::FirstTouch, &Cpus::Free)
    );
    assert!(entry.measured && !entry.gang && !entry.stagger);
}

#[test]
fn every_key_of_a_program_is_read() {
    let text = "name = \"far\"\ncopies = 2\nmemory = 1\nstart_on = \"0-3\"\nstart_after_s = 1.5\n\
                gang = true\nstagger = true\n[[program]]\nprofile = \"lbm\"\nmeasured = false\n\
                memory = \"interleave\"\npinned = \"4,5\"";
    let scenario = read(&program(text));
    let [first, second] = &scenario.programs[..] else {
        panic!("two programs")
    };
    assert_eq!((first.name.as_str(), first.copies), ("far", 2));
    assert_eq!(first.memory, Memory::Node(1));
    assert_eq!(first.cpus, Cpus::StartOn("0-3".parse().unwrap()));
    assert_eq!(first.start_after_s, 1.5);
    assert!(first.gang && first.stagger && first.measured);
    assert_eq!(second.memory, Memory::Interleave);
    assert_eq!(second.cpus, Cpus::Pinned("4-5".parse().unwrap()));
    assert!(!second.measured);
}

/// Checks the error for a text; line numbers count from the text's first line.
#[track_caller]
fn refused(text: &str, expected: &str) {
    let told = Scenario::parse(text, "x.toml", World::Model)
        .unwrap_err()
        .to_string();
    assert_eq!(told, expected, "{text}");
}

#[test]
fn a_wrong_scenario_is_refused_with_line_key_and_reason() {
    let until = |until: &str| format!("{HEAD}{until}\n[[program]]\nprofile = \"mcf\"\n");
    refused(
        "name = \"x\"\nabout =",
        "x.toml:2: not TOML: string values must be quoted, expected literal string",
    );
    refused(
        &until("until = { seconds = 1 }\nrepeats = 3"),
        "x.toml:5: repeats: unknown field `repeats`; did you mean `repeat`?",
    );
    refused(
        &until("until = { seconds = 1, hours = 1 }"),
        "x.toml:4: until: give one of completions, seconds and hours",
    );
    refused(
        &until("until = { seconds = nan }"),
        "x.toml:4: until: NaN s is not within 1 ms to a year",
    );
    refused(
        &until("until = { completions = 0 }"),
        "x.toml:4: until.completions: 0 is not within 1 to 1000",
    );
    refused(
        &until("until = { completions = 1 }\ncount = \"second\""),
        "x.toml:5: count: there is no second of 1 completion",
    );
    refused(
        &until("until = { hours = 1 }\ncount = \"first\""),
        "x.toml:5: count: after a time, not each program has completed: leave it out, or say until \
         = { completions = 3 }",
    );
    refused(
        &until("until = { hours = 1 }\nrepeat = 0"),
        "x.toml:5: repeat: 0 is not within 1 to 100000",
    );
    refused(
        &until("until = { hours = 1 }\npolicies = []"),
        "x.toml:5: policies: name at least one policy",
    );
    refused(
        &format!("{HEAD}until = {{ hours = 1 }}\n"),
        "x.toml:1: program: what runs? give at least one [[program]]",
    );
    refused(
        &until("until = { hours = 1 }").replace("\"x\"", "\"\""),
        "x.toml:1: name: give it a name",
    );
}

#[test]
fn a_wrong_program_is_refused_with_line_key_and_reason() {
    let told = |lines: &str, expected: &str| refused(&program(lines), expected);
    told(
        "copies = 0",
        "x.toml:7: program[0].copies: 0 is not within 1 to 1048576: to have none, leave the program out",
    );
    told(
        "memory = \"remote\"",
        "x.toml:7: program[0].memory: give a node's number, \"first-touch\" or \"interleave\"",
    );
    told(
        "start_on = \"0\"\ncpus = \"1\"",
        "x.toml:8: program[0].cpus: give either this or start_on, not both",
    );
    told(
        "pinned = \"\"",
        "x.toml:7: program[0].pinned: name at least one CPU",
    );
    told(
        "cpus = \"0-\"",
        "x.toml:7: program[0].cpus: cannot read \"0-\" as a list such as 0-3,8: not a number",
    );
    told(
        "start_after_s = -1.0",
        "x.toml:7: program[0].start_after_s: -1 is not within 0 to a year",
    );
    told(
        "measured = false",
        "x.toml:5: program: none is measured: leave out one measured = false",
    );
    told(
        "name = \"\"",
        "x.toml:7: program[0].name: leave it out to have the profile's",
    );
}

#[test]
fn an_unknown_scenario_is_refused_with_the_known_ones() {
    let told = Scenario::find("sixteen", World::Model)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("memory-on-one-node, sixteen-programs"),
        "{told}"
    );
    let told = Scenario::find("not-there.toml", World::Model)
        .unwrap_err()
        .to_string();
    assert!(told.starts_with("cannot read not-there.toml: "), "{told}");
}
