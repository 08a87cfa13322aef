// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks' part in a recording: accesses, events of threads, the end.

use std::ffi::c_uint;
use std::sync::atomic::Ordering::Relaxed;

use numaherd_trace::Event;
use qemu_plugin_sys as sys;

use super::Plugin;
use crate::layout::Nop;
use crate::recording::Running;
use crate::vcpu::Vcpu;

impl Plugin {
    /// Whether accesses are recorded, not modelled.
    pub fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Passes the module's reports about threads to the recording.
    pub(super) fn record(&self, state: &mut Vcpu, event: Nop) {
        let (Some(recording), Some(recorder)) = (&self.recording, &mut state.recorder) else {
            return;
        };
        let number = state.number;
        let time_ns = self.recorded_ns();
        let name = self.shared.running_name(number);
        let running = |(tid, tgid)| Running { tid, tgid, name };
        let now = running(self.shared.running(number));
        let other = self.shared.other(number);
        match event {
            Nop::Switch => recording.switch(recorder, now, time_ns),
            Nop::Fork => recording.fork(recorder, running(other), time_ns),
            Nop::Exec => recording.exec(recorder, other.0, now, time_ns),
            Nop::Exit => recording.exit(recorder, &now),
            Nop::Wake => recording.wake(recorder, other.0, time_ns),
            _ => {}
        }
    }

    /// Records an access, after which `behind` instructions of its block follow.
    ///
    /// # Safety
    /// On this vCPU's thread.
    #[inline]
    pub unsafe fn record_access(&self, vcpu: c_uint, behind: u64, event: impl FnOnce() -> Event) {
        // SAFETY: the caller's promise.
        let recorder = unsafe { self.vcpu(vcpu) }.and_then(|state| state.recorder.as_mut());
        let Some(recorder) = recorder.filter(|recorder| recorder.is_on()) else {
            return;
        };
        let instructions = recorder.instructions() - behind;
        if recorder.push(instructions, event())
            && let Some(recording) = &self.recording
        {
            recording.flush(recorder, self.recorded_ns());
        }
    }

    /// Guest time since the recording began.
    fn recorded_ns(&self) -> u64 {
        (self.time.now_ns() - self.recording_since.load(Relaxed)).unsigned_abs()
    }

    /// Writes the remaining events of all vCPUs and the file's end.
    ///
    /// # Safety
    /// While no vCPU runs.
    pub(super) unsafe fn finish_recording(&self) {
        let Some(recording) = &self.recording else {
            return;
        };
        let time_ns = self.recorded_ns();
        for cell in &self.vcpus {
            // SAFETY: the caller's promise.
            let state = unsafe { &mut *cell.0.get() };
            if let Some(recorder) = state.as_mut().and_then(|state| state.recorder.as_mut())
                && recorder.is_on()
            {
                recording.switch(recorder, Running::default(), time_ns);
            }
        }
        recording.finish(time_ns);
    }
}

/// Address of a word of a started vCPU.
pub(super) fn address_of(word: sys::qemu_plugin_u64, vcpu: usize) -> *const u64 {
    // SAFETY: the vCPU runs, so its words exist, with this one at its offset.
    unsafe {
        let words = sys::qemu_plugin_scoreboard_find(word.score, vcpu as c_uint);
        words.byte_add(word.offset).cast()
    }
}
