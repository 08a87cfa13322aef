//! DINO §3.3.1, Fig 8: degradation of each program next to three instances of itself on one memory
//! domain, against its miss rate alone. Programs are all of CPU2006; domains, the mean over the
//! machine's.

use anyhow::Result;
use numaherd_model::{Factors, Placed, alone, steady};

use super::{Claim, Class, Ground, at_least, claim, correlation, mean};
use crate::reproduce::{CPU2006, Says};

/// One program's bar and point.
struct Bar {
    name: &'static str,
    /// Lines per 1000 instructions, alone.
    miss_rate: f64,
    /// In percent of its time alone.
    degradation: f64,
}

fn bar(ground: &Ground, name: &'static str) -> Result<Bar> {
    let phase = ground.phase(name)?;
    let nodes = ground
        .hardware
        .topology()
        .nodes()
        .iter()
        .map(|node| node.id);
    let each: Vec<(f64, f64)> = nodes
        .map(|home| {
            let cpus = ground.cpus(home);
            let clones: Vec<Placed<'_>> = cpus
                .iter()
                .take(4)
                .map(|&cpu| Placed { phase, cpu, home })
                .collect();
            let solo = alone(&ground.hardware, phase, cpus[0]);
            let slow = steady(&ground.hardware, &clones, Factors::ALL)[0];
            (solo.lines, (slow.ns / solo.ns - 1.0) * 100.0)
        })
        .collect();
    Ok(Bar {
        name,
        miss_rate: mean(each.iter().map(|one| one.0)),
        degradation: mean(each.iter().map(|one| one.1)),
    })
}

/// The claims of Fig 8.
pub(super) fn claims(ground: &Ground) -> Result<Vec<Claim>> {
    let mut bars = Vec::new();
    for name in CPU2006 {
        bars.push(bar(ground, name)?);
    }
    let rates: Vec<f64> = bars.iter().map(|bar| bar.miss_rate).collect();
    let costs: Vec<f64> = bars.iter().map(|bar| bar.degradation).collect();
    let without_mcf = |values: &[f64]| -> Vec<f64> {
        let all = bars.iter().zip(values).filter(|(bar, _)| bar.name != "mcf");
        all.map(|(_, &value)| value).collect()
    };
    let mut sorted: Vec<&Bar> = bars.iter().collect();
    sorted.sort_by(|a, b| b.degradation.total_cmp(&a.degradation));
    let told: Vec<String> = sorted
        .iter()
        .take(12)
        .map(|bar| {
            format!(
                "{} {:.0} % at {:.0}",
                bar.name, bar.degradation, bar.miss_rate
            )
        })
        .collect();
    let class_mean = |class: Class| {
        let of = bars.iter().filter(|bar| Class::of(bar.miss_rate) == class);
        mean(of.map(|bar| bar.degradation))
    };
    let [devils, soft_devils, turtles] = Class::ALL.map(class_mean);
    let much = much_higher(&bars);
    let stray = strays(&bars);
    let mcf = stray
        .iter()
        .find(|one| one.0 == "mcf")
        .map_or(f64::NAN, |one| one.1);
    let others = stray.iter().filter(|one| one.0 != "mcf");
    let (next, next_stray) = others
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(("none", f64::NAN), |one| (one.0, one.1));
    Ok(vec![
        claim(
            "fig8-rank-correlation",
            "3.3.1, Fig 8",
            "degradation next to three instances of itself follows the miss rate, mcf left out: rank \
             correlation",
            "r",
            at_least(0.8),
            correlation(&ranks(&without_mcf(&rates)), &ranks(&without_mcf(&costs))),
        )
        .proxy(format!(
            "the paper prints no correlation; 0.8 is called strong. Highest: {}",
            told.join(", ")
        )),
        claim(
            "fig8-much-higher",
            "3.3.1, Fig 8",
            "of two programs with miss rates more than 15 apart (the width of a class), mcf left out, the \
             higher has the higher degradation: share of pairs",
            "%",
            at_least(90.0),
            much,
        )
        .proxy("\"in general\" is held as nine pairs of ten"),
        claim(
            "fig8-mcf-is-the-outlier",
            "3.3.1, Fig 8",
            "mcf is farthest from the line through all the other programs",
            "points",
            Says::Ranking,
            mcf - next_stray,
        )
        .note(format!(
            "distance of the degradation from a straight line on miss rates through the others: mcf \
             {mcf:.0} points, next {next} {next_stray:.0}"
        )),
        claim(
            "fig8-devils-over-soft-devils",
            "2.1, Fig 8",
            "devils degrade more than soft devils, on average",
            "points",
            Says::Ranking,
            devils - soft_devils,
        ),
        claim(
            "fig8-soft-devils-over-turtles",
            "2.1, Fig 8",
            "soft devils degrade more than turtles, on average",
            "points",
            Says::Ranking,
            soft_devils - turtles,
        )
        .note(format!("means: devils {devils:.0} %, soft devils {soft_devils:.0} %, turtles {turtles:.0} %")),
    ])
}

/// Share of the pairs without mcf whose miss rates are far apart in which the degradations have the
/// same order, in percent.
fn much_higher(bars: &[Bar]) -> f64 {
    let bars = || bars.iter().filter(|bar| bar.name != "mcf");
    let pairs = bars().flat_map(|high| bars().map(move |low| (high, low)));
    let far = pairs.filter(|(high, low)| high.miss_rate - low.miss_rate > 15.0);
    mean(far.map(|(high, low)| {
        if high.degradation > low.degradation {
            100.0
        } else {
            0.0
        }
    }))
}

/// How far each program's degradation is from the straight line (least squares) through all the
/// others, in points.
fn strays(bars: &[Bar]) -> Vec<(&'static str, f64)> {
    let stray = |one: &Bar| {
        let others = || bars.iter().filter(|bar| bar.name != one.name);
        let x = mean(others().map(|bar| bar.miss_rate));
        let y = mean(others().map(|bar| bar.degradation));
        let moments = others().map(|bar| (bar.miss_rate - x) * (bar.degradation - y));
        let slope =
            moments.sum::<f64>() / others().map(|bar| (bar.miss_rate - x).powi(2)).sum::<f64>();
        (
            one.name,
            (one.degradation - y - slope * (one.miss_rate - x)).abs(),
        )
    };
    bars.iter().map(stray).collect()
}

/// Ranks from 1, equals sharing the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| *other == value).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_equals_are_shared() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn a_program_off_the_line_strays_by_its_distance() {
        let bar = |name, miss_rate, degradation| Bar {
            name,
            miss_rate,
            degradation,
        };
        let bars = [
            bar("a", 0.0, 0.0),
            bar("b", 1.0, 2.0),
            bar("c", 2.0, 4.0),
            bar("mcf", 4.0, 3.0),
        ];
        let strays = strays(&bars);
        assert!((strays[3].1 - 5.0).abs() < 1e-9);
        let bars = [bar("a", 0.0, 0.0), bar("b", 20.0, 2.0), bar("c", 40.0, 1.0)];
        assert!((much_higher(&bars) - 200.0 / 3.0).abs() < 1e-9);
    }
}
