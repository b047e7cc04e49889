/* yaml.c - YAML, and so JSON, as a tree of texts, lists and maps with places
 *
 * Only the plain part of YAML: no tags, no anchors, no aliases, one document, keys that are texts.
 * Without aliases a tree is never larger than its text, and that is bounded. All scalars stay
 * texts; who reads them knows the type. */
#include "policy/policy_internal.h"
#include "base/text.h"
#include <yaml.h>

enum { DEPTH_MAX = 8 };

struct source {
	yaml_parser_t parser;
	unsigned line, column; /* of the last problem */
	struct err *err;
};

void node_free(struct node *node)
{
	if (!node)
		return;
	for (size_t i = 0; i < node->count; i++)
		node_free(node->items[i]);
	free(node->items);
	free(node->text);
	free(node);
}

static int refuse(struct source *source, const yaml_mark_t *mark, const char *why)
{
	source->line = (unsigned)mark->line + 1;
	source->column = (unsigned)mark->column + 1;
	return err_set(source->err, ERR_INVALID, "%s", why);
}

static int next_event(struct source *source, yaml_event_t *event)
{
	if (yaml_parser_parse(&source->parser, event))
		return 0;
	return refuse(source, &source->parser.problem_mark,
		source->parser.problem ? source->parser.problem : "not readable");
}

/* What an event carries that we do not take. */
static const char *event_excess(const yaml_event_t *event)
{
	const yaml_char_t *anchor = NULL, *tag = NULL;

	switch (event->type) {
	case YAML_ALIAS_EVENT:
		return "aliases are not accepted";
	case YAML_SCALAR_EVENT:
		anchor = event->data.scalar.anchor;
		tag = event->data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = event->data.sequence_start.anchor;
		tag = event->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = event->data.mapping_start.anchor;
		tag = event->data.mapping_start.tag;
		break;
	default:
		return "a value is missing";
	}
	return anchor ? "anchors are not accepted" : tag ? "tags are not accepted" : NULL;
}

static struct node *node_new(enum node_kind kind, const yaml_mark_t *mark)
{
	struct node *node = xnew(struct node);

	node->kind = kind;
	node->line = (unsigned)mark->line + 1;
	node->column = (unsigned)mark->column + 1;
	return node;
}

static void node_add(struct node *node, struct node *item)
{
	if (!(node->count & (node->count - 1)))
		xgrow(node->items, node->count ? node->count * 2 : 1);
	node->items[node->count++] = item;
}

static int build(
	struct source *source, const yaml_event_t *event, unsigned depth, struct node **ret);

static int build_text(struct source *source, const yaml_event_t *event, struct node **ret)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t len = event->data.scalar.length;

	/* "\0" in quotes is a NUL. */
	if (!text_is_utf8(text, len))
		return refuse(source, &event->start_mark, "a text with a NUL in it");
	*ret = node_new(NODE_TEXT, &event->start_mark);
	(*ret)->text = xstrndup(text, len);
	(*ret)->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	return 0;
}

static int build_items(struct source *source, struct node *node, unsigned depth)
{
	yaml_event_type_t end =
		node->kind == NODE_LIST ? YAML_SEQUENCE_END_EVENT : YAML_MAPPING_END_EVENT;

	for (;;) {
		struct node *item = NULL;
		yaml_event_t event;
		int status;

		if (next_event(source, &event) < 0)
			return -1;
		if (event.type == end) {
			yaml_event_delete(&event);
			return 0;
		}
		if (node->kind == NODE_MAP && node->count % 2 == 0 &&
			event.type != YAML_SCALAR_EVENT)
			status = refuse(source, &event.start_mark, "a key must be a text");
		else
			status = build(source, &event, depth + 1, &item);
		yaml_event_delete(&event);
		if (status < 0)
			return -1;
		node_add(node, item);
	}
}

static int build(
	struct source *source, const yaml_event_t *event, unsigned depth, struct node **ret)
{
	_cleanup_(node_freep) struct node *node = NULL;
	const char *excess = event_excess(event);

	if (excess)
		return refuse(source, &event->start_mark, excess);
	if (depth > DEPTH_MAX)
		return refuse(source, &event->start_mark, "nested too deeply");
	if (event->type == YAML_SCALAR_EVENT)
		return build_text(source, event, ret);
	node = node_new(event->type == YAML_SEQUENCE_START_EVENT ? NODE_LIST : NODE_MAP,
		&event->start_mark);
	if (build_items(source, node, depth) < 0)
		return -1;
	*ret = steal_ptr(&node);
	return 0;
}

/* The events around the one value: stream and document begin, value, document and stream end. */
static int build_document(struct source *source, struct node **ret)
{
	static const struct {
		yaml_event_type_t type;
		const char *missing;
	} steps[] = { { YAML_STREAM_START_EVENT, "not readable" },
		{ YAML_DOCUMENT_START_EVENT, "the text is empty" },
		{ YAML_NO_EVENT, NULL /* the value */ },
		{ YAML_DOCUMENT_END_EVENT, "more than one value" },
		{ YAML_STREAM_END_EVENT, "more than one document" } };
	_cleanup_(node_freep) struct node *node = NULL;

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		yaml_event_t event;
		int status = 0;

		if (next_event(source, &event) < 0)
			return -1;
		if (!steps[i].missing)
			status = build(source, &event, 1, &node);
		else if (event.type != steps[i].type)
			status = refuse(source, &event.start_mark, steps[i].missing);
		yaml_event_delete(&event);
		if (status < 0)
			return -1;
	}
	*ret = steal_ptr(&node);
	return 0;
}

int node_parse(const char *text, size_t len, struct node **ret, unsigned *ret_line,
	unsigned *ret_column, struct err *err)
{
	struct source source = { .err = err };
	int status;

	*ret_line = *ret_column = 1;
	if (len > POLICY_SIZE_MAX)
		return err_set(
			err, ERR_TOO_LARGE, "a policy of more than %d bytes", POLICY_SIZE_MAX);
	if (!text_is_utf8(text, len))
		return err_set(err, ERR_INVALID, "the text is not UTF-8, or has a NUL in it");
	if (!yaml_parser_initialize(&source.parser))
		abort(); /* out of memory, as xnew would */
	yaml_parser_set_encoding(&source.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&source.parser, (const unsigned char *)text, len);
	status = build_document(&source, ret);
	yaml_parser_delete(&source.parser);
	if (status < 0) {
		*ret_line = source.line;
		*ret_column = source.column;
	}
	return status;
}
