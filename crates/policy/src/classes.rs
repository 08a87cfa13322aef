//! Classes of threads by their miss rate, and the votes that keep a class from following every spike.
//!
//! Problem: miss rates change all the time, contention only with large changes of them (DINO
//! §3.3.1, Figure 8). Acting on each change moves threads, and their memory, for nothing.
//!
//! Rule (DINO §3.3.2, §3.3.3): three classes by miss rate, in cache lines fetched from memory per
//! 1000 instructions: *turtle* below 2, *devil* from 2 to 100, *super-devil* above 100. A thread
//! changes class only when at least 7 of its last 10 intervals were in the same other class.
//!
//! A second preset, `clavis`, holds what the authors' own scheduler does: borders 1.5 and 50; a
//! thread changes when at least 5 of its last 10 intervals were outside its class and the mean of the ten
//! differs by more than 3 from the rate by which it was classed; then it is classed anew by that mean,
//! rounded to the nearest whole line. (The prose calls for votes only; both are the authors'.)
//!
//! Choices that neither source makes:
//! * A thread's first class is that of its first interval with counts: DINO places new threads at
//!   once, and a wrong start is voted out like any other class.
//! * An interval in which a thread retired no instruction, or was not counted, is no vote.
//! * The ten intervals are the thread's last ten with counts; with fewer, nothing is filled in, so
//!   no class changes before the 7th (5th) interval.
//!
//! Properties: a class changes at most once an interval; it never changes within the first
//! `votes - 1` intervals; a spike of fewer than `votes` intervals never changes it.

use std::collections::VecDeque;
use std::fmt;

use numaherd_files::{choices, settings};
use numaherd_world::Thread;
use serde::{Deserialize, Serialize};

use crate::memory::PerThread;

/// How hard a thread is on memory. Ascending by miss rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Rarely goes to memory.
    Turtle,
    /// Goes to memory often.
    Devil,
    /// Hardly does anything else.
    SuperDevil,
}

impl Class {
    /// All classes, the most aggressive first: the order in which DINO deals them.
    pub const DEALT: [Self; 3] = [Self::SuperDevil, Self::Devil, Self::Turtle];

    /// Place in [`Class::DEALT`].
    pub fn index(self) -> usize {
        match self {
            Self::SuperDevil => 0,
            Self::Devil => 1,
            Self::Turtle => 2,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turtle => "turtle",
            Self::Devil => "devil",
            Self::SuperDevil => "super-devil",
        })
    }
}

choices! {
    /// Which set of values the class rule starts from.
    pub enum ClassPreset {
        /// DINO's values.
        #[default]
        Paper = "paper",
        /// The values of the scheduler that DINO's authors published (Clavis).
        Clavis = "clavis",
    }
}

settings! {
    /// How threads are classed by their miss rate: turtles, devils, super-devils (DINO 3.3.2). `dino` uses
    /// the classes. The preset decides what is left out.
    #[derive(Copy)]
    pub struct ClassSettings {
        /// Which set of values the rule starts from.
        preset: ClassPreset, source: "DINO 3.3.2, 3.3.3; Clavis";
        /// Lowest miss rate of a devil.
        devil_from: Option<f64>, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX,
            source: "DINO 3.3.2", left_out: "2, or 1.5 with the preset \"clavis\"", example: "2.0";
        /// Miss rate above which a thread is a super-devil.
        super_devil_above: Option<f64>, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX,
            source: "DINO 3.3.2", left_out: "100, or 50 with the preset \"clavis\"", example: "100.0";
        /// How many intervals must agree on another class before a thread gets it.
        votes: Option<usize>, unit: "intervals", range: 1.0..=f64::MAX,
            source: "DINO 3.3.3", left_out: "7, or 5 with the preset \"clavis\"", example: "7";
        /// How many of the last intervals vote.
        of_last: Option<usize>, unit: "intervals", range: 1.0..=f64::MAX,
            source: "DINO 3.3.3", left_out: "10", example: "10";
    }
    where check = ClassSettings::agree
}

impl ClassSettings {
    /// The rule that the settings describe.
    pub fn rule(&self) -> ClassRule {
        let preset = match self.preset {
            ClassPreset::Paper => ClassRule::PAPER,
            ClassPreset::Clavis => ClassRule::CLAVIS,
        };
        ClassRule {
            devil_from: self.devil_from.unwrap_or(preset.devil_from),
            super_devil_above: self.super_devil_above.unwrap_or(preset.super_devil_above),
            votes: self.votes.unwrap_or(preset.votes),
            of_last: self.of_last.unwrap_or(preset.of_last),
            mean_moved_by: preset.mean_moved_by,
        }
    }

    fn agree(&self, wrong: &mut dyn FnMut(&str, String)) {
        let rule = self.rule();
        let (devil, super_devil) = (rule.devil_from, rule.super_devil_above);
        if super_devil < devil {
            let why = format!("must be at least `devil_from` ({devil}), not {super_devil}");
            wrong("super_devil_above", why);
        }
        let (votes, of_last) = (rule.votes, rule.of_last);
        if votes > of_last {
            let why = format!("must be at most `of_last` ({of_last}), not {votes}");
            wrong("votes", why);
        }
    }
}

/// Borders and votes, as they are used. Made from [`crate::settings::ClassSettings`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassRule {
    /// Lowest miss rate of a devil, in lines per 1000 instructions.
    pub devil_from: f64,
    /// Miss rate above which a thread is a super-devil, in lines per 1000 instructions.
    pub super_devil_above: f64,
    /// Intervals that must speak for a change.
    pub votes: usize,
    /// How many last intervals vote.
    pub of_last: usize,
    /// How far the mean of the last intervals must be from the rate that the thread was classed
    /// by, in lines per 1000 instructions; `None` where votes alone decide.
    pub mean_moved_by: Option<f64>,
}

impl ClassRule {
    /// DINO §3.3.2 and §3.3.3.
    pub const PAPER: Self = Self {
        devil_from: 2.0,
        super_devil_above: 100.0,
        votes: 7,
        of_last: 10,
        mean_moved_by: None,
    };

    /// The authors' own scheduler, Clavis 6.5.5.
    pub const CLAVIS: Self = Self {
        devil_from: 1.5,
        super_devil_above: 50.0,
        votes: 5,
        of_last: 10,
        mean_moved_by: Some(3.0),
    };

    /// The class of a miss rate in lines per 1000 instructions.
    pub fn class_of(&self, miss_rate: f64) -> Class {
        if miss_rate > self.super_devil_above {
            Class::SuperDevil
        } else if miss_rate >= self.devil_from {
            Class::Devil
        } else {
            Class::Turtle
        }
    }

    /// The class that the last intervals call for, with the rate to class the thread by; `None`
    /// when it keeps its class.
    fn change(&self, now: Class, classed_by: f64, last: &VecDeque<f64>) -> Option<(Class, f64)> {
        let mut votes = [0; Class::DEALT.len()];
        for &rate in last {
            votes[self.class_of(rate).index()] += 1;
        }
        votes[now.index()] = 0;
        let Some(least) = self.mean_moved_by else {
            let newest = *last.back()?;
            let to = Class::DEALT.into_iter().max_by_key(|c| votes[c.index()])?;
            return (votes[to.index()] >= self.votes).then_some((to, newest));
        };
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        if votes.iter().sum::<usize>() < self.votes || (mean - classed_by).abs() <= least {
            return None;
        }
        let rounded = mean.round();
        Some((self.class_of(rounded), rounded))
    }
}

/// What is remembered of one thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classed {
    class: Option<Class>,
    classed_by: f64,
    last: VecDeque<f64>,
}

impl Classed {
    /// The thread's class; `None` until its first interval with counts.
    pub fn class(&self) -> Option<Class> {
        self.class
    }

    /// Its miss rate in its last interval with counts, in lines per 1000 instructions.
    pub fn miss_rate(&self) -> Option<f64> {
        self.last.back().copied()
    }

    /// Takes in one more interval.
    pub fn observe(&mut self, miss_rate: f64, rule: &ClassRule) {
        while self.last.len() >= rule.of_last.max(1) {
            self.last.pop_front();
        }
        self.last.push_back(miss_rate);
        let Some(now) = self.class else {
            self.class = Some(rule.class_of(miss_rate));
            self.classed_by = miss_rate;
            return;
        };
        if let Some((class, by)) = rule.change(now, self.classed_by, &self.last) {
            self.class = Some(class);
            self.classed_by = by;
        }
    }
}

/// The classes of all threads of a machine.
#[derive(Clone, Debug)]
pub struct Classes {
    rule: ClassRule,
    threads: PerThread<Classed>,
}

impl Classes {
    /// Nothing seen yet.
    pub fn new(rule: ClassRule) -> Self {
        Self {
            rule,
            threads: PerThread::default(),
        }
    }

    /// Takes in one interval of a machine. The answer has one entry per thread, in their order.
    pub fn observe(&mut self, threads: &[Thread]) -> &[Classed] {
        let classed = self.threads.line_up(threads);
        for (thread, classed) in threads.iter().zip(classed.iter_mut()) {
            if let Some(rate) = thread.counts.and_then(|counts| counts.miss_rate()) {
                classed.observe(rate, &self.rule);
            }
        }
        classed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn classes(rule: &ClassRule, rates: &[f64]) -> Vec<Class> {
        let mut thread = Classed::default();
        let class = |&rate| {
            thread.observe(rate, rule);
            thread.class().expect("it has been counted")
        };
        rates.iter().map(class).collect()
    }

    #[test]
    fn borders_are_those_of_the_paper() {
        let class = |rate| ClassRule::PAPER.class_of(rate);
        assert_eq!(class(0.0), Class::Turtle);
        assert_eq!(class(1.999), Class::Turtle);
        assert_eq!(class(2.0), Class::Devil);
        assert_eq!(class(100.0), Class::Devil);
        assert_eq!(class(100.001), Class::SuperDevil);
        assert_eq!(ClassRule::CLAVIS.class_of(1.6), Class::Devil);
        assert_eq!(ClassRule::CLAVIS.class_of(51.0), Class::SuperDevil);
    }

    #[test]
    fn the_first_interval_gives_the_class_and_the_seventh_vote_changes_it() {
        let mut rates = vec![1.0];
        rates.extend([5.0; 7]);
        let seen = classes(&ClassRule::PAPER, &rates);
        assert_eq!(seen[..7], [Class::Turtle; 7]);
        assert_eq!(seen[7], Class::Devil);
    }

    #[test]
    fn votes_count_within_the_last_ten_only() {
        // Six devil intervals in any ten never make seven.
        let rates: Vec<f64> = (0..100)
            .map(|i| if i % 10 < 4 { 1.0 } else { 50.0 })
            .collect();
        assert!(
            classes(&ClassRule::PAPER, &rates)
                .iter()
                .all(|&c| c == Class::Turtle)
        );
    }

    #[test]
    fn clavis_needs_five_votes_and_a_mean_that_moved() {
        // Across the border of 1.5 on every interval, but never by more than 3.
        let near = [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0];
        assert!(
            classes(&ClassRule::CLAVIS, &near)
                .iter()
                .all(|&c| c == Class::Turtle)
        );
        let mut far = vec![1.0];
        far.extend([20.0; 5]);
        let seen = classes(&ClassRule::CLAVIS, &far);
        assert_eq!(seen[..5], [Class::Turtle; 5]);
        assert_eq!(seen[5], Class::Devil);
    }

    proptest! {
        #[test]
        fn a_spike_shorter_than_the_votes_changes_nothing(
            base in 0.0..1.9f64, spike in 2.0..500.0f64, length in 1usize..7, before in 1usize..30,
        ) {
            let mut rates = vec![base; before];
            rates.extend(std::iter::repeat_n(spike, length));
            rates.extend(std::iter::repeat_n(base, 20));
            let seen = classes(&ClassRule::PAPER, &rates);
            prop_assert!(seen.iter().all(|&class| class == Class::Turtle));
        }

        #[test]
        fn what_lasts_ten_intervals_is_the_class(
            start in proptest::collection::vec(0.0..300.0f64, 0..30), rate in 0.0..300.0f64,
        ) {
            let mut rates = start;
            rates.extend([rate; 10]);
            let seen = classes(&ClassRule::PAPER, &rates);
            prop_assert_eq!(*seen.last().unwrap(), ClassRule::PAPER.class_of(rate));
        }
    }
}
