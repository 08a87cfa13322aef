//! `/proc/PID/numa_maps`: on which nodes the pages of each mapping are.
//!
//! `N3=20` counts pages of the size that `kernelpagesize_kB` gives (the base size but for
//! hugetlbfs; transparent huge pages are counted as base pages, fs/proc/task_mmu.c).

use std::collections::BTreeMap;

use numaherd_topology::NodeId;
use numaherd_world::Residency;

use super::{decimal, hexadecimal, lines, split_once, words};

/// One mapping's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePages {
    /// First address, as in `maps`.
    pub start: u64,
    /// The memory policy that its user gave it (`interleave:0-3`); `None` for the kernel's own rule, also where it was
    /// asked for (`default`, `local`).
    pub policy: Option<String>,
    /// Resident base pages by node.
    pub pages: Vec<(NodeId, u64)>,
    /// Whether one of the pages is mapped more than once (`mapmax=`).
    pub mapped_again: bool,
}

/// Reads a numa_maps file; mappings without resident pages are left out.
pub fn parse(text: &[u8], base_page_bytes: u64) -> Vec<NodePages> {
    lines(text)
        .filter_map(|text| line(text, base_page_bytes))
        .collect()
}

fn line(line: &[u8], base_page_bytes: u64) -> Option<NodePages> {
    let mut fields = words(line);
    let start = hexadecimal(fields.next()?)?;
    let policy = fields
        .next()
        .filter(|policy| !matches!(*policy, b"default" | b"local"));
    let mut pages = Vec::new();
    let mut page_bytes = base_page_bytes;
    let mut mapped_again = false;
    for field in fields {
        let Some((key, value)) = split_once(field, b'=') else {
            continue;
        };
        if let Some(node) = key.strip_prefix(b"N").and_then(decimal) {
            if let (Ok(node), Some(count)) = (u32::try_from(node), decimal(value)) {
                pages.push((NodeId(node), count));
            }
        } else if key == b"mapmax" {
            mapped_again = decimal(value).is_none_or(|times| times > 1);
        } else if key == b"kernelpagesize_kB" {
            page_bytes = decimal(value)?.checked_mul(1024)?;
        }
    }
    let scale = (page_bytes / base_page_bytes.max(1)).max(1);
    for (_, count) in &mut pages {
        *count = count.saturating_mul(scale);
    }
    (!pages.is_empty()).then_some(NodePages {
        start,
        policy: policy.map(|policy| String::from_utf8_lossy(policy).into_owned()),
        pages,
        mapped_again,
    })
}

/// All mappings together.
pub fn residency(mappings: &[NodePages]) -> Residency {
    let mut by_node = BTreeMap::new();
    for &(node, count) in mappings.iter().flat_map(|mapping| &mapping.pages) {
        let sum: &mut u64 = by_node.entry(node).or_default();
        *sum = sum.saturating_add(count);
    }
    Residency {
        pages: by_node
            .into_iter()
            .filter(|&(_, pages)| pages > 0)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTURED: &[u8] = b"\
00400000 default file=/usr/bin/chase mapped=2 N0=2 kernelpagesize_kB=4\n\
7f0000000000 default anon=4096 dirty=4096 active=0 N0=4000 N2=96 kernelpagesize_kB=4\n\
7f1000000000 bind:1 file=/dev/hugepages/x\\040y huge dirty=3 N1=3 kernelpagesize_kB=2048\n\
7f2000000000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4\n\
7f3000000000 default file=/N7=9\n\
7f4000000000 default file=/memfd:x dirty=2 mapmax=3 N0=2 kernelpagesize_kB=4\n";

    #[test]
    fn pages_by_node_in_base_pages() {
        let mappings = parse(CAPTURED, 4096);
        assert_eq!(mappings.len(), 5, "a mapping without pages is left out");
        assert_eq!(mappings[1].start, 0x7f00_0000_0000);
        let mapped_again: Vec<bool> = mappings.iter().map(|m| m.mapped_again).collect();
        assert_eq!(mapped_again, [false, false, false, false, true]);
        let policies: Vec<_> = mappings.iter().map(|m| m.policy.as_deref()).collect();
        assert_eq!(policies, [None, None, Some("bind:1"), None, None]);
        let residency = residency(&mappings);
        assert_eq!(
            residency.pages,
            [(NodeId(0), 4007), (NodeId(1), 3 * 512), (NodeId(2), 96)]
        );
        assert_eq!(residency.home(), Some(NodeId(0)));
    }
}
