/* containers.c - settings for podman in a box
 *
 * Settings, and a script in front of crun or runc, both in the layer above every image: with its
 * own settings podman warns or fails in a box. The box may change them. */
#include "base/file.h"
#include "engine/ns/ns_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

extern const unsigned char oci_runtime_start[], oci_runtime_end[];
extern const unsigned char containers_conf_start[], containers_conf_end[];

static const char *const dirs[] = { "etc/containers", "etc/containers/containers.conf.d",
	"usr/local/lib", "usr/local/lib/boxyard" };

static const struct {
	const char *path;
	const unsigned char *start, *end;
	mode_t mode;
} files[] = {
	{ "etc/containers/containers.conf.d/50-boxyard.conf", containers_conf_start,
		containers_conf_end, 0644 },
	{ "usr/local/lib/boxyard/oci-runtime", oci_runtime_start, oci_runtime_end, 0755 },
};

int guest_make_containers(int layer, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (mkdirat(layer, dirs[i], 0700) < 0 || fchmodat(layer, dirs[i], 0755, 0) < 0)
			return err_sys(err, errno, "make '%s'", dirs[i]);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		size_t len = (size_t)(files[i].end - files[i].start);

		if (file_write_atomic(
			    layer, files[i].path, files[i].start, len, files[i].mode, err) < 0)
			return -1;
		if (fchmodat(layer, files[i].path, files[i].mode, 0) < 0)
			return err_sys(err, errno, "chmod '%s'", files[i].path);
	}
	return 0;
}

uint64_t guest_hash_containers(uint64_t hash)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		hash = guest_hash_more(
			hash, files[i].start, (size_t)(files[i].end - files[i].start));
	return hash;
}
