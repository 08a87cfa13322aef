// SPDX-License-Identifier: GPL-2.0-or-later
//! The clock hook: makes QEMU take the guest's time from the plugin.
//!
//! The plugin interface can set the time only under single-threaded TCG or icount. But QEMU asks
//! its accelerator for the time through a table of functions, the class `tcg-accel-ops`. Three of
//! its slots suffice: `get_virtual_clock` (timers), `set_virtual_clock` and `get_elapsed_ticks`
//! (the guest's TSC). The plugin puts its own functions there.
//!
//! The slots' places belong to no interface, so the plugin reads them off the machine code of the
//! three exported functions that use them. `cpus_get_virtual_clock` begins, in effect, with
//!
//! ```text
//!     48 8b 05 disp32    mov cpus_accel(%rip), %rax
//!     48 8b 80 disp32    mov slot(%rax), %rax
//! ```
//!
//! The plugin accepts the result only if all three functions load the same `cpus_accel`, the slots differ and are
//! aligned, and each is empty or holds a function of QEMU itself. When the gate opens, QEMU's own clock must agree with
//! the plugin's. Otherwise the plugin refuses modelled time.

#![allow(
    unsafe_code,
    reason = "reads QEMU's code and changes its function table"
)]

use std::ffi::{CStr, c_char, c_void};

use crate::qemu::{Absent, function, symbol};

/// Bytes of each function that are searched; the two moves come within the first two dozen.
const LOOKED_AT: usize = 48;

/// The function that QEMU calls for the time, in ns.
pub type Now = unsafe extern "C" fn() -> i64;

/// The function that QEMU calls to set the time.
pub type Set = unsafe extern "C" fn(i64);

/// Why QEMU's clock cannot be taken over.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HookError {
    /// QEMU does not export a symbol.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// A function's code is not as expected.
    #[error("the code of `{0}` does not begin as in QEMU 10, so the place of its clock is unknown")]
    Code(&'static str),
    /// The functions do not fit each other.
    #[error("QEMU's three clock functions do not fit together (slots {0:#x}, {1:#x} and {2:#x})")]
    Inconsistent(usize, usize, usize),
    /// There is no such class.
    #[error("QEMU has no class `tcg-accel-ops`; is it run with -accel tcg?")]
    NoClass,
    /// A slot holds something that is not a function of QEMU.
    #[error("slot {0:#x} of QEMU's clock table holds {1:#x}, which is no function of QEMU")]
    Foreign(usize, usize),
}

/// What the code of one of the three functions shows: the address of the pointer to the class, and the slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Use {
    class_at: usize,
    slot: usize,
}

/// Decodes the beginning of a function at `address`.
fn decode(address: usize, code: &[u8]) -> Option<Use> {
    let find = |from: usize, opcode: [u8; 3]| {
        let window = code.get(from..)?;
        let at = from + window.windows(3).position(|bytes| bytes == opcode)?;
        let operand = code.get(at + 3..at + 7)?;
        Some((at + 7, i32::from_le_bytes(operand.try_into().ok()?)))
    };
    let (after, class) = find(0, [0x48, 0x8b, 0x05])?;
    let (_, slot) = find(after, [0x48, 0x8b, 0x80])?;
    let class_at = (address + after).checked_add_signed(isize::try_from(class).ok()?)?;
    Some(Use {
        class_at,
        slot: usize::try_from(slot).ok()?,
    })
}

/// Checks that the three functions use one class and proper slots; returns the slots.
fn consistent(uses: [Use; 3]) -> Result<[usize; 3], HookError> {
    let [get, set, ticks] = uses.map(|found| found.slot);
    let same_class = uses.iter().all(|found| found.class_at == uses[0].class_at);
    let aligned = [get, set, ticks]
        .iter()
        .all(|slot| slot.is_multiple_of(8) && *slot < 4096);
    if same_class && aligned && get != set && get != ticks && set != ticks {
        Ok([get, set, ticks])
    } else {
        Err(HookError::Inconsistent(get, set, ticks))
    }
}

/// The class's table with the three slots found.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Address of the class.
    class: usize,
    slots: [usize; 3],
}

impl Hook {
    /// Finds the slots and checks them. Changes nothing.
    ///
    /// # Errors
    /// When this QEMU is not as expected.
    pub fn find() -> Result<Self, HookError> {
        let names = [
            c"cpus_get_virtual_clock",
            c"cpus_set_virtual_clock",
            c"cpus_get_elapsed_ticks",
        ];
        let mut uses = [Use {
            class_at: 0,
            slot: 0,
        }; 3];
        for (found, name) in uses.iter_mut().zip(names) {
            let address = symbol(name)?;
            // SAFETY: code of QEMU, which goes on for far more bytes than these.
            let code = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), LOOKED_AT) };
            let text = name.to_str().unwrap_or("a clock function");
            *found = decode(address as usize, code).ok_or(HookError::Code(text))?;
        }
        let slots = consistent(uses)?;
        // SAFETY: the symbol is QEMU's `ObjectClass *object_class_by_name(const char *)`.
        let class = unsafe {
            let by_name: unsafe extern "C" fn(*const c_char) -> *mut u8 =
                function(c"object_class_by_name")?;
            by_name(c"tcg-accel-ops".as_ptr())
        };
        if class.is_null() {
            return Err(HookError::NoClass);
        }
        for slot in slots {
            // SAFETY: QEMU's own functions read this slot of the class.
            let held = unsafe { class.add(slot).cast::<usize>().read() };
            if held != 0 && !is_in_qemu(held) {
                return Err(HookError::Foreign(slot, held));
            }
        }
        Ok(Self {
            class: class as usize,
            slots,
        })
    }

    /// Puts these functions into the slots.
    ///
    /// # Safety
    /// Before the guest starts, on the thread that installs the plugin.
    pub unsafe fn install(&self, now: Now, set: Set) {
        let [get_slot, set_slot, ticks_slot] = self.slots;
        let class = self.class as *mut u8;
        // SAFETY: `find` has checked the slots; the signatures are those of AccelOpsClass.
        unsafe {
            let slot = |offset| class.add(offset);
            slot(get_slot).cast::<Now>().write(now);
            slot(set_slot).cast::<Set>().write(set);
            slot(ticks_slot).cast::<Now>().write(now);
        }
    }
}

/// Whether an address lies in the same object as QEMU's own exported functions.
fn is_in_qemu(address: usize) -> bool {
    let object = |address: *const c_void| {
        // SAFETY: dladdr takes any address and fills in what it finds.
        unsafe {
            let mut info = std::mem::zeroed::<libc::Dl_info>();
            let found = libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null();
            found.then(|| CStr::from_ptr(info.dli_fname).to_owned())
        }
    };
    let Ok(known) = symbol(c"cpus_get_virtual_clock") else {
        return false;
    };
    let qemu = object(known);
    qemu.is_some() && object(address as *const c_void) == qemu
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cpus_get_virtual_clock` of Debian's QEMU 10.0.2, at its address.
    const GET: [u8; 20] = [
        0x48, 0x8b, 0x05, 0xa1, 0xb2, 0x43, 0x01, 0x48, 0x85, 0xc0, 0x74, 0x14, 0x48, 0x8b, 0x80,
        0xc0, 0x00, 0x00, 0x00, 0x48,
    ];
    const ADDRESS: usize = 0x72_3000;

    #[test]
    fn the_slot_is_read_off_the_code() {
        let found = decode(ADDRESS, &GET).unwrap();
        assert_eq!(
            found,
            Use {
                class_at: 0x1b5_e2a8,
                slot: 0xc0
            }
        );
    }

    #[test]
    fn other_code_is_refused() {
        assert_eq!(decode(ADDRESS, &GET[..12]), None);
        assert_eq!(decode(ADDRESS, &[0x90; 48]), None);
        let mut cut = GET[..17].to_vec();
        cut[0] = 0x48;
        assert_eq!(decode(ADDRESS, &cut), None, "the slot's offset is cut off");
        let mut negative = GET;
        negative[18] = 0xff;
        assert_eq!(decode(ADDRESS, &negative), None);
    }

    #[test]
    fn slots_must_fit_together() {
        let found = |class_at, slot| Use { class_at, slot };
        let good = [found(8, 0xc0), found(8, 0xc8), found(8, 0xd0)];
        assert_eq!(consistent(good), Ok([0xc0, 0xc8, 0xd0]));
        for bad in [
            [found(8, 0xc0), found(8, 0xc0), found(8, 0xd0)],
            [found(8, 0xc0), found(16, 0xc8), found(8, 0xd0)],
            [found(8, 0xc1), found(8, 0xc8), found(8, 0xd0)],
            [found(8, 0xc0), found(8, 0xc8), found(8, 0x8000)],
        ] {
            assert!(matches!(consistent(bad), Err(HookError::Inconsistent(..))));
        }
    }
}
