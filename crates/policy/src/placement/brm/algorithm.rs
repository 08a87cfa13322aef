//! Algorithm 1 of BRM for one vCPU: its data and its procedures, in the paper's names.
//!
//! | paper | here |
//! |---|---|
//! | `Update(v)`, lines 14 to 27 | [`Vcpu::update`] (line 16 is [`crate::uncore`]) |
//! | `BiasRandomPick(v)`, lines 29 to 37 | [`Vcpu::bias_random_pick`] |
//! | `Migrate(v)`, lines 4 to 12 | `Brm::seat` |
//!
//! Readings:
//! 1. *`unc` of a node of which nothing is known.* §4.2: penalties are reset, "this will force the
//!    migration algorithm to explore on each node". Here: an unknown penalty is less than any other,
//!    as 0 would be.
//! 2. *`bias` at first.* Not printed. Here: the node that the vCPU is on, so the first better node
//!    becomes the bias; likewise when the old bias may no longer be used.
//! 3. *Steps.* Printed: a step up for every other node that was better, a step down for every one
//!    that was not. So on the second best of four nodes it is one up and two down: such a vCPU
//!    stays where it is, or hardly ever moves. The text (§4.4): "If current penalty is larger than
//!    the recorded penalty on any other node, the probability […] increases. […] Otherwise […]
//!    decreases." Here: as the text, one step a tick; as printed with [`Steps::Printed`]. With two
//!    nodes they are the same.
//! 4. *`vnc`* of the printed lines 18 to 20 is `unc`.
//! 5. *A bias to the node it is on* (set before the kernel or a user moved it there): picks that
//!    node, and the probability is reset. As printed.
//! 6. *Larger* (line 18): by more than `least_gain`, which is 0 as printed; see the top of
//!    `brm.rs`.
//!
//! Properties: as those at the top of `brm.rs`.

use numaherd_files::choices;
use rand::Rng;

use crate::policy::Random;

choices! {
    /// How the probability to move changes on a machine of more than two nodes: two readings of BRM.
    /// With two nodes they are the same.
    pub enum Steps {
        /// One step a tick: up if any other node had a smaller penalty, else down (BRM 4.4).
        #[default]
        Text = "text",
        /// A step for every other node (Algorithm 1, lines 17 to 26).
        Printed = "printed",
    }
}

/// What Algorithm 1 keeps of a vCPU. Nodes are by their place in the topology.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vcpu {
    /// The system-wide penalty when it was last on each node; `None` where nothing is known. As
    /// long as the highest node seen.
    unc: Vec<Option<f64>>,
    /// Probability to migrate in percent, 0 to 100.
    prob: u32,
    /// The node to go to; `None` at first.
    bias: Option<usize>,
}

/// Where a vCPU is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picked {
    /// The node, by its place in the topology.
    pub node: usize,
    /// The probability that it was drawn with, in percent; `None` where nothing was drawn.
    pub probability: Option<u32>,
}

impl Vcpu {
    /// `Update(v)` on node `n` with the system-wide penalty as it is now. `nodes` are those that it
    /// may use; one counts as better if its penalty was lower by more than `least_gain`.
    pub fn update(
        &mut self,
        n: usize,
        nodes: &[usize],
        penalty: f64,
        least_gain: f64,
        steps: Steps,
    ) {
        if self.unc.len() <= n {
            self.unc.resize(n + 1, None);
        }
        self.unc[n] = Some(penalty); // 16
        let known = self.bias.filter(|bias| nodes.contains(bias));
        let mut bias = known.unwrap_or(n);
        let (mut better, mut not) = (0, 0);
        for &i in nodes.iter().filter(|&&i| i != n) {
            // 17
            let enough = |unc| penalty - unc > least_gain;
            if self.penalty_on(i).is_none_or(enough) {
                // 18
                better += 1;
                if steps == Steps::Printed {
                    self.prob = (self.prob + 1).min(100); // 19
                }
                if self.penalty_on(bias) > self.penalty_on(i) {
                    bias = i; // 20, 21
                }
            } else {
                not += 1;
                if steps == Steps::Printed {
                    self.prob = self.prob.saturating_sub(1); // 24
                }
            }
        }
        self.bias = Some(bias);
        if steps == Steps::Text {
            self.prob = match (better, not) {
                (0, 0) => self.prob,
                (0, _) => self.prob.saturating_sub(1),
                _ => (self.prob + 1).min(100),
            };
        }
    }

    /// `BiasRandomPick(v)`: the node to go to; `None` to keep its core.
    pub fn bias_random_pick(&mut self, random: &mut Random) -> Option<Picked> {
        let rand = random.random_range(0..100); // 30
        let node = self.bias?;
        (rand < self.prob).then(|| Picked {
            node,                                              // 32
            probability: Some(std::mem::take(&mut self.prob)), // 33
        })
    }

    /// The node with the least penalty, without a draw; `on` where none is better. Not in the paper.
    pub fn best(&mut self, on: usize) -> Picked {
        self.prob = 0;
        let better = |bias: &usize| self.penalty_on(*bias) < self.penalty_on(on);
        Picked {
            node: self.bias.filter(better).unwrap_or(on),
            probability: None,
        }
    }

    /// The system-wide penalty when it was last on a node, `None` where nothing is known.
    pub fn penalty_on(&self, node: usize) -> Option<f64> {
        self.unc.get(node).copied().flatten()
    }

    /// The probability to migrate, in percent.
    #[cfg(test)]
    pub fn probability(&self) -> u32 {
        self.prob
    }

    /// Forgets all penalties (§4.2): the timer of §4.4.
    pub fn forget(&mut self) {
        self.unc.fill(None);
    }
}
