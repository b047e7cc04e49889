/* image_make.c - image pull, import, export, and build from Debian packages; build.c runs
 * Boxfiles */
#include "base/buf.h"
#include "base/text.h"
#include "cli/build.h"
#include "cli/cli.h"
#include "cli/download.h"
#include "cli/image_job.h"
#include "cli/mktar.h"
#include "cli/progress.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { BAR_DELAY_MS = 500, ANSWER_MAX = 1024 * 1024 };

static int finish(struct cli *cli, json_t *image)
{
	if (!cli->json)
		image_print_line(image);
	json_decref(image);
	return 0;
}

/* ---- build, pull ---------------------------------------------------------------------------- */

static int build_packages(struct cli *cli, int argc, char **argv)
{
	json_t *body = json_object(), *packages = json_array(), *image = NULL;
	struct err err = ERR_INIT;

	if (argc)
		json_object_set_new(body, "name", json_string(argv[0]));
	for (size_t i = 0; cli_nth(cli, "package", i); i++)
		json_array_append_new(packages, json_string(cli_nth(cli, "package", i)));
	json_object_set_new(body, "packages", packages);
	if (cli_has(cli, "minimal"))
		json_object_set_new(body, "minimal", json_true());
	if (image_job_run(cli, "image", "/v1/images", body, cli->json, &image, &err) < 0)
		return cli_fail(cli, &err);
	return finish(cli, image);
}

int cmd_image_build(struct cli *cli, int argc, char **argv)
{
	static const char *const of_boxfile[] = { "tag", "no-cache", "pull", "learn-hosts" };

	if (cli_has(cli, "file")) {
		if (cli_has(cli, "package") || cli_has(cli, "minimal"))
			return cli_usage(cli, "--package and --minimal do not go with a Boxfile");
		return build_boxfile(cli, argc ? argv[0] : NULL);
	}
	for (size_t i = 0; i < ARRAY_LEN(of_boxfile); i++)
		if (cli_has(cli, of_boxfile[i]))
			return cli_usage(cli, "--%s needs a Boxfile: -f FILE", of_boxfile[i]);
	return build_packages(cli, argc, argv);
}

int cmd_image_pull(struct cli *cli, int argc, char **argv)
{
	json_t *body = json_pack("{s:s}", "reference", argv[0]), *image = NULL;
	struct err err = ERR_INIT;

	(void)argc;
	if (cli_get(cli, "name"))
		json_object_set_new(body, "name", json_string(cli_get(cli, "name")));
	if (cli_has(cli, "insecure"))
		json_object_set_new(body, "insecure", json_true());
	if (image_job_run(cli, argv[0], "/v1/images/pull", body, cli->json, &image, &err) < 0)
		return cli_fail(cli, &err);
	return finish(cli, image);
}

/* ---- import --------------------------------------------------------------------------------- */

struct upload {
	struct progress bar;
	const char *path;
	int fd;
	struct mktar *mktar;  /* or NULL */
	uint64_t done, total; /* total 0: not known */
	struct buf answer;
};

static int64_t read_source(struct upload *upload, void *buf, size_t len, struct err *err)
{
	ssize_t got;

	if (upload->mktar)
		return mktar_read(upload->mktar, buf, len, err);
	do
		got = read(upload->fd, buf, len);
	while (got < 0 && errno == EINTR);
	return got < 0 ? err_sys(err, errno, "read '%s'", upload->path) : got;
}

static int64_t on_read(void *buf, size_t len, void *arg, struct err *err)
{
	struct upload *upload = arg;
	int64_t got = read_source(upload, buf, len, err);

	if (got <= 0)
		return got;
	upload->done += (uint64_t)got;
	progress_bytes(&upload->bar, upload->done, upload->total);
	return got;
}

static int on_answer(const void *data, size_t len, void *arg, struct err *err)
{
	struct upload *upload = arg;

	if (upload->answer.len + len > ANSWER_MAX)
		return err_set(err, ERR_PROTOCOL, "the daemon's answer is too large");
	buf_add(&upload->answer, data, len);
	return 0;
}

/* "/x/Python_3.tar.gz" becomes "python_3"; yours. Characters not allowed in names become dashes. */
static char *name_from_path(const char *path)
{
	static const char *const endings[] = { ".gz", ".zst", ".xz", ".tgz", ".tzst", ".txz",
		".tar" };
	_cleanup_free_ char *whole = realpath(path, NULL);
	const char *base = whole ? strrchr(whole, '/') + 1 : path;
	char *name = xstrdup(*base ? base : "imported");
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		size_t tail = strlen(endings[i]);

		if (len > tail && !strcmp(name + len - tail, endings[i]))
			name[len -= tail] = '\0';
	}
	for (char *p = name; *p; p++) {
		*p = (char)tolower((unsigned char)*p);
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			*p = '-';
	}
	if (!isalnum((unsigned char)name[0]))
		name[0] = 'x';
	return name;
}

static int open_upload(
	struct upload *upload, const char *path, const struct mktar_spec *spec, struct err *err)
{
	bool is_stdin = !strcmp(path, "-");
	struct stat status;

	upload->path = is_stdin ? "stdin" : path;
	if (is_stdin && isatty(STDIN_FILENO))
		return err_set(
			err, ERR_INVALID, "stdin is a terminal; an archive must come from it");
	upload->fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (upload->fd < 0 || fstat(upload->fd, &status) < 0)
		return err_sys(err, errno, "open '%s'", upload->path);
	if (S_ISDIR(status.st_mode))
		return mktar_open(spec, &upload->mktar, err);
	if (S_ISREG(status.st_mode))
		upload->total = (uint64_t)MAX(status.st_size - lseek(upload->fd, 0, SEEK_CUR), 0);
	return 0;
}

/* Sends what was opened; *ret is the image. */
static int send_import(
	struct cli *cli, struct upload *upload, const char *path, json_t **ret, struct err *err)
{
	struct client_request request = {
		.method = "POST",
		.path = path,
		.body_type = "application/x-tar",
		.read = on_read,
		.read_size = upload->total ? (int64_t)upload->total : -1,
		.data = on_answer,
		.arg = upload,
	};
	int result;

	progress_init(&upload->bar, "import", !cli->quiet && !cli->json, BAR_DELAY_MS);
	result = client_do(cli->client, &request, NULL, err);
	progress_done(&upload->bar);
	if (result < 0)
		return -1;
	*ret = json_loadb(buf_str(&upload->answer), upload->answer.len, 0, NULL);
	return *ret ? 0 : err_set(err, ERR_PROTOCOL, "the daemon's answer is not JSON");
}

int cmd_image_import(struct cli *cli, int argc, char **argv)
{
	struct mktar_spec spec = { .path = argv[0], .top = "", .preserve = true };
	struct upload upload = { .fd = -1 };
	_cleanup_free_ char *path = NULL, *name = NULL;
	struct err err = ERR_INIT;
	json_t *image = NULL;
	int result;

	/* A name in the archive wins over the file's name; for a pipe there is no other. */
	name = strcmp(argv[0], "-") ? name_from_path(argv[0]) : NULL;
	path = argc > 1 ? client_path("/v1/images/import?name=%s", argv[1])
	       : name	? client_path("/v1/images/import?fallback=%s", name)
			: xstrdup("/v1/images/import");
	result = open_upload(&upload, argv[0], &spec, &err);
	if (result == 0)
		result = send_import(cli, &upload, path, &image, &err);
	if (upload.mktar && mktar_skipped(upload.mktar))
		cli_note(cli, "left out %llu sockets, pipes or devices",
			(unsigned long long)mktar_skipped(upload.mktar));
	mktar_close(upload.mktar);
	cleanup_closep(&upload.fd);
	buf_done(&upload.answer);
	if (result < 0)
		return cli_fail(cli, &err);
	if (cli->json)
		return cli_print_json(image);
	return finish(cli, image);
}

/* ---- export --------------------------------------------------------------------------------- */

int cmd_image_export(struct cli *cli, int argc, char **argv)
{
	const char *target = cli_get(cli, "output"), *format = cli_get(cli, "format");
	_cleanup_free_ char *path =
		client_path("/v1/images/%s/export?format=%s", argv[0], format ? format : "oci");
	struct err err = ERR_INIT;
	uint64_t bytes;
	char size[16];

	(void)argc;
	if (download(cli, argv[0], path, target ? target : "-", &bytes, &err) < 0)
		return cli_fail(cli, &err);
	if (!target || !strcmp(target, "-"))
		return 0;
	if (cli->json)
		return cli_print_json(
			json_pack("{s:s, s:I}", "file", target, "bytes", (json_int_t)bytes));
	if (!cli->quiet)
		printf("%s  %s\n", target, format_size(bytes, size));
	return 0;
}
