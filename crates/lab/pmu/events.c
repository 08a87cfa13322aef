// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two PMUs that count the same: "lab" with all events by name, and "cpu", which answers to
 * PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE and PERF_TYPE_RAW, so that programs written for real
 * machines need not know of the lab. Under TCG no other PMU claims that place.
 *
 * Every event is a counter that the plugin keeps per vCPU and never resets, or a sum of such;
 * perf's counts are differences. There are as many as anyone wants, so nothing is multiplexed.
 * Sampling is by lines fetched on demand from memory (llc_miss), see sampling.c.
 *
 * Event codes, in config bits 0-7: the plugin's counters by index, and from 0x80 on what is
 * computed from several. Bits 8-23 are the node for node_fetches; config1 bits 0-31 the least
 * latency in ns for samples.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/stringify.h>

#include "lab.h"

#define DRAM 0x80		  /* all lines fetched from memory */
#define STALL_CYCLES 0x81	  /* stall_ns in core cycles */
#define KERNEL_INSTRUCTIONS 0x82  /* instructions outside user space */
#define LOADS 0x83		  /* accesses that are no stores */
#define NODE_FETCHES 0x84	  /* lines fetched from one node */

#define EVENT_CODE(config) ((config) & 0xff)
#define EVENT_NODE(config) (((config) >> 8) & 0xffff)

static struct pmu lab_pmu, cpu_pmu;

static u64 value(u64 config)
{
	switch (EVENT_CODE(config)) {
	case DRAM:
		return lab_counter(LAB_COUNTER_DRAM_LOCAL) + lab_counter(LAB_COUNTER_DRAM_REMOTE);
	case STALL_CYCLES:
		return mul_u64_u64_div_u64(lab_counter(LAB_COUNTER_STALL_NS), lab_header()->core_mhz, 1000);
	case KERNEL_INSTRUCTIONS:
		return lab_counter(LAB_COUNTER_INSTRUCTIONS) - lab_counter(LAB_COUNTER_USER_INSTRUCTIONS);
	case LOADS:
		return lab_counter(LAB_COUNTER_ACCESSES) - lab_counter(LAB_COUNTER_STORES);
	case NODE_FETCHES:
		return lab_node_fetches(EVENT_NODE(config));
	default:
		return lab_counter(EVENT_CODE(config));
	}
}

static bool known(u64 config)
{
	u64 code = EVENT_CODE(config);

	if (code == NODE_FETCHES)
		return EVENT_NODE(config) < lab_header()->nodes && !(config >> 24);
	return !(config >> 8) && (code < LAB_COUNTERS || (code >= DRAM && code <= LOADS));
}

/* --- What perf asks of a PMU ----------------------------------------------------------------- */

static void lab_read(struct perf_event *event)
{
	u64 now = value(event->hw.config);
	u64 before = local64_xchg(&event->hw.prev_count, now);

	local64_add(now - before, &event->count);
}

static void lab_start(struct perf_event *event, int flags)
{
	event->hw.state = 0;
	local64_set(&event->hw.prev_count, value(event->hw.config));
	if (is_sampling_event(event))
		lab_start_sampling(event);
}

static void lab_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (is_sampling_event(event))
		lab_stop_sampling(event);
	lab_read(event);
}

static int lab_add(struct perf_event *event, int flags)
{
	/* The plugin samples for one event on a CPU at a time; perf takes turns with the others. */
	if (is_sampling_event(event) && lab_sampling_busy())
		return -EAGAIN;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		lab_start(event, flags);
	perf_event_update_userpage(event);
	return 0;
}

static void lab_del(struct perf_event *event, int flags)
{
	lab_stop(event, PERF_EF_UPDATE);
	perf_event_update_userpage(event);
}

/*
 * Only instructions are told apart by user and kernel. A program that wants anything else split is
 * refused, rather than given figures that are not what it asked for. For samples the address of
 * the instruction tells, so there it can be had.
 */
static int apply_exclusion(struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;

	if ((!attr->exclude_user && !attr->exclude_kernel) || is_sampling_event(event))
		return 0;
	if (event->hw.config != LAB_COUNTER_INSTRUCTIONS || (attr->exclude_user && attr->exclude_kernel))
		return -EOPNOTSUPP;
	event->hw.config = attr->exclude_kernel ? LAB_COUNTER_USER_INSTRUCTIONS : KERNEL_INSTRUCTIONS;
	return 0;
}

static int init_event(struct perf_event *event, u64 config)
{
	if (!known(config))
		return -EINVAL;
	if (has_branch_stack(event))
		return -EOPNOTSUPP;
	if (is_sampling_event(event) && config != LAB_COUNTER_LLC_MISS)
		return -EOPNOTSUPP;
	event->hw.config = config;
	return apply_exclusion(event);
}

static int lab_event_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	return init_event(event, event->attr.config);
}

/* --- Generic events -------------------------------------------------------------------------- */

static int hardware_code(u64 config)
{
	switch (config) {
	case PERF_COUNT_HW_CPU_CYCLES:
		return LAB_COUNTER_CYCLES;
	case PERF_COUNT_HW_INSTRUCTIONS:
		return LAB_COUNTER_INSTRUCTIONS;
	case PERF_COUNT_HW_CACHE_REFERENCES:
		return LAB_COUNTER_LLC_ACCESS;
	case PERF_COUNT_HW_CACHE_MISSES:
		return LAB_COUNTER_LLC_MISS;
	case PERF_COUNT_HW_STALLED_CYCLES_BACKEND:
		return STALL_CYCLES;
	default:
		return -ENOENT;
	}
}

#define CACHE(cache, operation, result)                                                            \
	(PERF_COUNT_HW_CACHE_##cache | PERF_COUNT_HW_CACHE_OP_##operation << 8 |                   \
	 PERF_COUNT_HW_CACHE_RESULT_##result << 16)

static int cache_code(u64 config)
{
	switch (config) {
	case CACHE(L1D, READ, ACCESS):
		return LOADS;
	case CACHE(L1D, WRITE, ACCESS):
		return LAB_COUNTER_STORES;
	case CACHE(LL, READ, ACCESS):
		return LAB_COUNTER_LLC_ACCESS;
	case CACHE(LL, READ, MISS):
		return LAB_COUNTER_LLC_MISS;
	case CACHE(LL, PREFETCH, MISS):
		return LAB_COUNTER_PREFETCH;
	case CACHE(NODE, READ, ACCESS): /* from any node */
		return DRAM;
	case CACHE(NODE, READ, MISS): /* from another node */
		return LAB_COUNTER_DRAM_REMOTE;
	default:
		return -ENOENT;
	}
}

static int cpu_event_init(struct perf_event *event)
{
	int code;

	switch (event->attr.type) {
	case PERF_TYPE_HARDWARE:
		code = hardware_code(event->attr.config);
		break;
	case PERF_TYPE_HW_CACHE:
		code = cache_code(event->attr.config);
		break;
	case PERF_TYPE_RAW:
		return init_event(event, event->attr.config);
	default:
		return -ENOENT;
	}
	return code < 0 ? code : init_event(event, code);
}

/* --- sysfs: names of events and fields -------------------------------------------------------- */

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(node, "config:8-23");
PMU_FORMAT_ATTR(latency, "config1:0-31");

static struct attribute *format_attributes[] = {
	&format_attr_event.attr,
	&format_attr_node.attr,
	&format_attr_latency.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = format_attributes,
};

#define DEFINE_EVENT_ATTRIBUTE(index, name) \
	PMU_EVENT_ATTR_STRING(name, event_##name, "event=" __stringify(index));
LAB_FOR_EACH_COUNTER(DEFINE_EVENT_ATTRIBUTE)
DEFINE_EVENT_ATTRIBUTE(0x80, dram)
DEFINE_EVENT_ATTRIBUTE(0x81, stall_cycles)
DEFINE_EVENT_ATTRIBUTE(0x82, kernel_instructions)
DEFINE_EVENT_ATTRIBUTE(0x83, loads)
DEFINE_EVENT_ATTRIBUTE(0x84, node_fetches)

#define EVENT_ATTRIBUTE(index, name) &event_##name.attr.attr,
static struct attribute *event_attributes[] = {
	LAB_FOR_EACH_COUNTER(EVENT_ATTRIBUTE)
	EVENT_ATTRIBUTE(0x80, dram)
	EVENT_ATTRIBUTE(0x81, stall_cycles)
	EVENT_ATTRIBUTE(0x82, kernel_instructions)
	EVENT_ATTRIBUTE(0x83, loads)
	EVENT_ATTRIBUTE(0x84, node_fetches)
	NULL,
};

static const struct attribute_group event_group = {
	.name = "events",
	.attrs = event_attributes,
};

static const struct attribute_group *groups[] = {
	&format_group,
	&event_group,
	NULL,
};

/* --- The two PMUs ----------------------------------------------------------------------------- */

static struct pmu lab_pmu = {
	.module = THIS_MODULE,
	.attr_groups = groups,
	/* Always schedulable, as software events are, and so allowed in any group. */
	.task_ctx_nr = perf_sw_context,
	.event_init = lab_event_init,
	.add = lab_add,
	.del = lab_del,
	.start = lab_start,
	.stop = lab_stop,
	.read = lab_read,
};

static struct pmu cpu_pmu = {
	.module = THIS_MODULE,
	.attr_groups = groups,
	.task_ctx_nr = perf_hw_context,
	.event_init = cpu_event_init,
	.add = lab_add,
	.del = lab_del,
	.start = lab_start,
	.stop = lab_stop,
	.read = lab_read,
};

int lab_register_pmus(void)
{
	int error = perf_pmu_register(&lab_pmu, "lab", -1);

	if (error)
		return error;
	error = perf_pmu_register(&cpu_pmu, "cpu", PERF_TYPE_RAW);
	if (error)
		perf_pmu_unregister(&lab_pmu);
	return error;
}

void lab_unregister_pmus(void)
{
	perf_pmu_unregister(&cpu_pmu);
	perf_pmu_unregister(&lab_pmu);
}
