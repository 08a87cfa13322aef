//! `numaherd advise -w CPUS[:MB]`: which nodes to start a program on. It answers as `numad -w` does, so that
//! libvirt's `placement='auto'` can ask it: standard output has only the list of nodes and a line feed, and the exit
//! code is 0. All messages go to standard error.

use anyhow::Result;
use numaherd_policy::advise::{Amount, Room, advise as choose};
use numaherd_topology::sysfs;

use crate::cli::{Advise, Wanted};
use crate::exit::{Exit, OrExit, ended};
use crate::print;

const MIB: u64 = 1 << 20;

/// Looks at the machine and answers.
///
/// # Errors
/// The machine cannot be read, or has no node that may be used.
pub fn advise(options: &Advise) -> Result<()> {
    let topology = sysfs::read(&options.root).or_exit(Exit::Failure)?;
    let rooms = numaherd_host::rooms(&options.root, &topology).or_exit(Exit::Failure)?;
    let rooms: Vec<Room> = rooms
        .into_iter()
        .map(|room| Room {
            node: room.node,
            has_cpus: !room.cpus.is_empty(),
            idle: room.idle,
            free: room.free_bytes,
        })
        .collect();
    let want = Amount {
        cpus: options.want.cpus.saturating_mul(100),
        bytes: options.want.mib.saturating_mul(MIB),
    };
    let advice = choose(&topology, &rooms, want);
    if advice.nodes.is_empty() {
        let message = "no node with memory may be used by this program: see its cpuset";
        return Err(ended(Exit::Failure, message));
    }
    if let Some(lack) = lack_text(options.want, advice.lacks) {
        print::say(lack);
    }
    print::out(&format!("{}\n", advice.nodes))
}

/// What is missing, if anything.
fn lack_text(want: Wanted, lacks: Amount) -> Option<String> {
    let cpus = (lacks.cpus > 0).then(|| {
        let cpus = lacks.cpus as f64 / 100.0;
        format!("{cpus:.1} of {} CPUs idle", want.cpus)
    });
    let memory = (lacks.bytes > 0).then(|| {
        let mib = lacks.bytes.div_ceil(MIB);
        format!("{mib} of {} MiB of memory free", want.mib)
    });
    let lacking: Vec<String> = cpus.into_iter().chain(memory).collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "all nodes together lack {}; they are named all the same",
            lacking.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_is_said_in_the_units_that_were_asked_in() {
        let want = Wanted { cpus: 8, mib: 4096 };
        let said = |cpus, bytes| lack_text(want, Amount { cpus, bytes });
        assert_eq!(said(0, 0), None);
        let both = said(130, 5 * MIB + 1).unwrap();
        assert!(
            both.contains("1.3 of 8 CPUs idle and 6 of 4096 MiB"),
            "{both}"
        );
    }
}
