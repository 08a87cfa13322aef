//! `/proc/PID/maps`: the address ranges of a process, and which of them hold movable pages.

use super::{hexadecimal, lines, split_once};

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Its offset in the file, in bytes; 0 for anonymous memory.
    pub offset: u64,
    /// Whether writes are shared with others who map the same.
    pub shared: bool,
    /// Whether it can hold pages that move: readable, and neither a device nor the kernel's own.
    pub movable: bool,
}

/// Reads a maps file: `start-end rwxp offset major:minor inode path` in each line.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    lines(text).filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let range = fields.next()?;
    let permissions = fields.next()?;
    let offset = fields.next().and_then(hexadecimal)?;
    let path = fields.nth(2).unwrap_or_default().trim_ascii();
    let (start, end) = split_once(range, b'-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let readable = *permissions.first()? == b'r';
    let shared = *permissions.get(3)? == b's';
    let kernels_own = matches!(
        path,
        b"[vvar]" | b"[vdso]" | b"[vsyscall]" | b"[vvar_vclock]"
    );
    let device = path.starts_with(b"/dev/")
        && !path.starts_with(b"/dev/shm/")
        && !path.starts_with(b"/dev/hugepages/")
        && !path.starts_with(b"/dev/zero");
    (start < end).then_some(Mapping {
        start,
        end,
        offset,
        shared,
        movable: readable && !kernels_own && !device,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_move() {
        let mappings = parse(
            b"55b2422c3000-55b2422c6000 r--p 00000000 fe:00 247749                     /usr/bin/sed\n\
              55b27566f000-55b275690000 rw-p 00000000 00:00 0                          [heap]\n\
              7f0000000000-7f0040000000 ---p 00000000 00:00 0 \n\
              7f1000000000-7f1000001000 rw-s 00000000 00:05 1024                       /dev/nvidia0\n\
              7f2000000000-7f2000001000 rw-s 00a00000 00:19 3                          /dev/shm/a b\n\
              7ffe3e5e4000-7ffe3e5e8000 r--p 00000000 00:00 0                          [vvar]\n\
              nonsense\n\
              2000-1000 rw-p 0 0:0 0\n",
        );
        let movable: Vec<(bool, bool)> = mappings.iter().map(|m| (m.movable, m.shared)).collect();
        assert_eq!(
            movable,
            [
                (true, false),
                (true, false),
                (false, false),
                (false, true),
                (true, true),
                (false, false)
            ]
        );
        assert_eq!(mappings[1].start, 0x55b2_7566_f000);
        assert_eq!(mappings[1].end, 0x55b2_7569_0000);
        assert_eq!((mappings[1].offset, mappings[4].offset), (0, 0xa0_0000));
    }
}
