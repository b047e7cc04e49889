/* build.h - `box image build -f Boxfile` */
#pragma once

struct cli;

/* Uses the options of the command line; dir is the context, NULL: the Boxfile's folder. Returns the
 * exit code. */
int build_boxfile(struct cli *cli, const char *dir);
