// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU plugin of the lab: feeds the hardware model with the guest's data accesses, and lets the
//! guest's time follow the model.
//!
//! | file | subject |
//! |---|---|
//! | `lib` | install, translation, callbacks: what QEMU calls |
//! | `plugin` | the plugin's state, the gate, and what the callbacks do: when accesses are modelled; `recorded` when they are recorded; `resident` with TLBs; `foreseen` for `foresight` |
//! | `vcpu` | one vCPU: core, instruction count, threads |
//! | `foresight` | what the next access will probably need, fetched early |
//! | `guest_time` | real and modelled time, timers, idle time |
//! | `schedule` | the vCPUs' times and the guest's |
//! | `recording` | a trace of what programs load and store |
//! | `ipm` | the machine's IPM unit, with the guest's processes and pages |
//! | `clock` | the clock hook: QEMU takes its time from here |
//! | `qemu` | other functions of QEMU that are called |
//! | `shared`, `layout` | the memory shared with the guest's PMU module |
//! | `arguments`, `machine_file`, `file_error`, `report` | in and out |
//!
//! While the gate is closed, only the NOPs of [`layout::Nop`] are instrumented, and the guest runs
//! at QEMU's full speed in real time.
//!
//! A panic must not unwind into QEMU: build with the profile `lab`, which aborts instead.

#![allow(unsafe_code, reason = "called from C, calls C")]

mod arguments;
mod clock;
mod file_error;
mod foresight;
mod guest_time;
mod ipm;
mod layout;
mod machine_file;
mod plugin;
mod qemu;
mod recording;
mod report;
mod schedule;
mod shared;
mod sync;
mod vcpu;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use numaherd_hardware::Access;
use numaherd_trace::Event;
use qemu_plugin_sys as sys;
use qemu_plugin_sys::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;
use qemu_plugin_sys::qemu_plugin_mem_rw::{
    QEMU_PLUGIN_MEM_R, QEMU_PLUGIN_MEM_RW, QEMU_PLUGIN_MEM_W,
};

use crate::arguments::Arguments;
use crate::layout::Nop;
use crate::plugin::{Plugin, StartError};
use crate::vcpu::Vcpu;

/// Version of the plugin interface that this was built for; QEMU reads it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION.cast_signed();

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// The plugin, which exists whenever QEMU calls back.
#[inline]
fn plugin() -> &'static Plugin {
    PLUGIN.get().expect("installed")
}

/// Called by QEMU when it loads the plugin. Returns 0, or -1 after a message on stderr.
///
/// # Safety
/// As QEMU's plugin interface has it: `info` and `argc` strings at `argv` are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: sys::qemu_plugin_id_t,
    info: *const sys::qemu_info_t,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU's promise; `max_vcpus` is set for whole machines.
    let (vcpus, texts) = unsafe {
        let texts: Vec<String> = (0..usize::try_from(argc).unwrap_or(0))
            .map(|i| CStr::from_ptr(*argv.add(i)).to_string_lossy().into_owned())
            .collect();
        let info = &*info;
        let vcpus = if info.system_emulation {
            usize::try_from(info.__bindgen_anon_1.system.max_vcpus).ok()
        } else {
            None
        };
        (vcpus, texts)
    };
    match install(id, &texts, vcpus) {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("numaherd-lab-plugin: {reason}");
            -1
        }
    }
}

/// Starts the plugin for a machine of this many vCPUs; None means that QEMU emulates a program, which is an error.
fn install(
    id: sys::qemu_plugin_id_t,
    texts: &[String],
    vcpus: Option<usize>,
) -> Result<(), StartError> {
    let vcpus = vcpus.ok_or(StartError::NoMachine)?;
    let plugin = Plugin::new(Arguments::parse(texts)?, vcpus)?;
    let plugin = PLUGIN.get_or_init(|| plugin);
    // SAFETY: the guest has not started, and the plugin is in place.
    unsafe { plugin.time.take_over_clock(clock_now, clock_set) }.map_err(StartError::IdleThread)?;
    register(id);
    Ok(())
}

unsafe extern "C" fn clock_now() -> i64 {
    plugin().time.asked()
}

/// QEMU must not set the guest's time.
unsafe extern "C" fn clock_set(_: i64) {}

/// Registers all callbacks, only once: QEMU frees a deregistered callback although other threads may still call it.
fn register(id: sys::qemu_plugin_id_t) {
    // SAFETY: the callbacks have the right types and live as long as the program.
    unsafe {
        sys::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(translate));
        sys::qemu_plugin_register_vcpu_idle_cb(id, Some(idles));
        sys::qemu_plugin_register_vcpu_resume_cb(id, Some(wakes));
        sys::qemu_plugin_register_flush_cb(id, Some(flushed));
        sys::qemu_plugin_register_atexit_cb(id, Some(ends), std::ptr::null_mut());
    }
}

/// A block of guest code is translated: instrument it.
unsafe extern "C" fn translate(_: sys::qemu_plugin_id_t, block: *mut sys::qemu_plugin_tb) {
    let plugin = plugin();
    let modelled = plugin.gate_is_open();
    // SAFETY: `block` is valid during this callback, and its instructions with it.
    unsafe {
        let count = sys::qemu_plugin_tb_n_insns(block);
        let user = sys::qemu_plugin_tb_vaddr(block).cast_signed() >= 0;
        if modelled {
            let [units, kernel, own] = plugin.words();
            let add = sys::qemu_plugin_op::QEMU_PLUGIN_INLINE_ADD_U64;
            let count_in = |word| {
                let instructions = count as u64;
                sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
                    block,
                    add,
                    word,
                    instructions,
                );
            };
            count_in(units);
            if !user {
                count_in(kernel);
            } else if plugin.is_recording() {
                count_in(own);
            }
            sys::qemu_plugin_register_vcpu_tb_exec_cond_cb(
                block,
                Some(quantum),
                QEMU_PLUGIN_CB_NO_REGS,
                sys::qemu_plugin_cond::QEMU_PLUGIN_COND_GE,
                units,
                plugin.quantum_units(),
                std::ptr::null_mut(),
            );
        }
        let recorded_here = modelled && user && plugin.is_recording();
        let callbacks: Option<[AccessCallback; 2]> = match modelled && !plugin.is_recording() {
            true if user => Some([accessed::<false, false>, accessed::<true, false>]),
            true if plugin.models_kernel() => {
                Some([accessed::<false, true>, accessed::<true, true>])
            }
            _ => None,
        };
        for index in 0..count {
            let instruction = sys::qemu_plugin_tb_get_insn(block, index);
            if let Some(nop) = nop_of(instruction) {
                sys::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    Some(asked),
                    QEMU_PLUGIN_CB_NO_REGS,
                    nop as usize as *mut c_void,
                );
            }
            let on = |which, callback: AccessCallback, data: *mut c_void| {
                sys::qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    Some(callback),
                    QEMU_PLUGIN_CB_NO_REGS,
                    which,
                    data,
                );
            };
            if recorded_here {
                let behind = count - index - 1;
                on(QEMU_PLUGIN_MEM_RW, recorded, behind as *mut c_void);
            } else if let Some([loads, stores]) = callbacks {
                let address = sys::qemu_plugin_insn_vaddr(instruction) as *mut c_void;
                on(QEMU_PLUGIN_MEM_R, loads, address);
                on(QEMU_PLUGIN_MEM_W, stores, address);
            }
        }
    }
}

/// What QEMU calls for a data access.
type AccessCallback = unsafe extern "C" fn(c_uint, sys::qemu_plugin_meminfo_t, u64, *mut c_void);

/// The request to the plugin that an instruction encodes, if it is one of its NOPs.
///
/// # Safety
/// `instruction` must be valid.
unsafe fn nop_of(instruction: *mut sys::qemu_plugin_insn) -> Option<Nop> {
    let mut bytes = [0u8; 8];
    // SAFETY: at most as many bytes as there is room for.
    unsafe {
        if sys::qemu_plugin_insn_size(instruction) != bytes.len() {
            return None;
        }
        sys::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len());
    }
    Nop::decode(&bytes)
}

/// A program or the kernel made a load or a store. The idle thread's are left out: no program waits for them.
unsafe extern "C" fn accessed<const STORE: bool, const BY_KERNEL: bool>(
    vcpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    instruction: *mut c_void,
) {
    let plugin = plugin();
    // SAFETY: on this vCPU's thread; `info` is valid during this callback.
    unsafe {
        let Some(state) = plugin.vcpu(vcpu) else {
            return;
        };
        let is_left_out = BY_KERNEL && state.runs_idle_thread();
        if !is_left_out && !state.repeats(address, STORE) {
            modelled::<STORE>(plugin, state, info, address, instruction as u64);
        }
    }
}

/// Models an access that is not known to hit. Not inlined into [`accessed`], which so need not save the registers used
/// here: most accesses repeat the line of the one before.
///
/// # Safety
/// On the vCPU's thread; `info` must be valid, in a memory callback.
#[inline(never)]
unsafe fn modelled<const STORE: bool>(
    plugin: &Plugin,
    state: &mut Vcpu,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    instruction: u64,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = 1 << sys::qemu_plugin_mem_size_shift(info);
        if plugin.hits(state, address, bytes, STORE) {
            return;
        }
        let value = if STORE { None } else { loaded(info) };
        if let Some(next) = value {
            plugin.foresee(state, next);
        }
        let place = sys::qemu_plugin_get_hwaddr(info, address);
        if place.is_null() || sys::qemu_plugin_hwaddr_is_io(place) {
            state.count_unmodelled();
            return;
        }
        let physical_address = sys::qemu_plugin_hwaddr_phys_addr(place);
        plugin.remember(state, address, physical_address);
        let first = Access {
            virtual_address: address,
            physical_address,
            store: STORE,
        };
        plugin.translate(state, first);
        plugin.access(state, first, instruction, || value);
        if let Some(second) = plugin.second_line(first, bytes) {
            plugin.access(state, second, instruction, || None);
        }
    }
}

/// User code made a data access while recording; `behind` instructions of its block follow it.
unsafe extern "C" fn recorded(
    vcpu: c_uint,
    info: sys::qemu_plugin_meminfo_t,
    address: u64,
    behind: *mut c_void,
) {
    // SAFETY: on this vCPU's thread; `info` is valid during this callback.
    unsafe {
        let event = || {
            let bytes = 1 << sys::qemu_plugin_mem_size_shift(info);
            if sys::qemu_plugin_mem_is_store(info) {
                Event::store(address, bytes, 0)
            } else {
                Event::load(address, bytes, 0)
            }
        };
        plugin().record_access(vcpu, behind as u64, event);
    }
}

/// What a load returned, if it can be an address.
///
/// # Safety
/// `info` must be valid, in a memory callback.
unsafe fn loaded(info: sys::qemu_plugin_meminfo_t) -> Option<u64> {
    // SAFETY: the type says which field of the union is set.
    unsafe {
        let value = sys::qemu_plugin_mem_get_value(info);
        let eight_bytes = sys::qemu_plugin_mem_value_type::QEMU_PLUGIN_MEM_VALUE_U64;
        (value.type_ == eight_bytes).then_some(value.data.u64_)
    }
}

/// A vCPU's quantum is over.
unsafe extern "C" fn quantum(vcpu: c_uint, _: *mut c_void) {
    // SAFETY: on this vCPU's thread.
    unsafe { plugin().quantum(vcpu) }
}

/// One of our NOPs was executed.
unsafe extern "C" fn asked(vcpu: c_uint, nop: *mut c_void) {
    let Some(&nop) = Nop::ALL
        .iter()
        .find(|&&known| known as usize == nop as usize)
    else {
        return;
    };
    // SAFETY: on this vCPU's thread.
    unsafe { plugin().asked(vcpu, nop) }
}

/// QEMU has dropped all translated code, because the gate moves or because its buffer for code was full.
unsafe extern "C" fn flushed(_: sys::qemu_plugin_id_t) {
    // SAFETY: QEMU calls this as exclusive work.
    unsafe { plugin().code_is_dropped() }
}

unsafe extern "C" fn idles(_: sys::qemu_plugin_id_t, vcpu: c_uint) {
    // SAFETY: on this vCPU's thread.
    unsafe { plugin().idles(vcpu) }
}

unsafe extern "C" fn wakes(_: sys::qemu_plugin_id_t, vcpu: c_uint) {
    // SAFETY: on this vCPU's thread.
    unsafe { plugin().wakes(vcpu) }
}

unsafe extern "C" fn ends(_: sys::qemu_plugin_id_t, _: *mut c_void) {
    plugin().ends();
}
