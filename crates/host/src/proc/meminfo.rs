//! `meminfo`, of the machine (`MemTotal: 5 kB`) and of a node (`Node 0 MemTotal: 5 kB`).

use super::{decimal, lines, words};

/// Total and free memory in bytes; `None` if the file lacks either.
pub fn parse(text: &[u8]) -> Option<(u64, u64)> {
    Some((bytes(text, b"MemTotal:")?, bytes(text, b"MemFree:")?))
}

/// Memory of files that have long been unused, in bytes; `None` if the file lacks it.
pub fn inactive_file(text: &[u8]) -> Option<u64> {
    bytes(text, b"Inactive(file):")
}

/// The figure after a key in bytes.
fn bytes(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text).find_map(|line| {
        let mut after = words(line).skip_while(|word| *word != key);
        decimal(after.nth(1)?)?.checked_mul(1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_node_and_of_the_machine() {
        let of_node = b"Node 12 MemTotal:       1000 kB\nNode 12 MemFree:         250 kB\n";
        assert_eq!(parse(of_node), Some((1_024_000, 256_000)));
        let of_machine = b"MemTotal:  8 kB\nMemFree:  4 kB\nMemAvailable:  6 kB\n";
        assert_eq!(parse(of_machine), Some((8192, 4096)));
        assert_eq!(parse(b"MemTotal: 8 kB\n"), None);
        assert_eq!(inactive_file(of_machine), None);
        let of_node = b"Node 0 Inactive:  9 kB\nNode 0 Inactive(file):  3 kB\n";
        assert_eq!(inactive_file(of_node), Some(3072));
    }
}
