/*
 * Walks memory in a known way and says what perf counted: the guest's side of modelled.rs.
 *
 *   walk LINES ROUNDS PERIOD (CPU HOME)...
 *
 * One thread for each CPU and HOME: it fills LINES cache lines while on the CPU HOME, so that they
 * lie on HOME's node, goes to CPU and follows a random cycle through all lines ROUNDS times. With
 * a PERIOD other than 0 it also samples every PERIOD-th miss. Each line holds the address of the
 * next, so that no access can begin before the one before it has its data.
 *
 * The walk is gone through once before anything is counted, so that no line is in another CPU's
 * cache any more. One line of output per thread, `name value` pairs: what was counted between the
 * first and the last access of the walk, what the thread did in its whole life, and what the
 * samples say.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "counts.h"

#define RING_PAGES 1024

/*
 * How far, in ns, a CPU's modelled time may be ahead of the clock. The plugin holds it to less, but
 * lets a CPU go on that has waited for long in host time.
 */
#define AHEAD 5000000

/*
 * How far, in ns, a sample's time may be before its fetch: the kernel's module reads the clock and the
 * TSC one after another, and the common time may move in between by what one vCPU may be ahead.
 */
#define EARLY 200000

struct line {
	struct line *next;
	char rest[56];
};

struct walker {
	pthread_t thread;
	int cpu, home;
	char said[1024];
};

static size_t lines, rounds, period;
static pthread_barrier_t together;

static int open_generic(uint32_t type, uint64_t config)
{
	return open_event((struct perf_event_attr){
		.type = type, .config = config, .disabled = 1 });
}

static int open_life(uint64_t config, bool user_only)
{
	return open_event((struct perf_event_attr){
		.type = PERF_TYPE_HARDWARE, .config = config, .exclude_kernel = user_only });
}

struct sample {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time, address;
	uint32_t cpu, unused;
	uint64_t weight, source, physical;
};

static int open_samples(void)
{
	return open_event((struct perf_event_attr){
		.type = lab,
		.config = event_code("llc_miss"),
		.sample_period = period,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR |
			       PERF_SAMPLE_CPU | PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC |
			       PERF_SAMPLE_PHYS_ADDR,
		.exclude_kernel = 1,
		.disabled = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	});
}

/* What the samples say, appended to the thread's line. */
static void tell_samples(struct walker *walker, struct perf_event_mmap_page *ring, const struct line *memory,
			 uint64_t begin, uint64_t end)
{
	uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE), last = 0;
	size_t size = (size_t)RING_PAGES * 4096, samples = 0, others = 0, wrong_thread = 0, outside = 0;
	size_t remote = 0, wrong_cpu = 0, not_later = 0, too_early = 0, too_late = 0;
	uint64_t weight = 0, least = UINT64_MAX;
	uint32_t self = gettid();

	for (uint64_t at = ring->data_tail; at < head;) {
		struct sample sample;
		const char *data = (const char *)ring + 4096;
		union perf_mem_data_src source;

		for (size_t i = 0; i < sizeof(sample); i++)
			((char *)&sample)[i] = data[(at + i) % size];
		at += sample.header.size;
		if (sample.header.type != PERF_RECORD_SAMPLE) {
			others++;
			continue;
		}
		source.val = sample.source;
		samples++;
		wrong_thread += sample.tid != self;
		wrong_cpu += (int)sample.cpu != walker->cpu;
		outside += sample.address < (uintptr_t)memory || sample.address >= (uintptr_t)(memory + lines);
		remote += source.mem_remote;
		not_later += sample.time <= last;
		too_early += sample.time + EARLY < begin;
		too_late += sample.time > end + AHEAD;
		last = sample.time;
		weight += sample.weight;
		if (sample.weight < least)
			least = sample.weight;
	}
	snprintf(walker->said + strlen(walker->said), sizeof(walker->said) - strlen(walker->said),
		 " samples %zu others %zu wrong_thread %zu wrong_cpu %zu outside %zu remote_samples %zu"
		 " not_later %zu too_early %zu too_late %zu weight %" PRIu64 " least_weight %" PRIu64,
		 samples, others, wrong_thread, wrong_cpu, outside, remote, not_later, too_early, too_late, weight,
		 samples ? least : 0);
}

/* Links all lines to one random cycle: Sattolo's shuffle, with xorshift numbers. */
static void make_cycle(struct line *memory)
{
	uint64_t random = 88172645463325252ull;
	size_t i, *order = malloc(lines * sizeof(*order));

	for (i = 0; i < lines; i++)
		order[i] = i;
	for (i = lines - 1; i > 0; i--) {
		size_t other, swapped = order[i];

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		other = random % i;
		order[i] = order[other];
		order[other] = swapped;
	}
	for (i = 0; i < lines; i++)
		memory[order[i]].next = &memory[order[(i + 1) % lines]];
	free(order);
}

static struct line *follow(struct line *position, size_t steps)
{
	while (steps--)
		position = *(struct line *volatile *)&position->next;
	return position;
}

static void *walk(void *argument)
{
	struct walker *walker = argument;
	struct line *memory;
	struct perf_event_mmap_page *ring = NULL;
	struct line *position;
	uint64_t begin, end;
	/* On from here, before anything else is done. */
	int life_misses = open_life(PERF_COUNT_HW_CACHE_MISSES, false);
	int life_user = open_life(PERF_COUNT_HW_INSTRUCTIONS, true);
	int misses = open_lab("llc_miss"), user = open_lab("user_instructions");
	int local = open_lab("dram_local"), remote = open_lab("dram_remote");
	int generic = open_generic(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES);
	int instructions = open_event((struct perf_event_attr){ .type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_INSTRUCTIONS, .exclude_kernel = 1, .disabled = 1 });
	int node = open_generic(PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_NODE |
		PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
	int busy = open_lab("busy_ns");
	int all[] = { misses, user, local, remote, generic, instructions, node, busy, -1 };
	const size_t counters = sizeof(all) / sizeof(*all);

	go_to(walker->home);
	memory = mmap(NULL, lines * sizeof(*memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	make_cycle(memory);
	go_to(walker->cpu);
	if (period) {
		all[counters - 1] = open_samples();
		ring = mmap(NULL, (RING_PAGES + 1) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, all[counters - 1], 0);
		if (ring == MAP_FAILED)
			fail("mapping the samples");
	}
	position = follow(memory, lines);
	pthread_barrier_wait(&together);
	enable(all, counters);
	begin = now();
	position = follow(position, lines * rounds);
	end = now();
	disable(all, counters);
	snprintf(walker->said, sizeof(walker->said),
		 "tid %d ns %" PRIu64 " busy_ns %" PRIu64 " misses %" PRIu64 " user_instructions %" PRIu64 " local %" PRIu64
		 " remote %" PRIu64 " generic_misses %" PRIu64 " generic_instructions %" PRIu64
		 " generic_remote %" PRIu64,
		 gettid(), end - begin, count(busy), count(misses), count(user), count(local), count(remote),
		 count(generic), count(instructions), count(node));
	if (ring)
		tell_samples(walker, ring, memory, begin, end);
	snprintf(walker->said + strlen(walker->said), sizeof(walker->said) - strlen(walker->said),
		 " life_misses %" PRIu64 " life_user_instructions %" PRIu64, count(life_misses),
		 count(life_user));
	return (void *)(uintptr_t)(position == NULL); /* never, but the walk must not be left out */
}

int main(int arguments, char **argument)
{
	int threads = (arguments - 4) / 2, t;
	struct walker *walkers = calloc(threads, sizeof(*walkers));

	lines = strtoul(argument[1], NULL, 0);
	rounds = strtoul(argument[2], NULL, 0);
	period = strtoul(argument[3], NULL, 0);
	find_lab();
	pthread_barrier_init(&together, NULL, threads);
	for (t = 0; t < threads; t++) {
		walkers[t].cpu = atoi(argument[4 + 2 * t]);
		walkers[t].home = atoi(argument[5 + 2 * t]);
		if (pthread_create(&walkers[t].thread, NULL, walk, &walkers[t]))
			fail("pthread_create");
	}
	for (t = 0; t < threads; t++) {
		pthread_join(walkers[t].thread, NULL);
		puts(walkers[t].said);
	}
	return 0;
}
