//! Cache shares: how much of a shared cache each of its users holds.
//!
//! Footprint theory (Xiang, Ding, Luo, Bao: HOTL, ASPLOS 2013): in a least-recently-used cache that
//! is full, every line that was touched within the last `W` ns is there and no other, for one `W`
//! that is the same for all. In a window of `W` a thread touches as many bytes as it would fill
//! in that time starting empty ([`Curve::held_after`]), so `W` is where the sum of these is the
//! size of the cache. Bytes in a core's own caches come on top and take no room.

use crate::Curve;

/// Windows that are tried; a few are enough.
const MOST_ROUNDS: usize = 100;
/// Each so many windows, the middle of the bounds is tried.
const BISECTED: usize = 8;
/// How many times as long or short a window is tried where it has no bound yet and nothing grows with it.
const STEP: f64 = 16.0;

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
    // The sum grows with the window, along the straight lines of the curves' tables: Newton's method, within the bounds that are
    // known by then.
    let mut rows = vec![None; users.len()];
    let mut at = window_ns.clamp(1e-3, 1e30);
    let (mut low, mut high) = (0.0, f64::INFINITY);
    for round in 1..MOST_ROUNDS {
        let mut growth = 0.0;
        let mut row = rows.iter_mut();
        let taken = fill(users, cache_bytes, held, |user| {
            let row = row.next().expect("one for each user");
            let (bytes, each) = user.curve.filling(at * user.rate, row);
            let is_bounded =
                bytes <= user.private_bytes || bytes >= cache_bytes + user.private_bytes;
            growth += if is_bounded {
                0.0
            } else {
                each * user.rate * user.alike
            };
            bytes
        });
        let spare = cache_bytes - taken;
        if spare.abs() < cache_bytes * precision {
            break;
        }
        *(if spare > 0.0 { &mut low } else { &mut high }) = at;
        let next = at + spare / growth;
        // Where lines bend, it may come nearer from one side alone.
        let is_near = low < next && next < high && round % BISECTED != 0;
        at = match (low, high) {
            _ if is_near => next,
            (_, f64::INFINITY) => at * STEP,
            (0.0, _) => at / STEP,
            _ => (low * high).sqrt(),
        };
    }
    *window_ns = at;
}

/// What all users take of the shared cache where each touches so many bytes; and what each then holds.
fn fill(
    users: &[User<'_>],
    cache_bytes: f64,
    held: &mut Vec<f64>,
    mut touched: impl FnMut(&User<'_>) -> f64,
) -> f64 {
    held.clear();
    held.extend((users.iter()).map(|user| touched(user).min(cache_bytes + user.private_bytes)));
    let shared = held.iter().zip(users);
    shared
        .map(|(bytes, user)| (bytes - user.private_bytes).max(0.0) * user.alike)
        .sum()
}
