//! The published policies whose layouts are candidates, on one stage: each needs the same classes and homes.

use numaherd_topology::CpuId;
use numaherd_world::Signal;

use crate::estimate::Picture;
use crate::placement::di::DistributedIntensity;
use crate::placement::dino::Dino;
use crate::placement::n_mass::{NMass, Steps};
use crate::policy::{Needs, Random};
use crate::settings::Settings;
use crate::stage::{PlacementRule, Seat, Stage, Staged};

/// The policies.
#[derive(Clone, Debug)]
pub(super) struct Seeds(Staged<Rules>);

#[derive(Clone, Debug)]
struct Rules {
    di: DistributedIntensity,
    n_mass: NMass,
}

impl PlacementRule for Rules {
    /// What any of them needs.
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::MissRate, Signal::Residency])
    }

    /// None: the policies are asked one by one.
    fn seat(&mut self, _: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        Vec::new()
    }
}

impl Seeds {
    /// Nothing seen yet.
    pub(super) fn new(settings: &Settings) -> Self {
        let rules = Rules {
            di: DistributedIntensity {
                settings: settings.di,
            },
            n_mass: NMass::new(settings, Steps::All),
        };
        Self(Staged::new(settings, rules))
    }

    /// The layouts that they would have.
    pub(super) fn layouts(
        &mut self,
        stage: &Stage<'_>,
        picture: &Picture,
        random: &mut Random,
    ) -> [Vec<CpuId>; 3] {
        let (stage, rules) = self.0.set(stage.snapshot, stage.topology);
        let stage = stage.silent();
        let seats = [
            Dino.seat(&stage, random),
            rules.di.seat(&stage, random),
            rules.n_mass.seat(&stage, random),
        ];
        seats.map(|seats| layout(picture, seats))
    }
}

/// Where the threads are with these seats. Those that are left to the kernel stay.
fn layout(picture: &Picture, seats: Vec<Seat>) -> Vec<CpuId> {
    let mut cpus = picture.now();
    let mut next = 0;
    for seat in seats {
        // Usually the one after the last.
        let is_next = (picture.threads.get(next)).is_some_and(|load| load.id == seat.thread);
        let at = match is_next {
            true => Some(next),
            false => picture.place(seat.thread),
        };
        if let Some(at) = at {
            next = at + 1;
            if picture.threads[at].is_free {
                cpus[at] = seat.cpu;
            }
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimator;
    use crate::placement::adaptive::GAIN;
    use crate::placement::adaptive::tests::{program, scene};
    use crate::words;

    #[test]
    fn threads_that_are_left_to_the_kernel_stay_whatever_a_policy_wants() {
        let mut scene = scene();
        for number in 0..4 {
            program(&mut scene, number + 1, number, 100.0, 400);
        }
        // One that slept has no counts.
        scene.snapshot.threads[1].counts = None;
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let picture = Estimator::default().observe(&stage);
        let elsewhere = |at: usize| stage.seat(at, CpuId(7 - at as u32), GAIN.because(words!("")));
        let cpus = layout(&picture, (0..4).map(elsewhere).collect());
        assert_eq!(cpus, [7, 1, 5, 4].map(CpuId));
    }
}
