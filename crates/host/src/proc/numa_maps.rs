//! `/proc/PID/numa_maps`: on which nodes each mapping's pages are, and of which kind.
//!
//! `N3=20` counts pages of the size that `kernelpagesize_kB` gives (the base size except for hugetlbfs; transparent
//! huge pages count as base pages, fs/proc/task_mmu.c).
//!
//! Kinds: `anon=` counts anonymous pages, which are the process's own, also where it wrote to a file mapped privately.
//! A mapping without a file, one of whose pages is mapped again (`mapmax=`), is what a fork left to parent and children
//! until one of them writes to it; all of it counts as shared, since the number of its shared pages is unknown. The
//! other pages of a mapping with `file=` are shared memory if the file is one of the kernel's own (`/dev/zero` for
//! anonymous `MAP_SHARED`, `/SYSV…`, `/memfd:…`), in `/dev/shm`, or of huge pages; else they belong to a file. Files of
//! a tmpfs elsewhere look like any other. If a mapping has both kinds, which of its nodes hold its anonymous pages is
//! unknown: each node is taken to have its part of them. The program that the process runs and libraries (`.so`) are told
//! from other files by their names.

use std::collections::BTreeMap;

use numaherd_topology::NodeId;
use numaherd_world::{Mapped, MemoryKind, MemoryKinds, Residency};

use super::{decimal, hexadecimal, lines, split_once, words};

/// One mapping's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePages {
    /// First address, as in `maps`.
    pub start: u64,
    /// The memory policy that its user set (`interleave:0-3`); `None` for the kernel's own rule, even if that was asked
    /// for (`default`, `local`).
    pub policy: Option<String>,
    /// Resident base pages by node.
    pub pages: Vec<(NodeId, u64)>,
    /// What is mapped.
    pub of: MemoryKind,
    /// How many pages are the process's own: all of private memory, and copies of a file's pages.
    pub private: u64,
    /// Whether any of the pages is mapped more than once (`mapmax=`).
    pub mapped_again: bool,
    /// Whether they are of the process's program or of a library.
    pub is_program: bool,
}

impl NodePages {
    /// The kind of all its pages; `None` if they are of two kinds.
    pub fn kind(&self) -> Option<MemoryKind> {
        let all: u64 = self.pages.iter().map(|&(_, pages)| pages).sum();
        match self.private {
            0 => Some(self.of),
            private if private >= all => Some(MemoryKind::Private),
            _ => None,
        }
    }

    /// The pages on each node that are not private.
    fn not_private(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let wide = |pages: u64| u128::from(pages);
        let all: u128 = self.pages.iter().map(|&(_, pages)| wide(pages)).sum();
        let others = all.saturating_sub(wide(self.private));
        // Differences of the rounded-down sums up to each node, so that their total is exact.
        let until = move |upto: u128| upto * others / all.max(1);
        self.pages.iter().scan(0, move |upto, &(node, pages)| {
            let before = until(*upto);
            *upto += wide(pages);
            let part = u64::try_from(until(*upto) - before);
            Some((node, part.unwrap_or(pages)))
        })
    }
}

/// Reads a numa_maps file; mappings without resident pages are left out. `program` is the file that the process runs, if
/// known.
pub fn parse(text: &[u8], base_page_bytes: u64, program: Option<&[u8]>) -> Vec<NodePages> {
    lines(text)
        .filter_map(|text| line(text, base_page_bytes, program))
        .collect()
}

fn line(line: &[u8], base_page_bytes: u64, program: Option<&[u8]>) -> Option<NodePages> {
    let mut fields = words(line);
    let start = hexadecimal(fields.next()?)?;
    let policy = fields
        .next()
        .filter(|policy| !matches!(*policy, b"default" | b"local"));
    let mut pages = Vec::new();
    let mut page_bytes = base_page_bytes;
    let mut mapped_again = false;
    let (mut file, mut is_huge, mut anonymous): (Option<&[u8]>, _, u64) = (None, false, 0);
    for field in fields {
        let Some((key, value)) = split_once(field, b'=') else {
            is_huge |= field == b"huge";
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
        } else if key == b"file" {
            file = Some(value);
        } else if key == b"anon" {
            anonymous = decimal(value).unwrap_or(0);
        }
    }
    let scale = (page_bytes / base_page_bytes.max(1)).max(1);
    for (_, count) in &mut pages {
        *count = count.saturating_mul(scale);
    }
    let of = match file {
        None if mapped_again => MemoryKind::Shared,
        None => MemoryKind::Private,
        Some(path) if is_huge || is_memory(path) => MemoryKind::Shared,
        Some(_) => MemoryKind::File,
    };
    (!pages.is_empty()).then_some(NodePages {
        start,
        policy: policy.map(|policy| String::from_utf8_lossy(policy).into_owned()),
        pages,
        of,
        private: match (of, file) {
            (MemoryKind::Private, _) => u64::MAX,
            (_, None) => 0,
            (_, Some(_)) => anonymous.saturating_mul(scale),
        },
        mapped_again,
        is_program: of == MemoryKind::File
            && file.is_some_and(|path| program == Some(path) || is_library(path)),
    })
}

/// Whether a file is a library, judging by its name (`libc.so.6`).
fn is_library(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.ends_with(b".so") || name.windows(4).any(|four| four == b".so.")
}

/// Whether a file is only in memory, judging by its name (mm/shmem.c, ipc/shm.c, mm/memfd.c).
fn is_memory(path: &[u8]) -> bool {
    let names: [&[u8]; 4] = [b"/dev/zero", b"/dev/shm/", b"/SYSV", b"/memfd:"];
    names.iter().any(|name| path.starts_with(name))
}

/// Pages of a kind by node.
#[derive(Default)]
struct Sums {
    all: BTreeMap<NodeId, u64>,
    /// In mappings of which no page is mapped more than once.
    alone: BTreeMap<NodeId, u64>,
}

/// All mappings together.
pub fn residency(mappings: &[NodePages]) -> Residency {
    let mut all = BTreeMap::new();
    let (mut shared, mut file): (Sums, Sums) = Default::default();
    let mut kinds = MemoryKinds::default();
    for mapping in mappings {
        add(&mut all, mapping.pages.iter().copied());
        let (sums, kind) = match mapping.of {
            MemoryKind::Private => continue,
            MemoryKind::Shared => (&mut shared, &mut kinds.shared),
            MemoryKind::File => (&mut file, &mut kinds.file),
        };
        kind.again |= mapping.mapped_again;
        if mapping.is_program {
            let pages = mapping.not_private().map(|(_, pages)| pages);
            kind.programs = pages.fold(kind.programs, u64::saturating_add);
        }
        add(&mut sums.all, mapping.not_private());
        if !mapping.mapped_again {
            add(&mut sums.alone, mapping.not_private());
        }
    }
    let pages = |sums: BTreeMap<NodeId, u64>| -> Vec<(NodeId, u64)> {
        let some = sums.into_iter().filter(|&(_, pages)| pages > 0);
        some.collect()
    };
    for (kind, sums) in [(&mut kinds.shared, shared), (&mut kinds.file, file)] {
        kind.pages = pages(sums.all);
        if kind.again {
            kind.alone = pages(sums.alone);
        }
    }
    Residency {
        pages: pages(all),
        kinds: Some(kinds),
    }
}

/// What the file of a process that has just been forked says, by that of its parent before: all pages that are not of
/// files are mapped again, and so count as shared.
pub fn of_fork(parent: &Residency) -> Residency {
    let mut residency = parent.clone();
    if let Some(kinds) = &mut residency.kinds {
        let mut sums = BTreeMap::new();
        for kind in [MemoryKind::Private, MemoryKind::Shared] {
            let of_kind = parent.of_kind(kind).into_iter();
            add(&mut sums, of_kind.flat_map(|of_kind| of_kind.pages));
        }
        kinds.shared = Mapped {
            pages: sums.into_iter().collect(),
            again: true,
            ..Mapped::default()
        };
    }
    residency
}

fn add(sums: &mut BTreeMap<NodeId, u64>, pages: impl Iterator<Item = (NodeId, u64)>) {
    for (node, count) in pages {
        let sum = sums.entry(node).or_default();
        *sum = sum.saturating_add(count);
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
    fn what_was_private_is_shared_with_a_fork() {
        let residency = |mapped: &str| {
            let file = "file=/lib mapped=9 mapmax=2 N0=5 N2=4";
            let text = format!("1000 default anon=70{mapped} N0=60 N1=10\n2000 default {file}\n");
            residency(&parse(text.as_bytes(), 4096, None))
        };
        assert_eq!(of_fork(&residency("")), residency(" mapmax=2"));
    }

    #[test]
    fn pages_by_node_in_base_pages() {
        let mappings = parse(CAPTURED, 4096, None);
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

    /// Lines as Linux writes them, one per kind of mapping.
    const OF_EACH_KIND: &str = "\
55a000000000 default file=/usr/lib/postgresql/17/bin/postgres mapped=900 mapmax=9 active=0 N0=600 N1=300 kernelpagesize_kB=4
55a000a00000 default heap anon=33 dirty=33 active=0 N1=33 kernelpagesize_kB=4
7f0000000000 default file=/SYSV0052e2c1\\040(deleted) dirty=7 mapmax=9 N0=7 kernelpagesize_kB=4
7f0100000000 default file=/dev/zero\\040(deleted) dirty=4096 mapmax=9 N0=4000 N3=96 kernelpagesize_kB=4
7f0200000000 default file=/dev/shm/PostgreSQL.42 dirty=16 N2=16 kernelpagesize_kB=4
7f0300000000 default file=/memfd:java_heap\\040(deleted) dirty=50 active=0 N1=50 kernelpagesize_kB=4
7f0400000000 default file=/dev/zero anon=8 dirty=8 N0=8 kernelpagesize_kB=4
7f0500000000 default file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N3=2 kernelpagesize_kB=2048
7f0600000000 default file=/anon_hugepage\\040(deleted) huge dirty=3 N2=3 kernelpagesize_kB=2048
7f0700000000 default file=/usr/lib/x86_64-linux-gnu/libc.so.6 anon=4 dirty=4 mapped=10 mapmax=80 N0=6 N1=4 kernelpagesize_kB=4
7f0800000000 default file=/usr/lib/x86_64-linux-gnu/libc.so.6 anon=2 dirty=2 N1=2 kernelpagesize_kB=4
7f0900000000 default anon=512 dirty=512 N2=512 kernelpagesize_kB=4
7ffc00000000 default stack anon=5 dirty=5 N1=5 kernelpagesize_kB=4
7ffc10000000 default
";

    fn of_each_kind() -> Vec<NodePages> {
        let program = b"/usr/lib/postgresql/17/bin/postgres";
        parse(OF_EACH_KIND.as_bytes(), 4096, Some(program))
    }

    #[test]
    fn each_kind_of_mapping_is_told() {
        use MemoryKind::{File, Private, Shared};
        let kinds: Vec<_> = of_each_kind().iter().map(NodePages::kind).collect();
        let whole = |kinds: &[MemoryKind]| -> Vec<_> { kinds.iter().copied().map(Some).collect() };
        assert_eq!(kinds[..2], whole(&[File, Private]));
        assert_eq!(
            kinds[2..6],
            whole(&[Shared; 4]),
            "SysV, anonymous, POSIX, memfd"
        );
        assert_eq!(kinds[6..8], whole(&[Private; 2]), "mapped privately");
        assert_eq!(kinds[8], Some(Shared), "huge pages");
        assert_eq!(
            kinds[9], None,
            "a library's data, of which some was written to"
        );
        assert_eq!(kinds[10..], whole(&[Private; 3]));
    }

    #[test]
    fn what_a_fork_has_left_is_shared_until_it_is_written_to() {
        let worker = parse(
            b"7f0000000000 default anon=8192 dirty=8192 mapmax=9 N1=8000 N2=192 kernelpagesize_kB=4\n\
              7f0100000000 default anon=500 dirty=500 active=0 N3=500 kernelpagesize_kB=4\n",
            4096,
            None,
        );
        let kinds = [Some(MemoryKind::Shared), Some(MemoryKind::Private)];
        assert_eq!([0, 1].map(|at| worker[at].kind()), kinds);
        let residency = residency(&worker);
        let of_others = [0, 1, 2, 3].map(|node| {
            let kinds = residency.kinds.as_ref().unwrap();
            kinds.shared.of_others_on(NodeId(node))
        });
        assert_eq!(of_others, [0, 8000, 192, 0]);
        let own = residency.of_kind(MemoryKind::Private).unwrap();
        assert_eq!(own.pages, [(NodeId(3), 500)]);
    }

    #[test]
    fn pages_of_each_kind_by_node() {
        let residency = residency(&of_each_kind());
        let of = |kind| -> Vec<(u32, u64)> {
            let pages = residency.of_kind(kind).unwrap().pages;
            pages.iter().map(|&(node, pages)| (node.0, pages)).collect()
        };
        assert_eq!(
            of(MemoryKind::Shared),
            [(0, 4007), (1, 50), (2, 16 + 3 * 512), (3, 96)]
        );
        // Of libc's 10 pages, 6 are not copies: 3 of the 6 on node 0, rounded down, and 3 of the 4 on node 1.
        assert_eq!(of(MemoryKind::File), [(0, 603), (1, 303)]);
        assert_eq!(
            of(MemoryKind::Private),
            [(0, 8 + 3), (1, 33 + 1 + 2 + 5), (2, 512), (3, 2 * 512)]
        );
        let kinds = residency.kinds.as_ref().unwrap();
        assert!(kinds.shared.again && kinds.file.again);
        // All of postgres and libc, but copies.
        assert_eq!((kinds.shared.programs, kinds.file.programs), (0, 906));
        let data = b"7f0000000000 default file=/srv/so.data mapmax=2 mapped=9 N1=9\n";
        let data = super::residency(&parse(data, 4096, None)).kinds.unwrap();
        assert_eq!((data.file.again, data.file.programs), (true, 0));
        let of_others = [&kinds.shared, &kinds.file]
            .map(|kind| [0, 1, 2, 3].map(|node| kind.of_others_on(NodeId(node))));
        assert_eq!(of_others, [[4007, 0, 0, 96], [603, 303, 0, 0]]);
        let alone = parse(
            b"7f0000000000 default file=/memfd:ram dirty=9 N1=9\n",
            4096,
            None,
        );
        assert!(!super::residency(&alone).kinds.unwrap().shared.again);
    }

    proptest::proptest! {
        /// Whatever the number of copies: the other pages add up exactly, and no node has more than its pages.
        #[test]
        fn what_is_not_private_is_shared_out_exactly(
            pages in proptest::collection::vec(0u64..1 << 40, 1..9),
            private in 0u64..1 << 43,
        ) {
            let mapping = NodePages {
                start: 0,
                policy: None,
                pages: (0..).map(NodeId).zip(pages.iter().copied()).collect(),
                of: MemoryKind::File,
                private,
                mapped_again: false,
                is_program: false,
            };
            let others: Vec<u64> = mapping.not_private().map(|(_, pages)| pages).collect();
            let all: u64 = pages.iter().sum();
            proptest::prop_assert_eq!(others.iter().sum::<u64>(), all.saturating_sub(private));
            proptest::prop_assert!(others.iter().zip(&pages).all(|(others, pages)| others <= pages));
        }
    }
}
