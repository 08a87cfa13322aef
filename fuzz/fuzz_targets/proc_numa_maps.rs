//! `/proc/PID/numa_maps`.
//!
//! Holds: no bytes and no page size make the reader panic; what was read, in base pages, can be
//! written and reads back the same; all mappings together have no node twice.
//!
//! Reader: crates/host/src/proc/numa_maps.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc;
use numaherd_world::MemoryKind;

use std::collections::BTreeSet;

numaherd_fuzz::target!(|input: (u64, &[u8])| {
    let (page_bytes, text) = input;
    for page_bytes in [page_bytes, 4096] {
        let mappings = proc::numa_maps::parse(text, page_bytes, None);
        let mut written = String::new();
        for mapping in &mappings {
            let policy = mapping.policy.as_deref().unwrap_or("default");
            written += &format!("{:08x} {policy}", mapping.start);
            let file = match mapping.of {
                MemoryKind::Private => None,
                MemoryKind::Shared => Some("/dev/zero"),
                MemoryKind::File if mapping.is_program => Some("/a/lib.so.6"),
                MemoryKind::File => Some("/a/file"),
            };
            if let Some(file) = file {
                written += &format!(" file={file} anon={}", mapping.private);
            }
            for (node, pages) in &mapping.pages {
                written += &format!(" N{node}={pages}");
            }
            let again = if mapping.mapped_again {
                " mapmax=2"
            } else {
                ""
            };
            written += &format!("{again}\n");
        }
        assert_eq!(
            proc::numa_maps::parse(written.as_bytes(), page_bytes, None),
            mappings
        );
        let residency = proc::numa_maps::residency(&mappings);
        let nodes: BTreeSet<_> = residency.pages.iter().map(|(node, _)| node).collect();
        assert_eq!(nodes.len(), residency.pages.len());
    }
});
