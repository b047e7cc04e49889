/* files.h - the file operations; each runs in its worker, answers through job and may block
 *
 * -1 with err: nothing was replied, or the stream after the reply is not whole. */
#pragma once
#include "guest/job.h"

int files_stat(struct job *job, struct err *err);
int files_list(struct job *job, struct err *err);
int files_read(struct job *job, struct err *err);
int files_write(struct job *job, struct err *err);
int files_mkdir(struct job *job, struct err *err);
int files_remove(struct job *job, struct err *err);
int files_rename(struct job *job, struct err *err);
int files_chmod(struct job *job, struct err *err);
