//! Energy: of memory, of links, of cores.
//!
//! | constant | value | from |
//! |---|---|---|
//! | a bit read from or written to DRAM | 70 pJ | DDR3 at full use: Malladi et al., ISCA 2012, "Towards Energy-Proportional Datacenter Memory with Mobile DRAM" [C] |
//! | a bit over one link between processors | 20 pJ | serial links over a board at 6.4 to 8 GT/s, both ends: 10 to 25 pJ, as given for QPI and HyperTransport [C] |
//! | a core's instruction beyond its static power | 1.9 nJ | [D] from a Xeon E5-2650: 95 W for 8 cores [B], of it half static, so 6 W a core at 2 GHz and some 1.6 instructions a cycle; Horowitz (ISSCC 2014) has 0.07 nJ for a simple core [C] |
//! | a core's static power with its share of the rest of the processor, running or not | 6 W | [D] the other half |
//!
//! Marks as in FACTS: [B] in a manual, [C] recalled, [D] derived. So shares of the whole are of the right
//! order, and differences between policies stem from lines, hops and time, which are modelled.
//! DRAM's own static power is in its figure per bit.

use serde::Serialize;

/// A bit to or from memory, in pJ.
const DRAM_PJ_PER_BIT: f64 = 70.0;
/// A bit over one link, in pJ.
const LINK_PJ_PER_BIT: f64 = 20.0;
/// An instruction, beyond static power, in nJ.
const INSTRUCTION_NJ: f64 = 1.9;
/// A core, with its share of the rest of the processor, in W.
const CORE_STATIC_W: f64 = 6.0;

/// Where energy went, in J.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Energy {
    /// Memory.
    pub dram_j: f64,
    /// Links between nodes.
    pub link_j: f64,
    /// Instructions.
    pub core_dynamic_j: f64,
    /// Static power of all cores, for as long as the run took.
    pub core_static_j: f64,
    /// The sum of these.
    pub total_j: f64,
    /// Total energy per instruction, in nJ; 0 without instructions.
    pub per_instruction_nj: f64,
}

/// What a run did that costs energy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Bytes to and from memory.
    pub(super) dram_bytes: u64,
    /// Bytes over links, counted once for each link.
    pub(super) link_bytes: u64,
    pub(super) instructions: u64,
    pub(super) seconds: f64,
    pub(super) cores: usize,
}

impl Energy {
    pub(super) fn of(spent: &Spent) -> Self {
        let joules = |bytes: u64, pj_per_bit: f64| bytes as f64 * 8.0 * pj_per_bit * 1e-12;
        let dram_j = joules(spent.dram_bytes, DRAM_PJ_PER_BIT);
        let link_j = joules(spent.link_bytes, LINK_PJ_PER_BIT);
        let core_dynamic_j = spent.instructions as f64 * INSTRUCTION_NJ * 1e-9;
        let core_static_j = CORE_STATIC_W * spent.cores as f64 * spent.seconds;
        Self::of_parts(
            [dram_j, link_j, core_dynamic_j, core_static_j],
            spent.instructions,
        )
    }

    /// The energy spent since `earlier`, on that many instructions.
    pub(super) fn since(&self, earlier: &Self, instructions: u64) -> Self {
        let parts = [
            self.dram_j - earlier.dram_j,
            self.link_j - earlier.link_j,
            self.core_dynamic_j - earlier.core_dynamic_j,
            self.core_static_j - earlier.core_static_j,
        ];
        Self::of_parts(parts, instructions)
    }

    fn of_parts(parts: [f64; 4], instructions: u64) -> Self {
        let [dram_j, link_j, core_dynamic_j, core_static_j] = parts;
        let total_j = parts.iter().sum();
        let per_instruction_nj = match instructions {
            0 => 0.0,
            instructions => total_j * 1e9 / instructions as f64,
        };
        Self {
            dram_j,
            link_j,
            core_dynamic_j,
            core_static_j,
            total_j,
            per_instruction_nj,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_what_its_figure_says() {
        let energy = Energy::of(&Spent {
            dram_bytes: 1_000_000_000,
            link_bytes: 500_000_000,
            instructions: 1_000_000_000,
            seconds: 0.5,
            cores: 4,
        });
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(near(energy.dram_j, 0.56), "{energy:?}");
        assert!(near(energy.link_j, 0.08), "{energy:?}");
        assert!(near(energy.core_dynamic_j, 1.9), "{energy:?}");
        assert!(near(energy.core_static_j, 12.0), "{energy:?}");
        assert!(near(energy.per_instruction_nj, 14.54), "{energy:?}");
    }
}
