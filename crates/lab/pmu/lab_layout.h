/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Generated from crates/lab/plugin/src/layout.rs, which explains the whole. To make it anew:
 *   UPDATE_LAYOUT=1 cargo test -p numaherd-lab-plugin
 */
#ifndef LAB_LAYOUT_H
#define LAB_LAYOUT_H

#include <linux/types.h>

#define LAB_MAGIC 0x44524548414d554eULL
#define LAB_VERSION 2

/* Start of the memory. */
struct lab_header {
	/* `LAB_MAGIC`. */
	__u64 magic;
	/* `LAB_VERSION`. */
	__u64 version;
	/* sizeof(struct lab_header). */
	__u64 header_bytes;
	/* Bytes of the whole memory that are in use. */
	__u64 total_bytes;
	/* vCPUs; blocks follow the kernel's CPU numbers. */
	__u64 vcpus;
	/* Memory nodes. */
	__u64 nodes;
	/* Offset of the first vCPU block from the start of the memory. */
	__u64 vcpu_offset;
	/* Bytes from one vCPU block to the next. */
	__u64 vcpu_stride;
	/* sizeof(struct lab_vcpu). */
	__u64 vcpu_bytes;
	/* Number of counters in a block. */
	__u64 counters;
	/* Offset of the counters within a block. */
	__u64 counters_offset;
	/* Offset of the per-node fetch counts within a block. */
	__u64 node_fetches_offset;
	/* Offset of the ring's records within a block. */
	__u64 records_offset;
	/* Records in a ring; a power of two. */
	__u64 ring_records;
	/* sizeof(struct lab_record). */
	__u64 record_bytes;
	/* Offset of the node table from the start of the memory. */
	__u64 node_offset;
	/* Bytes from one node table entry to the next. */
	__u64 node_stride;
	/* sizeof(struct lab_node). */
	__u64 node_bytes;
	/* 1 while accesses are modelled. */
	__u64 gate;
	/* How guest time runs while the gate is open: 0 as host time, 1 modelled. */
	__u64 time_mode;
	/* Modelled time of one instruction in picoseconds (1000 instructions take as many ns). */
	__u64 picoseconds_per_instruction;
	/* Modelled core clock, for the cycle counters. */
	__u64 core_mhz;
	/* Set to 1 by the module once the node table is filled. */
	__u64 module_ready;
	/* Gate openings that the plugin refused (its reason is on QEMU's stderr). */
	__u64 gate_refusals;
	/* 1 when the plugin records what programs do (its argument `trace`). */
	__u64 records;
	/* 1 when the plugin has an IPM unit. */
	__u64 has_ipm;
	/* Offset of the outbox from the start of the memory. */
	__u64 outbox_offset;
	/* Bytes of the outbox. */
	__u64 outbox_bytes;
	/* Bytes that the reader has room for (module, before `LAB_NOP_IPM_READ`). */
	__u64 outbox_room;
	/* Bytes in the outbox, all of them whole records (plugin, at `LAB_NOP_IPM_READ`); */
	/* `LAB_OUTBOX_NO_ROOM` when there is a record, but not the room for it. */
	__u64 outbox_used;
};
_Static_assert(sizeof(struct lab_header) == 240, "lab_header");

/* Memory of one node. */
struct lab_node {
	/* First page frame. */
	__u64 start_pfn;
	/* One past the last page frame; equal to `start_pfn` for a node without memory. */
	__u64 end_pfn;
};
_Static_assert(sizeof(struct lab_node) == 16, "lab_node");

/* Head of a vCPU's block. */
struct lab_vcpu {
	/* Thread now running here (module, on every `sched_switch`, before `LAB_NOP_SWITCH`); 0 is idle. */
	__u32 tid;
	/* Process of that thread (module). */
	__u32 tgid;
	/* Name of that thread, NUL-padded, its first 8 bytes (module). */
	__u64 name_start;
	/* The rest of its name (module). */
	__u64 name_end;
	/* Thread that an event is about, besides the running one (module; see each `LAB_NOP_*`). */
	__u32 other_tid;
	/* Process of that thread (module). */
	__u32 other_tgid;
	/* Lines fetched on demand between two samples (module); 0 turns sampling off. */
	__u64 sample_period;
	/* Lines left until the next sample (module sets it, the plugin counts it down). */
	__u64 sample_left;
	/* Only fetches that took at least this long are counted for sampling (module); 0 counts all. */
	__u64 sample_latency_ns;
	/* Records pushed so far (plugin, with release order); record n is at n % ring_records. */
	__u64 ring_head;
	/* `LAB_NOP_SYNC`s executed here (plugin). */
	__u64 syncs;
};
_Static_assert(sizeof(struct lab_vcpu) == 72, "lab_vcpu");

/* One sampled fetch. */
struct lab_record {
	/* Virtual address of the data. */
	__u64 va;
	/* Physical address of the data. */
	__u64 pa;
	/* Address of the instruction. */
	__u64 ip;
	/* Modelled time of the vCPU when the access was made, in ns since power-on. */
	__u64 time_ns;
	/* From the access to the data, in ns, queueing included. */
	__u32 latency_ns;
	/* Node whose memory the line came from. */
	__u16 node;
	/* `LAB_RECORD_*`. */
	__u16 flags;
	/* Thread that made the access. */
	__u32 tid;
	/* Process of that thread. */
	__u32 tgid;
};
_Static_assert(sizeof(struct lab_record) == 48, "lab_record");

/* Indices of the counters; they are valid right after LAB_NOP_SYNC. */
/* Instructions, user and kernel. */
#define LAB_COUNTER_INSTRUCTIONS 0
/* Instructions at user addresses. */
#define LAB_COUNTER_USER_INSTRUCTIONS 1
/* Core cycles of modelled time that the vCPU was not idle. */
#define LAB_COUNTER_CYCLES 2
/* Data accesses that were modelled (one for each line touched). */
#define LAB_COUNTER_ACCESSES 3
/* Of these, stores. */
#define LAB_COUNTER_STORES 4
/* Lookups in the last-level cache on demand. */
#define LAB_COUNTER_LLC_ACCESS 5
/* Lines fetched from memory on demand. */
#define LAB_COUNTER_LLC_MISS 6
/* Lines fetched from memory by the prefetcher. */
#define LAB_COUNTER_PREFETCH 7
/* Lines fetched from the own node's memory, prefetches included. */
#define LAB_COUNTER_DRAM_LOCAL 8
/* Lines fetched from other nodes' memory, prefetches included. */
#define LAB_COUNTER_DRAM_REMOTE 9
/* Dirty lines written back to memory. */
#define LAB_COUNTER_WRITEBACK 10
/* Modelled time in which the core waited for data, in ns. */
#define LAB_COUNTER_STALL_NS 11
/* Requests that left the core's private caches. */
#define LAB_COUNTER_OFFCORE_REQUESTS 12
/* Core cycles with at least one such request outstanding. */
#define LAB_COUNTER_OFFCORE_BUSY_CYCLES 13
/* Lines taken dirty from another core's or domain's cache. */
#define LAB_COUNTER_DIRTY_TRANSFER 14
/* Copies in other caches dropped because of stores made here. */
#define LAB_COUNTER_INVALIDATION 15
/* Modelled time that the vCPU was not idle, in ns. */
#define LAB_COUNTER_BUSY_NS 16
/* Accesses left out of the model: devices, and addresses outside every node. */
#define LAB_COUNTER_UNMODELLED 17

#define LAB_COUNTERS 18
/* X(index, name) for each counter. */
#define LAB_FOR_EACH_COUNTER(X) \
	X(0, instructions) \
	X(1, user_instructions) \
	X(2, cycles) \
	X(3, accesses) \
	X(4, stores) \
	X(5, llc_access) \
	X(6, llc_miss) \
	X(7, prefetch) \
	X(8, dram_local) \
	X(9, dram_remote) \
	X(10, writeback) \
	X(11, stall_ns) \
	X(12, offcore_requests) \
	X(13, offcore_busy_cycles) \
	X(14, dirty_transfer) \
	X(15, invalidation) \
	X(16, busy_ns) \
	X(17, unmodelled)

/* Bits of lab_record.flags. */
/* The access was a store. */
#define LAB_RECORD_STORE 1
/* The line came from another node. */
#define LAB_RECORD_REMOTE 2
/* The line came dirty out of another cache, not from memory. */
#define LAB_RECORD_DIRTY_TRANSFER 4

/* Codes of the NOPs that ask something of the plugin. */
/* Open the gate: model every access from here on. */
#define LAB_NOP_GATE_ON 1
/* Close the gate. */
#define LAB_NOP_GATE_OFF 2
/* Bring this vCPU's counters in the shared memory up to date. */
#define LAB_NOP_SYNC 3
/* The module has just written another thread into this vCPU's `tid` and `tgid`. */
#define LAB_NOP_SWITCH 6
/* The running thread made another, `other_tid` of `other_tgid`, which has not run yet. */
#define LAB_NOP_FORK 7
/* The running thread's process now runs another program; the thread was `other_tid`. */
#define LAB_NOP_EXEC 8
/* The running thread ends: it runs no further user code. */
#define LAB_NOP_EXIT 9
/* The running thread wakes `other_tid`, or keeps it from falling asleep. */
#define LAB_NOP_WAKE 10
/* Record thread `other_tid` and all its descendants from its next `LAB_NOP_EXEC` on. */
#define LAB_NOP_RECORD 11
/* Fill the outbox. */
#define LAB_NOP_IPM_READ 12
/* Let the next reads of the outbox tell who shares pages with whom. */
#define LAB_NOP_IPM_SHARING 13

#define LAB_NOP_BASE 0x4c414200
#define LAB_OUTBOX_NO_ROOM 0xffffffffffffffffULL
#define LAB_NOP(code) \
	asm volatile(".byte 0x0f,0x1f,0x84,0x00; .long %c0" \
		     : : "i"(LAB_NOP_BASE + (code)) : "memory")

#endif
