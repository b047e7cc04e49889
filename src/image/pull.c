/* pull.c - pulls an image from a registry
 *
 *   1. the manifest, or an index and then the manifest for this machine
 *   2. the configuration, which tells the ids of the layers here; 1 and 2 are a few kilobytes
 *      each and are compared with their digests
 *   3. the blobs of the layers that are missing here, with skopeo, into
 *      BOX_HOME/downloads/pull-DIGEST
 *   4. stack.c verifies and unpacks them; then the folder is removed
 *
 * An image that is present costs steps 1 and 2. skopeo copies all layers of an image, but skips
 * a blob whose file exists, without reading it: so an empty file is created for each layer that
 * is not needed. An interrupted pull leaves its folder with every complete blob (skopeo renames
 * a blob into place when its digest is right); the next pull of the same image finds the folder
 * by the digest of the manifest. */
#include "image/oci_internal.h"
#include "base/file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define BLOBS "blobs/sha256"

struct pull_work {
	char *program;
	char *reference; /* with the registry */
	char *name, *authfile;
	bool insecure;
};

struct pull {
	const struct pull_work *work;
	const struct images *images;
	struct job_sink *sink;
	struct scratch scratch;
	char *pinned; /* the reference by digest */
	char digest[DIGEST_SIZE];
	struct oci_manifest manifest;
	struct oci_config config;
	bool has[IMAGE_LAYERS_MAX]; /* the layer is present */
	uint64_t want_bytes;
};

/* ---- manifest and configuration ------------------------------------------------------------- */

static bool has_policy(void)
{
	const char *home = getenv("HOME");
	_cleanup_free_ char *own = xasprintf("%s/.config/containers/policy.json", home ? home : "");

	return access(own, F_OK) == 0 || access("/etc/containers/policy.json", F_OK) == 0;
}

/* Ends with the options that both commands have. */
static char **make_argv(const struct pull_work *work, const char *command, const char *tls)
{
	char **argv = NULL;

	strv_add(&argv, work->program);
	strv_add(&argv, "--override-os=linux");
	if (!has_policy())
		strv_add(&argv, "--insecure-policy");
	strv_add(&argv, command);
	if (work->insecure)
		strv_add(&argv, tls);
	if (work->authfile) {
		_cleanup_free_ char *option = xasprintf("--authfile=%s", work->authfile);

		strv_add(&argv, option);
	}
	return argv;
}

/* Reads a manifest (of the reference), or the configuration. */
static int inspect(struct pull *pull, const char *reference, bool config, char **ret,
	size_t *ret_len, struct err *err)
{
	_cleanup_strv_ char **argv = make_argv(pull->work, "inspect", "--tls-verify=false");
	_cleanup_free_ char *source = xasprintf("docker://%s", reference);
	struct skopeo_run run = { .program = pull->work->program, .dir = "/tmp" };

	strv_add(&argv, "--raw");
	if (config)
		strv_add(&argv, "--config");
	strv_add(&argv, source);
	run.argv = argv;
	return skopeo_run(&run, ret, ret_len, err);
}

/* "host:5000/a/b:tag" with a digest becomes "host:5000/a/b@sha256:…". */
static char *pin(const char *reference, const char *digest)
{
	const char *slash = strrchr(reference, '/'), *last = slash ? slash : reference;
	size_t len = (size_t)(last - reference) + strcspn(last, ":@");

	return xasprintf("%.*s@%s", (int)len, reference, digest);
}

static int check_digest(
	const char *what, const char *text, size_t len, const char *expected, struct err *err)
{
	char digest[DIGEST_SIZE];

	digest_of(text, len, digest);
	if (strcmp(digest, expected))
		return err_set(err, ERR_INVALID, "the %s has digest %s, expected %s", what, digest,
			expected);
	return 0;
}

static int read_manifest(struct pull *pull, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *json = NULL;
	const char *asked = strchr(pull->work->reference, '@');
	struct oci_blob picked;
	size_t len;

	if (inspect(pull, pull->work->reference, false, &text, &len, err) < 0)
		return -1;
	if (asked && check_digest("manifest", text, len, asked + 1, err) < 0)
		return -1;
	digest_of(text, len, pull->digest);
	json = json_parse(text, len, err);
	if (!json)
		return err_wrap(err, "manifest");
	if (oci_is_index(json)) {
		if (oci_index_pick(json, &picked, NULL, err) < 0)
			return -1;
		strcpy(pull->digest, picked.digest);
		pull->pinned = pin(pull->work->reference, picked.digest);
		free(steal_ptr(&text));
		json_decref(steal_ptr(&json));
		if (inspect(pull, pull->pinned, false, &text, &len, err) < 0 ||
			check_digest("manifest", text, len, picked.digest, err) < 0)
			return -1;
		json = json_parse(text, len, err);
		if (!json)
			return err_wrap(err, "manifest");
	}
	if (!pull->pinned)
		pull->pinned = pin(pull->work->reference, pull->digest);
	return oci_manifest_read(json, &pull->manifest, err);
}

static int read_config(struct pull *pull, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *json = NULL;
	size_t len;

	if (inspect(pull, pull->pinned, true, &text, &len, err) < 0 ||
		check_digest("configuration", text, len, pull->manifest.config.digest, err) < 0)
		return -1;
	json = json_parse(text, len, err);
	if (!json)
		return err_wrap(err, "configuration");
	return oci_config_read(json, &pull->config, err);
}

/* ---- blobs ---------------------------------------------------------------------------------- */

static char *blob_path(const struct pull *pull, size_t index)
{
	return xasprintf("%s/" BLOBS "/%s", pull->scratch.path,
		digest_hex(pull->manifest.layers[index].digest));
}

/* The same blob may be several layers of which one is needed: then it must be fetched. */
static bool is_wanted(const struct pull *pull, size_t index)
{
	for (size_t i = 0; i < pull->manifest.layer_count; i++)
		if (!pull->has[i] && !strcmp(pull->manifest.layers[i].digest,
					     pull->manifest.layers[index].digest))
			return true;
	return false;
}

/* Keeps complete blobs, removes other files of an earlier pull, and creates a placeholder for
 * each blob that is not needed. */
static int prepare(struct pull *pull, struct err *err)
{
	_cleanup_free_ char *blobs = xasprintf("%s/" BLOBS, pull->scratch.path);
	DIR *dir = opendir(pull->scratch.path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (text_has_prefix(entry->d_name, "oci-put-blob"))
			unlinkat(pull->scratch.dir, entry->d_name, 0);
	if (dir)
		closedir(dir);
	if (dir_make_all(blobs, 0700, err) < 0)
		return -1;
	for (size_t i = 0; i < pull->manifest.layer_count; i++) {
		_cleanup_free_ char *path = blob_path(pull, i);
		struct stat st;
		bool wanted = is_wanted(pull, i);

		if (stat(path, &st) == 0 &&
			(wanted ? (uint64_t)st.st_size != pull->manifest.layers[i].size
				: st.st_size != 0))
			unlink(path);
		if (!wanted) {
			_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

			if (fd < 0)
				return err_sys(err, errno, "create '%s'", path);
		}
	}
	return 0;
}

/* How many of the wanted bytes have arrived: files in place, and those still being written. */
static int tell_progress(void *arg, struct err *err)
{
	struct pull *pull = arg;
	uint64_t done = 0;
	DIR *dir = opendir(pull->scratch.path);
	struct dirent *entry;
	struct stat st;

	while (dir && (entry = readdir(dir)))
		if (text_has_prefix(entry->d_name, "oci-put-blob") &&
			fstatat(pull->scratch.dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			done += (uint64_t)st.st_size;
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < pull->manifest.layer_count; i++) {
		_cleanup_free_ char *path = blob_path(pull, i);

		if (!pull->has[i] && stat(path, &st) == 0)
			done += (uint64_t)st.st_size;
	}
	job_progress(pull->sink, "download", MIN(done, pull->want_bytes), pull->want_bytes,
		pull->work->reference);
	return room_check(pull->images, 0, err); /* a registry may send more than it announced */
}

static int fetch(struct pull *pull, struct err *err)
{
	_cleanup_strv_ char **argv = make_argv(pull->work, "copy", "--src-tls-verify=false");
	_cleanup_free_ char *source = xasprintf("docker://%s", pull->pinned);
	struct skopeo_run run = { .program = pull->work->program,
		.dir = pull->scratch.path,
		.tick = tell_progress,
		.arg = pull };

	/* Blobs must have the bytes that the manifest names. */
	strv_add(&argv, "--dest-oci-accept-uncompressed-layers");
	strv_add(&argv, "--quiet");
	strv_add(&argv, source);
	strv_add(&argv, "oci:.:image"); /* relative: a path may contain a colon */
	run.argv = argv;
	return skopeo_run(&run, NULL, NULL, err);
}

static int open_layer(void *arg, size_t index, int *ret, struct err *err)
{
	const struct pull *pull = arg;
	_cleanup_free_ char *path = blob_path(pull, index);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open layer %zu", index + 1);
	*ret = fd;
	return 0;
}

/* ---- the job -------------------------------------------------------------------------------- */

/* Finds out which layers are missing. */
static int find_missing_layers(struct pull *pull, bool *ret_missing, struct err *err)
{
	char ids[IMAGE_LAYERS_MAX][LAYER_ID_SIZE];

	if (pull->manifest.layer_count != pull->config.count)
		return err_set(err, ERR_INVALID,
			"the manifest has %zu layers, the configuration %zu",
			pull->manifest.layer_count, pull->config.count);
	stack_ids(&pull->config, ids);
	*ret_missing = false;
	for (size_t i = 0; i < pull->config.count; i++) {
		pull->has[i] = layer_exists(pull->images, ids[i]);
		if (pull->has[i])
			continue;
		*ret_missing = true;
		pull->want_bytes += pull->manifest.layers[i].size;
	}
	return 0;
}

static int fetch_and_unpack(
	struct pull *pull, bool missing, struct image_draft *draft, struct err *err)
{
	const struct stack_spec spec = { .config = &pull->config,
		.manifest = &pull->manifest,
		.open_layer = open_layer,
		.arg = pull };
	char folder[32];

	if (!missing)
		return stack_unpack(pull->images, pull->sink, &spec, draft, err);
	snprintf(folder, sizeof folder, "pull-%.16s", digest_hex(pull->digest));
	if (scratch_open(pull->images, folder, &pull->scratch, err) < 0)
		return -1;
	if (prepare(pull, err) < 0 || room_check(pull->images, pull->want_bytes, err) < 0 ||
		fetch(pull, err) < 0) {
		scratch_close(&pull->scratch);
		return -1;
	}
	/* The blobs are removed in any case: damaged ones must not be used again. */
	if (stack_unpack(pull->images, pull->sink, &spec, draft, err) < 0) {
		if (err->kind == ERR_INVALID)
			scratch_discard(&pull->scratch);
		else
			scratch_close(&pull->scratch);
		return -1;
	}
	scratch_discard(&pull->scratch);
	return 0;
}

static int pull_image(struct pull *pull, struct image_draft *draft, struct err *err)
{
	bool missing;

	job_progress(pull->sink, "download", 0, 0, pull->work->reference);
	if (read_manifest(pull, err) < 0 || read_config(pull, err) < 0 ||
		find_missing_layers(pull, &missing, err) < 0)
		return -1;
	return fetch_and_unpack(pull, missing, draft, err);
}

static int pull_run(const struct images *images, struct job_sink *sink, struct image_draft *draft,
	void *arg, struct err *err)
{
	struct pull *pull = xnew(struct pull);
	int code;

	pull->work = arg;
	pull->images = images;
	pull->sink = sink;
	pull->scratch = (struct scratch)SCRATCH_INIT;
	code = pull_image(pull, draft, err);
	if (code < 0 && strcmp(pull->work->name, pull->work->reference))
		err_wrap(
			err, "'%.200s'", pull->work->reference); /* the job names it as people do */
	if (code == 0) {
		draft->origin = xstrdup("pulled");
		draft->digest = xstrdup(pull->digest);
	}
	oci_config_done(&pull->config);
	free(pull->pinned);
	free(pull);
	return code;
}

static void pull_free(void *arg)
{
	struct pull_work *work = arg;

	free(work->program);
	free(work->reference);
	free(work->name);
	free(work->authfile);
	free(work);
}

/* "host:5000/…", "host.name/…", "localhost/…"; not "team/tool". */
static bool names_registry(const char *reference)
{
	size_t len = strcspn(reference, "/");

	if (!reference[len])
		return false;
	return memchr(reference, '.', len) || memchr(reference, ':', len) ||
	       (len == 9 && !memcmp(reference, "localhost", 9));
}

int image_pull_start(struct images *images, const struct image_pull_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err)
{
	static const struct job_work job = { .run = pull_run, .free = pull_free, .verb = "pull" };
	_cleanup_free_ char *program = NULL;
	struct pull_work *work;
	bool add;

	if (image_name_check(spec->reference, err) < 0 ||
		(spec->name && image_name_check_given(spec->name, err) < 0) ||
		room_check(images, 0, err) < 0)
		return -1;
	program = program_find("skopeo");
	if (!program) {
		err_set(err, ERR_UNSUPPORTED, "skopeo is not installed");
		return err_hint(err, "apt install skopeo");
	}
	add = spec->registry && *spec->registry && !names_registry(spec->reference);
	work = xnew(struct pull_work);
	work->program = steal_ptr(&program);
	work->reference = add ? xasprintf("%s/%s", spec->registry, spec->reference)
			      : xstrdup(spec->reference);
	work->name = xstrdup(spec->name ? spec->name : spec->reference);
	work->authfile = spec->authfile && *spec->authfile ? xstrdup(spec->authfile) : NULL;
	work->insecure = spec->insecure;
	return image_job_start(images, work->name, &job, work, -1, ops, arg, ret, err);
}
