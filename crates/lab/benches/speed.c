/* What the benchmark `speed` runs in the lab and under cachegrind: programs whose accesses are most of their work.
 *
 *   speed stream TIMES   adds up 16 MiB, word by word
 *   speed chase TIMES    follows a random cycle through the lines of 16 MiB
 *   speed sort TIMES     sorts 32 Ki numbers (256 KiB)
 *   speed copy TIMES     has the kernel copy a file of 4 MiB out of the page cache, page by page
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 16 << 20, LINES = BYTES / 64, NUMBERS = 32 << 10, FILE_BYTES = 4 << 20, PAGE = 4096 };

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static uint64_t stream(long times)
{
	uint64_t *words = malloc(BYTES), sum = 0;
	for (size_t i = 0; i < BYTES / 8; i++)
		words[i] = i;
	for (long t = 0; t < times; t++) {
		for (size_t i = 0; i < BYTES / 8; i++)
			sum += words[i];
		/* So that no pass is left out. */
		__asm__ volatile("" ::: "memory");
	}
	return sum;
}

static uint64_t chase(long times)
{
	char *lines = aligned_alloc(64, BYTES);
	uint32_t *order = malloc(LINES * sizeof(*order));
	for (uint32_t i = 0; i < LINES; i++)
		order[i] = i;
	for (uint32_t i = LINES - 1; i > 0; i--) {
		uint32_t other = next_random() % (i + 1), kept = order[i];
		order[i] = order[other];
		order[other] = kept;
	}
	for (uint32_t i = 0; i < LINES; i++)
		*(char **)(lines + 64 * (size_t)order[i]) = lines + 64 * (size_t)order[(i + 1) % LINES];
	char *at = lines;
	for (long hop = 0; hop < times * LINES; hop++)
		at = *(char **)at;
	return at - lines;
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return (a > b) - (a < b);
}

static uint64_t sort(long times)
{
	static uint64_t numbers[NUMBERS];
	uint64_t sum = 0;
	for (long t = 0; t < times; t++) {
		for (size_t i = 0; i < NUMBERS; i++)
			numbers[i] = next_random();
		qsort(numbers, NUMBERS, sizeof(numbers[0]), compare);
		sum += numbers[t % NUMBERS];
	}
	return sum;
}

static uint64_t copy(long times)
{
	static char page[PAGE];
	int file = memfd_create("copied", 0);
	uint64_t copied = 0;
	for (size_t at = 0; at < FILE_BYTES; at += PAGE)
		copied += write(file, page, PAGE);
	for (long t = 0; t < times; t++)
		for (size_t at = 0; at < FILE_BYTES; at += PAGE)
			copied += pread(file, page, PAGE, at);
	return copied;
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		uint64_t (*run)(long);
	} programs[] = { { "stream", stream }, { "chase", chase }, { "sort", sort }, { "copy", copy } };
	for (size_t i = 0; count == 3 && i < sizeof(programs) / sizeof(programs[0]); i++) {
		if (strcmp(words[1], programs[i].name) == 0) {
			printf("%llu\n", (unsigned long long)programs[i].run(atol(words[2])));
			return 0;
		}
	}
	fprintf(stderr, "speed: stream, chase, sort or copy, and how many times\n");
	return 2;
}
