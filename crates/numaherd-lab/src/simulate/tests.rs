//! Charts are whole SVG files with text in them, for light and dark.

use numaherd_experiment::figures::Saved;

use super::*;

fn policy(name: &str, saved: Option<f64>) -> PolicyFigures {
    let saved = saved.map(|mean| Saved {
        mean,
        worst: mean / 2.0,
        deviation: None,
        request: None,
    });
    let program = |program: &str| ProgramFigures {
        program: program.to_owned(),
        alone_s: 10.0,
        mean_s: 15.0,
        worst_s: 16.0,
        deviation: None,
        slowdown: 1.5,
        request_s: None,
        thread_moves_per_hour: 0.0,
        saved,
    };
    PolicyFigures {
        policy: name.to_owned(),
        trials: 1,
        slowdown: 1.5,
        worst_slowdown: 1.6,
        deviation: None,
        saved,
        thread_moves: 0.0,
        thread_moves_ordered: 0.0,
        pages_moved: 0.0,
        thread_moves_per_hour: 0.0,
        miss_rate: 1.0,
        local_access_ratio: None,
        programs: vec![program("mcf"), program("libquantum")],
    }
}

#[test]
fn there_is_a_chart_of_each_figure_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let all = [policy("linux", None), policy("dino", Some(-0.2))];
    draw(folder.path(), "example", &all).unwrap();
    let read = |file: &str| fs::read_to_string(folder.path().join(file));
    let slowdown = read("slowdown.svg").unwrap();
    for text in ["example: Slowdown", "mcf", "libquantum", "linux", "dino"] {
        assert!(slowdown.contains(&format!(">{text}")), "{text}\n{slowdown}");
    }
    assert!(slowdown.contains("prefers-color-scheme: dark"));
    // Two programs, two policies, two squares of the legend.
    let bars = |svg: &str| {
        svg.matches("fill=\"#8c8c8c\"").count() + svg.matches("fill=\"#e69f00\"").count()
    };
    assert_eq!(bars(&slowdown), 6);
    // The first policy has nothing saved against itself; the others keep their colours.
    let mean = read("mean.svg").unwrap();
    assert!(mean.contains("saved against linux, %"));
    assert_eq!(bars(&mean), 3);
    assert!(mean.contains("#e69f00") && !mean.contains("#8c8c8c"));
    assert!(read("deviation.svg").is_err(), "no policy has a deviation");
}
