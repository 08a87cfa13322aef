// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Samples: the plugin writes a record of every Nth fetch into its vCPU's ring; this turns them
 * into perf samples.
 *
 * A ring is drained by a timer, and before the running thread changes, so that what is in it
 * always belongs to the thread that runs. perf has no interrupt of its own here: the samples of
 * one drain carry the time, the instruction and the address of their own fetch, not those of the
 * drain.
 *
 * perf_event_overflow() is not exported to modules; its address is taken through a kprobe.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/topology.h>
#include <linux/version.h>
#include <asm/irq_regs.h>

#include "lab.h"

static unsigned int drain_us = 500;
module_param(drain_us, uint, 0644);
MODULE_PARM_DESC(drain_us, "Microseconds between two drains of a ring");

static int (*overflow)(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs);

static ktime_t pause(void)
{
	return ns_to_ktime((u64)max(drain_us, 10U) * NSEC_PER_USEC);
}

/* What samples on a CPU; touched there alone, with interrupts off. */
struct sampler {
	struct perf_event *event;
	u64 tail; /* number of the next record to read */
	u64 last; /* time of the last sample */
	struct hrtimer timer;
};
static DEFINE_PER_CPU(struct sampler, samplers);

/* --- From record to sample -------------------------------------------------------------------- */

/* perf's hops: another socket of the board for the nearest nodes, another board beyond them. */
static unsigned int hops(int from, int to)
{
	int nearest = INT_MAX, node;

	for_each_online_node(node)
		if (node != from)
			nearest = min(nearest, node_distance(from, node));
	return node_distance(from, to) <= nearest ? PERF_MEM_HOPS_2 : PERF_MEM_HOPS_3;
}

static u64 data_source(const struct lab_record *record)
{
	union perf_mem_data_src source = { .val = 0 };
	bool dirty = record->flags & LAB_RECORD_DIRTY_TRANSFER;
	int here = cpu_to_node(smp_processor_id());
	bool remote = record->node != here;

	source.mem_op = record->flags & LAB_RECORD_STORE ? PERF_MEM_OP_STORE : PERF_MEM_OP_LOAD;
	source.mem_lvl_num = dirty ? PERF_MEM_LVLNUM_ANY_CACHE : PERF_MEM_LVLNUM_RAM;
	source.mem_snoop = dirty ? PERF_MEM_SNOOP_HITM : PERF_MEM_SNOOP_NONE;
	source.mem_lock = PERF_MEM_LOCK_NA;
	source.mem_dtlb = PERF_MEM_TLB_NA;
	if (!remote) {
		source.mem_lvl = PERF_MEM_LVL_HIT | (dirty ? PERF_MEM_LVL_L3 : PERF_MEM_LVL_LOC_RAM);
		return source.val;
	}
	source.mem_remote = PERF_MEM_REMOTE_REMOTE;
	source.mem_hops = record->node < nr_node_ids ? hops(here, record->node) : PERF_MEM_HOPS_3;
	source.mem_lvl = PERF_MEM_LVL_HIT;
	if (source.mem_hops == PERF_MEM_HOPS_2)
		source.mem_lvl |= dirty ? PERF_MEM_LVL_REM_CCE1 : PERF_MEM_LVL_REM_RAM1;
	else
		source.mem_lvl |= dirty ? PERF_MEM_LVL_REM_CCE2 : PERF_MEM_LVL_REM_RAM2;
	return source.val;
}

/*
 * The time of the fetch on the event's clock. Under modelled time the TSC counts the plugin's
 * nanoseconds, so a record's age is known. A vCPU's own time may run ahead of the common one;
 * samples do not, but by what keeps them in order.
 */
static u64 sample_time(struct sampler *sampler, const struct lab_record *record)
{
	u64 time = sampler->event->clock();

	if (lab_header()->time_mode == 1) {
		u64 now = rdtsc();

		if (now > record->time_ns)
			time -= min(time, now - record->time_ns);
	}
	sampler->last = max(time, sampler->last + 1);
	return sampler->last;
}

static bool wanted(const struct perf_event *event, const struct lab_record *record)
{
	bool user = (s64)record->ip >= 0;

	return user ? !event->attr.exclude_user : !event->attr.exclude_kernel;
}

/* Hands one record to perf; true when perf wants no more for now. */
static bool deliver(struct sampler *sampler, const struct lab_record *record, const struct pt_regs *where)
{
	struct perf_event *event = sampler->event;
	struct perf_sample_data data;
	struct pt_regs regs = *where;

	if (!wanted(event, record))
		return false;
	perf_sample_data_init(&data, record->va, event->hw.last_period);
	regs.ip = record->ip;
	regs.cs = (s64)record->ip >= 0 ? __USER_CS : __KERNEL_CS;
	data.data_src.val = data_source(record);
	data.weight.full = record->latency_ns;
	data.phys_addr = record->pa;
	data.time = sample_time(sampler, record);
	data.sample_flags |= PERF_SAMPLE_ADDR | PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_WEIGHT_TYPE |
			     PERF_SAMPLE_PHYS_ADDR | PERF_SAMPLE_TIME;
	/* An event of a thread is on a CPU only with its thread; one of a CPU sees many. */
	if (!(event->attach_state & PERF_ATTACH_TASK)) {
		data.tid_entry.pid = record->tgid;
		data.tid_entry.tid = record->tid;
		data.sample_flags |= PERF_SAMPLE_TID;
	}
	return overflow(event, &data, &regs);
}

/* --- Rings ------------------------------------------------------------------------------------ */

static void set_period(struct lab_vcpu *vcpu, u64 period, u64 left)
{
	WRITE_ONCE(vcpu->sample_left, left);
	WRITE_ONCE(vcpu->sample_period, period);
}

/* Delivers what is in this CPU's ring; `where` is what the running thread was interrupted at. */
static void drain(struct sampler *sampler, const struct pt_regs *where)
{
	struct lab_vcpu *vcpu = lab_vcpu(smp_processor_id());
	struct perf_event *event = sampler->event;
	u64 head = smp_load_acquire(&vcpu->ring_head);
	u64 room = lab_header()->ring_records;

	if (head - sampler->tail > room) {
		atomic64_add(head - sampler->tail - room, &event->lost_samples);
		sampler->tail = head - room;
	}
	for (; sampler->tail != head; sampler->tail++) {
		/* A copy: the plugin may go round while perf looks. */
		struct lab_record record = *lab_record(vcpu, sampler->tail);

		if (deliver(sampler, &record, where)) {
			/* Throttled: perf starts the event again at its next tick. */
			sampler->tail = head;
			event->pmu->stop(event, 0);
			return;
		}
	}
	/* With a frequency instead of a period, perf has changed the period meanwhile. */
	if (READ_ONCE(vcpu->sample_period) != event->hw.sample_period)
		set_period(vcpu, event->hw.sample_period, event->hw.sample_period);
	event->hw.last_period = event->hw.sample_period;
}

/* Drains where nothing was interrupted: the thread's registers at its entry to the kernel. */
static void drain_in_kernel(struct sampler *sampler)
{
	struct pt_regs here;

	if (current->mm) {
		drain(sampler, task_pt_regs(current));
		return;
	}
	perf_fetch_caller_regs(&here);
	drain(sampler, &here);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	struct sampler *sampler = container_of(timer, struct sampler, timer);
	struct pt_regs *interrupted = get_irq_regs();

	if (!sampler->event)
		return HRTIMER_NORESTART;
	if (interrupted)
		drain(sampler, interrupted);
	if (!sampler->event)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, pause());
	return HRTIMER_RESTART;
}

void lab_drain_before_switch(void)
{
	struct sampler *sampler = this_cpu_ptr(&samplers);

	if (sampler->event)
		drain_in_kernel(sampler);
}

bool lab_sampling_busy(void)
{
	return this_cpu_read(samplers.event);
}

void lab_start_sampling(struct perf_event *event)
{
	struct sampler *sampler = this_cpu_ptr(&samplers);
	struct lab_vcpu *vcpu = lab_vcpu(smp_processor_id());
	u64 left = local64_read(&event->hw.period_left);

	event->hw.last_period = event->hw.sample_period;
	sampler->event = event;
	sampler->last = 0;
	sampler->tail = smp_load_acquire(&vcpu->ring_head);
	WRITE_ONCE(vcpu->sample_latency_ns, event->attr.config1 & U32_MAX);
	if (!left || left > event->hw.sample_period)
		left = event->hw.sample_period;
	set_period(vcpu, event->hw.sample_period, left);
	hrtimer_start(&sampler->timer, pause(), HRTIMER_MODE_REL_PINNED_HARD);
}

void lab_stop_sampling(struct perf_event *event)
{
	struct sampler *sampler = this_cpu_ptr(&samplers);
	struct lab_vcpu *vcpu = lab_vcpu(smp_processor_id());

	if (sampler->event != event)
		return;
	/* What is left of the period goes on when the event is next on a CPU. */
	local64_set(&event->hw.period_left, READ_ONCE(vcpu->sample_left));
	set_period(vcpu, 0, 0);
	drain_in_kernel(sampler);
	sampler->event = NULL;
}

/* --- Set-up ----------------------------------------------------------------------------------- */

static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "perf_event_overflow" };
	int error = register_kprobe(&probe);

	if (error) {
		pr_err("this kernel has no perf_event_overflow to be found (%d): no samples without it\n", error);
		return error;
	}
	overflow = (void *)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

int lab_prepare_sampling(void)
{
	int cpu, error = find_overflow();

	if (error)
		return error;
	for_each_possible_cpu(cpu) {
		struct hrtimer *timer = &per_cpu(samplers, cpu).timer;

		set_period(lab_vcpu(cpu), 0, 0);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
		hrtimer_setup(timer, on_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
		hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
		timer->function = on_timer;
#endif
	}
	return 0;
}

void lab_finish_sampling(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu(samplers, cpu).timer);
}
