use numaherd_quantity::statistics::Mean;

use super::*;

const HEAD: &str = "paper = \"dino\"\ntitle = \"a title\"\nabout = \"about it\"\n";

/// A file with one claim, which has these keys in addition to its id, section and words.
fn file(keys: &str) -> String {
    format!("{HEAD}\n[[claim]]\nid = \"a\"\nsection = \"1\"\nwhat = \"it is so\"\n{keys}")
}

fn read(text: &str) -> Result<Claims, ClaimsError> {
    parse(text, "claims.toml")
}

fn statement(keys: &str) -> Statement {
    read(&file(keys)).unwrap().claims[0].statement
}

#[test]
fn a_figure_holds_within_its_tolerance_and_never_without_one() {
    let point = statement("says = \"point\"\nfigure = 40");
    assert!(point.holds(30.0, 0.0) && point.holds(50.0, 0.0) && !point.holds(50.1, 0.0));
    let most = statement("says = \"at-most\"\nfigure = 4");
    assert!(most.holds(4.0, 0.0) && most.holds(-9.0, 0.0) && !most.holds(4.1, 0.0));
    let least = statement("says = \"at-least\"\nfigure = 4\ntolerance = 1\nwhy = \"chosen\"");
    assert!(least.holds(3.0, 0.0) && !least.holds(2.9, 0.0));
    let ranking = statement("says = \"ranking\"");
    assert!(ranking.holds(0.1, 0.0) && !ranking.holds(0.0, 0.0));
    assert!(ranking.holds(0.3, 0.2) && !ranking.holds(0.2, 0.3));
    let all = [point, most, least, ranking];
    assert!(all.iter().all(|statement| !statement.holds(f64::NAN, 0.0)));
    assert_eq!(
        all.map(|statement| statement.to_string()),
        ["40 ± 10", "at most 4", "at least 4 - 1", "so it is"]
    );
}

#[test]
fn figures_have_three_digits() {
    let shown = [
        1234.5, 123.45, 12.345, 1.2345, 0.012_345, -0.000_01, 0.0, 10.0,
    ];
    let shown: Vec<String> = shown.into_iter().map(short).collect();
    assert_eq!(
        shown,
        ["1234", "123", "12.3", "1.23", "0.0123", "0", "0", "10"]
    );
}

#[test]
fn tolerances_depend_on_the_kind_of_figure() {
    let of = |(figure, name): (f64, &str)| match statement(&format!(
        "says = \"point\"\nfigure = {figure}\ntolerance = \"{name}\""
    )) {
        Statement::Point { tolerance, .. } => tolerance,
        other => panic!("{other:?}"),
    };
    let figures = [
        (-40.0, "quarter"),
        (80.0, "share"),
        (20.0, "share"),
        (40.0, "rounded"),
    ];
    assert_eq!(figures.map(of), [10.0, 10.0, 5.0, 2.0]);
}

#[test]
fn what_is_malformed_is_reported_with_file_line_and_key() {
    let cases = [
        (
            "says = \"point\"",
            "claims.toml:5: claim[0].figure: it is missing",
        ),
        (
            "says = \"point\"\nfigure = 0",
            "claims.toml:10: claim[0].tolerance: it is missing: a quarter of 0",
        ),
        (
            "says = \"point\"\nfigure = nan\ntolerance = 1",
            "claims.toml:10: claim[0].figure: it must be finite",
        ),
        (
            "says = \"at-most\"\nfigure = 1\ntolerance = -1\nwhy = \"no\"",
            "claims.toml:11: claim[0].tolerance: -1 is no",
        ),
        (
            "says = \"at-most\"\nfigure = 1\ntolerance = 0.5",
            "claims.toml:11: claim[0].why: a tolerance of its own",
        ),
        (
            "says = \"ranking\"\nwhy = \"no\"",
            "claims.toml:10: claim[0].why: only a number",
        ),
        (
            "says = \"ranking\"\nfigure = 1",
            "claims.toml:10: claim[0].figure: a ranking has none",
        ),
        (
            "says = \"ranking\"\ntolerance = \"share\"",
            "claims.toml:10: claim[0].tolerance: a ranking has none",
        ),
        (
            "says = \"ranks\"",
            "claims.toml:9: claim[0].says: unknown variant `ranks`",
        ),
        (
            "says = \"ranking\"\nours = 1",
            "claims.toml:10: claim[0].ours: unknown field `ours`",
        ),
        (
            "says = \"at-most\"\nfigure = 1\ntolerance = \"big\"",
            "claims.toml:11: claim[0].tolerance: a number, or one of",
        ),
        (
            "says = \"ranking\"\n[[claim]]\nid = \"a\"\nsection = \"1\"\nwhat = \"so\"\nsays = \"ranking\"",
            "claims.toml:11: claim[1].id: `a` is there twice",
        ),
    ];
    for (keys, expected) in cases {
        let error = read(&file(keys)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    }
    let error = read("paper = \"dimo\"").unwrap_err().to_string();
    assert!(
        error.starts_with("claims.toml:1: paper: unknown variant `dimo`"),
        "{error}"
    );
}

#[test]
fn a_claim_without_a_figure_and_a_figure_without_a_claim_are_errors() {
    let claims = read(&file(
        "says = \"at-most\"\nfigure = 4\nnote = \"of {parts}\"",
    ))
    .unwrap();
    let measured = |figures: &[(&str, &[f64])], details: &[&str]| {
        let mut measured = Measured::new();
        for &(id, figures) in figures {
            measured.order(id, figures.iter().copied());
        }
        for detail in details {
            measured.detail(*detail, "two parts");
        }
        measured
    };
    let judged = claims
        .judge(&measured(&[("a", &[3.0])], &["parts"]))
        .unwrap();
    assert_eq!(
        (judged[0].holds, judged[0].note.as_str()),
        (true, "of two parts")
    );
    let cases: [(Measured, &str); 6] = [
        (
            measured(&[], &["parts"]),
            "no experiment measures DINO's claim `a`",
        ),
        (
            measured(&[("a", &[3.0]), ("b", &[1.0])], &["parts"]),
            "has no claim `b`",
        ),
        (
            measured(&[("a", &[3.0]), ("a", &[1.0])], &["parts"]),
            "measured it twice",
        ),
        (
            measured(&[("a", &[3.0, 1.0])], &["parts"]),
            "`a` of DINO is no ranking",
        ),
        (measured(&[("a", &[3.0])], &[]), "the detail `{parts}`"),
        (
            measured(&[("a", &[3.0])], &["parts", "sums"]),
            "the detail `{sums}`",
        ),
    ];
    for (measured, expected) in cases {
        let error = claims.judge(&measured).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A file with a variation and a claim with this note.
fn varied(note: &str) -> Claims {
    let variation = "[[variation]]\nname = \"far\"\nwhat = \"memory is far\"\nprogram.mcf.misses_in_flight = 2\n";
    let claim = format!(
        "[[claim]]\nid = \"a\"\nsection = \"1\"\nwhat = \"it is so\"\nunit = \"%\"\nsays = \"ranking\"\nnote = \"{note}\""
    );
    read(&format!("{HEAD}{variation}{claim}")).unwrap()
}

#[test]
fn a_note_has_the_figures_under_a_variation() {
    let mut measured = Measured::new();
    measured.figure("a", 1.0);
    let note = |note: &str, measured: &Measured| {
        let lines = varied(note).judge(measured);
        lines.map(|lines| lines[0].note.clone())
    };
    assert_eq!(note("it is {far}", &measured).unwrap(), "it is (not run)");
    let mut far = Measured::new();
    far.order("a", [5.0, 2.2468]);
    measured.vary("far", far);
    assert_eq!(note("it is {far}", &measured).unwrap(), "it is 2.75 %");
    assert_eq!(note("{far:a}!", &measured).unwrap(), "2.75 %!");
    for (wrong, why) in [
        ("{far:b}", "the detail `{far:b}`"),
        ("{near}", "the detail `{near}`"),
    ] {
        let error = note(wrong, &measured).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    measured.vary("far", Measured::new());
    let error = note("{far}", &measured).unwrap_err().to_string();
    assert_eq!(error, "no experiment measures DINO's claim `a`");
    let none = varied("{far}").measured_in(&Measured::new());
    assert_eq!(none.judge(&Measured::new()).unwrap(), []);
}

#[test]
fn a_malformed_variation_is_reported_with_file_line_and_key() {
    for (keys, why) in [
        (
            "name = \"\"\nwhat = \"w\"",
            "claims.toml:4: variation[0].name: a name is not empty",
        ),
        (
            "name = \"a:b\"\nwhat = \"w\"",
            "claims.toml:4: variation[0].name: a name is not empty",
        ),
        (
            "name = \"a\"\nwhat = \" \"",
            "claims.toml:4: variation[0].what: it is empty",
        ),
        (
            "name = \"a\"\nwhat = \"w\"",
            "claims.toml:4: variation[0].machine: it changes neither",
        ),
        (
            "name = \"a\"\nwhat = \"w\"\nprogram.mcf.misses = 2",
            "misses",
        ),
        (
            "name = \"a\"\nwhat = \"w\"\nprogram.mcf.misses_in_flight = 0",
            "claims.toml:4: variation[0].program: what changes of mcf is a number above 0",
        ),
    ] {
        let error = read(&format!("{HEAD}[[variation]]\n{keys}\n")).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let twice = "[[variation]]\nname = \"a\"\nwhat = \"w\"\nmachine.b.c = 1\n".repeat(2);
    let error = read(&format!("{HEAD}{twice}")).unwrap_err().to_string();
    assert!(
        error.contains("variation[1].name: `a` is there twice"),
        "{error}"
    );
}

#[test]
fn the_margin_of_an_order_is_its_least_step() {
    let claims = read(&file("says = \"ranking\"")).unwrap();
    let margin = |order: &[f64]| {
        let mut measured = Measured::new();
        measured.order("a", order.iter().copied());
        let line = claims.judge(&measured).unwrap().remove(0);
        (line.ours, line.holds)
    };
    assert_eq!(margin(&[5.0, 3.0, 2.0]), (Some(1.0), true));
    assert_eq!(margin(&[5.0, 3.0, 4.0]), (Some(-1.0), false));
    for order in [
        &[][..],
        &[f64::NAN, 1.0],
        &[3.0, 2.0, f64::NAN],
        &[f64::NAN, 2.0, 1.0],
    ] {
        assert_eq!(margin(order), (None, false), "{order:?}");
    }
}

/// The jackknife of a mean is the mean's own interval.
#[test]
fn intervals_come_from_what_is_measured_without_each_run() {
    let runs = [5.0, 1.0, 4.0, 2.5];
    let mean = |runs: &[f64]| runs.iter().sum::<f64>() / runs.len() as f64;
    let measured = |runs: &[f64]| {
        let mut measured = Measured::new();
        measured.order("a", [mean(runs), 1.0]);
        measured
    };
    let without = |at: usize| {
        let others = runs.iter().enumerate().filter(|&(other, _)| other != at);
        measured(&others.map(|one| *one.1).collect::<Vec<_>>())
    };
    let claims = read(&file("says = \"ranking\"")).unwrap();
    let judged = |count| {
        let replicates: Vec<Measured> = (0..count).map(without).collect();
        let measured = measured(&runs).with_replicates(&replicates);
        claims.judge(&measured).unwrap().remove(0)
    };
    let expected = Mean::of(&runs).unwrap().half.unwrap();
    let line = judged(runs.len());
    assert_eq!((line.ours, line.holds), (Some(2.125), false));
    assert!((line.interval.unwrap() - expected).abs() < 1e-2 * expected);
    let of_two = judged(2);
    assert_eq!((of_two.interval, of_two.holds), (None, true));
}

#[test]
fn claims_about_traces_are_left_out_where_there_are_none() {
    let claims = read(&file("says = \"ranking\"\nruns-on = \"traces\"")).unwrap();
    let mut measured = Measured::new();
    assert!(claims.judge(&measured).is_err());
    measured.without_traces = Some("no lab".to_owned());
    assert_eq!(claims.judge(&measured).unwrap(), []);
}

#[test]
fn what_was_fitted_or_cannot_fail_does_not_count() {
    let kind = |kind: &str| {
        let keys = format!("says = \"ranking\"\nkind = \"{kind}\"");
        read(&file(&keys)).unwrap().claims[0].kind.counts()
    };
    let kinds = ["stated", "proxy", "required", "fitted", "certain"];
    assert_eq!(kinds.map(kind), [true, true, true, false, false]);
}

/// The record can be renewed only by running the experiments; its words must not lag behind.
#[test]
fn the_record_has_the_words_of_the_claims_in_their_order() {
    let record = Record::built_in().unwrap();
    for paper in Paper::ALL {
        let claims = Claims::built_in(paper).unwrap().claims;
        let lines = record.clone().of(&[paper]).lines;
        let ids =
            |lines: &[CheckedClaim]| lines.iter().map(|line| line.id.clone()).collect::<Vec<_>>();
        let expected: Vec<String> = claims.iter().map(|claim| claim.id.clone()).collect();
        assert_eq!(ids(&lines), expected);
        for (line, claim) in lines.iter().zip(&claims) {
            let said = (
                &line.section,
                &line.what,
                &line.unit,
                line.statement,
                line.kind,
            );
            let says = (
                &claim.section,
                &claim.what,
                &claim.unit,
                claim.statement,
                claim.kind,
            );
            assert_eq!(said, says);
            let mut rest = line.note.as_str();
            for part in measured::parts(&claim.note) {
                if let measured::Part::Text(text) = part {
                    let at = rest.find(text);
                    let at = at.unwrap_or_else(|| panic!("{}: {:?} in {rest:?}", claim.id, text));
                    rest = &rest[at + text.len()..];
                }
            }
        }
    }
}

mod of_records {
    use super::*;

    fn line(paper: Paper, id: &str, ours: f64) -> CheckedClaim {
        let mut claim = read(&file("says = \"at-least\"\nfigure = 10"))
            .unwrap()
            .claims
            .remove(0);
        id.clone_into(&mut claim.id);
        CheckedClaim::of(paper, &claim, ours, None, String::new())
    }

    /// Each paper measured with as many runs as it has lines.
    fn record(lines: Vec<CheckedClaim>) -> Record {
        let mut measurements: Vec<Measurement> = Vec::new();
        for line in &lines {
            match measurements.iter_mut().find(|one| one.paper == line.paper) {
                Some(known) => known.runs += 1,
                None => measurements.push(Measurement {
                    paper: line.paper,
                    commit: None,
                    runs: 1,
                    hour_s: 3600.0,
                    intervals: None,
                }),
            }
        }
        let variation = Variation {
            name: "far".to_owned(),
            what: "memory is far".to_owned(),
            runs: 1,
            machines: BTreeMap::new(),
            programs: BTreeMap::new(),
            model: toml::Table::new(),
        };
        let varied = measurements.iter().map(|one| {
            let of_it = lines.iter().filter(|line| line.paper == one.paper);
            Varied::new(one.paper, &variation, &of_it.cloned().collect::<Vec<_>>())
        });
        let varied = varied.collect();
        Record::new(measurements, lines, varied)
    }

    #[test]
    fn what_held_and_no_longer_does_has_fallen() {
        let before = record(vec![
            line(Paper::NMass, "stays", 11.0),
            line(Paper::NMass, "falls", 11.0),
            line(Paper::NMass, "never-held", 9.0),
            line(Paper::NMass, "gone", 11.0),
            line(Paper::Dino, "not-run", 11.0),
        ]);
        let now = record(vec![
            line(Paper::NMass, "stays", 12.0),
            line(Paper::NMass, "falls", 9.9999),
            line(Paper::NMass, "never-held", 9.0),
            line(Paper::NMass, "new", 1.0),
        ]);
        let fallen: Vec<&str> = now.fallen(&before).iter().map(|l| l.id.as_str()).collect();
        assert_eq!(fallen, ["falls", "gone"]);
        assert!(before.fallen(&before).is_empty());
    }

    #[test]
    fn a_paper_that_was_not_run_keeps_its_lines() {
        let before = record(vec![
            line(Paper::Dino, "a", 11.0),
            line(Paper::NMass, "b", 11.0),
            line(Paper::NMass, "b2", 11.0),
        ]);
        let now = record(vec![line(Paper::NMass, "c", 11.0)]).with_others_of(before);
        let ids: Vec<&str> = now.lines.iter().map(|line| line.id.as_str()).collect();
        assert_eq!(ids, ["a", "c"]);
        let measured = now.measurements.iter().map(|one| (one.paper, one.runs));
        let measured: Vec<(Paper, u32)> = measured.collect();
        assert_eq!(measured, [(Paper::Dino, 1), (Paper::NMass, 1)]);
        let varied = now.variations.iter();
        let varied: Vec<_> = varied.map(|one| (one.paper, one.ours.len())).collect();
        assert_eq!(varied, [(Paper::Dino, 1), (Paper::NMass, 1)]);
    }

    #[test]
    fn a_missing_figure_stays_missing() {
        let nothing = line(Paper::Dino, "a", f64::NAN);
        assert_eq!((nothing.ours, nothing.holds), (None, false));
        let json = record(vec![nothing]).to_json().unwrap();
        let read = Record::parse(&json, "record.json".as_ref()).unwrap();
        assert_eq!(read.lines[0].ours, None);
        assert_eq!(read.to_json().unwrap(), json);
    }

    #[test]
    fn figures_are_recorded_with_four_digits_and_judged_with_all() {
        let close = line(Paper::Dino, "a", 9.999_99);
        assert_eq!((close.ours, close.holds), (Some(10.0), false));
        assert_eq!(record::rounded(-1234.56), -1235.0);
        assert_eq!(record::rounded(0.0), 0.0);
        assert_eq!(record::rounded(0.000_123_456), 0.000_123_5);
    }
}
