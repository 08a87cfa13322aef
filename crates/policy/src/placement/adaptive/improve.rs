//! The search for a layout that loses fewer cores, and the gates that keep the policy from it.

use std::sync::Arc;

use super::gate::{Fruitless, Gate, mean};
use super::past::touched;
use super::search::{self, Balanced, Candidate};
use super::{Adaptive, cores, costs, uncounted};
use crate::estimate::{Basis, Owner, Picture};
use crate::losses::Withheld;
use crate::policy::Random;
use crate::stage::{Seat, Stage};

/// How many times as much must be gained where memory follows its use, which cannot be undone (chosen here: with twice as
/// much, NAS is took 8.5 % longer on traces than with first touch).
const FOR_GOOD: f64 = 4.0;
/// What a search may cost: layouts times threads.
const MOST_THREADS_TRIED: usize = 16_384;

impl Adaptive {
    /// Whether memory of a process begins to follow its use, which cannot be undone.
    fn is_for_good(&self, picture: &Picture, candidate: &Candidate) -> bool {
        picture.processes.iter().enumerate().any(|(at, owner)| {
            let has_begun = self.told.contains(&owner.id) || self.rations.limits(owner.id);
            !has_begun && picture.follows_use(at, &candidate.cpus, candidate.memory[at])
        })
    }

    /// Looks for a layout that loses fewer cores, and carries it out where the gates are open.
    pub(super) fn improve(
        &mut self,
        stage: &Stage<'_>,
        picture: &Arc<Picture>,
        random: &mut Random,
    ) -> Vec<Seat> {
        let wanted_before = self.uncounted.begin(picture);
        let now_ns = stage.snapshot.time_ns;
        let least = self.settings.least_gain * picture.busy_cores();
        let balanced = Balanced::of(stage, picture);
        let lost_now = balanced.roughly();
        let as_before = |search: &Fruitless| {
            !self.looks.are_new() && search.is_as_before(lost_now, least, now_ns, &self.credit)
        };
        if lost_now < least {
            self.meter
                .searched(&picture.lost_now(), &picture.lost_now());
        }
        let same = self.fruitless.as_ref().filter(|search| as_before(search));
        if lost_now < least || same.is_some() {
            self.withheld = same.map(|search| search.why);
            return self.leave(picture);
        }
        let by_residency = picture.from == Basis::Residency;
        let layouts = match by_residency {
            // The published policies need miss rates.
            true => Vec::new(),
            false => Vec::from(self.seeds.layouts(stage, picture, random)),
        };
        let most = MOST_THREADS_TRIED.div_ceil(picture.threads.len());
        let most = most.min(self.settings.layouts);
        let credit = |owner: &Owner| match by_residency && self.uncounted.rests(owner.id, now_ns) {
            true => 0.0,
            false => self.credit.of(owner.id),
        };
        let credit: Vec<f64> = picture.processes.iter().map(credit).collect();
        let lost = balanced.lost;
        let stays = balanced.cpus.clone();
        let search = |layouts, credit: &[f64], balanced| {
            search::best(stage, picture, layouts, credit, balanced, most)
        };
        // The best at any cost; then, if credit does not cover that, the best that it pays for.
        let any = |&credit: &f64| if credit > 0.0 { f64::INFINITY } else { 0.0 };
        let any: Vec<f64> = credit.iter().map(any).collect();
        let mut candidate = search(layouts.clone(), &any, balanced.clone());
        let mut then = candidate.lost(picture);
        self.meter.searched(&lost, &then);
        let mut awaits = costs(picture, &candidate);
        awaits.retain(|cost| !self.credit.pays(std::slice::from_ref(cost)));
        if !awaits.is_empty() {
            candidate = search(layouts.clone(), &credit, balanced);
            then = candidate.lost(picture);
        }
        let gate = Gate { lost, least };
        let mut shut = gate.shut(&then);
        if shut.is_some() && lost_now - candidate.lost >= least {
            // It loses where caches do not help: another layout may gain whether they do or not.
            let wary = picture.wary();
            let balanced = Balanced::of(stage, &wary);
            let other = search::best(stage, &wary, layouts, &credit, balanced, most);
            let by_all = picture.lost(&other.cpus, &other.memory);
            if gate.shut(&by_all).is_none() {
                (candidate, then, shut) = (other, by_all, None);
            }
        }
        if let Some(shut) = shut {
            let why = if awaits.is_empty() {
                shut
            } else {
                Withheld::Credit
            };
            self.withheld = Some(why);
            self.fruitless = Some(Fruitless {
                lost: lost_now,
                since_ns: now_ns,
                awaits,
                why,
            });
            return self.leave(picture);
        }
        self.fruitless = None;
        let of_late = self.past.gain(picture, &stays, &candidate);
        let (gain, error) = of_late.unwrap_or((gate.gain(&then), 0.0));
        let by_chance = error.max(self.past.seen_by_chance() * picture.busy_cores());
        let must_gain = match self.is_for_good(picture, &candidate) {
            true => FOR_GOOD * least,
            false => least,
        };
        self.withheld = if gain < least.max(by_chance) {
            Some(Withheld::Fleeting)
        } else if gain < must_gain {
            Some(Withheld::ForGood)
        } else {
            cores::are_short(stage, picture, &candidate.cpus).then_some(Withheld::Kernel)
        };
        if self.withheld.is_some() {
            return Vec::new();
        }
        let costs = costs(picture, &candidate);
        let all: f64 = costs.iter().map(|(_, cost)| cost).sum();
        let ages = touched(picture, &candidate).into_iter();
        let age_ns = ages.map(|at| picture.threads[at].age_ns).min().unwrap_or(0);
        let has_lasted = !by_residency
            || (self.uncounted).has_lasted(&wanted_before, picture, &candidate, now_ns);
        let is_new = by_residency && u128::from(age_ns) < uncounted::SEEN.as_nanos();
        self.withheld = if !has_lasted || is_new || gain * age_ns as f64 <= all {
            Some(Withheld::Young)
        } else {
            (!self.credit.pays(&costs)).then_some(Withheld::Credit)
        };
        if self.withheld.is_some() {
            return Vec::new();
        }
        if by_residency {
            self.uncounted.act(picture, &candidate, now_ns);
        }
        self.credit.charge(&costs);
        self.act(stage, picture, candidate, (mean(&lost), mean(&then)), costs)
    }
}
