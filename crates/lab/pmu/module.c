// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The lab's PMU: shows the counters of the modelled hardware to the guest's perf.
 *
 * The parameter "gate" turns the model on and off; it reads as what the plugin does at present.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kstrtox.h>
#include <linux/module.h>

#include "lab.h"

/* How long the plugin may take to drop the translated code and open the gate. */
#define GATE_PATIENCE (10 * HZ)

static bool loaded;

bool lab_is_loaded(void)
{
	return READ_ONCE(loaded);
}

static int set_gate(const char *text, const struct kernel_param *unused)
{
	struct lab_header *h = lab_header();
	unsigned long until = jiffies + GATE_PATIENCE;
	u64 refusals;
	bool open;
	int error = kstrtobool(text, &open);

	if (error)
		return error;
	if (!lab_is_loaded())
		return -EBUSY;
	refusals = READ_ONCE(h->gate_refusals);
	if (open)
		LAB_NOP(LAB_NOP_GATE_ON);
	else
		LAB_NOP(LAB_NOP_GATE_OFF);
	while (READ_ONCE(h->gate) != open) {
		if (READ_ONCE(h->gate_refusals) != refusals) {
			pr_err("the plugin refuses to open the gate; its reason is on QEMU's stderr\n");
			return -EPERM;
		}
		if (time_after(jiffies, until)) {
			pr_err("the plugin did not answer: is it loaded?\n");
			return -ETIMEDOUT;
		}
		msleep(1);
	}
	return 0;
}

static int get_gate(char *text, const struct kernel_param *unused)
{
	return sysfs_emit(text, "%d\n", lab_is_loaded() && READ_ONCE(lab_header()->gate) == 1);
}

static const struct kernel_param_ops gate_ops = { .set = set_gate, .get = get_gate };
module_param_cb(gate, &gate_ops, NULL, 0644);
MODULE_PARM_DESC(gate, "1 while every access is modelled");

static int __init lab_init(void)
{
	int error = lab_map_shared();

	if (error)
		return error;
	error = lab_prepare_sampling();
	if (error)
		goto unmap;
	error = lab_watch_threads();
	if (error)
		goto unmap;
	error = lab_register_pmus();
	if (error)
		goto unwatch;
	error = lab_register_outbox();
	if (error)
		goto unregister;
	WRITE_ONCE(loaded, true);
	return 0;
unregister:
	lab_unregister_pmus();
unwatch:
	lab_unwatch_threads();
unmap:
	lab_unmap_shared();
	return error;
}

static void __exit lab_exit(void)
{
	WRITE_ONCE(loaded, false);
	lab_unregister_outbox();
	lab_unregister_pmus();
	lab_unwatch_threads();
	lab_finish_sampling();
	lab_unmap_shared();
}

module_init(lab_init);
module_exit(lab_exit);
MODULE_DESCRIPTION("Counters of the lab's modelled hardware");
MODULE_LICENSE("GPL");
