//! `/proc/PID/task/TID/stat`: a thread's identity, its last CPU, its scheduling.
//!
//! The name in field 2 is any 15 bytes, with spaces, parentheses and newlines; it ends at the last
//! `)` of the file, since no later field has one.

use super::decimal;
use numaherd_world::Unmanaged;

/// Flag of kernel threads (`PF_KTHREAD`, include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Flag of threads whose affinity the kernel lets no one set (`PF_NO_SETAFFINITY`).
const FIXED_AFFINITY: u64 = 0x0400_0000;

/// What is used of a stat file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    pub name: &'a [u8],
    pub state: u8,
    pub parent: u32,
    /// Its process group and session; 0 if unknown.
    pub group: u32,
    pub session: u32,
    pub flags: u64,
    /// User and system time in clock ticks.
    pub ran_ticks: u64,
    /// Threads of its process.
    pub threads: u64,
    /// Start in clock ticks since boot.
    pub born: u64,
    /// The CPU it last ran on.
    pub cpu: u32,
    pub realtime_priority: u64,
    /// Scheduling class, `SCHED_*`.
    pub class: u64,
}

impl Stat<'_> {
    /// Whether it has ended and only waits to be reaped.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it is a thread of the kernel's own.
    pub fn is_kernels(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Why it must not be placed, if so.
    pub fn unmanaged(&self) -> Option<Unmanaged> {
        let real_time = |class: &str| Unmanaged::RealTime {
            class: class.to_owned(),
            priority: self.realtime_priority,
        };
        match self.class {
            _ if self.is_kernels() => Some(Unmanaged::KernelThread),
            _ if self.flags & FIXED_AFFINITY != 0 => Some(Unmanaged::FixedAffinity),
            1 => Some(real_time("SCHED_FIFO")),
            2 => Some(real_time("SCHED_RR")),
            6 => Some(Unmanaged::Deadline),
            _ => None,
        }
    }
}

/// Parses a stat file; `None` if it is not one.
pub fn parse(text: &[u8]) -> Option<Stat<'_>> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let name = text.get(open + 1..close)?;
    // Field 3 is the first after the name.
    let rest = text.get(close + 1..)?;
    let mut fields = rest
        .split(|byte| matches!(byte, b' ' | b'\n'))
        .filter(|field| !field.is_empty());
    let mut at = 2;
    let mut field = |number: usize| {
        let skipped = number.checked_sub(at + 1)?;
        at = number;
        fields.nth(skipped)
    };
    let state = *field(3)?.first()?;
    let parent = decimal(field(4)?)?.try_into().ok()?;
    let mut number = |at| decimal(field(at)?)?.try_into().ok();
    let (group, session) = (number(5).unwrap_or(0), number(6).unwrap_or(0));
    let flags = decimal(field(9)?)?;
    let user = decimal(field(14)?)?;
    let system = decimal(field(15)?)?;
    let threads = decimal(field(20)?)?;
    let born = decimal(field(22)?)?;
    let cpu = decimal(field(39)?)?.try_into().ok()?;
    let realtime_priority = decimal(field(40)?)?;
    let class = decimal(field(41)?)?;
    Some(Stat {
        name,
        state,
        parent,
        group,
        session,
        flags,
        ran_ticks: user.saturating_add(system),
        threads,
        born,
        cpu,
        realtime_priority,
        class,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REST: &str = "S 1 4242 4242 0 -1 1077936192 100 0 0 0 7 5 0 0 20 0 3 0 97597 3133440 394 \
        18446744073709551615 1 1 0 0 0 0 0 4096 17642 0 0 0 17 11 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn the_fields_that_are_used() {
        let text = format!("4242 (worker) {REST}");
        let stat = parse(text.as_bytes()).unwrap();
        assert_eq!(stat.name, b"worker");
        assert_eq!(stat.state, b'S');
        assert_eq!((stat.parent, stat.group, stat.session), (1, 4242, 4242));
        assert_eq!(stat.ran_ticks, 12);
        assert_eq!(stat.threads, 3);
        assert_eq!(stat.born, 97597);
        assert_eq!(stat.cpu, 11);
        assert_eq!(stat.unmanaged(), None);
        assert!(!stat.has_ended());
    }

    proptest! {
        #[test]
        fn any_name_is_read_back(name in proptest::collection::vec(any::<u8>(), 0..16)) {
            let mut text = b"4242 (".to_vec();
            text.extend_from_slice(&name);
            text.extend_from_slice(b") ");
            text.extend_from_slice(REST.as_bytes());
            let stat = parse(&text).unwrap();
            prop_assert_eq!(stat.name, name.as_slice());
            prop_assert_eq!(stat.born, 97597);
        }

        #[test]
        fn a_file_cut_before_its_class_is_refused(length in 0usize..190) {
            let text = format!("4242 (worker) {REST}");
            let class_at = text.len() - " 0 0 0 0 0 0 0 0 0 0 0 0\n".len() - 2;
            prop_assume!(length < class_at);
            prop_assert_eq!(parse(&text.as_bytes()[..length]), None);
        }
    }

    #[test]
    fn who_is_left_alone_and_why() {
        let with = |flags: u64, priority: u64, class: u64| {
            let text = format!(
                "2 (x) S 0 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                 0 1 {priority} {class} 0 0\n"
            );
            let reason = parse(text.as_bytes()).unwrap().unmanaged();
            reason.map(|reason| reason.to_string())
        };
        assert_eq!(with(KERNEL_THREAD, 0, 0).unwrap(), "kernel thread");
        assert!(with(FIXED_AFFINITY, 0, 0).unwrap().contains("affinity"));
        assert_eq!(with(0, 50, 1).unwrap(), "real-time class (SCHED_FIFO 50)");
        assert_eq!(with(0, 9, 2).unwrap(), "real-time class (SCHED_RR 9)");
        assert!(with(0, 0, 6).unwrap().contains("deadline"));
        for ordinary in [0, 3, 5, 7] {
            assert_eq!(with(0, 0, ordinary), None);
        }
    }
}
