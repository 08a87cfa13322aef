/*
 * Threads that share pages, or do not, and what the IPM unit tells of them; for tests of it.
 *
 *   share PAGES ROUNDS [CPU ARRAY]...
 *
 * One thread for each pair: on that CPU it walks ROUNDS times through array number ARRAY, of PAGES
 * pages, one line of each. The arrays' memory is that of CPU 0's node. Then it reads what
 * /dev/numaherd_ipm has to tell, moves all arrays to the node of the last CPU by move_pages(2), walks
 * again and reads again. Prints one line for each of the arrays ("array ADDRESS"), the threads ("thread
 * TID") and, after "before" and "after", each record.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096
#define LINE 64
#define DEVICE "/dev/numaherd_ipm"
#define MOVE_ALL (1 << 1) /* MPOL_MF_MOVE */

struct thread {
	pthread_t thread;
	int cpu, array;
	pid_t tid;
};

static uint64_t pages, rounds;
static char **arrays;
static pthread_barrier_t together;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

static void walk(volatile char *array)
{
	uint64_t round, page;

	/* Another line in each page, so that not all lie in the same set of a cache. */
	for (round = 0; round < rounds; round++)
		for (page = 0; page < pages; page++)
			array[page * PAGE + page * LINE % PAGE] += 1;
}

static void *play(void *argument)
{
	struct thread *own = argument;
	int turn;

	pin(own->cpu);
	own->tid = gettid();
	for (turn = 0; turn < 2; turn++) {
		pthread_barrier_wait(&together);
		walk(arrays[own->array]);
		pthread_barrier_wait(&together);
	}
	pthread_barrier_wait(&together);
	return NULL;
}

static void tell(const char *record)
{
	const uint32_t *word = (const uint32_t *)record;
	const uint64_t *rest = (const uint64_t *)record;
	uint32_t i;

	if (memcmp(record, "NIPM", 4) || word[1] != 1)
		fail("no record");
	switch (word[2]) {
	case 1:
		printf("notification %u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", word[4], word[5],
		       word[6], word[7], rest[4], rest[5], rest[6]);
		break;
	case 2:
		for (i = 0; i < word[7]; i++)
			printf("sharing %u %u %u %" PRIu64 "\n", word[4], word[10 + 4 * i],
			       word[11 + 4 * i], rest[6 + 2 * i]);
		break;
	case 3:
		printf("counts %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", rest[2], rest[3], rest[4]);
		break;
	}
}

static void read_all(int device)
{
	static char buffer[65536] __attribute__((aligned(8)));
	uint64_t sharing = 1;
	ssize_t bytes, at;

	if (write(device, &sharing, sizeof(sharing)) != sizeof(sharing))
		fail("asking for the sharing");
	if (read(device, buffer, 8) != -1 || errno != EINVAL)
		fail("a read without room");
	while ((bytes = read(device, buffer, sizeof(buffer))) > 0)
		for (at = 0; at < bytes; at += ((uint32_t *)(buffer + at))[3])
			tell(buffer + at);
	if (bytes)
		fail("reading " DEVICE);
}

static void move(char *array, int node)
{
	void **places = calloc(pages, sizeof(*places));
	int *nodes = calloc(pages, sizeof(*nodes)), *status = calloc(pages, sizeof(*status));
	uint64_t page;

	for (page = 0; page < pages; page++) {
		places[page] = array + page * PAGE;
		nodes[page] = node;
	}
	if (syscall(SYS_move_pages, 0, pages, places, nodes, status, MOVE_ALL))
		fail("move_pages");
	for (page = 0; page < pages; page++)
		if (status[page] != node) {
			fprintf(stderr, "page %" PRIu64 " did not move to %d: %d\n", page, node, status[page]);
			exit(1);
		}
}

int main(int arguments, char **argument)
{
	int count = (arguments - 3) / 2, last = 0, device, i;
	struct thread *threads = calloc(count, sizeof(*threads));
	unsigned int node;

	if (count < 1)
		return 2;
	pages = strtoull(argument[1], NULL, 0);
	rounds = strtoull(argument[2], NULL, 0);
	for (i = 0; i < count; i++) {
		threads[i].cpu = atoi(argument[3 + 2 * i]);
		threads[i].array = atoi(argument[4 + 2 * i]);
		if (threads[i].array > last)
			last = threads[i].array;
	}
	device = open(DEVICE, O_RDWR);
	if (device < 0)
		fail(DEVICE);
	if (open(DEVICE, O_RDONLY) != -1 || errno != EBUSY)
		fail("a second reader");
	pin(threads[count - 1].cpu);
	if (getcpu(NULL, &node))
		fail("getcpu");
	pin(0);
	arrays = calloc(last + 1, sizeof(*arrays));
	for (i = 0; i <= last; i++) {
		arrays[i] = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (arrays[i] == MAP_FAILED || madvise(arrays[i], pages * PAGE, MADV_NOHUGEPAGE))
			fail("mmap");
		/* By the kernel: a first touch would be a use of them, and a long one. */
		if (madvise(arrays[i], pages * PAGE, MADV_POPULATE_WRITE))
			fail("populating an array");
		printf("array %" PRIuPTR "\n", (uintptr_t)arrays[i]);
	}
	pthread_barrier_init(&together, NULL, count + 1);
	for (i = 0; i < count; i++)
		if (pthread_create(&threads[i].thread, NULL, play, &threads[i]))
			fail("pthread_create");

	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	for (i = 0; i < count; i++)
		printf("thread %d\n", threads[i].tid);
	puts("before");
	read_all(device);
	for (i = 0; i <= last; i++)
		move(arrays[i], node);
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	puts("after");
	read_all(device);
	pthread_barrier_wait(&together);
	for (i = 0; i < count; i++)
		pthread_join(threads[i].thread, NULL);
	return 0;
}
