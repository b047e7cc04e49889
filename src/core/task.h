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

/* Cancels the task: no callback comes after this. A file being written stays as it was before.
 * Accepts NULL. */
void task_cancel(struct task *task);

/* ---- work on files that takes or gives bytes (files.h) -------------------------------------- */

/* Writes; all bytes are taken. False: they are buffered, write no more until on_writable. */
bool task_write(struct task *task, const void *data, size_t len);
void task_write_end(struct task *task);
/* Returns so many bytes of on_data to the window; when the window is used up, the box has to
 * wait. */
void task_consumed(struct task *task, size_t len);
