// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tells the plugin what becomes of threads: which one runs on each CPU, who makes, wakes and ends
 * whom. What it is for is the plugin's business: the thread of every record, which threads a trace
 * is of, whose pages an IPM unit sees.
 *
 * The scheduler's tracepoints are not exported by name; they are found among the kernel's. All of
 * them are called on the CPU of the running thread with preemption off, so what is written into
 * that CPU's block is still there when the NOP asks the plugin to look.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/binfmts.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "lab.h"

static void publish(struct lab_vcpu *vcpu, const struct task_struct *task)
{
	u64 name[2];

	static_assert(sizeof(name) == TASK_COMM_LEN);
	memcpy(name, task->comm, sizeof(name));
	WRITE_ONCE(vcpu->name_start, name[0]);
	WRITE_ONCE(vcpu->name_end, name[1]);
	WRITE_ONCE(vcpu->tid, task->pid);
	WRITE_ONCE(vcpu->tgid, task->tgid);
}

static struct lab_vcpu *publish_other(pid_t tid, pid_t tgid)
{
	struct lab_vcpu *vcpu = lab_vcpu(smp_processor_id());

	WRITE_ONCE(vcpu->other_tid, tid);
	WRITE_ONCE(vcpu->other_tgid, tgid);
	return vcpu;
}

/* Before the switch, while the old thread is still current. */
static void on_switch(void *unused, bool preempt, struct task_struct *before, struct task_struct *next,
		      unsigned int state)
{
	lab_drain_before_switch();
	publish(lab_vcpu(smp_processor_id()), next);
	LAB_NOP(LAB_NOP_SWITCH);
}

/* In the parent, before the child runs. */
static void on_fork(void *unused, struct task_struct *parent, struct task_struct *child)
{
	publish_other(child->pid, child->tgid);
	LAB_NOP(LAB_NOP_FORK);
}

/* A thread that is not its process's first takes the first one's number when it calls exec. */
static void on_exec(void *unused, struct task_struct *task, pid_t old, struct linux_binprm *program)
{
	publish(publish_other(old, task->tgid), task);
	LAB_NOP(LAB_NOP_EXEC);
}

static void on_exit(void *unused, struct task_struct *task)
{
	publish(lab_vcpu(smp_processor_id()), task);
	LAB_NOP(LAB_NOP_EXIT);
}

/*
 * In the waker's context, unless that is an interrupt: then whoever runs has nothing to do with it.
 * A thread that is about to sleep may be current itself.
 */
static void on_waking(void *unused, struct task_struct *task)
{
	if (!in_task() || task == current)
		return;
	publish_other(task->pid, task->tgid);
	LAB_NOP(LAB_NOP_WAKE);
}

static struct watched {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} watched[] = {
	{ "sched_switch", on_switch },
	{ "sched_process_fork", on_fork },
	{ "sched_process_exec", on_exec },
	{ "sched_process_exit", on_exit },
	{ "sched_waking", on_waking },
};

static void find(struct tracepoint *tracepoint, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(watched); i++)
		if (!strcmp(tracepoint->name, watched[i].name))
			watched[i].tracepoint = tracepoint;
}

static void publish_current(void *unused)
{
	publish(lab_vcpu(smp_processor_id()), current);
	LAB_NOP(LAB_NOP_SWITCH);
}

static void unwatch(int count)
{
	while (count--)
		tracepoint_probe_unregister(watched[count].tracepoint, watched[count].probe, NULL);
	tracepoint_synchronize_unregister();
}

int lab_watch_threads(void)
{
	int i, error;

	for_each_kernel_tracepoint(find, NULL);
	for (i = 0; i < ARRAY_SIZE(watched); i++) {
		if (!watched[i].tracepoint) {
			pr_err("this kernel has no %s tracepoint: the plugin would not know its threads\n",
			       watched[i].name);
			error = -ENOENT;
			goto unwatch;
		}
		error = tracepoint_probe_register(watched[i].tracepoint, watched[i].probe, NULL);
		if (error)
			goto unwatch;
	}
	on_each_cpu(publish_current, NULL, 1);
	return 0;
unwatch:
	unwatch(i);
	return error;
}

void lab_unwatch_threads(void)
{
	unwatch(ARRAY_SIZE(watched));
}

/* Writing a thread's number to the parameter "record" has it and its descendants recorded. */
static int set_record(const char *text, const struct kernel_param *unused)
{
	int tid;
	int error = kstrtoint(text, 10, &tid);

	if (error)
		return error;
	if (!lab_is_loaded())
		return -EBUSY;
	if (!READ_ONCE(lab_header()->records)) {
		pr_err("nothing is recorded here: start the plugin with trace=FILE\n");
		return -EOPNOTSUPP;
	}
	preempt_disable();
	publish_other(tid, tid);
	LAB_NOP(LAB_NOP_RECORD);
	preempt_enable();
	return 0;
}

static const struct kernel_param_ops record_ops = { .set = set_record };
module_param_cb(record, &record_ops, NULL, 0200);
MODULE_PARM_DESC(record, "A thread to be recorded with its descendants, from its next exec on");
