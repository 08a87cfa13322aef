//! Policies that are one file each and named nowhere else.
//!
//! A file in `src/added/`, or in the folder that `NUMAHERD_POLICIES` names when the program is built,
//! is a module of this crate (`build.rs`), and what its `pub const ADDED` lists is in the registry
//! beside all others: in `numaherd policies`, in every world, in every comparison. What to put in it
//! is told in docs/researchers.md.

use crate::registry::{Entry, Half, MakePaging, MakePlacement};

/// What one file adds.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// Policies: halves joined under names of their own. The halves may be anybody's.
    pub policies: &'static [Entry],
    /// Placements.
    pub placements: &'static [Half<MakePlacement>],
    /// Pagings.
    pub pagings: &'static [Half<MakePaging>],
}

include!(concat!(env!("OUT_DIR"), "/added.rs"));

/// A list of the registry with what was added put in behind its first `$after` items: a constant, so
/// that a name that is taken already stops the build, not a run.
macro_rules! with_added {
    ($kind:ty, $ours:expr, $after:expr, $added:ident) => {{
        const OURS: &[$kind] = $ours;
        const LENGTH: usize = {
            let (mut length, mut file) = (OURS.len(), 0);
            while file < $crate::added::ALL.len() {
                length += $crate::added::ALL[file].$added.len();
                file += 1;
            }
            length
        };
        const JOINED: [$kind; LENGTH] = {
            let mut joined = [OURS[0]; LENGTH];
            let (mut next, mut file) = ($after, 0);
            let mut at = 0;
            while at < OURS.len() {
                joined[if at < $after { at } else { LENGTH - OURS.len() + at }] = OURS[at];
                at += 1;
            }
            while file < $crate::added::ALL.len() {
                let added = $crate::added::ALL[file].$added;
                let mut at = 0;
                while at < added.len() {
                    joined[next] = added[at];
                    next += 1;
                    at += 1;
                }
                file += 1;
            }
            joined
        };
        const _: () = {
            let mut at = 0;
            while at < LENGTH {
                let mut other = at + 1;
                while other < LENGTH {
                    assert!(
                        !$crate::added::same(JOINED[at].name, JOINED[other].name),
                        "two policies, placements or pagings have one name: give the added one another"
                    );
                    other += 1;
                }
                at += 1;
            }
        };
        &JOINED
    }};
}
pub(crate) use with_added;

/// Whether two names are the same, at compile time.
pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
