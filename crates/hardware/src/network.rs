//! Memory controllers, and the links between nodes with the way that lines take over them.
//!
//! A line that is read comes from its node's controller and crosses every link direction on the
//! way to the reader; a line written back goes the other way. Requests and answers without data
//! are not charged. Ways are shortest by number of links; among equals, the one through the
//! lowest-numbered node next to the receiver.

use crate::bandwidth::Channel;
use crate::config::{Config, ConfigError, picoseconds, picoseconds_per_line};

pub(crate) struct Network {
    nodes: usize,
    latency_ps: Vec<u64>,
    controllers: Vec<Channel>,
    links: Vec<Channel>,
    /// Links on the way from a node to a node, in order.
    ways: Vec<Vec<usize>>,
}

impl Network {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let window_ps = picoseconds(config.bandwidth_window_ns);
        let channel = |gb_per_s: f64| {
            Channel::new(picoseconds_per_line(config.line_bytes, gb_per_s), window_ps)
        };
        Ok(Self {
            nodes: config.nodes(),
            latency_ps: config
                .latency_ns
                .iter()
                .flatten()
                .map(|&ns| picoseconds(ns))
                .collect(),
            controllers: config
                .controller_gb_per_s
                .iter()
                .map(|&b| channel(b))
                .collect(),
            links: config
                .links
                .iter()
                .map(|link| channel(link.gb_per_s))
                .collect(),
            ways: find_ways(config)?,
        })
    }

    /// Reads a line of `home`'s memory for a core on `reader`; returns the time until it is there.
    #[inline]
    pub(crate) fn read(&self, reader: usize, home: usize, time_ps: u64) -> u64 {
        let wait = self.controllers[home].wait(time_ps);
        self.latency_ps[reader * self.nodes + home] + self.cross(home, reader, time_ps, wait)
    }

    /// Takes a line out of a cache on node `owner` for a core on `reader`.
    pub(crate) fn transfer(&self, reader: usize, owner: usize, time_ps: u64) -> u64 {
        self.latency_ps[reader * self.nodes + owner] + self.cross(owner, reader, time_ps, 0)
    }

    /// Writes a line back to `home` from a cache on `writer`. Nobody waits for it, but others may
    /// have to wait behind it.
    pub(crate) fn write_back(&self, writer: usize, home: usize, time_ps: u64) {
        let wait = self.cross(writer, home, time_ps, 0);
        self.controllers[home].wait(time_ps + wait);
    }

    /// Time to ask `home` and hear back, without data.
    pub(crate) fn ask(&self, asker: usize, home: usize) -> u64 {
        self.latency_ps[asker * self.nodes + home]
    }

    #[inline]
    fn cross(&self, from: usize, to: usize, time_ps: u64, mut wait: u64) -> u64 {
        for &link in &self.ways[from * self.nodes + to] {
            wait += self.links[link].wait(time_ps + wait);
        }
        wait
    }
}

/// Links on the way between all pairs of nodes, by breadth-first search towards each receiver.
fn find_ways(config: &Config) -> Result<Vec<Vec<usize>>, ConfigError> {
    let nodes = config.nodes();
    let mut ways = vec![Vec::new(); nodes * nodes];
    if config.links.is_empty() {
        return Ok(ways);
    }
    let mut by_sender: Vec<usize> = (0..config.links.len()).collect();
    by_sender.sort_by_key(|&link| config.links[link].from);
    for to in 0..nodes {
        let mut known = vec![false; nodes];
        known[to] = true;
        let mut frontier = vec![to];
        while !frontier.is_empty() {
            let mut next = Vec::new();
            for &node in &frontier {
                for &link in &by_sender {
                    let from = config.links[link].from;
                    if config.links[link].to == node && !known[from] {
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
            return Err(ConfigError::NoRoute { from, to });
        }
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Link;

    fn ring(nodes: usize) -> Config {
        let mut config = Config::of_equal_nodes(1, vec![vec![100.0; nodes]; nodes], 64.0);
        for from in 0..nodes {
            for to in [(from + 1) % nodes, (from + nodes - 1) % nodes] {
                config.links.push(Link {
                    from,
                    to,
                    gb_per_s: 6.4,
                });
            }
        }
        config
    }

    #[test]
    fn ways_are_shortest() {
        let config = ring(6);
        let ways = find_ways(&config).unwrap();
        for from in 0..6usize {
            for to in 0..6usize {
                let apart = from.abs_diff(to);
                let way = &ways[from * 6 + to];
                assert_eq!(way.len(), apart.min(6 - apart));
                let mut at = from;
                for &link in way {
                    assert_eq!(config.links[link].from, at);
                    at = config.links[link].to;
                }
                assert_eq!(at, to);
            }
        }
    }

    #[test]
    fn nodes_that_are_not_joined_are_named() {
        let mut config = ring(4);
        config.links.retain(|link| link.from != 2);
        assert_eq!(
            find_ways(&config),
            Err(ConfigError::NoRoute { from: 2, to: 0 })
        );
    }

    #[test]
    fn each_direction_of_a_link_has_its_own_bandwidth() {
        // 64 bytes at 6.4 GB/s are 10 ns, far slower than the controllers at 1 ns.
        let network = Network::new(&ring(4)).unwrap();
        assert_eq!(network.read(0, 1, 0), 100_000);
        assert_eq!(
            network.read(0, 1, 0),
            110_000,
            "second line from node 1 to node 0"
        );
        assert_eq!(
            network.read(1, 0, 0),
            100_000,
            "the other direction is free"
        );
        network.write_back(0, 1, 0);
        assert_eq!(
            network.read(1, 0, 0),
            120_000,
            "the write-back went from node 0 to node 1 too"
        );
    }
}
