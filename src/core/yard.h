/* yard.h - everything one daemon has: its boxes, images, store, engines, events */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdint.h>

struct conf;
struct engine_ops;
struct images;
struct loop;
struct pool;
struct store;
struct yard;

/* Opens the home: adopts running boxes, finishes or undoes half-done changes, removes orphans. conf
 * is borrowed for the yard's life. */
int yard_open(struct loop *loop, const struct conf *conf, struct yard **ret, struct err *err);
/* The same with a given list of drivers, ending with NULL. */
int yard_open_with(struct loop *loop, const struct conf *conf,
	const struct engine_ops *const *drivers, struct yard **ret, struct err *err);
/* Releases everything; boxes run on. Accepts NULL. */
void yard_close(struct yard *yard);

/* Stops and removes all boxes, then calls done with what could not be removed (NULL: all was). */
void yard_purge(struct yard *yard, void (*done)(const struct err *err, void *arg), void *arg);

/* Fails with ERR_UNAVAILABLE when the daemon is shutting down: boxes are neither created nor woken
 * any more. */
int yard_check_stays(const struct yard *yard, struct err *err);

struct images *yard_get_images(struct yard *yard);
struct pool *yard_get_pool(struct yard *yard);
struct store *yard_get_store(struct yard *yard);
struct loop *yard_get_loop(struct yard *yard);
const struct conf *yard_get_conf(struct yard *yard);

json_t *yard_info_json(struct yard *yard); /* version, home, counts, drivers; new reference */
/* What info says of SSH, which core knows nothing of; takes the reference. NULL: nothing. */
void yard_set_ssh_info(struct yard *yard, json_t *info);
/* The same without a daemon, as far as possible; for root. May block for a second. */
int yard_doctor_alone(const struct conf *conf, json_t **ret, struct err *err);
json_t *yard_doctor_json(
	struct yard *yard); /* {"ok":bool,"checks":[{"name","ok","detail","hint","required"}]} */
json_t *yard_stats_json(struct yard *yard); /* {"boxes":[box_stats_json...]} of the running boxes */

/* ---- events: what happened, with offsets ----------------------------------------------------- */

struct box;
/* Called when a box that box_port_connect was waiting for has woken, or cannot be: err. Any number
 * of front doors watch; they are called in the order they registered. A watch may be freed during
 * these calls. */
typedef void (*woken_fn)(struct box *box, const struct err *err, void *arg);
struct woken_watch;
struct woken_watch *woken_watch_new(struct yard *yard, woken_fn fn, void *arg);
void woken_watch_free(struct woken_watch *watch); /* accepts NULL */

struct event_feed;

/* Records an event and hands it to the feeds. box may be NULL; data may be NULL and is consumed. */
void yard_event(struct yard *yard, const char *type, struct box *box, json_t *data);
/* {"events":[...],"next":N,"oldest":N,"missing":N}: at most limit events from since on; box_id and
 * owner may be NULL: all. From oldest on none is missing; "missing" counts those between since and
 * oldest. An event without a box belongs to the owner of who caused it, the daemon's own events to
 * OWNER_LOCAL. */
json_t *yard_events_json(struct yard *yard, uint64_t since, const char *box_id, const char *owner,
	unsigned limit, struct err *err);
/* Called for each event from now on; event is borrowed for the call. */
typedef void (*event_fn)(json_t *event, void *arg);
struct event_feed *event_feed_new(struct yard *yard, event_fn fn, void *arg);
void event_feed_free(struct event_feed *feed); /* accepts NULL */
