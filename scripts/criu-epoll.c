/* criu-epoll.c - epolls whose files are not all in one process; a part of our CRIU, see
 * criu-changes
 *
 * An epoll remembers a file and the number it had when it was added. CRIU adds all of them again in
 * one process that has the epoll, under the numbers that are there, and that fails when processes
 * share an epoll after a fork: the one that CRIU chooses may not have the files, a file may be
 * closed where it was added and live on in a child, a child may have added files of its own. So the
 * owner of an epoll is written down, the process whose numbers its files have, and for each file
 * that does not have its number there, the file itself, found by comparing pointers in the kernel
 * (kcmp). When the owner is not the process that makes the epoll, or one of its files is elsewhere,
 * CRIU's main process adds them when all processes have their files: in a child with descriptors of
 * its own, where a file can have any number for a moment.
 *
 * This is included by criu/eventpoll.c. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- dump ----------------------------------------------------------------------------------- */

static struct held_file {
	pid_t pid;
	int fd;
	u32 id;
} *held;
static size_t held_count;

/* Every descriptor of every process. */
int epoll_note_held(pid_t pid, int fd, u32 id)
{
	if (!(held_count & (held_count + 1)) &&
		xrealloc_safe(&held, (2 * held_count + 2) * sizeof *held))
		return -1;
	held[held_count++] = (struct held_file){ pid, fd, id };
	return 0;
}

static bool is_held(u32 id)
{
	for (size_t i = 0; i < held_count; i++)
		if (held[i].id == id)
			return true;
	return false;
}

/* The tree goes by what stat says of a file; of a FIFO on an overlay the kernel says something else
 * here, and a file that was first seen on its way through a socket stands in the tree under a
 * descriptor of ours. */
static bool find_target(const struct eventpoll_dinfo *dinfo, const EventpollTfdEntry *tfde,
	kcmp_epoll_slot_t *slot, u32 *ret)
{
	struct kid_elem elem = {
		.pid = dinfo->pid,
		.genid = make_gen_id(tfde->dev, tfde->inode, tfde->pos),
		.idx = tfde->tfd,
	};
	struct kid_elem *found = kid_lookup_epoll_tfd(&fd_tree, &elem, slot);
	size_t i = 0;

	while (found && i < held_count && (held[i].pid != found->pid || held[i].fd != found->idx))
		i++;
	if (!found || i == held_count)
		for (i = 0; i < held_count; i++)
			if (!syscall(SYS_kcmp, held[i].pid, dinfo->pid, KCMP_EPOLL_TFD, held[i].fd,
				    slot))
				break;
	if (i == held_count)
		return false;
	*ret = held[i].id;
	return true;
}

/* Is it there, in the owner, under the number it was added with? */
static bool owner_has(const struct eventpoll_dinfo *dinfo, const kcmp_epoll_slot_t *slot)
{
	return dinfo->e->has_owner &&
	       !syscall(SYS_kcmp, dinfo->pid, dinfo->pid, KCMP_EPOLL_TFD, slot->tfd, slot);
}

static int flush_one(struct eventpoll_dinfo *dinfo)
{
	EventpollFileEntry *e = dinfo->e;

	if (e->n_tfd && !is_held(e->id)) {
		pr_err("An epoll is on its way through a unix socket\n");
		return -1;
	}
	for (size_t i = 0; i < e->n_tfd; i++) {
		kcmp_epoll_slot_t slot = {
			.efd = dinfo->efd,
			.tfd = e->tfd[i]->tfd,
			.toff = dinfo->toff[i].off,
		};

		if (owner_has(dinfo, &slot))
			continue;
		if (!find_target(dinfo, e->tfd[i], &slot, &e->tfd[i]->file)) {
			pr_err("A file of an epoll is on its way through a unix socket\n");
			if (e->has_owner)
				say_process(dinfo->pid);
			return -1;
		}
		e->tfd[i]->has_file = true;
		say_unusual("an epoll with files of several processes");
		pr_info_eventpoll_tfd("Elsewhere: ", e->id, e->tfd[i]);
	}
	return pb_write_one(img_from_set(glob_imgset, CR_FD_FILES), dinfo->fe, PB_FILE);
}

/* When the files of all processes are known. */
int flush_eventpoll_dinfo_queue(void)
{
	struct eventpoll_dinfo *dinfo, *next;
	int ret = 0;

	list_for_each_entry_safe(dinfo, next, &dinfo_list, list) {
		if (!ret)
			ret = flush_one(dinfo);
		dequeue_dinfo(dinfo);
	}
	xfree(held);
	held = NULL;
	held_count = 0;
	return ret;
}

/* The process whose descriptors are being dumped; one on its way through a unix socket has none. */
static void note_owner(EventpollFileEntry *e, const struct fd_parms *p)
{
	struct pstree_item *item = p->dfds ? pstree_item_by_real(p->pid) : NULL;

	e->has_owner = item != NULL;
	e->owner = item ? vpid(item) : 0;
}

/* ---- restore -------------------------------------------------------------------------------- */

/* Who has what is known to the first process of the box and its descendants; CRIU's main process,
 * which is not one of them, reads it here. Shared memory. */
struct place {
	int pid; /* as the box counts; 0: nobody has it */
	int fd;
};
struct epoll_plan {
	bool apart;
	struct place epoll;
	struct place targets[];
};
static LIST_HEAD(all_epolls);

/* In the main process, before there are others. */
int epoll_plan_open(void)
{
	struct eventpoll_file_info *info;
	size_t size = 0;
	char *room;

	list_for_each_entry(info, &all_epolls, all)
		size += sizeof *info->plan + info->efe->n_tfd * sizeof(struct place);
	if (!size)
		return 0;
	room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED) {
		pr_perror("Can't share where files of epolls are");
		return -1;
	}
	list_for_each_entry(info, &all_epolls, all) {
		info->plan = (struct epoll_plan *)room;
		room += sizeof *info->plan + info->efe->n_tfd * sizeof(struct place);
	}
	return 0;
}

static struct place place_of(struct fdinfo_list_entry *fle)
{
	return fle ? (struct place){ fle->pid, fle->fe->fd } : (struct place){ 0 };
}

static struct fdinfo_list_entry *holder_of(struct file_desc *d)
{
	struct fdinfo_list_entry *fle;

	list_for_each_entry(fle, &d->fd_info_head, desc_list)
		if (!fle->fake)
			return fle;
	return NULL;
}

/* Processes may share one table of descriptors; it is restored with one of them. */
static struct pstree_item *table_of(int pid)
{
	struct pstree_item *item = pstree_item_by_virt(pid);

	return item && rsti(item)->fdt ? pstree_item_by_virt(rsti(item)->fdt->pid) : item;
}

static bool has_all_numbers(struct pstree_item *task, const EventpollFileEntry *e)
{
	for (size_t i = 0; i < e->n_tfd; i++)
		if (!find_used_fd(task, e->tfd[i]->tfd))
			return false;
	return true;
}

/* Of an image that was made before owners were written down: the first that could be it. */
static struct pstree_item *guess_owner(struct eventpoll_file_info *info)
{
	struct fdinfo_list_entry *fle;

	list_for_each_entry(fle, &info->d.fd_info_head, desc_list)
		if (!fle->fake && has_all_numbers(fle->task, info->efe))
			return fle->task;
	return file_master(&info->d)->task;
}

static struct place target_of(struct pstree_item *owner, const EventpollTfdEntry *tfde)
{
	struct file_desc *d;

	if (!tfde->has_file)
		return place_of(owner ? find_used_fd(owner, tfde->tfd) : NULL);
	d = find_file_desc_raw(FD_TYPES__UND, tfde->file);
	return place_of(d ? holder_of(d) : NULL);
}

static void plan_one(struct eventpoll_file_info *info)
{
	EventpollFileEntry *e = info->efe;
	struct pstree_item *owner = e->has_owner ? table_of(e->owner) : guess_owner(info);
	bool apart = owner != file_master(&info->d)->task;

	for (size_t i = 0; i < e->n_tfd; i++)
		apart |= e->tfd[i]->has_file;
	info->plan->apart = apart;
	if (!apart)
		return;
	info->plan->epoll = place_of(holder_of(&info->d));
	for (size_t i = 0; i < e->n_tfd; i++)
		info->plan->targets[i] = target_of(owner, e->tfd[i]);
}

/* In the first process of the box, when it knows all descriptors and has no children yet. */
void epoll_plan(void)
{
	struct eventpoll_file_info *info;

	list_for_each_entry(info, &all_epolls, all)
		if (info->efe->n_tfd && !list_empty(&info->d.fd_info_head))
			plan_one(info);
}

static int grab(struct place place)
{
	struct pstree_item *item = place.pid ? pstree_item_by_virt(place.pid) : NULL;
	int pidfd, fd;

	if (!item) {
		errno = ENOENT;
		return -1;
	}
	pidfd = syscall(SYS_pidfd_open, item->pid->real, 0);
	if (pidfd < 0)
		return -1;
	fd = syscall(SYS_pidfd_getfd, pidfd, place.fd, 0);
	close(pidfd);
	return fd;
}

/* Whatever has that number here gets it back: the log may be written into it, and the epoll itself
 * may have it. */
static int add_as(int epoll, int file, EventpollTfdEntry *tfde)
{
	struct epoll_event event = { .events = tfde->events, .data.u64 = tfde->data };
	int number = tfde->tfd, kept, ret, why;

	if (number == file)
		return epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event);
	kept = fcntl(number, F_DUPFD_CLOEXEC, 0);
	if (kept < 0 && errno != EBADF)
		return -1;
	ret = dup2(file, number);
	if (ret == number)
		ret = epoll_ctl(number == epoll ? kept : epoll, EPOLL_CTL_ADD, number, &event);
	why = errno;
	if (kept >= 0)
		dup2(kept, number);
	close(kept >= 0 ? kept : number);
	errno = why;
	return ret;
}

static int add_all_of(struct eventpoll_file_info *info)
{
	const struct epoll_plan *plan = info->plan;
	int epoll = grab(plan->epoll);

	if (epoll < 0) {
		pr_perror("Can't get an epoll from process %d", plan->epoll.pid);
		return -1;
	}
	for (size_t i = 0; i < info->efe->n_tfd; i++) {
		int file = grab(plan->targets[i]);

		if (file < 0 || add_as(epoll, file, info->efe->tfd[i])) {
			pr_perror("Can't add file %d of process %d to an epoll of process %d",
				plan->targets[i].fd, plan->targets[i].pid, plan->epoll.pid);
			return -1;
		}
		close(file);
	}
	close(epoll);
	return 0;
}

/* In the main process, when all others have their files. */
int epoll_add_apart(void)
{
	struct eventpoll_file_info *info;
	bool any = false;
	sigset_t before;
	int status = 0;
	pid_t pid;

	list_for_each_entry(info, &all_epolls, all)
		any |= info->plan->apart;
	if (!any)
		return 0;
	if (block_sigmask(&before, SIGCHLD))
		return -1;
	pid = fork();
	if (pid == 0) {
		list_for_each_entry(info, &all_epolls, all)
			if (info->plan->apart && add_all_of(info))
				_exit(1);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		status = -1;
	restore_sigmask(&before);
	return status ? -1 : 0;
}
