// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU plugin of the lab.
#[allow(dead_code, reason = "used by the callbacks that follow")]
mod layout;
