/* api_internal.h - what the files of the front door share
 *
 *   api.c        opening and closing; a request becomes a call: door, route, scope, query, body
 *   routes.c     the table of all calls; openapi.c and schemas.c print it
 *   auth.c       who may come in
 *   input.c      what clients send: paths, modes, signals, queries
 *   exec_body.c  the description of a program; box_body.c that of a box
 *   ndjson.c     lines of streamed answers
 *   exchange.c   a client on one side, a program or a task in a box on the other
 *   follow.c     a client on one side, a log that grows on the other
 *   ask.c        one question to a box, one JSON answer
 *   transfer.c   work on files of a box as an answer
 *   pump.c       a client on one side, bytes a helper makes on the other
 *   job.c        a client on one side, an image being made on the other
 *   boxes.c box_disk.c exec.c exec_ws.c execs.c logs.c files.c images.c image_jobs.c
 *   image_import.c
 *   timeline.c policy.c net.c ports.c pool.c volumes.c workspaces.c tokens.c keys.c
 *   events.c audit.c system.c                                                  the calls
 *
 * Neither http nor core's exec.h and task.h call back from inside a call made to them; each
 * callback here may therefore use its exchange to its end, and lets go of it there. */
#pragma once
#include "api/api.h"
#include "auth/auth.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "core/box.h"
#include "core/disk/disk.h"
#include "core/exec.h"
#include "core/files.h"
#include "core/time/timeline.h"
#include "core/yard.h"
#include "http/server.h"
#include "http/websocket.h"
#include "store/store.h"

enum {
	API_BODY_MAX = 1024 * 1024,
	API_PENDING_MAX =
		256 * 1024, /* bytes a client has not read yet; above this the box has to wait */
	API_PARAM_MAX = IMAGE_NAME_MAX + 1, /* a name in a path, decoded */
	API_PARAMS = 2,
};

/* ---- calls ----------------------------------------------------------------------------------- */

enum route_flag {
	/* The body is a JSON object (an empty one counts as {}), read before the handler runs. */
	ROUTE_BODY = 1,
	ROUTE_UPLOAD = 2,    /* the handler streams the body */
	ROUTE_STREAM = 4,    /* the answer is streamed; no HEAD */
	ROUTE_WEBSOCKET = 8, /* the answer is an upgrade */
};

struct query_key {
	const char *name; /* NULL ends the list */
	const char *type; /* of JSON schema: "string" "integer" "boolean" */
	const char *about;
	bool required;
};

struct call;
struct route {
	const char *method;
	const char *pattern;
	unsigned scope; /* enum scope; 0: no token needed */
	void (*handler)(struct call *call);
	const char *summary;
	const char *request; /* schema of the body, or NULL */
	const char *answer;  /* schema of the answer, or NULL: none */
	int status;
	unsigned flags;
	const struct query_key *query; /* or NULL; other keys are refused */
};

/* One request on its way to its handler; lives on the stack. */
struct call {
	struct api *api;
	struct yard *yard;
	struct http_request *request;
	const struct route *route;
	const struct principal *principal;	/* who asks */
	char params[API_PARAMS][API_PARAM_MAX]; /* values of the pattern's {…} */
	json_t *body;				/* ROUTE_BODY: an object, borrowed */
};

/* Something to stop when the daemon stops. */
struct live {
	struct live *prev, *next;
	void (*stop)(struct live *live);
};

/* follow.c: a client that follows a log of numbered entries. */
struct follow_ops {
	/* Writes a page of kept entries from *next on into out; *next moves past it. */
	int (*page)(void *arg, uint64_t *next, struct buf *out, bool *ret_more, struct err *err);
	void (*ended)(void *arg); /* the follow is freed, and arg is no longer used */
};
struct follow;
/* Starts the answer; the rest comes from the loop. ops is borrowed. */
struct follow *follow_new(
	struct call *call, uint64_t since, const struct follow_ops *ops, void *arg);
/* Passes a new entry on; one that is not wanted only moves the number. */
void follow_entry(struct follow *follow, uint64_t number, const json_t *entry, bool wanted);

struct api {
	struct yard *yard;
	struct auth *auth; /* borrowed */
	struct http_server *server;
	struct http_tls *tls; /* of the TCP listener; NULL: plain HTTP */
	char *home;	      /* without symlinks */
	uint16_t port;	      /* of the TCP listener, 0: closed */
	api_shutdown_fn shutdown;
	void *shutdown_arg;
	bool purge;
	bool hibernate;
	bool ending;	       /* a shutdown was asked for */
	struct later **askers; /* those who wait until boxes are hibernated for the shutdown */
	size_t asker_count;
	struct live lives;  /* head of a ring */
	struct buf scratch; /* buffer for one line of output */
};

void live_add(struct api *api, struct live *live, void (*stop)(struct live *live));
void live_remove(struct live *live); /* accepts one that was not added */

/* system.c: fails those who wait for boxes to be hibernated. */
void shutdown_askers_fail(struct api *api, const struct err *err);

void call_error(struct call *call, const struct err *err);
void call_json(struct call *call, int status, json_t *value); /* takes the reference */
void call_none(struct call *call);			      /* 204 */
const char *call_query(struct call *call, const char *key);
/* The box named by the path; NULL after answering 404. */
struct box *call_box(struct call *call);
/* The same, for requests that would wake a sleeping box: answers 409 to principals that may only
 * look. */
struct box *call_box_awake(struct call *call);
/* Whether the principal has one of these scopes (enum scope). */
bool call_may(const struct call *call, unsigned scopes);
/* Fails with ERR_FORBIDDEN unless the principal may create things for that owner. */
int call_check_owner(const struct call *call, const char *owner, struct err *err);
/* The principal for the audit log: "uid 0 by the socket", "token ci". Borrowed. */
const char *call_who(const struct call *call);

/* An answer that comes later, from a callback called once; the client may disconnect before.
 * policy.c */
struct later {
	struct http_request *request; /* NULL: it has disconnected */
	json_t *value;		      /* owned or NULL; what is already known */
};
struct later *later_new(struct call *call);
/* Frees later and returns the request to answer, or NULL. */
struct http_request *later_end(struct later *later);
/* execs.c: whether the path's {exec} is a valid id ([a-z0-9]+); false after answering 404. */
bool call_exec_id(struct call *call);

/* ---- routes.c, openapi.c -------------------------------------------------------------------- */

const struct route *route_table(size_t *ret_count);
/* NULL when there is none; *ret_allow then lists the methods of the path ("" if it is unknown; 64
 * bytes). */
const struct route *route_match(const char *method, const char *path,
	char params[API_PARAMS][API_PARAM_MAX], char *ret_allow);
json_t *schemas_json(void); /* new reference: name -> JSON schema */

/* ---- auth.c --------------------------------------------------------------------------------- */

/* Check Host and Origin of the TCP listener. host and origin may be NULL; address is the one we
 * listen on. */
int auth_check_host(const char *host, const char *address, uint16_t port, struct err *err);
int auth_check_origin(const char *origin, const char *host, struct err *err);
/* Checks Host and Origin, then the token where the route has a scope. *ret is the principal. */
int auth_check(struct api *api, struct http_request *request, const struct route *route,
	struct principal *ret, struct err *err);

/* ---- input.c -------------------------------------------------------------------------------- */

int input_mode(const char *what, const char *text, uint32_t *ret, struct err *err);
int input_signal(const char *text, uint32_t *ret, struct err *err); /* "TERM" "SIGTERM" "15" */
/* Absent keys leave *ret alone; a bare key means true. */
int input_query_bool(struct call *call, const char *key, bool *ret, struct err *err);
int input_query_u64(struct call *call, const char *key, uint64_t lowest, uint64_t highest,
	uint64_t *ret, struct err *err);
/* A time like 2026-01-02T03:04:05Z, or how long ago: 90s, 10m, 2h, 1d. In microseconds since
 * 1970. */
int input_query_time(struct call *call, const char *key, uint64_t *ret, struct err *err);
int input_query_offset(
	struct call *call, uint64_t *ret, struct err *err); /* offset=N or offset=end */
/* A size as integer or text; 0 or at least lowest. NULL and null leave *ret unchanged. */
int input_size(const char *what, json_t *value, uint64_t lowest, uint64_t *ret, struct err *err);
int input_cpu(json_t *value, uint64_t *ret_milli, struct err *err); /* likewise */
/* At least one word, at most EXEC_ARGV_MAX and 128 KiB in all. */
int input_argv(const char *what, json_t *argv, struct err *err);
int input_env(json_t *env, struct err *err);
int input_labels(json_t *labels, struct err *err);
/* Check volumes and mounts: types, names, paths and their number. NULL and null are valid. */
int input_volumes(json_t *volumes, struct err *err);
int input_mounts(json_t *mounts, struct err *err);
/* An object in the policy language or a text; core checks the content. */
int input_policy(json_t *policy, struct err *err);
int input_cache_key(const char *key, struct err *err); /* of a build step */
/* Removes a key from an object, for values json_read does not know; new reference or NULL. */
json_t *input_take(json_t *object, const char *key);

/* ---- exec_body.c ---------------------------------------------------------------------------- */

struct exec_body {
	struct exec_spec spec; /* strings borrowed from the JSON */
	const char **argv;
	char **env;
	uint8_t *input; /* stdin or stdin_b64; owned */
	size_t input_len;
	bool has_input;
};

int exec_body_read(json_t *body, struct exec_body *ret, struct err *err);
void exec_body_done(struct exec_body *body);

json_t *exec_json(const struct exec_info *info); /* ndjson.c; new reference */

/* ---- box_body.c ----------------------------------------------------------------------------- */

struct box_body {
	struct box_spec spec;			    /* strings borrowed from the JSON */
	struct box_sleep sleep;			    /* spec borrows it */
	struct limits tree;			    /* likewise */
	json_t *volumes, *mounts, *policy, *inside; /* owned; spec borrows them */
};
int box_body_read(json_t *body, struct box_body *ret, struct err *err);
void box_body_done(struct box_body *body);

struct box_change {
	const char *name;     /* NULL: unchanged; borrowed from the JSON */
	struct limits limits; /* BOX_LIMIT_DEFAULT in a field: unchanged */
	bool has_limits;
	enum on_limit on_limit;
	bool has_on_limit;
	struct limits tree;	     /* BOX_LIMIT_DEFAULT in a field: unchanged */
	bool has_tree, tree_as_head; /* tree_as_head: follow the first box again */
	json_t *inside;		     /* NULL: unchanged; owned */
	const char *auto_snapshot;   /* NULL: unchanged; borrowed from the JSON */
	struct box_sleep sleep;	     /* BOX_SLEEP_LEAVE in a field: unchanged */
	bool has_sleep;
};
/* Fails without at least one key. */
int box_change_read(json_t *body, struct box_change *ret, struct err *err);
void box_change_done(struct box_change *change);

/* ---- timeline.c ----------------------------------------------------------------------------- */

/* Strings are borrowed from the JSON. */
int snapshot_body_read(json_t *body, struct snapshot_spec *ret, struct err *err);
int rollback_body_read(json_t *body, struct rollback_spec *ret, struct err *err);
struct fork_body {
	struct fork_spec spec; /* what it points at is borrowed from the JSON */
	json_t *policy;	       /* owned; spec borrows it */
};
int fork_body_read(json_t *body, struct fork_body *ret, struct err *err);
void fork_body_done(struct fork_body *body);
/* A save with "full": true; its callback answers with the image. */
void api_box_save_full(struct call *call, struct box *box, const char *name);

/* ---- ndjson.c ------------------------------------------------------------------------------- */

/* Appends one line each. */
void ndjson_output(
	struct buf *out, enum exec_stream stream, uint64_t offset, const void *data, size_t len);
/* time_us 0: unknown. */
void ndjson_output_at(struct buf *out, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const void *data, size_t len);
void ndjson_gap(struct buf *out, uint64_t offset, uint64_t lost);
void ndjson_exit(struct buf *out, const struct exec_end *end);
void ndjson_start(struct buf *out, json_t *exec); /* takes exec */
void ndjson_error(struct buf *out, const struct err *err);
void ndjson_add(struct buf *out, const json_t *value); /* any value and a newline */

/* ---- exchange.c ----------------------------------------------------------------------------- */

/* A client (an HTTP request or a WebSocket) and work in a box; either may end first. It is freed
 * when both have ended: every callback ends with exchange_settle(). Others embed it as their first
 * member. */
struct exchange {
	struct api *api;
	struct http_request *request; /* NULL: answered, or the client has disconnected */
	struct websocket *ws;	      /* NULL: likewise */
	struct exec *exec;	      /* a program, or */
	struct task *task;	      /* anything else in the box; NULL: ended */
	/* bytes given to the client, not yet returned to the box's window */
	size_t owed;
	void (*done)(struct exchange *x); /* frees; the exchange's own parts are already released */
};

/* Takes the request; when the client disconnects, the box's side is closed. */
void exchange_init(struct exchange *x, struct call *call, void (*done)(struct exchange *x));
void exchange_settle(struct exchange *x);
void exchange_close(struct exchange *x); /* the box's side */
/* The client's side. Each of these four ends the request. */
void exchange_json(struct exchange *x, int status, json_t *value);
void exchange_none(struct exchange *x); /* 204 */
void exchange_error(struct exchange *x, const struct err *err);
void exchange_end(struct exchange *x);
void exchange_write(struct exchange *x, const void *data, size_t len);
/* len bytes from the box went to the client: they are returned to the box's window once the client
 * has room. */
void exchange_passed(struct exchange *x, size_t len);
void exchange_drained(struct exchange *x);

/* ---- ask.c ---------------------------------------------------------------------------------- */

/* A question about the box named by the path. started: the return value of the call that filled
 * x->task or x->exec; ask_answer is its callback (json_done), and a NULL result without err is
 * 204. */
struct exchange *ask_new(struct call *call);
void ask_started(struct exchange *x, int started, const struct err *err);
void ask_answer(json_t *result, const struct err *err, void *arg);

/* ---- transfer.c, files.c -------------------------------------------------------------------- */

/* Does the work and answers the call with its result. */
void transfer(struct call *call, const struct file_spec *spec);
json_t *file_json(const struct file_info *info); /* new reference */

/* ---- pump.c --------------------------------------------------------------------------------- */

/* Streams bytes from a helper as the answer, as fast as the client reads. An error before the first
 * byte is an ordinary error answer, a later one closes the connection; a client that disconnects
 * ends the helper.
 *
 *   struct pump *pump = pump_new(call, "application/x-tar");
 *   pump_started(pump, workspace_get_start(…, &pump_ops, pump, &pump->stream, &err), &err); */
struct pump {
	struct api *api;
	struct http_request *request;
	struct disk_stream *stream;
	const char *content_type;
	bool begun;
};
extern const struct disk_stream_ops pump_ops;
struct pump *pump_new(struct call *call, const char *content_type);
void pump_started(struct pump *pump, int started, const struct err *err);

/* ---- job.c ---------------------------------------------------------------------------------- */

/* An image being made, and the client that asked for it: when the client disconnects the work is
 * cancelled and leaves nothing. Others embed it as their first member. */
struct job {
	struct api *api;
	struct http_request *request;
	struct image_job *run;
	struct principal principal;    /* who asked */
	const char *event;	       /* raised on success */
	bool lines;		       /* stream progress; else one answer, 201 and the image */
	char *box;		       /* id of the box it is made from, or NULL; owned */
	void (*done)(struct job *job); /* frees the enclosing struct, after the answer */
};
extern const struct image_job_ops job_ops;
void job_init(struct job *job, struct call *call, const char *event, bool lines,
	void (*done)(struct job *job));
/* started: the return value of the …_start call that filled job->run; a failure is answered, and
 * false returned. */
bool job_started(struct job *job, int started, const struct err *err);

/* ---- the calls ------------------------------------------------------------------------------ */

void api_boxes_create(struct call *call);
void api_boxes_list(struct call *call);
void api_box_show(struct call *call);
void api_box_change(struct call *call);
void api_box_remove(struct call *call);
void api_box_start(struct call *call);
void api_box_stop(struct call *call);
void api_box_suspend(struct call *call);
void api_box_resume(struct call *call);
void api_box_save(struct call *call);
void api_box_hibernate(struct call *call);
void api_box_wake(struct call *call);
void api_box_snapshot(struct call *call);
void api_box_timeline(struct call *call);
void api_snapshot_remove(struct call *call);
void api_box_rollback(struct call *call);
void api_box_fork(struct call *call);
void api_box_promote(struct call *call);
void api_box_diff(struct call *call);
void api_compare(struct call *call);
void api_box_stats(struct call *call);
void api_box_processes(struct call *call);
void api_policy_show(struct call *call);
void api_policy_set(struct call *call);
void api_policy_explain(struct call *call);
void api_policy_record(struct call *call);
void api_policy_proposal(struct call *call);
void api_policy_check(struct call *call);
void api_policy_presets(struct call *call);
void api_ports_list(struct call *call);
void api_port_set(struct call *call);
void api_port_remove(struct call *call);
void api_box_url(struct call *call);
void api_box_login(struct call *call);
void api_box_net(struct call *call);
void api_net(struct call *call);
void api_exec(struct call *call);
void api_exec_ws(struct call *call);
void api_execs_list(struct call *call);
void api_exec_show(struct call *call);
void api_exec_signal(struct call *call);
void api_exec_logs(struct call *call);
void api_exec_attach(struct call *call);
void api_file_read(struct call *call);
void api_file_write(struct call *call);
void api_file_remove(struct call *call);
void api_file_stat(struct call *call);
void api_file_list(struct call *call);
void api_file_mkdir(struct call *call);
void api_file_rename(struct call *call);
void api_file_chmod(struct call *call);
void api_archive_read(struct call *call);
void api_archive_write(struct call *call);
void api_images_list(struct call *call);
void api_image_build(struct call *call);
void api_image_pull(struct call *call);
void api_image_import(struct call *call);
void api_images_gc(struct call *call);
void api_image_show(struct call *call);
void api_image_export(struct call *call);
void api_image_tag(struct call *call);
void api_image_remove(struct call *call);
void api_pool_show(struct call *call);
void api_pool_grow(struct call *call);
void api_pool_scrub(struct call *call);
void api_volumes_list(struct call *call);
void api_volume_create(struct call *call);
void api_volume_show(struct call *call);
void api_volume_change(struct call *call);
void api_volume_remove(struct call *call);
void api_workspaces_list(struct call *call);
void api_workspace_list(struct call *call);
void api_workspace_archive(struct call *call);
void api_workspace_remove(struct call *call);
void api_tokens_list(struct call *call);
void api_token_create(struct call *call);
void api_token_revoke(struct call *call);
void api_keys_list(struct call *call);
void api_key_add(struct call *call);
void api_key_show(struct call *call);
void api_key_remove(struct call *call);
void api_events(struct call *call);
void api_audit(struct call *call);
void api_audit_verify(struct call *call);
void api_stats(struct call *call);
void api_info(struct call *call);
void api_doctor(struct call *call);
void api_health(struct call *call);
void api_openapi_json(struct call *call);
void api_shutdown(struct call *call);
