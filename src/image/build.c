/* build.c - the contents of a base image, decided before the work starts
 *
 * The work itself is a job (job.c) that runs a recipe (recipe.c). */
#include "image/image_internal.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>

/* What an agent expects to find, then what makes these work in a box: iproute2 to see the
 * network, iputils-ping because everybody tries it first, libnss-myhostname so that sudo and
 * others can resolve the box's own name, netbase for /etc/services, xz-utils and unzip for
 * archives. */
static const char *const standard_packages[] = { "git", "curl", "ca-certificates", "python3",
	"python3-pip", "python3-venv", "nodejs", "npm", "build-essential", "sudo", "procps",
	"strace", "openssh-client", "tmux", "less", "nano", "vim-tiny", "jq", "ripgrep", "iproute2",
	"iputils-ping", "libnss-myhostname", "netbase", "xz-utils", "unzip", NULL };
static const char *const minimal_packages[] = { "procps", NULL };

enum {
	PACKAGES_MAX = 256,
	PACKAGE_NAME_MAX = 128,
	ROOM_STANDARD_MB =
		2048, /* measured: 800 MB when done, downloads and their lists meanwhile */
	ROOM_MINIMAL_MB = 512,
};

static void recipe_free(void *arg)
{
	struct recipe *recipe = arg;

	free(recipe->suite);
	free(recipe->program);
	strv_free(recipe->packages);
	free(recipe);
}
static void recipe_freep(struct recipe **recipe)
{
	if (*recipe)
		recipe_free(*recipe);
}

/* ---- checks before the start ---------------------------------------------------------------- */

char *program_find(const char *name)
{
	const char *path = getenv("PATH");

	if (!path || !*path)
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	while (*path) {
		size_t len = strcspn(path, ":");
		_cleanup_free_ char *file = xasprintf("%.*s/%s", (int)len, path, name);

		if (len && access(file, X_OK) == 0)
			return steal_ptr(&file);
		path += len + (path[len] == ':');
	}
	return NULL;
}

/* Debian's rule for package names, with room to spare; nothing that apt or mmdebstrap would read as
 * an option, a pattern or a path. */
static int package_check(const char *name, struct err *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.";
	size_t len = strnlen(name, PACKAGE_NAME_MAX + 1);

	if (len >= 2 && len <= PACKAGE_NAME_MAX && strspn(name, allowed) == len &&
		!strchr("+-.", name[0]) && name[len - 1] != '-')
		return 0;
	err_set(err, ERR_INVALID, "'%.80s' is not the name of a Debian package", name);
	return err_hint(err, "use letters a-z, digits, '+', '-' and '.'");
}

static int choose_packages(const struct image_build_spec *spec, char ***ret, struct err *err)
{
	_cleanup_strv_ char **all = strv_copy(spec->minimal ? minimal_packages : standard_packages);

	if (strv_len(spec->packages) > PACKAGES_MAX)
		return err_set(err, ERR_TOO_LARGE, "more than %d packages asked for", PACKAGES_MAX);
	for (size_t i = 0; spec->packages && spec->packages[i]; i++) {
		if (package_check(spec->packages[i], err) < 0)
			return -1;
		if (!strv_has((const char *const *)all, spec->packages[i]))
			strv_add(&all, spec->packages[i]);
	}
	*ret = steal_ptr(&all);
	return 0;
}

static int choose_suite(char **ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, "/etc/os-release", 65536, &text, NULL, err) < 0)
		return -1;
	return suite_from_os_release(text, ret, err);
}

int image_build_start(struct images *images, const struct image_build_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err)
{
	static const struct job_work work = {
		.run = recipe_run, .free = recipe_free, .verb = "build"
	};
	_cleanup_(recipe_freep) struct recipe *recipe = xnew(struct recipe);
	uint64_t room = (uint64_t)(spec->minimal ? ROOM_MINIMAL_MB : ROOM_STANDARD_MB) << 20;
	const char *name = spec->name ? spec->name : "debian";

	if (image_name_check_given(name, err) < 0)
		return -1;
	recipe->minimal = spec->minimal;
	if (choose_packages(spec, &recipe->packages, err) < 0)
		return -1;
	recipe->program = program_find("mmdebstrap");
	if (!recipe->program) {
		err_set(err, ERR_UNSUPPORTED, "mmdebstrap is not installed");
		return err_hint(err, "apt-get install mmdebstrap");
	}
	if (choose_suite(&recipe->suite, err) < 0)
		return -1;
	if (room_check(images, room, err) < 0)
		return err_wrap(err, "build image '%s'", name);
	return image_job_start(images, name, &work, steal_ptr(&recipe), -1, ops, arg, ret, err);
}
