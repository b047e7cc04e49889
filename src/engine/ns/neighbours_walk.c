/* neighbours_walk.c - counts and removes the neighbour entries of a box's networks
 *
 * Only networks that belong to another user namespace than ours are entered: a box may hold sockets
 * of the machine's own. */
#include "engine/ns/descriptors.h"
#include "engine/ns/neighbours.h"
#include "base/alloc.h"
#include "base/file.h"
#include "sys/beneath.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/neighbour.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
	NETWORKS_MAX = 512,
	MOUNTS_MAX = 64, /* mount namespaces */
	MOUNTINFO_MAX = 1024 * 1024,
	REMOVED_MAX = 1 << 16, /* per network and look */
	ANSWER_SIZE = 32 * 1024,
	ADDRESS_MAX = 16,
};

struct networks {
	ino_t ours; /* user namespace */
	int fds[NETWORKS_MAX];
	ino_t numbers[NETWORKS_MAX];
	size_t count;
	bool full;
};

static ino_t number_of(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static bool is_a_boxs(const struct networks *networks, int fd)
{
	_cleanup_close_ int owner = -1;
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != NSFS_MAGIC ||
		ioctl(fd, NS_GET_NSTYPE) != CLONE_NEWNET)
		return false;
	owner = ioctl(fd, NS_GET_USERNS);
	return owner >= 0 && number_of(owner) != networks->ours;
}

/* Takes the descriptor. */
static void add_network(struct networks *networks, int fd)
{
	ino_t number = number_of(fd);
	bool known = false;

	for (size_t i = 0; i < networks->count && !known; i++)
		known = networks->numbers[i] == number;
	if (fd < 0)
		return;
	if (known || !is_a_boxs(networks, fd)) {
		close(fd);
	} else if (networks->count == NETWORKS_MAX) {
		networks->full = true;
		close(fd);
	} else {
		networks->numbers[networks->count] = number;
		networks->fds[networks->count++] = fd;
	}
}

static bool wants(const char *link, void *arg)
{
	(void)arg;
	return strncmp(link, "socket:[", 8) == 0 || strncmp(link, "net:[", 5) == 0;
}

static void found(int fd, void *arg)
{
	int network = ioctl(fd, SIOCGSKNS);

	add_network(arg, network >= 0 ? network : fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

static void add_threads(struct networks *networks, pid_t pid)
{
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !networks->full && (entry = readdir(dir))) {
		snprintf(path, sizeof path, "%.16s/ns/net", entry->d_name);
		add_network(networks, openat(dirfd(dir), path, O_RDONLY | O_CLOEXEC));
	}
	if (dir)
		closedir(dir);
}

/* "\040" in a path of mountinfo is a blank. The path ends at the first blank. */
static void unescape(char *path)
{
	char *to = path;

	for (char *at = path; *at && *at != ' '; at++) {
		unsigned code;

		if (*at == '\\' && sscanf(at + 1, "%3o", &code) == 1) {
			*to++ = (char)code;
			at += 3;
		} else {
			*to++ = *at;
		}
	}
	*to = '\0';
}

/* "ID PARENT DEVICE net:[4026532000] /run/netns/one ..." */
static void add_mounted(struct networks *networks, pid_t pid)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int root = -1;
	char path[40], *rest, *line;

	snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)pid);
	if (file_read(AT_FDCWD, path, MOUNTINFO_MAX, &text, NULL, NULL) < 0)
		return;
	snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (line = strtok_r(text, "\n", &rest); line && root >= 0 && !networks->full;
		line = strtok_r(NULL, "\n", &rest)) {
		char *at = strstr(line, " net:[");
		int fd;

		if (!at || !(at = strchr(at + 1, ' ')))
			continue;
		unescape(++at);
		if (in_root_open(root, at, O_RDONLY | O_NONBLOCK | O_NOCTTY, &fd, NULL) == 0)
			add_network(networks, fd);
	}
}

static void add_all_mounted(struct networks *networks, const pid_t *pids, size_t count)
{
	ino_t seen[MOUNTS_MAX];
	size_t known = 0;

	for (size_t i = 0; i < count && known < MOUNTS_MAX; i++) {
		bool again = false;
		struct stat st;
		char path[40];

		snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pids[i]);
		if (stat(path, &st) < 0)
			continue;
		for (size_t k = 0; k < known && !again; k++)
			again = seen[k] == st.st_ino;
		if (again)
			continue;
		seen[known++] = st.st_ino;
		add_mounted(networks, pids[i]);
	}
}

/* ---- in a network --------------------------------------------------------------------------- */

struct neighbour {
	struct ndmsg head;
	uint8_t address[ADDRESS_MAX];
	uint8_t len;
};

struct list {
	struct neighbour *all; /* the first REMOVED_MAX */
	unsigned count;
};

static void take(struct list *list, const struct nlmsghdr *head)
{
	const struct ndmsg *message = NLMSG_DATA(head);
	int len = (int)NLMSG_PAYLOAD(head, sizeof *message);
	struct neighbour one = { .len = 0 };

	if (head->nlmsg_type != RTM_NEWNEIGH || len < 0)
		return;
	one.head = *message;
	for (const struct rtattr *at = (const void *)(message + 1); RTA_OK(at, len);
		at = RTA_NEXT(at, len))
		if (at->rta_type == NDA_DST && RTA_PAYLOAD(at) <= ADDRESS_MAX) {
			one.len = (uint8_t)RTA_PAYLOAD(at);
			memcpy(one.address, RTA_DATA(at), one.len);
		}
	if (list->count < REMOVED_MAX)
		list->all[list->count] = one;
	list->count++;
}

static void read_list(int fd, struct list *list)
{
	struct {
		struct nlmsghdr head;
		struct ndmsg body;
	} ask = { .head = { .nlmsg_len = sizeof ask,
			  .nlmsg_type = RTM_GETNEIGH,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
	char answer[ANSWER_SIZE] __attribute__((aligned(NLMSG_ALIGNTO)));

	if (send(fd, &ask, sizeof ask, 0) < 0)
		return;
	for (;;) {
		ssize_t got = recv(fd, answer, sizeof answer, 0);
		int len = (int)got;

		if (got <= 0)
			return;
		for (const struct nlmsghdr *head = (void *)answer; NLMSG_OK(head, len);
			head = NLMSG_NEXT(head, len)) {
			if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR)
				return;
			take(list, head);
		}
	}
}

/* Asks for no answer: an entry that remains is found at the next look. */
static void remove_one(int fd, const struct neighbour *one)
{
	struct {
		struct nlmsghdr head;
		struct ndmsg body;
		struct rtattr attribute;
		uint8_t address[ADDRESS_MAX];
	} order = { .head = { .nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof order.body) +
						      RTA_SPACE(one->len)),
			    .nlmsg_type = RTM_DELNEIGH,
			    .nlmsg_flags = NLM_F_REQUEST },
		.body = one->head,
		.attribute = { .rta_len = (uint16_t)RTA_LENGTH(one->len), .rta_type = NDA_DST } };

	memcpy(order.address, one->address, one->len);
	send(fd, &order, order.head.nlmsg_len, MSG_DONTWAIT);
}

/* Reads each network; when all together have too many, reads them again and empties them. */
static unsigned count_in(const struct networks *networks, bool empty)
{
	struct list list = { .all = xnewn(struct neighbour, REMOVED_MAX) };
	unsigned sum = 0;

	for (size_t i = 0; i < networks->count; i++) {
		_cleanup_close_ int fd = -1;

		if (setns(networks->fds[i], CLONE_NEWNET) < 0)
			continue;
		fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
		list.count = 0;
		if (fd >= 0)
			read_list(fd, &list);
		sum += list.count;
		for (unsigned k = 0; empty && k < MIN(list.count, (unsigned)REMOVED_MAX); k++)
			remove_one(fd, &list.all[k]);
	}
	free(list.all);
	return sum;
}

static void networks_free(struct networks *networks)
{
	for (size_t i = 0; i < networks->count; i++)
		close(networks->fds[i]);
	free(networks);
}

/* A network whose processes were killed lives on while packets wait there for a neighbour, and can
 * no longer be found: so it is kept here. */
static struct networks *kept;

bool neighbours_has_kept(void)
{
	return kept;
}

void neighbours_finish(void)
{
	if (!kept)
		return;
	count_in(kept, true);
	networks_free(kept);
	kept = NULL;
}

unsigned neighbours_walk(const pid_t *pids, size_t count, unsigned most)
{
	static const struct descriptors_ops ops = { wants, found };
	_cleanup_close_ int own = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	struct networks *networks = xnew(struct networks);
	unsigned sum;
	bool all;

	networks->ours = number_of(own);
	for (size_t i = 0; i < count; i++)
		add_threads(networks, pids[i]);
	add_all_mounted(networks, pids, count);
	all = descriptors_each(pids, count, &ops, networks) && !networks->full;
	sum = count_in(networks, false);
	neighbours_finish();
	if (sum > most) {
		count_in(networks, true);
		kept = networks;
	} else {
		networks_free(networks);
	}
	return all ? sum : UINT_MAX;
}
