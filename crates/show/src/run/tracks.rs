//! What the model keeps of each thread and process, in the order of the snapshot that lists them.
//!
//! Snapshots ascend by id, so one walk over both joins them: linear, and nothing stays of what has ended.

use serde::{Serialize, Serializer};

/// One `T` for each id, ascending.
#[derive(Clone, Debug)]
pub struct Tracks<K, T> {
    ids: Vec<K>,
    all: Vec<T>,
}

impl<K, T> Default for Tracks<K, T> {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            all: Vec::new(),
        }
    }
}

/// All, in the snapshot's order.
impl<K, T> std::ops::Deref for Tracks<K, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all
    }
}

impl<K, T: Serialize> Serialize for Tracks<K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(serializer)
    }
}

impl<K: Copy + Ord, T: Default> Tracks<K, T> {
    /// Lines them up with these ids, which ascend: those that are new get the default.
    pub(super) fn line_up(&mut self, ids: impl ExactSizeIterator<Item = K> + Clone) {
        if ids.clone().eq(self.ids.iter().copied()) {
            return;
        }
        let before = std::mem::take(&mut self.ids);
        let all = std::mem::take(&mut self.all);
        let mut before = before.into_iter().zip(all).peekable();
        self.all.reserve(ids.len());
        for id in ids.clone() {
            while before.next_if(|&(old, _)| old < id).is_some() {}
            let known = before.next_if(|&(old, _)| old == id);
            self.all
                .push(known.map(|(_, track)| track).unwrap_or_default());
        }
        self.ids = ids.collect();
    }

    /// The place of an id.
    pub(super) fn place(&self, id: K) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// That of an id.
    pub fn get_by_id(&self, id: K) -> Option<&T> {
        self.all.get(self.place(id)?)
    }

    /// All, in the snapshot's order, to be changed.
    pub(super) fn all_mut(&mut self) -> &mut [T] {
        &mut self.all
    }

    /// That of an id, to be changed.
    pub(super) fn get_mut(&mut self, id: K) -> Option<&mut T> {
        let at = self.place(id)?;
        self.all.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_stays_is_remembered_and_what_is_new_is_not(
            before in proptest::collection::btree_set(0u32..40, 0..20),
            after in proptest::collection::btree_set(0u32..40, 0..20),
        ) {
            let mut tracks: Tracks<u32, u32> = Tracks::default();
            let ids = |set: &BTreeSet<u32>| set.iter().copied().collect::<Vec<_>>();
            tracks.line_up(ids(&before).into_iter());
            for (track, id) in tracks.all_mut().iter_mut().zip(ids(&before)) {
                *track = id + 1;
            }
            tracks.line_up(ids(&after).into_iter());
            let expected = ids(&after).into_iter().map(|id| if before.contains(&id) { id + 1 } else { 0 });
            prop_assert_eq!(&tracks[..], expected.collect::<Vec<_>>());
        }
    }
}
