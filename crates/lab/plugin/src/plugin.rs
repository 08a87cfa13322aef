// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's state and what happens on each of QEMU's callbacks.
//!
//! A vCPU's state belongs to the host thread that runs it. The one exception is the moment after
//! the gate has moved, when QEMU has stopped all vCPUs.

#![allow(
    unsafe_code,
    reason = "state shared by convention with QEMU's threads, calls into QEMU"
)]

use std::cell::UnsafeCell;
use std::ffi::c_uint;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use numaherd_hardware::{
    Access, Config, ConfigError, Machine, MachineError, Memory, MemoryError, Span,
};
use qemu_plugin_sys as sys;
use serde_json::{Map, Value};

use crate::arguments::{Accesses, Arguments, TimeMode};
use crate::clock::{Hook, HookError};
use crate::layout::{Header, Nop};
use crate::qemu::{Absent, ExitRequests, Timers, Translations};
use crate::report;
use crate::schedule::Schedule;
use crate::shared::{Shared, SharedError};
use crate::vcpu::{Threads, Vcpu, Words, record};

/// Bytes of a guest's page frame.
const PAGE_BYTES: u64 = 4096;

/// Value of `offset_ns` while the guest's time is the model's.
const MODELLED: i64 = i64::MIN;

/// Host time between two flushes of a vCPU's translations.
const BETWEEN_FLUSHES: Duration = Duration::from_millis(50);

/// Host time after which a vCPU that is ahead goes on although the others have not caught up.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The same where it cannot be seen that QEMU wants the vCPU for exclusive work.
const BLIND_SLEEP: Duration = Duration::from_millis(6);

/// Why the plugin cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine file cannot be read.
    #[error("machine file {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The machine file is neither TOML nor JSON of a machine.
    #[error("machine file {path}: {reason}")]
    Parse {
        /// The file.
        path: String,
        /// What the parser said.
        reason: String,
    },
    /// The machine makes no sense.
    #[error("machine file {path}: {source}")]
    Config {
        /// The file.
        path: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// QEMU and the machine file disagree.
    #[error(
        "machine file {path} has {cores} cores, QEMU at most {vcpus} vCPUs; they must be as many"
    )]
    Cores {
        /// The file.
        path: String,
        /// Its cores.
        cores: usize,
        /// QEMU's vCPUs.
        vcpus: usize,
    },
    /// The shared memory cannot be used.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// QEMU's clock cannot be taken over.
    #[error("modelled time is not possible: {0}; use QEMU 10 as Debian builds it, or time=real")]
    Hook(#[from] HookError),
}

impl From<Absent> for StartError {
    fn from(absent: Absent) -> Self {
        Self::Hook(absent.into())
    }
}

/// Why the gate stays closed.
#[derive(Debug, thiserror::Error)]
enum GateError {
    #[error("the PMU module has not published the node table; load it first")]
    NoModule,
    #[error("the node table is wrong: {0}")]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(
        "QEMU's clock does not follow the plugin's (it says {0} ns, between {1} and {2} is right), so time cannot be modelled"
    )]
    Clock(i64, i64, i64),
}

struct Cell(UnsafeCell<Option<Vcpu>>);

// SAFETY: each is used by its vCPU's thread only, or while no vCPU runs.
unsafe impl Sync for Cell {}

/// Everything the plugin knows.
pub struct Plugin {
    id: sys::qemu_plugin_id_t,
    arguments: Arguments,
    config: Config,
    line_shift: u32,
    shared: Shared,
    /// Set when time can be modelled.
    timers: Option<(Timers, Hook)>,
    /// Set when this QEMU's translations can be made to grow.
    translations: Option<Translations>,
    /// Set when it can be seen that a vCPU is wanted elsewhere.
    exits: Option<ExitRequests>,
    machine: OnceLock<Machine>,
    vcpus: Box<[Cell]>,
    threads: Box<[Threads]>,
    units: sys::qemu_plugin_u64,
    kernel: sys::qemu_plugin_u64,
    gate: AtomicBool,
    schedule: Schedule,
    /// The guest's time less the host's, or `MODELLED`.
    offset_ns: AtomicI64,
    /// Latest time told.
    told_ns: AtomicI64,
    someone_idles: (Mutex<()>, Condvar),
    baseline: Mutex<Vec<Vec<u64>>>,
    quanta: AtomicU64,
    timer_calls: AtomicU64,
    jumps: AtomicU64,
}

// SAFETY: the raw pointers are QEMU's scoreboard, which is made for use from all vCPU threads.
unsafe impl Send for Plugin {}
// SAFETY: as above; everything else is atomic, locked, or in a `Cell`.
unsafe impl Sync for Plugin {}

fn read_config(path: &Path) -> Result<Config, StartError> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| StartError::Read {
        path: name(),
        source,
    })?;
    let parsed = if text.trim_start().starts_with('{') {
        serde_json::from_str::<Config>(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str::<Config>(&text).map_err(|error| error.to_string())
    };
    let config = parsed.map_err(|reason| StartError::Parse {
        path: name(),
        reason,
    })?;
    config.validate().map_err(|source| StartError::Config {
        path: name(),
        source,
    })?;
    Ok(config)
}

impl Plugin {
    /// Reads the machine, maps the shared memory and finds what modelled time needs.
    pub fn new(
        id: sys::qemu_plugin_id_t,
        arguments: Arguments,
        vcpus: usize,
    ) -> Result<Self, StartError> {
        let config = read_config(&arguments.config)?;
        if config.cores() != vcpus {
            let path = arguments.config.display().to_string();
            return Err(StartError::Cores {
                path,
                cores: config.cores(),
                vcpus,
            });
        }
        let modelled = arguments.time == TimeMode::Modelled;
        let timers = if modelled {
            Some((Timers::find()?, Hook::find()?))
        } else {
            None
        };
        let header = Header {
            time_mode: u64::from(modelled),
            picoseconds_per_instruction: config.picoseconds_per_instruction,
            core_mhz: config.core_mhz,
            ..Header::for_machine(vcpus as u64, config.nodes() as u64)
        };
        let shared = Shared::map(&arguments.shm, header)?;
        let exits = ExitRequests::find();
        let longest_sleep = if exits.is_some() {
            LONGEST_SLEEP
        } else {
            BLIND_SLEEP
        };
        // SAFETY: a scoreboard with a `Words` for each vCPU.
        let score = unsafe { sys::qemu_plugin_scoreboard_new(size_of::<Words>()) };
        let word = |offset| sys::qemu_plugin_u64 { score, offset };
        Ok(Self {
            id,
            line_shift: config.line_bytes.trailing_zeros(),
            schedule: Schedule::new(vcpus, arguments.skew_ns.cast_signed(), longest_sleep),
            arguments,
            config,
            shared,
            timers,
            translations: Translations::find().ok(),
            exits,
            machine: OnceLock::new(),
            vcpus: (0..vcpus).map(|_| Cell(UnsafeCell::new(None))).collect(),
            threads: (0..vcpus).map(|_| Threads::default()).collect(),
            units: word(std::mem::offset_of!(Words, units)),
            kernel: word(std::mem::offset_of!(Words, kernel)),
            gate: AtomicBool::new(false),
            offset_ns: AtomicI64::new(0),
            told_ns: AtomicI64::new(0),
            someone_idles: Default::default(),
            baseline: Mutex::default(),
            quanta: AtomicU64::new(0),
            timer_calls: AtomicU64::new(0),
            jumps: AtomicU64::new(0),
        })
    }

    /// Makes QEMU ask these functions for the time, if time is to be modelled.
    ///
    /// # Safety
    /// Once, before the guest starts; the functions must be those of this plugin.
    pub unsafe fn take_over_clock(
        &'static self,
        now: unsafe extern "C" fn() -> i64,
        set: unsafe extern "C" fn(i64),
    ) {
        if let Some((_, hook)) = &self.timers {
            // SAFETY: the caller's promise.
            unsafe { hook.install(now, set) };
            let idle = std::thread::Builder::new().name("lab idle".to_owned());
            if let Err(error) = idle.spawn(|| self.jump_when_idle()) {
                eprintln!("numaherd-lab-plugin: no thread for idle time: {error}");
                std::process::exit(1);
            }
        }
    }

    pub fn gate_is_open(&self) -> bool {
        self.gate.load(SeqCst)
    }

    pub fn accesses(&self) -> Accesses {
        self.arguments.accesses
    }

    pub fn line_shift(&self) -> u32 {
        self.line_shift
    }

    /// Where translated code counts units, and kernel instructions.
    pub fn words(&self) -> [sys::qemu_plugin_u64; 2] {
        [self.units, self.kernel]
    }

    /// Units after which a vCPU looks at the time.
    pub fn quantum_units(&self) -> u64 {
        (self.arguments.quantum_ns * 1000 / self.config.picoseconds_per_instruction).max(1)
    }

    /// The state of a vCPU, once the gate has been open.
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
        // SAFETY: the vCPU runs, so its words exist.
        unsafe {
            Words {
                units: sys::qemu_plugin_u64_get(self.units, vcpu as c_uint),
                kernel: sys::qemu_plugin_u64_get(self.kernel, vcpu as c_uint),
            }
        }
    }

    /// Folds up what translated code has counted. Returns the vCPU's time in picoseconds, and the
    /// words as they are then.
    fn fold(&self, state: &mut Vcpu) -> (u64, Words) {
        let words = self.read_words(state.number);
        // SAFETY: as in `read_words`, and only this thread counts there.
        unsafe { sys::qemu_plugin_u64_set(self.units, state.number as c_uint, 0) };
        (state.fold(words.units), Words { units: 0, ..words })
    }

    /// Brings a vCPU's counters in the shared memory up to date.
    ///
    /// # Safety
    /// On this vCPU's thread.
    unsafe fn publish(&self, vcpu: c_uint) {
        // SAFETY: the caller's promise.
        if let Some(state) = unsafe { self.vcpu(vcpu) } {
            let (_, words) = self.fold(state);
            state.publish(words, &self.shared);
        }
    }

    /// Makes an access and does what follows from it.
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
        let vcpu = state.number as c_uint;
        // SAFETY: on this vCPU's thread.
        let units = || unsafe { sys::qemu_plugin_u64_get(self.units, vcpu) };
        let Some((fetch, raise)) = state.access(machine, access, units, value) else {
            return;
        };
        if raise > 0 {
            // SAFETY: as above.
            unsafe { sys::qemu_plugin_u64_add(self.units, vcpu, raise) };
        }
        if let Some(fetch) = fetch
            && self.shared.is_sample(state.number, fetch.latency_ps / 1000)
        {
            self.shared
                .push(state.number, &record(access, instruction, &fetch));
        }
    }

    /// The part of an access of `bytes` bytes that lies in the next line. Nothing when that is on
    /// another page, whose place is not known.
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

    /// The guest's time.
    pub fn guest_ns(&self) -> i64 {
        let now = match (self.offset_ns.load(SeqCst), &self.timers) {
            (MODELLED, _) => self.schedule.now_ns(),
            (offset, Some((timers, _))) => timers.real_ns() + offset,
            (_, None) => 0,
        };
        self.told_ns.fetch_max(now, SeqCst).max(now)
    }

    fn time_is_modelled(&self) -> bool {
        self.offset_ns.load(SeqCst) == MODELLED
    }

    /// Has QEMU run timers that are due.
    fn call_timers(&self) {
        if let Some((timers, _)) = &self.timers
            && timers.until_next_timer_ns() == Some(0)
        {
            self.timer_calls.fetch_add(1, Relaxed);
            timers.notify_main_loop();
        }
    }

    /// A vCPU's quantum is over: tell its time, and wait for the others.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn quantum(&self, vcpu: c_uint) {
        // SAFETY: the caller's promise.
        let Some(state) = (unsafe { self.vcpu(vcpu) }) else {
            return;
        };
        let (time_ps, words) = self.fold(state);
        state.publish(words, &self.shared);
        self.quanta.fetch_add(1, Relaxed);
        if let Some(translations) = &self.translations
            && state.flushed.elapsed() > BETWEEN_FLUSHES
        {
            state.flushed = Instant::now();
            // SAFETY: the caller's promise.
            unsafe { translations.flush(state.number) };
        }
        if self.time_is_modelled() {
            if self.schedule.reached(state.number, nanoseconds(time_ps)) {
                self.call_timers();
            }
            let wanted = || {
                // SAFETY: the caller's promise.
                let exit = |exits: &ExitRequests| unsafe { exits.pending(state.number) };
                !self.time_is_modelled() || self.exits.as_ref().is_some_and(exit)
            };
            self.schedule.sleep_if_ahead(state.number, wanted);
        }
    }

    /// A vCPU has nothing to do.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn idles(&self, vcpu: c_uint) {
        let number = vcpu as usize;
        // SAFETY: the caller's promise.
        if let Some(state) = unsafe { self.vcpu(vcpu) } {
            let (time_ps, words) = self.fold(state);
            state.publish(words, &self.shared);
            if self.time_is_modelled() {
                self.schedule.reached(number, nanoseconds(time_ps));
            }
        }
        let moved = self.schedule.idles(number);
        if self.time_is_modelled() {
            if moved {
                self.call_timers();
            }
            if self.schedule.all_idle() {
                self.tell_idle_thread();
            }
        }
    }

    /// A vCPU has something to do again.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn wakes(&self, vcpu: c_uint) {
        let time_ns = self.schedule.wakes(vcpu as usize);
        if self.time_is_modelled() {
            // SAFETY: the caller's promise.
            if let Some(state) = unsafe { self.vcpu(vcpu) } {
                self.fold(state);
                state.idle_until(picoseconds(time_ns));
            }
            self.tell_idle_thread();
        }
    }

    fn tell_idle_thread(&self) {
        drop(
            self.someone_idles
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.someone_idles.1.notify_one();
    }

    /// The idle thread: when all vCPUs have been idle for a while, lets time jump to the next
    /// timer, so that host time does not leak in.
    fn jump_when_idle(&self) {
        block_signals();
        let Some((timers, _)) = &self.timers else {
            return;
        };
        let wait = |most: Duration| {
            let guard = self
                .someone_idles
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let told = self.someone_idles.1.wait_timeout(guard, most);
            let told = told.unwrap_or_else(PoisonError::into_inner).1;
            told.timed_out()
        };
        // A word that comes between the check and the wait is made up for by the next look.
        let next_look = Duration::from_millis(10);
        loop {
            if !(self.time_is_modelled() && self.schedule.all_idle()) {
                wait(next_look);
                continue;
            }
            let Some(until_timer) = timers.until_next_timer_ns() else {
                wait(next_look);
                continue;
            };
            let grace = Duration::from_nanos(until_timer.unsigned_abs());
            if !wait(grace.min(self.arguments.idle_grace)) {
                continue;
            }
            let idle = self.time_is_modelled() && self.schedule.all_idle();
            if idle && timers.when_all_idle(|ns| self.schedule.jump(ns)) {
                self.jumps.fetch_add(1, Relaxed);
            }
        }
    }

    /// One of our NOPs was executed.
    ///
    /// # Safety
    /// On this vCPU's thread.
    pub unsafe fn asked(
        &self,
        vcpu: c_uint,
        nop: Nop,
        reset: unsafe extern "C" fn(sys::qemu_plugin_id_t),
    ) {
        match nop {
            Nop::GateOn => match self.may_open() {
                Ok(()) => self.move_gate(true, reset),
                Err(reason) => {
                    self.shared.count_refusal();
                    eprintln!("numaherd-lab-plugin: the gate stays closed: {reason}");
                }
            },
            Nop::GateOff => self.move_gate(false, reset),
            Nop::Sync => {
                // SAFETY: the caller's promise.
                unsafe { self.publish(vcpu) };
                self.shared.count_sync(vcpu as usize);
            }
            Nop::Switch => {
                // SAFETY: the caller's promise.
                if let Some(state) = unsafe { self.vcpu(vcpu) } {
                    let words = self.read_words(state.number);
                    let thread = self.shared.running(state.number);
                    state.switch(words, thread, &self.threads[state.number]);
                }
            }
            Nop::Report => {
                // SAFETY: the caller's promise.
                unsafe { self.publish(vcpu) };
                eprint!("{}", report::text(&self.report()));
            }
            Nop::ResetReport => {
                let now = report::figures(&self.shared);
                *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = now;
                for threads in &self.threads {
                    threads
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .clear();
                }
            }
        }
    }

    /// Builds the machine, when the gate is to be opened for the first time, and checks the clock.
    fn may_open(&self) -> Result<(), GateError> {
        if !self.shared.module_ready() {
            return Err(GateError::NoModule);
        }
        if self.machine.get().is_none() {
            let span = |node| {
                let (start, end) = self.shared.node(node);
                Span {
                    start: start * PAGE_BYTES,
                    end: end * PAGE_BYTES,
                    node,
                }
            };
            let memory = Memory::new((0..self.config.nodes()).map(span))?;
            let machine = Machine::new(self.config.clone(), memory)?;
            // Another vCPU may have been faster, with the same machine.
            let _ = self.machine.set(machine);
        }
        if let Some((timers, _)) = &self.timers {
            let before = self.guest_ns();
            let qemu = timers.virtual_ns();
            let after = self.guest_ns();
            if !(before..=after).contains(&qemu) {
                return Err(GateError::Clock(qemu, before, after));
            }
        }
        Ok(())
    }

    fn move_gate(&self, open: bool, reset: unsafe extern "C" fn(sys::qemu_plugin_id_t)) {
        if self.gate.swap(open, SeqCst) != open {
            // SAFETY: the callback lives as long as the program.
            unsafe { sys::qemu_plugin_reset(self.id, Some(reset)) };
        }
    }

    /// Translations have been dropped; from here on the gate is as it was asked to be.
    ///
    /// # Safety
    /// While no vCPU runs.
    pub unsafe fn gate_has_moved(&self) {
        let open = self.gate_is_open();
        if let (true, Some(machine)) = (open, self.machine.get()) {
            for (number, cell) in self.vcpus.iter().enumerate() {
                // SAFETY: no vCPU runs.
                let state = unsafe { &mut *cell.0.get() };
                let state = state.get_or_insert_with(|| Vcpu::new(machine, number));
                if number < running_vcpus() {
                    let (_, words) = self.fold(state);
                    state.switch(words, self.shared.running(number), &self.threads[number]);
                }
            }
            // Others may ask for the time meanwhile, so the model begins at what was told last.
            if self.timers.is_some() {
                self.offset_ns.store(MODELLED, SeqCst);
            }
            let now = self.guest_ns();
            self.schedule.begin(now);
            for cell in &self.vcpus {
                // SAFETY: no vCPU runs.
                if let Some(state) = unsafe { &mut *cell.0.get() } {
                    state.idle_until(picoseconds(now));
                }
            }
        } else if let (Some((timers, _)), true) = (&self.timers, self.time_is_modelled()) {
            self.offset_ns
                .store(self.guest_ns() - timers.real_ns(), SeqCst);
            self.schedule.end();
        }
        self.shared.set_gate(open);
    }

    fn report(&self) -> Value {
        let mut rest = Map::new();
        let mut add = |name: &str, value: u64| rest.insert(name.to_owned(), value.into());
        add("time_ns", self.guest_ns().unsigned_abs());
        add("quanta", self.quanta.load(Relaxed));
        add("timer_calls", self.timer_calls.load(Relaxed));
        add("idle_jumps", self.jumps.load(Relaxed));
        add("sleeps", self.schedule.sleeps.load(Relaxed));
        add("overslept", self.schedule.overslept.load(Relaxed));
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        report::report(&self.shared, &baseline, &self.threads, rest)
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

/// vCPUs that QEMU has started so far; only they have words.
fn running_vcpus() -> usize {
    // SAFETY: may be called at any time.
    usize::try_from(unsafe { sys::qemu_plugin_num_vcpus() }).unwrap_or(0)
}

/// QEMU takes its signals on threads of its own.
fn block_signals() {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

fn nanoseconds(ps: u64) -> i64 {
    (ps / 1000).cast_signed()
}

fn picoseconds(ns: i64) -> u64 {
    ns.unsigned_abs() * 1000
}
