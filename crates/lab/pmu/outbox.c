// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /dev/numaherd_ipm: what the plugin's IPM unit has to tell a program of the guest.
 *
 * A read asks the plugin to fill the outbox in the shared memory with whole records, at most as
 * many bytes as the reader has room for, and copies them out; nothing there reads as 0 bytes. A
 * write of the number 1, as 8 bytes, has the next reads tell who shares pages with whom. The
 * records are the plugin's (ipm/protocol.rs there); nothing here looks into them. One program at a
 * time, since each notification is told once.
 */
#define pr_fmt(fmt) "lab_pmu: " fmt

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/uaccess.h>

#include "lab.h"

#define SHARING 1

static atomic_t opened = ATOMIC_INIT(0);
static DEFINE_MUTEX(outbox);

static int ipm_open(struct inode *inode, struct file *file)
{
	if (atomic_cmpxchg(&opened, 0, 1))
		return -EBUSY;
	return stream_open(inode, file);
}

static int ipm_release(struct inode *inode, struct file *file)
{
	atomic_set(&opened, 0);
	return 0;
}

static ssize_t ipm_read(struct file *file, char __user *to, size_t room, loff_t *unused)
{
	struct lab_header *h = lab_header();
	ssize_t result;
	u64 used;

	if (mutex_lock_interruptible(&outbox))
		return -ERESTARTSYS;
	WRITE_ONCE(h->outbox_room, min_t(u64, room, h->outbox_bytes));
	LAB_NOP(LAB_NOP_IPM_READ);
	used = READ_ONCE(h->outbox_used);
	if (used == LAB_OUTBOX_NO_ROOM)
		result = -EINVAL;
	else if (used > room || used > h->outbox_bytes)
		result = -EIO;
	else if (copy_to_user(to, (void *)h + h->outbox_offset, used))
		result = -EFAULT;
	else
		result = used;
	mutex_unlock(&outbox);
	return result;
}

static ssize_t ipm_write(struct file *file, const char __user *from, size_t bytes, loff_t *unused)
{
	u64 request;

	if (bytes != sizeof(request))
		return -EINVAL;
	if (copy_from_user(&request, from, sizeof(request)))
		return -EFAULT;
	if (request != SHARING)
		return -EINVAL;
	LAB_NOP(LAB_NOP_IPM_SHARING);
	return bytes;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = ipm_open,
	.release = ipm_release,
	.read = ipm_read,
	.write = ipm_write,
};

static struct miscdevice ipm = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "numaherd_ipm",
	.mode = 0600,
	.fops = &operations,
};

/* Only where there is such a unit, so that programs see by the name that there is. */
int lab_register_outbox(void)
{
	return lab_header()->has_ipm ? misc_register(&ipm) : 0;
}

void lab_unregister_outbox(void)
{
	if (lab_header()->has_ipm)
		misc_deregister(&ipm);
}
