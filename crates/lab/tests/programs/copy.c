/*
 * Has the kernel copy a file out of the page cache, and says what perf counted: the guest's side of kernel.rs.
 *
 *   copy PAGES ROUNDS CPU HOME
 *
 * It writes a file of so many pages of 4 KiB while on the CPU HOME, so that the page cache has them on HOME's node, goes
 * to CPU, and reads all of it ROUNDS times, page by page into one and the same buffer. Prints `name value` pairs: what was
 * counted meanwhile.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "counts.h"

#define PAGE 4096

static char buffer[PAGE] __attribute__((aligned(PAGE)));

static void read_all(int file, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		if (pread(file, buffer, PAGE, page * PAGE) != PAGE)
			fail("reading the file");
}

int main(int arguments, char **argument)
{
	size_t pages, rounds;
	uint64_t begin, end;
	int file, counters[5];

	if (arguments != 5)
		return 2;
	pages = strtoul(argument[1], NULL, 0);
	rounds = strtoul(argument[2], NULL, 0);
	find_lab();
	counters[0] = open_lab("llc_miss");
	counters[1] = open_lab("dram_local");
	counters[2] = open_lab("dram_remote");
	counters[3] = open_lab("accesses");
	counters[4] = open_lab("instructions");
	file = memfd_create("copied", 0);
	if (file < 0)
		fail("memfd_create");
	go_to(atoi(argument[4]));
	for (size_t page = 0; page < pages; page++)
		if (write(file, buffer, PAGE) != PAGE)
			fail("writing the file");
	go_to(atoi(argument[3]));
	read_all(file, pages);
	enable(counters, 5);
	begin = now();
	for (size_t round = 0; round < rounds; round++)
		read_all(file, pages);
	end = now();
	disable(counters, 5);
	printf("ns %" PRIu64 " misses %" PRIu64 " local %" PRIu64 " remote %" PRIu64 " accesses %" PRIu64
	       " instructions %" PRIu64 "\n",
	       end - begin, count(counters[0]), count(counters[1]), count(counters[2]), count(counters[3]),
	       count(counters[4]));
	return 0;
}
