/* task.h - something asked of a box that is answered later: a question, or work on its files
 *
 * Whoever asks gets a task and may give it up. Callbacks come from the loop, never from inside a
 * call made to a task; the one called `done` comes once, last, and the task is gone with it. A box
 * that sleeps is woken for a task. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct task; /* opaque: fields live in task_internal.h */

typedef void (*task_done)(const struct err *err, void *arg); /* err NULL: it worked */

/* Nothing is called after this. Work on files is cancelled: a file that was being written is as it
 * was before. Accepts NULL. */
void task_cancel(struct task *task);

/* ---- work on files that takes or gives bytes (files.h) -------------------------------------- */

/* All bytes are taken. False: they wait, write no more until on_writable. */
bool task_write(struct task *task, const void *data, size_t len);
void task_write_end(struct task *task);
/* So many bytes of on_data were passed on: until then they count against a window, beyond which the
 * box has to wait. */
void task_consumed(struct task *task, size_t len);
