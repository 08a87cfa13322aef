//! DINO §2.1: a target and three competitors in eight placements of threads and memory (Fig 3), what
//! each costs the target (Fig 4), and how much of that each factor of contention costs (Fig 5).
//!
//! The eight scenarios are the answers to three questions ([`Scenario`]). The paper's text fixes scenarios 0,
//! 3 and 7, and that those with a shared cache are 4 to 7; which of 1 and 2 is which, and which of 5 and 6, is
//! our choice, and no claim depends on it. Competitors run on one node with their memory on one node. The paper
//! does not print which two nodes it used, so each figure is the mean over all ordered pairs. The competitors
//! of a class are the paper's three targets of that class.
//!
//! The split of scenario 7 is the paper's: differences of scenarios that differ in one factor. CA is scenario 4
//! less 0; MC, 5 less 4; RL, 6 less 4, where the target has its link to itself; IC is the rest of 7, where the
//! competitors use the link too. Beside it, a note says where the target's time is spent: CA, lines that it
//! reads because others occupy its cache, at the idle latency of local memory; MC and IC, its lines' waits at
//! controllers and on links; RL, what remote memory costs when idle. The two splits differ where controller and
//! link are both full: lines then wait at the narrower one.

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::statistics::{largest, mean};
use numaherd_model::{Factors, Placed, Speed, alone, steady};
use numaherd_topology::NodeId;

use super::Class;
use crate::reproduce::testbed::Testbed;

/// Three choices (FACTS: DINO Fig 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scenario {
    /// The target runs away from its memory.
    away: bool,
    /// The target runs on the competitors' domain.
    shared_cache: bool,
    /// The target's memory is on the node of the competitors' memory.
    shared_memory: bool,
}

/// Nodes of the target, its memory, the competitors, their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    target: NodeId,
    memory: NodeId,
    competitors: NodeId,
    their_memory: NodeId,
}

impl Scenario {
    const fn number(number: usize) -> Self {
        Self {
            away: number % 4 >= 2,
            shared_cache: number >= 4,
            shared_memory: number % 2 == 1,
        }
    }

    /// With the target on node `a`, everything on `a` and `b`.
    fn places(self, a: NodeId, b: NodeId) -> Places {
        let memory = if self.away { b } else { a };
        let other = if memory == a { b } else { a };
        Places {
            target: a,
            memory,
            competitors: if self.shared_cache { a } else { b },
            their_memory: if self.shared_memory { memory } else { other },
        }
    }
}

/// Where a target's time goes beyond scenario 0, in percent of its time there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Split {
    cache: f64,
    controller: f64,
    link: f64,
    remote: f64,
}

impl Split {
    fn between(base: &Speed, speed: &Speed) -> Self {
        let percent = |ns: f64| ns / base.ns * 100.0;
        let controller = percent(speed.controller_ns - base.controller_ns);
        let link = percent(speed.link_ns - base.link_ns);
        let remote = percent(speed.remote_ns - base.remote_ns);
        Self {
            cache: percent(speed.ns - base.ns) - controller - link - remote,
            controller,
            link,
            remote,
        }
    }

    fn total(&self) -> f64 {
        self.cache + self.controller + self.link + self.remote
    }

    fn mean(all: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| mean(all.iter().map(part));
        Self {
            cache: of(|split| split.cache),
            controller: of(|split| split.controller),
            link: of(|split| split.link),
            remote: of(|split| split.remote),
        }
    }
}

/// One bar of Fig 5: a target in scenario 7 with one kind of competitors.
struct Bar {
    target: &'static str,
    kind: Class,
    /// By differences of scenarios.
    split: Split,
    /// By where the time is spent.
    waits: Split,
}

impl Bar {
    fn of(testbed: &Testbed, target: &'static str, kind: Class) -> Result<Self> {
        let total = |number| Ok::<f64, anyhow::Error>(cost(testbed, target, kind, number)?.total());
        let (fourth, fifth, sixth) = (total(4)?, total(5)?, total(6)?);
        let waits = cost(testbed, target, kind, 7)?;
        Ok(Self {
            target,
            kind,
            split: Split {
                cache: fourth,
                controller: fifth - fourth,
                remote: sixth - fourth,
                link: waits.total() - fifth - sixth + fourth,
            },
            waits,
        })
    }

    /// Cache contention's share of the degradation, in percent.
    fn cache_share(&self) -> f64 {
        self.split.cache / self.split.total() * 100.0
    }
}

/// All nodes, each with each other one.
fn pairs(testbed: &Testbed) -> Vec<(NodeId, NodeId)> {
    let nodes = || {
        testbed
            .hardware
            .topology()
            .nodes()
            .iter()
            .map(|node| node.id)
    };
    let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b)));
    pairs.filter(|(a, b)| a != b).collect()
}

/// What a scenario costs a target with competitors of a class, mean over the pairs of nodes.
fn cost(testbed: &Testbed, target: &str, kind: Class, number: usize) -> Result<Split> {
    let own_phase = testbed.phase(target)?;
    let rivals = kind
        .programs()
        .into_iter()
        .map(|name| testbed.phase(name))
        .collect::<Result<Vec<_>>>()?;
    let split = |(a, b)| {
        let places = Scenario::number(number).places(a, b);
        let own = testbed.cpus(places.target)[0];
        let seats = testbed.cpus(places.competitors).into_iter().skip(1);
        let rivals = rivals.iter().zip(seats).map(|(&phase, cpu)| Placed {
            phase,
            cpu,
            home: places.their_memory,
        });
        let target = Placed {
            phase: own_phase,
            cpu: own,
            home: places.memory,
        };
        let threads: Vec<Placed<'_>> = std::iter::once(target).chain(rivals).collect();
        let speed = steady(&testbed.hardware, &threads, Factors::ALL)[0];
        Split::between(&alone(&testbed.hardware, own_phase, own), &speed)
    };
    let splits: Vec<Split> = pairs(testbed).into_iter().map(split).collect();
    Ok(Split::mean(&splits))
}

pub(super) fn measure(testbed: &Testbed) -> Result<Measured> {
    let mut measured = fourth_figure(testbed)?;
    let targets = Class::ALL
        .into_iter()
        .flat_map(|class| class.programs().map(|target| (class, target)));
    let mut bars = Vec::new();
    let mut turtles = Vec::new();
    for (class, target) in targets {
        for kind in Class::ALL {
            if class == Class::Turtle {
                for number in 1..8 {
                    turtles.push(cost(testbed, target, kind, number)?.total());
                }
            } else if kind != Class::Turtle {
                bars.push(Bar::of(testbed, target, kind)?);
            }
        }
    }
    measured.figure("fig5-turtles", largest(turtles));
    measured.figure(
        "fig5-cache-share",
        largest(bars.iter().map(Bar::cache_share)),
    );
    let shares = bars.iter().map(|bar| {
        let what = format!("{} with {}", bar.target, bar.kind.plural());
        (what, bar.cache_share())
    });
    measured.detail("cache-shares", list(shares, 0));

    let mean_of =
        |split: fn(&Bar) -> Split| Split::mean(&bars.iter().map(split).collect::<Vec<_>>());
    let all = mean_of(|bar| bar.split);
    measured.order("fig5-controller-over-link", [all.controller, all.link]);
    measured.order("fig5-link-over-latency", [all.link, all.remote]);
    let in_order = bars
        .iter()
        .filter(|Bar { split, .. }| split.controller > split.link && split.link > split.remote);
    measured.detail("bars", bars.len());
    measured.detail("bars-in-order", in_order.count());
    let shares = |split: Split| {
        let part = |part: f64| part / all.total() * 100.0;
        let Split {
            cache,
            controller,
            link,
            remote,
        } = split;
        let parts = [
            ("CA", cache),
            ("MC", controller),
            ("IC", link),
            ("RL", remote),
        ];
        let shares = parts.map(|(name, cost)| format!("{name} {:.0} %", part(cost)));
        shares.join(", ")
    };
    measured.detail("factor-shares", shares(all));
    measured.detail("wait-shares", shares(mean_of(|bar| bar.waits)));
    Ok(measured)
}

/// Fig 4: scenario 3 with devils.
fn fourth_figure(testbed: &Testbed) -> Result<Measured> {
    let targets = Class::ALL.into_iter().flat_map(Class::programs);
    let costs = targets
        .map(|target| Ok((target, cost(testbed, target, Class::Devil, 3)?.total())))
        .collect::<Result<Vec<(&str, f64)>>>()?;
    let of_milc = costs.iter().find(|one| one.0 == "milc");
    let of_milc = of_milc.map_or(f64::NAN, |one| one.1);
    let others = largest(costs.iter().filter(|one| one.0 != "milc").map(|one| one.1));
    let mut measured = Measured::new();
    measured.figure("fig4-milc-scenario-3", of_milc);
    measured.figure("fig4-worst-scenario-3", others.max(of_milc));
    measured.order("fig4-milc-is-worst", [of_milc, others]);
    measured.detail("scenario-3", list(costs, 0));

    let milc = testbed.phase("milc")?;
    let solo = alone(
        &testbed.hardware,
        milc,
        testbed.cpus(pairs(testbed)[0].0)[0],
    );
    let base_ns =
        1000.0 * milc.cycles_per_instruction * testbed.hardware.figures.ns_per_reference_cycle;
    measured.detail("milc-computes", format!("{:.0}", base_ns / solo.ns * 100.0));
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::inputs::Inputs;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);

    #[test]
    fn scenarios_are_those_that_the_text_fixes() {
        let third = Scenario::number(3).places(A, B);
        assert_eq!(
            (third.target, third.memory),
            (A, B),
            "alone, its memory remote"
        );
        assert_eq!(
            (third.competitors, third.their_memory),
            (B, B),
            "next to theirs, local to them"
        );
        let seventh = Scenario::number(7).places(A, B);
        assert_eq!((seventh.target, seventh.competitors), (A, A));
        assert_eq!((seventh.memory, seventh.their_memory), (B, B));
        let base = Scenario::number(0).places(A, B);
        assert_eq!((base.target, base.memory), (A, A));
        assert_eq!((base.competitors, base.their_memory), (B, B));
        for number in 0..8 {
            let places = Scenario::number(number).places(A, B);
            assert_eq!(places.target == places.competitors, number >= 4, "{number}");
        }
    }

    #[test]
    fn nothing_contends_in_scenario_0_and_the_split_adds_up() {
        let testbed = Inputs::default().testbed(super::super::MACHINE).unwrap();
        for kind in Class::ALL {
            let base = cost(&testbed, "mcf", kind, 0).unwrap();
            assert!(base.total().abs() < 0.01, "{base:?}");
        }
        let worst = cost(&testbed, "mcf", Class::Devil, 7).unwrap();
        assert!(
            worst.cache > 0.0 && worst.controller > 0.0 && worst.link > 0.0 && worst.remote > 0.0
        );
        let first = cost(&testbed, "mcf", Class::Devil, 4).unwrap();
        assert!(first.controller.abs() < worst.controller && first.remote == 0.0);
    }
}
