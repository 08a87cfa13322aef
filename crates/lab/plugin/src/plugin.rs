// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's state, and its action on each of QEMU's callbacks.
//!
//! A vCPU's state belongs to the host thread that runs it. The one exception is the moment when the gate moves: then
//! QEMU has stopped all running vCPUs, and the others can neither wake nor fall asleep.

#![allow(
    unsafe_code,
    reason = "state shared by convention with QEMU's threads, calls into QEMU"
)]

mod foreseen;
mod recorded;
mod resident;

use std::cell::UnsafeCell;
use std::ffi::c_uint;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use numaherd_hardware::{Access, Config, HardwareError, Machine, Memory, Span};
use qemu_plugin_sys as sys;
use serde_json::{Map, Value};

use crate::arguments::{ArgumentError, Arguments};
use crate::clock::HookError;
use crate::file_error::FileError;
use crate::foresight::GuestMemory;
use crate::guest_time::{Disobeyed, GuestTime};
use crate::ipm::{Numbering, Unit};
use crate::layout::{Header, Nop};
use crate::machine_file::{self, MachineFile};
use crate::qemu::{Absent, Code, Translations};
use crate::recording::{Recorder, Recording};
use crate::report;
use crate::shared::Shared;
use crate::vcpu::{Threads, Vcpu, Words, record};

/// Bytes of a guest's page frame.
const PAGE_BYTES: u64 = 4096;

/// Upper limit of plausible physical addresses: Linux with four-level page tables maps no more.
const MOST_MEMORY_BYTES: u64 = 1 << 46;

/// Modelled time between two checks of a vCPU's time.
const QUANTUM_NS: u64 = 50_000;

/// Value of [`Header::time_mode`]: time is always modelled while the gate is open.
const MODELLED_TIME: u64 = 1;

/// Bytes from one vCPU's words to the next one's. The counters of translated code share no line of the host's caches
/// with other data, and a shift gives their address.
const WORDS_BYTES: usize = 128;
const _: () = assert!(size_of::<Words>() <= WORDS_BYTES);

/// Why the plugin cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program, not a machine, is emulated.
    #[error("only whole machines can be modelled (qemu-system-…)")]
    NoMachine,
    /// The arguments are wrong.
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    /// The thread for idle time cannot be started.
    #[error("no thread for idle time: {0}")]
    IdleThread(std::io::Error),
    /// A file that an argument names cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The IPM unit's configuration is wrong.
    #[error(transparent)]
    Ipm(#[from] HardwareError),
    /// QEMU cannot be made to translate again.
    #[error("the gate cannot be moved: {0}; use QEMU 10 as Debian builds it")]
    Code(#[from] Absent),
    /// QEMU's clock cannot be taken over.
    #[error("modelled time is not possible: {0}; use QEMU 10 as Debian builds it")]
    Hook(#[from] HookError),
}

/// Why the gate stays closed.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error("the PMU module has not published the node table; load it first")]
    NoModule,
    #[error("the node table has page frames {0:#x} to {1:#x} on node {2}, which cannot be")]
    Frames(u64, u64, usize),
    #[error("the node table is wrong: {0}")]
    Memory(HardwareError),
    #[error(transparent)]
    Machine(#[from] HardwareError),
    #[error("the trace is finished, or could not be written on; start another guest")]
    TraceIsOver,
    #[error(transparent)]
    Clock(#[from] Disobeyed),
}

#[repr(align(128))]
struct Cell(UnsafeCell<Option<Vcpu>>);

// SAFETY: each is used by its vCPU's thread only, or while no vCPU runs.
unsafe impl Sync for Cell {}

/// Everything the plugin knows.
pub struct Plugin {
    arguments: Arguments,
    config: Config,
    line_shift: u32,
    shared: Shared,
    /// The guest's time.
    pub time: GuestTime,
    code: Code,
    /// Set if this QEMU's cache of translations can be made to grow.
    translations: Option<Translations>,
    machine: OnceLock<Machine>,
    /// Set if the guest's memory can be found on the host.
    memory: OnceLock<GuestMemory>,
    vcpus: Box<[Cell]>,
    threads: Box<[Threads]>,
    units: sys::qemu_plugin_u64,
    kernel: sys::qemu_plugin_u64,
    user: sys::qemu_plugin_u64,
    /// The IPM unit, and how its TLBs number pages.
    unit: Option<(Mutex<Unit>, Numbering)>,
    /// Set if accesses are recorded, not modelled.
    recording: Option<Recording>,
    /// The guest's time when the recording began.
    recording_since: AtomicI64,
    /// Whether the gate is open, or will be after the next flush.
    gate: AtomicBool,
    /// Set from a request to move the gate until it has moved.
    gate_moves: AtomicBool,
    quanta: AtomicU64,
}

// SAFETY: the raw pointers are QEMU's scoreboard, which is made for use from all vCPU threads.
unsafe impl Send for Plugin {}
// SAFETY: as above; everything else is atomic, locked, or in a `Cell`.
unsafe impl Sync for Plugin {}

impl Plugin {
    /// Reads the machine, maps the shared memory and finds what modelled time needs.
    pub fn new(arguments: Arguments, vcpus: usize) -> Result<Self, StartError> {
        let MachineFile { config, ipm } = machine_file::read(&arguments.config, vcpus)?;
        let unit = ipm.map(|ipm| Unit::new(ipm, &config)).transpose()?;
        let unit = unit.map(|unit| {
            let numbering = unit.numbering();
            (Mutex::new(unit), numbering)
        });
        let time = GuestTime::new(vcpus)?;
        let create = |path: &PathBuf| Recording::create(path, arguments.about.as_deref());
        let recording = arguments.trace.as_ref().map(create).transpose()?;
        let header = Header {
            records: u64::from(recording.is_some()),
            has_ipm: u64::from(unit.is_some()),
            time_mode: MODELLED_TIME,
            picoseconds_per_instruction: config.picoseconds_per_instruction,
            core_mhz: config.core_mhz,
            ..Header::for_machine(vcpus as u64, config.nodes() as u64)
        };
        let shared = Shared::map(&arguments.shm, header)?;
        // SAFETY: a scoreboard with room for a `Words` for each vCPU.
        let score = unsafe { sys::qemu_plugin_scoreboard_new(WORDS_BYTES) };
        let word = |offset| sys::qemu_plugin_u64 { score, offset };
        Ok(Self {
            line_shift: config.line_bytes.trailing_zeros(),
            arguments,
            config,
            shared,
            time,
            code: Code::find()?,
            translations: Translations::find().ok(),
            machine: OnceLock::new(),
            memory: OnceLock::new(),
            vcpus: (0..vcpus).map(|_| Cell(UnsafeCell::new(None))).collect(),
            threads: (0..vcpus).map(|_| Threads::default()).collect(),
            units: word(std::mem::offset_of!(Words, units)),
            kernel: word(std::mem::offset_of!(Words, kernel)),
            user: word(std::mem::offset_of!(Words, user)),
            unit,
            recording,
            recording_since: AtomicI64::new(0),
            gate: AtomicBool::new(false),
            gate_moves: AtomicBool::new(false),
            quanta: AtomicU64::new(0),
        })
    }

    pub fn gate_is_open(&self) -> bool {
        self.gate.load(SeqCst)
    }

    /// Whether accesses of the guest's kernel are modelled, too.
    pub fn models_kernel(&self) -> bool {
        self.arguments.kernel
    }

    /// The words in which translated code counts units, kernel instructions and, while recording, user instructions.
    pub fn words(&self) -> [sys::qemu_plugin_u64; 3] {
        [self.units, self.kernel, self.user]
    }

    /// Units after which a vCPU checks its time.
    pub fn quantum_units(&self) -> u64 {
        (QUANTUM_NS * 1000 / self.config.picoseconds_per_instruction).max(1)
    }

    /// The state of a vCPU; None before the gate is first opened.
    ///
    /// # Safety
    /// On this vCPU's thread, and with no other reference to it.
    #[expect(clippy::mut_from_ref, reason = "a cell per thread")]
    #[inline]
    pub unsafe fn vcpu(&self, vcpu: c_uint) -> Option<&mut Vcpu> {
        // SAFETY: the caller's promise.
        unsafe { (*self.vcpus[vcpu as usize].0.get()).as_mut() }
    }

    fn read_words(&self, vcpu: usize) -> Words {
        Words {
            units: read_word(self.units, vcpu),
            kernel: read_word(self.kernel, vcpu),
            user: read_word(self.user, vcpu),
        }
    }

    /// Folds the units that translated code has counted into the vCPU's state. Returns its time in
    /// picoseconds, and the words after that.
    fn fold(&self, state: &mut Vcpu) -> (u64, Words) {
        let words = self.read_words(state.number);
        // SAFETY: as in `read_words`, and only this thread counts there.
        unsafe { sys::qemu_plugin_u64_set(self.units, state.number as c_uint, 0) };
        (state.fold(words.units), Words { units: 0, ..words })
    }

    /// Brings a vCPU's counters in the shared memory up to date. Returns its time in picoseconds.
    fn publish(&self, state: &mut Vcpu) -> u64 {
        let (time_ps, words) = self.fold(state);
        state.publish(words, &self.shared);
        time_ps
    }

    /// Units that translated code has counted on a vCPU since the last fold.
    #[inline]
    fn units(&self, vcpu: usize, words: Option<NonNull<Words>>) -> u64 {
        match words {
            // SAFETY: as in `hits`.
            Some(words) => unsafe { (&raw const (*words.as_ptr()).units).read_volatile() },
            None => read_word(self.units, vcpu),
        }
    }

    /// Adds the units of a wait to a vCPU's word of units.
    #[inline]
    fn raise_units(&self, vcpu: usize, words: Option<NonNull<Words>>, units: u64) {
        if units > 0 {
            let sum = self.units(vcpu, words) + units;
            match words {
                // SAFETY: as in `hits`.
                Some(words) => unsafe { (&raw mut (*words.as_ptr()).units).write_volatile(sum) },
                // SAFETY: the vCPU runs, so its words exist, and this is its thread.
                None => unsafe { sys::qemu_plugin_u64_set(self.units, vcpu as c_uint, sum) },
            }
        }
    }

    /// Whether an access is known by its virtual address to hit; if so, counts it (see [`Vcpu::hits`]).
    #[inline]
    pub fn hits(&self, state: &mut Vcpu, address: u64, bytes: u64, store: bool) -> bool {
        let Some(words) = state.words else {
            return false;
        };
        // SAFETY: `gate_has_moved` says why the words stay where they are; only this thread counts there.
        let kernel = unsafe { (&raw const (*words.as_ptr()).kernel).read_volatile() };
        state.hits(address, bytes, store, kernel)
    }

    /// Makes an access, adds its wait to the units, and takes a sample if one is due.
    #[inline]
    pub fn access(
        &self,
        state: &mut Vcpu,
        access: Access,
        instruction: u64,
        value: impl FnOnce() -> Option<u64>,
    ) {
        let Some(machine) = self.machine.get() else {
            return;
        };
        let (vcpu, words) = (state.number, state.words);
        let Some((fetch, raise)) = state.access(machine, access, || self.units(vcpu, words), value)
        else {
            return;
        };
        self.raise_units(vcpu, words, raise);
        if let Some(fetch) = fetch
            && self.shared.is_sample(state.number, fetch.latency_ps / 1000)
        {
            self.shared
                .push(state.number, &record(access, instruction, &fetch));
        }
    }

    /// The part of an access of `bytes` bytes that lies in the next line. None if that line is on
    /// another page, whose physical address is unknown.
    #[inline]
    pub fn second_line(&self, first: Access, bytes: u64) -> Option<Access> {
        let line_bytes = 1 << self.line_shift;
        let start = first.virtual_address;
        let next = (start & !(line_bytes - 1)) + line_bytes;
        if start + bytes <= next || next.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let physical_address = first.physical_address + (next - start);
        Some(Access {
            virtual_address: next,
            physical_address,
            store: first.store,
        })
    }

    /// A vCPU's quantum is over: publishes its time and waits for the others.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn quantum(&self, vcpu: c_uint) {
        // SAFETY: the caller's promise.
        let Some(state) = (unsafe { self.vcpu(vcpu) }) else {
            return;
        };
        let time_ps = self.publish(state);
        self.quanta.fetch_add(1, Relaxed);
        if let Some(mut unit) = self.unit() {
            unit.pass(self.config.cycles(time_ps), time_ps / 1000);
        }
        if let Some(translations) = &self.translations
            && state.flushes.is_due(self.shared.running(state.number).1)
        {
            // SAFETY: the caller's promise.
            unsafe { translations.flush(state.number) };
        }
        if self.time.is_modelled() {
            // SAFETY: the caller's promise.
            unsafe { self.time.reached(state.number, nanoseconds(time_ps)) };
        } else {
            state.idle_until(picoseconds(self.time.now_ns()));
        }
    }

    /// A vCPU has nothing to do.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn idles(&self, vcpu: c_uint) {
        // SAFETY: the caller's promise.
        let state = unsafe { self.vcpu(vcpu) };
        let time_ns = state.map(|state| {
            let time_ps = self.publish(state);
            state.core.rests();
            nanoseconds(time_ps)
        });
        self.time.idles(vcpu as usize, time_ns);
    }

    /// A vCPU has something to do again.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn wakes(&self, vcpu: c_uint) {
        let Some(time_ns) = self.time.wakes(vcpu as usize) else {
            return;
        };
        // SAFETY: the caller's promise.
        if let Some(state) = unsafe { self.vcpu(vcpu) } {
            self.fold(state);
            state.idle_until(picoseconds(time_ns));
        }
    }

    /// One of our NOPs was executed.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn asked(&self, vcpu: c_uint, nop: Nop) {
        // SAFETY: the caller's promise.
        let state = unsafe { self.vcpu(vcpu) };
        match nop {
            Nop::GateOn => match self.may_open() {
                // SAFETY: the caller's promise.
                Ok(()) => unsafe { self.move_gate(vcpu, true) },
                Err(reason) => {
                    self.shared.count_refusal();
                    eprintln!("numaherd-lab-plugin: the gate stays closed: {reason}");
                }
            },
            // SAFETY: the caller's promise.
            Nop::GateOff => unsafe { self.move_gate(vcpu, false) },
            Nop::Sync => {
                if let Some(state) = state {
                    self.publish(state);
                }
                self.shared.count_sync(vcpu as usize);
            }
            Nop::Switch => {
                if let Some(state) = state {
                    let words = self.read_words(state.number);
                    let thread = self.shared.running(state.number);
                    state.switch(words, thread, &self.threads[state.number]);
                    state.space = None;
                    self.record(state, nop);
                }
            }
            Nop::Fork | Nop::Exec | Nop::Exit | Nop::Wake => {
                if let Some(state) = state {
                    self.end_residents(state, nop);
                    self.record(state, nop);
                }
            }
            Nop::Record => {
                if let Some(recording) = &self.recording {
                    recording.await_exec(self.shared.other(vcpu as usize).0);
                }
            }
            Nop::IpmRead => {
                if let Some(mut unit) = self.unit() {
                    let bytes = unit.read(self.shared.outbox_room());
                    self.shared.fill_outbox(bytes.as_deref());
                }
            }
            Nop::IpmSharing => {
                if let Some(mut unit) = self.unit() {
                    unit.ask_for_sharing(self.time.now_ns().unsigned_abs());
                }
            }
        }
    }

    /// Checks the clock and, before the gate's first opening, builds the machine.
    fn may_open(&self) -> Result<(), GateError> {
        if !self.shared.module_ready() {
            return Err(GateError::NoModule);
        }
        if self.machine.get().is_none() {
            let span = |node| {
                let (start, end) = self.shared.node(node);
                let most = MOST_MEMORY_BYTES / PAGE_BYTES;
                if start > most || end > most {
                    return Err(GateError::Frames(start, end, node));
                }
                Ok(Span {
                    start: start * PAGE_BYTES,
                    end: end * PAGE_BYTES,
                    node,
                })
            };
            let spans: Vec<Span> = (0..self.config.nodes())
                .map(span)
                .collect::<Result<_, _>>()?;
            let memory = Memory::new(spans).map_err(GateError::Memory)?;
            let machine = Machine::new(self.config.clone(), memory)?;
            // Another vCPU may have built the same machine meanwhile.
            if let Ok(memory) = GuestMemory::find(machine.memory().end()) {
                let _ = self.memory.set(memory);
            }
            let _ = self.machine.set(machine);
        }
        if self.recording.as_ref().is_some_and(Recording::is_over) {
            return Err(GateError::TraceIsOver);
        }
        self.time.check()?;
        Ok(())
    }

    /// Opens or closes the gate, with effect from the next flush, which it requests.
    ///
    /// # Safety
    /// On this vCPU's thread, while it runs code.
    unsafe fn move_gate(&self, vcpu: c_uint, open: bool) {
        if self.gate.swap(open, SeqCst) != open {
            self.gate_moves.store(true, SeqCst);
            // SAFETY: the caller's promise.
            unsafe { self.code.flush(vcpu as usize) };
        }
    }

    /// All translated code has been dropped: a requested move of the gate takes effect.
    ///
    /// # Safety
    /// In a callback for flushes.
    pub unsafe fn code_is_dropped(&self) {
        if self.gate_moves.swap(false, SeqCst) {
            // SAFETY: the caller's promise; states belong to this thread while no vCPU runs code, falls asleep or
            // wakes.
            unsafe { self.code.while_nobody_wakes(|| self.gate_has_moved()) };
        }
    }

    /// Starts or ends the model.
    ///
    /// # Safety
    /// While no vCPU runs, falls asleep or wakes.
    unsafe fn gate_has_moved(&self) {
        let open = self.gate_is_open();
        if let (true, Some(machine)) = (open, self.machine.get()) {
            for (number, cell) in self.vcpus.iter().enumerate() {
                // SAFETY: no vCPU runs.
                let state = unsafe { &mut *cell.0.get() };
                let state = state.get_or_insert_with(|| Vcpu::new(machine, number));
                state.space = None;
                state.core.forget_addresses();
                if number < running_vcpus() {
                    let (_, words) = self.fold(state);
                    // QEMU moves these words only when it starts further vCPUs, and all of the machine's run by now.
                    state.words =
                        NonNull::new(recorded::address_of(self.units, number).cast_mut().cast());
                    state.switch(words, self.shared.running(number), &self.threads[number]);
                    if self.recording.is_some() {
                        // SAFETY: as above, and nobody else counts in this one.
                        state.recorder =
                            Some(unsafe { Recorder::new(recorded::address_of(self.user, number)) });
                    }
                }
            }
            let now = self.time.begin();
            self.recording_since.store(now, Relaxed);
            for cell in &self.vcpus {
                // SAFETY: no vCPU runs.
                if let Some(state) = unsafe { &mut *cell.0.get() } {
                    state.idle_until(picoseconds(now));
                }
            }
        } else {
            // SAFETY: no vCPU runs.
            unsafe { self.finish_recording() };
            self.time.end();
        }
        self.shared.set_gate(open);
    }

    fn report(&self) -> Value {
        let mut rest = Map::new();
        self.time.report(&mut rest);
        rest.insert("quanta".to_owned(), self.quanta.load(Relaxed).into());
        report::report(&self.shared, &self.threads, rest)
    }

    /// QEMU ends.
    pub fn ends(&self) {
        if let Some(path) = &self.arguments.report {
            let text = format!("{:#}\n", self.report());
            if let Err(error) = std::fs::write(path, text) {
                eprintln!("numaherd-lab-plugin: report {}: {error}", path.display());
            }
        }
    }
}

/// A word of a started vCPU. To be called on its own thread or while no vCPU runs.
#[inline]
fn read_word(word: sys::qemu_plugin_u64, vcpu: usize) -> u64 {
    // SAFETY: the vCPU runs, so its words exist.
    unsafe { sys::qemu_plugin_u64_get(word, vcpu as c_uint) }
}

/// Number of vCPUs that QEMU has started so far; only these have words.
fn running_vcpus() -> usize {
    // SAFETY: may be called at any time.
    usize::try_from(unsafe { sys::qemu_plugin_num_vcpus() }).unwrap_or(0)
}

fn nanoseconds(ps: u64) -> i64 {
    (ps / 1000).cast_signed()
}

fn picoseconds(ns: i64) -> u64 {
    ns.unsigned_abs() * 1000
}
