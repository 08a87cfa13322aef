//! The guest's initial file system, a cpio archive with the init, the kernel's modules and its configuration.
//!
//! The format is "newc" (kernel documentation, driver-api/early-userspace/buffer-format). Each file
//! has a header of `070701` and 13 numbers of 8 hexadecimal digits, its name with a NUL, and its
//! content, the latter two padded to 4 bytes. The last file is named `TRAILER!!!`.

use std::fs;
use std::path::Path;

use crate::error::{Context, Result};
use crate::files::KernelFiles;

/// The init, built by this crate's build script.
static INIT: &[u8] = include_bytes!(env!("NUMAHERD_GUEST_INIT"));

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that grows file by file.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.files += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let numbers = [
            self.files, // inode
            mode, 0, // uid
            0, // gid
            1, // links
            0, // time
            size, 0, // device that holds it
            0, device.0, device.1, name_size, 0, // checksum, unused
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes
                .extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

/// Packs the initial file system; the PMU module is included only `with_pmu`.
///
/// # Errors
/// [`crate::Error::Io`] when a file cannot be read.
pub fn pack(files: &KernelFiles, with_pmu: bool) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).context(|| format!("reading {}", path.display()));
    let mut archive = Archive::default();
    archive.add("dev", DIRECTORY, (0, 0), &[]);
    archive.add("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
    archive.add("init", PROGRAM, (0, 0), INIT);
    archive.add("boot", DIRECTORY, (0, 0), &[]);
    if let Some(config) = &files.config {
        let name = format!("boot/config-{}", files.release);
        archive.add(&name, FILE, (0, 0), &read(config)?);
    }
    archive.add("modules", DIRECTORY, (0, 0), &[]);
    // Modules are loaded in the order of their names, the PMU module last.
    let pmu = with_pmu.then_some(&files.pmu);
    for (place, module) in files.modules.iter().chain(pmu).enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.add(
            &format!("modules/{place:04}-{name}"),
            FILE,
            (0, 0),
            &read(module)?,
        );
    }
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_laid_out_as_the_format_says() {
        let mut archive = Archive::default();
        archive.add("ab", FILE, (0, 0), b"hello");
        let bytes = archive.finish();
        let header = "070701\
            00000001000081a4000000000000000000000001000000000000000500000000\
            0000000000000000000000000000000300000000";
        assert_eq!(header.len(), 110);
        assert_eq!(&bytes[..110], header.as_bytes());
        assert_eq!(
            &bytes[110..124],
            b"ab\0\0\0\0hello\0\0\0".get(..14).expect("14 bytes")
        );
        assert!(bytes.len().is_multiple_of(4));
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }

    #[test]
    fn the_embedded_init_is_a_static_program() {
        assert_eq!(&INIT[..4], b"\x7fELF");
        // A program header of type PT_INTERP (3) would name a dynamic loader.
        let half = |at: usize| usize::from(u16::from_le_bytes([INIT[at], INIT[at + 1]]));
        let (size, count) = (half(54), half(56));
        let offset = usize::try_from(u64::from_le_bytes(
            INIT[32..40].try_into().expect("8 bytes"),
        ))
        .expect("offset");
        let kinds: Vec<u8> = (0..count).map(|n| INIT[offset + n * size]).collect();
        assert!(!kinds.contains(&3), "program headers {kinds:?}");
    }
}
