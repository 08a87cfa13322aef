//! Shows the modelled size of the last-level cache in place of the size that QEMU's CPU claims.
//!
//! A program that reads the size of a cache from sysfs must get the model's. QEMU gives every CPU a cache of 16 MiB and
//! has no option for another size, so a file with the right size is mounted over each file of the kernel.

use std::fs;
use std::io;
use std::path::Path;

use numaherd_lab_guest::protocol::LAST_LEVEL;
use rustix::mount::mount_bind;

use crate::Context;

/// The file with the size, on the guest's own file system.
const SIZE: &str = "run/last-level-size";

/// Shows the size from the kernel's parameters in the sysfs below `root`; does nothing if they give none.
pub fn show_last_level(root: &Path) -> io::Result<()> {
    let parameters = root.join("proc/cmdline");
    let text = fs::read_to_string(&parameters).about("reading", &parameters)?;
    let named = text
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix(LAST_LEVEL));
    let Some(bytes) = named.and_then(|bytes| bytes.parse::<u64>().ok()) else {
        return Ok(());
    };
    let size = root.join(SIZE);
    fs::write(&size, format!("{}K\n", bytes / 1024)).about("writing", &size)?;
    let cpus = root.join("sys/devices/system/cpu");
    for cpu in fs::read_dir(&cpus).about("reading", &cpus)? {
        let cache = cpu.during("reading a CPU's folder")?.path().join("cache");
        let levels = fs::read_dir(&cache).into_iter().flatten().flatten();
        let indexes: Vec<_> = levels.map(|index| index.path()).collect();
        let level = |index: &Path| {
            let text = fs::read_to_string(index.join("level")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        let last = indexes.iter().max_by_key(|index| level(index));
        if let Some(last) = last.filter(|last| level(last).is_some()) {
            let place = last.join("size");
            mount_bind(&size, &place).about("mounting the cache's size over", &place)?;
        }
    }
    Ok(())
}
