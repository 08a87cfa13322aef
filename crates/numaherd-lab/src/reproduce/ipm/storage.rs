//! §4.5.1: what the unit's structures take of main memory: Table I, Eq. 10 to 13.

use anyhow::Result;
use numaherd_hardware::{IpmConfig, Structure};
use numaherd_topology::Machine;
use numaherd_trace::world::Hardware;

use super::super::claim::{Says, claim};
use super::Claim;

const GIB: u64 = 1 << 30;

/// The lines of Table I.
///
/// # Errors
/// Only when the program's own data are damaged.
pub(super) fn claims() -> Result<Vec<Claim>> {
    // Table I has 64 virtual cores of 256 TLB entries each; Table II gives two of them 512.
    let mut config = Hardware::of(&Machine::preset("xeon-x7550-4s")?)?.config;
    if let Some(l2) = config.tlb.as_mut().and_then(|tlb| tlb.l2.as_mut()) {
        l2.entries = 256;
    }
    // The paper gives numbers of threads 16 bits, enough for 65,536; the matrix has room for 1024.
    let memory = 128 * GIB;
    let unit = IpmConfig::of_paper();
    let wide = unit.storage(&config, memory, 65_536)?;
    let matrix = unit.storage(&config, memory, 1024)?.sharing_matrix;
    let line = |id: &str, what: &str, unit: &str, figure: f64, ours: f64| {
        let says = Says::Point {
            figure,
            tolerance: figure * 0.05,
        };
        claim(id, "4.5.1, Table I", what, unit, says, ours)
    };
    let kib = |structure: &Structure| structure.bytes() as f64 / 1024.0;
    let share = |structure: &Structure| structure.overhead(memory) * 100.0;
    let (table, history) = (&wide.access_table, &wide.page_history);
    Ok(vec![
        line(
            "table1-tat-size",
            "size of the TLB Access Table",
            "KiB",
            256.0,
            kib(table),
        ),
        line(
            "table1-tat-share",
            "of 128 GiB of memory",
            "%",
            0.0002,
            share(table),
        ),
        line(
            "table1-pht-size",
            "size of the Page History Table",
            "MiB",
            512.0,
            kib(history) / 1024.0,
        ),
        line(
            "table1-pht-share",
            "of 128 GiB of memory",
            "%",
            0.4,
            share(history),
        )
        .note("16 of 4096 bytes are 0.39 %"),
        line(
            "table1-sm-size",
            "size of the Sharing Matrix",
            "MiB",
            4.0,
            kib(&matrix) / 1024.0,
        ),
        line(
            "table1-sm-share",
            "of 128 GiB of memory",
            "%",
            0.0032,
            share(&matrix),
        ),
    ])
}

#[cfg(test)]
mod tests {
    #[test]
    fn table_one_comes_out_as_printed() {
        for claim in super::claims().unwrap() {
            assert!(claim.holds(), "{}: {}", claim.id, claim.ours);
        }
    }
}
