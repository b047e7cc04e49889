/* restore.c - makes an instance from a state: its processes continue where they were
 *
 * The daemon makes what needs its privileges: cgroups, the layers seen through the instance's range
 * of users, mounts of the host. A process that is to become CRIU joins the cgroups, gets a cgroup
 * namespace there, attaches everything in a mount namespace of its own, fills the memory file
 * systems, and executes CRIU; the restored processes are born in the groups.
 *
 *   setup-namespaces   PID 1 exists; its network is set up, and nothing is sent in it until all
 *                      connections are there
 *   post-restore       everything is restored and frozen: connections to the outside are closed,
 *                      the host name is set, user namespaces are forbidden again (CRIU does not
 *                      keep that), the kernel's random numbers are renewed, so that no two copies
 *                      of a process have the same ones in store; the pid counter continues from
 *                      where it was; threads get back their settings (attributes.c); box-init's
 *                      socket becomes unchangeable
 *   pre-resume         everything is final, and nothing has run: on_going
 *   post-resume        the processes run: on_ready. CRIU ends by itself a little later
 *
 * The images contain the host's user ids of the box. For another range than that of the capture one
 * small file is replaced, in a folder of links beside the state. Every failure kills everything in
 * the cgroup, CRIU too. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "engine/ns/criu/criu.h"
#include "engine/ns/criu/criu_image.h"
#include "loop/loop.h"
#include "net/doors.h"
#include "net/sever.h"
#include "sys/idmap.h"
#include "sys/mountfd.h"
#include "sys/pidns.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define PLACE "/run/m" /* in CRIU's mount namespace; see capture.c */
enum { LIMIT_MS = 120 * 1000 };

struct restoring {
	struct ns_engine *engine;
	struct ns_instance *instance; /* NULL: it is complete, or nobody wants it any more */
	struct restoring *next;
	struct criu *criu;
	struct state state;
	char *hostname;
	int images; /* folder that CRIU reads: the state's, or the folder of links */
	int parent; /* of the folder of links; -1: none */
	char links[64];
	int work;   /* folder for CRIU's log, in the scratch place like the links */
	int socket; /* the mount box-init's socket is bound on */
	bool going; /* CRIU was told to let the processes run */
	bool runs;
	bool has_connections; /* TCP connections, in the images */
	pid_t last_pid;	      /* the pid counter continues from there */
	bool time_passes;

	/* What the new process attaches; valid until it exists. */
	uint32_t uid_base;
	int root, bin, containers, docker, run_tree, shm_tree;
	int mounts[INSTANCE_MOUNTS_MAX];
	const struct instance_spec *spec;
	struct cgroup_join join;
};

static void close_set(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- in the process that becomes CRIU ------------------------------------------------------- */

static int attach(int mount, size_t place, struct err *err)
{
	char path[sizeof PLACE + 16];
	int target, status;

	snprintf(path, sizeof path, PLACE "/%zu", place);
	target = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (target < 0)
		return err_sys(err, errno, "open '%s'", path);
	status = mount_attach(mount, target, err);
	close(target);
	return status;
}

static int attach_file(int mount, size_t place, struct err *err)
{
	char path[sizeof PLACE + 16];
	int target, status;

	/* The scratch place is shared with other CRIUs, mounts in it are not. */
	snprintf(path, sizeof path, PLACE "/f%zu", place);
	target = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	if (target < 0)
		return err_sys(err, errno, "make '%s'", path);
	status = mount_attach(mount, target, err);
	close(target);
	return status;
}

static int make_memory(const struct restoring *restoring, const char *mode, const char *size,
	int tree, int *ret, struct err *err)
{
	char id[16];
	const struct mount_option options[] = { { "uid", id }, { "gid", id }, { "mode", mode },
		{ "size", size }, { NULL, NULL } };

	snprintf(id, sizeof id, "%u", restoring->uid_base);
	if (mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, ret, err) < 0)
		return -1;
	return tree_load(*ret, restoring->uid_base, tree, err);
}

static int find_mount(const struct restoring *restoring, const char *at, struct err *err)
{
	for (size_t i = 0; i < restoring->spec->mount_count; i++)
		if (!strcmp(restoring->spec->mounts[i].target, at))
			return restoring->mounts[i];
	return err_set(err, ERR_STATE, "the mount on '%s' no longer exists", at);
}

static int provide(const struct restoring *restoring, const struct external *external, int *ret,
	struct err *err)
{
	const unsigned safe = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

	switch (external->kind) {
	case EXTERNAL_RUN:
		return make_memory(restoring, "0755", "64m", restoring->run_tree, ret, err);
	case EXTERNAL_SHM:
		return make_memory(restoring, "1777", "50%", restoring->shm_tree, ret, err);
	case EXTERNAL_SOCKET:
		*ret = restoring->socket;
		return 0;
	case EXTERNAL_BIN:
		*ret = restoring->bin;
		return 0;
	case EXTERNAL_HIDDEN:
		return mount_clone(restoring->bin, "empty", ret, err);
	case EXTERNAL_CGROUP:
		return mount_new("cgroup2", NULL,
			safe | (external->read_only ? MOUNT_ATTR_RDONLY : 0u), ret, err);
	case EXTERNAL_CONTAINERS:
		*ret = restoring->containers;
		return 0;
	case EXTERNAL_DOCKER:
		*ret = restoring->docker;
		return 0;
	case EXTERNAL_MOUNT:
		*ret = find_mount(restoring, external->at, err);
		return *ret < 0 ? -1 : 0;
	default:
		return err_set(err, ERR_PROTOCOL, "the checkpoint has an unknown mount");
	}
}

static int prepare(void *arg, struct err *err)
{
	const struct restoring *restoring = arg;

	if (cgroup_join_enter(&restoring->join, err) < 0)
		return -1;
	/* As for a new box, see start.c: otherwise the box could make itself as safe from the OOM
	 * killer as the daemon is. */
	if (restoring->engine->oom_score_adj)
		file_poke(AT_FDCWD, "/proc/self/oom_score_adj", "0", NULL);
	if (unshare(CLONE_NEWCGROUP) < 0)
		return err_sys(err, errno, "unshare the cgroups");
	if (attach(restoring->root, 0, err) < 0)
		return err_wrap(err, "root of the box");
	for (size_t i = 0; i < restoring->state.external_count; i++) {
		const struct external *external = &restoring->state.externals[i];
		int mount = -1;

		if (provide(restoring, external, &mount, err) < 0 ||
			(external->is_file ? attach_file : attach)(mount, i + 1, err) < 0)
			return err_wrap(err, "mount '%s'", external->at);
	}
	return 0;
}

/* ---- preparation ---------------------------------------------------------------------------- */

static int link_all(int from, int to, struct err *err)
{
	int copy = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = 0;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!dir) {
		close_set(&copy);
		return err_sys(err, errno, "read the state");
	}
	while (status == 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' &&
			linkat(from, entry->d_name, to, entry->d_name, 0) < 0)
			status = err_sys(err, errno, "link '%s'", entry->d_name);
	closedir(dir);
	return status;
}

/* Links the state for another range of users, or for a larger one. */
static int make_links(struct restoring *restoring, int dir, struct err *err)
{
	const struct idmap_extent extents[] = NS_EXTENTS(restoring->uid_base);

	restoring->parent = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (restoring->parent < 0)
		return err_sys(err, errno, "open the folder of the checkpoint");
	/* A dead daemon may have left it. */
	tree_remove(restoring->parent, restoring->links, NULL);
	if (mkdirat(restoring->parent, restoring->links, 0700) < 0)
		return err_sys(err, errno, "make '%s'", restoring->links);
	restoring->images = openat(restoring->parent, restoring->links,
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (restoring->images < 0)
		return err_sys(err, errno, "open '%s'", restoring->links);
	if (link_all(dir, restoring->images, err) < 0)
		return -1;
	return criu_image_set_users(restoring->images, extents, NS_EXTENT_COUNT, err);
}

/* Several instances may be restored from one state: each has its own log. */
static int make_work(struct restoring *restoring, struct err *err)
{
	int scratch = restoring->engine->scratch;

	snprintf(restoring->links, sizeof restoring->links, "for-%.48s", restoring->spec->id);
	if (mkdirat(scratch, restoring->links, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make a folder for CRIU's log");
	restoring->work = openat(scratch, restoring->links, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return restoring->work < 0 ? err_sys(err, errno, "open the folder for CRIU's log") : 0;
}

/* Reads facts from the names of the images. Each thread has a file by its pid: for a state that
 * does not store the pid counter, the highest in use. */
static void read_names(struct restoring *restoring, int dir)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *files = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!files)
		close_set(&copy);
	while (files && (entry = readdir(files))) {
		if (!strncmp(entry->d_name, "tcp-stream-", 11))
			restoring->has_connections = true;
		if (!strncmp(entry->d_name, "core-", 5))
			restoring->last_pid =
				MAX(restoring->last_pid, (pid_t)atoi(entry->d_name + 5));
	}
	if (files)
		closedir(files);
}

static int read_last_pid(struct restoring *restoring, int dir, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	struct err why = ERR_INIT;
	char *end;
	long last;

	if (file_read(dir, STATE_LAST, 32, &text, NULL, &why) < 0) {
		if (why.kind == ERR_NOT_FOUND)
			return 0;
		if (err)
			*err = why;
		return -1;
	}
	last = strtol(text, &end, 10);
	if (last <= 0 || last > PIDNS_MOST || strcmp(end, "\n") != 0)
		return err_set(err, ERR_PROTOCOL, "the checkpoint is damaged ('" STATE_LAST "')");
	restoring->last_pid = (pid_t)last;
	return 0;
}

static int open_images(struct restoring *restoring, int dir, struct err *err)
{
	if (make_work(restoring, err) < 0)
		return -1;
	if (state_read(dir, &restoring->state, err) < 0)
		return -1;
	read_names(restoring, dir);
	if (read_last_pid(restoring, dir, err) < 0)
		return -1;
	restoring->run_tree = openat(dir, STATE_RUN, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	restoring->shm_tree = openat(dir, STATE_SHM, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (restoring->run_tree < 0 || restoring->shm_tree < 0)
		return err_sys(err, errno, "open the tmpfs of the checkpoint");
	if (restoring->state.uid_base != restoring->uid_base || !restoring->state.wide)
		return make_links(restoring, dir, err);
	restoring->images = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	return restoring->images < 0 ? err_sys(err, errno, "dup") : 0;
}

/* Without room for its own folders overlayfs comes up read-only, silently. */
static int check_writable(int root, struct err *err)
{
	struct statvfs st;

	if (fstatvfs(root, &st) < 0)
		return err_sys(err, errno, "look at the root of the box");
	if (!(st.f_flag & ST_RDONLY))
		return 0;
	err_set(err, ERR_LIMIT, "there is no room on the box's disk, or in the pool, to go on");
	return err_hint(err, "see 'box df' and 'box pool show'; free some space, then try again");
}

static int make_root(struct restoring *restoring, const struct guest *guest, int disk, int userns,
	struct err *err)
{
	struct layers_spec spec = {
		.image = restoring->spec->ns.layers,
		.apart = restoring->spec->ns.apart,
		.disk = disk,
		.userns = userns,
		.guest = guest->layer,
	};
	struct layers layers;
	int status;

	layers_init(&layers);
	status = layers_open(restoring->engine, &spec, &layers, err);
	if (status == 0)
		status = layers_stack(
			restoring->engine, &layers, restoring->uid_base, &restoring->root, err);
	layers_close(restoring->engine, &layers);
	return status < 0 ? -1 : check_writable(restoring->root, err);
}

static int make_socket_mount(struct restoring *restoring, struct err *err)
{
	char id[16];
	const struct mount_option options[] = { { "uid", id }, { "gid", id }, { "mode", "0755" },
		{ "size", "64k" }, { "nr_inodes", "8" }, { NULL, NULL } };

	snprintf(id, sizeof id, "%u", restoring->uid_base);
	return mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
		&restoring->socket, err);
}

/* Making a user namespace takes a process, so recent ones are kept: boxes are woken and rolled back
 * in their own range, and forks often get one that was just freed. Borrowed. */
static int open_range(struct ns_engine *engine, uint32_t base, int *ret, struct err *err)
{
	const struct idmap_pair range = { .uid = base,
		.gid = base,
		.count = NS_IDS,
		.more = { NS_IDS, NS_SHARED_FIRST, NS_SHARED_COUNT } };
	struct ns_range *slot;
	int userns;

	for (size_t i = 0; i < NS_RANGES_KEPT; i++)
		if (engine->ranges[i].base == base) {
			*ret = engine->ranges[i].userns;
			return 0;
		}
	if (spawner_idmap(engine, &range, &userns, err) < 0)
		return -1;
	slot = &engine->ranges[engine->range_next++ % NS_RANGES_KEPT];
	if (slot->base)
		close(slot->userns);
	*slot = (struct ns_range){ base, userns };
	*ret = userns;
	return 0;
}

/* Usually the same version as for new boxes. */
static int open_guest(const struct restoring *restoring, struct guest *ret, struct err *err)
{
	const struct ns_engine *engine = restoring->engine;
	const char *name = restoring->state.guest;

	*ret = (struct guest){ .layer = -1, .bin = -1 };
	if (guest_open_named(engine->home, name, ret, err) < 0)
		return -1;
	if (engine->layers != LAYERS_DETACHED)
		return 0;
	if (strcmp(name, engine->guest.name) != 0) {
		if (guest_show_from_memory(name, ret, err) == 0)
			return 0;
	} else {
		close(ret->bin);
		ret->bin = fcntl(engine->guest.bin, F_DUPFD_CLOEXEC, 3);
		if (ret->bin >= 0)
			return 0;
		err_sys(err, errno, "dup");
	}
	guest_close(ret);
	return -1;
}

static int make_mounts(struct restoring *restoring, struct err *err)
{
	_cleanup_close_ int disk = -1;
	struct guest guest;
	int status = -1, userns;

	if (open_guest(restoring, &guest, err) < 0)
		return -1;
	if (open_range(restoring->engine, restoring->uid_base, &userns, err) == 0 &&
		ns_open_disk(restoring->spec, &disk, err) == 0 &&
		make_root(restoring, &guest, disk, userns, err) == 0 &&
		ns_make_bin(guest.bin, &restoring->bin, err) == 0 &&
		ns_make_containers(restoring->spec, disk, userns, &restoring->containers,
			&restoring->docker, err) == 0 &&
		make_socket_mount(restoring, err) == 0)
		status = mounts_open(
			restoring->engine, restoring->spec, userns, restoring->mounts, err);
	guest_close(&guest);
	return status;
}

/* ---- the restore ---------------------------------------------------------------------------- */

struct furnishing {
	const struct doors_plan *doors;
	bool nested;
};

static int furnish(void *arg, struct err *err)
{
	const struct furnishing *furnishing = arg;

	return doors_furnish(furnishing->doors, furnishing->nested, err);
}

static int on_born(struct restoring *restoring, const struct criu_event *event, struct err *err)
{
	struct furnishing furnishing = { restoring->engine->doors,
		restoring->state.profile == PROFILE_NESTED };

	if (!restoring->engine->doors)
		return err_set(
			err, ERR_UNSUPPORTED, "%s", restoring->engine->doors_problem.message);
	if (ns_in_network(event->pid, furnish, &furnishing, err) < 0)
		return -1;
	return restoring->has_connections ? ns_net_hold(restoring->engine, event->pid, true, err)
					  : 0;
}

/* All connections are restored: those within the box continue. */
static int open_network(struct restoring *restoring, pid_t pid, struct err *err)
{
	if (!restoring->has_connections)
		return 0;
	if (ns_in_network(pid, sever_outside, NULL, err) < 0)
		return -1;
	return ns_net_hold(restoring->engine, pid, false, err);
}

/* Makes every process drop random numbers that it has in store through the vdso. */
static int renew_random(struct err *err)
{
	_cleanup_close_ int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, RNDRESEEDCRNG) < 0)
		return err_sys(err, errno, "renew the kernel's random numbers");
	return 0;
}

static int mark(struct ns_instance *instance, const struct criu_event *event, struct err *err)
{
	instance->pidfd = fcntl(event->pidfd, F_DUPFD_CLOEXEC, 3);
	if (instance->pidfd < 0)
		return err_sys(err, errno, "dup");
	instance->base.mark.pid = event->pid;
	memcpy(instance->base.mark.boot, ns_engine_of(instance->base.engine)->boot,
		sizeof instance->base.mark.boot);
	return procstat_start_time(event->pid, &instance->base.mark.start_time, err);
}

/* A failure is not worth losing a box: on a machine with a lower maximum the pids start over. */
static void count_on(const struct restoring *restoring)
{
	struct err err = ERR_INIT;

	if (restoring->last_pid > 0 &&
		pidns_set_last(restoring->instance->pidfd, restoring->last_pid, &err) < 0)
		log_warn("the pids of a box start again", kv_str("box", restoring->instance->id),
			kv_err(&err));
}

static int on_restored(struct restoring *restoring, const struct criu_event *event, struct err *err)
{
	struct ns_instance *instance = restoring->instance;

	if (mark(instance, event, err) < 0 || open_network(restoring, event->pid, err) < 0)
		return -1;
	if (ns_arrange(instance, restoring->hostname, restoring->state.profile == PROFILE_STANDARD,
		    err) < 0)
		return -1;
	count_on(restoring);
	attributes_load(event->pid, restoring->images);
	if (renew_random(err) < 0 || mount_freeze(restoring->socket, err) < 0)
		return -1;
	close_set(&restoring->socket);
	return 0;
}

static void let_go(struct restoring *restoring)
{
	struct ns_instance *instance = restoring->instance;

	restoring->runs = true;
	restoring->instance = NULL;
	instance->restoring = NULL;
	ns_instance_watch(instance);
	instance->base.events->on_ready(&instance->base, instance->base.arg);
}

static void on_event(struct criu *criu, const struct criu_event *event, void *arg)
{
	struct restoring *restoring = arg;
	struct ns_instance *instance = restoring->instance;
	struct err err = ERR_INIT;
	int status = 0;

	if (!instance || instance->kill_asked) {
		criu_answer(criu, false, NULL);
		return;
	}
	if (event->kind == CRIU_SETUP_NAMESPACES)
		status = on_born(restoring, event, &err);
	if (event->kind == CRIU_POST_RESTORE)
		status = on_restored(restoring, event, &err);
	if (status == 0 && event->kind == CRIU_POST_RESTORE && instance->base.events->on_marked)
		instance->base.events->on_marked(&instance->base, instance->base.arg);
	if (event->kind == CRIU_PRE_RESUME && instance->base.events->on_going)
		instance->base.events->on_going(&instance->base, instance->base.arg);
	/* A test restore is killed here. */
	criu_answer(criu, status == 0 && (!instance->kill_asked || event->kind == CRIU_POST_RESUME),
		status < 0 ? &err : NULL);
	if (event->kind == CRIU_PRE_RESUME)
		restoring->going = !instance->kill_asked;
	if (event->kind == CRIU_POST_RESUME)
		let_go(restoring);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void let_go_of_fds(struct restoring *restoring)
{
	cgroup_join_done(&restoring->join);
	close_set(&restoring->root);
	close_set(&restoring->bin);
	close_set(&restoring->containers);
	close_set(&restoring->docker);
	close_set(&restoring->run_tree);
	close_set(&restoring->shm_tree);
	for (size_t i = 0; i < INSTANCE_MOUNTS_MAX; i++)
		close_set(&restoring->mounts[i]);
	restoring->spec = NULL;
}

static void restoring_free(struct restoring *restoring)
{
	struct restoring **at = &restoring->engine->restorings;

	while (*at && *at != restoring)
		at = &(*at)->next;
	if (*at)
		*at = restoring->next;
	let_go_of_fds(restoring);
	close_set(&restoring->socket);
	if (restoring->parent >= 0)
		tree_remove(restoring->parent, restoring->links, NULL);
	if (restoring->work >= 0)
		tree_remove(restoring->engine->scratch, restoring->links, NULL);
	close_set(&restoring->work);
	close_set(&restoring->parent);
	close_set(&restoring->images);
	free(restoring->hostname);
	free(restoring);
}

static void on_done(
	struct criu *criu, const struct criu_result *result, const struct err *err, void *arg)
{
	struct restoring *restoring = arg;
	struct ns_instance *instance = restoring->instance;
	struct err why = *err;

	if (result->pidfd >= 0)
		close(result->pidfd);
	/* The kill came when the processes already ran. */
	if (!err->kind && instance && restoring->going && !instance->kill_asked) {
		let_go(restoring);
		instance = NULL;
	}
	if (result->held && instance && instance->base.events->on_held)
		instance->base.events->on_held(&instance->base, instance->base.arg);
	if (err->kind && !instance && restoring->runs)
		log_warn("criu failed after all was restored", kv_err(err));
	if (err->kind && *result->log && !(instance && instance->kill_asked))
		log_info("what criu said last", kv_str("log", result->log));
	criu_free(criu);
	restoring_free(restoring);
	if (!instance)
		return;
	instance->restoring = NULL;
	if (!why.kind)
		err_set(&why, ERR_PROTOCOL, "criu ended without a message");
	if (instance->kill_asked)
		err_set(&why, ERR_CANCELLED, "killed while it was being restored");
	ns_instance_fail(instance, &why);
}

/* The instance is released during the restore: the next daemon's sweep ends what was made. */
void restoring_forget(struct ns_instance *instance)
{
	struct restoring *restoring = instance->restoring;

	if (!restoring)
		return;
	instance->restoring = NULL;
	criu_free(restoring->criu);
	restoring_free(restoring);
}

void restorings_close(struct ns_engine *engine)
{
	while (engine->restorings) {
		struct restoring *restoring = engine->restorings;

		criu_abandon(restoring->criu);
		restoring_free(restoring);
	}
	for (size_t i = 0; i < NS_RANGES_KEPT; i++)
		if (engine->ranges[i].base)
			close(engine->ranges[i].userns);
}

/* ---- the start ------------------------------------------------------------------------------ */

static int run(struct restoring *restoring, int cgroup, struct err *err)
{
	static const struct criu_ops ops = { .on_event = on_event, .on_done = on_done };
	_cleanup_strv_ char **externals = state_externals(&restoring->state, PLACE);
	struct criu_request request = CRIU_REQUEST_INIT;

	state_options(restoring->engine, &request);
	request.images = restoring->images;
	request.work = restoring->work;
	request.external = (const char *const *)externals;
	request.root = PLACE "/0";
	request.time_passes = restoring->time_passes;
	request.owner = restoring->uid_base;
	request.cgroup = cgroup;
	request.limit_ms = LIMIT_MS;
	request.prepare = prepare;
	request.prepare_arg = restoring;
	return criu_restore(
		restoring->engine->loop, &request, &ops, restoring, &restoring->criu, err);
}

/* A file cannot be mounted on a folder: its mount point is a file. */
static int note_files(struct restoring *restoring, struct err *err)
{
	for (size_t i = 0; i < restoring->state.external_count; i++) {
		struct external *external = &restoring->state.externals[i];
		struct stat st;
		int mount;

		if (external->kind != EXTERNAL_MOUNT)
			continue;
		mount = find_mount(restoring, external->at, err);
		if (mount < 0)
			return -1;
		if (fstat(mount, &st) < 0)
			return err_sys(err, errno, "look at what is mounted on '%s'", external->at);
		external->is_file = !S_ISDIR(st.st_mode);
	}
	return 0;
}

static int begin(struct restoring *restoring, struct err *err)
{
	struct ns_engine *engine = restoring->engine;
	const struct instance_spec *spec = restoring->spec;
	struct instance_spec roomy = *spec;
	_cleanup_free_ char *group = groups_id(spec);
	_cleanup_close_ int cgroup = -1;
	bool delegate = ns_cgroup_view(engine, spec->ns.profile) == CGROUP_VIEW_OWN;

	if (!engine_can(&engine->base, ENGINE_CAN_HIBERNATE))
		return err_set(err, ERR_UNSUPPORTED, "%s", engine->base.capture_problem);
	if (open_images(restoring, spec->state->dir, err) < 0)
		return -1;
	/* Root of the box, who has no rights outside, reads the images; the parent folder keeps
	 * others out. */
	if (fchmod(restoring->images, 0711) < 0)
		return err_sys(err, errno, "chmod the state");
	if (restoring->state.profile != spec->ns.profile)
		return err_set(err, ERR_INVALID, "the checkpoint is of a box with another profile");
	if (roomy.limits.pids)
		roomy.limits.pids += GROUPS_PIDS_MORE;
	if (cgroup_open_v2(engine->cgroups, group, &cgroup, err) < 0 ||
		ns_make_cgroups(engine, &roomy, delegate, &restoring->join, err) < 0 ||
		make_mounts(restoring, err) < 0 || note_files(restoring, err) < 0)
		return -1;
	return run(restoring, cgroup, err);
}

int ns_restore(struct ns_engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err)
{
	struct restoring *restoring = xnew(struct restoring);
	struct ns_instance *instance;

	*restoring = (struct restoring){ .engine = engine,
		.next = engine->restorings,
		.hostname = xstrdup(spec->hostname),
		.images = -1,
		.parent = -1,
		.work = -1,
		.socket = -1,
		.uid_base = spec->ns.uid_base,
		.time_passes = spec->state->time_passes,
		.root = -1,
		.bin = -1,
		.containers = -1,
		.docker = -1,
		.run_tree = -1,
		.shm_tree = -1,
		.spec = spec };
	memset(restoring->mounts, 0xff, sizeof restoring->mounts);
	engine->restorings = restoring;
	if (begin(restoring, err) < 0) {
		_cleanup_free_ char *group = groups_id(spec);

		restoring_free(restoring);
		cgroup_remove(engine->cgroups, group, NULL);
		return err_wrap(err, "restore box '%s'", spec->id);
	}
	let_go_of_fds(restoring);
	instance = ns_instance_new(engine, spec, ops, arg);
	instance->state = NS_STARTING;
	instance->restoring = restoring;
	restoring->instance = instance;
	*ret = &instance->base;
	return 0;
}
