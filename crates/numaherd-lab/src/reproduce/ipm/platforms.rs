//! Time, traffic and energy on the paper's four machines: §6.1, §6.2, Fig 7 to 10.
//!
//! All against the operating system's own mapping: threads spread by the kernel, pages where they are
//! first touched.

use std::sync::Arc;

use anyhow::Result;

use super::super::claim::{Says, claim, points};
use super::super::traces::{Kernel, NAS, NAS_MANY, PARSEC, STENCIL};
use super::super::{largest, mean};
use super::Claim;
use super::ground::{Ground, Job, Platform, Played, change};

/// What everything is held against.
const SYSTEM: &str = "linux";

/// Runs of several programs under several policies on one machine.
struct Board {
    platform: Platform,
    kernels: Vec<&'static Kernel>,
    policies: Vec<&'static str>,
    /// By kernel, then by policy; the first policy is the operating system's.
    runs: Vec<Vec<Vec<Arc<Played>>>>,
}

impl Board {
    fn new(
        ground: &Ground<'_>,
        platform: Platform,
        kernels: Vec<&'static Kernel>,
        others: &[&'static str],
    ) -> Result<Self> {
        let policies: Vec<_> = [SYSTEM].iter().chain(others).copied().collect();
        let mut jobs = Vec::new();
        for kernel in &kernels {
            for policy in &policies {
                jobs.push(Job::new(platform, kernel, policy)?);
            }
        }
        let runs = ground.run(jobs)?;
        let runs = runs.chunks(policies.len()).map(<[_]>::to_vec).collect();
        Ok(Self {
            platform,
            kernels,
            policies,
            runs,
        })
    }

    /// Change of a figure under a policy, in percent, for one kernel.
    fn of(&self, kernel: usize, policy: &str, figure: impl Fn(&Played) -> f64) -> f64 {
        let at = self.policies.iter().position(|name| *name == policy);
        let runs = &self.runs[kernel];
        change(&runs[at.expect("a policy that was run")], &runs[0], figure)
    }

    /// The mean over all kernels. Kernels without any of it (no traffic at all) count as unchanged.
    fn mean(&self, policy: &str, figure: impl Fn(&Played) -> f64 + Copy) -> f64 {
        let changes = (0..self.kernels.len()).map(|kernel| self.of(kernel, policy, figure));
        mean(changes.map(|change| if change.is_finite() { change } else { 0.0 }))
    }

    fn kernel(&self, name: &str) -> usize {
        let at = self.kernels.iter().position(|kernel| kernel.name == name);
        at.expect("a kernel that was run")
    }

    /// Each kernel's change, for a note.
    fn told(&self, policy: &str, figure: impl Fn(&Played) -> f64 + Copy) -> String {
        let each = self.kernels.iter().enumerate();
        let each =
            each.map(|(at, kernel)| format!("{} {:+.1}", kernel.name, self.of(at, policy, figure)));
        each.collect::<Vec<_>>().join(", ")
    }

    fn line(&self, id: &str, where_: &str, what: &str, figure: f64, ours: f64) -> Claim {
        let what = format!("{}: {what}", self.platform.name());
        claim(id, where_, what, "%", points(figure), ours)
    }
}

fn time(played: &Played) -> f64 {
    played.figures.seconds
}

fn traffic(played: &Played) -> f64 {
    played.figures.interchip_bytes as f64
}

fn misses(played: &Played) -> f64 {
    played.figures.caches.llc_misses as f64 / played.figures.instructions as f64
}

fn energy(played: &Played) -> f64 {
    played.figures.energy.per_instruction_nj
}

/// The lines of Fig 7 to 10.
pub(super) fn claims(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let mut claims = simics(ground)?;
    claims.extend(itanium(ground)?);
    claims.extend(xeons(ground)?);
    Ok(claims)
}

fn all_kernels() -> Vec<&'static Kernel> {
    NAS.iter().chain(&PARSEC).collect()
}

fn simics(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let policies = ["interleave", "oracle", "ipm"];
    let board = Board::new(ground, Platform::Simics, all_kernels(), &policies)?;
    let (a, b) = ("6.1.1, Fig 7a", "6.1.1, Fig 7b");
    let cg = board.kernel("cg");
    let by_oracle = format!("oracle: {:+.1} %", board.mean("oracle", time));
    Ok(vec![
        board
            .line(
                "fig7-cg-time",
                a,
                "time of cg",
                -28.7,
                board.of(cg, "ipm", time),
            )
            .note(format!("oracle: {:+.1} %", board.of(cg, "oracle", time))),
        board.line(
            "fig7-cg-traffic",
            b,
            "traffic between chips of cg",
            -55.3,
            board.of(cg, "ipm", traffic),
        ),
        board
            .line(
                "fig7-time",
                a,
                "time, mean of all programs",
                -9.4,
                board.mean("ipm", time),
            )
            .note(format!(
                "{by_oracle}; by program: {}",
                board.told("ipm", time)
            )),
        board
            .line(
                "fig7-traffic",
                b,
                "traffic between chips, mean",
                -52.0,
                board.mean("ipm", traffic),
            )
            .note(format!(
                "oracle: {:+.1} %; {}",
                board.mean("oracle", traffic),
                board.told("ipm", traffic)
            )),
        claim(
            "fig7-interleave",
            a,
            "Simics: ipm saves more time than interleaving, by",
            "points",
            Says::Ranking,
            board.mean("interleave", time) - board.mean("ipm", time),
        ),
    ])
}

/// What Fig 8 compares IPM with, beside the oracle.
const RELATED: [&str; 6] = [
    "interleave",
    "random-mapping",
    "numa-balancing",
    "kmaf",
    "tlb-miss",
    "tlb-miss-history",
];

fn itanium(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let mut kernels = all_kernels();
    kernels.push(&STENCIL);
    let mut policies = vec!["oracle", "ipm"];
    policies.extend(RELATED);
    let board = Board::new(ground, Platform::Itanium, kernels, &policies)?;
    let where_ = "6.1.2, Fig 8";
    let (cg, stencil) = (board.kernel("cg"), board.kernel("stencil"));
    let means: Vec<String> = board.policies[1..]
        .iter()
        .map(|policy| format!("{policy} {:+.1}", board.mean(policy, time)))
        .collect();
    let told = format!("mean change of time in %: {}", means.join(", "));
    let (ipm, oracle) = (board.mean("ipm", time), board.mean("oracle", time));
    let mut claims = vec![
        board.line(
            "fig8-cg",
            where_,
            "time of cg",
            -39.0,
            board.of(cg, "ipm", time),
        ),
        board
            .line(
                "fig8-time",
                where_,
                "time, mean of all programs",
                -13.7,
                ipm,
            )
            .note(format!(
                "{told}; ipm by program: {}",
                board.told("ipm", time)
            )),
        board
            .line(
                "fig8-oracle",
                where_,
                "the same under oracle",
                -14.2,
                oracle,
            )
            .note(board.told("oracle", time)),
        claim(
            "fig8-ipm-oracle",
            where_,
            "Itanium: ipm behind oracle",
            "points",
            Says::AtMost {
                figure: 0.5,
                tolerance: 0.5,
            },
            ipm - oracle,
        ),
        board
            .line(
                "fig8-ondes3d",
                where_,
                "time of the stencil (Ondes3D)",
                -30.8,
                board.of(stencil, "ipm", time),
            )
            .proxy("the menagerie's stencil in place of Ondes3D"),
        board
            .line(
                "fig8-ondes3d-oracle",
                where_,
                "the same under oracle",
                -30.5,
                board.of(stencil, "oracle", time),
            )
            .proxy("oracle as for the others; the paper's was written into the program"),
    ];
    let before = |id: &str, what: &str, better: &str, worse: &str| {
        let what = format!("Itanium: {what}, by");
        let margin = board.mean(worse, time) - board.mean(better, time);
        claim(id, where_, what, "points", Says::Ranking, margin).note(&*told)
    };
    let best = RELATED.iter().map(|policy| -board.mean(policy, time));
    claims.extend([
        claim(
            "fig8-best",
            where_,
            "Itanium: ipm saves more time than every other but oracle, by",
            "points",
            Says::Ranking,
            -ipm - largest(best),
        )
        .note(&*told),
        before(
            "fig8-residency-misses",
            "residency saves more time than TLB misses with history",
            "ipm",
            "tlb-miss-history",
        ),
        before(
            "fig8-history",
            "TLB misses with history save more than without",
            "tlb-miss-history",
            "tlb-miss",
        ),
        before(
            "fig8-kmaf",
            "kmaf saves more than NUMA balancing",
            "kmaf",
            "numa-balancing",
        ),
        before("fig8-ipm-kmaf", "ipm saves more than kmaf", "ipm", "kmaf"),
    ]);
    let moved = |policy: &str| {
        let at = board
            .policies
            .iter()
            .position(|name| *name == policy)
            .unwrap_or(0);
        board
            .runs
            .iter()
            .flat_map(|runs| &runs[at])
            .map(|f| f.figures.pages.moved as f64)
            .sum::<f64>()
    };
    claims.push(claim(
        "fig8-migrations",
        where_,
        "Itanium: TLB misses without history move more pages than NUMA balancing, times",
        "",
        Says::AtLeast {
            figure: 1.0,
            tolerance: 0.0,
        },
        moved("tlb-miss") / moved("numa-balancing").max(1.0),
    ));
    Ok(claims)
}

fn xeons(ground: &Ground<'_>) -> Result<Vec<Claim>> {
    let policies = ["random-mapping", "oracle", "ipm"];
    let kernels: Vec<_> = NAS_MANY.iter().collect();
    let small = Board::new(ground, Platform::Xeon32, kernels.clone(), &policies)?;
    let large = Board::new(ground, Platform::Xeon64, kernels, &policies)?;
    let (a, b, c, d) = (
        "6.1.3, Fig 9a",
        "6.1.3, Fig 9b",
        "6.1.3, Fig 9c",
        "6.1.3, Fig 9d",
    );
    let (cg, sp, mg) = (small.kernel("cg"), large.kernel("sp"), large.kernel("mg"));
    let order = |id: &str, where_: &str, what: &str, ours: f64| {
        claim(id, where_, what, "points", Says::Ranking, ours)
    };
    Ok(vec![
        small.line(
            "fig9-xeon32-cg",
            a,
            "time of cg",
            -16.6,
            small.of(cg, "ipm", time),
        ),
        small
            .line(
                "fig9-xeon32-time",
                a,
                "time, mean",
                -5.9,
                small.mean("ipm", time),
            )
            .note(format!(
                "oracle: {:+.1} %; by program: {}",
                small.mean("oracle", time),
                small.told("ipm", time)
            )),
        large.line(
            "fig9-xeon64-sp",
            b,
            "time of sp",
            -35.6,
            large.of(sp, "ipm", time),
        ),
        large
            .line(
                "fig9-xeon64-time",
                b,
                "time, mean",
                -12.9,
                large.mean("ipm", time),
            )
            .note(format!(
                "oracle: {:+.1} %; by program: {}",
                large.mean("oracle", time),
                large.told("ipm", time)
            )),
        large.line(
            "fig9-sp-misses",
            c,
            "misses of the last cache per instruction of sp",
            -59.8,
            large.of(sp, "ipm", misses),
        ),
        large.line(
            "fig9-mg-misses",
            c,
            "the same of mg",
            0.0,
            large.of(mg, "ipm", misses),
        ),
        large.line(
            "fig9-sp-traffic",
            d,
            "traffic between chips of sp",
            -63.4,
            large.of(sp, "ipm", traffic),
        ),
        large
            .line(
                "fig9-traffic",
                d,
                "traffic between chips, mean",
                -39.1,
                large.mean("ipm", traffic),
            )
            .note(large.told("ipm", traffic)),
        order(
            "fig9-four-nodes",
            "6.1.4",
            "more is saved on four nodes than on two, by",
            small.mean("ipm", time) - large.mean("ipm", time),
        ),
        order(
            "fig9-random-xeon32",
            a,
            "Xeon32: ipm saves more time than a random mapping, by",
            small.mean("random-mapping", time) - small.mean("ipm", time),
        ),
        order(
            "fig9-random-xeon64",
            b,
            "Xeon64: ipm saves more time than a random mapping, by",
            large.mean("random-mapping", time) - large.mean("ipm", time),
        ),
        order(
            "fig9-traffic-most",
            "6.1.3",
            "Xeon64: traffic falls more than misses of the last cache, by",
            large.mean("ipm", misses) - large.mean("ipm", traffic),
        ),
        small
            .line(
                "fig10-energy",
                "6.2, Fig 10",
                "energy per instruction, mean",
                -4.4,
                small.mean("ipm", energy),
            )
            .note(small.told("ipm", energy)),
        small.line(
            "fig10-sp",
            "6.2, Fig 10",
            "energy per instruction of sp",
            -12.2,
            small.of(small.kernel("sp"), "ipm", energy),
        ),
        order(
            "fig10-memory",
            "6.2",
            "Xeon32: energy of memory falls more than the processor's, by",
            small.mean("ipm", |f| {
                (f.figures.energy.core_dynamic_j
                    + f.figures.energy.core_static_j
                    + f.figures.energy.link_j)
                    / f.figures.instructions as f64
            }) - small.mean("ipm", |f| {
                f.figures.energy.dram_j / f.figures.instructions as f64
            }),
        ),
    ])
}
