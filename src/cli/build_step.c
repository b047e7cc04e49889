/* build_step.c - what a step of a Boxfile does in the box; see build_internal.h */
#include "base/buf.h"
#include "base/strv.h"
#include "base/text.h"
#include "cli/build_internal.h"
#include "cli/mktar.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- programs ------------------------------------------------------------------------------- */

struct program {
	struct build *build;
	bool ended;
	int code;
	char reason[16];
};

/* The program's output goes to stderr unchanged: stdout is for the image. */
static void show_output(struct build *build, json_t *line)
{
	const char *text = json_string_value(json_object_get(line, "data"));
	const char *coded = json_string_value(json_object_get(line, "data_b64"));
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t len = text ? json_string_length(json_object_get(line, "data")) : 0;

	if (!text && (!coded || base64_decode(coded, strlen(coded), &bytes, &len, NULL) < 0))
		return;
	if (!len || build->cli->quiet)
		return;
	fwrite(text ? text : (char *)bytes, 1, len, stderr);
	build->midline = (text ? text[len - 1] : (char)bytes[len - 1]) != '\n';
}

static int on_line(json_t *line, const char *text, size_t len, void *arg, struct err *err)
{
	struct program *program = arg;
	struct build *build = program->build;
	const char *type = json_str(line, "type");

	if (!strcmp(type, "output") && build->cli->json) {
		json_object_set_new(line, "step", json_integer((json_int_t)build->step + 1));
		cli_print_json(json_incref(line));
		fflush(stdout);
	} else if (!strcmp(type, "output")) {
		show_output(build, line);
	} else if (!strcmp(type, "error")) {
		return client_api_error(500, text, len, err);
	} else if (!strcmp(type, "exit")) {
		program->ended = true;
		program->code = (int)json_num(line, "exit_code");
		snprintf(program->reason, sizeof program->reason, "%s", json_str(line, "reason"));
	}
	return 0;
}

/* user NULL: the image's. */
static int run_program(struct build *build, const char *command, const char *user, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/exec", build->box);
	const char *cwd = json_str(build->config, "workdir");
	json_t *body = json_pack("{s:[s,s,s], s:o}", "argv", "/bin/sh", "-ec", command, "env",
		build_config_env(build->config));
	struct program program = { .build = build };

	if (!user)
		user = json_str(build->config, "user");
	if (*user)
		json_object_set_new(body, "user", json_string(user));
	if (*cwd)
		json_object_set_new(body, "cwd", json_string(cwd));
	if (client_lines(build->cli->client, "POST", path, body, on_line, &program, err) < 0)
		return -1;
	if (!program.ended)
		return err_set(err, ERR_UNAVAILABLE, "the box ended while the step ran");
	if (!strcmp(program.reason, "signaled"))
		return err_set(err, ERR_STATE, "ended by signal %d", program.code - 128);
	if (program.code)
		return err_set(err, ERR_STATE, "ended with exit code %d", program.code);
	return 0;
}

/* The names were checked: they contain nothing special to a shell. */
static int run_packages(struct build *build, char *const *names, struct err *err)
{
	struct buf command = BUF_INIT;
	int result;

	buf_add_str(&command, "export DEBIAN_FRONTEND=noninteractive\n"
			      "apt-get update\n"
			      "apt-get install -y --no-install-recommends --");
	for (; *names; names++)
		buf_addf(&command, " %s", *names);
	buf_add_str(&command, "\napt-get clean\nrm -rf /var/lib/apt/lists/*\n");
	result = run_program(build, buf_str(&command), "root", err);
	buf_done(&command);
	return result;
}

/* ---- copies --------------------------------------------------------------------------------- */

int build_context_open(const struct build *build, const char *path, int *ret, struct err *err)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, build->context, path, &how, sizeof how);
	struct stat status;

	if (fd < 0 && errno == EXDEV) {
		err_set(err, ERR_INVALID, "'%s' is outside the build folder", path);
		return err_hint(err, "give the folder that holds it: box image build -f FILE DIR");
	}
	if (fd < 0 && errno == ENOENT && strpbrk(path, "*?["))
		return err_set(err, ERR_NOT_FOUND, "no '%s'; patterns are not expanded", path);
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (fstat(fd, &status) < 0)
		return err_sys(err, errno, "read '%s'", path);
	if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		return err_set(err, ERR_INVALID, "'%s' is neither file nor folder", path);
	*ret = steal_fd(&fd);
	return 0;
}

static int make_folder(struct build *build, const char *folder, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/files/mkdir", build->box);

	if (!strcmp(folder, "/"))
		return 0;
	return client_call(build->cli->client, "POST", path,
		json_pack("{s:s, s:s, s:b}", "path", folder, "mode", "0755", "parents", 1), NULL,
		err);
}

static bool is_folder_in_box(struct build *build, const char *target)
{
	_cleanup_free_ char *path =
		client_path("/v1/boxes/%s/files/stat?path=%s&follow=true", build->box, target);
	_cleanup_json_ json_t *status = NULL;

	return client_get(build->cli->client, path, &status, NULL) == 0 &&
	       !strcmp(json_str(status, "type"), "dir");
}

static int64_t read_tar(void *buf, size_t len, void *arg, struct err *err)
{
	return mktar_read(arg, buf, len, err);
}

/* Sends what fd is into the folder: under the name top, or with top "" only its content. */
static int send(struct build *build, int fd, const char *folder, const char *top, struct err *err)
{
	_cleanup_free_ char *target =
		client_path("/v1/boxes/%s/archive?path=%s", build->box, folder);
	char source[32];
	struct mktar_spec spec = { .path = source, .top = top };
	struct client_request request = {
		.method = "PUT",
		.path = target,
		.body_type = "application/x-tar",
		.read = read_tar,
		.read_size = -1,
	};
	struct mktar *tar = NULL;
	int result;

	/* By fd: what was opened is sent, whatever has the name now. */
	snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
	if (make_folder(build, folder, err) < 0 || mktar_open(&spec, &tar, err) < 0)
		return -1;
	request.arg = tar;
	result = client_do(build->cli->client, &request, NULL, err);
	if (mktar_skipped(tar))
		cli_note(build->cli, "left out %llu sockets, pipes or devices",
			(unsigned long long)mktar_skipped(tar));
	mktar_close(tar);
	return result;
}

/* "a/b/" is "b"; yours. */
static char *last_part(const char *path)
{
	size_t end = strlen(path), begin;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (begin = end; begin && path[begin - 1] != '/'; begin--)
		;
	return xstrndup(path + begin, end - begin);
}

/* A folder is copied as its content; a file goes into a target that is, or must be, a folder, or is
 * renamed to it. */
static int copy_one(
	struct build *build, const char *source, const char *target, bool into, struct err *err)
{
	_cleanup_free_ char *name = last_part(source), *folder = NULL;
	_cleanup_close_ int fd = -1;
	struct stat status;

	if (build_context_open(build, source, &fd, err) < 0)
		return -1;
	if (fstat(fd, &status) < 0)
		return err_sys(err, errno, "read '%s'", source);
	if (S_ISDIR(status.st_mode))
		return send(build, fd, target, "", err);
	if (into || is_folder_in_box(build, target))
		return send(build, fd, target, name, err);
	folder = xstrndup(target, (size_t)MAX(strrchr(target, '/') - target, 1));
	return send(build, fd, folder, strrchr(target, '/') + 1, err);
}

static int run_copy(struct build *build, char *const *words, struct err *err)
{
	size_t count = strv_len((const char *const *)words);
	const char *given = words[count - 1];
	_cleanup_free_ char *target = build_config_path(build->config, given);
	/* The last component of "." and "x/." is no name for a file. */
	_cleanup_free_ char *tail = last_part(given);
	bool into = count > 2 || given[strlen(given) - 1] == '/' || !strcmp(tail, ".");

	for (size_t i = 0; i + 1 < count; i++)
		if (copy_one(build, words[i], target, into, err) < 0)
			return err_wrap(err, "'%s'", words[i]);
	return 0;
}

/* ---- a step --------------------------------------------------------------------------------- */

int build_step_run(struct build *build, const struct boxfile_step *step, struct err *err)
{
	_cleanup_free_ char *folder = NULL;

	switch (step->kind) {
	case BOXFILE_RUN:
		return run_program(build, step->rest, NULL, err);
	case BOXFILE_PACKAGES:
		return run_packages(build, step->words, err);
	case BOXFILE_COPY:
		return run_copy(build, step->words, err);
	case BOXFILE_WORKDIR:
		folder = build_config_path(build->config, step->words[0]);
		return make_folder(build, folder, err);
	default:
		return err_set(err, ERR_UNSUPPORTED, "'%s' is done without a box",
			boxfile_keyword(step->kind));
	}
}
