/* names.c - the names of images
 *
 * An image is made with a name, and may get others later (tags: pool/images/names.json, so that
 * an image itself never changes). When several images claim a name, the latest claim wins: the
 * image made last, or the tag given after that. "python" and "python:latest" are one name,
 * stored as "python". */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>

enum {
	TAG_MAX = 128,
	PORT_DIGITS_MAX = 5,
	TAGS_MAX = 100000,
	TAGS_FILE_MAX = 64 * 1024 * 1024,
};
#define TAGS_FILE "names.json"

/* Never freed before images_close: image.name may point into it. */
struct image_tag {
	char *name; /* normal */
	char *owner;
	char id[11]; /* "": the name belongs to no image, not even to an older one made with it */
	int64_t since_us;
};

struct naming {
	const char *name;
	struct image *image;
	int64_t since_us;
};

/* ---- the syntax of names -------------------------------------------------------------------- */

static bool is_lower_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Letters and digits, with single separators between: "a", "my-tool", "a.b_c". */
static bool is_component(const char *text, size_t len)
{
	if (!len || !is_lower_or_digit(text[0]) || !is_lower_or_digit(text[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_lower_or_digit(text[i]) && !strchr("._-", text[i]))
			return false;
	return !memmem(text, len, "..", 2);
}

/* "host.test", "localhost:5000". */
static bool is_host(const char *text, size_t len)
{
	const char *colon = memchr(text, ':', len);
	size_t host = colon ? (size_t)(colon - text) : len, digits;

	if (!is_component(text, host))
		return false;
	if (!colon)
		return true;
	digits = len - host - 1;
	return digits && digits <= PORT_DIGITS_MAX && strspn(colon + 1, "0123456789") >= digits;
}

static bool is_tag(const char *text, size_t len)
{
	if (!len || len > TAG_MAX || text[0] == '.' || text[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
			return false;
	return true;
}

static bool is_digest(const char *text)
{
	return !strncmp(text, "sha256:", 7) && strlen(text + 7) == 64 &&
	       strspn(text + 7, "0123456789abcdef") == 64;
}

/* The path between host and tag: components with slashes. */
static bool is_path(const char *text, size_t len)
{
	const char *end = text + len;

	for (bool first = true;; first = false) {
		const char *slash = memchr(text, '/', (size_t)(end - text));
		size_t part = (size_t)((slash ? slash : end) - text);

		if (!is_component(text, part) && !(first && slash && is_host(text, part)))
			return false;
		if (!slash)
			return true;
		text = slash + 1;
	}
}

/* Where the tag begins (its colon), or NULL. A colon before a slash belongs to a port. */
static const char *tag_of(const char *name, const char *end)
{
	for (const char *p = end; p-- > name && *p != '/';)
		if (*p == ':')
			return p;
	return NULL;
}

int image_name_check(const char *name, struct err *err)
{
	const char *at = strchr(name, '@'), *end = at ? at : name + strlen(name);
	const char *colon = tag_of(name, end), *path_end = colon ? colon : end;

	if (strnlen(name, IMAGE_NAME_MAX + 1) <= IMAGE_NAME_MAX && (!at || is_digest(at + 1)) &&
		(!colon || is_tag(colon + 1, (size_t)(end - colon - 1))) &&
		is_path(name, (size_t)(path_end - name)))
		return 0;
	err_set(err, ERR_INVALID, "'%.80s' is not the name of an image", name);
	return err_hint(err, "names look like debian, python:3.11 or host:5000/team/tool:v2");
}

int image_name_check_given(const char *name, struct err *err)
{
	if (image_name_check(name, err) < 0)
		return -1;
	if (strchr(name, '@'))
		return err_set(err, ERR_INVALID,
			"'%.80s' has a digest: only a pulled image can have such a name", name);
	return 0;
}

char *image_name_normal(const char *name)
{
	static const char latest[] = ":latest";
	size_t len = strlen(name), tail = sizeof latest - 1;

	if (len > tail && !strcmp(name + len - tail, latest))
		len -= tail;
	return xstrndup(name, len);
}

/* ---- tags ----------------------------------------------------------------------------------- */

static struct image_tag *tag_find(
	const struct images *images, const char *owner, const char *normal)
{
	for (size_t i = images->tag_count; i-- > 0;)
		if (!strcmp(images->tags[i]->name, normal) &&
			!strcmp(images->tags[i]->owner, owner))
			return images->tags[i];
	return NULL;
}

static void tag_put(struct images *images, const char *owner, const char *normal, const char *id,
	int64_t since_us)
{
	struct image_tag *tag = tag_find(images, owner, normal);

	if (!tag) {
		tag = xnew(struct image_tag);
		tag->name = xstrdup(normal);
		tag->owner = xstrdup(owner);
		xgrow(images->tags, images->tag_count + 1);
		images->tags[images->tag_count++] = tag;
	}
	snprintf(tag->id, sizeof tag->id, "%s", id); /* "" : the name was taken away */
	tag->since_us = since_us;
}

/* In the file, a tag of IMAGE_OWNER_SHARED has its plain name, as before there were owners; any
 * other tag is "OWNER NAME". Yours. */
static char *tag_key(const struct image_tag *tag)
{
	return strcmp(tag->owner, IMAGE_OWNER_SHARED) ? xasprintf("%s %s", tag->owner, tag->name)
						      : xstrdup(tag->name);
}

static int tags_parse(struct images *images, json_t *tags, struct err *err)
{
	const char *key;
	json_t *tag;

	if (!json_is_object(tags) || json_object_size(tags) > TAGS_MAX)
		return err_set(err, ERR_INVALID, "not an object of names");
	json_object_foreach (tags, key, tag) {
		const char *space = strchr(key, ' '), *name = space ? space + 1 : key;
		_cleanup_free_ char *owner =
			space ? xstrndup(key, (size_t)(space - key)) : xstrdup(IMAGE_OWNER_SHARED);
		json_int_t since;
		const char *id;

		if (json_unpack(tag, "{s:s, s:I}", "image", &id, "since_us", &since) < 0 ||
			(*id && !image_id_is_valid(id)) || image_name_check(name, NULL) < 0)
			return err_set(err, ERR_INVALID, "name '%.80s'", name);
		tag_put(images, owner, name, id, since);
	}
	return 0;
}

void tags_load(struct images *images)
{
	_cleanup_free_ char *path = xasprintf("%s/" TAGS_FILE, images->path), *text = NULL;
	_cleanup_json_ json_t *tags = NULL;
	struct err err = ERR_INIT;
	size_t len;

	if (file_read(AT_FDCWD, path, TAGS_FILE_MAX, &text, &len, &err) < 0) {
		if (err.kind != ERR_NOT_FOUND)
			log_warn("cannot read the names of images", kv_err(&err));
		return;
	}
	tags = json_parse(text, len, &err);
	if (!tags || tags_parse(images, tags, &err) < 0)
		log_warn("names given to images are lost", kv_str("path", path), kv_err(&err));
}

static bool is_made_with(const struct images *images, const struct image_tag *tag)
{
	for (size_t i = 0; i < images->count; i++)
		if (!strcmp(entry_of(images->list[i])->given, tag->name) &&
			!strcmp(images->list[i]->owner, tag->owner))
			return true;
	return false;
}

/* Leaves out tags of removed images. */
static int tags_save(const struct images *images, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/" TAGS_FILE, images->path), *text = NULL;
	_cleanup_json_ json_t *tags = json_object();

	for (size_t i = 0; i < images->tag_count; i++) {
		const struct image_tag *tag = images->tags[i];
		_cleanup_free_ char *key = tag_key(tag);

		if (*tag->id ? images_by_id(images, tag->id) != NULL : is_made_with(images, tag))
			json_object_set_new(tags, key,
				json_pack("{s:s, s:I}", "image", tag->id, "since_us",
					(json_int_t)tag->since_us));
	}
	text = json_text(tags);
	return file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, err);
}

void tags_free(struct images *images)
{
	for (size_t i = 0; i < images->tag_count; i++) {
		free(images->tags[i]->name);
		free(images->tags[i]->owner);
		free(images->tags[i]);
	}
	free(images->tags);
	free(images->namings);
}

int images_tag(struct images *images, const char *id, const char *name, struct err *err)
{
	_cleanup_free_ char *normal = NULL;
	struct image_tag *old, before;
	const struct image *image;

	if (image_name_check_given(name, err) < 0)
		return -1;
	image = images_by_id(images, id);
	if (!image)
		return err_set(err, ERR_NOT_FOUND, "no image '%.80s'", id);
	if (images_check_own(images, image, err) < 0)
		return -1;
	normal = image_name_normal(name);
	old = tag_find(images, image->owner, normal);
	if (images->tag_count >= TAGS_MAX && !old)
		return err_set(err, ERR_LIMIT, "more than %d names of images", TAGS_MAX);
	before = old ? *old : (struct image_tag){ 0 };
	tag_put(images, image->owner, normal, image->id, clock_wall_us());
	if (tags_save(images, err) < 0) {
		/* an empty id means no image */
		tag_put(images, image->owner, normal, before.id, before.since_us);
		return err_wrap(err, "name image '%s'", image->id);
	}
	names_settle(images);
	log_info("image named", kv_str("image", image->id), kv_str("name", normal));
	return 0;
}

bool images_can_untag(const struct images *images, const struct image *image, const char *name)
{
	_cleanup_json_ json_t *names = names_of(images, image);
	_cleanup_free_ char *normal = image_name_normal(name);
	json_t *one;
	size_t i;

	json_array_foreach (names, i, one)
		if (!strcmp(json_string_value(one), normal))
			return json_array_size(names) > 1;
	return false;
}

int images_untag(
	struct images *images, const struct image *image, const char *name, struct err *err)
{
	static const struct image_tag nobody;
	_cleanup_free_ char *normal = image_name_normal(name);
	struct image_tag *old = tag_find(images, image->owner, normal);
	struct image_tag before = old ? *old : (struct image_tag){ 0 };

	if (images_check_own(images, image, err) < 0)
		return -1;
	tag_put(images, image->owner, normal, nobody.id, clock_wall_us());
	if (tags_save(images, err) < 0) {
		tag_put(images, image->owner, normal, before.id, before.since_us);
		return err_wrap(err, "remove the name of image '%s'", image->id);
	}
	names_settle(images);
	log_info("image lost a name", kv_str("image", image->id), kv_str("name", normal));
	return 0;
}

/* ---- who has which name --------------------------------------------------------------------- */

/* Each owner has his own names. */
static int compare_names(
	const char *name, const char *owner, const char *other_name, const char *other_owner)
{
	int order = strcmp(name, other_name);

	return order ? order : strcmp(owner, other_owner);
}

static int by_name_latest_first(const void *a, const void *b)
{
	const struct naming *x = a, *y = b;
	int order = compare_names(x->name, x->image->owner, y->name, y->image->owner);

	if (order)
		return order;
	if (x->since_us != y->since_us)
		return x->since_us > y->since_us ? -1 : 1;
	return strcmp(x->image->id, y->image->id);
}

static void claim(struct images *images, const char *name, struct image *image, int64_t since_us)
{
	images->namings[images->naming_count++] = (struct naming){ name, image, since_us };
}

void names_settle(struct images *images)
{
	size_t kept = 0;

	images->naming_count = 0;
	xgrow(images->namings, images->count + images->tag_count + 1);
	for (size_t i = 0; i < images->count; i++) {
		struct image *image = images->list[i];
		const char *given = entry_of(image)->given;
		const struct image_tag *tag = *given ? tag_find(images, image->owner, given) : NULL;

		image->name = (char *)"";
		if (*given && !(tag && !*tag->id && tag->since_us > image->created_us))
			claim(images, given, image, image->created_us);
	}
	for (size_t i = 0; i < images->tag_count; i++) {
		struct image *image = images_by_id(images, images->tags[i]->id);

		if (image)
			claim(images, images->tags[i]->name, image, images->tags[i]->since_us);
	}
	if (images->naming_count)
		qsort(images->namings, images->naming_count, sizeof *images->namings,
			by_name_latest_first);
	for (size_t i = 0; i < images->naming_count; i++) {
		struct naming *naming = &images->namings[i];

		const struct naming *before = &images->namings[kept - 1];

		if (kept && !compare_names(before->name, before->image->owner, naming->name,
				    naming->image->owner))
			continue;
		/* If an image has several names, the one it was made with is shown first. */
		if (!*naming->image->name || naming->name == entry_of(naming->image)->given)
			naming->image->name = (char *)naming->name;
		images->namings[kept++] = *naming;
	}
	images->naming_count = kept;
}

struct name_key {
	const char *name, *owner;
};

static int compare_key(const void *a, const void *b)
{
	const struct name_key *key = a;
	const struct naming *naming = b;

	return compare_names(key->name, key->owner, naming->name, naming->image->owner);
}

const struct image *names_find(const struct images *images, const char *owner, const char *normal)
{
	const struct name_key key = { normal, owner };
	const struct naming *found = images->naming_count
					     ? bsearch(&key, images->namings, images->naming_count,
						       sizeof *images->namings, compare_key)
					     : NULL;

	return found ? found->image : NULL;
}

json_t *names_of(const struct images *images, const struct image *image)
{
	json_t *names = json_array();

	if (!*image->name)
		return names;
	json_array_append_new(names, json_string(image->name));
	for (size_t i = 0; i < images->naming_count; i++)
		if (images->namings[i].image == image && images->namings[i].name != image->name)
			json_array_append_new(names, json_string(images->namings[i].name));
	return names;
}
