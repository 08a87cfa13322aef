//! IPM §4.5.1, Table I, Eq. 10 to 13: the main memory that the unit's structures take.

use anyhow::Result;
use numaherd_experiment::claims::Measured;
use numaherd_hardware::IpmConfig;
use numaherd_topology::Machine;
use numaherd_trace::world::Hardware;

const GIB: u64 = 1 << 30;
const KIB: f64 = 1024.0;

pub(super) fn measure() -> Result<Measured> {
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
    let structures = [
        ("tat", &wide.access_table, KIB),
        ("pht", &wide.page_history, KIB * KIB),
        ("sm", &matrix, KIB * KIB),
    ];
    let mut measured = Measured::new();
    for (name, structure, of_unit) in structures {
        measured.figure(
            format!("table1-{name}-size"),
            structure.bytes() as f64 / of_unit,
        );
        measured.figure(
            format!("table1-{name}-share"),
            structure.overhead(memory) * 100.0,
        );
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use numaherd_experiment::claims::{Claims, Paper};

    #[test]
    fn table_one_comes_out_as_printed() {
        let mut claims = Claims::built_in(Paper::Ipm).unwrap();
        claims.claims.retain(|claim| claim.id.starts_with("table1"));
        let lines = claims.judge(&super::measure().unwrap()).unwrap();
        assert_eq!(lines.len(), 6);
        for line in lines {
            assert!(line.holds, "{}: {:?}", line.id, line.ours);
        }
    }
}
