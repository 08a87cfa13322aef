// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tells the plugin which thread runs on each CPU, so that every record carries its thread.
 *
 * The sched_switch tracepoint is not exported by name; it is found among the kernel's tracepoints.
 * It fires before the switch, while the old thread is still current.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "lab.h"

static struct tracepoint *sched_switch;

static void publish(const struct task_struct *task)
{
	struct lab_vcpu *vcpu = lab_vcpu(smp_processor_id());

	WRITE_ONCE(vcpu->tid, task->pid);
	WRITE_ONCE(vcpu->tgid, task->tgid);
	LAB_NOP(LAB_NOP_SWITCH);
}

static void on_switch(void *unused, bool preempt, struct task_struct *before, struct task_struct *next,
		      unsigned int state)
{
	lab_drain_before_switch();
	publish(next);
}

static void publish_current(void *unused)
{
	publish(current);
}

static void find_switch(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "sched_switch"))
		sched_switch = tracepoint;
}

int lab_watch_switches(void)
{
	int error;

	for_each_kernel_tracepoint(find_switch, NULL);
	if (!sched_switch) {
		pr_err("this kernel has no sched_switch tracepoint: records would have no thread\n");
		return -ENOENT;
	}
	error = tracepoint_probe_register(sched_switch, on_switch, NULL);
	if (!error)
		on_each_cpu(publish_current, NULL, 1);
	return error;
}

void lab_unwatch_switches(void)
{
	tracepoint_probe_unregister(sched_switch, on_switch, NULL);
	tracepoint_synchronize_unregister();
}
