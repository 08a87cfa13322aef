//! From counted runs to a program's figures: pure arithmetic.
//!
//! *Rule.* The time of 1000 instructions is what the core needs when its last-level cache answers
//! everything, and what it waits for lines from memory:
//!
//! ```text
//! t = 1000 * cpi / clock + lines * (latency - latency of the last-level cache) / in_flight
//! ```
//!
//! Both runs, local and remote, have the same first part, and `lines` are counted; so the difference
//! of their times gives `in_flight` and what remains of either gives `cpi`:
//!
//! ```text
//! in_flight = lines * (latency_remote - latency_local) / (t_remote - t_local)
//! ```
//!
//! *Terms.* `in_flight`: lines that the program has asked for and not yet got, on average, while it
//! waits (Little's law). NUMA penalty: CPI remote / CPI local (N-MASS §3.2, equation 1).
//!
//! *Properties.* A time made by the rule gives back the figures it was made from. `in_flight` is at
//! least 1 and at most what the core can hold; where the two times cannot be told apart it is the
//! core's limit, and [`InFlight`] says so: whatever hides the latency (a prefetcher, or no misses at
//! all), that limit makes the wait smallest.

use numaherd_experiment::statistics::{largest, mean, smallest};
use serde::Serialize;

use super::measured::Measured;

/// What the rule takes from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// Idle latency of local memory in ns.
    pub local_ns: f64,
    /// Idle latency of the remote node that was used, in ns.
    pub remote_ns: f64,
    /// Latency of the last-level cache in ns.
    pub llc_ns: f64,
    /// Core clock in GHz.
    pub clock_ghz: f64,
    /// Lines that a core can have in flight.
    pub in_flight: f64,
}

/// Ratios of one or several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Cycles per instruction.
    pub cycles_per_instruction: f64,
    /// Lines from memory per 1000 instructions.
    pub lines: f64,
    /// Largest less smallest cycles per instruction of the runs; 0 for a single one.
    pub spread: f64,
}

impl Rates {
    /// The mean of at least one run.
    pub fn of(runs: &[Measured]) -> Self {
        let cpi: Vec<f64> = runs.iter().map(Measured::cycles_per_instruction).collect();
        let all = || cpi.iter().copied();
        Self {
            cycles_per_instruction: mean(all()),
            lines: mean(runs.iter().map(Measured::lines_per_1000)),
            spread: largest(all()) - smallest(all()),
        }
    }
}

/// How the lines in flight were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InFlight {
    /// From the difference of the two times.
    Measured,
    /// The difference would make it less than one line.
    AtLeastOne,
    /// The difference would make it more than the core can hold.
    CoreLimit,
    /// The two times do not differ by more than repeats of one do.
    NotTold,
}

/// What the rule gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// Lines in flight while the program waits.
    pub misses_in_flight: f64,
    /// How these were found.
    pub how: InFlight,
    /// Cycles per instruction with the last-level cache answering all.
    pub cycles_per_instruction: f64,
}

/// CPI remote / CPI local, as measured.
pub fn numa_penalty(local: &Rates, remote: &Rates) -> f64 {
    remote.cycles_per_instruction / local.cycles_per_instruction
}

/// Takes a program's times apart, see the head of this file.
pub fn wait(local: &Rates, remote: &Rates, machine: &Latencies) -> Wait {
    let per_1000 = |rates: &Rates| rates.cycles_per_instruction * 1000.0 / machine.clock_ghz;
    let difference = per_1000(remote) - per_1000(local);
    let spread = local.spread.max(remote.spread) * 1000.0 / machine.clock_ghz;
    // What the core asked for is the same in both runs but for chance.
    let lines = f64::midpoint(local.lines, remote.lines);
    let raw = lines * (machine.remote_ns - machine.local_ns) / difference;
    let (misses_in_flight, how) = if difference <= spread || !raw.is_finite() {
        (machine.in_flight, InFlight::NotTold)
    } else if raw < 1.0 {
        (1.0, InFlight::AtLeastOne)
    } else if raw > machine.in_flight {
        (machine.in_flight, InFlight::CoreLimit)
    } else {
        (raw, InFlight::Measured)
    };
    let waited_ns = local.lines * (machine.local_ns - machine.llc_ns) / misses_in_flight;
    let waited = waited_ns * machine.clock_ghz / 1000.0;
    Wait {
        misses_in_flight,
        how,
        cycles_per_instruction: local.cycles_per_instruction - waited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Latencies = Latencies {
        local_ns: 180.0,
        remote_ns: 300.0,
        llc_ns: 30.0,
        clock_ghz: 2.0,
        in_flight: 10.0,
    };

    /// A run by the rule.
    fn made(cpi: f64, lines: f64, in_flight: f64, latency_ns: f64) -> Rates {
        let waited_ns = lines * (latency_ns - MACHINE.llc_ns) / in_flight;
        Rates {
            cycles_per_instruction: cpi + waited_ns * MACHINE.clock_ghz / 1000.0,
            lines,
            spread: 0.0,
        }
    }

    proptest! {
        #[test]
        fn what_the_rule_made_is_found_again(
            cpi in 0.2..40.0f64, lines in 1.0..1000.0f64, in_flight in 1.0..10.0f64,
        ) {
            let local = made(cpi, lines, in_flight, MACHINE.local_ns);
            let remote = made(cpi, lines, in_flight, MACHINE.remote_ns);
            let wait = wait(&local, &remote, &MACHINE);
            prop_assert!((wait.misses_in_flight - in_flight).abs() < 1e-6, "{wait:?}");
            prop_assert!((wait.cycles_per_instruction - cpi).abs() < 1e-6, "{wait:?}");
            prop_assert!(numa_penalty(&local, &remote) > 1.0);
        }

        #[test]
        fn lines_in_flight_stay_within_the_core(
            local in 0.1..300.0f64, remote in 0.1..300.0f64, lines in 0.0..1000.0f64,
            spread in 0.0..2.0f64,
        ) {
            let rates = |cycles_per_instruction| Rates { cycles_per_instruction, lines, spread };
            let wait = wait(&rates(local), &rates(remote), &MACHINE);
            prop_assert!((1.0..=10.0).contains(&wait.misses_in_flight), "{wait:?}");
        }
    }

    #[test]
    fn a_difference_within_the_spread_tells_nothing() {
        let local = Rates {
            spread: 0.5,
            ..made(4.0, 0.01, 1.0, MACHINE.local_ns)
        };
        let remote = made(4.0, 0.01, 1.0, MACHINE.remote_ns);
        let wait = wait(&local, &remote, &MACHINE);
        assert_eq!((wait.misses_in_flight, wait.how), (10.0, InFlight::NotTold));
        assert!((wait.cycles_per_instruction - 4.0).abs() < 0.01);
    }

    #[test]
    fn a_program_whose_latency_is_hidden_gets_the_cores_limit() {
        let local = made(4.0, 100.0, 500.0, MACHINE.local_ns);
        let remote = made(4.0, 100.0, 500.0, MACHINE.remote_ns);
        assert_eq!(wait(&local, &remote, &MACHINE).how, InFlight::CoreLimit);
    }

    #[test]
    fn more_wait_than_latency_is_one_line_at_a_time() {
        let local = made(4.0, 100.0, 0.5, MACHINE.local_ns);
        let remote = made(4.0, 100.0, 0.5, MACHINE.remote_ns);
        let wait = wait(&local, &remote, &MACHINE);
        assert_eq!(
            (wait.misses_in_flight, wait.how),
            (1.0, InFlight::AtLeastOne)
        );
    }
}
