/* build_internal.h - what the files of a Boxfile's build share
 *
 * build.c         the command: steps in order, what is cached, the box, the name at the end
 * build_step.c    what a step does in the box
 * build_config.c  what an image tells besides its files: environment, command, ports
 * build_hash.c    keys of the cache */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "cli/boxfile.h"
#include "cli/cli.h"
#include "cli/guard.h"

enum { BUILD_KEY_LEN = 64 }; /* hex of a SHA-256 */

struct build {
	struct cli *cli;
	struct boxfile boxfile;
	int context;	/* folder that copy copies from */
	json_t *config; /* of the image after the steps so far */
	json_t *image;	/* the result of the steps so far */
	char key[BUILD_KEY_LEN + 1];
	/* Name of the build box; "" before the first step that is not cached. */
	char box[24];
	size_t step;	    /* the current one, from 0 */
	bool learn_hosts;   /* also learn package hosts that steps configure */
	bool midline;	    /* the last output did not end its line */
	bool step_failed;   /* in the box, which is kept then */
	struct guard guard; /* removes the box when this process is killed */
};

/* ---- build_step.c --------------------------------------------------------------------------- */

/* Runs a step that changes the disk. Fails with ERR_STATE when a program exits with another code
 * than 0. */
int build_step_run(struct build *build, const struct boxfile_step *step, struct err *err);
/* Opens a file or folder of the context; never one outside of it. */
int build_context_open(const struct build *build, const char *path, int *ret, struct err *err);

/* ---- build_config.c ------------------------------------------------------------------------- */

/* Applies the steps that change no file, and workdir, whose folder build_step_run() makes. */
int build_config_apply(json_t *config, const struct boxfile_step *step, struct err *err);
/* A missing key equals an empty one. */
bool build_config_equal(json_t *a, json_t *b);
/* The environment as an exec takes it: an object. New reference. */
json_t *build_config_env(json_t *config);
/* Makes path absolute: relative ones are below the workdir; "." and double slashes are removed.
 * Yours. */
char *build_config_path(json_t *config, const char *path);

/* ---- build_hash.c --------------------------------------------------------------------------- */

/* The key of a step after the key build->key. out needs BUILD_KEY_LEN + 1 bytes and may be that
 * key. */
int build_key_of_step(
	struct build *build, const struct boxfile_step *step, char *out, struct err *err);
void build_key_of_base(const char *image_id, char *out);
void build_key_of_config(const char *before, json_t *config, char *out);
