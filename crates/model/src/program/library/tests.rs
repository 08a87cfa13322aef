//! The programs that come with Numaherd: all there, with sources, as the papers know them.

use std::path::PathBuf;

use super::*;

const MIB: f64 = (1 << 20) as f64;

/// What a thread of DINO's Barcelona holds alone: 2 MB of level 3 and its own 512 KB of level 2.
const BARCELONA: f64 = 2.5 * MIB;

fn program(name: &str) -> &'static Program {
    match Library::built_in().get(name) {
        Ok(program) => program,
        Err(error) => panic!("{error}"),
    }
}

fn lines(name: &str, bytes: f64) -> f64 {
    program(name).phases[0].lines.at(bytes)
}

#[test]
fn every_file_of_profiles_is_embedded_and_no_two_have_a_program_of_one_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/programs");
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    there.sort();
    let embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
    assert_eq!(there, embedded);
    let mut all = Library::default();
    for (name, text) in FILES {
        let path = PathBuf::from(format!("data/programs/{name}.toml"));
        let library = Library::parse(text, &path).unwrap_or_else(|error| panic!("{error}"));
        assert!(library.names().count() > 0, "{name} has no program");
        for program in library.programs() {
            assert!(program.source.len() > 40, "{}: no source", program.name);
            assert!(!program.about.is_empty(), "{}: not described", program.name);
            assert!(
                all.get(&program.name).is_err(),
                "{} is in {name} and in another file",
                program.name
            );
        }
        all = all.merged(library);
    }
    assert_eq!(&all, Library::built_in());
}

#[test]
fn all_of_cpu2006_is_there() {
    let (_, text) = FILES.iter().find(|(name, _)| *name == "cpu2006").unwrap();
    let library = Library::parse(text, Path::new("cpu2006.toml")).unwrap();
    let names: Vec<&str> = library.names().collect();
    let all = "GemsFDTD astar bwaves bzip2 cactusADM calculix dealII gamess gcc gobmk gromacs \
               h264ref hmmer lbm leslie3d libquantum mcf milc namd omnetpp perlbench povray sjeng \
               soplex sphinx3 tonto wrf xalancbmk zeusmp";
    assert_eq!(names, all.split(' ').collect::<Vec<_>>());
}

#[test]
fn on_dinos_machine_the_programs_have_the_classes_that_dino_gives_them() {
    let of = |names: &[&'static str]| -> Vec<(&'static str, f64)> {
        names
            .iter()
            .map(|name| (*name, lines(name, BARCELONA)))
            .collect()
    };
    for (name, lines) in of(&["mcf", "omnetpp", "milc"]) {
        assert!(lines > 15.0, "{name}, a devil, fetches {lines}");
    }
    for (name, lines) in of(&["gcc", "bwaves", "bzip2"]) {
        assert!(
            (2.0..15.0).contains(&lines),
            "{name}, a soft devil, fetches {lines}"
        );
    }
    for (name, lines) in of(&["povray", "calculix", "h264ref", "gamess", "namd"]) {
        assert!(lines < 2.0, "{name}, a turtle, fetches {lines}");
    }
}

/// The figures of the measured table, each at its size: those of whole programs at the smallest,
/// all of them at the largest.
#[test]
fn measured_lines_come_back_at_the_sizes_they_were_measured_at() {
    for (name, smallest, largest) in [
        ("perlbench", None, 0.12),
        ("bzip2", None, 0.10),
        ("gcc", None, 3.50),
        ("bwaves", Some(14.82), 14.08),
        ("gamess", None, 0.0),
        ("mcf", Some(71.27), 30.16),
        ("milc", Some(33.84), 30.20),
        ("zeusmp", Some(5.32), 4.80),
        ("gromacs", None, 0.0),
        ("cactusADM", Some(4.95), 2.77),
        ("leslie3d", Some(17.80), 10.82),
        ("namd", None, 0.02),
        ("gobmk", None, 0.22),
        ("dealII", Some(3.77), 2.59),
        ("soplex", None, 14.32),
        ("povray", None, 0.0),
        ("calculix", None, 0.16),
        ("hmmer", None, 0.0),
        ("sjeng", None, 0.31),
        ("GemsFDTD", Some(20.80), 18.75),
        ("libquantum", Some(31.24), 16.20),
        ("h264ref", None, 0.04),
        ("tonto", Some(1.38), 0.03),
        ("lbm", Some(30.58), 17.15),
        ("omnetpp", Some(26.82), 9.94),
        ("astar", None, 0.35),
        ("wrf", Some(6.32), 4.21),
        ("sphinx3", Some(11.01), 0.02),
        ("xalancbmk", Some(9.96), 1.34),
    ] {
        if let Some(smallest) = smallest {
            assert_eq!(lines(name, 2.75 * MIB), smallest, "{name} at 2.75 MiB");
        }
        assert_eq!(lines(name, 20.25 * MIB), largest, "{name} at 20.25 MiB");
    }
}

/// One heavy input must not stand for a program that has several.
#[test]
fn a_figure_of_one_input_is_not_the_programs() {
    for (name, one_input) in [
        ("gcc", 22.3),
        ("bzip2", 4.75),
        ("astar", 13.22),
        ("gobmk", 2.21),
    ] {
        let whole = lines(name, 2.75 * MIB);
        assert!(whole < 0.7 * one_input, "{name}: {whole} of {one_input}");
    }
}

#[test]
fn mcf_chases_pointers_and_lbm_streams() {
    let mcf = &program("mcf").phases[0];
    // 1.59 cycles for 41.11 lines, of 60 ns at 3.2 GHz, 192 cycles, each.
    assert!((mcf.misses_in_flight - 192.0 / (1590.0 / 41.11)).abs() < 1e-9);
    assert!((mcf.cycles_per_instruction - (2.22 - 30.16 * 1.59 / 41.11)).abs() < 1e-9);
    assert_eq!(program("lbm").phases[0].misses_in_flight, 16.0);
    assert!(program("lbm").phases[0].written_per_line > 0.7);
}

#[test]
fn an_unknown_program_is_answered_with_the_nearest_name() {
    let hint = |name: &str| Library::built_in().get(name).unwrap_err().to_string();
    assert_eq!(
        hint("429.mcf"),
        "there is no program \"429.mcf\"; did you mean \"mcf\"?"
    );
    assert!(hint("sphinx").ends_with("did you mean \"sphinx3\"?"));
    assert!(hint("libqantum").ends_with("did you mean \"libquantum\"?"));
    assert!(hint("zzzzzzzz").contains("there are 104.milc, "));
}

#[test]
fn a_users_program_takes_the_place_of_one_of_that_name() {
    let text = "source = 'mine'\n[[program]]\nname = 'mcf'\nabout = 'smaller'\nfootprint_mib = 1\n\
                [[program.phase]]\ninstructions = 1\ncycles_per_instruction = 1\n\
                cache_accesses = 1\nlines = [[1, 1]]\nmisses_in_flight = 1\n";
    let mine = Library::parse(text, Path::new("mine.toml")).unwrap();
    let all = Library::built_in().clone().merged(mine);
    assert_eq!(all.get("mcf").unwrap().about, "smaller");
    assert_eq!(all.names().count(), Library::built_in().names().count());
}

#[test]
fn a_file_too_large_to_be_one_is_not_read() {
    let error = Library::read(Path::new("/dev/zero")).unwrap_err();
    let wanted = "/dev/zero is larger than 4194304 bytes";
    assert!(error.to_string().starts_with(wanted), "{error}");
    let error = Library::read(Path::new("nowhere.toml")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("nowhere.toml: there is no such file"),
        "{error}"
    );
}

#[test]
fn npb_has_its_classes_a_to_c_with_four_threads_that_do_not_stray_from_their_memory() {
    for benchmark in ["bt", "sp", "lu", "mg", "cg", "ft", "is", "ep"] {
        let mut before = 0.0;
        for class in ["A", "B", "C"] {
            let program = program(&format!("{benchmark}.{class}"));
            assert_eq!(program.threads, 4);
            assert!(program.instructions() > before, "{}", program.name);
            before = program.instructions();
        }
    }
    for (name, at_2, at_8, at_16) in [
        ("bt.A", 2.44, 2.41, 2.20),
        ("sp.A", 12.71, 12.60, 10.07),
        ("lu.A", 18.18, 3.84, 3.22),
        ("mg.A", 27.37, 17.94, 17.87),
        ("cg.A", 26.54, 26.48, 26.38),
        ("cg.B", 26.72, 26.62, 26.61),
        ("ft.A", 8.99, 8.99, 8.99),
        ("is.A", 10.44, 10.40, 10.27),
        ("is.B", 10.44, 10.43, 10.42),
    ] {
        let measured = [2.0, 8.0, 16.0].map(|mib| lines(name, mib * MIB));
        assert_eq!(measured, [at_2, at_8, at_16], "{name}");
    }
}

/// DINO's point (section 3.3): the rates of the ranks change all the time, their classes do not.
#[test]
fn the_rates_of_mpi_ranks_change_within_their_class() {
    let (_, text) = FILES.iter().find(|(name, _)| *name == "mpi2007").unwrap();
    let jobs = Library::parse(text, Path::new("mpi2007.toml")).unwrap();
    assert_eq!(jobs.names().count(), 11);
    for job in jobs.programs() {
        for mib in [0.5, 1.0, 2.5] {
            let rates: Vec<f64> = job
                .phases
                .iter()
                .map(|phase| phase.lines.at(mib * MIB))
                .collect();
            let class = |rate: &f64| (*rate >= 2.0, *rate > 100.0);
            assert!(
                rates.iter().all(|rate| class(rate) == class(&rates[0])),
                "{} leaves its class with {mib} MiB: {rates:?}",
                job.name
            );
            assert!(
                rates.windows(2).all(|pair| pair[0] != pair[1]),
                "{}: {rates:?}",
                job.name
            );
        }
    }
}

#[test]
fn the_daemons_serve_requests_from_shared_pages_without_end() {
    for (name, mib) in [("apache", 120), ("mysql", 400)] {
        let daemon = program(name);
        assert_eq!(daemon.footprint_bytes, mib << 20);
        assert!(daemon.repeat && daemon.threads > 1 && daemon.shared_accesses > 0.5);
        assert!(daemon.request_instructions.is_some());
        assert!(daemon.phases.iter().all(|phase| phase.busy < 1.0));
    }
}

#[test]
fn a_process_begun_later_runs_the_same_phases() {
    let rank = program("107.leslie3d");
    let later = rank.begun_at(2);
    assert_eq!(later.phases[0], rank.phases[2]);
    assert_eq!(later.phases[rank.phases.len() - 1], rank.phases[1]);
    assert_eq!(later.instructions(), rank.instructions());
    assert_eq!(&rank.begun_at(rank.phases.len()), rank);
}

#[test]
fn demand_lines_are_among_the_lines() {
    for program in Library::built_in().programs() {
        for phase in &program.phases {
            for mib in [0.1, 0.5, 1.0, 2.75, 8.0, 20.25, 64.0] {
                let lines = phase.lines.at(mib * MIB);
                assert!((0.0..=lines).contains(&phase.demand_at(mib * MIB)));
            }
        }
    }
    let bwaves = &program("bwaves").phases[0];
    assert!(bwaves.demand_at(8.0 * MIB) < 0.02 * bwaves.lines.at(8.0 * MIB));
    let proxy = &program("cg.B").phases[0];
    assert_eq!(proxy.demand_at(MIB), proxy.lines.at(MIB));
}

/// Proxies carry figures that are derived elsewhere: they must not fall behind.
#[test]
fn proxies_have_the_figures_of_their_kin() {
    for (kin, proxies) in [
        ("bwaves", "bt.A bt.B bt.C"),
        ("leslie3d", "sp.A sp.B sp.C 107.leslie3d"),
        ("zeusmp", "lu.A lu.B lu.C 130.socorro 132.zeusmp2 137.lu"),
        ("GemsFDTD", "mg.A mg.B mg.C 113.GemsFDTD"),
        ("soplex", "cg.A cg.B cg.C 128.GAPgeofem"),
        ("wrf", "ft.A ft.B ft.C 121.pop2 127.wrf2"),
        ("astar", "is.A is.B is.C"),
        ("namd", "ep.A ep.B ep.C"),
        ("milc", "104.milc"),
        ("povray", "122.tachyon"),
        ("gromacs", "126.lammps"),
        ("gcc", "apache mysql"),
    ] {
        let kin = &program(kin).phases[0];
        for name in proxies.split(' ') {
            let phase = &program(name).phases[0];
            let cycles = phase.cycles_per_instruction - kin.cycles_per_instruction;
            assert!(
                cycles.abs() <= 0.0006,
                "{name}'s cycles are off by {cycles}"
            );
            let in_flight = phase.misses_in_flight - kin.misses_in_flight;
            assert!(
                in_flight.abs() <= 0.06,
                "{name}'s misses in flight by {in_flight}"
            );
        }
    }
}
