/* build.c - `box image build -f Boxfile`: runs a recipe step by step in a box and keeps each step
 * as an image
 *
 * Steps that change the disk have a key (build_hash.c). If the daemon has an image with that key,
 * the step is done. Otherwise it runs in the build box, which is made from the last image at the
 * first such step and used by all that follow, and the box's disk is saved under the key. Saving is
 * a snapshot and costs next to nothing. Steps that only describe the image change the
 * configuration, which goes along with each save; it includes the description steps that follow
 * directly, so that the last save usually is the wanted image, and only gets its name.
 *
 * A failed step leaves the box, so that somebody can look. Ctrl-C removes it, and so does the guard
 * when we are killed (guard.c). Either way the earlier steps are images already, and the next build
 * begins there. */
#include "cli/build.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/build_internal.h"
#include "cli/image_job.h"
#include "base/signals.h"
#include "cli/table.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

enum { HEADER_MAX = 160 };

static const struct boxfile_step *this_step(const struct build *build)
{
	return &build->boxfile.steps[build->step];
}

/* ---- messages ------------------------------------------------------------------------------- */

/* "[2/5] run make  (cached)" */
static void tell_step(struct build *build, bool cached)
{
	const struct boxfile_step *step = this_step(build);
	_cleanup_free_ char *text = xasprintf("%s %s", boxfile_keyword(step->kind), step->rest);
	_cleanup_free_ char *safe = text_printable(text);
	bool cut = text_columns(safe) > HEADER_MAX;

	if (build->cli->json) {
		cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:s, s:b}", "type", "step", "step",
			(json_int_t)build->step + 1, "steps", (json_int_t)build->boxfile.count,
			"line", (json_int_t)step->line, "text", text, "cached", cached));
		fflush(stdout);
		return;
	}
	if (build->cli->quiet)
		return;
	fprintf(stderr, "%s[%zu/%zu] %.*s%s%s\n", build->midline ? "\n" : "", build->step + 1,
		build->boxfile.count, cut ? HEADER_MAX : (int)strlen(safe), safe, cut ? " ..." : "",
		cached ? "  (cached)" : "");
	build->midline = false;
}

static int tell_failure(struct build *build, struct err *err)
{
	const char *box = build->step_failed ? build->box : "";

	if (build->midline)
		fputc('\n', stderr);
	if (build->cli->json)
		cli_print_json(json_pack("{s:s, s:{s:s, s:s}, s:I, s:s}", "type", "error", "error",
			"code", err_kind_code(err->kind), "message", err->message, "step",
			(json_int_t)build->step + 1, "box", box));
	cli_fail(build->cli, err);
	if (*box)
		cli_note(build->cli,
			"box '%s' is left to look into: box exec -it %s -- sh; box rm -f %s", box,
			box, box);
	return err_kind_exit_code(err->kind);
}

static int tell_image(struct build *build)
{
	if (build->cli->json)
		return cli_print_json(
			json_pack("{s:s, s:O}", "type", "done", "image", build->image));
	image_print_line(build->image);
	return 0;
}

/* ---- the build box -------------------------------------------------------------------------- */

static void take_image(struct build *build, json_t *image)
{
	json_decref(build->image);
	build->image = image;
}

static int need_box(struct build *build, struct err *err)
{
	const char *label = cli_get(build->cli, "tag");
	char name[sizeof build->box], id[9];

	if (build->box[0])
		return 0;
	random_id(id, sizeof id - 1);
	snprintf(name, sizeof name, "build-%s", id);
	guard_tell_box(&build->guard, name);
	if (client_call(build->cli->client, "POST", "/v1/boxes",
		    json_pack("{s:s, s:s, s:b, s:{s:s}}", "name", name, "image",
			    json_str(build->image, "id"), "no_main", 1, "labels", "build",
			    label ? label : "yes"),
		    NULL, err) < 0)
		return err_wrap(err, "make the box to build in");
	strcpy(build->box, name);
	return 0;
}

static void drop_box(struct build *build)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", build->box);
	struct err err = ERR_INIT;

	if (build->box[0] &&
		client_call(build->cli->client, "DELETE", path, NULL, NULL, &err) < 0 &&
		err.kind != ERR_NOT_FOUND) {
		cli_note(build->cli,
			"box '%s' is removed when the daemon answers again, or by: box rm -f %s",
			build->box, build->box);
		return; /* the guard retries */
	}
	guard_tell_nothing(&build->guard);
	build->box[0] = '\0';
}

static int save(struct build *build, const char *key, json_t *config, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/save", build->box);
	json_t *image = NULL;

	if (client_call(build->cli->client, "POST", path,
		    json_pack("{s:s, s:O, s:b}", "cache_key", key, "config", config, "learn_hosts",
			    build->learn_hosts),
		    &image, err) < 0)
		return err_wrap(err, "save");
	take_image(build, image);
	return 0;
}

/* ---- the cache ------------------------------------------------------------------------------ */

/* 1: build->image is the cached image; 0: there is none. */
static int find_cached(struct build *build, const char *key, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/images?cache_key=%s", key);
	_cleanup_json_ json_t *answer = NULL;
	json_t *image;

	if (cli_has(build->cli, "no-cache"))
		return 0;
	if (client_get(build->cli->client, path, &answer, err) < 0)
		return -1;
	image = json_array_get(json_object_get(answer, "images"), 0);
	if (!image)
		return 0;
	take_image(build, json_incref(image));
	/* The box is older than the cached image. */
	drop_box(build);
	return 1;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The configuration with the steps up to the next one that changes the disk. */
static int config_ahead(const struct build *build, json_t **ret, struct err *err)
{
	_cleanup_json_ json_t *config = json_deep_copy(build->config);

	for (size_t i = build->step + 1;
		i < build->boxfile.count && !boxfile_changes_disk(build->boxfile.steps[i].kind);
		i++)
		if (build_config_apply(config, &build->boxfile.steps[i], err) < 0)
			return -1;
	*ret = steal_ptr(&config);
	return 0;
}

static int run_step(struct build *build, const char *key, struct err *err)
{
	_cleanup_json_ json_t *config = NULL;

	if (need_box(build, err) < 0)
		return -1;
	if (build_step_run(build, this_step(build), err) < 0) {
		build->step_failed = err->kind != ERR_CANCELLED && err->kind != ERR_UNAVAILABLE;
		return err_wrap(err, "%s", boxfile_keyword(this_step(build)->kind));
	}
	if (build_config_apply(build->config, this_step(build), err) < 0 ||
		config_ahead(build, &config, err) < 0)
		return -1;
	return save(build, key, config, err);
}

static int do_step(struct build *build, struct err *err)
{
	const struct boxfile_step *step = this_step(build);
	char key[BUILD_KEY_LEN + 1];
	int cached;

	if (client_interrupted)
		return err_set(err, ERR_CANCELLED, "interrupted");
	if (!boxfile_changes_disk(step->kind)) {
		tell_step(build, false);
		return build_config_apply(build->config, step, err);
	}
	if (build_key_of_step(build, step, key, err) < 0)
		return -1;
	cached = find_cached(build, key, err);
	if (cached < 0)
		return -1;
	tell_step(build, cached);
	if (cached ? build_config_apply(build->config, step, err) < 0
		   : run_step(build, key, err) < 0)
		return -1;
	strcpy(build->key, key);
	return 0;
}

static int begin(struct build *build, struct err *err)
{
	enum image_pull policy;

	tell_step(build, false);
	if (image_pull_from_name(cli_get(build->cli, "pull"), &policy, err) < 0 ||
		image_ensure(build->cli, this_step(build)->words[0], policy, &build->image, err) <
			0)
		return -1;
	build->config = json_deep_copy(json_object_get(build->image, "config"));
	if (!json_is_object(build->config)) {
		json_decref(build->config);
		build->config = json_object();
	}
	build_key_of_base(json_str(build->image, "id"), build->key);
	return 0;
}

/* The last image may have been made with another configuration in the Boxfile. */
static int finish_config(struct build *build, struct err *err)
{
	char key[BUILD_KEY_LEN + 1];
	int cached;

	if (build_config_equal(build->config, json_object_get(build->image, "config")))
		return 0;
	build_key_of_config(build->key, build->config, key);
	cached = find_cached(build, key, err);
	if (cached)
		return cached < 0 ? -1 : 0;
	return need_box(build, err) < 0 ? -1 : save(build, key, build->config, err);
}

static int finish_name(struct build *build, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/images/%s/tag", json_str(build->image, "id"));
	const char *name = cli_get(build->cli, "tag");
	json_t *image = NULL;

	if (!name)
		return 0;
	if (client_call(build->cli->client, "POST", path, json_pack("{s:s}", "name", name), &image,
		    err) < 0)
		return err_wrap(err, "name the image");
	take_image(build, image);
	return 0;
}

static int run_all(struct build *build, struct err *err)
{
	size_t last = build->boxfile.count - 1;

	if (begin(build, err) < 0)
		return -1;
	for (build->step = 1; build->step <= last; build->step++)
		if (do_step(build, err) < 0)
			return err_wrap(err, "line %u", this_step(build)->line);
	build->step = last;
	return finish_config(build, err) < 0 ? -1 : finish_name(build, err);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int read_boxfile(struct build *build, const char *file, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (file_read(AT_FDCWD, strcmp(file, "-") ? file : "/dev/stdin", BOXFILE_SIZE_MAX, &text,
		    &len, err) < 0)
		return err_wrap(err, "Boxfile");
	if (boxfile_parse(text, len, &build->boxfile, err) < 0)
		return err_wrap(err, "%s", file);
	return 0;
}

static int open_context(struct build *build, const char *file, const char *dir, struct err *err)
{
	const char *slash = strrchr(file, '/');
	_cleanup_free_ char *folder = dir	      ? xstrdup(dir)
				      : !slash	      ? xstrdup(".")
				      : slash == file ? xstrdup("/")
						      : xstrndup(file, (size_t)(slash - file));

	build->context = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return build->context < 0 ? err_sys(err, errno, "open '%s'", folder) : 0;
}

static void on_signal(int number)
{
	(void)number;
	client_interrupted = true;
}

/* Without SA_RESTART, so that the current request ends. */
static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

	signals_catch(numbers, ARRAY_LEN(numbers), on_signal, NULL);
}

static int run_build(struct build *build, struct err *err)
{
	int code;

	catch_signals();
	if (guard_start(&build->guard, build->cli->target, err) < 0)
		return tell_failure(build, err);
	if (run_all(build, err) == 0) {
		drop_box(build);
		return tell_image(build);
	}
	code = client_interrupted ? 128 + SIGINT : 0;
	client_interrupted = false; /* the following requests must not be cancelled */
	if (!build->step_failed)
		drop_box(build);
	else
		guard_tell_nothing(&build->guard);
	return code ? (tell_failure(build, err), code) : tell_failure(build, err);
}

int build_boxfile(struct cli *cli, const char *dir)
{
	const char *file = cli_get(cli, "file");
	struct build build = {
		.cli = cli,
		.context = -1,
		.guard = GUARD_INIT,
		.learn_hosts = cli_has(cli, "learn-hosts"),
	};
	struct err err = ERR_INIT;
	int code;

	if (read_boxfile(&build, file, &err) < 0 || open_context(&build, file, dir, &err) < 0)
		code = cli_fail(cli, &err);
	else
		code = run_build(&build, &err);
	guard_end(&build.guard);
	cleanup_closep(&build.context);
	json_decref(build.config);
	json_decref(build.image);
	boxfile_done(&build.boxfile);
	return code;
}
