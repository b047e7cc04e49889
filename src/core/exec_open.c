/* exec_open.c - builds the start request from the settings of image, box and exec */
#include "core/exec_internal.h"
#include "core/files.h"
#include "base/strv.h"
#include "base/text.h"
#include "image/image.h"

enum { CELLS_MAX = 10000, TIMEOUT_MAX_DAYS = 3650 };
static_assert((int)EXEC_ARGV_MAX == (int)WIRE_ARGV_MAX &&
		      (int)EXEC_ID_MAX == (int)WIRE_EXEC_ID_MAX &&
		      (int)EXEC_KEPT_MAX == (int)WIRE_JOURNAL_MAX,
	"the bounds of exec.h are those of box-init");

static_assert(
	(int)EXEC_SFTP == (int)WIRE_BUILTIN_SFTP && (int)EXEC_CONNECT == (int)WIRE_BUILTIN_CONNECT,
	"builtins of exec.h are box-init's");

/* For a box-init that has no such server. */
static const char *const sftp_argv[] = { "/usr/lib/openssh/sftp-server", NULL };

static int check_user(const char *user, struct err *err)
{
	bool ok = strlen(user) <= 64;

	for (const char *p = user; ok && *p; p++)
		ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
		     (*p >= '0' && *p <= '9') || strchr("_.-:$", *p);
	if (!ok || *user == ':' || *user == '-')
		return err_set(err, ERR_INVALID,
			"user '%.64s' must be a name or number, optionally with :group", user);
	return 0;
}

int exec_spec_check(const struct exec_spec *spec, struct err *err)
{
	if (spec->builtin && (!spec->input || spec->tty || spec->detach))
		return err_set(err, ERR_INVALID, "a server needs its input, and no terminal");
	if (spec->builtin != EXEC_SFTP && !strv_len(spec->argv))
		return err_set(err, ERR_INVALID, "a program has at least one word");
	if (strv_len(spec->argv) > EXEC_ARGV_MAX || strv_len(spec->env) > EXEC_ARGV_MAX)
		return err_set(err, ERR_INVALID,
			"a program has at most %d words and as many variables", EXEC_ARGV_MAX);
	if (spec->cwd && *spec->cwd && file_path_check("cwd", spec->cwd, err) < 0)
		return -1;
	if (spec->user && check_user(spec->user, err) < 0)
		return -1;
	if (spec->rows > CELLS_MAX || spec->cols > CELLS_MAX)
		return err_set(err, ERR_INVALID, "'rows' and 'cols' are at most %d", CELLS_MAX);
	if (spec->timeout_ms > (uint64_t)TIMEOUT_MAX_DAYS * 86400000)
		return err_set(
			err, ERR_INVALID, "'timeout_ms' is at most %d days", TIMEOUT_MAX_DAYS);
	return 0;
}

struct exec_spec exec_spec_copy(const struct exec_spec *spec)
{
	struct exec_spec copy = *spec;

	copy.id = xstrdup(spec->id);
	copy.argv = (const char *const *)strv_copy(spec->argv);
	copy.env = (const char *const *)strv_copy(spec->env);
	copy.cwd = xstrdup(spec->cwd);
	copy.user = xstrdup(spec->user);
	return copy;
}

void exec_spec_free(struct exec_spec *spec)
{
	free((char *)spec->id);
	strv_free((char **)spec->argv);
	strv_free((char **)spec->env);
	free((char *)spec->cwd);
	free((char *)spec->user);
	*spec = (struct exec_spec){ 0 };
}

/* Adds KEY=VALUE; it replaces an earlier variable of the same name. */
static void env_put(char ***env, const char *pair)
{
	size_t name = strcspn(pair, "=") + 1;

	for (size_t i = 0; *env && (*env)[i]; i++)
		if (!strncmp((*env)[i], pair, name)) {
			text_replace(&(*env)[i], pair);
			return;
		}
	strv_add(env, pair);
}

/* Merges the environments of image, box and exec, in this order. */
static char **whole_env(const struct box *box, json_t *config, const char *const *more)
{
	_cleanup_json_ json_t *own = *box->row.env ? json_loads(box->row.env, 0, NULL) : NULL;
	char **env = strv_copy(NULL);
	const char *key;
	json_t *value;
	size_t i;

	json_array_foreach (json_object_get(config, "env"), i, value)
		env_put(&env, json_string_value(value));
	json_object_foreach (own, key, value) {
		_cleanup_free_ char *pair = xasprintf("%s=%s", key, json_string_value(value));

		env_put(&env, pair);
	}
	for (i = 0; more && more[i]; i++)
		env_put(&env, more[i]);
	return env;
}

static const char *config_or(json_t *config, const char *key, const char *given)
{
	const char *value = json_string_value(json_object_get(config, key));

	return (given && *given) || !value ? given : value;
}

int exec_open(struct box *box, const struct exec_spec *spec, const char *who,
	const struct chan_ops *ops, void *arg, struct chan **ret, struct err *err)
{
	const struct image *image = box_image(box);
	json_t *config = image ? image->config : NULL;
	_cleanup_strv_ char **env = whole_env(box, config, spec->env);
	struct buf request = BUF_INIT;
	char id[9];
	int done;

	random_id(id, sizeof id - 1);
	wire_put_exec_spec(&request,
		&(struct wire_exec_spec){
			.id = spec->id && *spec->id ? spec->id : id,
			.argv = spec->builtin == EXEC_SFTP ? sftp_argv : spec->argv,
			.env = (const char *const *)env,
			.cwd = spec->builtin ? spec->cwd : config_or(config, "workdir", spec->cwd),
			.user = config_or(config, "user", spec->user),
			.tty = spec->tty,
			.stdin_open = spec->input,
			.builtin = (enum wire_builtin)spec->builtin,
			.attach = !spec->detach || spec->input,
			.rows = spec->rows,
			.cols = spec->cols,
			.timeout_ms = spec->timeout_ms,
		});
	box_note_exec(box, spec->id && *spec->id ? spec->id : id, who);
	done = box_chan_open(box, WIRE_OP_EXEC_START, &request, ops, arg, ret, err);
	buf_done(&request);
	return done;
}
