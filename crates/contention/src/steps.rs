//! How far the iteration goes at once.
//!
//! Speeds answer each other: a faster thread makes others slower, and its own lines wait for them. So do waits: where lines
//! pass several channels, the demand for one falls with the waits of all. How strong these answers are shows in what the last
//! step has left (the secant method; for several unknowns with one factor, as Irons and Tuck, "A version of the Aitken accelerator for
//! computer iteration", 1969). One factor treats alike what is alike.

/// The least part of the way that is gone.
const LEAST_PART: f64 = 0.25;

/// How much of its way each unknown goes in a round. Its way leads to where it would be if the others stayed as they are.
#[derive(Default)]
pub(crate) struct Steps {
    part: f64,
    /// How far off each was before the last step.
    before: Vec<f64>,
}

impl Steps {
    /// The part where they are this far off now.
    pub(crate) fn part(&mut self, offs: &[f64]) -> f64 {
        let (mut along, mut square) = (0.0, 0.0);
        for (off, before) in offs.iter().zip(&self.before) {
            let closed = before - off;
            along += before * closed;
            square += closed * closed;
        }
        let part = self.part * along / square;
        // Where no step has been made, or one has led further away on the same side, there is nothing to learn from it.
        self.part = match part > 0.0 {
            true => part.clamp(LEAST_PART, 1.0),
            false => 1.0,
        };
        self.before.clear();
        self.before.extend_from_slice(offs);
        self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where something is after so many rounds that began at 1, if it is answered by so many times as much and 0 is right.
    fn after(rounds: usize, answer: f64) -> f64 {
        let mut steps = Steps::default();
        (0..rounds).fold(1.0, |at, _| {
            let off = answer * at - at;
            at + steps.part(&[off]) * off
        })
    }

    #[test]
    fn the_second_step_knows_the_answer_to_the_first() {
        assert_eq!(after(1, 0.0), 0.0);
        for answer in [-3.0, -1.0, -0.1] {
            assert!((after(1, answer) - answer).abs() < 1e-12, "a whole step");
            assert!(after(2, answer).abs() < 1e-12);
        }
    }

    #[test]
    fn no_step_is_longer_than_the_way_or_too_short_to_arrive() {
        assert_eq!(after(2, 0.5), 0.25);
        assert!(after(40, -6.0).abs() < 1e-4, "{}", after(40, -6.0));
    }
}
