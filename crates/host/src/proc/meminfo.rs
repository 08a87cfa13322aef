//! `meminfo`, of the machine (`MemTotal: 5 kB`) and of a node (`Node 0 MemTotal: 5 kB`).

use super::{decimal, words};

/// Total and free memory in bytes; `None` where the file lacks either.
pub fn parse(text: &[u8]) -> Option<(u64, u64)> {
    let (mut total, mut free) = (None, None);
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = words(line).peekable();
        if fields.peek().is_some_and(|word| *word == b"Node") {
            fields.next();
            fields.next();
        }
        let which = match fields.next() {
            Some(b"MemTotal:") => &mut total,
            Some(b"MemFree:") => &mut free,
            _ => continue,
        };
        *which = fields
            .next()
            .and_then(decimal)
            .and_then(|kib| kib.checked_mul(1024));
    }
    Some((total?, free?))
}

/// Memory of files that nobody has touched for long, in bytes; `None` where the file does not tell.
pub fn inactive_file(text: &[u8]) -> Option<u64> {
    let line = text
        .split(|byte| *byte == b'\n')
        .find(|line| words(line).any(|word| word == b"Inactive(file):"))?;
    let mut after = words(line).skip_while(|word| *word != b"Inactive(file):");
    decimal(after.nth(1)?)?.checked_mul(1024)
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
