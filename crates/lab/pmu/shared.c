// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The memory shared with the QEMU plugin: BAR 2 of an ivshmem device.
 *
 * lab_layout.h says what is in it and is generated from the plugin's own definition. Nothing in it
 * is trusted before magic, version and sizes have been compared, and every offset is checked
 * against the BAR once, so that the accessors below need no checks.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/io.h>
#include <linux/log2.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/pci.h>

#include "lab.h"

#define IVSHMEM_VENDOR 0x1af4
#define IVSHMEM_DEVICE 0x1110
#define IVSHMEM_BAR 2

static struct pci_dev *device;
static void *shared;

struct lab_header *lab_header(void)
{
	return shared;
}

struct lab_vcpu *lab_vcpu(unsigned int cpu)
{
	const struct lab_header *h = lab_header();

	return shared + h->vcpu_offset + cpu * h->vcpu_stride;
}

struct lab_record *lab_record(struct lab_vcpu *vcpu, u64 number)
{
	const struct lab_header *h = lab_header();

	return (void *)vcpu + h->records_offset + (number & (h->ring_records - 1)) * h->record_bytes;
}

static u64 synced_word(u64 offset, unsigned int index)
{
	void *vcpu = lab_vcpu(smp_processor_id());

	LAB_NOP(LAB_NOP_SYNC);
	return READ_ONCE(((u64 *)(vcpu + offset))[index]);
}

u64 lab_counter(unsigned int index)
{
	return synced_word(lab_header()->counters_offset, index);
}

u64 lab_node_fetches(unsigned int node)
{
	return synced_word(lab_header()->node_fetches_offset, node);
}

/* Whether plugin and module mean the same by the bytes. */
static int check_versions(const struct lab_header *h, u64 bytes)
{
	if (bytes < sizeof(*h) || h->magic != LAB_MAGIC) {
		pr_err("the shared memory is not the plugin's: %llu bytes, magic %#llx, expected %#llx; is the plugin loaded?\n",
		       bytes, bytes < sizeof(*h) ? 0 : h->magic, LAB_MAGIC);
		return -ENODEV;
	}
	if (h->version != LAB_VERSION) {
		pr_err("the plugin has layout version %llu, this module %d; build both from the same source (make setup)\n",
		       h->version, LAB_VERSION);
		return -EINVAL;
	}
	if (h->header_bytes != sizeof(struct lab_header) || h->vcpu_bytes != sizeof(struct lab_vcpu) ||
	    h->record_bytes != sizeof(struct lab_record) || h->node_bytes != sizeof(struct lab_node) ||
	    h->counters != LAB_COUNTERS) {
		pr_err("the plugin's structures differ from this module's: header %llu/%zu, vcpu %llu/%zu, record %llu/%zu, node %llu/%zu bytes, %llu/%d counters\n",
		       h->header_bytes, sizeof(struct lab_header), h->vcpu_bytes, sizeof(struct lab_vcpu),
		       h->record_bytes, sizeof(struct lab_record), h->node_bytes, sizeof(struct lab_node),
		       h->counters, LAB_COUNTERS);
		return -EINVAL;
	}
	return 0;
}

/* Whether `count` things of `bytes` bytes, `stride` apart from `offset` on, lie within `room`. */
static bool fits(u64 offset, u64 count, u64 stride, u64 bytes, u64 room)
{
	u64 last, end;

	if (!count)
		return true;
	return stride >= bytes && IS_ALIGNED(offset, 8) && IS_ALIGNED(stride, 8) &&
	       !check_mul_overflow(count - 1, stride, &last) &&
	       !check_add_overflow(last, offset, &end) && !check_add_overflow(end, bytes, &end) &&
	       end <= room;
}

/* Whether everything that the header points at is there, for all that this kernel has. */
static int check_places(const struct lab_header *h, u64 bytes)
{
	if (!fits(h->node_offset, h->nodes, h->node_stride, h->node_bytes, bytes) ||
	    !fits(h->vcpu_offset, h->vcpus, h->vcpu_stride, h->vcpu_bytes, bytes) ||
	    !fits(h->counters_offset, h->counters, 8, 8, h->vcpu_stride) ||
	    !fits(h->node_fetches_offset, h->nodes, 8, 8, h->vcpu_stride) ||
	    !fits(h->records_offset, h->ring_records, h->record_bytes, h->record_bytes, h->vcpu_stride) ||
	    !fits(h->outbox_offset, h->outbox_bytes / 8, 8, 8, bytes) ||
	    !is_power_of_2(h->ring_records)) {
		pr_err("the plugin's layout does not fit its %llu bytes of memory\n", bytes);
		return -EINVAL;
	}
	if (h->vcpus < nr_cpu_ids || h->nodes < nr_node_ids) {
		pr_err("the plugin models %llu CPUs and %llu nodes, this kernel has %u and %u\n",
		       h->vcpus, h->nodes, nr_cpu_ids, nr_node_ids);
		return -EINVAL;
	}
	return 0;
}

/* Tells the plugin which memory belongs to which node. */
static void publish_nodes(struct lab_header *h)
{
	unsigned int n;

	for (n = 0; n < h->nodes; n++) {
		struct lab_node *node = shared + h->node_offset + n * h->node_stride;
		bool present = n < nr_node_ids && node_online(n);

		WRITE_ONCE(node->start_pfn, present ? node_start_pfn(n) : 0);
		WRITE_ONCE(node->end_pfn, present ? node_end_pfn(n) : 0);
	}
	smp_store_release(&h->module_ready, 1);
}

int lab_map_shared(void)
{
	u64 bytes;
	int error;

	device = pci_get_device(IVSHMEM_VENDOR, IVSHMEM_DEVICE, NULL);
	if (!device) {
		pr_err("there is no ivshmem device: the guest was started without the model\n");
		return -ENODEV;
	}
	error = pci_enable_device(device);
	if (error)
		goto put;
	bytes = pci_resource_len(device, IVSHMEM_BAR);
	shared = memremap(pci_resource_start(device, IVSHMEM_BAR), bytes, MEMREMAP_WB);
	if (!shared) {
		error = -ENOMEM;
		goto disable;
	}
	error = check_versions(shared, bytes) ?: check_places(shared, bytes);
	if (error)
		goto unmap;
	publish_nodes(shared);
	return 0;
unmap:
	memunmap(shared);
disable:
	pci_disable_device(device);
put:
	pci_dev_put(device);
	return error;
}

void lab_unmap_shared(void)
{
	WRITE_ONCE(lab_header()->module_ready, 0);
	memunmap(shared);
	pci_disable_device(device);
	pci_dev_put(device);
}
