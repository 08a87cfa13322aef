//! Counts how often the kernel has moved a thread to another CPU: `se.nr_migrations` in
//! `/proc/thread-self/sched`, which kernels built with CONFIG_SCHED_DEBUG have.

use std::fs;

/// Migrations of the calling thread since its creation; `None` if the kernel does not report them.
pub fn so_far() -> Option<u64> {
    parse(&fs::read_to_string("/proc/thread-self/sched").ok()?)
}

/// Finds the figure in the file's lines of `name : value`.
fn parse(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("se.nr_migrations"))?;
    line.trim_start().strip_prefix(':')?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTURED: &str = "\
cat (4711, #threads: 1)
-------------------------------------------------------------------
se.exec_start                                :       1234567.123456
se.vruntime                                  :           123.456789
se.nr_migrations                             :                   17
nr_switches                                  :                    3
";

    #[test]
    fn the_figure_is_found_among_the_others() {
        assert_eq!(parse(CAPTURED), Some(17));
    }

    #[test]
    fn a_kernel_that_does_not_tell_gives_no_figure() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("se.nr_migrations : many"), None);
        assert_eq!(parse("se.nr_migrations_cold : 3"), None);
    }
}
