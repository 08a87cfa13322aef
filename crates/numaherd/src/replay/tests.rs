//! Replays of runs on the model: what is recorded there is what a live machine's ledger holds.

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use numaherd_herd::replay::{Basis, Candidate, Decided, Interval};
use numaherd_model::{Hardware, Job, Library, Until};
use numaherd_show::replay::{Predicted, Prediction, Replayed, text};
use numaherd_topology::{Machine, NodeId};

use super::*;
use crate::cli::{Cli, Command};
use numaherd_experiment::{OnModel, Settings as TrialSettings, Trial};

/// Twelve programs on the eight cores of two nodes, some of their memory where they are not.
fn jobs() -> Vec<Job> {
    let names = ["mcf", "milc", "lbm", "soplex", "povray", "gamess"];
    let programs = names.iter().chain(&names).zip(0_u32..);
    let job = |(name, number): (&&str, u32)| {
        let program = Library::built_in().get(name).unwrap().clone();
        Job::new(program).homed(NodeId(number % 2))
    };
    programs.map(job).collect()
}

fn record(policy: &str, dry_run: bool, seconds: u64, path: &Path) {
    let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
    let herd = numaherd_herd::Settings {
        dry_run,
        record_interval_ms: 0,
        ..numaherd_herd::Settings::default()
    };
    let mut settings = TrialSettings {
        herd,
        ..TrialSettings::default()
    };
    settings.model.variation = 0.2;
    let on_model = OnModel {
        hardware: &hardware,
        jobs: &jobs(),
        until: Until::Time(Duration::from_secs(seconds)),
        settings: &settings,
    };
    let trial = Trial {
        seed: 7,
        ledger: Some(path.to_owned()),
        ..Trial::of(policy)
    };
    on_model.run(&trial).unwrap();
}

fn options(arguments: &[&str]) -> Replay {
    let all = ["numaherd", "replay"].iter().chain(arguments);
    match Cli::try_parse_from(all).unwrap().command {
        Command::Replay(options) => *options,
        _ => unreachable!("it is replay that is asked for"),
    }
}

fn replay_of(path: &Path, arguments: &[&str]) -> Replayed {
    let path = path.to_str().unwrap();
    let options = options(&[&[path], arguments].concat());
    replayed(open(&options.ledger).unwrap(), &options).unwrap()
}

/// Shows a recording to its own policy, interval by interval.
fn with_its_own(path: &Path, basis: Basis, mut check: impl FnMut(&Interval, &Decided)) -> u64 {
    let mut recording = open(path).unwrap();
    let start = recording.start().clone();
    let policy = registry::build(&start.policy, &numaherd_policy::Settings::default()).unwrap();
    let topology = recording.topology().clone();
    let mut candidate = Candidate::new(policy, &start.settings, &topology, basis);
    let mut intervals = 0;
    for interval in &mut recording {
        let decided = candidate.decide(&interval);
        check(&interval, &decided);
        intervals += 1;
    }
    assert_eq!(recording.damage(), None);
    intervals
}

const POLICIES: [&str; 8] = [
    "linux",
    "random",
    "di-plain",
    "dino",
    "maximum-local",
    "n-mass",
    "brm",
    "adaptive",
];

#[test]
fn a_dry_run_replayed_with_its_own_policy_wants_the_same_to_the_letter() {
    let folder = tempfile::tempdir().unwrap();
    for policy in POLICIES {
        let path = folder.path().join(policy);
        record(policy, true, 12, &path);
        let mut wanted = 0;
        let intervals = with_its_own(&path, Basis::Recorded, |interval, decided| {
            let placing = interval
                .placing
                .as_ref()
                .expect("every interval is recorded");
            assert_eq!(decided.placements, placing.plan.placements, "{policy}");
            assert_eq!(decided.places, interval.wanted(), "{policy}");
            wanted += decided.placements.len();
        });
        assert!(intervals >= 12, "{policy}");
        assert_eq!(wanted == 0, policy == "linux", "{policy}");
    }
}

#[test]
fn a_run_replayed_with_its_own_policy_carried_on_is_the_same_to_the_letter() {
    let folder = tempfile::tempdir().unwrap();
    for policy in POLICIES {
        let path = folder.path().join(policy);
        record(policy, false, 12, &path);
        let mut moved = 0;
        with_its_own(&path, Basis::Carried, |interval, decided| {
            let placing = interval
                .placing
                .as_ref()
                .expect("every interval is recorded");
            assert_eq!(decided.seen, interval.snapshot, "{policy}");
            assert_eq!(decided.placements, placing.plan.placements, "{policy}");
            assert_eq!(decided.refusals, placing.refusals, "{policy}");
            assert_eq!(decided.undone, placing.undone, "{policy}");
            assert_eq!(decided.places, interval.had(), "{policy}");
            moved += placing.affinities.len();
        });
        assert_eq!(moved == 0, policy == "linux", "{policy}");
    }
}

#[test]
fn agreement_with_itself_is_whole_and_with_others_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("dino", false, 12, &path);
    let replayed = replay_of(&path, &["--policy", "dino,n-mass,random", "--carry-on"]);
    let same = |at: usize| replayed.policies[at].agreement.unwrap().same_core;
    assert_eq!(same(0), 1.0);
    assert_eq!(replayed.policies[0].moves, replayed.recorded_moves);
    assert!(same(1) < 1.0 && same(2) < 1.0, "{} {}", same(1), same(2));
    // Each two of four, the recorded one among them.
    assert_eq!(replayed.pairs.len(), 6);
}

#[test]
fn on_one_ledger_adaptive_is_asked_beside_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("linux", false, 12, &path);
    let all = "homeward,di-migrate,maximum-local,n-mass-regression,".to_owned()
        + &POLICIES[1..].join(",");
    let replayed = replay_of(&path, &["--policy", &all]);
    let names: Vec<&str> = replayed.policies.iter().map(|one| &*one.name).collect();
    assert_eq!(names, all.split(',').collect::<Vec<_>>());
    for policy in &replayed.policies {
        assert_eq!(policy.missing, None, "{}", policy.name);
    }
    let adaptive = replayed.policies.iter().find(|one| one.name == "adaptive");
    assert!(adaptive.unwrap().moves > 0);
    assert!(text(&replayed).contains("adaptive"));
}

#[test]
fn another_seed_is_another_policy_where_chance_decides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("random", true, 6, &path);
    let agreement = |seed: &str| {
        let replayed = replay_of(&path, &["--policy", "random", "--seed", seed]);
        replayed.policies[0].agreement.unwrap().same_core
    };
    assert_eq!(agreement("7"), 1.0);
    assert!(agreement("8") < 1.0);
}

#[test]
fn a_damaged_ledger_is_replayed_as_far_as_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("dino", true, 12, &path);
    let whole = replay_of(&path, &["--policy", "n-mass"]);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let half = replay_of(&path, &["--policy", "n-mass"]);
    assert!(half.intervals > 0 && half.intervals < whole.intervals);
    assert!(half.damage.is_some());
    assert!(text(&half).contains("Replayed up to the damage in the ledger: "));
}

#[test]
fn pages_that_go_by_samples_are_said_not_to_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("linux", true, 3, &path);
    let replayed = replay_of(&path, &["--policy", "dino,dino+whole-set", "--carry-on"]);
    let unpaged = replayed.policies[0].unpaged.as_ref().unwrap();
    assert_eq!(unpaged.signals, ["memory samples"]);
    assert_eq!(replayed.policies[1].unpaged, None);
    assert!(text(&replayed).contains("Pages of dino: not replayed."));
}

#[test]
fn a_policy_whose_signals_are_not_recorded_has_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("linux", true, 3, &path);
    let replayed = replay_of(&path, &["--policy", "n-mass,kmaf,ipm"]);
    let missing = |at: usize| {
        replayed.policies[at]
            .missing
            .as_ref()
            .map(|m| &m.signals[..])
    };
    assert_eq!(missing(0), None);
    assert_eq!(
        missing(1),
        Some(&["which threads share pages".to_owned()][..])
    );
    assert_eq!(missing(2), Some(&["TLB residency".to_owned()][..]));
    assert_eq!(replayed.policies[2].agreement, None);
    let told = replay(&options(&[path.to_str().unwrap(), "--policy", "ipm"]));
    let told = told.unwrap_err();
    assert_eq!(crate::exit::of(&told), Some(Exit::SignalMissing));
}

#[test]
fn figures_gone_mad_are_not_predicted_by() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("linux", true, 4, &path);
    let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
    for share in [1e290, f64::NAN, f64::INFINITY, 1e20] {
        let mut predictor = Predictor::new(hardware.clone(), Library::default(), 0);
        for mut interval in &mut open(&path).unwrap() {
            let mut snapshot = (*interval.snapshot).clone();
            for thread in &mut snapshot.threads {
                thread.cpu_share = share;
                thread.wait_share = -share;
            }
            snapshot.interval_ns = u64::MAX;
            interval.snapshot = snapshot.into();
            predictor.interval(&interval, &[]);
        }
        let replayed = replay_of(&path, &["--policy", "linux"]);
        let prediction = predictor.finish(&replayed);
        assert!(
            matches!(prediction, Prediction::None(_)),
            "{share}: {prediction:?}"
        );
    }
}

fn predicted(replayed: &Replayed) -> &Predicted {
    match replayed.prediction.as_ref().unwrap() {
        Prediction::Predicted(predicted) => predicted,
        Prediction::None(why) => panic!("{why}"),
    }
}

#[test]
fn who_moves_nothing_changes_nothing_and_the_error_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("linux", true, 20, &path);
    let replayed = replay_of(&path, &["--policy", "linux,maximum-local", "--carry-on"]);
    let predicted = predicted(&replayed);
    let effect = |at: usize| predicted.effects[at].as_ref().unwrap();
    assert_eq!(effect(0).total, 0.0);
    assert!(
        effect(0)
            .processes
            .iter()
            .all(|process| process.change == 0.0)
    );
    assert_ne!(effect(1).total, 0.0);
    assert!(predicted.errors.checked > 100);
    assert!(text(&replayed).contains("The model's error on this recording: "));
}

#[test]
fn without_the_machines_figures_there_is_no_prediction_and_it_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("linux", true, 3, &path);
    let mut recording = open(&path).unwrap();
    let other = Machine::preset("lab-4x2").unwrap().topology().unwrap();
    assert!(matches!(
        machine::of(None, &other).unwrap(),
        Figures::Known(_)
    ));
    let wrong = machine::of(Some("lab-4x2"), recording.topology())
        .err()
        .unwrap();
    assert!(
        wrong
            .to_string()
            .contains("not laid out as the recorded machine")
    );
    let unknown = numaherd_topology::hwloc::synthetic("numa:2 core:2 pu:1").unwrap();
    assert!(matches!(
        machine::of(None, &unknown).unwrap(),
        Figures::Unknown(_)
    ));
    // Without counts, too.
    let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
    let mut predictor = Predictor::new(hardware, Library::default(), 0);
    for mut interval in &mut recording {
        let mut snapshot = (*interval.snapshot).clone();
        snapshot
            .threads
            .iter_mut()
            .for_each(|thread| thread.counts = None);
        interval.snapshot = snapshot.into();
        predictor.interval(&interval, &[]);
    }
    let replayed = replay_of(&path, &["--policy", "linux"]);
    match predictor.finish(&replayed) {
        Prediction::None(why) => assert!(why.contains("were not counted"), "{why}"),
        Prediction::Predicted(predicted) => panic!("{predicted:?}"),
    }
}

#[test]
fn settings_are_the_recorded_ones_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    record("brm", true, 1, &path);
    let recording = open(&path).unwrap();
    let start = recording.start();
    let of = |name: &str, arguments: &[&str]| {
        let path = path.to_str().unwrap();
        let options = options(&[&[path, "--policy", name], arguments].concat());
        Settings::of(start, name, &options)
    };
    let own = of("brm", &[]).unwrap();
    assert_eq!(own.herd, start.settings);
    // The affinity scope of its threads is another policy's own affair.
    let other = of("dino", &["--set", "herd.limits.bounce_limit=5"]).unwrap();
    assert_eq!(other.herd.limits.scope, None);
    assert_eq!(other.herd.limits.bounce_limit, 5);
    assert_eq!(other.herd.seed, 7);
    let told = |set: &str| of("dino", &["--set", set]).unwrap_err().to_string();
    assert!(told("bounce_limit=5").contains("a key begins with herd. or policies."));
    assert!(told("herd.limits.bounce_limit=0").contains("limits.bounce_limit"));
    assert!(told("policies.dino.nonsense=1").contains("nonsense"));
    let misspelt = told("herd.limits.bounce_limt=1");
    assert!(
        misspelt.contains("herd.limits.bounce_limt: unknown key; did you mean `bounce_limit`"),
        "{misspelt}"
    );
}
