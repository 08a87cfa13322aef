//! `/proc/stat`: how each CPU spent its time since boot, in clock ticks.
//!
//! A line `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; user and nice
//! include the time of guests. Older kernels write fewer columns.

use std::collections::BTreeMap;

use super::{decimal, lines, words};

/// Where a CPU's time went, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Nothing to run, whether or not a thread waited for a disk.
    pub idle: u64,
    /// All of it.
    pub all: u64,
}

impl CpuTime {
    /// Idle ticks and all ticks until a later reading; `None` if there were none.
    pub fn until(&self, later: &Self) -> Option<(u64, u64)> {
        let all = later.all.checked_sub(self.all).filter(|&all| all > 0)?;
        // The kernel's idle time may decrease by a tick after a CPU was offline.
        let idle = later.idle.saturating_sub(self.idle).min(all);
        Some((idle, all))
    }
}

/// Time by CPU number. Malformed lines are left out.
pub fn parse(text: &[u8]) -> BTreeMap<u32, CpuTime> {
    let of_line = |line| {
        let mut fields = words(line);
        let number = decimal(fields.next()?.strip_prefix(b"cpu")?)?;
        let times: Vec<u64> = fields.take(8).map(decimal).collect::<Option<_>>()?;
        let sum = |times: &[u64]| times.iter().copied().fold(0, u64::saturating_add);
        let time = CpuTime {
            idle: sum(times.get(3..times.len().min(5))?),
            all: sum(&times),
        };
        Some((number.try_into().ok()?, time))
    };
    lines(text).filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_line_and_the_sum_of_all_is_none() {
        let times = parse(
            b"cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 9 10\ncpu12 1 1 1 7\ncpu3 x\nintr 5\n",
        );
        let expected = [
            (0, CpuTime { idle: 45, all: 72 }),
            (12, CpuTime { idle: 7, all: 10 }),
        ];
        assert_eq!(times, expected.into());
    }
}
