/* audit.c - what boxes tried: a page of the audit log, a stream that goes on (follow.c), and
 * whether its chain is whole
 *
 * The work of a page is bounded by the log, so one with a narrow filter may be empty without being
 * the last. */
#include "api/api_internal.h"
#include "audit/audit.h"
#include "core/boxnet/audit.h"
#include "core/boxnet/network.h"
#include "store/store.h"

enum {
	PAGE = 500,
	LIMIT_DEFAULT = 100,
	LIMIT_MAX = 1000,
};

struct wanted {
	char *box;	     /* id, or the name of a removed box; NULL: all */
	const char *verdict; /* a literal, or NULL: both */
	char *owner;	     /* only this owner's; NULL: all */
};

static struct audit_filter filter_of(const struct wanted *wanted)
{
	return (struct audit_filter){ wanted->box, wanted->verdict, wanted->owner };
}

static void wanted_done(struct wanted *wanted)
{
	free(wanted->box);
	free(wanted->owner);
}

static int read_verdict(struct call *call, const char **ret, struct err *err)
{
	static const char *const verdicts[] = { "allowed", "refused" };
	const char *text = call_query(call, "verdict");

	*ret = NULL;
	for (size_t i = 0; text && i < ARRAY_LEN(verdicts); i++)
		if (!strcmp(text, verdicts[i]))
			*ret = verdicts[i];
	if (text && !*ret)
		return err_set(err, ERR_INVALID, "'verdict' must be allowed or refused");
	return 0;
}

/* ---- following ------------------------------------------------------------------------------ */

struct follower {
	struct audit *audit;
	struct follow *follow;
	struct audit_feed *feed;
	struct wanted wanted;
};

static int put_page(void *arg, uint64_t *next, struct buf *out, bool *ret_more, struct err *err)
{
	struct follower *follower = arg;
	const struct audit_filter filter = filter_of(&follower->wanted);
	uint64_t since = *next, oldest;
	_cleanup_json_ json_t *lines = audit_read(follower->audit, since, &filter, PAGE, next, err);
	json_t *line;
	size_t i;

	if (!lines)
		return -1;
	oldest = audit_get_oldest(follower->audit);
	if (since && oldest > since)
		ndjson_gap(out, since, oldest - since);
	json_array_foreach (lines, i, line)
		ndjson_add(out, line);
	*ret_more = *next < audit_get_next(follower->audit);
	return 0;
}

static void on_ended(void *arg)
{
	struct follower *follower = arg;

	audit_feed_free(follower->feed);
	wanted_done(&follower->wanted);
	free(follower);
}

static const struct follow_ops follow_ops = { .page = put_page, .ended = on_ended };

static void on_line(void *arg, json_t *line)
{
	struct follower *follower = arg;
	const struct audit_filter filter = filter_of(&follower->wanted);

	follow_entry(follower->follow, (uint64_t)json_integer_value(json_object_get(line, "seq")),
		line, audit_fits(line, &filter));
}

static void follow(struct call *call, struct audit *audit, uint64_t since, struct wanted *wanted)
{
	struct follower *follower = xnew(struct follower);

	follower->audit = audit;
	follower->wanted = *wanted;
	*wanted = (struct wanted){ 0 };
	follower->feed = audit_feed_new(audit, on_line, follower);
	follower->follow = follow_new(call, since, &follow_ops, follower);
}

/* ---- a page --------------------------------------------------------------------------------- */

static void answer_page(struct call *call, struct audit *audit, uint64_t since, uint64_t limit,
	const struct wanted *wanted)
{
	const struct audit_filter filter = filter_of(wanted);
	struct err err = ERR_INIT;
	uint64_t next = 0;
	json_t *lines = audit_read(audit, since, &filter, (unsigned)limit, &next, &err);

	if (!lines)
		return call_error(call, &err);
	call_json(call, 200,
		json_pack("{s:o,s:o,s:o,s:b,s:o}", "lines", lines, "next", json_from_u64(next),
			"oldest", json_from_u64(audit_get_oldest(audit)), "more",
			next < audit_get_next(audit), "logs", yard_audit_logs(call->yard)));
}

/* Checks that a removed box has left lines or events. For old lines of a long log, the log must be
 * read to find out. */
static int check_known(
	struct call *call, struct audit *audit, const char *box, bool old, struct err *err)
{
	const char *owner = yard_only_owner(call->yard);
	const struct event_filter events = { .box_id = box, .owner = owner };
	const struct audit_filter lines = { .box = box, .owner = owner };
	uint64_t count = 0, first;
	bool all;

	if (store_event_tail(yard_get_store(call->yard), &events, 1, &count, &first, err) < 0)
		return -1;
	if (count || audit_knows(audit, &lines, &all) || (old && !all))
		return 0;
	err_set(err, ERR_NOT_FOUND, "no box '%.80s', and no line about one%s", box,
		all ? "" : " among the newest");
	return all ? -1 : err_hint(err, "since=0 ('box audit --since 0') looks through all");
}

void api_audit(struct call *call)
{
	struct err err = ERR_INIT;
	struct audit *audit = yard_find_audit(call->yard, call_query(call, "log"), &err);
	const char *name = call_query(call, "box");
	/* A removed box is found by its id, or by the name it had. */
	struct box *box = name ? box_find(call->yard, name, NULL) : NULL;
	struct wanted wanted = { .box = xstrdup(box ? box_get_id(box) : name),
		.owner = xstrdup(yard_only_owner(call->yard)) };
	uint64_t since = UINT64_MAX, limit = LIMIT_DEFAULT;
	bool following = false;

	if (!audit) {
		call_error(call, &err);
	} else if (input_query_u64(call, "since", 0, INT64_MAX, &since, &err) < 0 ||
		   input_query_u64(call, "limit", 0, LIMIT_MAX, &limit, &err) < 0 ||
		   input_query_bool(call, "follow", &following, &err) < 0 ||
		   read_verdict(call, &wanted.verdict, &err) < 0 ||
		   (name && !box &&
			   check_known(call, audit, name, since != UINT64_MAX, &err) < 0)) {
		call_error(call, &err);
	} else {
		const struct audit_filter filter = filter_of(&wanted);

		if (since == UINT64_MAX)
			since = audit_recent(audit, &filter, (unsigned)limit);
		if (following)
			follow(call, audit, since, &wanted);
		else
			answer_page(call, audit, since, limit, &wanted);
	}
	wanted_done(&wanted);
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Ends with its client: nobody else would see the result. */
struct checking {
	struct http_request *request;
	struct audit_check *check;
};

static void check_done(void *arg, json_t *result, const struct err *err)
{
	struct checking *checking = arg;

	if (result)
		http_reply_json(checking->request, 200, json_incref(result));
	else
		http_reply_error(checking->request, err);
	free(checking);
}

static void check_gone(struct http_request *request, void *arg)
{
	struct checking *checking = arg;

	(void)request;
	audit_check_free(checking->check);
	free(checking);
}

void api_audit_verify(struct call *call)
{
	struct checking *checking = xnew(struct checking);
	struct err err = ERR_INIT;

	checking->request = call->request;
	if (audit_check_start(call->yard, call_query(call, "log"), check_done, checking,
		    &checking->check, &err) < 0) {
		free(checking);
		return call_error(call, &err);
	}
	http_request_on_gone(call->request, check_gone, checking);
}
