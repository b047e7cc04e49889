/* profile.c - what a profile may do
 *
 * standard: the capabilities usual for containers, no new namespaces, no mounts; what a box keeps
 * is enough for apt, sudo, useradd, tmux, debuggers. nested: every capability within the box's own
 * user namespace, so that containers run inside.
 *
 * The user namespace is the wall; the filter makes the kernel behind it smaller. io_uring is
 * answered "no such call" in both: processes that use it cannot be checkpointed, and libuv falls
 * back to epoll. */
#include "engine/ns/ns_internal.h"
#include "sys/caps.h"
#include "sys/seccomp.h"
#include <asm/ioctls.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/socket.h>

#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#endif

const struct hidden_path hidden_paths[] = {
	{ "proc/kallsyms", false },
	{ "proc/kcore", false },
	{ "proc/keys", false },
	{ "proc/timer_list", false },
	{ "proc/sched_debug", false },
	{ "proc/interrupts", false },
	{ "proc/cmdline", false }, /* of the machine's kernel: it may contain addresses and keys */
	{ "proc/latency_stats", false },
	{ "proc/acpi", true },
	{ "proc/scsi", true },
	{ "sys/firmware", true },
	{ NULL, false },
};

static const int standard_capabilities[] = {
	CAP_CHOWN,
	CAP_DAC_OVERRIDE,
	CAP_FOWNER,
	CAP_FSETID,
	CAP_KILL,
	CAP_SETGID,
	CAP_SETUID,
	CAP_SETPCAP,
	CAP_NET_BIND_SERVICE,
	CAP_NET_RAW,
	CAP_SYS_CHROOT,
	CAP_MKNOD,
	CAP_AUDIT_WRITE,
	CAP_SETFCAP,
};

/* Refused in every profile. */
static const struct {
	int call;
	int answer;
} denied[] = {
	{ SCMP_SYS(io_uring_setup), ENOSYS },
	{ SCMP_SYS(io_uring_enter), ENOSYS },
	{ SCMP_SYS(io_uring_register), ENOSYS },
	{ SCMP_SYS(userfaultfd), EPERM },
	{ SCMP_SYS(bpf), EPERM },
	{ SCMP_SYS(perf_event_open), EPERM },
	{ SCMP_SYS(kexec_load), EPERM },
	{ SCMP_SYS(kexec_file_load), EPERM },
	{ SCMP_SYS(init_module), EPERM },
	{ SCMP_SYS(finit_module), EPERM },
	{ SCMP_SYS(delete_module), EPERM },
	{ SCMP_SYS(open_by_handle_at), EPERM },
	/* Keyrings are shared with the host; container runtimes continue without them only on
	 * ENOSYS. */
	{ SCMP_SYS(add_key), ENOSYS },
	{ SCMP_SYS(request_key), ENOSYS },
	{ SCMP_SYS(keyctl), ENOSYS },
	{ SCMP_SYS(swapon), EPERM },
	{ SCMP_SYS(swapoff), EPERM },
	{ SCMP_SYS(reboot), EPERM },
	{ SCMP_SYS(acct), EPERM },
	{ SCMP_SYS(settimeofday), EPERM },
	{ SCMP_SYS(clock_settime), EPERM },
	{ SCMP_SYS(quotactl), EPERM },
	{ SCMP_SYS(quotactl_fd), EPERM },
	{ SCMP_SYS(iopl), EPERM },
	{ SCMP_SYS(ioperm), EPERM },
	{ SCMP_SYS(migrate_pages), EPERM },
	{ SCMP_SYS(move_pages), EPERM },
	{ SCMP_SYS(vmsplice), EPERM },
	{ SCMP_SYS(syslog), EPERM },
	{ SCMP_SYS(fanotify_init), EPERM },
	{ SCMP_SYS(lookup_dcookie), EPERM },
	{ SCMP_SYS(uselib), EPERM },
	{ SCMP_SYS(vhangup), EPERM },
};

/* adjtimex only reads when its modes are 0, but those are in memory; ntp tools cope with EPERM. */
static const int denied_time[] = { SCMP_SYS(adjtimex), SCMP_SYS(clock_adjtime) };

/* Refused in standard: the mount API and everything that enters or makes a namespace. */
static const int denied_standard[] = {
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(pivot_root),
	SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig),
	SCMP_SYS(fsmount),
	SCMP_SYS(fspick),
	SCMP_SYS(move_mount),
	SCMP_SYS(open_tree),
	__NR_open_tree_attr,
	SCMP_SYS(setns),
	SCMP_SYS(mount_setattr),
};

static const uint64_t namespace_flags[] = {
	CLONE_NEWNS,
	CLONE_NEWCGROUP,
	CLONE_NEWUTS,
	CLONE_NEWIPC,
	CLONE_NEWUSER,
	CLONE_NEWPID,
	CLONE_NEWNET,
};

/* Both insert characters into a terminal as if they were typed. */
static const uint64_t denied_ioctls[] = { TIOCSTI, TIOCLINUX };

/* Commands of btrfs, where disks, volumes and the storage of nested containers lie: a subvolume
 * made there escapes every quota, and nobody removes it. Numbers are a type and a number in it, as
 * in _IOC; those of btrfs are refused as on any other file system ("no such ioctl"), except the
 * ones it shares with others: reflinks (FICLONE, FICLONERANGE, FIDEDUPERANGE). */
enum {
	BTRFS_TYPE = 0x94,
	IOCTL_TYPE_SHIFT = 8,
	IOCTL_NUMBERS = 256,
};
static const unsigned allowed_btrfs[] = { 9, 13, 54 };

/* A network namespace does not confine the other families (vsock reaches the machine's host), and
 * asking for one may load a kernel module. AF_PACKET is missing because its rings and queues are
 * gigabytes of memory that no cgroup counts, and IP reaches everything in a box's network. */
static const int allowed_families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };

/* Addresses and routes, sockets (ss), device events (udev), and generic netlink. The others talk to
 * parts of the kernel that a box has nothing to do with or, like usersock, only hold memory that no
 * cgroup counts. */
static const int allowed_netlinks[] = { NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT,
	NETLINK_GENERIC };

enum { RULES_MAX = 256 };

struct rules {
	struct seccomp_rule list[RULES_MAX];
	size_t count;
};

static void add(struct rules *rules, struct seccomp_rule rule)
{
	if (rules->count == RULES_MAX)
		abort();
	rules->list[rules->count++] = rule;
}

static void add_families(struct rules *rules)
{
	for (int family = 0; family < AF_MAX; family++) {
		bool allowed = false;

		for (size_t i = 0; i < ARRAY_LEN(allowed_families); i++)
			allowed = allowed || allowed_families[i] == family;
		if (!allowed)
			add(rules, (struct seccomp_rule){ .call = SCMP_SYS(socket),
					   .answer = EAFNOSUPPORT,
					   .masked = true,
					   .arg = 0,
					   .mask = 0xffffffff,
					   .value = (uint64_t)family });
	}
}

static bool has_allowed(unsigned first, unsigned count)
{
	for (size_t i = 0; i < ARRAY_LEN(allowed_btrfs); i++)
		if (allowed_btrfs[i] >= first && allowed_btrfs[i] < first + count)
			return true;
	return false;
}

/* Covers count numbers from first on, a power of two: one rule where none of them is allowed, else
 * each half by itself. Two dozen comparisons instead of 253. */
static void add_btrfs(struct rules *rules, unsigned first, unsigned count)
{
	if (!has_allowed(first, count)) {
		add(rules, (struct seccomp_rule){ .call = SCMP_SYS(ioctl),
				   .answer = ENOTTY,
				   .masked = true,
				   .arg = 1,
				   .mask = 0xff << IOCTL_TYPE_SHIFT |
					   ((IOCTL_NUMBERS - 1) & ~(count - 1)),
				   .value = BTRFS_TYPE << IOCTL_TYPE_SHIFT | first });
	} else if (count > 1) {
		add_btrfs(rules, first, count / 2);
		add_btrfs(rules, first + count / 2, count / 2);
	}
}

static bool is_allowed_netlink(enum profile profile, int protocol)
{
	for (size_t i = 0; i < ARRAY_LEN(allowed_netlinks); i++)
		if (allowed_netlinks[i] == protocol)
			return true;
	/* Containers in the box have their own rules. */
	return profile == PROFILE_NESTED && protocol == NETLINK_NETFILTER;
}

static void add_netlinks(struct rules *rules, enum profile profile)
{
	for (int protocol = 0; protocol < MAX_LINKS; protocol++)
		if (!is_allowed_netlink(profile, protocol))
			add(rules, (struct seccomp_rule){ .call = SCMP_SYS(socket),
					   .answer = EPROTONOSUPPORT,
					   .masked = true,
					   .arg = 0,
					   .mask = 0xffffffff,
					   .value = AF_NETLINK,
					   .also = true,
					   .also_arg = 2,
					   .also_value = (uint32_t)protocol });
}

static void add_common(struct rules *rules, enum profile profile)
{
	add_families(rules);
	add_netlinks(rules, profile);
	add_btrfs(rules, 0, IOCTL_NUMBERS);
	for (size_t i = 0; i < ARRAY_LEN(denied); i++)
		add(rules, (struct seccomp_rule){
				   .call = denied[i].call, .answer = denied[i].answer });
	for (size_t i = 0; i < ARRAY_LEN(denied_time); i++)
		add(rules, (struct seccomp_rule){ .call = denied_time[i], .answer = EPERM });
	for (size_t i = 0; i < ARRAY_LEN(denied_ioctls); i++)
		add(rules, (struct seccomp_rule){ .call = SCMP_SYS(ioctl),
				   .answer = EPERM,
				   .masked = true,
				   .arg = 1,
				   .mask = 0xffffffff,
				   .value = denied_ioctls[i] });
}

static void add_standard(struct rules *rules)
{
	for (size_t i = 0; i < ARRAY_LEN(denied_standard); i++)
		add(rules, (struct seccomp_rule){ .call = denied_standard[i], .answer = EPERM });
	for (size_t i = 0; i < ARRAY_LEN(namespace_flags); i++) {
		struct seccomp_rule rule = {
			.call = SCMP_SYS(clone),
			.answer = EPERM,
			.masked = true,
			.mask = namespace_flags[i],
			.value = namespace_flags[i],
		};

		add(rules, rule);
		rule.call = SCMP_SYS(unshare);
		add(rules, rule);
	}
	add(rules, (struct seccomp_rule){ .call = SCMP_SYS(unshare),
			   .answer = EPERM,
			   .masked = true,
			   .mask = CLONE_NEWTIME,
			   .value = CLONE_NEWTIME });
	/* The flags of clone3 are in memory, where the filter cannot see them: libc falls back to
	 * clone. */
	add(rules, (struct seccomp_rule){ .call = SCMP_SYS(clone3), .answer = ENOSYS });
}

uint64_t profile_capabilities(enum profile profile)
{
	uint64_t bits = 0;

	if (profile == PROFILE_NESTED)
		return CAPS_ALL;
	for (size_t i = 0; i < ARRAY_LEN(standard_capabilities); i++)
		bits |= CAPS_BIT(standard_capabilities[i]);
	return bits;
}

int profile_filter_new(enum profile profile, struct seccomp_program **ret, struct err *err)
{
	struct rules rules = { .count = 0 };

	add_common(&rules, profile);
	if (profile == PROFILE_STANDARD)
		add_standard(&rules);
	return seccomp_program_new(rules.list, rules.count, ret, err);
}
