/* manifest.c - the description of a state, a template or a running instance, as a file */
#include "engine/vm/vm_internal.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "base/text.h"
#include "engine/vm/ram.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { VERSION = 1, TEXT_MAX = 64 * 1024, DEVICES_MAX = 16 << 20 };

static_assert(DIGEST_SIZE <= VM_DIGEST, "a digest fits");

void vm_manifest_done(struct vm_manifest *manifest)
{
	free(manifest->key);
	free(manifest->image_key);
	strv_free(manifest->stack);
	*manifest = (struct vm_manifest){ 0 };
}

void vm_manifest_copy(struct vm_manifest *to, const struct vm_manifest *from)
{
	struct vm_manifest copy = *from;

	copy.key = xstrdup(from->key);
	copy.image_key = xstrdup(from->image_key);
	copy.stack = strv_copy((const char *const *)from->stack);
	vm_manifest_done(to);
	*to = copy;
}

/* Not synced: a state that must survive a restart of the machine is packed. */
static int write_text(int dir, const char *text, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dir, VM_MANIFEST ".tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(err, errno, "make '" VM_MANIFEST "'");
	if (fd_write_all(fd, text, strlen(text), err) < 0)
		return err_wrap(err, "'" VM_MANIFEST "'");
	if (renameat(dir, VM_MANIFEST ".tmp", dir, VM_MANIFEST) < 0)
		return err_sys(err, errno, "make '" VM_MANIFEST "'");
	return 0;
}

int vm_manifest_write(int dir, const struct vm_manifest *manifest, struct err *err)
{
	_cleanup_json_ json_t *json = NULL;
	_cleanup_free_ char *text = NULL, *generation = NULL;
	json_t *stack = json_array();

	for (char **layer = manifest->stack; layer && *layer; layer++)
		json_array_append_new(stack, json_string(*layer));
	generation = base64_encode(manifest->generation, sizeof manifest->generation);
	json = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:s, s:o}", "version",
		VERSION, "key", manifest->key, "image", manifest->image_key, "ram",
		(json_int_t)manifest->ram_bytes, "cpus", (json_int_t)manifest->cpus, "disk",
		(json_int_t)manifest->disk_bytes, "tsc_khz", (json_int_t)manifest->tsc_khz,
		"captured_us", (json_int_t)manifest->captured_us, "generation", generation, "told",
		manifest->told, "devices", manifest->devices, "memory", stack);
	text = json_text(json);
	return write_text(dir, text, err);
}

static bool get_number(const json_t *json, const char *name, uint64_t max, uint64_t *ret)
{
	const json_t *value = json_object_get(json, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		(uint64_t)json_integer_value(value) > max)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return true;
}

static bool get_stack(const json_t *list, char ***ret)
{
	json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > RAM_LAYERS_MAX)
		return false;
	json_array_foreach (list, i, item) {
		if (!json_is_string(item) || !ram_id_is_valid(json_string_value(item)))
			return false;
		strv_add(ret, json_string_value(item));
	}
	return true;
}

static bool get_all(const json_t *json, struct vm_manifest *ret)
{
	const char *key = json_string_value(json_object_get(json, "key"));
	const char *image = json_string_value(json_object_get(json, "image"));
	const char *generation = json_string_value(json_object_get(json, "generation"));
	const char *devices = json_string_value(json_object_get(json, "devices"));
	_cleanup_free_ uint8_t *bytes = NULL;
	uint64_t version, cpus;
	size_t len;

	if (!get_number(json, "version", VERSION, &version) || version != VERSION || !key ||
		!image || !generation || !devices || strlen(devices) >= sizeof ret->devices)
		return false;
	if (!get_number(json, "ram", RAM_BYTES_MAX, &ret->ram_bytes) ||
		!get_number(json, "cpus", QEMU_CPUS_MAX, &cpus) ||
		!get_number(json, "disk", UINT64_C(1) << 50, &ret->disk_bytes) ||
		!get_number(json, "tsc_khz", UINT32_MAX, &ret->tsc_khz) ||
		!get_number(json, "captured_us", INT64_MAX, &ret->captured_us))
		return false;
	if (!get_stack(json_object_get(json, "memory"), &ret->stack))
		return false;
	if (base64_decode(generation, strlen(generation), &bytes, &len, NULL) < 0 ||
		len != sizeof ret->generation)
		return false;
	memcpy(ret->generation, bytes, len);
	strcpy(ret->devices, devices);
	ret->key = xstrdup(key);
	ret->image_key = xstrdup(image);
	ret->cpus = (unsigned)cpus;
	ret->told = json_is_true(json_object_get(json, "told"));
	return true;
}

int vm_manifest_read(int dir, struct vm_manifest *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *json = NULL;
	struct vm_manifest found = { 0 };
	size_t len;

	if (file_read(dir, VM_MANIFEST, TEXT_MAX, &text, &len, err) < 0)
		return -1;
	json = json_parse(text, len, err);
	if (!json)
		return err_wrap(err, "'" VM_MANIFEST "'");
	if (!get_all(json, &found)) {
		vm_manifest_done(&found);
		return err_set(err, ERR_PROTOCOL, "'" VM_MANIFEST "' is malformed");
	}
	*ret = found;
	return 0;
}

/* ---- the state of devices ------------------------------------------------------------------- */

int vm_devices_digest(int dir, char ret[VM_DIGEST], struct err *err)
{
	_cleanup_free_ char *data = NULL;
	char digest[DIGEST_SIZE];
	size_t len;

	if (file_read(dir, VM_DEVICES, DEVICES_MAX, &data, &len, err) < 0)
		return -1;
	digest_of(data, len, digest);
	strcpy(ret, digest);
	return 0;
}

int vm_devices_check(int dir, const struct vm_manifest *manifest, struct err *err)
{
	char found[VM_DIGEST];

	if (vm_devices_digest(dir, found, err) < 0)
		return -1;
	if (strcmp(found, manifest->devices))
		return err_set(err, ERR_PROTOCOL, "the state of its devices is damaged");
	return 0;
}
