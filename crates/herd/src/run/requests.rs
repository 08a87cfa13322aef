//! Answers to requests of the running herd.
//!
//! *Pause.* Nothing is decided and nothing carried out, pages included. What is seen is still recorded, and threads
//! that are started with a mask of ours are held like those that started them. Last of all, and for a limited time, the
//! pause waits for pages that the kernel is moving just then. With `give_back`, threads get back the affinities they
//! were found with, also those just started with a mask of ours. The interval ends at such a request: what is given
//! back is what is seen then. A *taking back* moves threads to where they were first found: the kernel goes on from
//! where it was, not from where the policy left them.
//!
//! *Resume.* Decisions go on with the next interval. Moves that were being judged at the pause no longer are: what
//! happened meanwhile was not observed.
//!
//! *Change.* First come all checks that may refuse it, in the order of a start: signals, the rule for new pages. Then
//! the policy is replaced. What the governor holds and its remaining budgets stay; orders of the former policy that
//! wait for bandwidth are refused. A new seed begins new random numbers; otherwise they go on. Pages that the kernel is
//! moving just then are not waited for.
//!
//! Each request is recorded with its outcome before it is answered.

use std::sync::Arc;

use numaherd_policy::groups::Policies;
use numaherd_world::{AffinityResult, Effort, Snapshot, WorldError};

use super::{Found, LONGEST_MOVE, Paused, Running, ask_world, generators, place_new_pages};
use crate::control::{Change, ControlError, MOST_WAITING, Request, Requests};
use crate::error::HerdError;
use crate::governor::Governed;
use crate::groups::halves;
use crate::ledger::{Asked, Controlled, Record};
use crate::paging::PagingChange;
use crate::settings::Settings;

impl Running<'_> {
    /// Answers waiting requests. Returns whether the interval has been seen and recorded for one of them, and is over.
    pub(super) fn answer_requests(&mut self) -> bool {
        let mut is_over = false;
        // No more than can wait at once: endless requests do not hold up the loop.
        for _ in 0..MOST_WAITING {
            let Some(waiting) = self.requests.as_ref().and_then(Requests::next) else {
                break;
            };
            let (asked, outcome) = match waiting.request {
                Request::Pause { give_back } => self.asked_to_pause(give_back, None, &mut is_over),
                Request::TakeBack => {
                    let found = self.found.take();
                    self.asked_to_pause(true, found, &mut is_over)
                }
                Request::Resume => (Asked::Resume, self.resume()),
                Request::Change(change) => self.change(*change),
                Request::Trial(trial) => {
                    self.record.add(|| Record::Trial(*trial));
                    self.record.flush();
                    waiting.answer.give(Ok(()));
                    continue;
                }
            };
            let controlled = Controlled {
                by: waiting.by.to_string(),
                asked,
                refused: outcome.as_ref().err().map(ToString::to_string),
            };
            self.record.add(|| Record::Control(controlled));
            self.record.flush();
            waiting.answer.give(outcome);
        }
        is_over
    }

    fn asked_to_pause(
        &mut self,
        give_back: bool,
        found: Option<Found>,
        is_over: &mut bool,
    ) -> (Asked, Result<(), ControlError>) {
        let paused = self.pause(give_back, found);
        let restored = paused.as_ref().ok().copied().flatten();
        *is_over |= restored.is_some();
        let asked = Asked::Pause {
            give_back,
            given_back: restored.unwrap_or(0),
        };
        (asked, paused.map(drop))
    }

    /// Pauses. If threads are given back, the interval is over; returns how many were.
    fn pause(
        &mut self,
        give_back: bool,
        found: Option<Found>,
    ) -> Result<Option<u64>, ControlError> {
        let refused = match self.paused {
            Some(Paused { give_back: true }) => {
                Some("it is already paused, and affinities are restored")
            }
            Some(Paused { give_back: false }) if !give_back => Some("it is already paused"),
            _ => None,
        };
        if let Some(why) = refused {
            return Err(ControlError::refused(why));
        }
        self.paging.pause();
        let before = self.paused;
        let paused = Paused { give_back };
        self.paused = Some(paused);
        let given_back = give_back.then(|| self.watch(paused, found));
        let given_back = given_back.transpose().map_err(|error| {
            self.paused = before;
            if before.is_none() {
                self.paging.resume();
            }
            ControlError::refused(error)
        })?;
        // Threads get their affinities before this waits for page moves.
        if !self.paging.wait_for_round(LONGEST_MOVE) {
            self.record.notice(format!(
                "it is paused, but the kernel is still moving pages after {} s: a node may be full; no other move begins",
                LONGEST_MOVE.as_secs()
            ));
        }
        self.hear_paging();
        Ok(given_back)
    }

    fn resume(&mut self) -> Result<(), ControlError> {
        if self.paused.take().is_none() {
            return Err(ControlError::refused("it is not paused"));
        }
        self.paging.resume();
        self.governor.resume();
        self.found = None;
        Ok(())
    }

    /// An interval of a pause: it is seen and recorded. Threads are taken back to where they were `found` before they
    /// are given back. Returns how many were.
    pub(super) fn watch(
        &mut self,
        paused: Paused,
        found: Option<Found>,
    ) -> Result<u64, WorldError> {
        let mut snapshot = self.look()?;
        self.record.saw(&snapshot, &Governed::default(), None);
        if let Some(found) = found {
            self.take_back(Arc::make_mut(&mut snapshot), &found);
        }
        let given_back = if paused.give_back {
            let effort = match self.governor.holdings().iter().next() {
                Some(_) => Effort::Thorough,
                None => Effort::Quick,
            };
            self.give_back_all(&snapshot, effort)
        } else {
            self.find_heirs(Effort::Quick);
            0
        };
        let adopted = self.governor.watch(&snapshot);
        self.write_down_adopted(&adopted);
        self.hear_paging();
        self.record.flush();
        Ok(given_back)
    }

    /// Takes threads back to the CPUs where they were found. Updates their affinities in the snapshot.
    fn take_back(&mut self, snapshot: &mut Snapshot, found: &Found) {
        let (plan, mut governed) = self.governor.take_back(snapshot, found);
        if plan.is_empty() {
            return;
        }
        let outcome = self.carry_out(snapshot, &mut governed);
        for (change, outcome) in governed.changes.iter().zip(&outcome.affinities) {
            let affinity = match &outcome.result {
                AffinityResult::Done => change.order.cpus.clone(),
                AffinityResult::Narrowed { now } => Arc::new(now.clone()),
                AffinityResult::Gone | AffinityResult::Failed { .. } => continue,
            };
            let id = change.order.thread;
            if let Ok(at) = snapshot
                .threads
                .binary_search_by_key(&id, |thread| thread.id)
            {
                snapshot.threads[at].affinity = affinity;
            }
        }
        self.record_placing(snapshot, true, plan, governed, outcome);
    }

    /// Records what the paging has done so far, before what comes next.
    fn hear_paging(&mut self) {
        let news = self.paging.news();
        self.hear(news);
    }

    fn change(&mut self, change: Change) -> (Asked, Result<(), ControlError>) {
        let Change {
            policy,
            settings,
            why,
        } = change;
        let name = policy.as_ref().map(|policy| policy.name.clone());
        let is_note = policy.is_none() && settings.is_none();
        let made = match is_note {
            true => Ok(()),
            false => self.make_change(policy, settings),
        };
        let changed = made.is_ok() && !is_note;
        let used = changed.then(|| Box::new(self.settings.clone()));
        let asked = Asked::Change {
            policy: name,
            settings: used,
            why,
        };
        (asked, made.map_err(ControlError::refused))
    }

    fn make_change(
        &mut self,
        policy: Option<Policies>,
        settings: Option<Settings>,
    ) -> Result<(), HerdError> {
        let given = settings.unwrap_or_else(|| self.given.clone());
        let (world, dry_run) = (&mut *self.world, given.dry_run);
        if let Some(policy) = &policy {
            ask_world(world, policy, &self.alternatives, dry_run)?;
        } else if dry_run != self.settings.dry_run {
            let policy = &self.record.summary.policy;
            place_new_pages(world, policy, self.new_pages, dry_run)?;
        }
        let mut caveats = Vec::new();
        let paging = policy.map(|policy| {
            caveats = policy.caveats(self.world.signals());
            self.own = policy.own();
            self.record.summary.policy = policy.name;
            self.new_pages = policy.new_pages;
            let (placements, pagings) = halves(policy.parts);
            self.placements = placements;
            pagings
        });
        let before = std::mem::replace(&mut self.settings, given.clone().resolved(&self.own));
        self.given = given;
        let used = &self.settings;
        let random = (used.seed != before.seed).then(|| generators(used.seed));
        let paging_random = random.map(|(placement, paging)| {
            self.random = placement;
            paging
        });
        self.governor.set_limits(&used.limits);
        let news = self.paging.change(PagingChange {
            paging,
            random: paging_random,
            settings: used.clone(),
        });
        self.record.summary.dry_run = dry_run;
        self.record.set_cadence(used);
        self.hear_paging();
        self.hear(news);
        for caveat in caveats {
            self.record.notice(caveat);
        }
        Ok(())
    }
}
