//! Where new pages go on a live machine: only for a program that is started for the run.
//!
//! To the kernel, the rule is a memory policy of each thread, which only the thread itself can set. A program can
//! be given one between fork and exec ([`start_with_new_pages`]); running processes cannot. The kernel has no
//! policy of random nodes.

use std::process::Command;

use numaherd_topology::Topology;
use numaherd_world::{NewPages, WorldError};

use crate::options::{HostOptions, Selection};
use crate::sys;
use crate::sys::new_pages::Interleaving;

/// Applies a rule to the new pages of a command that is about to start, and of what it starts. Tell the host by
/// [`HostOptions::started_with`].
///
/// # Errors
/// The kernel has no such rule.
pub fn start_with_new_pages(
    command: &mut Command,
    rule: NewPages,
    topology: &Topology,
) -> Result<(), WorldError> {
    match rule {
        NewPages::FirstTouch => {}
        NewPages::Interleave => interleave(command, Interleaving::Even, topology),
        NewPages::Random => return Err(unknown_to_the_kernel(rule)),
    }
    Ok(())
}

/// Spreads new pages of a command that is about to start, and of what it starts, over all nodes by the weights in
/// `/sys/kernel/mm/mempolicy/weighted_interleave` (Linux 6.9 or newer). An older kernel does not start it.
pub fn start_with_weighted_interleave(command: &mut Command, topology: &Topology) {
    interleave(command, Interleaving::Weighted, topology);
}

fn interleave(command: &mut Command, how: Interleaving, topology: &Topology) {
    let nodes = topology.memory_nodes().as_words().to_vec();
    sys::new_pages::interleave(command, how, nodes);
}

/// Whether a rule places new pages, as the selection was started.
pub(crate) fn check(options: &HostOptions, rule: NewPages) -> Result<(), WorldError> {
    let is_child = matches!(options.selection, Selection::Child { .. });
    match rule {
        NewPages::FirstTouch if is_child && options.started_with == NewPages::Interleave => {
            Err(refusal(
                "the program was started with its new pages interleaved, which only the program \
                 itself can change; restart it under the other policy"
                    .to_owned(),
            ))
        }
        NewPages::FirstTouch => Ok(()),
        NewPages::Random => Err(unknown_to_the_kernel(rule)),
        NewPages::Interleave if is_child && options.started_with == rule => Ok(()),
        NewPages::Interleave => Err(refusal(
            "only a process itself can set its memory policy, so this cannot apply to running \
             processes; start the program with numaherd run --policy interleave -- PROGRAM, or \
             with numactl --interleave=all"
                .to_owned(),
        )),
    }
}

fn unknown_to_the_kernel(rule: NewPages) -> WorldError {
    refusal(format!(
        "the kernel has no rule that places new pages by {rule}; simulate it"
    ))
}

fn refusal(reason: String) -> WorldError {
    WorldError {
        world: "this machine".to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(selection: Selection, started_with: NewPages) -> HostOptions {
        HostOptions {
            started_with,
            ..HostOptions::new(selection)
        }
    }

    #[test]
    fn only_a_program_started_so_has_its_new_pages_interleaved() {
        let child = || Selection::Child { pid: 1 };
        let interleave = NewPages::Interleave;
        assert!(check(&options(child(), interleave), interleave).is_ok());
        assert!(check(&options(child(), NewPages::FirstTouch), interleave).is_err());
        let told = check(&options(child(), interleave), NewPages::FirstTouch).unwrap_err();
        assert!(told.reason.contains("restart it"), "{}", told.reason);
        let others = options(Selection::Machine, interleave);
        let told = check(&others, interleave).unwrap_err().reason;
        assert!(
            told.contains("numaherd run --policy interleave -- PROGRAM"),
            "{told}"
        );
        assert!(check(&others, NewPages::FirstTouch).is_ok());
    }

    #[test]
    fn nobody_has_them_on_random_nodes() {
        let options = options(Selection::Child { pid: 1 }, NewPages::Random);
        assert!(check(&options, NewPages::Random).is_err());
    }
}
