/* init_program.c - see init_program.h */
#include "engine/init_program.h"
#include "base/file.h"
#include <fcntl.h>

enum { INIT_MAX = 64 * 1024 * 1024 };

/* box-init as the build embeds it; absent in a program that was linked without it. */
extern const unsigned char guest_init_start[] __attribute__((weak));
extern const unsigned char guest_init_end[] __attribute__((weak));

int init_program_find(struct init_program *ret, struct err *err)
{
	const char *path = getenv("BOX_INIT");

	*ret = (struct init_program){ 0 };
	if (path) {
		if (file_read(AT_FDCWD, path, INIT_MAX, &ret->owned, &ret->len, err) < 0)
			return err_wrap(err, "BOX_INIT");
		ret->data = ret->owned;
		return 0;
	}
	if (!guest_init_start) {
		err_set(err, ERR_UNSUPPORTED, "this program was built without box-init");
		return err_hint(err, "set BOX_INIT to a box-init program");
	}
	ret->data = guest_init_start;
	ret->len = (size_t)(guest_init_end - guest_init_start);
	return 0;
}
