/* ask.c - one question to a box, one JSON answer */
#include "api/api_internal.h"

static void asking_free(struct exchange *x)
{
	free(x);
}

struct exchange *ask_new(struct call *call)
{
	struct exchange *x = xnew(struct exchange);

	exchange_init(x, call, asking_free);
	return x;
}

void ask_started(struct exchange *x, int started, const struct err *err)
{
	if (started < 0)
		exchange_error(x, err);
	exchange_settle(x);
}

void ask_answer(json_t *result, const struct err *err, void *arg)
{
	struct exchange *x = arg;

	x->exec = NULL;
	x->task = NULL;
	if (err)
		exchange_error(x, err);
	else if (result)
		exchange_json(x, 200, json_incref(result));
	else
		exchange_none(x);
	exchange_settle(x);
}
