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
/// Every so many windows, the middle of the bounds is tried.
const BISECTED: usize = 8;
/// By this factor a window grows or shrinks while it has no bound and Newton's step is of no use.
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
    /// Bytes that it holds, its core's own caches included: found by [`shares`].
    pub held: f64,
    /// Where its curve's table was read last.
    row: Option<usize>,
}

impl<'a> User<'a> {
    /// A user whose share is not known yet.
    pub fn new(curve: &'a Curve, rate: f64, private_bytes: f64, alike: f64) -> Self {
        Self {
            curve,
            rate,
            private_bytes,
            alike,
            held: 0.0,
            row: None,
        }
    }

    /// All that it ever holds: in a window without end, a user that runs touches all it has.
    fn most(&self) -> f64 {
        if self.rate > 0.0 {
            self.curve.most()
        } else {
            0.0
        }
    }
}

/// Finds what each user holds. `window_ns` is where to start from (any positive number) and becomes the window that was
/// found. `precision` is the share of the cache that may be left over or be too much.
pub fn shares(users: &mut [User<'_>], cache_bytes: f64, precision: f64, window_ns: &mut f64) {
    let is_alone = users.len() == 1 && users[0].alike <= 1.0;
    if fill(users, cache_bytes, |user| user.most()) <= cache_bytes || is_alone {
        return;
    }
    // The sum grows with the window, along the straight lines of the curves' tables: Newton's method, within the bounds
    // known so far.
    let mut at = window_ns.clamp(1e-3, 1e30);
    let (mut low, mut high) = (0.0, f64::INFINITY);
    for round in 1..MOST_ROUNDS {
        let mut growth = 0.0;
        let taken = fill(users, cache_bytes, |user| {
            let (bytes, each) = user.curve.filling(at * user.rate, &mut user.row);
            let is_bounded =
                bytes <= user.private_bytes || bytes >= cache_bytes + user.private_bytes;
            if !is_bounded {
                growth += each * user.rate * user.alike;
            }
            bytes
        });
        let spare = cache_bytes - taken;
        if spare.abs() < cache_bytes * precision {
            break;
        }
        *(if spare > 0.0 { &mut low } else { &mut high }) = at;
        let next = at + spare / growth;
        // Where lines bend, Newton's method may come nearer from one side only.
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

/// What all users take of the shared cache if each touches so many bytes and holds what fits.
fn fill<'a>(
    users: &mut [User<'a>],
    cache_bytes: f64,
    mut touched: impl FnMut(&mut User<'a>) -> f64,
) -> f64 {
    let mut taken = 0.0;
    for user in users {
        user.held = touched(user).min(cache_bytes + user.private_bytes);
        taken += (user.held - user.private_bytes).max(0.0) * user.alike;
    }
    taken
}
