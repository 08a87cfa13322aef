// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks' part in `foresight`: prefetches of what the next access will probably need.

use super::Plugin;
use crate::foresight::host_fetch;
use crate::vcpu::Vcpu;

impl Plugin {
    /// Makes the host prefetch what an access to this virtual address will need.
    #[inline]
    pub fn foresee(&self, state: &Vcpu, address: u64) {
        if let (Some(physical_address), Some(machine), Some(memory)) = (
            state.pages.find(address),
            self.machine.get(),
            self.memory.get(),
        ) {
            memory.fetch(physical_address);
            state
                .core
                .host_addresses(machine, physical_address)
                .for_each(host_fetch);
        }
    }

    /// Notes where an access found its page, for [`Plugin::foresee`].
    #[inline]
    pub fn remember(&self, state: &mut Vcpu, address: u64, physical_address: u64) {
        if let Some(memory) = self.memory.get() {
            memory.learn(physical_address);
            state.pages.note(address, physical_address);
        }
    }
}
