//! Loaded latency: how much longer a line takes through a channel that others use too.
//!
//! A channel is a memory controller or one direction of a link. With a share `u` of its capacity in
//! use, a line that takes `L0` when idle takes `L0 * (1 + 0.40 u + 0.04 u^3 / (1 - u))`: a fit to
//! measured loaded-latency curves of six machines, rms 0.05 (FACTS 7.2). The wait is what is added.
//! That latency levels off on real machines, at 3 to 4.4 times idle, follows from the lines that
//! cores can have in flight (Little's law) and is not built in here.

/// The wait at a share `u` of the capacity, 0 to below 1, in parts of the idle latency.
pub fn wait(u: f64) -> f64 {
    0.40 * u + 0.04 * u * u * u / (1.0 - u)
}

/// How fast [`wait`] grows with `u`.
fn slope(u: f64) -> f64 {
    let free = 1.0 - u;
    0.40 + 0.04 * u * u * (3.0 * free + u) / (free * free)
}

/// The share of the capacity in use that makes one wait so long, and how fast it grows with the
/// wait: the inverse of [`wait`]. Newton's method, safe because the wait is convex in the share.
pub fn in_use(wait_parts: f64) -> (f64, f64) {
    if wait_parts <= 0.0 {
        return (0.0, 1.0 / slope(0.0));
    }
    // Both terms alone overestimate the share, so the start is to the right of the root, from where
    // Newton's method on a convex function comes down without overshooting.
    let mut u = (wait_parts / 0.40).min(1.0 - 1.0 / (2.0 + wait_parts / 0.04));
    if u >= 1.0 {
        u = 1.0 - f64::EPSILON;
    }
    for _ in 0..60 {
        let step = (wait(u) - wait_parts) / slope(u);
        u = (u - step).clamp(0.0, 1.0 - 1e-12);
        // Each step leaves an error of its own square.
        if step.abs() < 1e-7 * (1.0 - u) {
            break;
        }
    }
    (u, 1.0 / slope(u))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_curve_is_the_one_of_the_fit() {
        assert_eq!(wait(0.0), 0.0);
        assert!((wait(0.5) - 0.21).abs() < 1e-12);
        assert!((wait(0.95) - (0.38 + 0.04 * 0.857_375 / 0.05)).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_inverse_is_the_inverse(u in 0.0..0.999f64) {
            let (back, growth) = in_use(wait(u));
            prop_assert!((back - u).abs() < 1e-6, "{u} came back as {back}");
            let (near, _) = in_use(wait(u) + 1e-7);
            prop_assert!(near >= back - 1e-9 && growth > 0.0);
        }

        #[test]
        fn no_wait_uses_more_than_there_is(wait_parts in 0.0..1e6f64) {
            let (u, _) = in_use(wait_parts);
            prop_assert!((0.0..1.0).contains(&u));
        }
    }
}
