/* criu.h - processes with their memory into files and back, by CRIU
 *
 * One struct criu is one run of the criu program with one request. It is a process of its own that
 * talks to the loop by messages; nothing here blocks but criu_free. CRIU parses the memory and the
 * kernel objects of hostile processes: what it says is read strictly and bounded.
 *
 * On its way it stops at events and goes on when the caller has answered.
 *   dump      pre-dump, network-lock, query-ext-files, (memory is written), post-dump, with
 *             leave_running network-unlock. Processes stand still from network-lock on: what must
 *             fit the images (the disk) is copied at post-dump, the last event that can be refused.
 *             Without leave_running they are killed after it: the images are whole.
 *   restore   pre-restore, setup-namespaces (the new PID 1 is known, its network can be made),
 *             post-setup-namespaces, post-restore (everything is there, still stopped),
 *             network-unlock, pre-resume, post-resume.
 *
 * A dump that is refused or cancelled, or whose caller dies, undoes what it did to the processes. A
 * killed criu mostly does too: what it put into them ends by itself when the connection to it is
 * cut. But while it puts code into a process or takes it out, a kill of criu is the end of that
 * process (SIGTRAP). A criu that is killed while it restores takes along what it made; once the
 * caller has agreed to pre-resume all of it goes on, and the run succeeds, or none of it has run.
 * The time limit is for a criu that hangs, which it does elsewhere; nobody
 * should kill it in a hurry. A restore whose caller dies is killed, and what it made is left where
 * it is: in its cgroup, for the caller's successor to remove. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct criu;
struct loop;

enum criu_event_kind {
	CRIU_PRE_DUMP,
	CRIU_NETWORK_LOCK,
	CRIU_QUERY_EXT_FILES,
	CRIU_POST_DUMP,
	CRIU_NETWORK_UNLOCK,
	CRIU_PRE_RESTORE,
	CRIU_SETUP_NAMESPACES,
	CRIU_POST_SETUP_NAMESPACES,
	CRIU_POST_RESTORE,
	CRIU_PRE_RESUME,
	CRIU_POST_RESUME,
	CRIU_EVENT_COUNT
};
const char *criu_event_name(enum criu_event_kind kind); /* "setup-namespaces" */
/* For people: what happens after the event, "memory was read". */
const char *criu_event_work(enum criu_event_kind kind);

enum { CRIU_LOG_MAX = 8192, CRIU_INHERIT_MAX = 16, CRIU_STRINGS_MAX = 256 };

/* A file descriptor of the caller that replaces a restored process's descriptor with this key:
 * "pipe:[1234]", "socket:[1234]", "/path" or the name given to a dump's external. */
struct criu_inherit {
	const char *key;
	int fd;
};

/* A criu process started ahead for a dump, because a start takes milliseconds. It ends with its
 * caller. */
struct criu_spare;
struct criu_request;
int criu_spare_start(const struct criu_request *request, struct criu_spare **ret,
	struct err *err);			/* only program and scratch are used */
void criu_spare_free(struct criu_spare *spare); /* accepts NULL */

struct criu_request {
	/* A spare with the same program and scratch, for a dump; used up by the call, also when it
	 * fails. NULL: start one now. */
	struct criu_spare *spare;
	const char *program; /* path of criu */
	/* Directories; borrowed until the call returns. work: where logs go (dump.log,
	 * restore.log); -1: images. */
	int images;
	int work;
	pid_t pid; /* dump: the topmost process, as the caller sees it */

	/* What a dump saves and a restore brings back; both need the same values. */
	bool leave_running;   /* dump: the processes continue afterwards */
	bool ext_unix_sk;     /* Unix sockets whose other end is outside */
	bool tcp_established; /* connections, within the tree and to the outside */
	/* Connections not accepted yet are left out instead of failing the dump. */
	bool tcp_skip_in_flight;
	bool tcp_close; /* restore: connections exist, but are closed */
	bool file_locks;
	bool link_remap;  /* deleted files that still have another name */
	bool force_irmap; /* inotify: look files up in irmap_paths */
	bool orphan_pts_master;
	bool lazy_pages; /* restore: memory comes from a lazy-pages process */
	bool skip_file_rwx_check;
	/* restore: punch holes into the images as they are read. dump, with our CRIU: the links
	 * that link_remap made on the disk stay */
	bool auto_dedup;
	bool weak_sysctls;
	bool mntns_compat_mode;
	/* maximum size of a deleted file that is still open; 0: CRIU's default */
	uint32_t ghost_limit;
	uint32_t empty_ns; /* CLONE_NEWNET: the caller sets it up in setup-namespaces */
	/* dump: time limit for stopping everything; 0: CRIU's default (10) */
	uint32_t seize_seconds;
	const char *const *external; /* "mnt[/run]:run"; NULL: none. A restore: "mnt[run]:/path" */
	const char *const *irmap_paths; /* NULL: none */
	const char *const *skip_mounts; /* NULL: none */
	const char *const *enable_fs;	/* NULL: none */
	/* dump: path of the cgroup that freezes the processes; one that was frozen stays frozen.
	 * NULL: process by process */
	const char *freeze_cgroup;
	const char *root; /* restore: a mount that becomes the new root */
	/* restore, with our CRIU: the clocks of the box continue as if it had been awake since the
	 * dump */
	bool time_passes;
	/* restore, with our CRIU: the uid that makes the user namespace, and is charged for what is
	 * used in it; 0: root */
	uint32_t owner;
	const char *lsm_profile;	    /* restore; NULL: as it was */
	const struct criu_inherit *inherit; /* restore */
	size_t inherit_count;

	/* The process itself. */
	/* Time limit, including the caller's time in events; the process is killed then. 0 is
	 * refused. */
	uint64_t limit_ms;
	int log_level; /* 0: errors only; to 4 */
	/* Directory of a v2 group it runs in: restored processes are born there. -1: the
	 * caller's. */
	int cgroup;
	/* A directory on a tmpfs that becomes its /run and /tmp, in its own mount namespace: CRIU
	 * caches there what it learns about the kernel, otherwise each run takes twice as long.
	 * `root` and `external` are resolved there. -1: it stays in the caller's mount namespace,
	 * with the machine's /run. */
	int scratch;
	/* Runs in the new process right before the exec; may be NULL. Must not allocate or log. It
	 * may join cgroups, enter namespaces, attach mounts: with `scratch` only detached ones,
	 * because the process has left the caller's mount namespace. */
	int (*prepare)(void *arg, struct err *err);
	void *prepare_arg;
};
/* No fd, no options; log_level 1, and a limit of a minute. */
#define CRIU_REQUEST_INIT                                                              \
	{                                                                              \
		.images = -1, .work = -1, .cgroup = -1, .scratch = -1, .log_level = 1, \
		.limit_ms = 60000                                                      \
	}

struct criu_event {
	enum criu_event_kind kind;
	/* From setup-namespaces on: the topmost restored process, a child of the caller's.
	 * Borrowed. */
	pid_t pid; /* 0: not known */
	int pidfd; /* -1: not known */
};

struct criu_version {
	int major, minor, sublevel;
};

struct criu_result {
	struct criu_version version; /* of criu_ask_version */
	pid_t pid;		     /* restore: the topmost process */
	int pidfd;		     /* the same; yours to close. -1: none */
	/* When it failed: the end of its log, whole lines, printable; else "". Borrowed, as the
	 * result is. */
	const char *log;
	bool held; /* of a restore that failed: agreed to pre-resume, and nothing has run */
};

/* Called from the loop, never from inside the calls below. Each may free the run. */
struct criu_ops {
	/* The run waits for criu_answer, which may come later. NULL: all events are agreed to. */
	void (*on_event)(struct criu *criu, const struct criu_event *event, void *arg);
	/* The work has succeeded; the process ends in a moment. May be NULL; must not free the
	 * run. */
	void (*on_replied)(struct criu *criu, void *arg);
	/* Called exactly once, unless freed before: the process has ended. err->kind is ERR_NONE on
	 * success; ERR_TIMEOUT when it was killed at its limit, ERR_CANCELLED after criu_cancel,
	 * ERR_NOT_FOUND when the process to dump does not exist, ERR_EXISTS when a pid to restore
	 * is taken, ERR_UNAVAILABLE when criu died. A failed dump has released its processes; a
	 * failed restore has left none. Free the run. */
	void (*on_done)(struct criu *criu, const struct criu_result *result, const struct err *err,
		void *arg);
};

int criu_dump(struct loop *loop, const struct criu_request *request, const struct criu_ops *ops,
	void *arg, struct criu **ret, struct err *err);
int criu_restore(struct loop *loop, const struct criu_request *request, const struct criu_ops *ops,
	void *arg, struct criu **ret, struct err *err);
/* Whether this kernel has what CRIU needs. Needs no images. */
int criu_check(struct loop *loop, const struct criu_request *request, const struct criu_ops *ops,
	void *arg, struct criu **ret, struct err *err);
int criu_ask_version(struct loop *loop, const struct criu_request *request,
	const struct criu_ops *ops, void *arg, struct criu **ret, struct err *err);

/* Answers the last event; once for each. With ok false the operation fails: processes of a dump
 * continue, those of a restore end without having run (except at post-resume). reason (may be NULL)
 * becomes the error. */
void criu_answer(struct criu *criu, bool ok, const struct err *reason);
/* Makes the operation fail: at once if an event is open, else at the next one. It may have
 * succeeded before. */
void criu_cancel(struct criu *criu);
/* Kills a running criu and what it was restoring, and waits for that; no callback. Accepts NULL. A
 * killed dump without freeze_cgroup leaves its processes running; with it, the caller thaws the
 * group. */
void criu_free(struct criu *criu);
/* Releases it without a kill or callback: a dump fails at its next event and undoes its work, a
 * restore that has released its processes ends by itself. Accepts NULL. */
void criu_abandon(struct criu *criu);

/* Why a run failed, in words for people: the first known error of a log ("process 17 (node) uses
 * io_uring"), with the process as the box numbers it where the log says so, one printable line.
 * False and "" when none is known. on_done's error says it already. */
bool criu_explain(const char *log, char *out, size_t size);
