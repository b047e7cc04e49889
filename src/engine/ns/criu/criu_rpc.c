/* criu_rpc.c - see criu_rpc.h
 *
 * Known fields are read strictly: the right wire type, once, in range. Unknown fields are skipped
 * if they are complete: a newer CRIU may say more. */
#include "engine/ns/criu/criu_rpc.h"
#include "engine/ns/criu/protobuf.h"
#include <errno.h>

/* ---- writing -------------------------------------------------------------------------------- */

/* Options that are passed on as they are; false, 0 or NULL means CRIU's default. */
enum option_kind { OPTION_FLAG, OPTION_NUMBER, OPTION_STRING, OPTION_STRINGS };
static const struct {
	unsigned field;
	enum option_kind kind;
	size_t offset;
} options[] = {
	{ 3, OPTION_FLAG, offsetof(struct criu_request, leave_running) },
	{ 4, OPTION_FLAG, offsetof(struct criu_request, ext_unix_sk) },
	{ 5, OPTION_FLAG, offsetof(struct criu_request, tcp_established) },
	{ 8, OPTION_FLAG, offsetof(struct criu_request, file_locks) },
	{ 13, OPTION_STRING, offsetof(struct criu_request, root) },
	{ 16, OPTION_FLAG, offsetof(struct criu_request, auto_dedup) },
	{ 18, OPTION_FLAG, offsetof(struct criu_request, link_remap) },
	{ 21, OPTION_FLAG, offsetof(struct criu_request, force_irmap) },
	{ 31, OPTION_STRINGS, offsetof(struct criu_request, skip_mounts) },
	{ 32, OPTION_STRINGS, offsetof(struct criu_request, enable_fs) },
	{ 35, OPTION_NUMBER, offsetof(struct criu_request, ghost_limit) },
	{ 36, OPTION_STRINGS, offsetof(struct criu_request, irmap_paths) },
	{ 37, OPTION_STRINGS, offsetof(struct criu_request, external) },
	{ 38, OPTION_NUMBER, offsetof(struct criu_request, empty_ns) },
	{ 44, OPTION_STRING, offsetof(struct criu_request, freeze_cgroup) },
	{ 45, OPTION_NUMBER, offsetof(struct criu_request, seize_seconds) },
	{ 46, OPTION_FLAG, offsetof(struct criu_request, tcp_skip_in_flight) },
	{ 47, OPTION_FLAG, offsetof(struct criu_request, weak_sysctls) },
	{ 48, OPTION_FLAG, offsetof(struct criu_request, lazy_pages) },
	{ 50, OPTION_FLAG, offsetof(struct criu_request, orphan_pts_master) },
	{ 52, OPTION_FLAG, offsetof(struct criu_request, tcp_close) },
	{ 53, OPTION_STRING, offsetof(struct criu_request, lsm_profile) },
	{ 65, OPTION_FLAG, offsetof(struct criu_request, mntns_compat_mode) },
	{ 66, OPTION_FLAG, offsetof(struct criu_request, skip_file_rwx_check) },
};

static void put_strings(struct buf *out, unsigned field, const char *const *strings)
{
	for (; strings && *strings; strings++)
		pb_put_string(out, field, *strings);
}

static void put_option(struct buf *out, unsigned field, enum option_kind kind, const void *value)
{
	switch (kind) {
	case OPTION_FLAG:
		if (*(const bool *)value)
			pb_put_number(out, field, 1);
		break;
	case OPTION_NUMBER:
		if (*(const uint32_t *)value)
			pb_put_number(out, field, *(const uint32_t *)value);
		break;
	case OPTION_STRING:
		if (*(const char *const *)value)
			pb_put_string(out, field, *(const char *const *)value);
		break;
	case OPTION_STRINGS:
		put_strings(out, field, *(const char *const *const *)value);
		break;
	}
}

static void put_inherit(struct buf *out, const struct criu_request *request)
{
	for (size_t i = 0; i < request->inherit_count; i++) {
		struct buf one = BUF_INIT;

		pb_put_string(&one, 1, request->inherit[i].key);
		pb_put_int(&one, 2, request->inherit[i].fd);
		pb_put_bytes(out, 27, buf_head(&one), one.len);
		buf_done(&one);
	}
}

/* The caller handles cgroups, and cuts off a box's network by other means than CRIU's rules. */
enum { CGROUPS_IGNORE = 0, NETWORK_LOCK_SKIP = 3 };

static void put_work(struct buf *out, enum criu_type type, const struct criu_request *request)
{
	const char *base = (const char *)request;

	pb_put_int(out, 1, request->images);
	if (type == CRIU_TYPE_DUMP)
		pb_put_int(out, 2, request->pid);
	pb_put_int(out, 9, request->log_level);
	pb_put_string(out, 10, type == CRIU_TYPE_DUMP ? "dump.log" : "restore.log");
	pb_put_number(out, 12, true); /* send events */
	if (request->work >= 0)
		pb_put_int(out, 17, request->work);
	if (type == CRIU_TYPE_RESTORE)
		pb_put_number(out, 26, true); /* restored processes are our children, not CRIU's */
	put_inherit(out, request);
	pb_put_int(out, 34, CGROUPS_IGNORE);
	pb_put_int(out, 64, NETWORK_LOCK_SKIP);
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		put_option(out, options[i].field, options[i].kind, base + options[i].offset);
}

void criu_rpc_put_request(struct buf *out, enum criu_type type, const struct criu_request *request)
{
	struct buf body = BUF_INIT;

	pb_put_int(out, 1, type);
	if (type == CRIU_TYPE_DUMP || type == CRIU_TYPE_RESTORE) {
		put_work(&body, type, request);
		pb_put_bytes(out, 2, buf_head(&body), body.len);
		buf_done(&body);
	}
}

void criu_rpc_put_notified(struct buf *out, bool ok)
{
	pb_put_int(out, 1, CRIU_TYPE_NOTIFY);
	pb_put_number(out, 3, ok);
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
	const uint8_t *at, *end;
	bool bad;
};

struct field {
	unsigned number;
	enum pb_wire wire;
	uint64_t value;	     /* of a varint */
	struct reader bytes; /* of bytes */
};

static uint64_t get_varint(struct reader *in)
{
	uint64_t value = 0;

	for (unsigned shift = 0; in->at < in->end && shift < 70; shift += 7) {
		uint8_t byte = *in->at++;

		if (shift == 63 && byte > 1)
			break;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	in->bad = true;
	return 0;
}

static void get_bytes(struct reader *in, uint64_t len, struct field *ret)
{
	if (len > (uint64_t)(in->end - in->at)) {
		in->bad = true;
		return;
	}
	ret->bytes = (struct reader){ in->at, in->at + len, false };
	in->at += len;
}

/* False at the end, and when it is malformed. */
static bool get_field(struct reader *in, struct field *ret)
{
	uint64_t key;

	if (in->bad || in->at == in->end)
		return false;
	key = get_varint(in);
	*ret = (struct field){ .number = (unsigned)(key >> 3), .wire = key & 7 };
	if (key >> 3 == 0 || key >> 3 > 0x1fffffff) {
		in->bad = true;
		return false;
	}
	switch (ret->wire) {
	case PB_VARINT:
		ret->value = get_varint(in);
		break;
	case PB_FIXED64:
		get_bytes(in, 8, ret);
		break;
	case PB_BYTES:
		get_bytes(in, get_varint(in), ret);
		break;
	case PB_FIXED32:
		get_bytes(in, 4, ret);
		break;
	default: /* groups are obsolete */
		in->bad = true;
	}
	return !in->bad;
}

void criu_text_clean(char *out, size_t size, const char *text, size_t len)
{
	size_t n = 0;

	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	for (; n < len && n + 1 < size; n++) {
		char c = text[n];

		out[n] = c == '\n' || c == '\t' ? ' ' : c >= ' ' && c < 0x7f ? c : '?';
	}
	out[n] = '\0';
}

/* Fields of all the messages we read, in one struct. */
enum get_kind { GET_INT, GET_FLAG, GET_SCRIPT, GET_TEXT, GET_MESSAGE };
struct known {
	unsigned field;
	enum get_kind kind;
	bool required;
	size_t offset;
	const struct known *inside; /* of a message */
};
enum { KNOWN_MAX = 8 };

#define AT(member) offsetof(struct criu_reply, member)
static const struct known restore_fields[] = { { 1, GET_INT, true, AT(pid), NULL }, { 0 } };
static const struct known notify_fields[] = { { 1, GET_SCRIPT, true, AT(script), NULL },
	{ 2, GET_INT, false, AT(pid), NULL }, { 0 } };
static const struct known version_fields[] = { { 1, GET_INT, true, AT(version.major), NULL },
	{ 2, GET_INT, true, AT(version.minor), NULL },
	{ 4, GET_INT, false, AT(version.sublevel), NULL }, { 0 } };
static const struct known reply_fields[] = { { 1, GET_INT, true, AT(type), NULL },
	{ 2, GET_FLAG, true, AT(success), NULL }, { 4, GET_MESSAGE, false, 0, restore_fields },
	{ 5, GET_MESSAGE, false, 0, notify_fields }, { 7, GET_INT, false, AT(errno_value), NULL },
	{ 9, GET_TEXT, false, AT(text), NULL }, { 10, GET_MESSAGE, false, 0, version_fields },
	{ 0 } };
_Static_assert(ARRAY_LEN(reply_fields) <= KNOWN_MAX, "a bit for each field");
_Static_assert(sizeof(enum criu_type) == sizeof(int), "a type is read as an int");

static bool get_message(struct reader *in, const struct known *table, struct criu_reply *ret);

/* An event's name: small letters and dashes. */
static bool get_script(struct reader *in, char *out)
{
	size_t len = (size_t)(in->end - in->at);

	if (!len || len >= CRIU_SCRIPT_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (in->at[i] != '-' && (in->at[i] < 'a' || in->at[i] > 'z'))
			return false;
	memcpy(out, in->at, len);
	out[len] = '\0';
	return true;
}

static bool get_known(struct field *field, const struct known *known, struct criu_reply *ret)
{
	char *to = (char *)ret + known->offset;
	bool is_number = known->kind == GET_INT || known->kind == GET_FLAG;

	if (field->wire != (is_number ? PB_VARINT : PB_BYTES))
		return false;
	switch (known->kind) {
	case GET_INT:
		if ((int64_t)field->value < INT32_MIN || (int64_t)field->value > INT32_MAX)
			return false;
		*(int *)to = (int)(int64_t)field->value;
		return true;
	case GET_FLAG:
		*(bool *)to = field->value != 0;
		return field->value <= 1;
	case GET_SCRIPT:
		return get_script(&field->bytes, to);
	case GET_TEXT:
		criu_text_clean(to, CRIU_TEXT_MAX, (const char *)field->bytes.at,
			(size_t)(field->bytes.end - field->bytes.at));
		return true;
	case GET_MESSAGE:
		return get_message(&field->bytes, known->inside, ret);
	}
	return false;
}

static bool get_message(struct reader *in, const struct known *table, struct criu_reply *ret)
{
	unsigned seen = 0;
	struct field field;

	while (get_field(in, &field)) {
		for (unsigned i = 0; table[i].field; i++) {
			if (table[i].field != field.number)
				continue;
			if (seen >> i & 1 || !get_known(&field, &table[i], ret))
				return false;
			seen |= 1u << i;
		}
	}
	for (unsigned i = 0; table[i].field; i++)
		if (table[i].required && !(seen >> i & 1))
			return false;
	return !in->bad;
}

/* What each type must contain; a failure contains nothing more. */
static bool is_whole(const struct criu_reply *reply)
{
	switch (reply->type) {
	case CRIU_TYPE_EMPTY:
		return !reply->success;
	case CRIU_TYPE_DUMP:
	case CRIU_TYPE_CHECK:
		return true;
	case CRIU_TYPE_RESTORE:
		return !reply->success || reply->pid > 0;
	case CRIU_TYPE_NOTIFY:
		return reply->success && reply->script[0] && reply->pid >= 0;
	case CRIU_TYPE_VERSION:
		return !reply->success || reply->version.major > 0;
	}
	return false;
}

int criu_rpc_get_reply(const void *data, size_t len, struct criu_reply *ret, struct err *err)
{
	struct reader in = { data, (const uint8_t *)data + len, false };
	struct criu_reply reply = { 0 };

	if (len > CRIU_MESSAGE_MAX || !get_message(&in, reply_fields, &reply) || !is_whole(&reply))
		return err_set(
			err, ERR_PROTOCOL, "criu sent a message that is none (%zu bytes)", len);
	*ret = reply;
	return 0;
}

/* ---- names ---------------------------------------------------------------------------------- */

static const char *const event_names[] = {
	[CRIU_PRE_DUMP] = "pre-dump",
	[CRIU_NETWORK_LOCK] = "network-lock",
	[CRIU_QUERY_EXT_FILES] = "query-ext-files",
	[CRIU_POST_DUMP] = "post-dump",
	[CRIU_NETWORK_UNLOCK] = "network-unlock",
	[CRIU_PRE_RESTORE] = "pre-restore",
	[CRIU_SETUP_NAMESPACES] = "setup-namespaces",
	[CRIU_POST_SETUP_NAMESPACES] = "post-setup-namespaces",
	[CRIU_POST_RESTORE] = "post-restore",
	[CRIU_PRE_RESUME] = "pre-resume",
	[CRIU_POST_RESUME] = "post-resume",
};
_Static_assert(ARRAY_LEN(event_names) == CRIU_EVENT_COUNT, "every event has a name");

const char *criu_event_name(enum criu_event_kind kind)
{
	return event_names[kind];
}

/* What happens after an event until the next one. */
static const char *const event_works[] = {
	[CRIU_PRE_DUMP] = "the box was about to be stopped",
	[CRIU_NETWORK_LOCK] = "memory was written",
	[CRIU_QUERY_EXT_FILES] = "memory was written",
	[CRIU_POST_DUMP] = "the disk was copied",
	[CRIU_NETWORK_UNLOCK] = "processes were let go on",
	[CRIU_PRE_RESTORE] = "files were opened",
	[CRIU_SETUP_NAMESPACES] = "namespaces were made",
	[CRIU_POST_SETUP_NAMESPACES] = "memory was read",
	[CRIU_POST_RESTORE] = "processes were let go on",
	[CRIU_PRE_RESUME] = "processes were let go on",
	[CRIU_POST_RESUME] = "processes were let go on",
};
_Static_assert(ARRAY_LEN(event_works) == CRIU_EVENT_COUNT, "every event has words");

const char *criu_event_work(enum criu_event_kind kind)
{
	return event_works[kind];
}

const char *criu_rpc_find_event(const char *script, enum criu_event_kind *ret)
{
	for (unsigned i = 0; i < CRIU_EVENT_COUNT; i++)
		if (!strcmp(event_names[i], script)) {
			*ret = i;
			return event_names[i];
		}
	return NULL;
}

const char *criu_type_name(enum criu_type type)
{
	return type == CRIU_TYPE_DUMP	   ? "dump"
	       : type == CRIU_TYPE_RESTORE ? "restore"
	       : type == CRIU_TYPE_CHECK   ? "check"
					   : "version";
}

enum err_kind criu_reply_kind(const struct criu_reply *reply)
{
	switch (reply->errno_value) {
	case ESRCH:
		return ERR_NOT_FOUND;
	case EEXIST:
		return ERR_EXISTS;
	case EBADRQC:
		return ERR_UNSUPPORTED;
	}
	return ERR_SYSTEM;
}
