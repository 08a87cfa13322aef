// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks' part in TLBs and the IPM unit: translations before accesses, and ends of threads.

use std::sync::MutexGuard;

use numaherd_hardware::Access;

use super::Plugin;
use crate::ipm::Unit;
use crate::layout::Nop;
use crate::sync::lock;
use crate::vcpu::Vcpu;

impl Plugin {
    /// The IPM unit, locked.
    pub(super) fn unit(&self) -> Option<MutexGuard<'_, Unit>> {
        let (unit, _) = self.unit.as_ref()?;
        Some(lock(unit))
    }

    /// Reports to the IPM unit threads that end, and processes that have replaced their memory.
    pub(super) fn end_residents(&self, state: &mut Vcpu, event: Nop) {
        if !matches!(event, Nop::Exec | Nop::Exit) {
            return;
        }
        let Some(mut unit) = self.unit() else { return };
        let (tid, tgid) = self.shared.running(state.number);
        if event == Nop::Exec {
            unit.end_process(tgid);
        } else {
            unit.end_thread((tid, tgid));
        }
        state.space = None;
    }

    /// Translates the page of a user's access that is about to be made, if the machine has TLBs,
    /// and reports misses and moved pages to the IPM unit.
    #[inline]
    pub fn translate(&self, state: &mut Vcpu, access: Access) {
        let (Some((_, numbering)), Some(machine)) = (&self.unit, self.machine.get()) else {
            return;
        };
        let address = access.virtual_address;
        if address.cast_signed() < 0 {
            return;
        }
        let Some(space) = state.space.or_else(|| self.settle(state)) else {
            return;
        };
        let page = numbering.page(space, address);
        let home = || machine.memory().node_of(access.physical_address);
        if state.frames.moved(space, address, access.physical_address) {
            let entry = state.core.mmu_mut().and_then(|mmu| mmu.invalidate(page));
            if let Some(mut unit) = self.unit() {
                unit.moved(state.number, page, entry, home());
            }
        }
        let (vcpu, words) = (state.number, state.words);
        let units = || self.units(vcpu, words);
        let Some((translation, raise)) = state.translate(machine, page, address, units) else {
            return;
        };
        self.raise_units(vcpu, words, raise);
        if let Some(fill) = translation.fill
            && let Some(mut unit) = self.unit()
        {
            let now_ps = translation.now_ps;
            let cycles = self.config.cycles(now_ps);
            unit.miss(vcpu, &fill, home(), cycles, now_ps / 1000);
        }
    }

    /// Reports the running thread to the IPM unit, at its first access after a switch.
    #[cold]
    fn settle(&self, state: &mut Vcpu) -> Option<u32> {
        let running = self.shared.running(state.number);
        state.space = Some(self.unit()?.run(state.number, running));
        state.space
    }
}
