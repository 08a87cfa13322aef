//! N-MASS: placements of few programs, without any scheduler: mcf and lbm in three mappings (§2, Fig 2, 3),
//! clones of soplex from all local to all remote (§3.1, Fig 4, 5), the NUMA penalty of every program (§3.2,
//! Fig 7).

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_experiment::statistics::{LinearFit, largest, mean, smallest};
use numaherd_model::{Factors, Placed, Speed, alone, steady};
use numaherd_topology::CpuId;

use super::{FAR, HOME, NEAR, profiles};
use crate::reproduce::testbed::{Testbed, increase};

/// Bytes of a MiB.
const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn measure(testbed: &Testbed) -> Result<Measured> {
    let mut measured = mcf_and_lbm(testbed)?;
    measured.append(soplex(testbed)?);
    measured.append(penalties(testbed)?);
    Ok(measured)
}

/// Bytes per ns that a program moves, in GB/s.
fn traffic(speed: &Speed, written_per_line: f64) -> f64 {
    speed.lines * (1.0 + written_per_line) * 64.0 / speed.ns
}

fn mcf_and_lbm(testbed: &Testbed) -> Result<Measured> {
    const MCF: usize = 0;
    const LBM: usize = 1;
    let phases = [testbed.phase("mcf")?, testbed.phase("lbm")?];
    let solo = phases.map(|phase| alone(&testbed.hardware, phase, CpuId(NEAR)));
    let run = |cpus: [u32; 2]| -> [Speed; 2] {
        let placed = [MCF, LBM].map(|at| Placed {
            phase: phases[at],
            cpu: CpuId(cpus[at]),
            home: HOME,
        });
        let speeds = steady(&testbed.hardware, &placed, Factors::ALL);
        [speeds[MCF], speeds[LBM]]
    };
    let (a, b, c) = (run([NEAR, NEAR + 1]), run([NEAR, FAR]), run([FAR, NEAR]));
    let slower = |mapping: &[Speed; 2], at: usize| increase(mapping[at].ns, solo[at].ns);
    let misses = |mapping: &[Speed; 2], at: usize| increase(mapping[at].lines, solo[at].lines);
    let average = |mapping| mean([MCF, LBM].map(|at| slower(mapping, at)));
    let moved = |mapping: &[Speed; 2]| {
        [MCF, LBM].map(|at| traffic(&mapping[at], phases[at].written_per_line))
    };
    let all = |mapping: &[Speed; 2]| moved(mapping).iter().sum::<f64>();

    let mut measured = Measured::new();
    measured.figure("fig3-mpki-mcf", misses(&a, MCF));
    measured.figure("fig3-mpki-lbm", misses(&a, LBM));
    let apart = [&b, &c].map(|mapping| misses(mapping, MCF).max(misses(mapping, LBM)));
    measured.figure("fig3-mpki-apart", largest(apart));
    let remote = mean(a.iter().map(|speed| speed.remote_lines / speed.lines));
    measured.figure("fig3-local", 100.0 * (1.0 - remote));
    measured.figure("fig3-remote-b", 100.0 * moved(&b)[LBM] / all(&b));
    measured.figure("fig3-remote-c", 100.0 * moved(&c)[MCF] / all(&c));
    measured.figure("fig3-traffic", increase(all(&a), mean([all(&b), all(&c)])));
    measured.figure("fig3-lbm-b", slower(&b, LBM));
    measured.figure("fig3-lbm-a", slower(&a, LBM));
    measured.figure("fig3-lbm-c", slower(&c, LBM));
    measured.figure("fig3-average-a", average(&a));
    measured.figure("fig3-average-c", average(&c));
    measured.order("fig3-b-better", [average(&a), average(&b)]);
    measured.order("fig3-c-better", [average(&a), average(&c)]);
    measured.order("fig3-c-best", [average(&b), average(&c)]);
    measured.order("fig3-mcf-c", [slower(&a, MCF), slower(&c, MCF)]);
    for (name, speed) in [("mcf-mib", &a[MCF]), ("lbm-mib", &a[LBM])] {
        measured.detail(name, format!("{:.1}", speed.held_bytes / MIB));
    }
    Ok(measured)
}

/// Figures of four clones, some of them remote.
struct Split {
    locality: f64,
    misses: f64,
    slowdown: f64,
}

fn soplex(testbed: &Testbed) -> Result<Measured> {
    let phase = testbed.phase("soplex")?;
    let solo = alone(&testbed.hardware, phase, CpuId(NEAR));
    let split = |remote: u32| {
        let cpu = |clone| CpuId(if clone < remote { FAR } else { NEAR } + clone);
        let placed: Vec<Placed<'_>> = (0..4)
            .map(|clone| Placed {
                phase,
                cpu: cpu(clone),
                home: HOME,
            })
            .collect();
        let speeds = steady(&testbed.hardware, &placed, Factors::ALL);
        let lines = |of: fn(&Speed) -> f64| speeds.iter().map(|s| of(s) / s.ns).sum::<f64>();
        Split {
            locality: 100.0 * (1.0 - lines(|s| s.remote_lines) / lines(|s| s.lines)),
            misses: mean(speeds.iter().map(|s| increase(s.lines, solo.lines))),
            slowdown: mean(speeds.iter().map(|s| increase(s.ns, solo.ns))),
        }
    };
    let splits: Vec<Split> = (0..=4).map(split).collect();
    let least = |of: fn(&Split) -> f64| {
        let order = |a: &&Split, b: &&Split| of(a).total_cmp(&of(b));
        splits.iter().min_by(order).expect("five splits")
    };
    let (fewest, best) = (least(|split| split.misses), least(|split| split.slowdown));
    let mut measured = Measured::new();
    measured.figure("fig4-all-local", splits[0].misses);
    measured.figure("fig4-least", fewest.misses);
    measured.figure("fig4-least-at", fewest.locality);
    measured.figure("fig5-best-at", best.locality);
    measured.order("fig5-not-local", [splits[0].slowdown, best.slowdown]);
    measured.order("fig5-not-balanced", [fewest.slowdown, best.slowdown]);
    Ok(measured)
}

fn penalties(testbed: &Testbed) -> Result<Measured> {
    let programs = profiles(testbed)?;
    let points: Vec<(f64, f64)> = programs.iter().map(|p| (p.miss_rate, p.penalty)).collect();
    let all = LinearFit::through(&points);
    // As §4.5 fits it: without mcf and without programs that are not memory bound.
    let fitted = programs.iter().zip(points.iter().copied());
    let fitted = fitted.filter(|(program, point)| program.name != "mcf" && point.0 >= 1.0);
    let fit = LinearFit::through(&fitted.map(|one| one.1).collect::<Vec<_>>());
    let mut measured = Measured::new();
    measured.figure("fig7-least", smallest(points.iter().map(|point| point.1)));
    measured.figure("fig7-most", largest(points.iter().map(|point| point.1)));
    measured.figure("fig7-correlated", all.slope);
    measured.figure("fig7-r2", all.determination);
    measured.figure("fig7-intercept", fit.intercept);
    measured.figure("fig7-slope", fit.slope);
    Ok(measured)
}
