/* memory.c - memory of its own and shared: patterns, memfd, POSIX and System V */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 64 MB, and pages that are special ------------------------------------------------------ */

enum { WORDS = (64 << 20) / 8, PAGE = 4096 };
static uint64_t *words;
static unsigned char *guarded, *heap;

static uint64_t word(uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u;

	x ^= x >> 29;
	/* The last quarter compresses well, like most memory. */
	return at < WORDS / 4 * 3 ? x * 0xbf58476d1ce4e5b9u : at >> 9;
}

static void memory_set_up(struct check *check)
{
	words = mmap(NULL, (size_t)WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	guarded = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	heap = malloc(300000);
	if (!must(check, words != MAP_FAILED && guarded != MAP_FAILED && heap, "memory"))
		return;
	for (uint64_t i = 0; i < WORDS; i++)
		words[i] = word(i);
	pattern_fill(guarded, 4 * PAGE, 41, 0);
	pattern_fill(heap, 300000, 42, 0);
	must(check,
		mprotect(guarded + PAGE, PAGE, PROT_READ) == 0 &&
			mprotect(guarded + 2 * PAGE, PAGE, PROT_NONE) == 0,
		"mprotect");
}

/* Writing there ends a child by SIGSEGV. */
static bool is_guarded(unsigned char *at)
{
	pid_t child = child_new();

	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile unsigned char *)at = 0;
		_exit(0);
	}
	return child_is_over(child, SIGSEGV) || child_is_over(child, SIGSEGV | 0x80);
}

static void memory_verify(struct check *check)
{
	uint64_t wrong = 0;

	/* One word in each 1000 is written anew at each question, with its own value: the page is
	 * dirty, not changed. */
	for (uint64_t i = 0; i < WORDS; i++)
		wrong += words[i] != word(i);
	for (uint64_t i = check->asked % 1000; i < WORDS; i += 1000)
		((volatile uint64_t *)words)[i] = word(i);
	must(check, wrong == 0, "%lu of %d words are wrong", (unsigned long)wrong, WORDS);
	must(check, pattern_is(guarded, 2 * PAGE, 41, 0), "pages before the guard");
	must(check, pattern_is(guarded + 3 * PAGE, PAGE, 41, 3 * PAGE), "page behind the guard");
	must(check, is_guarded(guarded + PAGE), "a read-only page can be written");
	must(check, is_guarded(guarded + 2 * PAGE), "a page without access can be written");
	must(check, pattern_is(heap, 300000, 42, 0), "heap");
}

const struct kind kind_memory = { "memory", memory_set_up, memory_verify };

/* ---- memfd ---------------------------------------------------------------------------------- */

enum { FILE_BYTES = 200000, SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };
static int open_file, sealed;
static unsigned char *file_map, *sealed_map;

static int memfd_filled(struct check *check, const char *name, uint64_t seed)
{
	static unsigned char bytes[FILE_BYTES];
	int fd = memfd_create(name, MFD_ALLOW_SEALING | MFD_CLOEXEC);

	pattern_fill(bytes, FILE_BYTES, seed, 0);
	must(check, fd >= 0 && write(fd, bytes, FILE_BYTES) == FILE_BYTES, "memfd");
	return fd;
}

static void memfd_set_up(struct check *check)
{
	open_file = memfd_filled(check, "open", 43);
	sealed = memfd_filled(check, "sealed", 44);
	must(check, fcntl(sealed, F_ADD_SEALS, SEALS) == 0, "seal");
	file_map = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, open_file, 0);
	sealed_map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, sealed, 0);
	must(check, file_map != MAP_FAILED && sealed_map != MAP_FAILED, "mmap");
}

static void memfd_verify(struct check *check)
{
	char link[64] = "", path[64];
	unsigned value = 0;

	must(check, pattern_is(file_map + 4, FILE_BYTES - 4, 43, 4), "content");
	must(check, pattern_is(sealed_map, FILE_BYTES, 44, 0), "content of the sealed one");
	must(check, fcntl(sealed, F_GET_SEALS) == SEALS, "seals: %#x",
		(unsigned)fcntl(sealed, F_GET_SEALS));
	must(check, pwrite(sealed, "x", 1, 0) < 0 && errno == EPERM,
		"the sealed one was written to");
	errno = 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", sealed);
	must(check,
		readlink(path, link, sizeof link - 1) > 0 &&
			strncmp(link, "/memfd:sealed", 13) == 0,
		"name: %s", link);
	value = check->asked + 1;
	memcpy(file_map, &value, sizeof value);
	must(check,
		pread(open_file, &value, sizeof value, 0) == sizeof value &&
			value == check->asked + 1,
		"file and map differ");
}

const struct kind kind_memfd = { "memfd", memfd_set_up, memfd_verify };

/* ---- shared with a child: anonymous, POSIX, an unlinked one --------------------------------- */

enum { SEGMENTS = 3, SEGMENT_BYTES = 100000 };
struct segment {
	volatile unsigned question, answer;
	unsigned char bytes[SEGMENT_BYTES];
};
static struct segment *segments[SEGMENTS];

/* The child adds one to whatever it is asked, in each segment. */
static void answer_for_ever(void)
{
	for (;; usleep(1000))
		for (int i = 0; i < SEGMENTS; i++)
			if (pattern_is(segments[i]->bytes, 64, 45 + (unsigned)i, 0))
				segments[i]->answer = segments[i]->question + 1;
}

static void *shm_map(struct check *check, const char *name, bool remove)
{
	int fd = shm_open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	void *map;

	must(check, fd >= 0 && ftruncate(fd, sizeof(struct segment)) == 0, "shm_open");
	map = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (remove)
		shm_unlink(name);
	return map;
}

static void shared_set_up(struct check *check)
{
	segments[0] = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	segments[1] = shm_map(check, "/states-checks", false);
	segments[2] = shm_map(check, "/states-checks-removed", true);
	for (int i = 0; i < SEGMENTS; i++)
		if (must(check, segments[i] != MAP_FAILED, "mmap"))
			pattern_fill(segments[i]->bytes, SEGMENT_BYTES, 45 + (unsigned)i, 0);
	if (!check->why[0] && child_new() == 0)
		answer_for_ever();
}

static void shared_verify(struct check *check)
{
	struct stat info;

	for (int i = 0; i < SEGMENTS; i++) {
		unsigned question = check->asked * 10 + (unsigned)i + 1000;

		must(check, pattern_is(segments[i]->bytes, SEGMENT_BYTES, 45 + (unsigned)i, 0),
			"content of segment %d", i);
		segments[i]->question = question;
		for (int tries = 0; segments[i]->answer != question + 1 && tries < 10000; tries++)
			usleep(1000);
		must(check, segments[i]->answer == question + 1,
			"segment %d is not shared any more", i);
	}
	must(check,
		stat("/dev/shm/states-checks", &info) == 0 &&
			info.st_size == sizeof(struct segment),
		"its name in /dev/shm");
	must(check, access("/dev/shm/states-checks-removed", F_OK) < 0, "the removed name is back");
	errno = 0;
}

const struct kind kind_shared = { "shared", shared_set_up, shared_verify };

/* ---- System V ------------------------------------------------------------------------------- */

enum { MESSAGES = 3 };
struct message {
	long type;
	char text[32];
};
static int segment_id, queue_id, semaphores_id;
static unsigned char *attached;

static void message_send(struct check *check, unsigned number)
{
	struct message message = { .type = 1 + number % 2 };

	snprintf(message.text, sizeof message.text, "message %u", number);
	must(check, msgsnd(queue_id, &message, sizeof message.text, 0) == 0, "msgsnd");
}

static void sysv_set_up(struct check *check)
{
	segment_id = shmget(0x5a5a01, 100000, IPC_CREAT | 0600);
	queue_id = msgget(0x5a5a02, IPC_CREAT | 0600);
	semaphores_id = semget(0x5a5a03, 2, IPC_CREAT | 0600);
	if (!must(check, segment_id >= 0 && queue_id >= 0 && semaphores_id >= 0,
		    "System V objects"))
		return;
	attached = shmat(segment_id, NULL, 0);
	if (must(check, attached != (void *)-1, "shmat"))
		pattern_fill(attached, 100000, 48, 0);
	for (unsigned i = 0; i < MESSAGES; i++)
		message_send(check, i);
	must(check,
		semctl(semaphores_id, 0, SETVAL, 17) == 0 &&
			semctl(semaphores_id, 1, SETVAL, 4) == 0,
		"semctl");
}

static void sysv_verify(struct check *check)
{
	struct message message;
	struct msqid_ds queue;
	char want[32];

	must(check, pattern_is(attached, 100000, 48, 0), "segment");
	must(check,
		shmget(0x5a5a01, 0, 0) == segment_id && msgget(0x5a5a02, 0) == queue_id &&
			semget(0x5a5a03, 0, 0) == semaphores_id,
		"ids have changed");
	must(check,
		semctl(semaphores_id, 0, GETVAL) == 17 + (int)check->asked &&
			semctl(semaphores_id, 1, GETVAL) == 4,
		"semaphore: %d", semctl(semaphores_id, 0, GETVAL));
	must(check, semop(semaphores_id, &(struct sembuf){ .sem_op = 1 }, 1) == 0, "semop");
	must(check, msgctl(queue_id, IPC_STAT, &queue) == 0 && queue.msg_qnum == MESSAGES,
		"%lu messages in the queue", queue.msg_qnum);
	snprintf(want, sizeof want, "message %u", check->asked);
	must(check,
		msgrcv(queue_id, &message, sizeof message.text, 0, IPC_NOWAIT) ==
				sizeof message.text &&
			strcmp(message.text, want) == 0,
		"message: '%s', not '%s'", message.text, want);
	message_send(check, check->asked + MESSAGES);
}

const struct kind kind_sysv = { "sysv", sysv_set_up, sysv_verify };
