//! What the kernel does for a program passes through the modelled caches where that is asked for, and only there.
//!
//! The guest's side is `programs/copy.c`: the kernel copies a file out of the page cache that is twice as large as the
//! last-level cache, so that each line of it is fetched each time. The prefetcher is off, so that what is fetched is what
//! was asked for. These need `make setup` and the plugin (`cargo build --profile lab -p numaherd-lab-plugin`).

use numaherd_lab_launcher::Guest;

use crate::programs;
use crate::walked::{Said, boot, boot_with, said, square};

/// Pages of the file: 4 MiB, twice the preset's last-level cache.
const PAGES: u64 = 1024;
/// Times that it is read while misses are counted.
const ROUNDS: u64 = 4;
/// Lines of the file that are read meanwhile.
const LINES: u64 = PAGES * ROUNDS * 4096 / 64;

/// Misses that are let pass where there should be none: what an interrupt's way back touches.
const STRAYS: u64 = 150;
/// Time in which the preset's controllers serve a line, in ns: many lines are copied no faster.
const LINE_NS: u64 = 20;

/// What was counted while CPU 0 read a file in the page cache of the node of the CPU `home`.
fn copy(guest: &Guest, home: u32) -> Said {
    let program = programs::build("copy", "copy");
    let numbers = [PAGES, ROUNDS, 0, u64::from(home)].map(|number| number.to_string());
    let words = [program.display().to_string()].into_iter().chain(numbers);
    said(guest, words).remove(0)
}

#[test]
fn a_copy_out_of_the_page_cache_fetches_each_line_where_that_is_asked_for() {
    let guest = boot_with(&square(), |model| model.kernel_accesses = true);
    guest
        .start_model()
        .unwrap_or_else(|error| panic!("{error}"));
    // CPU 0 is on node 0, CPU 6 on node 3.
    let (near, far) = (copy(&guest, 0), copy(&guest, 6));
    guest.stop().expect("it stops");
    // Beside the file's lines those of what describes its pages: one of 64 bytes for each page, and a few.
    let all = LINES..LINES + LINES / 20;
    for (said, from) in [(&near, "local"), (&far, "remote")] {
        assert!(all.contains(&said["misses"]), "{said:?}");
        assert!(said[from] >= LINES, "{said:?}");
    }

    let guest = boot(&square());
    guest
        .start_model()
        .unwrap_or_else(|error| panic!("{error}"));
    let without = copy(&guest, 0);
    guest.stop().expect("it stops");
    assert!(without["misses"] <= STRAYS, "{without:?}");
    let waited = near["ns"].saturating_sub(without["ns"]);
    let least = LINES * LINE_NS;
    assert!(waited >= least - least / 10, "{near:?} {without:?}");
}
