/* vm_net_fixture.h - somebody at the other end of a tap: a namespace that plays the kernel of a
 * box, and a process that carries frames, as QEMU would */
#pragma once
#include "net/doors.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct vm_guest {
	int netns, tap; /* as doors_make_vm gave them */
	int inner;	/* the namespace that plays the box's kernel */
	int cable;	/* its own tap */
	pid_t carrier;	/* 0: none */
};

static inline void vm_run(const char *command)
{
	if (system(command) != 0) {
		printf("failed: %s\n", command);
		abort();
	}
}

static inline int vm_open_tap(void)
{
	struct ifreq wanted = { .ifr_name = "eth0",
		.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int size = DOORS_VM_HEADER, fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, TUNSETIFF, &wanted) < 0 || ioctl(fd, TUNSETVNETHDRSZ, &size) < 0)
		abort();
	return fd;
}

/* What QEMU and a usual guest agree on: big frames, checksums left to the other end. */
static inline void vm_offload(int fd)
{
	if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN) < 0)
		abort();
}

static inline void vm_carry(int one, int other)
{
	static char frame[128 * 1024];
	struct pollfd ends[2] = { { .fd = one, .events = POLLIN },
		{ .fd = other, .events = POLLIN } };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (poll(ends, 2, -1) > 0)
		for (int i = 0; i < 2; i++) {
			ssize_t len = ends[i].revents ? read(ends[i].fd, frame, sizeof frame) : 0;

			if (len > 0 && write(ends[!i].fd, frame, (size_t)len) < 0 &&
				errno != EAGAIN)
				continue; /* as a bad cable */
		}
	_exit(0);
}

/* back: the namespace to come back to. With interfaces as box-init gives them. */
static inline int vm_guest_start(
	const struct doors_plan *plan, int back, struct vm_guest *ret, struct err *err)
{
	if (doors_make_vm(plan, &ret->netns, &ret->tap, err) < 0)
		return -1;
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(err, errno, "unshare");
	ret->inner = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	ret->cable = vm_open_tap();
	vm_run("ip link set lo up && ip link set eth0 address " DOORS_VM_MAC
	       " && ip link set eth0 up && ip addr add " DOORS_BOX_V4 "/32 dev eth0"
	       " && ip route add default via " DOORS_RESOLVER_V4 " dev eth0 onlink"
	       " && ip addr add fd62:6f78:7961:7264::2/128 dev eth0 nodad"
	       " && ip -6 route add default via " DOORS_RESOLVER_V6 " dev eth0 onlink");
	if (setns(back, CLONE_NEWNET) < 0)
		abort();
	vm_offload(ret->tap);
	vm_offload(ret->cable);
	ret->carrier = fork();
	if (ret->carrier == 0)
		vm_carry(ret->tap, ret->cable);
	return 0;
}

static inline void vm_guest_end(struct vm_guest *guest)
{
	if (guest->carrier > 0) {
		kill(guest->carrier, SIGKILL);
		waitpid(guest->carrier, NULL, 0);
	}
	close(guest->netns);
	close(guest->tap);
	close(guest->inner);
	close(guest->cable);
}
