//! What is remembered of each thread and process, in the order of the snapshot that lists them.
//!
//! Snapshots ascend by id, so that memory and snapshot are joined by one walk over both: linear, and
//! nothing is left of those that have ended.

/// One `T` for each id, ascending.
#[derive(Clone, Debug)]
pub(super) struct Tracks<K, T> {
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

    /// All, in the snapshot's order.
    pub(super) fn all(&self) -> &[T] {
        &self.all
    }

    /// All, in the snapshot's order.
    pub(super) fn all_mut(&mut self) -> &mut [T] {
        &mut self.all
    }

    /// That of an id.
    pub(super) fn get_mut(&mut self, id: K) -> Option<&mut T> {
        let at = self.ids.binary_search(&id).ok()?;
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
            prop_assert_eq!(tracks.all(), expected.collect::<Vec<_>>());
        }
    }
}
