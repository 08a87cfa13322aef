//! Setting a thread's affinity: checks the thread's identity before and after, and reads the mask back.
//!
//! A thread's number may be reused after it has ended. The kernel can set an affinity only by thread number, so the
//! start time is compared before and after; in between, the number would have to come round the whole of `pid_max`.

use numaherd_topology::CpuSet;
use numaherd_world::{AffinityResult, ThreadId};

use crate::kernel::{Errno, Kernel};

/// How often to set a mask that the kernel refuses because the cpuset changes meanwhile (chosen here).
const MOST_TRIES: u32 = 8;

/// Gives a thread these CPUs.
pub(crate) fn set(kernel: &dyn Kernel, thread: ThreadId, cpus: &CpuSet) -> AffinityResult {
    if cpus.is_empty() {
        return failed(format!(
            "cannot keep {thread} to no CPU at all; its order is empty"
        ));
    }
    if kernel.born(thread.tid) != Some(thread.born) {
        return AffinityResult::Gone;
    }
    let answer = set_unless_refused(kernel, thread.tid, cpus);
    let born_after = kernel.born(thread.tid);
    if let Err(errno) = answer {
        if errno == Errno::SRCH || born_after != Some(thread.born) {
            return AffinityResult::Gone;
        }
        return failed(refusal(thread, cpus, errno));
    }
    match born_after {
        None => AffinityResult::Gone,
        Some(born) if born != thread.born => failed(format!(
            "{thread} ended just as its affinity was set, and its number went to a new thread at \
             once, which may have got the mask {cpus} instead; look with `taskset -pc {}`",
            thread.tid
        )),
        Some(_) => read_back(kernel, thread, cpus),
    }
}

/// Sets a mask. If the cpuset is narrowed during the call, Linux restores the former mask and answers `EINVAL`,
/// although CPUs of the mask are left (`__sched_setaffinity` in kernel/sched/syscalls.c, since 6.2): then it is set
/// again.
fn set_unless_refused(kernel: &dyn Kernel, tid: u32, cpus: &CpuSet) -> Result<(), Errno> {
    for _ in 1..MOST_TRIES {
        match kernel.set_affinity(tid, cpus) {
            Err(Errno::INVAL) => {}
            answer => return answer,
        }
    }
    kernel.set_affinity(tid, cpus)
}

/// The mask of a thread now; `None` when it has ended.
pub(crate) fn mask(kernel: &dyn Kernel, thread: ThreadId) -> Result<Option<CpuSet>, Errno> {
    if kernel.born(thread.tid) != Some(thread.born) {
        return Ok(None);
    }
    let mut words = Vec::new();
    match kernel.affinity(thread.tid, &mut words) {
        Ok(()) => Ok(Some(CpuSet::of_words(words))),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn read_back(kernel: &dyn Kernel, thread: ThreadId, cpus: &CpuSet) -> AffinityResult {
    let mut words = Vec::new();
    match kernel.affinity(thread.tid, &mut words) {
        Ok(()) => {
            let now = CpuSet::of_words(words);
            if now == *cpus {
                AffinityResult::Done
            } else {
                AffinityResult::Narrowed { now }
            }
        }
        Err(Errno::SRCH) => AffinityResult::Gone,
        Err(errno) => failed(format!(
            "set the affinity of {thread} to {cpus} but cannot read it back: {errno}"
        )),
    }
}

fn failed(error: String) -> AffinityResult {
    AffinityResult::Failed { error }
}

fn refusal(thread: ThreadId, cpus: &CpuSet, errno: Errno) -> String {
    let why = match errno {
        Errno::PERM | Errno::ACCESS => {
            "permission denied; it belongs to another user: run as root or give CAP_SYS_NICE"
        }
        Errno::INVAL => {
            "none of these CPUs is online and in its cpuset; the cpuset may have just changed: \
             read the topology and the thread again"
        }
        Errno::NOSYS => "there is no kernel behind a captured tree",
        Errno::BUSY => {
            "it is in the deadline class, and these CPUs do not have enough bandwidth for it"
        }
        _ => "unexpected; see sched_setaffinity(2)",
    };
    format!("cannot keep {thread} to CPUs {cpus}: {errno}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    const THREAD: ThreadId = ThreadId { tid: 7, born: 70 };

    fn kernel() -> FakeKernel {
        let kernel = FakeKernel::default();
        kernel.thread(7, 70, cpus("0-7"));
        kernel
    }

    #[test]
    fn set_and_read_back() {
        let kernel = kernel();
        assert_eq!(set(&kernel, THREAD, &cpus("2-3")), AffinityResult::Done);
        assert_eq!(kernel.mask(7), Some(cpus("2-3")));
    }

    #[test]
    fn a_mask_beyond_the_first_thousand_cpus() {
        let kernel = kernel();
        assert_eq!(
            set(&kernel, THREAD, &cpus("4000-4095")),
            AffinityResult::Done
        );
        assert_eq!(kernel.mask(7), Some(cpus("4000-4095")));
    }

    #[test]
    fn the_mask_of_a_thread_and_of_none_that_has_its_number() {
        let kernel = kernel();
        assert_eq!(mask(&kernel, THREAD), Ok(Some(cpus("0-7"))));
        let later = ThreadId { born: 71, ..THREAD };
        assert_eq!(mask(&kernel, later), Ok(None));
    }

    #[test]
    fn a_number_that_is_anothers_by_now_is_not_touched() {
        let kernel = FakeKernel::default();
        kernel.thread(7, 71, cpus("0-7"));
        assert_eq!(set(&kernel, THREAD, &cpus("2")), AffinityResult::Gone);
        assert_eq!(kernel.mask(7), Some(cpus("0-7")));
    }

    #[test]
    fn a_thread_that_ends_meanwhile_is_gone() {
        let kernel = kernel();
        kernel.refuse_affinity(Errno::SRCH);
        assert_eq!(set(&kernel, THREAD, &cpus("2")), AffinityResult::Gone);
    }

    #[test]
    fn a_number_used_again_meanwhile_is_owned_up_to() {
        let kernel = kernel();
        kernel.reuse_after_set(7, 99);
        match set(&kernel, THREAD, &cpus("2")) {
            AffinityResult::Failed { error } => assert!(error.contains("new thread"), "{error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_mask_that_is_refused_while_the_cpuset_changes_is_set_again() {
        let kernel = kernel();
        kernel.refuse_next_affinities(Errno::INVAL, MOST_TRIES - 1);
        assert_eq!(set(&kernel, THREAD, &cpus("2-3")), AffinityResult::Done);
        assert_eq!(kernel.mask(7), Some(cpus("2-3")));
    }

    #[test]
    fn a_cpuset_that_narrows_is_reported_with_what_holds() {
        let kernel = kernel();
        kernel.narrow_to(cpus("0-3"));
        assert_eq!(
            set(&kernel, THREAD, &cpus("2-5")),
            AffinityResult::Narrowed { now: cpus("2-3") }
        );
    }

    #[test]
    fn refusals_name_what_would_help() {
        for (errno, help) in [
            (Errno::PERM, "CAP_SYS_NICE"),
            (Errno::INVAL, "cpuset"),
            (Errno::NOSYS, "captured tree"),
        ] {
            let kernel = kernel();
            kernel.refuse_affinity(errno);
            match set(&kernel, THREAD, &cpus("2")) {
                AffinityResult::Failed { error } => assert!(error.contains(help), "{error}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(kernel.mask(7), Some(cpus("0-7")));
        }
        assert!(matches!(
            set(&kernel(), THREAD, &CpuSet::new()),
            AffinityResult::Failed { .. }
        ));
    }
}
