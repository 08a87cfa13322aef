//! What several targets share.

use std::path::Path;

/// A new directory, in memory where the system has such a place; it goes when the value is dropped.
pub fn temporary() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a temporary directory can be made")
}

/// The lines of a text, each that ends like a JSON object sealed as ledger and journal seal theirs
/// (a last member `"sum"`, the CRC-32 of all before it). A fuzzer would not find the sum by itself,
/// and all readers of records lie behind it.
pub fn sealed(text: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match line.strip_suffix(b"}") {
            Some(body) => {
                sealed.extend_from_slice(body);
                sealed
                    .extend_from_slice(format!(",\"sum\":\"{:08x}\"}}\n", crc32(body)).as_bytes());
            }
            None => {
                sealed.extend_from_slice(line);
                sealed.push(b'\n');
            }
        }
    }
    sealed
}

/// CRC-32 as in IEEE 802.3, written from its definition, bit by bit: an independent second to the
/// table in `herd`.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for &byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0xEDB8_8320
            } else {
                sum >> 1
            };
        }
    }
    !sum
}
