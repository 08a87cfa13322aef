//! Trials on simulated machines, whose true gain is known: how often a trial claims a gain where there is none,
//! whether it finds a true gain, and what it does with invalid counters.

use numaherd_show::trial::{LEAST_PAIRS, pairs_to_see};

use super::*;

const DESIGN: Design = Design {
    block_ns: 10_000_000_000,
    washout_ns: 3_000_000_000,
    pairs_planned: 30,
    seed: 0,
    stop_early: false,
};

/// What makes rates differ besides the policy.
#[derive(Clone, Copy, Debug)]
enum Noise {
    None,
    /// Each block has its own, normal with this deviation.
    Normal(f64),
    /// The same, on a rate that rises by 1 % from block to block.
    Drift(f64),
    /// Nine tenths of the block before, and a normal part: an autoregression.
    Autocorrelated(f64),
    /// Student's with two degrees of freedom, which has no variance.
    HeavyTails(f64),
    /// Every other block is faster by a tenth: phases as long as a block.
    Phases(f64),
}

/// A machine whose time passes only when the trial waits.
struct Simulated {
    random: Random,
    noise: Noise,
    /// By how much the policy is faster, as a logarithm.
    effect: f64,
    /// For how many seconds after a switch the former side still has its effect.
    lasts: f64,
    time: f64,
    switched: f64,
    blocks: u32,
    side: Side,
    former: Side,
    disturbance: f64,
    counter: f64,
    stopped_at: f64,
}

impl Simulated {
    fn new(seed: u64, noise: Noise, effect: f64) -> Self {
        Self {
            random: Random::seed_from_u64(seed),
            noise,
            effect,
            lasts: 0.0,
            time: 0.0,
            switched: 0.0,
            blocks: 0,
            side: Side::Policy,
            former: Side::Policy,
            disturbance: 0.0,
            counter: 0.0,
            stopped_at: f64::INFINITY,
        }
    }

    /// A standard normal number (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (size, angle): (f64, f64) = (self.random.random(), self.random.random());
        (-2.0 * (1.0 - size).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn disturb(&mut self) {
        let normal = self.normal();
        self.disturbance = match self.noise {
            Noise::None => 0.0,
            Noise::Normal(of) => of * normal,
            Noise::Drift(of) => of * normal + 0.01 * f64::from(self.blocks),
            Noise::Autocorrelated(of) => 0.9 * self.disturbance + of * normal,
            Noise::HeavyTails(of) => {
                let exponential = -(1.0 - self.random.random::<f64>()).ln();
                (of * normal / exponential.sqrt()).clamp(-50.0, 50.0)
            }
            Noise::Phases(of) => of * normal + 0.1 * f64::from(self.blocks % 2),
        };
    }
}

impl Machine for Simulated {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.time)
    }

    fn wait_until(&mut self, at: Duration) -> Result<(), Halt> {
        let end = at.as_secs_f64();
        let rate = |side| match side {
            Side::Policy => 1e6 * (self.effect + self.disturbance).exp(),
            Side::Against => 1e6 * self.disturbance.exp(),
        };
        let (former, now) = (rate(self.former), rate(self.side));
        let lasts = (self.switched + self.lasts).clamp(self.time, end);
        self.counter += former * (lasts - self.time) + now * (end - lasts);
        self.time = end;
        match end < self.stopped_at {
            true => Ok(()),
            false => Err(Halt::Stopped),
        }
    }

    fn switch(&mut self, to: Side) -> Result<(), Halt> {
        self.former = std::mem::replace(&mut self.side, to);
        self.switched = self.time;
        self.blocks += 1;
        self.disturb();
        Ok(())
    }

    fn progress(&mut self) -> Result<Reading, Halt> {
        Ok(Reading {
            at: self.now(),
            value: self.counter,
        })
    }
}

/// A trial on such a machine, and whether it ever showed a difference: after any pair.
fn trial(seed: u64, noise: Noise, effect: f64, pairs: usize) -> (Vec<Pair>, Design, bool) {
    let design = Design {
        seed,
        pairs_planned: pairs,
        ..DESIGN
    };
    let mut ever_shown = false;
    let mut machine = Simulated::new(seed ^ 0x5eed, noise, effect);
    let (pairs, end) = conduct(&design, &mut machine, |event| {
        if let Event::Pair(pairs) = event {
            ever_shown |= Verdict::of(pairs, &design).is_some_and(|verdict| verdict.is_shown());
        }
    });
    assert_eq!(end, None);
    (pairs, design, ever_shown)
}

#[test]
fn where_there_is_no_difference_at_most_one_trial_in_twenty_ever_shows_one() {
    let noises = [
        Noise::Normal(0.03),
        Noise::Drift(0.005),
        Noise::Autocorrelated(0.02),
        Noise::HeavyTails(0.02),
        Noise::Phases(0.01),
        Noise::Phases(0.0),
    ];
    for noise in noises {
        for pairs in [LEAST_PAIRS, 30] {
            let claimed = (0..1000).filter(|&seed| trial(seed, noise, 0.0, pairs).2);
            let claimed = claimed.count();
            println!("{noise:?}, {pairs} pairs: {claimed} of 1000");
            assert!(claimed <= 50, "{noise:?}, {pairs} pairs: {claimed}");
        }
    }
}

#[test]
fn five_percent_is_found_where_pairs_spread_by_three() {
    let noise = Noise::Normal(0.03 / 2f64.sqrt());
    let effect = 0.05f64.ln_1p();
    let mut holds = 0;
    for seed in 0..200 {
        let (pairs, design, ever_shown) = trial(seed, noise, effect, 30);
        let verdict = Verdict::of(&pairs, &design).unwrap();
        assert!(ever_shown && verdict.is_shown(), "{seed}: {verdict:?}");
        let [low, high] = verdict.interval();
        holds += usize::from(low <= 0.05 && 0.05 <= high);
    }
    assert!(holds >= 190, "{holds} of 200 intervals hold the true gain");
}

#[test]
fn the_length_that_is_named_is_enough_in_four_trials_of_five() {
    let noise = Noise::Normal(0.03 / 2f64.sqrt());
    let (pairs, ..) = trial(1, noise, 0.0, 200);
    let needed = pairs_to_see(0.02, &pairs).unwrap();
    let found = |seed: &u64| {
        let (pairs, design, _) = trial(*seed, noise, 0.02f64.ln_1p(), needed);
        Verdict::of(&pairs, &design).unwrap().is_shown()
    };
    let found = (0..200).filter(found).count();
    assert!(
        (140..=180).contains(&found),
        "{found} of 200 with {needed} pairs"
    );
}

#[test]
fn what_carries_over_for_as_long_as_is_dropped_does_not_count() {
    let gains = |lasts: f64| {
        let mut machine = Simulated::new(1, Noise::None, 0.05f64.ln_1p());
        machine.lasts = lasts;
        let (pairs, _) = conduct(&DESIGN, &mut machine, |_| {});
        pairs
            .iter()
            .map(Pair::log_ratio)
            .map(f64::exp_m1)
            .collect::<Vec<_>>()
    };
    assert!(gains(3.0).iter().all(|gain| (gain - 0.05).abs() < 1e-6));
    assert!(gains(5.0).iter().any(|gain| *gain < 0.04));
}

#[test]
fn the_order_is_drawn_from_the_seed_and_either_side_comes_first() {
    let firsts = |seed| {
        let (pairs, ..) = trial(seed, Noise::None, 0.0, 30);
        pairs.iter().map(|pair| pair.first).collect::<Vec<_>>()
    };
    assert_eq!(firsts(7), firsts(7));
    assert_ne!(firsts(7), firsts(8));
    let policy = firsts(7)
        .iter()
        .filter(|&&side| side == Side::Policy)
        .count();
    assert!((5..=25).contains(&policy), "{policy}");
}

#[test]
fn a_trial_that_may_end_early_does_once_a_difference_is_shown() {
    let design = Design {
        stop_early: true,
        ..DESIGN
    };
    let mut machine = Simulated::new(1, Noise::Normal(0.01), 0.2);
    let (pairs, end) = conduct(&design, &mut machine, |_| {});
    assert_eq!(end, Some(TrialEnd::Early));
    assert!((LEAST_PAIRS..15).contains(&pairs.len()), "{}", pairs.len());
    assert!(Verdict::of(&pairs, &design).unwrap().is_shown());
}

#[test]
fn what_was_known_when_it_was_stopped_remains() {
    let mut machine = Simulated::new(1, Noise::Normal(0.01), 0.2);
    machine.stopped_at = 70.0;
    let (pairs, end) = conduct(&DESIGN, &mut machine, |_| {});
    assert_eq!((pairs.len(), end), (3, None));
    assert_eq!(Verdict::of(&pairs, &DESIGN), None);
}

/// A machine whose counter shows these values, one after the other.
struct Counter<'c>(std::slice::Iter<'c, f64>, Duration);

impl Machine for Counter<'_> {
    fn now(&self) -> Duration {
        self.1
    }
    fn wait_until(&mut self, at: Duration) -> Result<(), Halt> {
        self.1 = at;
        Ok(())
    }
    fn switch(&mut self, _: Side) -> Result<(), Halt> {
        Ok(())
    }
    fn progress(&mut self) -> Result<Reading, Halt> {
        let value = *self.0.next().ok_or(Halt::Stopped)?;
        Ok(Reading { at: self.1, value })
    }
}

#[track_caller]
fn failure(counter: &[f64]) -> String {
    match conduct(
        &DESIGN,
        &mut Counter(counter.iter(), Duration::ZERO),
        |_| {},
    ) {
        (_, Some(TrialEnd::Failed(why))) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_counter_that_falls_or_stays_is_named() {
    let fell = failure(&[10.0, 20.0, 3.0]);
    assert!(
        fell.starts_with("the counter of progress fell from 20 to 3: "),
        "{fell}"
    );
    let fell = failure(&[10.0, 4.0]);
    assert!(fell.contains("from 10 to 4"), "{fell}");
    let stayed = failure(&[10.0, 20.0, 30.0, 30.0]);
    assert!(
        stayed.starts_with("there was no progress in 7.0 s, the counter stayed at 30"),
        "{stayed}"
    );
}
