//! Heirs: threads that inherited a mask of ours from threads that we had placed, or from heirs.
//!
//! A thread is an heir if all of this holds:
//! * it was born no earlier than the mask was first set in the process of its *donor*;
//! * it has that mask, or what the kernel has left of it;
//! * it is in the donor's process; or its process is a child of that one; or its process is an orphan that is a child
//!   of the donor's process or shares session, process group or cgroup with it
//!   ([`Kinship::may_be_of`](numaherd_world::Kinship::may_be_of)), and its session is the donor's or younger than the
//!   mask.
//!
//! A process that takes orphans in (the first one, or a *subreaper*) is their parent, but need not be the source of
//! their mask. The session shows whose they are not: a process is in the session that it was born in, or has begun its
//! own. So a session that existed before the mask was set, and is not the donor's, holds none of its heirs.
//!
//! An heir is due what its donor is due. The kernel does not tell whether an orphan in the donor's cgroup, and in its
//! session or one younger than the mask, has just this mask by its user's choice: then it counts as an heir. A thread
//! whose parent lives and is no donor, or that has any other mask, never does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::{Bound, ThreadId};

use crate::governor::ownership::Held;

/// How long heirs are looked for while new ones keep appearing: whoever stops a herd waits for it.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// How often a mask that is not ours is looked at before it counts as someone else's: while a cpuset changes, it may be
/// what the former cpuset left of ours, and the next look shows ours.
pub(crate) const LOOKS: u32 = 3;

/// What to say when many passes have found new ones.
pub(crate) fn waiting() -> String {
    format!(
        "threads are being started faster than their affinities can be restored; this goes on for at most {} s",
        LONGEST.as_secs()
    )
}

/// What to say when new ones are found even then.
pub(crate) fn still_started(given_back: u64) -> String {
    format!(
        "for {} s threads have been started again and again with affinities that Numaherd had set; {given_back} \
         of them were restored, but some may be left: stop what starts them, and run `numaherd release`",
        LONGEST.as_secs()
    )
}

/// The masks that heirs may have, each once.
pub(crate) fn masks(donors: &[Held]) -> Vec<Arc<CpuSet>> {
    let masks: BTreeSet<&[u64]> = donors.iter().map(|donor| donor.mask.as_words()).collect();
    let of_words = |words: &[u64]| Arc::new(CpuSet::of_words(words.to_vec()));
    masks.into_iter().map(of_words).collect()
}

/// No heir was born before.
pub(crate) fn since(donors: &[Held]) -> u64 {
    donors.iter().map(|donor| donor.since).min().unwrap_or(0)
}

/// The heirs among `bound` threads, with what is held of each, heirs of heirs included.
pub(crate) fn heirs(donors: &[Held], mut bound: Vec<Bound>) -> Vec<(ThreadId, Held)> {
    let mut heirs: Vec<(ThreadId, Held)> = Vec::new();
    loop {
        let before = heirs.len();
        bound.retain(|thread| {
            let known = donors.iter().chain(heirs.iter().map(|(_, held)| held));
            let near = known.filter_map(|donor| Some((distance(thread, donor)?, donor)));
            let Some((_, donor)) = near.min_by_key(|(distance, _)| *distance) else {
                return true;
            };
            let held = Held {
                process: thread.process,
                name: thread.name.clone(),
                kin: thread.kin.clone().into(),
                since: thread.thread.born,
                ..donor.clone()
            };
            heirs.push((thread.thread, held));
            false
        });
        if heirs.len() == before {
            return heirs;
        }
    }
}

/// How near a thread is to a donor; `None` where it is no heir of it.
fn distance(thread: &Bound, donor: &Held) -> Option<u8> {
    if thread.thread.born < donor.since {
        return None;
    }
    let is_child =
        || thread.kin.parent == donor.process.pid && thread.process.born >= donor.process.born;
    let distance = if thread.process == donor.process {
        0
    } else if !thread.is_orphan {
        // It is in its parent's session; otherwise this is a later process of that number.
        (is_child() && is_in_session_of(thread, donor)).then_some(1)?
    } else if is_of_others_session(thread, donor) {
        return None;
    } else if is_child() {
        2
    } else if thread.kin.may_be_of(&donor.kin) {
        3
    } else {
        return None;
    };
    thread.bounds.is(&donor.mask).then_some(distance)
}

/// Whether its session existed before the mask was set and is not the donor's.
fn is_of_others_session(thread: &Bound, donor: &Held) -> bool {
    thread.session_born < donor.since && !is_in_session_of(thread, donor)
}

/// Whether the session, if known, is the donor's: the one it was in, or one that it has begun since.
fn is_in_session_of(thread: &Bound, donor: &Held) -> bool {
    let (session, donors) = (thread.kin.session, donor.kin.session);
    session == 0 || donors == 0 || session == donors || session == donor.process.pid
}

#[cfg(test)]
mod tests {
    use numaherd_testing::{cpus, pid};
    use numaherd_world::{Bounds, Kinship};
    use proptest::prelude::*;

    use super::*;

    /// What was set in process 1, whose threads had all CPUs, at time 50.
    fn donor() -> Held {
        Held {
            process: pid(1),
            name: "donor".to_owned(),
            found: Arc::new(cpus("0-7")),
            back: Arc::new(cpus("0-15")),
            mask: Arc::new(cpus("2-3")),
            kin: Arc::new(kin(0)),
            since: 50,
        }
    }

    fn kin(parent: u32) -> Kinship {
        Kinship {
            parent,
            group: 11,
            session: 12,
            cgroup: Some("/a".to_owned()),
            user: Some(1000),
        }
    }

    /// A process of one thread with the donor's mask that was born later, a child of this one.
    fn bound(number: u32, parent: u32) -> Bound {
        Bound {
            thread: ThreadId {
                tid: number,
                born: 60,
            },
            process: pid(number),
            name: "heir".to_owned(),
            bounds: Bounds::new(cpus("2-3"), cpus("0-7")),
            kin: kin(parent),
            is_orphan: false,
            session_born: 60,
        }
    }

    fn found(bound: Vec<Bound>) -> Vec<u32> {
        let mut found: Vec<u32> = heirs(&[donor()], bound)
            .iter()
            .map(|(thread, held)| {
                assert_eq!(*held.back, cpus("0-15"));
                thread.tid
            })
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn threads_of_the_process_its_children_and_their_children() {
        let mut sibling = bound(10, 0);
        sibling.process = pid(1);
        assert_eq!(found(vec![bound(5, 4), bound(4, 1), sibling]), [4, 5, 10]);
    }

    #[test]
    fn an_orphan_shows_its_descent_by_session_group_or_cgroup() {
        let other = Kinship {
            parent: 1000,
            ..Kinship::default()
        };
        let relatives = [
            Kinship {
                session: 12,
                ..other.clone()
            },
            Kinship {
                group: 11,
                ..other.clone()
            },
            Kinship {
                cgroup: Some("/a".to_owned()),
                ..other
            },
        ];
        for kin in relatives {
            let mut orphan = Bound {
                kin,
                ..bound(4, 1000)
            };
            assert_eq!(found(vec![orphan.clone()]), [0; 0], "its parent lives");
            orphan.is_orphan = true;
            assert_eq!(found(vec![orphan]), [4]);
        }
        let stranger = Bound {
            kin: other,
            is_orphan: true,
            ..bound(4, 1000)
        };
        assert_eq!(found(vec![stranger]), [0; 0]);
    }

    #[test]
    fn an_orphan_of_a_session_that_others_had_before_is_none() {
        let mut donor = donor();
        donor.process = pid(30);
        let is_heir = |parent, session, session_born| {
            let orphan = Bound {
                kin: Kinship {
                    session,
                    ..kin(parent)
                },
                is_orphan: true,
                session_born,
                ..bound(40, parent)
            };
            !heirs(&[donor.clone()], vec![orphan]).is_empty()
        };
        // 30 takes orphans in.
        for parent in [1, 30] {
            assert!(!is_heir(parent, 20, 49), "others were in it before");
            assert!(is_heir(parent, 20, 50), "an ancestor may have begun it");
            assert!(is_heir(parent, 12, 1), "it is the donor's own");
            assert!(is_heir(parent, 30, 1), "the donor has begun it since");
        }
    }

    #[test]
    fn in_the_root_cgroup_the_user_counts() {
        let of = |user| Kinship {
            user,
            ..Kinship::default()
        };
        assert!(of(Some(1000)).may_be_of(&of(Some(1000))));
        assert!(!of(Some(1000)).may_be_of(&of(Some(1001))));
        assert!(!of(None).may_be_of(&of(None)));
    }

    #[test]
    fn a_child_of_a_later_process_with_the_donors_number_is_none() {
        let mut child = bound(4, 1);
        child.kin.session = 20;
        assert_eq!(found(vec![child]), [0; 0]);
    }

    #[test]
    fn one_with_another_mask_or_born_before_is_none() {
        let mut other = bound(4, 1);
        other.bounds.mask = cpus("2");
        let mut before = bound(5, 1);
        before.thread.born = 49;
        assert_eq!(found(vec![other, before]), [0; 0]);
    }

    #[test]
    fn it_is_due_what_its_nearest_donor_is_due() {
        let mut pinned = donor();
        pinned.process = pid(4);
        pinned.back = Arc::new(cpus("4"));
        let mut child = bound(5, 4);
        child.is_orphan = true;
        let found = heirs(&[donor(), pinned], vec![child]);
        assert_eq!(*found[0].1.back, cpus("4"));
    }

    proptest! {
        #[test]
        fn whoever_is_an_heir_has_the_mask_is_younger_and_is_found_in_any_order(
            made in prop::collection::vec((0u32..12, 40u64..70, any::<bool>(), any::<bool>()), 0..12),
            turn in any::<prop::sample::Index>(),
        ) {
            let mut all: Vec<Bound> = (20..).zip(made).map(|(number, (parent, born, is_ours, is_orphan))| {
                let parent = if parent == 0 { 1 } else { 19 + parent };
                let mut made = Bound { is_orphan, ..bound(number, parent) };
                made.thread.born = born;
                made.kin = Kinship { parent, ..Kinship::default() };
                if !is_ours {
                    made.bounds.mask = cpus("3");
                }
                made
            }).collect();
            let first = found(all.clone());
            for bound in all.iter().filter(|bound| first.contains(&bound.thread.tid)) {
                prop_assert!(bound.thread.born >= 50);
                prop_assert_eq!(&bound.bounds.mask, &cpus("2-3"));
            }
            if !all.is_empty() {
                let at = turn.index(all.len());
                all.rotate_left(at);
            }
            prop_assert_eq!(found(all), first);
        }
    }

    #[test]
    fn each_mask_is_asked_for_once() {
        let other = Held {
            process: pid(7),
            since: 40,
            ..donor()
        };
        assert_eq!(masks(&[donor(), other.clone()]).len(), 1);
        assert_eq!(since(&[donor(), other]), 40);
    }
}
