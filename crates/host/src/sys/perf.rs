//! `perf_event_open(2)` and the attribute it takes.
//!
//! Defines `struct perf_event_attr` itself (include/uapi/linux/perf_event.h, version 5 of it, Linux
//! 4.8): the crates that offer it misread weight records.
#![expect(
    unsafe_code,
    reason = "the system call takes a pointer to its attribute"
)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::last_errno;

/// What to count or sample (`struct perf_event_attr`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// Which PMU.
    pub kind: u32,
    /// Bytes of this structure.
    pub size: u32,
    /// Which event, in the PMU's own coding.
    pub config: u64,
    /// Events between two samples; 0 only counts.
    pub sample_period: u64,
    /// Fields of a sample record, `PERF_SAMPLE_*`.
    pub sample_type: u64,
    /// Form of what `read` gives, `PERF_FORMAT_*`.
    pub read_format: u64,
    /// Bits, see [`flag`].
    pub flags: u64,
    /// Bytes (or records) in the ring that wake a reader.
    pub wakeup: u32,
    /// Breakpoints only.
    pub breakpoint: u32,
    /// More of the event's coding.
    pub config1: u64,
    /// More of the event's coding.
    pub config2: u64,
    /// Branch records; unused here.
    pub branch_sample_type: u64,
    /// Registers to sample; unused here.
    pub sample_regs_user: u64,
    /// Stack to sample; unused here.
    pub sample_stack_user: u32,
    /// Clock of the time stamps, if [`flag::USE_CLOCK_ID`] is set.
    pub clock_id: i32,
    /// Registers to sample; unused here.
    pub sample_regs_intr: u64,
    /// Side buffers; unused here.
    pub aux_watermark: u32,
    /// Call chains; unused here.
    pub sample_max_stack: u16,
    /// Zero.
    pub reserved: u16,
}

/// Bits of [`Attribute::flags`].
pub mod flag {
    /// Do not count in the kernel.
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    /// Do not count in the hypervisor.
    pub const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    /// How exactly a sample must name its instruction: 2 asks for no skid.
    pub const PRECISE_2: u64 = 2 << 15;
    /// Do not count in guests.
    pub const EXCLUDE_GUEST: u64 = 1 << 20;
    /// Time stamps by [`super::Attribute::clock_id`].
    pub const USE_CLOCK_ID: u64 = 1 << 25;
}

const _: () = assert!(size_of::<Attribute>() == 112);

/// Opens an event on a thread (`tid`, 0 for the caller, `None` for all) and a CPU (`None` for any),
/// closed on exec.
pub(crate) fn open(
    attribute: &Attribute,
    tid: Option<u32>,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    let leader = leader.map_or(-1, |fd| fd.as_raw_fd());
    call(attribute, number(tid)?, number(cpu)?, leader, 0)
}

/// Opens an event on all threads of a cgroup and of those below it, on one CPU; closed on exec.
pub(crate) fn open_on_cgroup(
    attribute: &Attribute,
    cgroup: BorrowedFd<'_>,
    cpu: u32,
) -> Result<OwnedFd, Errno> {
    const PID_IS_CGROUP: libc::c_ulong = 1 << 2;
    let cpu = number(Some(cpu))?;
    call(attribute, cgroup.as_raw_fd(), cpu, -1, PID_IS_CGROUP)
}

fn number(n: Option<u32>) -> Result<libc::c_int, Errno> {
    match n {
        Some(n) => libc::c_int::try_from(n).map_err(|_| Errno::INVAL),
        None => Ok(-1),
    }
}

fn call(
    attribute: &Attribute,
    pid: libc::c_int,
    cpu: libc::c_int,
    leader: libc::c_int,
    flags: libc::c_ulong,
) -> Result<OwnedFd, Errno> {
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    let attribute = Attribute {
        size: u32::try_from(size_of::<Attribute>()).expect("112"),
        ..*attribute
    };
    // SAFETY: the attribute lives over the call and says its own size; the other arguments are
    // numbers.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attribute),
            pid,
            cpu,
            leader,
            flags | CLOSE_ON_EXEC,
        )
    };
    let fd = libc::c_int::try_from(answer).map_err(|_| Errno::INVAL)?;
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
