/* inside.c - serves what is asked from inside boxes: one table of verbs; see inside.h */
#include "inside/inside.h"
#include "inside/inside_internal.h"
#include "core/lineage.h"
#include "core/time/timeline.h"
#include "base/alloc.h"
#include "base/text.h"
#include <signal.h>

enum { EVENT_WORDS = 16, EVENT_WORD_BYTES = 200 };

static const struct verb {
	const char *name;
	void (*run)(struct ask *ask, const struct args *args);
	unsigned allowed; /* enum arg_flag */
	size_t least, most;
	bool harmless; /* may be done twice */
} verbs[] = {
	{ "info", inside_info, ARG_JSON, 0, 0, true },
	{ "ls", inside_ls, ARG_JSON | ARG_QUIET, 0, 0, true },
	{ "timeline", inside_timeline, ARG_JSON, 0, 0, true },
	{ "fork", inside_fork, ARG_JSON | ARG_COUNT | ARG_FROM, 0, FORKS_MAX, false },
	{ "snapshot", inside_snapshot, ARG_JSON | ARG_DISK_ONLY, 0, 1, false },
	{ "rollback", inside_rollback, ARG_DISK_ONLY, 0, 1, false },
	{ "exec", inside_exec, ARG_PROGRAM, 2, SIZE_MAX, false },
	{ "rm", inside_rm, 0, 1, FORKS_MAX, false },
};

static const struct verb *verb_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static int check(const struct ask *ask, const struct verb *verb, bool again, struct args *args,
	struct err *err)
{
	char **words = ask_get_words(ask);
	const struct box *forbidding;

	if (!verb) {
		err_set(err, ERR_INVALID, "'%.40s' cannot be asked for from inside a box",
			text_is_utf8(words[0], strlen(words[0])) ? words[0] : "?");
		return err_hint(err, "see 'box help'");
	}
	forbidding = lineage_forbidden_by(ask_get_box(ask));
	if (forbidding) {
		err_set(err, ERR_FORBIDDEN, "this box may ask for nothing");
		return err_hint(err, "from outside, 'box set %s --inside on' allows it",
			box_get_name(forbidding));
	}
	if (again && !verb->harmless) {
		err_set(err, ERR_UNAVAILABLE,
			"the daemon was restarted before it answered; whether it did what was "
			"asked "
			"is not known");
		return err_hint(err, "check with 'box ls' and 'box timeline'");
	}
	return args_read(words, verb->allowed, verb->least, verb->most, args, err);
}

/* The words as they may be shown; those of a program are its own business. */
static json_t *words_json(const struct ask *ask)
{
	char **words = ask_get_words(ask);
	json_t *list = json_array();
	size_t most = !strcmp(words[0], "exec") ? 4 : EVENT_WORDS;

	for (size_t i = 1; words[i] && i < most; i++) {
		const char *word = words[i];
		bool fits = strlen(word) <= EVENT_WORD_BYTES && text_is_utf8(word, strlen(word));

		json_array_append_new(list, json_string(fits ? word : "(…)"));
	}
	return list;
}

static void tell_event(struct ask *ask, const struct verb *verb, const struct err *refused)
{
	_cleanup_free_ char *type = xasprintf("inside.%s", verb ? verb->name : "unknown");
	json_t *data = json_pack("{s:o}", "args", words_json(ask));

	if (refused)
		json_object_set_new(data, "refused", json_string(refused->message));
	ask_event(ask, type, data);
}

static void on_begin(struct ask *ask, bool again, void *arg)
{
	_cleanup_(args_done) struct args args = { 0 };
	const struct verb *verb = verb_find(ask_get_words(ask)[0]);
	struct err err = ERR_INIT;

	(void)arg;
	if (check(ask, verb, again, &args, &err) < 0) {
		tell_event(ask, verb, &err);
		ask_fail(ask, &err);
		return;
	}
	tell_event(ask, verb, NULL);
	verb->run(ask, &args);
}

static void on_relayed(struct ask *ask, size_t len, void *arg)
{
	(void)arg;
	if (ask_get_data(ask))
		exec_consumed(ask_get_data(ask), len);
}

/* A program in a child that runs for whoever asked is ended with him, as by a closed terminal. */
static void on_gone(struct ask *ask, enum ask_end end, void *arg)
{
	struct exec *exec = ask_get_data(ask);

	(void)arg;
	if (exec && end == ASK_CANCELLED)
		exec_signal(exec, SIGTERM);
	exec_close(exec);
}

void inside_open(struct yard *yard)
{
	static const struct ask_ops ops = {
		.begin = on_begin, .relayed = on_relayed, .gone = on_gone
	};

	asks_serve(yard, &ops, NULL);
}

void inside_close(struct yard *yard)
{
	asks_serve(yard, NULL, NULL);
}
