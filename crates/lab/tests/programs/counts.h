/*
 * What the guest's programs count with: events of the lab's PMU, by name, of the thread that opens them.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int lab; /* the type of the lab's PMU */

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static unsigned long number_in(const char *path)
{
	unsigned long number;
	FILE *file = fopen(path, "r");

	if (!file || fscanf(file, "%lu", &number) != 1)
		fail(path);
	fclose(file);
	return number;
}

/* The code of an event by its name, from `event=0x..` or `event=..`. */
static uint64_t event_code(const char *name)
{
	char path[256], text[64];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/lab/events/%s", name);
	file = fopen(path, "r");
	if (!file || !fgets(text, sizeof(text), file))
		fail(path);
	fclose(file);
	return strtoull(strchr(text, '=') + 1, NULL, 0);
}

static int open_event(struct perf_event_attr attr)
{
	int fd;

	attr.size = sizeof(attr);
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (fd < 0)
		fail("perf_event_open");
	return fd;
}

static void find_lab(void)
{
	lab = number_in("/sys/bus/event_source/devices/lab/type");
}

static int open_lab(const char *name)
{
	return open_event((struct perf_event_attr){
		.type = lab, .config = event_code(name), .disabled = 1 });
}

static uint64_t count(int fd)
{
	uint64_t value;

	if (read(fd, &value, sizeof(value)) != sizeof(value))
		fail("reading a counter");
	return value;
}

static void go_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void enable(const int *counters, size_t number)
{
	for (size_t i = 0; i < number; i++)
		if (counters[i] >= 0 && ioctl(counters[i], PERF_EVENT_IOC_ENABLE, 0))
			fail("enabling a counter");
}

static void disable(const int *counters, size_t number)
{
	for (size_t i = 0; i < number; i++)
		if (counters[i] >= 0 && ioctl(counters[i], PERF_EVENT_IOC_DISABLE, 0))
			fail("disabling a counter");
}
