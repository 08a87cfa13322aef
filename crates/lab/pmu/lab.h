/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of the lab's PMU module share.
 *
 *   module.c    load and unload, the gate
 *   shared.c    the memory shared with the QEMU plugin: mapping, checks, access
 *   events.c    the two PMUs and the meaning of their events
 *   sampling.c  records of single fetches, from the plugin's rings to perf
 *   running.c   which thread runs on each CPU, who makes and wakes whom, for the plugin
 *   outbox.c    what the plugin's IPM unit tells programs, as a character device
 */
#ifndef LAB_H
#define LAB_H

#include <linux/perf_event.h>
#include <linux/sched.h>

#include "lab_layout.h"

/* --- shared.c ------------------------------------------------------------------------------- */

int lab_map_shared(void);
void lab_unmap_shared(void);
struct lab_header *lab_header(void);
struct lab_vcpu *lab_vcpu(unsigned int cpu);
struct lab_record *lab_record(struct lab_vcpu *vcpu, u64 number);
/* Both bring this CPU's counters up to date first; called with interrupts off. */
u64 lab_counter(unsigned int index);
u64 lab_node_fetches(unsigned int node);

/* --- events.c ------------------------------------------------------------------------------- */

int lab_register_pmus(void);
void lab_unregister_pmus(void);

/* --- sampling.c ----------------------------------------------------------------------------- */

int lab_prepare_sampling(void);
void lab_finish_sampling(void);
/* All on the CPU of the event, with interrupts off. */
bool lab_sampling_busy(void);
void lab_start_sampling(struct perf_event *event);
void lab_stop_sampling(struct perf_event *event);
/* The running thread is about to change: what is in the ring is still its own. */
void lab_drain_before_switch(void);

/* --- running.c ------------------------------------------------------------------------------ */

int lab_watch_threads(void);
void lab_unwatch_threads(void);

/* --- outbox.c ------------------------------------------------------------------------------- */

int lab_register_outbox(void);
void lab_unregister_outbox(void);

/* --- module.c ------------------------------------------------------------------------------- */

bool lab_is_loaded(void);

#endif
