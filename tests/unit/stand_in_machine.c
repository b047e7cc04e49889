/* stand_in_machine.c - plays QEMU for the tests of memory: RAM, and somebody who writes
 *
 *   stand_in_machine BYTES [nofaults]     with BOX_RAM_FD and LD_PRELOAD as QEMU has them
 *
 * nofaults: userfaultfd is refused, as by old kernels. It is told what to do on fd 3, a word and
 * numbers, and answers each with a number:
 *
 *   fill SEED FIRST COUNT STEP   every STEPth page from FIRST, COUNT of them, from SEED
 *   zero FIRST COUNT             zeros are written
 *   drop FIRST COUNT             given back, as a balloon does
 *   write SEED                   a thread that writes random pages runs
 *   stop / go                    the threads stand still / go on
 *   disk                         a thread that reads the file on fd 4 directly into the RAM runs
 *   hash                         of the whole RAM
 *   private                      kB of anonymous memory in the RAM */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, DISK_BYTES = 8 << 20, READ_BYTES = 1 << 20 };

static char *ram;
static uint64_t ram_bytes;
static pthread_mutex_t runs = PTHREAD_MUTEX_INITIALIZER; /* held while the machine stands still */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void fill_page(uint64_t page, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + page + 1;
	uint64_t *words = (uint64_t *)(ram + page * PAGE);

	for (size_t i = 0; i < PAGE / 8; i++)
		words[i] = next_random(&state);
}

static void *write_pages(void *arg)
{
	uint64_t state = (uint64_t)(uintptr_t)arg;

	for (;;) {
		pthread_mutex_lock(&runs);
		for (int i = 0; i < 16; i++) {
			uint64_t page = next_random(&state) % (ram_bytes / PAGE);

			fill_page(page, next_random(&state));
		}
		pthread_mutex_unlock(&runs);
		usleep(50);
	}
	return NULL;
}

/* Reads go to the second half of the RAM; a machine stands still when none is on its way. */
static void *read_disk(void *arg)
{
	uint64_t state = 77;

	for (;;) {
		uint64_t half = ram_bytes / 2;
		uint64_t to = half + next_random(&state) % ((half - READ_BYTES) / PAGE) * PAGE;
		uint64_t from = next_random(&state) % ((DISK_BYTES - READ_BYTES) / PAGE) * PAGE;

		pthread_mutex_lock(&runs);
		if (pread(4, ram + to, READ_BYTES, (off_t)from) != READ_BYTES)
			abort();
		pthread_mutex_unlock(&runs);
		usleep(50);
	}
	return arg;
}

static uint64_t hash_all(void)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (uint64_t i = 0; i < ram_bytes / 8; i++)
		hash = (hash ^ ((uint64_t *)ram)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t private_kb(void)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	unsigned long from, to, kb, sum = 0;
	int inside = 0;

	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from >= (uintptr_t)ram && to <= (uintptr_t)ram + ram_bytes;
		else if (inside && sscanf(line, "Anonymous: %lu", &kb) == 1)
			sum += kb;
	}
	if (file)
		fclose(file);
	return sum;
}

static uint64_t obey(const char *text)
{
	unsigned long seed, first, count, step;
	static int stopped;
	pthread_t thread;

	if (sscanf(text, "fill %lu %lu %lu %lu", &seed, &first, &count, &step) == 4)
		for (uint64_t i = 0; i < count; i++)
			fill_page(first + i * step, seed);
	else if (sscanf(text, "zero %lu %lu", &first, &count) == 2)
		memset(ram + first * PAGE, 0, count * PAGE);
	else if (sscanf(text, "drop %lu %lu", &first, &count) == 2)
		return (uint64_t)madvise(ram + first * PAGE, count * PAGE, MADV_DONTNEED);
	else if (sscanf(text, "write %lu", &seed) == 1)
		pthread_create(&thread, NULL, write_pages, (void *)(uintptr_t)seed);
	else if (!strcmp(text, "disk"))
		pthread_create(&thread, NULL, read_disk, NULL);
	else if (!strcmp(text, "stop") && !stopped++)
		pthread_mutex_lock(&runs);
	else if (!strcmp(text, "go") && stopped--)
		pthread_mutex_unlock(&runs);
	else if (!strcmp(text, "hash"))
		return hash_all();
	else if (!strcmp(text, "private"))
		return private_kb();
	return 0;
}

static void refuse_userfaultfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		exit(3);
}

int main(int argc, char **argv)
{
	int file = memfd_create("machine", MFD_CLOEXEC);

	if (argc < 2 || getenv("LD_PRELOAD") || getenv("BOX_RAM_FD"))
		return 2;
	ram_bytes = strtoull(argv[1], NULL, 10);
	if (ftruncate(file, (off_t)ram_bytes) < 0)
		return 2;
	ram = mmap(NULL, ram_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (ram == MAP_FAILED)
		return 2;
	if (argc > 2)
		refuse_userfaultfd();
	for (;;) {
		char text[128] = "";
		uint64_t answer = 0;

		if (recv(3, text, sizeof text - 1, 0) <= 0)
			pause(); /* as QEMU, it outlives whoever started it */
		answer = strcmp(text, "ready") ? obey(text) : 0;
		if (send(3, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
			pause();
	}
}
