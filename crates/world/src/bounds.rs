//! What a thread may use, and one question: is its mask the one that it was given?
//!
//! The kernel narrows masks by itself. CPUs that go offline, or leave the thread's cpuset, leave the mask too, and a mask
//! of which nothing is left becomes all of the cpuset. Code that compares masks must allow for this, or it mistakes what
//! the kernel did for a user's choice.

use numaherd_topology::CpuSet;

/// The CPUs that a thread may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Its mask.
    pub mask: CpuSet,
    /// The CPUs of its cpuset that are online.
    pub cpus: CpuSet,
    /// The CPUs that its cpuset had shortly before, if that is changing: the kernel reports a change before it has renewed
    /// the masks of all threads.
    pub earlier: Vec<CpuSet>,
}

impl Bounds {
    /// The bounds of a thread whose cpuset has not changed lately.
    pub fn new(mask: CpuSet, cpus: CpuSet) -> Self {
        Self {
            mask,
            cpus,
            earlier: Vec::new(),
        }
    }

    /// Whether its mask is the one `given`, as [`is_mask`] says, by its present cpuset or by one of shortly before.
    pub fn is(&self, given: &CpuSet) -> bool {
        let was = |cpus: &CpuSet| self.mask.is_subset(cpus) && is_mask(&self.mask, given, cpus);
        is_mask(&self.mask, given, &self.cpus) || self.earlier.iter().any(was)
    }
}

/// Whether a thread that was `given` a mask still has it if its mask is `now` this one: the same, or what the
/// kernel has left of it. `cpus` are the CPUs of its cpuset that are online.
pub fn is_mask(now: &CpuSet, given: &CpuSet, cpus: &CpuSet) -> bool {
    if now == given {
        return true;
    }
    let left = given.intersection(cpus);
    let left = if left.is_empty() { cpus } else { &left };
    now.intersection(cpus) == *left
}

/// Whether a mask covers all `cpus`: the CPUs of the thread's cpuset that are online.
pub fn is_whole(mask: &CpuSet, cpus: &CpuSet) -> bool {
    cpus.is_subset(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(now: &str, given: &str, cpus: &str) -> bool {
        let set = |list: &str| list.parse().unwrap();
        is_mask(&set(now), &set(given), &set(cpus))
    }

    #[test]
    fn a_mask_is_itself_and_what_the_kernel_leaves_of_it() {
        assert!(is("0-3", "0-3", "0-7"));
        assert!(is("0-2", "0-3", "0-2,4-7"), "CPU 3 is offline");
        assert!(is("2-3", "0-3", "2-5"), "the cpuset was narrowed");
        assert!(is("4-7", "0-3", "4-7"), "nothing is left of it");
    }

    #[test]
    fn a_mask_may_still_be_what_was_left_of_it_in_the_cpuset_of_before() {
        let set = |list: &str| list.parse().unwrap();
        let bounds = |mask| Bounds {
            earlier: vec![set("1,6"), set("4-5")],
            ..Bounds::new(set(mask), set("0-7"))
        };
        assert!(bounds("1,6").is(&set("7")), "nothing was left of it");
        assert!(bounds("6").is(&set("6-7")));
        assert!(!bounds("1").is(&set("7")), "no cpuset was that");
        assert!(!bounds("0-1").is(&set("1")));
    }

    #[test]
    fn a_mask_that_someone_chose_is_another() {
        assert!(!is("0-2", "0-3", "0-7"));
        assert!(!is("0-7", "0-3", "0-7"));
        assert!(!is("4-5", "0-3", "4-7"));
    }
}
