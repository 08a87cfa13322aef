//! DINO §2.1: a target and three competitors in eight placements of threads and memory (Fig 3), what
//! each costs the target (Fig 4), and which factor of contention costs how much (Fig 5).
//!
//! The eight are the answers to three questions ([`Scenario`]). The paper's text fixes scenarios 0,
//! 3 and 7 and that those with a shared cache are 4 to 7; which of 1 and 2, and of 5 and 6, is which
//! is chosen here, and no claim depends on it. Competitors run on one node with their memory on one
//! node; which two nodes of the machine were used is not printed, so each figure is the mean over
//! all ordered pairs. Competitors of a class are the paper's three targets of that class.
//!
//! The split of scenario 7 is the paper's: differences of scenarios that differ in one factor. CA, 4
//! less 0; MC, 5 less 4; RL, 6 less 4, where the target has its link to itself; and IC, what is left
//! of 7, where the competitors use it too. Beside it is noted where the target's time goes: CA, lines
//! that it reads because others hold its cache, at the idle latency of local memory; MC and IC, its
//! lines' waits at controllers and on links; RL, what remote memory costs when idle. The two differ
//! where controller and link are both full: lines then wait at the tighter one, whichever that is.

use anyhow::Result;
use numaherd_model::{Factors, Placed, Speed, alone, steady};
use numaherd_topology::NodeId;

use super::{Claim, Class, Ground, at_most, claim, largest, mean, points};
use crate::reproduce::Says;
use crate::reproduce::claim::POINTS;

/// A degradation below this is negligible, in percent: the tolerance of any figure in percent.
const NEGLIGIBLE: f64 = POINTS;

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
    /// By where its time goes.
    waits: Split,
}

impl Bar {
    fn of(ground: &Ground, target: &'static str, kind: Class) -> Result<Self> {
        let total = |number| Ok::<f64, anyhow::Error>(cost(ground, target, kind, number)?.total());
        let (fourth, fifth, sixth) = (total(4)?, total(5)?, total(6)?);
        let waits = cost(ground, target, kind, 7)?;
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
}

/// What a scenario costs a target with competitors of a class, mean over the pairs of nodes.
fn cost(ground: &Ground, target: &str, kind: Class, number: usize) -> Result<Split> {
    let phase = ground.phase(target)?;
    let rivals = kind.programs();
    let rivals = rivals.map(|name| ground.phase(name));
    let mut splits = Vec::new();
    for (a, b) in ground.pairs() {
        let places = Scenario::number(number).places(a, b);
        let own = ground.cpus(places.target)[0];
        let mut threads = vec![Placed {
            phase,
            cpu: own,
            home: places.memory,
        }];
        let seats = ground.cpus(places.competitors).into_iter().skip(1);
        for (rival, cpu) in rivals.iter().zip(seats) {
            threads.push(Placed {
                phase: rival
                    .as_ref()
                    .map_err(|error| anyhow::anyhow!("{error:#}"))?,
                cpu,
                home: places.their_memory,
            });
        }
        let speed = steady(&ground.hardware, &threads, Factors::ALL)[0];
        splits.push(Split::between(&alone(&ground.hardware, phase, own), &speed));
    }
    Ok(Split::mean(&splits))
}

/// The claims of Fig 3 to 5.
pub(super) fn claims(ground: &Ground) -> Result<Vec<Claim>> {
    let targets = || Class::ALL.into_iter().flat_map(Class::programs);
    let mut third = Vec::new();
    for target in targets() {
        third.push((target, cost(ground, target, Class::Devil, 3)?.total()));
    }
    let of = |name: &str| {
        third
            .iter()
            .find(|one| one.0 == name)
            .map_or(f64::NAN, |one| one.1)
    };
    let others = largest(third.iter().filter(|one| one.0 != "milc").map(|one| one.1));
    let worst = largest(third.iter().map(|one| one.1));
    let told: Vec<String> = third
        .iter()
        .map(|(name, cost)| format!("{name} {cost:.0}"))
        .collect();
    let third_note = format!("scenario 3 with devils, %: {}", told.join(", "));

    let milc = ground.phase("milc")?;
    let solo = alone(&ground.hardware, milc, ground.cpus(ground.pairs()[0].0)[0]);
    let base_ns = 1000.0 * milc.cycles_per_instruction * ground.hardware.ns_per_reference_cycle();
    let computes = base_ns / solo.ns * 100.0;

    let mut bars = Vec::new();
    let mut turtles = Vec::new();
    for target in targets() {
        for kind in Class::ALL {
            let target_is_turtle = Class::Turtle.programs().contains(&target);
            if target_is_turtle {
                for number in 1..8 {
                    turtles.push(cost(ground, target, kind, number)?.total());
                }
            } else if kind != Class::Turtle {
                bars.push(Bar::of(ground, target, kind)?);
            }
        }
    }
    let share = |bar: &Bar| bar.split.cache / bar.split.total() * 100.0;
    let told: Vec<String> = bars
        .iter()
        .map(|bar| {
            format!(
                "{} with {} {:.0}",
                bar.target,
                bar.kind.plural(),
                share(bar)
            )
        })
        .collect();
    let splits: Vec<Split> = bars.iter().map(|bar| bar.split).collect();
    let all = Split::mean(&splits);
    let part = |part: f64| part / all.total() * 100.0;
    let kept = bars
        .iter()
        .filter(|Bar { split, .. }| split.controller > split.link && split.link > split.remote);
    let waits: Vec<Split> = bars.iter().map(|bar| bar.waits).collect();
    let waits = Split::mean(&waits);
    let order_note = format!(
        "shares of the mean of {} bars: CA {:.0} %, MC {:.0} %, IC {:.0} %, RL {:.0} %; {} of the bars keep \
         the order. By where the time goes: CA {:.0} %, MC {:.0} %, IC {:.0} %, RL {:.0} %, as the link is \
         the tighter of the two",
        bars.len(),
        part(all.cache),
        part(all.controller),
        part(all.link),
        part(all.remote),
        kept.count(),
        part(waits.cache),
        part(waits.controller),
        part(waits.link),
        part(waits.remote),
    );
    Ok(vec![
        claim(
            "fig4-milc-scenario-3",
            "2.1, Fig 4",
            "milc alone on its node, its memory remote and next to a devil's: degradation",
            "%",
            points(110.0),
            of("milc"),
        )
        .note(format!(
            "{third_note}. By its profile milc computes for {computes:.0} % of its time alone: \
             contention lengthens the rest only"
        )),
        claim(
            "fig4-worst-scenario-3",
            "2.1, Fig 4",
            "degradation without a shared cache but with remote memory next to a devil's: the worst \
             seen of nine targets",
            "%",
            at_most(110.0),
            worst,
        ),
        claim(
            "fig4-milc-is-worst",
            "2.1, Fig 4",
            "of the nine targets milc suffers most in scenario 3",
            "points",
            Says::Ranking,
            of("milc") - others,
        )
        .note("the cause is that of the line on milc"),
        claim(
            "fig5-cache-share",
            "2.1, Fig 5",
            "cache contention's share of the degradation in scenario 7, devils and soft devils: the most",
            "%",
            at_most(20.0),
            largest(bars.iter().map(share)),
        )
        .note(format!(
            "by target and competitors, %: {}. What exceeds it is bzip2, whose lines by its sweep grow \
             steeply below 2 MiB",
            told.join(", ")
        )),
        claim(
            "fig5-controller-over-link",
            "2.2, Fig 5",
            "contention for controllers costs more than that for links (MC > IC)",
            "points",
            Says::Ranking,
            all.controller - all.link,
        )
        .note(order_note),
        claim(
            "fig5-link-over-latency",
            "2.2, Fig 5",
            "contention for links costs more than remote latency (IC > RL)",
            "points",
            Says::Ranking,
            all.link - all.remote,
        ),
        claim(
            "fig5-turtles",
            "2.1, Fig 5",
            "degradation of turtles in any scenario with any competitors: negligible",
            "%",
            at_most(NEGLIGIBLE),
            largest(turtles),
        )
        .note("negligible: less than the tolerance of any other figure"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let ground = Ground::new().unwrap();
        for kind in Class::ALL {
            let base = cost(&ground, "mcf", kind, 0).unwrap();
            assert!(base.total().abs() < 0.01, "{base:?}");
        }
        let worst = cost(&ground, "mcf", Class::Devil, 7).unwrap();
        assert!(
            worst.cache > 0.0 && worst.controller > 0.0 && worst.link > 0.0 && worst.remote > 0.0
        );
        let first = cost(&ground, "mcf", Class::Devil, 4).unwrap();
        assert!(first.controller.abs() < worst.controller && first.remote == 0.0);
    }
}
