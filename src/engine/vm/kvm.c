/* kvm.c - whether hardware virtualisation really works here
 *
 * A guest of fourteen bytes counts down from twenty million in long mode with paging on, in ring
 * 0. With hardware virtualisation this takes about 13 ms. Where ring 0 is emulated it reaches
 * about a hundred thousand in its 100 ms of CPU time. Both the length and ring 0 matter: a short
 * run would end in time there too, and ring 3 runs natively even where ring 0 does not. It runs
 * in a child, which is ended by an alarm or, failing that, by its parent. */
#include "engine/vm/kvm.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

enum {
	LIMIT_MS = 100, /* of the processor's time */
	PASSED_S = 1,
	CHILD_MS = 3000,
	TSC_NS = 10 * 1000 * 1000,
	MEMORY = 1 << 20,
	LOOPS = 20 * 1000 * 1000,
	/* addresses in the guest's memory */
	TABLES = 0x2000,
	STACK = 0x7000,
	CODE = 0x8000,
	PORT = 0x10,
};

#define say(verdict, is_usable, ...)                                               \
	do {                                                                       \
		(verdict)->usable = (is_usable);                                   \
		snprintf((verdict)->reason, sizeof(verdict)->reason, __VA_ARGS__); \
	} while (0)

#if defined(__x86_64__)

struct guest {
	int kvm, vm, cpu;
	uint8_t *memory;
	struct kvm_run *run;
};

/* Identity-maps the first megabytes by one large page. */
static void write_memory(uint8_t *memory)
{
	static const uint8_t code[] = {
		0x48, 0xff, 0xc9, /* again: dec rcx */
		0x75, 0xfb,	  /* jnz again */
		0x0f, 0x20, 0xd8, /* mov rax, cr3 */
		0x0f, 0x22, 0xd8, /* mov cr3, rax */
		0xe6, PORT,	  /* out PORT, al */
		0xf4,		  /* hlt */
	};
	uint64_t *tables = (uint64_t *)(memory + TABLES);

	tables[0] = (TABLES + 0x1000) | 3;
	tables[512] = (TABLES + 0x2000) | 3;
	tables[1024] = 0x83;
	memcpy(memory + CODE, code, sizeof code);
}

static int make_guest(struct guest *guest)
{
	struct kvm_userspace_memory_region region = { .memory_size = MEMORY };
	int size;

	guest->vm = ioctl(guest->kvm, KVM_CREATE_VM, 0);
	guest->memory =
		mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guest->vm < 0 || guest->memory == MAP_FAILED)
		return -1;
	write_memory(guest->memory);
	region.userspace_addr = (uintptr_t)guest->memory;
	if (ioctl(guest->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return -1;
	guest->cpu = ioctl(guest->vm, KVM_CREATE_VCPU, 0);
	size = ioctl(guest->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (guest->cpu < 0 || size < (int)sizeof *guest->run)
		return -1;
	guest->run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, guest->cpu, 0);
	return guest->run == MAP_FAILED ? -1 : 0;
}

/* Long mode, ring 0, paging on. */
static int set_registers(struct guest *guest)
{
	struct kvm_segment code = {
		.limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1
	};
	struct kvm_segment data = code;
	struct kvm_regs regs = { .rip = CODE, .rflags = 2, .rcx = LOOPS, .rsp = STACK };
	struct kvm_sregs special;

	if (ioctl(guest->cpu, KVM_GET_SREGS, &special) < 0)
		return -1;
	data.type = 3;
	data.selector = 16;
	data.l = 0;
	data.db = 1;
	special.cr3 = TABLES;
	special.cr4 |= 0x20; /* PAE */
	special.cr0 = 0x80050033;
	special.efer = 0x500;
	special.cs = code;
	special.ds = special.es = special.fs = special.gs = special.ss = data;
	if (ioctl(guest->cpu, KVM_SET_SREGS, &special) < 0)
		return -1;
	return ioctl(guest->cpu, KVM_SET_REGS, &regs);
}

static void on_alarm(int number)
{
	(void)number;
}

/* The timer counts CPU time: on a busy machine a guest may have to wait. It repeats, because a
 * signal before the run interrupts nothing. */
static void arm(void)
{
	const struct sigaction action = { .sa_handler = on_alarm };
	const struct itimerval used = { .it_interval = { 0, 1000 },
		.it_value = { 0, LIMIT_MS * 1000 } };
	const struct itimerval passed = { .it_interval = { 0, 1000 }, .it_value = { PASSED_S, 0 } };

	sigaction(SIGPROF, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_PROF, &used, NULL);
	setitimer(ITIMER_REAL, &passed, NULL);
}

static void run_guest(struct guest *guest, struct kvm_verdict *verdict)
{
	struct kvm_regs regs = { 0 };
	int64_t from, us;
	int status, why;

	arm();
	from = clock_mono_us();
	status = ioctl(guest->cpu, KVM_RUN, 0);
	why = errno;
	us = clock_mono_us() - from;
	if (status == 0 && guest->run->exit_reason == KVM_EXIT_IO && guest->run->io.port == PORT) {
		say(verdict, true, "a guest's kernel runs at full speed (%d loops in %.1f ms)",
			LOOPS, (double)us / 1000);
	} else if (status < 0 && why == EINTR && ioctl(guest->cpu, KVM_GET_REGS, &regs) == 0) {
		say(verdict, false,
			"a guest's kernel is emulated: %llu of %d loops in %d ms; this machine is "
			"probably itself a guest",
			(unsigned long long)(LOOPS - regs.rcx), LOOPS, (int)(us / 1000));
	} else if (status < 0) {
		say(verdict, false, "a guest does not run: %s", strerror(why));
	} else {
		say(verdict, false, "a guest ends at once (exit %u)", guest->run->exit_reason);
	}
}

static void probe(struct kvm_verdict *verdict)
{
	struct guest guest = { .kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC) };

	if (guest.kvm < 0)
		say(verdict, false, "/dev/kvm cannot be opened: %s", strerror(errno));
	else if (ioctl(guest.kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
		say(verdict, false, "/dev/kvm speaks another version");
	else if (make_guest(&guest) < 0 || set_registers(&guest) < 0)
		say(verdict, false, "a guest cannot be made: %s", strerror(errno));
	else
		run_guest(&guest, verdict);
}

#else

static void probe(struct kvm_verdict *verdict)
{
	say(verdict, false, "only x86-64 is supported");
}

#endif

static _Noreturn void probe_in_child(int sock)
{
	struct kvm_verdict verdict = { 0 };

	clone_reset_signals();
	probe(&verdict);
	send(sock, &verdict, sizeof verdict, MSG_NOSIGNAL);
	_exit(0);
}

void kvm_probe(struct kvm_verdict *ret)
{
	struct clone_spec how = { .cgroup = -1 };
	struct pollfd p = { .events = POLLIN };
	struct err err = ERR_INIT;
	int pair[2], pidfd, ignored;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		say(ret, false, "it cannot be tried: %s", strerror(errno));
		return;
	}
	pid = clone_process(&how, &pidfd, &err);
	if (pid == 0)
		probe_in_child(pair[1]);
	close(pair[1]);
	say(ret, false, "it cannot be tried: %s", pid < 0 ? err.message : "the trial ended early");
	if (pid > 0) {
		p.fd = pidfd;
		if (poll(&p, 1, CHILD_MS) == 0) {
			procfd_kill(pidfd, SIGKILL, NULL);
			say(ret, false, "a guest hangs");
			poll(&p, 1, CHILD_MS);
		} else if (recv(pair[0], ret, sizeof *ret, MSG_DONTWAIT) == sizeof *ret) {
			ret->reason[sizeof ret->reason - 1] = '\0';
		}
		procfd_reap(pidfd, &ignored);
		close(pidfd);
	}
	close(pair[0]);
}

/* ---- once per boot -------------------------------------------------------------------------- */

static bool read_verdict(const char *path, const char *boot, struct kvm_verdict *ret)
{
	_cleanup_free_ char *text = NULL;
	char of[BOOT_ID_SIZE] = "", word[16] = "";
	int at = 0;

	if (file_read(AT_FDCWD, path, 512, &text, NULL, NULL) < 0 ||
		sscanf(text, "%39s %15s %n", of, word, &at) != 2 || at == 0 ||
		strcmp(of, boot) != 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	say(ret, strcmp(word, "unusable") != 0, "%s", text + at);
	ret->proven = strcmp(word, "proven") == 0;
	return true;
}

void kvm_verdict_get(const char *run, struct kvm_verdict *ret)
{
	_cleanup_free_ char *path = xasprintf("%s/kvm", run);
	char boot[BOOT_ID_SIZE] = "";

	*ret = (struct kvm_verdict){ 0 };
	if (procstat_boot_id(boot, NULL) == 0 && read_verdict(path, boot, ret))
		return;
	kvm_probe(ret);
	kvm_verdict_put(run, ret);
}

void kvm_verdict_put(const char *run, const struct kvm_verdict *verdict)
{
	_cleanup_free_ char *path = xasprintf("%s/kvm", run), *text = NULL;
	const char *word = !verdict->usable ? "unusable" : verdict->proven ? "proven" : "usable";
	char boot[BOOT_ID_SIZE] = "";

	if (procstat_boot_id(boot, NULL) < 0)
		return;
	text = xasprintf("%s %s %s\n", boot, word, verdict->reason);
	/* Should it fail, it is probed again. */
	(void)file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL);
}

/* ---- the TSC -------------------------------------------------------------------------------- */

#if defined(__x86_64__)

static int64_t raw_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static bool has_constant_tsc(void)
{
	unsigned a = 0, b = 0, c = 0, d = 0;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}

/* An interruption between reading the two clocks would falsify the result, so the fastest of a
 * few pairs counts, at both ends. */
static void read_both(uint64_t *ret_tsc, int64_t *ret_ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 16; i++) {
		uint64_t before = __rdtsc();
		int64_t ns = raw_ns();
		uint64_t after = __rdtsc();

		if (after - before < best) {
			best = after - before;
			*ret_tsc = before + best / 2;
			*ret_ns = ns;
		}
	}
}

uint64_t kvm_tsc_khz(void)
{
	const struct timespec span = { .tv_nsec = TSC_NS };
	uint64_t from = 0, to = 0;
	int64_t from_ns = 0, to_ns = 0;

	if (!has_constant_tsc())
		return 0;
	read_both(&from, &from_ns);
	nanosleep(&span, NULL);
	read_both(&to, &to_ns);
	if (to_ns <= from_ns || to <= from)
		return 0;
	return (uint64_t)((double)(to - from) * 1e6 / (double)(to_ns - from_ns));
}

#else

uint64_t kvm_tsc_khz(void)
{
	return 0;
}

#endif
