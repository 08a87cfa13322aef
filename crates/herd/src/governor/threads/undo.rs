//! Undoes moves that made things worse, as judged by [`crate::governor::worse`].

use numaherd_world::Thread;

use super::guards::{
    affinity_is_not_foreign, is_online, known_cpu, may_be_touched, within_cpuset, within_limits,
};
use super::{Cause, Change, Governed, Pass, ThreadGovernor, nanoseconds};
use crate::governor::worse::Worsened;
use crate::governor::{Guard, Objection, Undone, shown};

impl ThreadGovernor {
    /// Undoes, within the guards, moves that have made things worse, and says so.
    pub(super) fn undo_what_worsened(&mut self, pass: &mut Pass<'_>, governed: &mut Governed) {
        let Some(judge) = &mut self.judge else { return };
        for worsened in judge.saw(pass.snapshot) {
            let Some(thread) = pass.snapshot.thread(worsened.thread) else {
                continue;
            };
            let who = shown(thread.id, thread.process, &thread.name);
            let why = figures(&worsened);
            if !worsened.is_loss() {
                governed.notices.push(format!("{who}: {why}; not undone"));
                continue;
            }
            match self.undo(pass, thread, &worsened) {
                Ok(change) => {
                    governed.notices.push(format!("{who}: {why}; undone"));
                    governed.undone.push(Undone {
                        thread: thread.id,
                        from: worsened.to,
                        to: worsened.from,
                        why,
                    });
                    governed.changes.push(change);
                }
                Err((_, but)) => governed
                    .notices
                    .push(format!("{who}: {why}; not undone: {but}")),
            }
        }
    }

    fn undo(
        &mut self,
        pass: &mut Pass<'_>,
        thread: &Thread,
        worsened: &Worsened,
    ) -> Result<Change, Objection> {
        let snapshot = pass.snapshot;
        may_be_touched(thread)?;
        let owner = self.holdings.owner(thread, &snapshot.online);
        affinity_is_not_foreign(thread, owner)?;
        let mask = match (worsened.from, self.holdings.get(thread.id)) {
            (Some(to), _) => {
                known_cpu(&self.topology, to)?;
                is_online(&snapshot.online, to)?;
                within_cpuset(thread, to)?;
                within_limits(self.limits.cpus.as_ref(), to)?;
                self.mask(snapshot, thread, to)
            }
            (None, Some(held)) => held.back.clone(),
            (None, None) => {
                return Err((
                    Guard::Unchanged,
                    "its affinity has already been restored".to_owned(),
                ));
            }
        };
        let change = self.change(snapshot, thread, worsened.from, mask, Cause::Undo);
        if change.leaves {
            self.moves.take(snapshot, thread)?;
        }
        pass.ordered.insert(thread.id);
        let until = snapshot
            .time_ns
            .saturating_add(nanoseconds(self.limits.freeze_s));
        self.frozen_until_ns.insert(thread.id, until);
        Ok(change)
    }
}

fn figures(worsened: &Worsened) -> String {
    format!(
        "since its move to CPU {} it runs {:.0} % fewer instructions per second of CPU time, and \
         all threads together run at {:.2} times their speed before",
        worsened.to,
        worsened.lost * 100.0,
        worsened.all
    )
}
