//! `/proc/PID/status`: process of a thread, allowed CPUs and nodes, user, capabilities, system call filters.

use numaherd_topology::{CpuSet, NodeSet};

use super::{decimal, hexadecimal, lines, split_once, words};

/// What is used of a status file; `None` for lines that are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Number of the process; of a thread's own status file, that of its process.
    pub process: Option<u32>,
    /// Effective user id.
    pub user: Option<u32>,
    /// Affinity mask.
    pub cpus: Option<CpuSet>,
    /// Nodes it may have memory on.
    pub nodes: Option<NodeSet>,
    /// Effective capabilities.
    pub capabilities: Option<u64>,
    /// Mode of system call filtering: 0 none, 2 by a filter.
    pub seccomp: Option<u64>,
}

impl Status {
    /// Whether it has a capability in effect (its number in include/uapi/linux/capability.h).
    pub fn has(&self, capability: u32) -> bool {
        self.capabilities.unwrap_or(0) >> capability & 1 == 1
    }
}

/// Reads a status file.
pub fn parse(text: &[u8]) -> Status {
    let mut status = Status::default();
    for line in lines(text) {
        let Some((key, value)) = split_once(line, b':') else {
            continue;
        };
        let value = value.trim_ascii();
        let list = || std::str::from_utf8(value).ok();
        let number = |value| decimal(value).and_then(|number| number.try_into().ok());
        match key {
            b"Tgid" => status.process = number(value),
            // Real, effective, saved, file system.
            b"Uid" => {
                status.user = words(value).nth(1).and_then(number);
            }
            b"Cpus_allowed_list" => status.cpus = list().and_then(|list| list.parse().ok()),
            b"Mems_allowed_list" => status.nodes = list().and_then(|list| list.parse().ok()),
            b"CapEff" => status.capabilities = hexadecimal(value),
            b"Seccomp" => status.seccomp = decimal(value),
            _ => {}
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_are_used() {
        let status = parse(
            b"Name:\ta: b\nTgid:\t7\nUid:\t1000\t0\t1000\t1000\nCapEff:\t000001fffeffffff\nSeccomp:\t2\n\
              Cpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0,2\n",
        );
        assert_eq!((status.process, status.user), (Some(7), Some(0)));
        assert_eq!(status.cpus, Some("0-3,8".parse().unwrap()));
        assert_eq!(status.nodes, Some("0,2".parse().unwrap()));
        assert_eq!(status.capabilities, Some(0x01ff_feff_ffff));
        assert_eq!(status.seccomp, Some(2));
    }

    #[test]
    fn what_is_not_there_is_not_made_up() {
        assert_eq!(
            parse(b"Name:\tx\nMems_allowed_list:\tx-y\n"),
            Status::default()
        );
    }
}
