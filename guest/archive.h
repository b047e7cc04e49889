/* archive.h - trees of files as tar streams; run in a worker like the rest of files.h */
#pragma once
#include "guest/job.h"

int archive_out(struct job *job, struct err *err);
int archive_in(struct job *job, struct err *err);
