/* caps.c - see caps.h; uses plain system calls, because a cloned child runs this */
#include "sys/caps.h"
#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct caps {
	struct __user_cap_data_struct half[2];
};

static int get(struct caps *ret, struct err *err)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };

	if (syscall(SYS_capget, &header, ret->half) < 0)
		return err_sys(err, errno, "capget");
	return 0;
}

static int set(const struct caps *caps, struct err *err)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };

	if (syscall(SYS_capset, &header, caps->half) < 0)
		return err_sys(err, errno, "capset");
	return 0;
}

int caps_raise_effective(struct err *err)
{
	struct caps caps;

	if (get(&caps, err) < 0)
		return -1;
	for (int i = 0; i < 2; i++)
		caps.half[i].effective = caps.half[i].permitted;
	return set(&caps, err);
}

bool caps_have(int cap)
{
	struct caps caps;

	return get(&caps, NULL) == 0 && (caps.half[cap / 32].effective >> (cap % 32) & 1);
}

int caps_bound(uint64_t keep, struct err *err)
{
	for (int cap = 0; cap < 64; cap++) {
		if (keep & CAPS_BIT(cap))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL) /* past the last capability this kernel knows */
			break;
		return err_sys(err, errno, "drop capability %d", cap);
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(err, errno, "clear ambient capabilities");
	return 0;
}

int caps_keep(uint64_t keep, struct err *err)
{
	struct caps caps;

	if (get(&caps, err) < 0)
		return -1;
	for (int i = 0; i < 2; i++) {
		caps.half[i].permitted &= (uint32_t)(keep >> (32 * i));
		caps.half[i].effective = caps.half[i].permitted;
		caps.half[i].inheritable = 0;
	}
	return set(&caps, err);
}
