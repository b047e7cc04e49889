/* qmp_line.h - one line of QEMU's monitor, read strictly; pure */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stddef.h>

enum qmp_line_kind { QMP_LINE_GREETING, QMP_LINE_RETURN, QMP_LINE_ERROR, QMP_LINE_EVENT };

struct qmp_line {
	enum qmp_line_kind kind;
	json_t *root;	  /* the line; the following fields point into it */
	json_int_t id;	  /* of a return or an error */
	json_t *data;	  /* the return's value; an event's data, NULL: it has none */
	const char *text; /* the event's name, the error's description */
};

/* ERR_PROTOCOL when it is not of the protocol, longer than QMP_LINE_MAX, or nested too deeply. */
int qmp_line_parse(const char *text, size_t len, struct qmp_line *ret, struct err *err);
void qmp_line_done(struct qmp_line *line);
