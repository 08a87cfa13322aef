//! Threads that may have been in the middle of starting another when their affinity was given back.
//!
//! A child gets the affinity that its parent had when the call began, and is invisible until the call has done most of
//! its work. On a busy machine the parent can wait for a CPU in between, for as long as others keep it busy. A search
//! for heirs after the parent got its affinity back meanwhile does not see the child, which stays bound.
//!
//! It may also wait in the kernel (`D`) for the lock of its memory, which readers of its `environ` or `numa_maps` hold.
//!
//! Rule: a thread that has a CPU, or waits for one or in the kernel, when it is given back is *through* once it does
//! neither, or has run for [`ENOUGH_NS`] since. A look that begins when all are through sees every child.
//!
//! What remains: a call that takes longer, of a process with very much memory; and a call that waits in the kernel
//! longer than a look waits for it: most such threads wait for a disk, possibly for ever.

use crate::files::Root;
use crate::proc::{decimal, stat, words};

/// CPU time in ns in which a thread in the middle of starting another finishes that (chosen here).
const ENOUGH_NS: u64 = 5_000_000;

/// Those that are not through, each with the CPU time at which it is.
#[derive(Debug, Default)]
pub(crate) struct MidFork {
    threads: Vec<(u32, u64)>,
}

impl MidFork {
    /// A thread has been given its affinity back just now.
    pub(crate) fn given_back(&mut self, root: &Root, tid: u32) {
        // If the kernel keeps no times, this is unknown.
        if matches!(state(root, tid), Some(b'R' | b'D'))
            && let Some(ran_ns) = ran_ns(root, tid)
        {
            self.threads.push((tid, ran_ns.saturating_add(ENOUGH_NS)));
        }
    }

    /// Whether all are through.
    pub(crate) fn are_through(&mut self, root: &Root) -> bool {
        self.threads.retain(|&(tid, through_ns)| {
            matches!(state(root, tid), Some(b'R' | b'D'))
                && ran_ns(root, tid).is_some_and(|ran_ns| ran_ns < through_ns)
        });
        self.threads.is_empty()
    }

    /// Gives up on the threads that wait in the kernel.
    pub(crate) fn leave_waiting(&mut self, root: &Root) {
        self.threads
            .retain(|&(tid, _)| state(root, tid) != Some(b'D'));
    }
}

fn state(root: &Root, tid: u32) -> Option<u8> {
    let text = root.read(&format!("proc/{tid}/stat")).ok()?;
    stat::parse(&text).map(|stat| stat.state)
}

fn ran_ns(root: &Root, tid: u32) -> Option<u64> {
    let text = root.read(&format!("proc/{tid}/schedstat")).ok()?;
    decimal(words(&text).next()?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fake;

    #[test]
    fn a_thread_is_through_when_it_rests_has_run_for_long_enough_or_has_ended() {
        let (folder, root) = fake::root();
        let own = folder.path().join("proc/7");
        fs::create_dir_all(&own).unwrap();
        let set = |state: char, ran_ns: u64| {
            let rest = "1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 60 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0";
            fs::write(own.join("stat"), format!("7 (p) {state} {rest}\n")).unwrap();
            fs::write(own.join("schedstat"), format!("{ran_ns} 5 6\n")).unwrap();
        };
        let mut threads = MidFork::default();
        assert!(threads.are_through(&root));
        for (state, ran_ns) in [('S', 1_000), ('R', 1_000 + ENOUGH_NS)] {
            set('R', 1_000);
            threads.given_back(&root, 7);
            assert!(!threads.are_through(&root));
            set('R', ENOUGH_NS);
            assert!(!threads.are_through(&root));
            set(state, ran_ns);
            assert!(threads.are_through(&root));
            // It is no longer looked at.
            set('R', 1_000);
            assert!(threads.are_through(&root));
        }
        threads.given_back(&root, 7);
        fs::remove_dir_all(&own).unwrap();
        assert!(threads.are_through(&root));
    }

    #[test]
    fn a_thread_that_waits_in_the_kernel_is_not_through_until_it_is_left() {
        let (folder, root) = fake::root();
        let own = folder.path().join("proc/7");
        fs::create_dir_all(&own).unwrap();
        let set = |state: char| {
            let rest = "1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 60 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0";
            fs::write(own.join("stat"), format!("7 (p) {state} {rest}\n")).unwrap();
            fs::write(own.join("schedstat"), "1000 5 6\n").unwrap();
        };
        let mut threads = MidFork::default();
        set('D');
        threads.given_back(&root, 7);
        assert!(!threads.are_through(&root));
        set('R');
        threads.leave_waiting(&root);
        assert!(!threads.are_through(&root), "it waits for a CPU");
        set('D');
        threads.leave_waiting(&root);
        assert!(threads.are_through(&root));
    }

    #[test]
    fn one_that_rests_is_through_at_once() {
        let (folder, root) = fake::root();
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        let mut threads = MidFork::default();
        threads.given_back(&root, 7);
        assert!(threads.are_through(&root));
    }
}
