/* image_jobs.c - images built from packages and pulled from registries, with progress */
#include "api/api_internal.h"
#include "base/strv.h"
#include "conf/conf.h"
#include "image/image.h"

enum { PACKAGES_MAX = 500, PACKAGE_LEN_MAX = 128 };

static void free_job(struct job *job)
{
	free(job);
}

/* ---- building ------------------------------------------------------------------------------- */

static int check_packages(json_t *packages, struct err *err)
{
	json_t *item;
	size_t i;

	if (json_array_size(packages) > PACKAGES_MAX)
		return err_set(err, ERR_INVALID, "'packages' has more than %d names", PACKAGES_MAX);
	json_array_foreach (packages, i, item) {
		const char *name = json_string_value(item);
		size_t len = strlen(name);

		/* Names as in Debian, with an optional :architecture; never an option of the
		 * builder. */
		if (len < 2 || len > PACKAGE_LEN_MAX ||
			strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789+-.:") != len ||
			name[0] == '-' || name[0] == '+' || name[0] == '.' || name[0] == ':')
			return err_set(
				err, ERR_INVALID, "'%.80s' is not the name of a package", name);
	}
	return 0;
}

static int read_build(
	json_t *body, struct image_build_spec *ret, char ***ret_packages, struct err *err)
{
	json_t *packages = NULL, *item;
	size_t i;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "packages", JSON_WANT_STRINGS, &packages, false },
		{ "minimal", JSON_WANT_BOOL, &ret->minimal, false },
	};

	ret->name = "debian";
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0 ||
		image_name_check(ret->name, err) < 0 || check_packages(packages, err) < 0)
		return -1;
	json_array_foreach (packages, i, item)
		strv_add(ret_packages, json_string_value(item));
	ret->packages = (const char *const *)*ret_packages;
	return 0;
}

void api_image_build(struct call *call)
{
	_cleanup_strv_ char **packages = NULL;
	struct image_build_spec spec = { 0 };
	struct err err = ERR_INIT;
	struct job *job;

	if (read_build(call->body, &spec, &packages, &err) < 0)
		return call_error(call, &err);
	job = xnew(struct job);
	job_init(job, call, "image.built", true, free_job);
	job_started(job,
		image_build_start(
			yard_get_images(call->yard), &spec, &job_ops, job, &job->run, &err),
		&err);
}

/* ---- pulling -------------------------------------------------------------------------------- */

/* "host:5000" of "host:5000/team/tool:v2": the part before the first slash, if it looks like a
 * host. */
static char *host_of(const char *reference)
{
	size_t len = strcspn(reference, "/");
	_cleanup_free_ char *host = xstrndup(reference, len);

	if (!reference[len] || (!strpbrk(host, ".:") && strcmp(host, "localhost")))
		return NULL;
	return steal_ptr(&host);
}

static bool is_insecure(const struct conf *conf, const char *reference)
{
	_cleanup_free_ char *host = host_of(reference);
	const char *asked = host ? host : conf->registry;

	return asked && strv_has((const char *const *)conf->registries_insecure, asked);
}

static int read_pull(
	json_t *body, const struct conf *conf, struct image_pull_spec *ret, struct err *err)
{
	const struct json_key keys[] = {
		{ "reference", JSON_WANT_STRING, &ret->reference, true },
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "insecure", JSON_WANT_BOOL, &ret->insecure, false },
	};

	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (image_name_check(ret->reference, err) < 0)
		return err_wrap(err, "reference");
	if (ret->name && image_name_check(ret->name, err) < 0)
		return -1;
	ret->registry = conf->registry;
	ret->authfile = conf->registry_auth && *conf->registry_auth ? conf->registry_auth : NULL;
	ret->insecure = ret->insecure || is_insecure(conf, ret->reference);
	return 0;
}

void api_image_pull(struct call *call)
{
	struct image_pull_spec spec = { 0 };
	struct err err = ERR_INIT;
	struct job *job;

	if (read_pull(call->body, yard_get_conf(call->yard), &spec, &err) < 0)
		return call_error(call, &err);
	job = xnew(struct job);
	job_init(job, call, "image.pulled", true, free_job);
	job_started(job,
		image_pull_start(
			yard_get_images(call->yard), &spec, &job_ops, job, &job->run, &err),
		&err);
}
