//! Ends interrupts that a CPU's interrupt controller keeps in service although no handler runs.
//!
//! In one of nine boots of an 8-CPU guest with the model (QEMU 10.0.2), one CPU's interrupt controller has the timer's
//! vector in service although no handler runs: the end of that interrupt was lost. The controller then holds back all
//! further interrupts of the timer, so threads that sleep on this CPU never wake, and the running thread is not
//! preempted. Telling the controller that the interrupt has ended is enough.

#![allow(unsafe_code, reason = "maps the interrupt controller")]

use std::fs;
use std::io;
use std::path::Path;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Context;

/// Physical address at which every CPU sees its own local interrupt controller (Intel SDM, volume 3, 11.4.1).
const CONTROLLER: u64 = 0xfee0_0000;
const CONTROLLER_BYTES: usize = 0x1000;

/// Offset of the register that ends the interrupt in service.
const END: usize = 0xb0;

/// Offset of the first register of the vectors in service: eight of 32 bits, 16 bytes apart.
const IN_SERVICE: usize = 0x100;

/// The device for physical memory.
const MEMORY: &str = "/dev/mem";

/// The kernel's log, where a user looks for the cause of odd behaviour.
const LOG: &str = "/dev/kmsg";

/// Ends interrupts left in service on every CPU, and notes it in the kernel's log.
pub fn end_lost() -> io::Result<()> {
    let memory = fs::File::options().read(true).write(true).open(MEMORY);
    let memory = memory.about("opening", Path::new(MEMORY))?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which only this function uses.
    let mapped = unsafe {
        mmap(
            ptr::null_mut(),
            CONTROLLER_BYTES,
            access,
            MapFlags::SHARED,
            &memory,
            CONTROLLER,
        )
    };
    let mapped = mapped.during("mapping the interrupt controller")?;
    let controller = mapped.cast::<u32>();
    let register = |offset: usize| controller.wrapping_byte_add(offset);
    // SAFETY: registers of the page that is mapped.
    let read = |word: usize| unsafe { register(IN_SERVICE + 16 * word).read_volatile() };
    // The vector that the controller would end: the greatest. A handler ends its interrupt before it gives the CPU
    // back, so no handler serves an interrupt that is in service while this code runs.
    let in_service = || {
        let word = (0..8).rfind(|&word| read(word) != 0)?;
        Some(32 * word as u32 + read(word).ilog2())
    };
    let all = sched_getaffinity(None).during("asking for the CPUs")?;
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)) {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).during("going to another CPU")?;
        while let Some(vector) = in_service() {
            // SAFETY: as above; what is written does not matter.
            unsafe { register(END).write_volatile(0) };
            let note = format!("<4>lab: CPU {cpu} had lost the end of interrupt {vector:#x}\n");
            fs::write(LOG, note).about("writing", Path::new(LOG))?;
        }
    }
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(mapped, CONTROLLER_BYTES) }.during("unmapping the interrupt controller")?;
    sched_setaffinity(None, &all).during("going back to all CPUs")
}
