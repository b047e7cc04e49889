/* qmp_line.c - one line of QEMU's monitor, read strictly */
#include "engine/vm/qmp_line.h"
#include "engine/vm/qmp.h"
#include <stdbool.h>
#include <string.h>

/* Counted before the parser sees the text: it recurses. */
static bool is_too_deep(const char *text, size_t len)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < len; i++) {
		if (in_string) {
			if (text[i] == '\\')
				i++;
			else if (text[i] == '"')
				in_string = false;
		} else if (text[i] == '"') {
			in_string = true;
		} else if (text[i] == '{' || text[i] == '[') {
			if (++depth > QMP_DEPTH_MAX)
				return true;
		} else if (text[i] == '}' || text[i] == ']') {
			depth--;
		}
	}
	return false;
}

static int read_id(json_t *root, struct qmp_line *ret, struct err *err)
{
	json_t *id = json_object_get(root, "id");

	if (!json_is_integer(id))
		return err_set(err, ERR_PROTOCOL, "an answer of QEMU has no id");
	ret->id = json_integer_value(id);
	return 0;
}

static int read_error(json_t *root, json_t *value, struct qmp_line *ret, struct err *err)
{
	ret->kind = QMP_LINE_ERROR;
	ret->text = json_string_value(json_object_get(value, "desc"));
	if (!ret->text)
		return err_set(err, ERR_PROTOCOL, "QEMU refused without a description");
	return read_id(root, ret, err);
}

static int read_event(json_t *root, json_t *name, struct qmp_line *ret, struct err *err)
{
	ret->kind = QMP_LINE_EVENT;
	ret->text = json_string_value(name);
	ret->data = json_object_get(root, "data");
	if (!ret->text || (ret->data && !json_is_object(ret->data)))
		return err_set(err, ERR_PROTOCOL, "QEMU sent a malformed event");
	return 0;
}

/* The type of a line follows from the one key that is always in it. */
static int classify(json_t *root, struct qmp_line *ret, struct err *err)
{
	json_t *value;

	if ((value = json_object_get(root, "return"))) {
		ret->kind = QMP_LINE_RETURN;
		ret->data = value;
		return read_id(root, ret, err);
	}
	if ((value = json_object_get(root, "error")))
		return read_error(root, value, ret, err);
	if ((value = json_object_get(root, "event")))
		return read_event(root, value, ret, err);
	if (json_is_object(json_object_get(root, "QMP"))) {
		ret->kind = QMP_LINE_GREETING;
		return 0;
	}
	return err_set(err, ERR_PROTOCOL, "QEMU sent a line of an unknown kind");
}

int qmp_line_parse(const char *text, size_t len, struct qmp_line *ret, struct err *err)
{
	struct qmp_line line = { 0 };

	if (len > QMP_LINE_MAX)
		return err_set(
			err, ERR_PROTOCOL, "QEMU sent a line of more than %d bytes", QMP_LINE_MAX);
	if (is_too_deep(text, len))
		return err_set(err, ERR_PROTOCOL, "QEMU sent JSON nested more than %d levels deep",
			QMP_DEPTH_MAX);
	line.root = json_parse(text, len, err);
	if (!line.root || classify(line.root, &line, err) < 0) {
		if (!line.root && err)
			err->kind = ERR_PROTOCOL;
		json_decref(line.root);
		return err_wrap(err, "QEMU's monitor");
	}
	*ret = line;
	return 0;
}

void qmp_line_done(struct qmp_line *line)
{
	json_decref(line->root);
	*line = (struct qmp_line){ 0 };
}
