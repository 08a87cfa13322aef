//! What the agent in a guest tells the host: one JSON object a line.
//!
//! ```text
//! {"numaherd_agent":1,"sequence":7,"vcpus":4,"tagged":[0,3]}
//! ```
//!
//! * Each line tells everything: `tagged` are the vCPUs that run threads whose CPU mask is smaller
//!   than the guest's machine; all others run none. So no line depends on an earlier one, and a lost
//!   line costs only time. A line with one more vCPU is the paper's hypercall `tag`, one with a vCPU
//!   less its `clear` (BRM §4.3, §5).
//! * `sequence` rises with each line; 0 says that the agent has begun anew.
//! * `vcpus` is one more than the highest CPU number of the guest. Its kernel numbers CPUs in the
//!   order of the firmware's tables, which is the order of QEMU's indices.
//! * A line is framed by line feeds before and after it: a reader that starts in the middle of one
//!   finds the next, and an agent that was killed in the middle of one spoils no other.
//!
//! The guest is not trusted: what it says is checked against what the host knows ([`read`]). The
//! number of vCPUs bounds the length of a line ([`longest_line`]), and so what the host must keep.

use serde::{Deserialize, Serialize};

/// Name of the virtio serial port that carries the lines.
pub const PORT_NAME: &str = "org.numaherd.agent.0";

/// Version of the lines. Raised by every change of their fields.
pub const VERSION: u32 = 1;

/// Which vCPUs run threads that care where they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestTags {
    /// One more than the highest CPU number of the guest.
    pub vcpus: u32,
    /// The vCPUs that run such threads, ascending.
    pub tagged: Vec<u32>,
}

/// A line as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    numaherd_agent: u32,
    sequence: u64,
    vcpus: u32,
    tagged: Vec<u32>,
}

/// The part of a line that holds its version, whatever else is in it.
#[derive(Deserialize)]
struct Version {
    numaherd_agent: u32,
}

/// Why an agent's message cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rubbish {
    /// More bytes than any true line has.
    #[error("it sent a line of over {longest} bytes")]
    TooLong {
        /// Bytes of the longest true line.
        longest: usize,
    },
    /// Not an object of these fields.
    #[error("it sent a line that is not its protocol's ({reason})")]
    NotALine {
        /// The parser's message.
        reason: String,
    },
    /// Another version.
    #[error(
        "it speaks version {version} of its protocol and this program version {VERSION}: \
         use the same numaherd on both sides"
    )]
    OtherVersion {
        /// The version found.
        version: u32,
    },
    /// More vCPUs than the host knows of.
    #[error("it reported {told} vCPUs, but the virtual machine has {known}")]
    TooManyVcpus {
        /// The number told.
        told: u32,
        /// Known.
        known: u32,
    },
    /// A vCPU beyond its own count, or one out of order or twice.
    #[error("it tagged vCPU {index}, which is not one of its {vcpus} or not in order")]
    NoSuchVcpu {
        /// The number told.
        index: u32,
        /// The count that it told.
        vcpus: u32,
    },
    /// A sequence number that does not rise.
    #[error("it sent line {sequence} after line {last}")]
    OutOfOrder {
        /// The number told.
        sequence: u64,
        /// The number of the line before.
        last: u64,
    },
    /// More lines or bytes than a true agent sends.
    #[error("it sent over {most} {what} in a second")]
    Flood {
        /// Lines or bytes.
        what: &'static str,
        /// How many are accepted.
        most: u64,
    },
}

/// Bytes of the longest valid line for this many vCPUs, without line feeds: the names of the fields
/// and their numbers, and 11 for each vCPU.
pub fn longest_line(vcpus: u32) -> usize {
    128 + 11 * vcpus as usize
}

/// A line, framed.
pub fn write(sequence: u64, told: &GuestTags) -> Vec<u8> {
    let line = Line {
        numaherd_agent: VERSION,
        sequence,
        vcpus: told.vcpus,
        tagged: told.tagged.clone(),
    };
    let mut bytes = vec![b'\n'];
    // Numbers and lists of numbers can always be written.
    bytes.extend(serde_json::to_vec(&line).unwrap_or_default());
    bytes.push(b'\n');
    bytes
}

/// Reads a line without its line feeds, from a machine with `known` vCPUs whose previous line had the
/// number `last`; returns its number and what it tells.
pub fn read(line: &[u8], known: u32, last: Option<u64>) -> Result<(u64, GuestTags), Rubbish> {
    let longest = longest_line(known);
    if line.len() > longest {
        return Err(Rubbish::TooLong { longest });
    }
    let not_a_line = |error: serde_json::Error| Rubbish::NotALine {
        reason: error.to_string(),
    };
    let Version { numaherd_agent } = serde_json::from_slice(line).map_err(not_a_line)?;
    if numaherd_agent != VERSION {
        let version = numaherd_agent;
        return Err(Rubbish::OtherVersion { version });
    }
    let line: Line = serde_json::from_slice(line).map_err(not_a_line)?;
    if line.vcpus > known {
        let told = line.vcpus;
        return Err(Rubbish::TooManyVcpus { told, known });
    }
    let mut least = 0;
    for &index in &line.tagged {
        let vcpus = line.vcpus;
        if index < least || index >= vcpus {
            return Err(Rubbish::NoSuchVcpu { index, vcpus });
        }
        least = index + 1;
    }
    if let Some(last) = last.filter(|&last| line.sequence != 0 && line.sequence <= last) {
        let sequence = line.sequence;
        return Err(Rubbish::OutOfOrder { sequence, last });
    }
    let told = GuestTags {
        vcpus: line.vcpus,
        tagged: line.tagged,
    };
    Ok((line.sequence, told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a guest of up to 300 vCPUs may tell.
    fn any_told() -> impl Strategy<Value = GuestTags> {
        (0u32..300).prop_flat_map(|vcpus| {
            proptest::collection::btree_set(0..vcpus.max(1), 0..=vcpus as usize).prop_map(
                move |tagged| GuestTags {
                    vcpus,
                    tagged: tagged.into_iter().filter(|&at| at < vcpus).collect(),
                },
            )
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(told in any_told(), sequence: u64, spare in 0u32..9) {
            let framed = write(sequence, &told);
            let line = framed.trim_ascii();
            prop_assert_eq!(framed.len(), line.len() + 2);
            prop_assert!(line.len() <= longest_line(told.vcpus));
            let read = read(line, told.vcpus + spare, None);
            prop_assert_eq!(read, Ok((sequence, told)));
        }

        #[test]
        fn lines_are_believed_in_rising_order_and_when_begun_anew(
            sequence: u64,
            last: u64,
        ) {
            let framed = write(sequence, &GuestTags::default());
            let believed = read(framed.trim_ascii(), 0, Some(last)).is_ok();
            prop_assert_eq!(believed, sequence == 0 || sequence > last);
        }

        #[test]
        fn nothing_that_is_read_goes_beyond_what_the_host_knows(
            line in "\\{\"numaherd_agent\":1,\"sequence\":[0-9]{1,3},\"vcpus\":[0-9]{1,2},\
                \"tagged\":\\[([0-9]{1,2}(,[0-9]{1,2}){0,4})?\\]\\}",
            known in 0u32..64,
        ) {
            if let Ok((_, told)) = read(line.as_bytes(), known, None) {
                prop_assert!(told.vcpus <= known);
                prop_assert!(told.tagged.is_sorted_by(|a, b| a < b));
                prop_assert!(told.tagged.iter().all(|&index| index < told.vcpus));
            }
        }

        #[test]
        fn garbage_never_panics(line in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&line, 4, Some(3));
        }
    }

    #[test]
    fn the_longest_line_of_any_machine_fits() {
        // The highest possible numbers, in a list as long as the machine is wide.
        let line = Line {
            numaherd_agent: u32::MAX,
            sequence: u64::MAX,
            vcpus: u32::MAX,
            tagged: vec![u32::MAX; 1000],
        };
        assert!(serde_json::to_vec(&line).unwrap().len() <= longest_line(1000));
    }

    #[test]
    fn each_kind_of_rubbish_is_told_apart() {
        let line = |fields: &str| read(fields.as_bytes(), 4, Some(5)).unwrap_err();
        let whole = |version, sequence, vcpus, tagged| {
            line(&format!(
                "{{\"numaherd_agent\":{version},\"sequence\":{sequence},\"vcpus\":{vcpus},\
                 \"tagged\":{tagged}}}"
            ))
        };
        assert_eq!(whole(2, 6, 4, "[]"), Rubbish::OtherVersion { version: 2 });
        let too_many = Rubbish::TooManyVcpus { told: 5, known: 4 };
        assert_eq!(whole(1, 6, 5, "[]"), too_many);
        for (tagged, index) in [("[3]", 3), ("[1,1]", 1), ("[2,0]", 0)] {
            let no_such = Rubbish::NoSuchVcpu { index, vcpus: 3 };
            assert_eq!(whole(1, 6, 3, tagged), no_such, "{tagged}");
        }
        let sequence = 5;
        let out_of_order = Rubbish::OutOfOrder { sequence, last: 5 };
        assert_eq!(whole(1, 5, 4, "[]"), out_of_order);
        let longest = longest_line(4);
        assert_eq!(line(&" ".repeat(500)), Rubbish::TooLong { longest });
        for text in [
            "",
            "hello",
            "[]",
            "{}",
            "{\"numaherd_agent\":1}",
            "{\"numaherd_agent\":1,\"sequence\":6,\"vcpus\":4,\"tagged\":[-1]}",
            "{\"numaherd_agent\":1,\"sequence\":6,\"vcpus\":4,\"tagged\":[4294967296]}",
            "{\"numaherd_agent\":1,\"sequence\":6,\"vcpus\":4,\"tagged\":[],\"more\":1}",
        ] {
            assert!(matches!(line(text), Rubbish::NotALine { .. }), "{text}");
        }
    }
}
