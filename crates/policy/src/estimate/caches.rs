//! What last-level caches there are, and which share of them each thread has.

use numaherd_topology::{CacheKind, Domain, Topology};

use super::threads::{Load, QUIET, Seats};

/// Where a domain's cache is not described: bytes a core.
pub(super) const USUAL_CACHE: f64 = (1 << 20) as f64;

/// Bytes of the last-level cache of each domain.
pub(super) fn llc_bytes(topology: &Topology) -> Vec<f64> {
    let of = |domain: &Domain| {
        let first = domain.cpus.first();
        let caches = topology.caches().iter().filter(|cache| {
            cache.kind != CacheKind::Instruction
                && first.is_some_and(|cpu| cache.cpus.contains(cpu))
        });
        let last = caches.max_by_key(|cache| cache.level);
        last.and_then(|cache| cache.size_bytes)
            .map_or(domain.cores.len() as f64 * USUAL_CACHE, |bytes| {
                bytes as f64
            })
    };
    topology.domains().iter().map(of).collect()
}

/// Gives each thread that uses its last-level cache a share of it: the share under which the equations give the counted
/// lines, or what the thread can fill. Each thread holds what it brought in within a time that is the same for all.
/// With `q` requests and `M` lines from memory per 1000 instructions, it brings in `(q - M) / ln (q / M)` of them on
/// average while it fills its share: `q` at first, `M` at last.
pub(super) fn share_caches(threads: &mut [Load], seats: &Seats, llc: &[f64]) {
    let mut users = vec![Vec::new(); llc.len()];
    for (at, load) in threads.iter().enumerate() {
        let requests = load.requests.unwrap_or(0.0).max(load.lines);
        let goes = requests >= QUIET;
        if let Some((seat, _)) = seats.get(load.cpu).filter(|_| goes) {
            let brings_in = load.wanted * load.speed * filling(requests, load.lines);
            let fills = match load.footprint {
                0.0 => f64::INFINITY,
                footprint => footprint,
            };
            users[seat.domain].push((at, fills, brings_in.max(f64::MIN_POSITIVE)));
        }
    }
    for (mut users, &bytes) in users.into_iter().zip(llc) {
        // Those that can fill less than their share leave the rest to the others.
        users.sort_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)));
        let mut left = bytes;
        let mut all: f64 = users.iter().map(|user| user.2).sum();
        for (at, fills, brings_in) in users {
            let held = fills.min(left * (brings_in / all).min(1.0));
            left -= held;
            all -= brings_in;
            threads[at].held = held;
        }
    }
}

/// The logarithmic mean of two rates.
fn filling(most: f64, least: f64) -> f64 {
    let least = least.max(most * 1e-6);
    match most / least {
        apart if apart > 1.0 + 1e-6 => (most - least) / apart.ln(),
        _ => least,
    }
}
