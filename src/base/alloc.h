/* alloc.h - small allocations that cannot fail, and locals that release themselves
 *
 * A small allocation that fails ends the program; a size that comes from outside is bounded by the
 * caller before it reaches these. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))

__attribute__((returns_nonnull)) void *xcalloc(size_t count, size_t size);
__attribute__((returns_nonnull)) void *xrealloc(void *ptr, size_t size);
char *xstrdup(const char *text); /* NULL gives NULL */
char *xstrndup(const char *text, size_t len);
void *xmemdup(const void *data, size_t len);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define xnew(type)     ((type *)xcalloc(1, sizeof(type)))
#define xnewn(type, n) ((type *)xcalloc((n), sizeof(type)))
#define xgrow(ptr, n)  ((ptr) = xrealloc((ptr), (n) * sizeof *(ptr)))

/* Takes the value out of a self-releasing local, so that it outlives the scope. */
#define steal_ptr(p)                                        \
	({                                                  \
		__typeof__(p) _steal_p = (p);               \
		__typeof__(*_steal_p) _steal_v = *_steal_p; \
		*_steal_p = NULL;                           \
		_steal_v;                                   \
	})

static inline int steal_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void cleanup_freep(void *p)
{
	free(*(void **)p);
}

void cleanup_closep(int *fd); /* keeps errno */

#define _cleanup_(fn)	__attribute__((cleanup(fn)))
#define _cleanup_free_	_cleanup_(cleanup_freep)
#define _cleanup_close_ _cleanup_(cleanup_closep)

/* DEFINE_CLEANUP(lease_free, struct lease) defines lease_freep, for use as
 * _cleanup_(lease_freep). */
#define DEFINE_CLEANUP(fn, type)           \
	static inline void fn##p(type **p) \
	{                                  \
		if (*p)                    \
			fn(*p);            \
	}
