/* untar.c - see untar.h
 *
 * Bytes come in pieces of any size. The tar reader takes them as needed and returns TAR_WAIT when
 * they are used up; then we return for more, and the next piece continues there. */
#include "cli/untar_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include <errno.h>
#include <sys/stat.h>

static ssize_t read_fed(void *arg, void *data, size_t len, struct err *err)
{
	struct untar *untar = arg;

	if (!untar->len)
		return TAR_WAIT;
	len = MIN(len, untar->len);
	memcpy(data, untar->data, len);
	untar->data += len;
	untar->len -= len;
	return (ssize_t)len;
}

struct untar *untar_new(const struct untar_spec *spec)
{
	struct untar *untar = xnew(struct untar);

	untar->spec = *spec;
	untar->reader.read = read_fed;
	untar->reader.arg = untar;
	untar->file = (struct outfile)OUTFILE_INIT;
	untar->umask = umask(0);
	umask(untar->umask);
	return untar;
}

void untar_free(struct untar *untar)
{
	if (!untar)
		return;
	outfile_drop(&untar->file);
	free(untar->asked);
	free(untar->made);
	for (size_t i = 0; i < untar->folder_count; i++)
		free(untar->folders[i].name);
	free(untar->folders);
	tar_reader_done(&untar->reader);
	free(untar);
}

uint64_t untar_files(const struct untar *untar)
{
	return untar->files;
}

uint64_t untar_skipped(const struct untar *untar)
{
	return untar->skipped;
}

/* A malformed archive is the box's fault, not the user's. */
static int damaged(struct err *err)
{
	if (err && err->kind == ERR_TOO_LARGE)
		return err_wrap(err, "it is nested deeper than a path may be long");
	if (err)
		err->kind = ERR_PROTOCOL;
	return err_wrap(err, "the archive from the box is damaged");
}

static int write_content(
	struct untar *untar, uint64_t at, const void *data, size_t len, struct err *err)
{
	const struct tar_entry *entry = untar->entry;

	if (untar->file.fd < 0)
		return 0;
	if (entry->sparse && lseek(untar->file.fd, (off_t)at, SEEK_SET) < 0)
		return err_sys(err, errno, "'%.200s'", entry->name);
	if (fd_write_all(untar->file.fd, data, len, err) < 0)
		return err_wrap(err, "'%.200s'", entry->name);
	return 0;
}

/* 1: continue. */
static int take_content(struct untar *untar, struct err *err)
{
	uint8_t chunk[64 * 1024];
	uint64_t at = tar_offset(&untar->reader);
	ssize_t got = tar_read(&untar->reader, chunk, sizeof chunk, err);

	if (got == TAR_WAIT)
		return TAR_WAIT;
	if (got < 0)
		return damaged(err);
	if (got > 0)
		return write_content(untar, at, chunk, (size_t)got, err) < 0 ? -1 : 1;
	if (untar_end_file(untar, err) < 0)
		return -1;
	untar->entry = NULL;
	return 1;
}

static int take_entry(struct untar *untar, struct err *err)
{
	int status = tar_next(&untar->reader, &untar->entry, err);

	if (status == -1)
		return damaged(err);
	if (status == 0)
		untar->ended = true;
	if (status != 1)
		return status;
	return untar_make_entry(untar, err) < 0 ? -1 : 1;
}

int untar_feed(struct untar *untar, const void *data, size_t len, struct err *err)
{
	int status = 1;

	untar->data = data;
	untar->len = len;
	/* tar pads its archives; what follows the end has no meaning. */
	while (status == 1 && !untar->ended)
		status = untar->entry ? take_content(untar, err) : take_entry(untar, err);
	return status == -1 ? -1 : 0;
}

int untar_finish(struct untar *untar, struct err *err)
{
	untar_end_folders(untar);
	if (!untar->ended)
		return err_set(err, ERR_PROTOCOL, "the archive from the box ends too early");
	return 0;
}
