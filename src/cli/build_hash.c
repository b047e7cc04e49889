/* build_hash.c - keys of the cache; see build_internal.h
 *
 * A key is the SHA-256 of all that a step's result depends on: the previous key, its text, the
 * environment, user and folder it runs with, and for copy the names, modes and contents of the
 * files. Times are left out: a fresh checkout of the same files is the same. Every piece is hashed
 * with its length, so that no two lists of pieces look alike. */
#include "base/alloc.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "cli/build_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { BLOCK = 128 * 1024, DEPTH_MAX = 200 };

static void hash_text(struct sha256 *hash, const char *text)
{
	uint64_t len = strlen(text);

	sha256_add(hash, &len, sizeof len);
	sha256_add(hash, text, len);
}

static void hash_json(struct sha256 *hash, json_t *value)
{
	_cleanup_free_ char *text =
		value ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;

	hash_text(hash, text ? text : "");
}

/* Frees the hash. */
static void hash_end(struct sha256 *hash, char *out)
{
	char digest[DIGEST_SIZE];

	sha256_end(hash, digest);
	strcpy(out, digest_hex(digest));
}

/* ---- files ---------------------------------------------------------------------------------- */

static int hash_contents(struct sha256 *hash, int fd, const char *path, struct err *err)
{
	_cleanup_free_ char *block = xnewn(char, BLOCK);
	uint64_t total = 0;
	ssize_t got;

	while ((got = read(fd, block, BLOCK)) != 0) {
		if (got < 0 && errno == EINTR && !client_interrupted)
			continue;
		if (got < 0)
			return err_sys(err, errno, "read '%s'", path);
		sha256_add(hash, block, (size_t)got);
		total += (uint64_t)got;
	}
	sha256_add(hash, &total, sizeof total);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, because the order in a folder depends on the file system. */
static int read_names(int dir, const char *path, char ***ret, struct err *err)
{
	_cleanup_strv_ char **names = xnewn(char *, 1);
	size_t count = 0, room = 1;
	struct dirent *entry;
	DIR *stream;
	int fd = dup(dir);

	stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream)
		return err_sys(err, errno, "read '%s'", path);
	while ((entry = readdir(stream))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (count + 1 == room)
			xgrow(names, room *= 2);
		names[count++] = xstrdup(entry->d_name);
		names[count] = NULL;
	}
	closedir(stream);
	qsort(names, count, sizeof *names, by_name);
	*ret = steal_ptr(&names);
	return 0;
}

static int hash_open(
	struct sha256 *hash, int fd, const char *path, unsigned depth, struct err *err);

static int hash_entry(struct sha256 *hash, int dir, const char *name, const char *path,
	unsigned depth, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct stat status;
	char target[4096];
	ssize_t len;

	if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "read '%s'", path);
	if (S_ISLNK(status.st_mode)) {
		len = readlinkat(dir, name, target, sizeof target - 1);
		if (len < 0)
			return err_sys(err, errno, "read '%s'", path);
		target[len] = '\0';
		hash_text(hash, "link");
		hash_text(hash, path);
		hash_text(hash, target);
		return 0;
	}
	if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		return 0; /* not copied either */
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	return hash_open(hash, fd, path, depth, err);
}

/* Hashes a file or folder with its content. path is its name in the hash. */
static int hash_open(struct sha256 *hash, int fd, const char *path, unsigned depth, struct err *err)
{
	_cleanup_strv_ char **names = NULL;
	struct stat status;
	char mode[32];

	if (depth > DEPTH_MAX)
		return err_set(err, ERR_LIMIT, "'%.100s' is too deep", path);
	if (client_interrupted)
		return err_set(err, ERR_CANCELLED, "interrupted");
	if (fstat(fd, &status) < 0)
		return err_sys(err, errno, "read '%s'", path);
	snprintf(mode, sizeof mode, "%s %o", S_ISDIR(status.st_mode) ? "dir" : "file",
		status.st_mode & 0777);
	hash_text(hash, mode);
	hash_text(hash, path);
	if (!S_ISDIR(status.st_mode))
		return hash_contents(hash, fd, path, err);
	if (read_names(fd, path, &names, err) < 0)
		return -1;
	for (char **name = names; *name; name++) {
		_cleanup_free_ char *below = xasprintf("%s/%s", path, *name);

		if (hash_entry(hash, fd, *name, below, depth + 1, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- keys ----------------------------------------------------------------------------------- */

void build_key_of_base(const char *image_id, char *out)
{
	struct sha256 *hash = sha256_new();

	hash_text(hash, "boxfile 1");
	hash_text(hash, image_id);
	hash_end(hash, out);
}

void build_key_of_config(const char *before, json_t *config, char *out)
{
	struct sha256 *hash = sha256_new();

	hash_text(hash, before);
	hash_text(hash, "config");
	hash_json(hash, config);
	hash_end(hash, out);
}

static int hash_sources(
	struct sha256 *hash, struct build *build, char *const *words, struct err *err)
{
	for (; words[1]; words++) { /* the last one is the target */
		_cleanup_close_ int fd = -1;

		if (build_context_open(build, words[0], &fd, err) < 0 ||
			hash_open(hash, fd, "", 0, err) < 0)
			return -1;
	}
	return 0;
}

int build_key_of_step(
	struct build *build, const struct boxfile_step *step, char *out, struct err *err)
{
	static const char *const in_effect[] = { "env", "user", "workdir" };
	struct sha256 *hash = sha256_new();
	int result = 0;

	hash_text(hash, build->key);
	hash_text(hash, boxfile_keyword(step->kind));
	hash_text(hash, step->rest);
	if (build->learn_hosts)
		hash_text(hash, "learn-hosts");
	for (size_t i = 0; i < ARRAY_LEN(in_effect); i++)
		hash_json(hash, json_object_get(build->config, in_effect[i]));
	if (step->kind == BOXFILE_COPY)
		result = hash_sources(hash, build, step->words, err);
	if (result == 0)
		hash_end(hash, out);
	else
		sha256_free(hash);
	return result;
}
