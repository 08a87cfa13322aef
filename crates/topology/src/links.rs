//! The links between nodes, and the routes of lines over them.
//!
//! A machine file gives bandwidths, but not the pairs of nodes that are linked. Two nodes have a direct link unless a
//! third is clearly nearer to both of them than they are to each other; otherwise, lines pass through such nodes. Links
//! have two directions: the latency is the mean of both.
//!
//! A route has the fewest links; of equal routes, it is the one through the lowest-numbered node
//! next to the receiver.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Relative difference between measured latencies of equal routes.
const EQUAL_WAYS: f64 = 0.02;

/// One direction of a link. Nodes are places in [`crate::Topology::nodes`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Node that sends.
    pub from: usize,
    /// Node that receives.
    pub to: usize,
    /// Bandwidth in this direction in GB/s (10^9 bytes per second).
    pub gb_per_s: f64,
}

/// Two nodes without a route between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no links lead from node {from} to node {to}")]
pub struct NoWay {
    /// Node that would send.
    pub from: usize,
    /// Node that would receive.
    pub to: usize,
}

impl Machine {
    /// The links, one entry for each direction. Empty if the file does not give their bandwidth, or
    /// the latencies from which they are derived.
    pub fn links(&self) -> Vec<Link> {
        let Some(latency_ns) = &self.memory.latency_ns else {
            return Vec::new();
        };
        let matrix = self.memory.link_matrix_gb_per_s.as_ref();
        let bandwidth = |from: usize, to: usize| {
            matrix
                .map(|rows| rows[from][to])
                .or(self.memory.link_gb_per_s)
        };
        let nodes = latency_ns.len();
        // Links have two directions, and figures of equal routes differ by a percent.
        let mean = |a: usize, b: usize| (latency_ns[a][b] + latency_ns[b][a]) / 2.0;
        let joined = |from: usize, to: usize| {
            let apart = mean(from, to) * (1.0 - EQUAL_WAYS);
            let nearer = |between: usize| {
                between != from
                    && between != to
                    && mean(from, between) < apart
                    && mean(between, to) < apart
            };
            from != to && !(0..nodes).any(nearer)
        };
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        pairs
            .filter(|&(from, to)| joined(from, to))
            .filter_map(|(from, to)| {
                let gb_per_s = bandwidth(from, to)?;
                Some(Link { from, to, gb_per_s })
            })
            .collect()
    }
}

/// Indices in `links` of the links on the route from each node to each, in order: entry `from * nodes + to`. All routes
/// are empty if there are no links at all. Breadth-first search from each receiver.
///
/// # Errors
/// The first two nodes without a route, if there are links.
pub fn ways(nodes: usize, links: &[Link]) -> Result<Vec<Vec<usize>>, NoWay> {
    let mut ways = vec![Vec::new(); nodes * nodes];
    if links.is_empty() {
        return Ok(ways);
    }
    let mut to_node: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (at, link) in links.iter().enumerate() {
        to_node[link.to].push(at);
    }
    for incoming in &mut to_node {
        incoming.sort_by_key(|&link| links[link].from);
    }
    for to in 0..nodes {
        let mut known = vec![false; nodes];
        known[to] = true;
        let mut frontier = vec![to];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for &node in &frontier {
                for &link in &to_node[node] {
                    let from = links[link].from;
                    if !known[from] {
                        known[from] = true;
                        let mut way = vec![link];
                        way.extend_from_slice(&ways[node * nodes + to]);
                        ways[from * nodes + to] = way;
                        next.push(from);
                    }
                }
            }
            next.sort_unstable();
            frontier = next;
        }
        if let Some(from) = known.iter().position(|known| !known) {
            return Err(NoWay { from, to });
        }
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(nodes: usize) -> Vec<Link> {
        let next = |from: usize| [(from + 1) % nodes, (from + nodes - 1) % nodes];
        (0..nodes)
            .flat_map(|from| {
                next(from).map(|to| Link {
                    from,
                    to,
                    gb_per_s: 6.4,
                })
            })
            .collect()
    }

    #[test]
    fn ways_are_shortest() {
        let links = ring(6);
        let ways = ways(6, &links).unwrap();
        for from in 0..6usize {
            for to in 0..6usize {
                let apart = from.abs_diff(to);
                let way = &ways[from * 6 + to];
                assert_eq!(way.len(), apart.min(6 - apart));
                let mut at = from;
                for &link in way {
                    assert_eq!(links[link].from, at);
                    at = links[link].to;
                }
                assert_eq!(at, to);
            }
        }
    }

    #[test]
    fn nodes_that_are_not_joined_are_named() {
        let mut links = ring(4);
        links.retain(|link| link.from != 2);
        assert_eq!(ways(4, &links), Err(NoWay { from: 2, to: 0 }));
    }

    #[test]
    fn the_square_has_links_along_its_sides_and_none_across() {
        let links = Machine::preset("lab-4x2").unwrap().links();
        let joined: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
        let sides = [
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 3),
            (2, 0),
            (2, 3),
            (3, 1),
            (3, 2),
        ];
        assert_eq!(joined, sides);
    }

    #[test]
    fn a_measured_matrix_gives_links_of_two_directions() {
        let links = Machine::preset("opteron-8356-4s").unwrap().links();
        let joined: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
        // Chips 0 and 3 give a link to devices and have none to each other.
        let all = [
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 2),
            (1, 3),
            (2, 0),
            (2, 1),
            (2, 3),
            (3, 1),
            (3, 2),
        ];
        assert_eq!(joined, all);
    }

    #[test]
    fn the_cube_has_four_links_a_node() {
        let links = Machine::preset("lab-16x2").unwrap().links();
        assert_eq!(links.len(), 16 * 4);
        assert!(
            links
                .iter()
                .all(|link| (link.from ^ link.to).is_power_of_two())
        );
    }
}
