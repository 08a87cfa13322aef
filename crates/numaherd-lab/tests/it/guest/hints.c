/*
 * A pinned map of the kind that scx_layered keeps its hints in, without the scheduler; for the test of hints.
 *
 *   hints make PATH      makes the map and pins it
 *   hints of PATH TID    prints the hint of a thread, or "none"
 *   hints wait PATH TID  waits until a thread prefers a place, for at most a minute
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL /* since Linux 6.9 */
#endif

static int bpf(int what, union bpf_attr attribute)
{
	int answer = syscall(SYS_bpf, what, &attribute, sizeof attribute);

	if (answer < 0 && errno != ENOENT) {
		perror("bpf");
		exit(1);
	}
	return answer;
}

/* The types of a key and a value, without which the kernel makes no map that keeps values with tasks. */
static int types(void)
{
	enum { INT = BTF_KIND_INT << 24, ARRAY = BTF_KIND_ARRAY << 24 };
	static const struct types {
		struct btf_header header;
		struct btf_type pidfd;
		uint32_t of_pidfd;
		struct btf_type word;
		uint32_t of_word;
		struct btf_type value;
		struct btf_array of_value;
		char names[16];
	} all = {
		.header = {
			.magic = BTF_MAGIC,
			.version = BTF_VERSION,
			.hdr_len = sizeof all.header,
			.type_len = offsetof(struct types, names) - sizeof all.header,
			.str_off = offsetof(struct types, names) - sizeof all.header,
			.str_len = sizeof all.names,
		},
		.pidfd = { .name_off = 1, .info = INT, .size = 4 },
		.of_pidfd = BTF_INT_SIGNED << 24 | 32,
		.word = { .name_off = 7, .info = INT, .size = 8 },
		.of_word = 64,
		.value = { .info = ARRAY },
		.of_value = { .type = 2, .index_type = 1, .nelems = 4 },
		.names = "\0pidfd\0word",
	};

	return bpf(BPF_BTF_LOAD, (union bpf_attr){ .btf = (uintptr_t)&all, .btf_size = sizeof all });
}

/* Whether a thread has a hint, and which. */
static int read_hint(const char *path, const char *tid, uint64_t *hint)
{
	int map = bpf(BPF_OBJ_GET, (union bpf_attr){ .pathname = (uintptr_t)path });
	int task = syscall(SYS_pidfd_open, atoi(tid), PIDFD_THREAD);
	uint64_t value[4] = { 0 };
	union bpf_attr element = { .map_fd = map, .key = (uintptr_t)&task, .value = (uintptr_t)value };
	int has_one = bpf(BPF_MAP_LOOKUP_ELEM, element) == 0;

	*hint = value[0];
	close(task);
	close(map);
	return has_one;
}

int main(int count, char **arguments)
{
	if (count == 3 && !strcmp(arguments[1], "make")) {
		int map = bpf(BPF_MAP_CREATE, (union bpf_attr){
			.map_type = BPF_MAP_TYPE_TASK_STORAGE,
			.map_flags = BPF_F_NO_PREALLOC,
			.key_size = sizeof(int),
			.value_size = 4 * sizeof(uint64_t),
			.btf_fd = types(),
			.btf_key_type_id = 1,
			.btf_value_type_id = 3,
		});

		bpf(BPF_OBJ_PIN, (union bpf_attr){ .pathname = (uintptr_t)arguments[2], .bpf_fd = map });
	} else if (count == 4 && !strcmp(arguments[1], "of")) {
		uint64_t hint;

		if (read_hint(arguments[2], arguments[3], &hint))
			printf("%llu\n", (unsigned long long)hint);
		else
			puts("none");
	} else if (count == 4 && !strcmp(arguments[1], "wait")) {
		uint64_t hint = 0;

		for (int tries = 0; !(read_hint(arguments[2], arguments[3], &hint) && hint); tries++) {
			if (tries == 6000)
				return 1;
			usleep(10000);
		}
	} else {
		fputs("usage: hints make PATH | hints of PATH TID | hints wait PATH TID\n", stderr);
		return 2;
	}
	return 0;
}
