//! The homes that parts of memory can have: each stays, or is spread over nodes by weights.
//!
//! Weights count equal parts: as many as the least multiple of the number of nodes that is [`FINEST`] or more.
//! With two nodes these are quarters, with three sixths, with eight eighths. So memory can be spread evenly,
//! or be all on one node.

use numaherd_topology::NodeId;

use crate::cost_model::Home;
use crate::placement::oracle::search::is_lower;

/// Memory is dealt in this many parts at least; chosen here.
const FINEST: usize = 4;

/// The homes of some parts.
#[derive(Clone, Debug)]
pub struct Homes {
    /// The nodes that each part may be on.
    nodes: Vec<Vec<NodeId>>,
}

impl Homes {
    /// Homes of parts that may each be on these nodes.
    pub fn new(nodes: Vec<Vec<NodeId>>) -> Self {
        Self { nodes }
    }

    /// How many combinations there are, staying included; `None` for more than `most`.
    pub fn count_up_to(&self, most: usize) -> Option<usize> {
        let mut count: usize = 1;
        for nodes in &self.nodes {
            // Ways to deal `steps` among `nodes`: (steps + nodes - 1) over (nodes - 1).
            let steps = steps(nodes.len());
            let mut ways: usize = 1;
            for at in 1..nodes.len() {
                ways = ways.checked_mul(steps + at)? / at;
            }
            let ways = if nodes.is_empty() { 0 } else { ways };
            count = count.checked_mul(ways + 1)?;
            if count > most {
                return None;
            }
        }
        Some(count)
    }

    /// Visits all combinations, beginning with that in which all parts stay.
    pub fn walk(&self, mut visit: impl FnMut(&[Home])) {
        let choices: Vec<Vec<Home>> = self.nodes.iter().map(|nodes| choices(nodes)).collect();
        let mut at = vec![0; choices.len()];
        loop {
            let homes: Vec<Home> = (at.iter().zip(&choices))
                .map(|(&at, choices)| choices[at].clone())
                .collect();
            visit(&homes);
            let next = (0..at.len())
                .rev()
                .find(|&part| at[part] + 1 < choices[part].len());
            let Some(next) = next else {
                return;
            };
            at[next] += 1;
            at[next + 1..].fill(0);
        }
    }

    /// Every part spread evenly over its nodes.
    pub fn even(&self) -> Vec<Home> {
        let even = |nodes: &Vec<NodeId>| {
            let weight = (steps(nodes.len()) / nodes.len().max(1)) as u32;
            (!nodes.is_empty()).then(|| nodes.iter().map(|&node| (node, weight)).collect())
        };
        self.nodes.iter().map(even).collect()
    }

    /// Improves homes part by part while that lowers the cost.
    pub fn descend(
        &self,
        homes: &mut [Home],
        cost: &mut f64,
        mut of: impl FnMut(&[Home]) -> Option<f64>,
    ) {
        loop {
            let mut improved = false;
            for part in 0..homes.len() {
                for other in self.near(part, &homes[part]) {
                    let before = std::mem::replace(&mut homes[part], other);
                    match of(homes).filter(|&lower| is_lower(lower, *cost)) {
                        Some(lower) => {
                            *cost = lower;
                            improved = true;
                        }
                        None => homes[part] = before,
                    }
                }
            }
            if !improved {
                return;
            }
        }
    }

    /// What a part's home can become in one change: as it is now, all on one node, evenly on all, or a step of
    /// weight from one node to another.
    fn near(&self, part: usize, home: &Home) -> Vec<Home> {
        let nodes = &self.nodes[part];
        let mut near = vec![None];
        near.extend(
            nodes
                .iter()
                .map(|&node| Some(vec![(node, steps(nodes.len()) as u32)])),
        );
        near.push(self.even().swap_remove(part));
        let weights = self.in_steps(part, home);
        for from in 0..nodes.len() {
            for to in (0..nodes.len()).filter(|&to| to != from && weights[from] > 0) {
                let mut shifted = weights.clone();
                shifted[from] -= 1;
                shifted[to] += 1;
                near.push(home_of(nodes, &shifted));
            }
        }
        near
    }

    /// A home's weights by node in whole steps, rounded down; 0 everywhere for a part that stays.
    fn in_steps(&self, part: usize, home: &Home) -> Vec<usize> {
        let nodes = &self.nodes[part];
        let mut weights = vec![0; nodes.len()];
        let all: u32 = home.iter().flatten().map(|&(_, weight)| weight).sum();
        for &(node, weight) in home.iter().flatten() {
            if let Some(at) = nodes.iter().position(|&known| known == node) {
                weights[at] = steps(nodes.len()) * weight as usize / all.max(1) as usize;
            }
        }
        weights
    }
}

/// Into how many parts memory is divided among so many nodes.
fn steps(nodes: usize) -> usize {
    FINEST.next_multiple_of(nodes.max(1))
}

fn home_of(nodes: &[NodeId], weights: &[usize]) -> Home {
    let home = nodes.iter().zip(weights);
    let home = home.filter(|&(_, &weight)| weight > 0);
    Some(home.map(|(&node, &weight)| (node, weight as u32)).collect())
}

/// All homes of one part.
fn choices(nodes: &[NodeId]) -> Vec<Home> {
    let mut choices = vec![None];
    let mut weights = vec![0; nodes.len()];
    if !nodes.is_empty() {
        deal(nodes, 0, steps(nodes.len()), &mut weights, &mut choices);
    }
    choices
}

fn deal(
    nodes: &[NodeId],
    at: usize,
    left: usize,
    weights: &mut Vec<usize>,
    choices: &mut Vec<Home>,
) {
    if at + 1 == nodes.len() {
        weights[at] = left;
        choices.push(home_of(nodes, weights));
        return;
    }
    for here in (0..=left).rev() {
        weights[at] = here;
        deal(nodes, at + 1, left - here, weights, choices);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_homes_as_counted_and_each_once() {
        for nodes in 1..5 {
            let nodes: Vec<NodeId> = (0..nodes).map(NodeId).collect();
            let homes = Homes::new(vec![nodes.clone(), nodes]);
            let mut seen = Vec::new();
            homes.walk(|homes| seen.push(homes.to_vec()));
            assert_eq!(homes.count_up_to(100_000), Some(seen.len()));
            assert_eq!(homes.count_up_to(seen.len() - 1), None);
            assert!(seen.contains(&homes.even()));
            assert_eq!(seen[0], [None, None]);
            seen.sort();
            seen.dedup();
            assert_eq!(homes.count_up_to(100_000), Some(seen.len()));
        }
    }

    #[test]
    fn a_part_that_may_be_nowhere_stays() {
        let homes = Homes::new(vec![Vec::new()]);
        let mut seen = Vec::new();
        homes.walk(|homes| seen.push(homes.to_vec()));
        assert_eq!(seen, [[None]]);
        assert_eq!(homes.even(), [None]);
        assert_eq!(homes.count_up_to(1), Some(1));
    }

    #[test]
    fn weights_are_found_step_by_step() {
        let homes = Homes::new(vec![(0..4).map(NodeId).collect()]);
        // The more evenly the better, and nothing on node 3.
        let cost = |homes: &[Home]| {
            let home = homes[0].as_ref()?;
            let worst = home
                .iter()
                .map(|&(_, weight)| f64::from(weight * weight))
                .sum::<f64>();
            let third = home.iter().find(|&&(node, _)| node == NodeId(3));
            Some(worst + third.map_or(0.0, |&(_, weight)| 100.0 * f64::from(weight)))
        };
        let mut found = homes.even();
        let mut least = cost(&found).unwrap();
        homes.descend(&mut found, &mut least, cost);
        assert_eq!(least, 6.0);
    }
}
