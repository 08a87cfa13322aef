//! `/proc/cpuinfo`: the processor, on which event codes depend.

use super::{decimal, hexadecimal, lines, split_once, words};

/// A kind of processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`, …; empty if the file does not say (Arm).
    pub vendor: String,
    pub family: u32,
    pub model: u32,
    /// The implementer of an Arm core; `None` on others.
    pub implementer: Option<u32>,
    /// The part number of an Arm core.
    pub part: u32,
    /// Its name for people.
    pub name: String,
    /// Whether it is a virtual machine's.
    pub hypervisor: bool,
}

/// Reads the first processor of a cpuinfo file.
pub fn parse(text: &[u8]) -> Processor {
    let mut processor = Processor::default();
    for line in lines(text) {
        if line.trim_ascii().is_empty()
            && (!processor.vendor.is_empty() || processor.implementer.is_some())
        {
            break;
        }
        let Some((key, value)) = split_once(line, b':') else {
            continue;
        };
        let value = value.trim_ascii();
        let number = || {
            let number = decimal(value).and_then(|number| u32::try_from(number).ok());
            number.unwrap_or(0)
        };
        let code = || u32::try_from(hexadecimal(value.strip_prefix(b"0x")?)?).ok();
        let text = || String::from_utf8_lossy(value).into_owned();
        match key.trim_ascii() {
            b"vendor_id" => processor.vendor = text(),
            b"cpu family" => processor.family = number(),
            b"model" => processor.model = number(),
            b"CPU implementer" => processor.implementer = code(),
            b"CPU part" => processor.part = code().unwrap_or(0),
            b"model name" => processor.name = text(),
            b"flags" => {
                processor.hypervisor = words(value).any(|flag| flag == b"hypervisor");
            }
            _ => {}
        }
    }
    processor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_counts() {
        let processor = parse(
            b"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
              model name\t: Intel(R) Xeon(R) Gold 5120\nflags\t\t: fpu vme hypervisor\n\n\
              processor\t: 1\nvendor_id\t: Other\n",
        );
        assert_eq!(processor.vendor, "GenuineIntel");
        assert_eq!((processor.family, processor.model), (6, 85));
        assert!(processor.hypervisor);
    }

    #[test]
    fn an_arm_core_is_told_by_maker_and_part() {
        let processor = parse(
            b"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\n\
              CPU part\t: 0xd0c\nCPU revision\t: 1\n\nprocessor\t: 1\nCPU implementer\t: 0x42\n\
              CPU part\t: 0x1\n",
        );
        assert_eq!(processor.vendor, "");
        assert_eq!((processor.implementer, processor.part), (Some(0x41), 0xd0c));
    }
}
