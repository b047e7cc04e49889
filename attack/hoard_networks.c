/* hoard_networks.c - attacks in network namespaces that a box makes itself (see hoard.h) */
#include "attack/attacker.h"
#include "attack/hoard.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	HOSTS = 250,	    /* that are asked for in each /24 */
	SOCKET_HOSTS = 100, /* by one socket: packets that wait fill its buffer */
};

static bool bring_up(const char *name, struct in_addr address)
{
	struct ifreq link = { .ifr_flags = IFF_UP };
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = address };
	int control = socket(AF_INET, SOCK_DGRAM, 0);
	bool up;

	strncpy(link.ifr_name, name, sizeof link.ifr_name - 1);
	up = control >= 0 && ioctl(control, SIOCSIFFLAGS, &link) == 0;
	if (up && address.s_addr) {
		memcpy(&link.ifr_addr, &own, sizeof own);
		up = ioctl(control, SIOCSIFADDR, &link) == 0;
	}
	if (control >= 0)
		close(control);
	return up;
}

/* Sockets of a network namespace that no process is in. */
int64_t hoard_elsewhere(void)
{
	static int here = -1;
	int64_t got = 0;

	if (here < 0)
		here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (here < 0 || unshare(CLONE_NEWNET) < 0)
		return 0;
	bring_up("lo", (struct in_addr){ 0 });
	for (int i = 0; i < 8; i++)
		got += hoard_raw();
	return setns(here, CLONE_NEWNET) < 0 ? 0 : got;
}

/* Makes a network namespace with a link to nobody, on which a /8 lies. */
static bool make_link(void)
{
	return unshare(CLONE_NEWNET) == 0 && self_new_link("veth", "hoard") == 0 &&
	       bring_up("veth0", (struct in_addr){ 0 }) &&
	       bring_up("hoard", (struct in_addr){ .s_addr = inet_addr("10.9.0.1") });
}

/* One more neighbour, which never answers. 0: the machine's table is full, or there is no link. */
int64_t hoard_neighbours(void)
{
	static int fd = -1;
	static unsigned number;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	int tell = 1;

	if (number == 0 && !make_link())
		return 0;
	if (number % SOCKET_HOSTS == 0) {
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		/* Without this, dropped packets for unresolved neighbours are not reported. */
		setsockopt(fd, IPPROTO_IP, IP_RECVERR, &tell, sizeof tell);
	}
	to.sin_addr.s_addr = htonl(0x0a0a0001 + (number / HOSTS << 8) + number % HOSTS);
	number++;
	return sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1;
}
