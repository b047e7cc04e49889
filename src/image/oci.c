/* oci.c - manifests, indexes, configurations: JSON in, checked values out
 *
 * Many programs write these, so unknown keys are ignored; known ones must have the right type,
 * and all lists are bounded. OCI and Docker (schema 2) use the same keys, but different media
 * types. */
#include "image/oci_internal.h"
#include "base/text.h"
#include <stdio.h>
#include <sys/utsname.h>

enum { INDEX_MAX = 256, STRINGS_MAX = 1024 };
#define BLOB_SIZE_MAX (1ll << 40)

/* ---- reading JSON --------------------------------------------------------------------------- */

/* NULL when the key is missing; a wrong type is an error. */
static int get(json_t *object, const char *key, json_type type, json_t **ret, struct err *err)
{
	json_t *value = json_object_get(object, key);

	if (json_is_null(value))
		value = NULL;
	if (value && json_typeof(value) != type)
		return err_set(err, ERR_INVALID, "'%s' has the wrong type", key);
	*ret = value;
	return 0;
}

static int need(json_t *object, const char *key, json_type type, json_t **ret, struct err *err)
{
	if (get(object, key, type, ret, err) < 0)
		return -1;
	return *ret ? 0 : err_set(err, ERR_INVALID, "'%s' is missing", key);
}

static int get_text(json_t *object, const char *key, const char **ret, struct err *err)
{
	json_t *value;

	if (get(object, key, JSON_STRING, &value, err) < 0)
		return -1;
	*ret = value ? json_string_value(value) : "";
	return 0;
}

int digest_check(const char *text, struct err *err)
{
	if (!text_has_prefix(text, "sha256:"))
		return err_set(err, ERR_UNSUPPORTED, "'%.80s' is not a SHA-256 digest", text);
	if (strlen(text) != DIGEST_SIZE - 1 || strspn(text + 7, "0123456789abcdef") != 64)
		return err_set(err, ERR_INVALID, "'%.80s' is not a digest", text);
	return 0;
}

static int read_blob(json_t *descriptor, struct oci_blob *ret, struct err *err)
{
	json_t *size;
	const char *digest;

	if (!json_is_object(descriptor))
		return err_set(err, ERR_INVALID, "a descriptor is not an object");
	if (get_text(descriptor, "digest", &digest, err) < 0 || digest_check(digest, err) < 0 ||
		need(descriptor, "size", JSON_INTEGER, &size, err) < 0)
		return -1;
	if (json_integer_value(size) < 0 || json_integer_value(size) > BLOB_SIZE_MAX)
		return err_set(err, ERR_INVALID, "the size of '%s' is out of range", digest);
	strcpy(ret->digest, digest);
	ret->size = (uint64_t)json_integer_value(size);
	return 0;
}

/* ---- this machine --------------------------------------------------------------------------- */

const char *oci_architecture(void)
{
	static const struct {
		const char *machine, *name;
	} names[] = {
		{ "x86_64", "amd64" },
		{ "aarch64", "arm64" },
		{ "armv7l", "arm" },
		{ "armv8l", "arm" },
		{ "i686", "386" },
		{ "ppc64le", "ppc64le" },
		{ "s390x", "s390x" },
		{ "riscv64", "riscv64" },
		{ "loongarch64", "loong64" },
	};
	static struct utsname system;

	uname(&system);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(system.machine, names[i].machine))
			return names[i].name;
	return system.machine;
}

/* ---- indexes -------------------------------------------------------------------------------- */

bool oci_is_index(json_t *json)
{
	return json_is_array(json_object_get(json, "manifests"));
}

struct choice {
	json_t *fits, *unnamed; /* an entry for this machine; one without a platform */
	struct buf others;
};

static int consider(json_t *entry, struct choice *choice, struct err *err)
{
	const char *os, *architecture;
	json_t *platform;

	if (!json_is_object(entry))
		return err_set(err, ERR_INVALID, "an entry of the index is not an object");
	if (get(entry, "platform", JSON_OBJECT, &platform, err) < 0)
		return -1;
	if (!platform) {
		choice->unnamed = choice->unnamed ? choice->unnamed : entry;
		return 0;
	}
	if (get_text(platform, "os", &os, err) < 0 ||
		get_text(platform, "architecture", &architecture, err) < 0)
		return -1;
	if (!strcmp(os, "unknown")) /* signatures and the like */
		return 0;
	if (!strcmp(os, "linux") && !strcmp(architecture, oci_architecture()))
		choice->fits = choice->fits ? choice->fits : entry;
	else if (choice->others.len < 200)
		buf_addf(&choice->others, "%s%.16s/%.16s", choice->others.len ? ", " : "", os,
			architecture);
	return 0;
}

static int choose(json_t *index, struct choice *choice, struct err *err)
{
	json_t *entry, *entries;
	size_t i;

	if (need(index, "manifests", JSON_ARRAY, &entries, err) < 0)
		return -1;
	if (json_array_size(entries) > INDEX_MAX)
		return err_set(err, ERR_INVALID, "an index of more than %d entries", INDEX_MAX);
	json_array_foreach (entries, i, entry)
		if (consider(entry, choice, err) < 0)
			return -1;
	if (choice->fits || choice->unnamed)
		return 0;
	if (!choice->others.len)
		return err_set(err, ERR_INVALID, "the index names no image");
	return err_set(err, ERR_UNSUPPORTED, "the image is for %s, this machine is linux/%s",
		buf_str(&choice->others), oci_architecture());
}

int oci_index_pick(json_t *index, struct oci_blob *ret, json_t **ret_entry, struct err *err)
{
	struct choice choice = { .others = BUF_INIT };
	int code = choose(index, &choice, err);
	json_t *entry = choice.fits ? choice.fits : choice.unnamed;

	buf_done(&choice.others);
	if (code < 0 || read_blob(entry, ret, err) < 0)
		return -1;
	if (ret->size > OCI_JSON_MAX)
		return err_set(err, ERR_INVALID, "the manifest is too large");
	if (ret_entry)
		*ret_entry = entry;
	return 0;
}

/* ---- manifests ------------------------------------------------------------------------------ */

/* Helm charts, signatures and encrypted layers come in manifests, too. */
static int check_layer_type(json_t *layer, struct err *err)
{
	static const char *const starts[] = { "application/vnd.oci.image.layer.v1.tar",
		"application/vnd.docker.image.rootfs.diff.tar" };
	const char *type;

	if (get_text(layer, "mediaType", &type, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(starts); i++)
		if (text_has_prefix(type, starts[i]) && !strstr(type, "encrypted"))
			return 0;
	return err_set(err, ERR_UNSUPPORTED, "a layer has the unsupported type '%.100s'", type);
}

int oci_manifest_read(json_t *json, struct oci_manifest *ret, struct err *err)
{
	json_t *config, *layers, *layer, *version;
	size_t i;

	if (get(json, "schemaVersion", JSON_INTEGER, &version, err) < 0)
		return -1;
	if (version && json_integer_value(version) == 1)
		return err_set(err, ERR_UNSUPPORTED, "the manifest has the old format (schema 1)");
	if (need(json, "config", JSON_OBJECT, &config, err) < 0 ||
		need(json, "layers", JSON_ARRAY, &layers, err) < 0 ||
		read_blob(config, &ret->config, err) < 0)
		return -1;
	if (ret->config.size > OCI_JSON_MAX)
		return err_set(err, ERR_INVALID, "the configuration is too large");
	if (json_array_size(layers) > IMAGE_LAYERS_MAX)
		return err_set(err, ERR_UNSUPPORTED, "the image has more than %d layers",
			IMAGE_LAYERS_MAX);
	json_array_foreach (layers, i, layer)
		if (read_blob(layer, &ret->layers[i], err) < 0 || check_layer_type(layer, err) < 0)
			return err_wrap(err, "layer %zu", i + 1);
	ret->layer_count = json_array_size(layers);
	return 0;
}

/* ---- configurations ------------------------------------------------------------------------- */

static int check_machine(json_t *json, struct err *err)
{
	const char *os, *architecture;

	if (get_text(json, "os", &os, err) < 0 ||
		get_text(json, "architecture", &architecture, err) < 0)
		return -1;
	if (*os && strcmp(os, "linux"))
		return err_set(
			err, ERR_UNSUPPORTED, "the image is for %.32s, this machine is linux", os);
	if (*architecture && strcmp(architecture, oci_architecture()))
		return err_set(err, ERR_UNSUPPORTED, "the image is for %.32s, this machine is %s",
			architecture, oci_architecture());
	return 0;
}

static int read_diff_ids(json_t *json, struct oci_config *ret, struct err *err)
{
	json_t *rootfs, *list, *item;
	size_t i;

	if (need(json, "rootfs", JSON_OBJECT, &rootfs, err) < 0 ||
		need(rootfs, "diff_ids", JSON_ARRAY, &list, err) < 0)
		return -1;
	if (json_array_size(list) > IMAGE_LAYERS_MAX)
		return err_set(err, ERR_UNSUPPORTED, "the image has more than %d layers",
			IMAGE_LAYERS_MAX);
	if (!json_array_size(list))
		return err_set(err, ERR_INVALID, "the image has no layers");
	json_array_foreach (list, i, item) {
		if (!json_is_string(item))
			return err_set(err, ERR_INVALID, "'diff_ids' must be a list of strings");
		if (digest_check(json_string_value(item), err) < 0)
			return -1;
		strcpy(ret->diff_ids[i], json_string_value(item));
	}
	ret->count = json_array_size(list);
	return 0;
}

/* An invalid line of the environment or an invalid port is left out: the image runs without it. */
static bool is_variable(const char *text)
{
	const char *equals = strchr(text, '=');

	return equals && equals != text;
}

static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	const char *protocol = text + digits;

	return digits && digits <= 5 &&
	       (!*protocol || !strcmp(protocol, "/tcp") || !strcmp(protocol, "/udp") ||
		       !strcmp(protocol, "/sctp"));
}

static bool is_anything(const char *text)
{
	(void)text;
	return true;
}

static int copy_strings(json_t *from, const char *key, json_t *to, const char *to_key,
	bool (*fits)(const char *text), struct err *err)
{
	json_t *list, *item, *copy;
	size_t i;

	if (get(from, key, JSON_ARRAY, &list, err) < 0)
		return -1;
	if (json_array_size(list) > STRINGS_MAX)
		return err_set(
			err, ERR_TOO_LARGE, "'%s' has more than %d strings", key, STRINGS_MAX);
	copy = json_array();
	json_array_foreach (list, i, item) {
		if (!json_is_string(item)) {
			json_decref(copy);
			return err_set(err, ERR_INVALID, "'%s' must be a list of strings", key);
		}
		if (fits(json_string_value(item)))
			json_array_append(copy, item);
	}
	if (json_array_size(copy))
		json_object_set(to, to_key, copy);
	json_decref(copy);
	return 0;
}

static int copy_text(json_t *from, const char *key, json_t *to, const char *to_key, struct err *err)
{
	const char *text;

	if (get_text(from, key, &text, err) < 0)
		return -1;
	if (*text)
		json_object_set_new(to, to_key, json_string(text));
	return 0;
}

/* {"80/tcp":{}} */
static int copy_ports(json_t *from, json_t *to, struct err *err)
{
	json_t *ports, *value, *list;
	const char *port;

	if (get(from, "ExposedPorts", JSON_OBJECT, &ports, err) < 0)
		return -1;
	if (!json_object_size(ports))
		return 0;
	list = json_array();
	json_object_foreach (ports, port, value)
		if (is_port(port) && json_array_size(list) < STRINGS_MAX)
			json_array_append_new(
				list, json_sprintf("%s%s", port, strchr(port, '/') ? "" : "/tcp"));
	json_object_set_new(to, "ports", list);
	return 0;
}

static int copy_labels(json_t *from, json_t *to, struct err *err)
{
	json_t *labels, *value;
	const char *key;

	if (get(from, "Labels", JSON_OBJECT, &labels, err) < 0)
		return -1;
	json_object_foreach (labels, key, value)
		if (!json_is_string(value))
			return err_set(err, ERR_INVALID, "'Labels' must be an object of strings");
	if (json_object_size(labels))
		json_object_set(to, "labels", labels);
	return 0;
}

/* A label that names a layer that no longer exists (merged with others) means that no layer
 * counts. */
static void take_hosts_label(struct oci_config *config)
{
	json_t *labels = json_object_get(config->config, "labels");
	const char *until = json_string_value(json_object_get(labels, OCI_HOSTS_LABEL));

	config->says_hosts = until;
	config->host_layers = 0;
	for (size_t i = 0; until && i < config->count && !config->host_layers; i++)
		if (!strcmp(config->diff_ids[i], until))
			config->host_layers = i + 1;
	if (until)
		json_object_del(labels, OCI_HOSTS_LABEL);
	if (labels && !json_object_size(labels))
		json_object_del(config->config, "labels");
}

static int read_settings(json_t *json, json_t *to, struct err *err)
{
	json_t *from;

	if (get(json, "config", JSON_OBJECT, &from, err) < 0)
		return -1;
	if (!from)
		return 0;
	if (copy_strings(from, "Entrypoint", to, "entrypoint", is_anything, err) < 0 ||
		copy_strings(from, "Cmd", to, "cmd", is_anything, err) < 0 ||
		copy_strings(from, "Env", to, "env", is_variable, err) < 0 ||
		copy_text(from, "User", to, "user", err) < 0 ||
		copy_text(from, "WorkingDir", to, "workdir", err) < 0 ||
		copy_ports(from, to, err) < 0 || copy_labels(from, to, err) < 0)
		return -1;
	return image_config_check(to, err);
}

int oci_config_read(json_t *json, struct oci_config *ret, struct err *err)
{
	_cleanup_json_ json_t *config = json_object();

	if (check_machine(json, err) < 0 || read_diff_ids(json, ret, err) < 0 ||
		read_settings(json, config, err) < 0)
		return -1;
	ret->config = steal_ptr(&config);
	take_hosts_label(ret);
	return 0;
}

void oci_config_done(struct oci_config *config)
{
	json_decref(config->config);
	config->config = NULL;
}

json_t *oci_config_export(const json_t *config, const char *hosts)
{
	static const char *const same[][2] = { { "entrypoint", "Entrypoint" }, { "cmd", "Cmd" },
		{ "env", "Env" }, { "user", "User" }, { "workdir", "WorkingDir" },
		{ "labels", "Labels" } };
	json_t *to = json_object(), *ports = json_object_get(config, "ports"), *port;
	size_t at;

	for (size_t i = 0; i < ARRAY_LEN(same); i++) {
		json_t *value = json_object_get(config, same[i][0]);

		if (value)
			json_object_set(to, same[i][1], value);
	}
	if (hosts) {
		json_t *labels = json_object();

		json_object_update(labels, json_object_get(to, "Labels"));
		json_object_set_new(labels, OCI_HOSTS_LABEL, json_string(hosts));
		json_object_set_new(to, "Labels", labels);
	}
	if (json_array_size(ports))
		json_object_set_new(to, "ExposedPorts", json_object());
	json_array_foreach (ports, at, port)
		json_object_set_new(json_object_get(to, "ExposedPorts"), json_string_value(port),
			json_object());
	return to;
}
