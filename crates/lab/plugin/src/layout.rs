// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory that the plugin and the guest's PMU module share (BAR 2 of `ivshmem-plain`).
//!
//! One definition for both sides: the structures below are compiled into the plugin and printed
//! as `crates/lab/pmu/lab_layout.h` for the module; a test fails when that file is stale.
//!
//! ```text
//! 0                    Header
//! header.node_offset   Node   x header.nodes, every header.node_stride bytes   (module writes)
//! header.vcpu_offset   a block x header.vcpus, every header.vcpu_stride bytes:
//!     0                                 Vcpu
//!     header.counters_offset            u64 x header.counters, indexed by Counter
//!     header.node_fetches_offset        u64 x header.nodes: lines fetched from each node
//!     header.records_offset             Record x header.ring_records (a power of two)
//! header.outbox_offset header.outbox_bytes bytes: what a program of the guest reads of the IPM unit,
//!                      in the records of `ipm::protocol`                          (plugin writes)
//! ```
//!
//! Everything is little-endian. Nothing has a fixed maximum: both sides use the header's counts,
//! offsets and strides, and compare magic, version and the `*_bytes` sizes before anything else.
//!
//! Order: the plugin zeroes the memory and fills the header before the first guest instruction.
//! The module then fills the node table, sets `module_ready`, and only then may the gate open.
//!
//! Threads: the plugin's callbacks for a vCPU run on that vCPU's own host thread, between its guest
//! instructions. So module code that runs *on* a vCPU never races with the plugin for that vCPU's
//! block, but may for another vCPU's block.

/// A field of a shared structure, as the C header prints it.
#[cfg(test)]
struct Field {
    name: &'static str,
    c_type: &'static str,
    doc: &'static [&'static str],
}

#[cfg(test)]
macro_rules! c_type {
    (u64) => {
        "__u64"
    };
    (u32) => {
        "__u32"
    };
    (u16) => {
        "__u16"
    };
}

macro_rules! shared_struct {
    ($(#[doc = $sdoc:literal])+ $name:ident / $fields:ident { $($(#[doc = $doc:literal])+ $field:ident: $ty:tt,)+ }) => {
        $(#[doc = $sdoc])+
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $ty,)+ }
        #[cfg(test)]
        const $fields: &[Field] = &[$(Field { name: stringify!($field), c_type: c_type!($ty), doc: &[$($doc),+] },)+];
    };
}

/// First word of the memory: the bytes `NUMAHERD`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NUMAHERD");
/// Every change of this file that either side can notice raises it by one.
pub const VERSION: u64 = 2;
/// Records in a vCPU's ring.
pub const RING_RECORDS: u64 = 1024;
/// Bytes of the outbox: the longest record, and many short ones.
pub const OUTBOX_BYTES: u64 = 64 << 10;
/// Blocks begin on pages, so that each may be mapped by itself.
const PAGE_BYTES: u64 = 4096;

shared_struct! {
    /// Start of the shared memory. Written by the plugin, unless said.
    Header / HEADER_FIELDS {
        /// `LAB_MAGIC`.
        magic: u64,
        /// `LAB_VERSION`.
        version: u64,
        /// sizeof(struct lab_header).
        header_bytes: u64,
        /// Bytes of the whole memory that are in use.
        total_bytes: u64,
        /// vCPUs; blocks follow the kernel's CPU numbers.
        vcpus: u64,
        /// Memory nodes.
        nodes: u64,
        /// Offset of the first vCPU block from the start of the memory.
        vcpu_offset: u64,
        /// Bytes from one vCPU block to the next.
        vcpu_stride: u64,
        /// sizeof(struct lab_vcpu).
        vcpu_bytes: u64,
        /// Number of counters in a block.
        counters: u64,
        /// Offset of the counters within a block.
        counters_offset: u64,
        /// Offset of the per-node fetch counts within a block.
        node_fetches_offset: u64,
        /// Offset of the ring's records within a block.
        records_offset: u64,
        /// Records in a ring; a power of two.
        ring_records: u64,
        /// sizeof(struct lab_record).
        record_bytes: u64,
        /// Offset of the node table from the start of the memory.
        node_offset: u64,
        /// Bytes from one node table entry to the next.
        node_stride: u64,
        /// sizeof(struct lab_node).
        node_bytes: u64,
        /// 1 while accesses are modelled.
        gate: u64,
        /// How guest time runs while the gate is open: 0 as host time, 1 modelled.
        time_mode: u64,
        /// Modelled time of one instruction in picoseconds (1000 instructions take as many ns).
        picoseconds_per_instruction: u64,
        /// Modelled core clock, for the cycle counters.
        core_mhz: u64,
        /// Set to 1 by the module once the node table is filled.
        module_ready: u64,
        /// Gate openings that the plugin refused (its reason is on QEMU's stderr).
        gate_refusals: u64,
        /// 1 when the plugin records what programs do (its argument `trace`).
        records: u64,
        /// 1 when the plugin has an IPM unit.
        has_ipm: u64,
        /// Offset of the outbox from the start of the memory.
        outbox_offset: u64,
        /// Bytes of the outbox.
        outbox_bytes: u64,
        /// Bytes that the reader has room for (module, before `LAB_NOP_IPM_READ`).
        outbox_room: u64,
        /// Bytes in the outbox, all of them whole records (plugin, at `LAB_NOP_IPM_READ`);
        /// `LAB_OUTBOX_NO_ROOM` when there is a record, but not the room for it.
        outbox_used: u64,
    }
}

shared_struct! {
    /// Physical memory of one node. Written by the module.
    Node / NODE_FIELDS {
        /// First page frame.
        start_pfn: u64,
        /// One past the last page frame; equal to `start_pfn` for a node without memory.
        end_pfn: u64,
    }
}

shared_struct! {
    /// Head of a vCPU's block.
    Vcpu / VCPU_FIELDS {
        /// Thread now running here (module, on every `sched_switch`, before `LAB_NOP_SWITCH`); 0 is idle.
        tid: u32,
        /// Process of that thread (module).
        tgid: u32,
        /// Name of that thread, NUL-padded, its first 8 bytes (module).
        name_start: u64,
        /// The rest of its name (module).
        name_end: u64,
        /// Thread that an event is about, besides the running one (module; see each `LAB_NOP_*`).
        other_tid: u32,
        /// Process of that thread (module).
        other_tgid: u32,
        /// Lines fetched on demand between two samples (module); 0 turns sampling off.
        sample_period: u64,
        /// Lines left until the next sample (module sets it, the plugin counts it down).
        sample_left: u64,
        /// Only fetches that took at least this long are counted for sampling (module); 0 counts all.
        sample_latency_ns: u64,
        /// Records pushed so far (plugin, with release order); record n is at n % ring_records.
        ring_head: u64,
        /// `LAB_NOP_SYNC`s executed here (plugin).
        syncs: u64,
    }
}

shared_struct! {
    /// One sampled fetch from memory.
    Record / RECORD_FIELDS {
        /// Virtual address of the data.
        va: u64,
        /// Physical address of the data.
        pa: u64,
        /// Address of the instruction.
        ip: u64,
        /// Modelled time of the vCPU when the access was made, in ns since power-on.
        time_ns: u64,
        /// From the access to the data, in ns, queueing included.
        latency_ns: u32,
        /// Node whose memory the line came from.
        node: u16,
        /// `LAB_RECORD_*`.
        flags: u16,
        /// Thread that made the access.
        tid: u32,
        /// Process of that thread.
        tgid: u32,
    }
}

macro_rules! numbered {
    ($(#[doc = $edoc:literal])+ $name:ident / $list:ident : $repr:ident { $($(#[doc = $doc:literal])+ $variant:ident = $value:literal $c_name:literal,)+ }) => {
        $(#[doc = $edoc])+
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr($repr)]
        pub enum $name { $($(#[doc = $doc])+ $variant = $value,)+ }
        #[allow(dead_code, reason = "not every list needs both")]
        impl $name {
            /// Every value, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name, as the C header has it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $c_name,)+ }
            }
        }
        /// Value, name in C and description.
        #[cfg(test)]
        const $list: &[(u64, &str, &[&str])] = &[$(($value, $c_name, &[$($doc),+]),)+];
    };
}

numbered! {
    /// Index of a counter. All count up from 0, only while the gate is open, and are up to date in
    /// the shared memory right after `LAB_NOP_SYNC` on their vCPU.
    Counter / COUNTERS: usize {
        /// Instructions, user and kernel.
        Instructions = 0 "instructions",
        /// Instructions at user addresses.
        UserInstructions = 1 "user_instructions",
        /// Core cycles of modelled time that the vCPU was not idle.
        Cycles = 2 "cycles",
        /// Data accesses that were modelled (one for each line touched).
        Accesses = 3 "accesses",
        /// Of these, stores.
        Stores = 4 "stores",
        /// Lookups in the last-level cache on demand.
        LlcAccess = 5 "llc_access",
        /// Lines fetched from memory on demand.
        LlcMiss = 6 "llc_miss",
        /// Lines fetched from memory by the prefetcher.
        Prefetch = 7 "prefetch",
        /// Lines fetched from the own node's memory, prefetches included.
        DramLocal = 8 "dram_local",
        /// Lines fetched from other nodes' memory, prefetches included.
        DramRemote = 9 "dram_remote",
        /// Dirty lines written back to memory.
        Writeback = 10 "writeback",
        /// Modelled time in which the core waited for data, in ns.
        StallNs = 11 "stall_ns",
        /// Requests that left the core's private caches.
        OffcoreRequests = 12 "offcore_requests",
        /// Core cycles with at least one such request outstanding.
        OffcoreBusyCycles = 13 "offcore_busy_cycles",
        /// Lines taken dirty from another core's or domain's cache.
        DirtyTransfer = 14 "dirty_transfer",
        /// Copies in other caches dropped because of stores made here.
        Invalidation = 15 "invalidation",
        /// Modelled time that the vCPU was not idle, in ns.
        BusyNs = 16 "busy_ns",
        /// Accesses left out of the model: devices, and addresses outside every node.
        Unmodelled = 17 "unmodelled",
    }
}

numbered! {
    /// Bits of `Record::flags`.
    RecordFlag / RECORD_FLAGS: u16 {
        /// The access was a store.
        Store = 1 "STORE",
        /// The line came from another node.
        Remote = 2 "REMOTE",
        /// The line came dirty out of another cache, not from memory.
        DirtyTransfer = 4 "DIRTY_TRANSFER",
    }
}

numbered! {
    /// What an 8-byte NOP, `0f 1f 84 00` and the 32-bit little-endian `LAB_NOP_BASE + code`, asks
    /// of the plugin. It works from user and kernel mode, without a trap.
    Nop / NOPS: u32 {
        /// Open the gate: model every access from here on.
        GateOn = 1 "GATE_ON",
        /// Close the gate.
        GateOff = 2 "GATE_OFF",
        /// Bring this vCPU's counters in the shared memory up to date.
        Sync = 3 "SYNC",
        /// The module has just written another thread into this vCPU's `tid` and `tgid`.
        Switch = 6 "SWITCH",
        /// The running thread made another, `other_tid` of `other_tgid`, which has not run yet.
        Fork = 7 "FORK",
        /// The running thread's process now runs another program; the thread was `other_tid`.
        Exec = 8 "EXEC",
        /// The running thread ends: it runs no further user code.
        Exit = 9 "EXIT",
        /// The running thread wakes `other_tid`, or keeps it from falling asleep.
        Wake = 10 "WAKE",
        /// Record thread `other_tid` and all its descendants from its next `LAB_NOP_EXEC` on.
        Record = 11 "RECORD",
        /// Fill the outbox.
        IpmRead = 12 "IPM_READ",
        /// Let the next reads of the outbox tell who shares pages with whom.
        IpmSharing = 13 "IPM_SHARING",
    }
}

/// The NOP's 32-bit displacement is this plus a [`Nop`]: the bytes `\0BAL` read as text.
pub const NOP_BASE: u32 = 0x4c41_4200;

/// `Header::outbox_used` when the next record has no room.
pub const OUTBOX_NO_ROOM: u64 = u64::MAX;

impl Nop {
    /// What these instruction bytes ask for, if they are such a NOP.
    #[must_use]
    pub fn decode(instruction: &[u8]) -> Option<Self> {
        let displacement = instruction.strip_prefix(&[0x0f, 0x1f, 0x84, 0x00])?;
        let word = u32::from_le_bytes(displacement.try_into().ok()?);
        let code = word.checked_sub(NOP_BASE)?;
        Self::ALL.iter().copied().find(|&nop| nop as u32 == code)
    }
}

impl Record {
    /// Its memory representation, in words of 8 bytes.
    #[must_use]
    pub fn words(&self) -> [u64; 6] {
        const _: () = assert!(size_of::<Record>() == 48);
        let joined = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let node_and_flags = u32::from(self.node) | u32::from(self.flags) << 16;
        [
            self.va,
            self.pa,
            self.ip,
            self.time_ns,
            joined(self.latency_ns, node_and_flags),
            joined(self.tid, self.tgid),
        ]
    }
}

/// Bytes of a `T`, as a u64.
const fn bytes_of<T>() -> u64 {
    size_of::<T>() as u64
}

impl Header {
    /// Lays out the memory for `vcpus` vCPUs and `nodes` nodes.
    #[must_use]
    pub fn for_machine(vcpus: u64, nodes: u64) -> Self {
        let node_offset = bytes_of::<Self>().next_multiple_of(64);
        let node_stride = bytes_of::<Node>();
        let counters = Counter::ALL.len() as u64;
        let counters_offset = bytes_of::<Vcpu>().next_multiple_of(64);
        let node_fetches_offset = counters_offset + counters * 8;
        let records_offset = (node_fetches_offset + nodes * 8).next_multiple_of(64);
        let vcpu_offset = (node_offset + nodes * node_stride).next_multiple_of(PAGE_BYTES);
        let vcpu_stride =
            (records_offset + RING_RECORDS * bytes_of::<Record>()).next_multiple_of(PAGE_BYTES);
        let outbox_offset = vcpu_offset + vcpus * vcpu_stride;
        Self {
            magic: MAGIC,
            version: VERSION,
            header_bytes: bytes_of::<Self>(),
            total_bytes: outbox_offset + OUTBOX_BYTES,
            outbox_offset,
            outbox_bytes: OUTBOX_BYTES,
            vcpus,
            nodes,
            vcpu_offset,
            vcpu_stride,
            vcpu_bytes: bytes_of::<Vcpu>(),
            counters,
            counters_offset,
            node_fetches_offset,
            records_offset,
            ring_records: RING_RECORDS,
            record_bytes: bytes_of::<Record>(),
            node_offset,
            node_stride,
            node_bytes: bytes_of::<Node>(),
            ..Self::default()
        }
    }
}

/// The C header for the PMU module.
#[cfg(test)]
fn c_header() -> String {
    use std::fmt::Write as _;

    fn structure(out: &mut String, name: &str, fields: &[Field], bytes: usize, about: &str) {
        writeln!(out, "/* {about} */\nstruct {name} {{").unwrap();
        for field in fields {
            for line in field.doc {
                writeln!(out, "\t/*{line} */").unwrap();
            }
            writeln!(out, "\t{} {};", field.c_type, field.name).unwrap();
        }
        writeln!(
            out,
            "}};\n_Static_assert(sizeof(struct {name}) == {bytes}, \"{name}\");\n"
        )
        .unwrap();
    }
    fn list(out: &mut String, prefix: &str, values: &[(u64, &str, &[&str])]) {
        for (value, name, doc) in values {
            for line in *doc {
                writeln!(out, "/*{line} */").unwrap();
            }
            writeln!(out, "#define {prefix}{} {value}", name.to_uppercase()).unwrap();
        }
        out.push('\n');
    }

    let mut out = String::from(
        "/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Generated from crates/lab/plugin/src/layout.rs, which explains the whole. To make it anew:
 *   UPDATE_LAYOUT=1 cargo test -p numaherd-lab-plugin
 */
#ifndef LAB_LAYOUT_H
#define LAB_LAYOUT_H

#include <linux/types.h>

",
    );
    writeln!(
        out,
        "#define LAB_MAGIC {MAGIC:#x}ULL\n#define LAB_VERSION {VERSION}\n"
    )
    .unwrap();
    structure(
        &mut out,
        "lab_header",
        HEADER_FIELDS,
        size_of::<Header>(),
        "Start of the memory.",
    );
    structure(
        &mut out,
        "lab_node",
        NODE_FIELDS,
        size_of::<Node>(),
        "Memory of one node.",
    );
    structure(
        &mut out,
        "lab_vcpu",
        VCPU_FIELDS,
        size_of::<Vcpu>(),
        "Head of a vCPU's block.",
    );
    structure(
        &mut out,
        "lab_record",
        RECORD_FIELDS,
        size_of::<Record>(),
        "One sampled fetch.",
    );
    out.push_str("/* Indices of the counters; they are valid right after LAB_NOP_SYNC. */\n");
    list(&mut out, "LAB_COUNTER_", COUNTERS);
    writeln!(out, "#define LAB_COUNTERS {}", COUNTERS.len()).unwrap();
    out.push_str("/* X(index, name) for each counter. */\n#define LAB_FOR_EACH_COUNTER(X)");
    for (value, name, _) in COUNTERS {
        write!(out, " \\\n\tX({value}, {name})").unwrap();
    }
    out.push_str("\n\n/* Bits of lab_record.flags. */\n");
    list(&mut out, "LAB_RECORD_", RECORD_FLAGS);
    out.push_str("/* Codes of the NOPs that ask something of the plugin. */\n");
    list(&mut out, "LAB_NOP_", NOPS);
    writeln!(out, "#define LAB_NOP_BASE {NOP_BASE:#x}").unwrap();
    writeln!(out, "#define LAB_OUTBOX_NO_ROOM {OUTBOX_NO_ROOM:#x}ULL").unwrap();
    out.push_str(
        "#define LAB_NOP(code) \\\n\tasm volatile(\".byte 0x0f,0x1f,0x84,0x00; .long %c0\" \\\n\t\t     : : \"i\"(LAB_NOP_BASE + (code)) : \"memory\")\n\n#endif\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_header_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../pmu/lab_layout.h");
        let fresh = c_header();
        if std::env::var_os("UPDATE_LAYOUT").is_some() {
            std::fs::write(path, &fresh).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == fresh,
            "{path} is stale; run UPDATE_LAYOUT=1 cargo test -p numaherd-lab-plugin"
        );
    }

    #[test]
    fn counters_are_numbered_without_gaps() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
    }

    #[test]
    fn blocks_do_not_overlap_for_any_shape() {
        for nodes in [1, 2, 4, 16, 64, 1000] {
            for vcpus in [1, 8, 32, 4096] {
                let h = Header::for_machine(vcpus, nodes);
                assert!(h.node_offset >= h.header_bytes);
                assert!(h.vcpu_offset >= h.node_offset + nodes * h.node_stride);
                assert!(h.counters_offset >= h.vcpu_bytes);
                assert!(h.node_fetches_offset >= h.counters_offset + h.counters * 8);
                assert!(h.records_offset >= h.node_fetches_offset + nodes * 8);
                assert!(h.vcpu_stride >= h.records_offset + h.ring_records * h.record_bytes);
                assert_eq!(h.outbox_offset, h.vcpu_offset + vcpus * h.vcpu_stride);
                assert_eq!(h.total_bytes, h.outbox_offset + h.outbox_bytes);
                assert!(h.ring_records.is_power_of_two());
            }
        }
    }

    #[test]
    fn nops_are_told_from_other_instructions() {
        let nop = |word: u32| {
            let mut bytes = vec![0x0f, 0x1f, 0x84, 0x00];
            bytes.extend(word.to_le_bytes());
            bytes
        };
        assert_eq!(Nop::decode(&nop(NOP_BASE + 3)), Some(Nop::Sync));
        assert_eq!(Nop::decode(&nop(NOP_BASE + 6)), Some(Nop::Switch));
        assert_eq!(Nop::decode(&nop(NOP_BASE)), None);
        assert_eq!(Nop::decode(&nop(NOP_BASE + 200)), None);
        assert_eq!(Nop::decode(&nop(0)), None, "the compiler's own padding");
        assert_eq!(Nop::decode(&nop(NOP_BASE + 1)[..7]), None);
        assert_eq!(Nop::decode(&[]), None);
    }
}
