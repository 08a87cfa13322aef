//! Memory controllers, the links between nodes, and the routes of lines over them.
//!
//! A line that is read passes its node's controller and every link on the way to the reader, in
//! that direction; a line written back goes the other way. Messages without data are not charged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use numaherd_topology::{NoWay, ways};

use crate::HardwareError;
use crate::bandwidth::Channel;
use crate::config::{Config, picoseconds, picoseconds_per_line};
use crate::host::Apart;

pub(crate) struct Network {
    nodes: usize,
    latency_ps: Vec<u64>,
    controllers: Vec<Channel>,
    links: Vec<Channel>,
    /// Links on the way from one node to another, in order. Index `from * nodes + to`.
    ways: Vec<Vec<usize>>,
    /// Lines carried so far from one node to another, likewise.
    carried: Vec<Apart<AtomicU64>>,
}

impl Network {
    pub(crate) fn new(config: &Config) -> Result<Self, HardwareError> {
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
            ways: ways(config.nodes(), &config.links)
                .map_err(|NoWay { from, to }| HardwareError::NoRoute { from, to })?,
            carried: (0..config.nodes() * config.nodes())
                .map(|_| Apart::default())
                .collect(),
        })
    }

    /// Reads a line of `home`'s memory for a core on `reader`; returns the time until it arrives, in picoseconds.
    #[inline]
    pub(crate) fn read(&self, reader: usize, home: usize, time_ps: u64) -> u64 {
        let wait = self.controllers[home].wait(time_ps);
        self.latency_ps[reader * self.nodes + home] + self.cross(home, reader, time_ps, wait)
    }

    /// Takes a line from a cache on node `owner` for a core on `reader`; returns the time until it arrives.
    pub(crate) fn transfer(&self, reader: usize, owner: usize, time_ps: u64) -> u64 {
        self.latency_ps[reader * self.nodes + owner] + self.cross(owner, reader, time_ps, 0)
    }

    /// Writes a line back to `home` from a cache on `writer`. No core waits for it, but later
    /// requests may queue behind it.
    pub(crate) fn write_back(&self, writer: usize, home: usize, time_ps: u64) {
        let wait = self.cross(writer, home, time_ps, 0);
        self.controllers[home].wait(time_ps + wait);
    }

    /// Time to ask `home` and hear back, without data.
    pub(crate) fn ask(&self, asker: usize, home: usize) -> u64 {
        self.latency_ps[asker * self.nodes + home]
    }

    /// Lines carried so far: entry `from * nodes + to`.
    pub(crate) fn carried(&self) -> Vec<u64> {
        self.carried
            .iter()
            .map(|lines| lines.0.load(Relaxed))
            .collect()
    }

    #[inline]
    fn cross(&self, from: usize, to: usize, time_ps: u64, mut wait: u64) -> u64 {
        self.carried[from * self.nodes + to].0.fetch_add(1, Relaxed);
        for &link in &self.ways[from * self.nodes + to] {
            wait += self.links[link].wait(time_ps + wait);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_topology::Link;

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
        let carried = network.carried();
        assert_eq!((carried[4], carried[1], carried[0]), (2, 3, 0));
    }
}
