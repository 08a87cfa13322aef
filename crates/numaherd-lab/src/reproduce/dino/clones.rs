//! DINO §3.3.1, Fig 8: degradation of each program beside three instances of itself on one memory domain,
//! against its miss rate alone. The programs are all of CPU2006; figures are means over the machine's domains.

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_experiment::statistics::{LinearFit, correlation, mean, ranks};
use numaherd_model::{Factors, Placed, alone, steady};

use super::Class;
use crate::reproduce::testbed::{Testbed, cpu2006, increase};

/// One program's bar and point.
struct Bar {
    name: &'static str,
    /// Lines per 1000 instructions, alone.
    miss_rate: f64,
    /// In percent of its time alone.
    degradation: f64,
}

fn bar(testbed: &Testbed, name: &'static str) -> Result<Bar> {
    let phase = testbed.phase(name)?;
    let homes = testbed.hardware.topology().nodes().iter();
    let each = homes.map(|node| {
        let (home, cpus) = (node.id, testbed.cpus(node.id));
        let clones: Vec<Placed<'_>> = cpus
            .iter()
            .take(4)
            .map(|&cpu| Placed { phase, cpu, home })
            .collect();
        let solo = alone(&testbed.hardware, phase, cpus[0]);
        let slow = steady(&testbed.hardware, &clones, Factors::ALL)[0];
        (solo.lines, increase(slow.ns, solo.ns))
    });
    let each: Vec<(f64, f64)> = each.collect();
    Ok(Bar {
        name,
        miss_rate: mean(each.iter().map(|one| one.0)),
        degradation: mean(each.iter().map(|one| one.1)),
    })
}

pub(super) fn measure(testbed: &Testbed) -> Result<Measured> {
    let bars = cpu2006().map(|name| bar(testbed, name));
    let bars: Vec<Bar> = bars.collect::<Result<_>>()?;
    let without_mcf: Vec<&Bar> = bars.iter().filter(|bar| bar.name != "mcf").collect();
    let ranks_of = |figure: fn(&Bar) -> f64| {
        let figures: Vec<f64> = without_mcf.iter().map(|bar| figure(bar)).collect();
        ranks(&figures)
    };
    let mut measured = Measured::new();
    measured.figure(
        "fig8-rank-correlation",
        correlation(
            &ranks_of(|bar| bar.miss_rate),
            &ranks_of(|bar| bar.degradation),
        ),
    );
    measured.figure("fig8-much-higher", in_order(&without_mcf));
    let mut sorted: Vec<&Bar> = bars.iter().collect();
    sorted.sort_by(|a, b| b.degradation.total_cmp(&a.degradation));
    let highest = sorted.iter().take(12).map(|bar| {
        let (name, degradation, miss_rate) = (bar.name, bar.degradation, bar.miss_rate);
        format!("{name} {degradation:.0} % at {miss_rate:.0}")
    });
    measured.detail("highest", highest.collect::<Vec<_>>().join(", "));

    let mut distances = distances(&bars);
    distances.sort_by(|a, b| b.1.total_cmp(&a.1));
    let of_mcf = distances.iter().find(|one| one.0 == "mcf");
    let mcf = of_mcf.map_or(f64::NAN, |one| one.1);
    let next = distances.iter().find(|one| one.0 != "mcf");
    let (next, next_distance) = next.copied().unwrap_or(("none", f64::NAN));
    measured.order("fig8-mcf-is-the-outlier", [mcf, next_distance]);
    measured.detail("mcf", format!("{mcf:.0}"));
    measured.detail("next", next);
    measured.detail("next-distance", format!("{next_distance:.0}"));

    let means = Class::ALL.map(|class| {
        let of_class = bars.iter().filter(|bar| Class::of(bar.miss_rate) == class);
        (class.plural(), mean(of_class.map(|bar| bar.degradation)))
    });
    let [devils, soft_devils, turtles] = means.map(|one| one.1);
    measured.order("fig8-devils-over-soft-devils", [devils, soft_devils]);
    measured.order("fig8-soft-devils-over-turtles", [soft_devils, turtles]);
    let means = means.map(|(class, mean)| format!("{class} {mean:.0} %"));
    measured.detail("class-means", means.join(", "));
    Ok(measured)
}

/// Share of the pairs with miss rates far apart in which the degradations have the same order, in percent.
fn in_order(bars: &[&Bar]) -> f64 {
    let pairs = bars
        .iter()
        .flat_map(|high| bars.iter().map(move |low| (high, low)));
    let far = pairs.filter(|(high, low)| high.miss_rate - low.miss_rate > 15.0);
    mean(far.map(|(high, low)| {
        if high.degradation > low.degradation {
            100.0
        } else {
            0.0
        }
    }))
}

/// How far each program's degradation is from the regression line through all others, in points.
fn distances(bars: &[Bar]) -> Vec<(&'static str, f64)> {
    let distance = |one: &Bar| {
        let others = bars.iter().filter(|bar| bar.name != one.name);
        let others: Vec<(f64, f64)> = others.map(|bar| (bar.miss_rate, bar.degradation)).collect();
        let expected = LinearFit::through(&others).at(one.miss_rate);
        (one.name, (one.degradation - expected).abs())
    };
    bars.iter().map(distance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_off_the_line_is_told_by_its_distance_and_pairs_by_their_order() {
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
        assert!((distances(&bars)[3].1 - 5.0).abs() < 1e-9);
        let bars = [bar("a", 0.0, 0.0), bar("b", 20.0, 2.0), bar("c", 40.0, 1.0)];
        assert!((in_order(&bars.each_ref()) - 200.0 / 3.0).abs() < 1e-9);
    }
}
