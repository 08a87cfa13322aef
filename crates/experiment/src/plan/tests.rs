//! A plan follows its scenario, and refuses what machine or profiles lack.

use super::*;
use crate::World;

fn scenario(lines: &str) -> Scenario {
    let head = "name = \"x\"\nabout = \"\"\nmachine = \"xeon-e5520-2s\"\nuntil = { seconds = 5 }\n";
    Scenario::parse(&format!("{head}{lines}"), "x.toml", World::Model).unwrap()
}

fn plan(lines: &str) -> Result<Plan, ExperimentError> {
    Plan::of(&scenario(lines), None, &[], &[], 0)
}

#[track_caller]
fn refused(lines: &str, expected: &str) {
    assert_eq!(plan(lines).unwrap_err().to_string(), expected);
}

#[test]
fn copies_are_dealt_to_the_cpus_one_after_the_other() {
    let plan = plan("[[program]]\nprofile = \"mcf\"\ncopies = 3\npinned = \"2,4\"").unwrap();
    let first = |job: &Job| match &job.binding {
        Binding::Each(cpus) => cpus[0],
        other => panic!("{other:?}"),
    };
    let cpus: Vec<CpuId> = plan.jobs.iter().map(first).collect();
    assert_eq!(cpus, [2, 4, 2].map(CpuId::from));
    let copies: Vec<u32> = plan.labels.iter().map(|label| label.copy).collect();
    assert_eq!(copies, [0, 1, 2]);
}

#[test]
fn copies_of_a_name_are_counted_on_from_entry_to_entry() {
    let text =
        "[[program]]\nprofile = \"mcf\"\nmemory = 0\n[[program]]\nprofile = \"mcf\"\nmemory = 1";
    let plan = plan(text).unwrap();
    assert_eq!((plan.labels[0].copy, plan.labels[1].copy), (0, 1));
    assert_eq!(plan.jobs[1].memory, Placement::On(NodeId::from(1)));
}

#[test]
fn staggered_copies_begin_a_phase_later_each() {
    let text = "[[program]]\nprofile = \"104.milc\"\ncopies = 2\nstagger = true\ngang = true";
    let plan = plan(text).unwrap();
    let phases = |at: usize| &plan.jobs[at].program.phases;
    assert_eq!(phases(1)[0], phases(0)[1]);
    assert_eq!(plan.jobs[0].gang, plan.jobs[1].gang);
    assert!(plan.jobs[0].gang.is_some());
}

#[test]
fn alone_is_what_the_profile_takes_where_it_is_fastest() {
    let text =
        "[[program]]\nprofile = \"povray\"\n[[program]]\nprofile = \"lbm\"\nmeasured = false";
    let plan = plan(text).unwrap();
    let program = &plan.jobs[0].program;
    let cpu = plan.hardware.topology().cpus()[0].id;
    let ns = numaherd_model::alone(&plan.hardware, &program.phases[0], cpu).ns;
    let expected = program.instructions() * ns / 1e12;
    let alone = plan.alone_s[0].unwrap();
    assert!((alone / expected - 1.0).abs() < 1e-6, "{alone} {expected}");
    assert_eq!(plan.alone_s[1], None, "it is not measured");
}

#[test]
fn what_machine_or_library_have_not_is_refused_at_its_line() {
    refused(
        "[[program]]\nprofile = \"429.mcf\"",
        "x.toml:6: program[0].profile: there is no program \"429.mcf\"; did you mean \"mcf\"?",
    );
    refused(
        "[[program]]\nprofile = \"mcf\"\nmemory = 2",
        "x.toml:7: program[0].memory: there is no memory on node 2: xeon-e5520-2s has it on 0-1",
    );
    refused(
        "[[program]]\nprofile = \"mcf\"\ncpus = \"7,8\"",
        "x.toml:7: program[0].cpus: xeon-e5520-2s has no CPU 8: it has 0-7",
    );
    refused(
        "[[program]]\nprofile = \"mcf\"\ncopies = 100",
        "x.toml: the jobs cannot be run: they need 170000 MiB of memory, and xeon-e5520-2s has 12288",
    );
    let never_ends = "name = \"x\"\nabout = \"\"\nmachine = \"xeon-e5520-2s\"\nuntil = { \
                      completions = 1 }\n[[program]]\nprofile = \"apache\"\n";
    let scenario = Scenario::parse(never_ends, "x.toml", World::Model).unwrap();
    let told = Plan::of(&scenario, None, &[], &[], 0).unwrap_err();
    assert!(
        told.to_string()
            .starts_with("x.toml:6: program[0].profile: apache never ends")
    );
}

#[test]
fn settings_are_the_scenarios_with_those_of_the_command_line_on_top() {
    let text = "governor = \"as-published\"\n[settings.herd.limits]\nbounce_limit = 2\n\
                [model]\nvariation = 0.1\n[[program]]\nprofile = \"mcf\"";
    let scenario = scenario(text);
    let set = [
        "policies.n_mass.threshold=40".to_owned(),
        "policies.penalty.estimate = regression".to_owned(),
        "model.page_move_ns=1000".to_owned(),
    ];
    let settings = Settings::of(&scenario, &set, 7).unwrap();
    assert_eq!(settings.herd.limits.bounce_limit, 2);
    assert!(!settings.herd.limits.worse.undo, "as published");
    assert_eq!(settings.policies.n_mass.threshold, 40.0);
    let model = settings.model;
    assert_eq!(
        (model.variation, model.page_move_ns, model.seed),
        (0.1, 1000.0, 7)
    );
    let told = |set: &str| {
        let error = Settings::of(&scenario, &[set.to_owned()], 0).unwrap_err();
        error.to_string()
    };
    assert!(told("herd").contains("it has no ="));
    assert!(told("herds.x=1").contains("a key begins with herd., policies. or model."));
    assert!(told("herd=1").contains("its key ends too early"));
    assert!(
        told("herd.limit.x=1").starts_with("--set: settings.herd.limit: unknown key; did you mean")
    );
    assert!(told("model.seed=1").starts_with("--set: model: unknown field `seed`"));
    let refused = told("policies.n_mass.threshold=-1");
    assert!(refused.contains("n_mass.threshold: must be"), "{refused}");
}

#[test]
fn a_wrong_setting_of_the_file_is_the_files() {
    let scenario = scenario("[settings.herd]\nseeds = 1\n[[program]]\nprofile = \"mcf\"");
    let told = Settings::of(&scenario, &[], 0).unwrap_err().to_string();
    assert!(
        told.starts_with("x.toml: settings.herd.seeds: unknown key; did you mean `seed`?"),
        "{told}"
    );
}

#[test]
fn policies_know_the_penalties_of_the_programs() {
    let plan = plan("[[program]]\nprofile = \"mcf\"").unwrap();
    assert!(plan.settings.policies.penalty.programs["mcf"] > 1.1);
}
