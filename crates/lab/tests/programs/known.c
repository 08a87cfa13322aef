/*
 * Accesses that are known one by one, for tests of recording.
 *
 *   known ROUNDS LINES    two threads; each ROUNDS times: the first reads LINES cache lines of an
 *                         array and wakes the second, which writes them, wakes the first, and so on
 *
 * Prints the array's address. Whoever is not on turn sleeps in a futex; the loops are written in
 * assembly, so that nothing else touches the array.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE 64

static uint64_t rounds, lines;
static char *array;
static uint32_t turn; /* the thread on turn, 0 or 1 */

static void await_turn(uint32_t own)
{
	while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != own)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !own, NULL, NULL, 0);
}

static void pass_turn(uint32_t own)
{
	__atomic_store_n(&turn, !own, __ATOMIC_RELEASE);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Four instructions a line, of which the first is the access. */
static void read_lines(void)
{
	char *at = array;
	uint64_t left = lines;

	asm volatile("1: mov (%0), %%eax; add %2, %0; dec %1; jnz 1b"
		     : "+r"(at), "+r"(left) : "i"(LINE) : "eax", "memory", "cc");
}

static void write_lines(void)
{
	char *at = array;
	uint64_t left = lines;

	asm volatile("1: movq %%rax, (%0); add %2, %0; dec %1; jnz 1b"
		     : "+r"(at), "+r"(left) : "i"(LINE) : "memory", "cc");
}

static void *play(void *argument)
{
	uint32_t own = (uintptr_t)argument;
	uint64_t round;

	prctl(PR_SET_NAME, own ? "writer" : "reader");
	for (round = 0; round < rounds; round++) {
		await_turn(own);
		if (own)
			write_lines();
		else
			read_lines();
		pass_turn(own);
	}
	return NULL;
}

int main(int arguments, char **argument)
{
	pthread_t threads[2];
	uintptr_t t;

	if (arguments != 3)
		return 2;
	rounds = strtoull(argument[1], NULL, 0);
	lines = strtoull(argument[2], NULL, 0);
	array = mmap(NULL, lines * LINE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (array == MAP_FAILED)
		return 1;
	for (t = 0; t < 2; t++)
		if (pthread_create(&threads[t], NULL, play, (void *)t))
			return 1;
	for (t = 0; t < 2; t++)
		pthread_join(threads[t], NULL);
	printf("%" PRIuPTR "\n", (uintptr_t)array);
	return 0;
}
