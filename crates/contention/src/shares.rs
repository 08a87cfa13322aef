//! Cache shares: how much of a shared cache each of its users holds.
//!
//! Footprint theory (Xiang, Ding, Luo, Bao: HOTL, ASPLOS 2013): in a least-recently-used cache that
//! is full, every line that was touched within the last `W` ns is there and no other, for one `W`
//! that is the same for all. In a window of `W` a thread touches as many bytes as it would fill
//! in that time starting empty ([`Curve::held_after`]), so `W` is where the sum of these is the
//! size of the cache. Bytes in a core's own caches come on top and take no room.

use crate::Curve;

/// One user of a shared cache.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// Lines against cache held.
    pub curve: &'a Curve,
    /// Instructions per ns.
    pub rate: f64,
    /// Bytes of its core's own caches that it may count on beside the shared one.
    pub private_bytes: f64,
    /// How many there are that are alike.
    pub alike: f64,
}

/// Bytes that each user holds, its core's own caches included. `window_ns` is where to start from
/// (any positive number) and becomes the window that was found. `precision` is the share of the cache that may be left
/// over or be too much.
pub fn shares(
    users: &[User<'_>],
    cache_bytes: f64,
    precision: f64,
    window_ns: &mut f64,
    held: &mut Vec<f64>,
) {
    let is_alone = users.len() == 1 && users[0].alike <= 1.0;
    // In a window without end, a user that runs touches all it has.
    let all = |user: &User<'_>| {
        if user.rate > 0.0 {
            user.curve.most()
        } else {
            0.0
        }
    };
    if fill(users, cache_bytes, held, all) <= cache_bytes || is_alone {
        return;
    }
    // The sum grows with the window: bracket, in steps that grow too, as the last window is mostly
    // near; then false position in the logarithm, with Illinois's remedy for an end that stays.
    let spare = |window_ns: f64, held: &mut Vec<f64>| {
        let after = |user: &User<'_>| user.curve.held_after(window_ns * user.rate);
        cache_bytes - fill(users, cache_bytes, held, after)
    };
    let mut at = window_ns.clamp(1e-3, 1e30);
    let mut found = spare(at, held);
    let (mut low, mut high) = ((at, found), (at, found));
    let mut step: f64 = 1.02;
    while found != 0.0 && (low.1 > 0.0) == (high.1 > 0.0) {
        at = if found > 0.0 { at * step } else { at / step };
        step = (step * step).min(16.0);
        found = spare(at, held);
        (low, high) = if at > high.0 {
            (high, (at, found))
        } else {
            ((at, found), low)
        };
    }
    let mut stayed = 0;
    for _ in 0..60 {
        if found.abs() < cache_bytes * precision {
            break;
        }
        let part = low.1 / (low.1 - high.1);
        at = low.0 * (high.0 / low.0).powf(part);
        found = spare(at, held);
        if found > 0.0 {
            low = (at, found);
            if stayed == 1 {
                high.1 /= 2.0;
            }
            stayed = 1;
        } else {
            high = (at, found);
            if stayed == -1 {
                low.1 /= 2.0;
            }
            stayed = -1;
        }
    }
    *window_ns = at;
}

/// What all users take of the shared cache where each touches so many bytes; and what each then holds.
fn fill(
    users: &[User<'_>],
    cache_bytes: f64,
    held: &mut Vec<f64>,
    touched: impl Fn(&User<'_>) -> f64,
) -> f64 {
    held.clear();
    held.extend((users.iter()).map(|user| touched(user).min(cache_bytes + user.private_bytes)));
    let shared = held.iter().zip(users);
    shared
        .map(|(bytes, user)| (bytes - user.private_bytes).max(0.0) * user.alike)
        .sum()
}
