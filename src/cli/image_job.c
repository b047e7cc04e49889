/* image_job.c - see image_job.h */
#include "cli/image_job.h"
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/table.h"

struct job {
	struct cli *cli;
	const char *what;
	struct progress bar;
	bool on_terminal, echo;
	char stage[32];
	json_t *image; /* set at the end */
};

/* Some stages count bytes; the others count pieces. */
static bool counts_bytes(json_t *line)
{
	return json_num(line, "total") > 1024 * 1024;
}

/* A bar on a terminal; else a line for each stage, so that logs stay short. */
static void show_progress(struct job *job, json_t *line)
{
	const char *stage = json_str(line, "stage"), *detail = json_str(line, "detail");
	uint64_t done = (uint64_t)json_num(line, "done"), total = (uint64_t)json_num(line, "total");
	char text[256], have[16], all[16];

	if (job->on_terminal && counts_bytes(line)) {
		snprintf(text, sizeof text, "%s %s of %s%s%s", stage, format_size(done, have),
			format_size(total, all), *detail ? ": " : "", detail);
		progress_steps(&job->bar, done, total, text);
	} else if (job->on_terminal) {
		snprintf(text, sizeof text, "%s%s%s", stage, *detail ? ": " : "", detail);
		progress_steps(&job->bar, done, total, text);
	} else if (strcmp(stage, job->stage)) {
		snprintf(job->stage, sizeof job->stage, "%s", stage);
		cli_note(job->cli, "%s: %s", job->what, stage);
	}
}

static int on_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct job *job = arg;
	const char *type = json_str(line, "type");

	if (job->echo) {
		printf("%.*s\n", (int)len, text);
		fflush(stdout);
	}
	if (!strcmp(type, "progress") && !job->cli->json && !job->cli->quiet)
		show_progress(job, line);
	if (!strcmp(type, "error"))
		return client_api_error(500, text, len, err);
	if (!strcmp(type, "done")) {
		json_decref(job->image);
		job->image = json_incref(json_object_get(line, "image"));
	}
	return 0;
}

int image_job_run(struct cli *cli, const char *what, const char *path, json_t *body, bool echo,
	json_t **ret, struct err *err)
{
	struct job job = {
		.cli = cli,
		.what = what,
		.on_terminal = isatty(STDERR_FILENO),
		.echo = echo,
	};
	int result;

	progress_init(&job.bar, what, !cli->json && !cli->quiet, 0);
	result = client_lines(cli->client, "POST", path, body, on_line, &job, err);
	progress_done(&job.bar);
	if (result == 0 && !job.image)
		result = err_set(err, ERR_PROTOCOL, "the daemon ended without an image");
	if (result < 0)
		json_decref(job.image);
	else
		*ret = job.image;
	return result;
}

/* ---- making sure of an image ---------------------------------------------------------------- */

int image_pull_from_name(const char *name, enum image_pull *ret, struct err *err)
{
	static const char *const names[] = {
		[IMAGE_PULL_MISSING] = "missing",
		[IMAGE_PULL_NEVER] = "never",
		[IMAGE_PULL_ALWAYS] = "always",
	};

	*ret = IMAGE_PULL_MISSING;
	if (!name)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i])) {
			*ret = (enum image_pull)i;
			return 0;
		}
	return err_set(err, ERR_INVALID, "--pull is missing, never or always, not '%.40s'", name);
}

int image_ensure(
	struct cli *cli, const char *name, enum image_pull policy, json_t **ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/images/%s", name);
	bool here = false;

	if (policy != IMAGE_PULL_ALWAYS) {
		if (client_get(cli->client, path, ret, err) == 0)
			return 0;
		if (err->kind != ERR_NOT_FOUND || policy == IMAGE_PULL_NEVER)
			return -1;
		err_clear(err);
	} else {
		here = client_get(cli->client, path, NULL, NULL) == 0;
	}
	if (!here)
		cli_note(cli, "image '%s' is not here, pulling it", name);
	if (image_job_run(cli, name, "/v1/images/pull", json_pack("{s:s}", "reference", name),
		    false, ret, err) == 0)
		return 0;
	return err_wrap(err,
		here ? "image '%s' cannot be pulled"
		     : "there is no image '%s', and it cannot be pulled",
		name);
}

void image_print_line(json_t *image)
{
	const char *name = json_str(image, "name");
	char size[16];

	printf("%s%s%s", name, *name ? "  " : "", json_str(image, "id"));
	if (json_num(image, "size_bytes"))
		printf("  %s", format_size((uint64_t)json_num(image, "size_bytes"), size));
	putchar('\n');
}
