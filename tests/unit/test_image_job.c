/* test_image_job.c - images being made: helpers that finish, fail, are cancelled or killed; saving;
 * needs root
 *
 * The last tests use a pool in a loop file and say so when this machine cannot have one. */
#include "image_fixture.h"
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* ---- jobs with a work of our own ------------------------------------------------------------ */

enum ending { END_WELL, END_BADLY, END_BY_KILL, END_NEVER, END_WITHOUT_LAYER };

struct order {
	enum ending ending;
	const char *layer; /* its id; NULL: as the image */
	bool *freed;
};

static void order_free(void *arg)
{
	struct order *order = arg;

	*order->freed = true;
	free(order);
}

static int order_run(const struct images *images, struct job_sink *sink, struct image_draft *draft,
	void *arg, struct err *err)
{
	struct order *order = arg;
	const char *layer = order->layer ? order->layer : draft->id;
	_cleanup_free_ char *tmp = NULL, *name = xasprintf("%s/files", layer);
	_cleanup_close_ int files = -1;

	for (unsigned i = 0; i < 1000; i++)
		job_progress(sink, "unpack", i, 1000, "many");
	job_progress(sink, "a stage with a name longer than it may be", 1, 1, NULL);
	strv_add(&draft->layers, name);
	draft->origin = xstrdup("test");
	if (order->ending == END_WITHOUT_LAYER)
		return 0;
	if (layer_begin(images, layer, &tmp, &files, err) < 0)
		return -1;
	close(openat(files, "hello", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	job_progress(sink, "wait", 0, 0, "");
	if (order->ending == END_NEVER)
		pause();
	if (order->ending == END_BY_KILL)
		raise(SIGKILL);
	if (order->ending == END_BADLY)
		return err_set(err, ERR_INVALID, "spoilt");
	return layer_publish(images, layer, tmp, 4096, 1, err);
}

static int start(struct fixture *f, const char *name, enum ending ending, const char *layer,
	bool *freed, struct image_job **ret, struct err *err)
{
	static const struct job_work work = {
		.run = order_run, .free = order_free, .light = true, .verb = "cook"
	};
	struct order *order = xnew(struct order);

	*order = (struct order){ ending, layer, freed };
	*freed = false;
	return image_job_start(f->images, name, &work, order, -1, &job_ops, f, ret, err);
}

static size_t count_names(const struct fixture *f, const char *place, const char *prefix)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", f->home, place);
	_cleanup_strv_ char **names = folder_list(path);
	size_t count = 0;

	for (size_t i = 0; names && names[i]; i++)
		count += text_has_prefix(names[i], prefix);
	return count;
}

/* Nothing that begins with a dot, but for what is on its way out; that soon. */
static void assert_no_leftovers(struct fixture *f)
{
	static const char *const places[] = { "pool/images", "pool/layers", "layers", "downloads" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		assert_int_equal(count_names(f, places[i], IMAGE_DRAFT_PREFIX), 0);
		for (int k = 0; k < 200 && count_names(f, places[i], "."); k++)
			run_for(f, 10);
		assert_int_equal(count_names(f, places[i], "."), 0);
	}
}

static size_t count_layers(const struct fixture *f)
{
	return count_names(f, "pool/layers", "") + count_names(f, "layers", "");
}

static void test_a_job_makes_an_image(void **state)
{
	struct fixture *f = *state;
	const struct image *image;
	struct image_job *job;
	struct err err = ERR_INIT;
	bool freed, again;

	assert_int_equal(start(f, "tool:latest", END_WELL, NULL, &freed, &job, &err), 0);
	assert_int_equal(start(f, "tool", END_WELL, NULL, &again, &job, &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	assert_true(again); /* what it was given is freed in any case */
	image = wait_for_job(f);
	assert_non_null(image);
	assert_true(freed);
	assert_in_range(f->progressed, 3, 50); /* told, but not a thousand times */
	assert_string_equal(image->name, "tool");
	assert_ptr_equal(images_find(f->images, "tool", &err), image);
	assert_int_equal(strlen(image->layers[0]) > strlen(f->home), 1);
	assert_int_equal(access(image->layers[0], F_OK), 0);
	assert_no_leftovers(f);
	fixture_reopen(f);
	assert_non_null(images_find(f->images, "tool", &err));
}

static void test_a_job_that_fails_leaves_nothing(void **state)
{
	static const enum ending endings[] = { END_BADLY, END_BY_KILL, END_WITHOUT_LAYER };
	static const char *const words[] = { "cook image 'tool': spoilt", "without a message",
		"is missing" };
	struct fixture *f = *state;
	struct image_job *job;
	struct err err = ERR_INIT;
	bool freed;

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		assert_int_equal(start(f, "tool", endings[i], NULL, &freed, &job, &err), 0);
		assert_null(wait_for_job(f));
		assert_non_null(strstr(f->err.message, words[i]));
		assert_null(images_find(f->images, "tool", &err));
		assert_no_leftovers(f);
		assert_int_equal(count_layers(f), 0);
	}
}

static void test_a_cancelled_job_is_silent_and_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct image_job *job;
	struct err err = ERR_INIT;
	bool freed, second;

	assert_int_equal(start(f, "tool", END_NEVER, NULL, &freed, &job, &err), 0);
	while (strcmp(f->stage, "wait"))
		run_for(f, 10);
	image_job_cancel(job);
	/* The name is free again at once. */
	assert_int_equal(start(f, "tool", END_WELL, NULL, &second, &job, &err), 0);
	assert_non_null(wait_for_job(f));
	run_for(f, 100);
	assert_true(freed);
	assert_false(f->done);
	assert_no_leftovers(f);
	/* Closing ends what runs. */
	assert_int_equal(start(f, "other", END_NEVER, NULL, &freed, &job, &err), 0);
	run_for(f, 50);
	fixture_reopen(f);
	assert_true(freed);
	assert_no_leftovers(f);
	assert_int_equal(count_layers(f), 1);
}

/* A daemon in a child, killed while a job runs: the helper dies with it, the next one finds
 * order. */
static void test_a_killed_daemon_leaves_nothing_half_visible(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	int told[2];
	pid_t daemon;
	char byte;

	fixture_close(f);
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	daemon = fork();
	if (daemon == 0) {
		struct image_job *job;
		bool freed;

		loop_free(f->loop);
		f->loop = loop_new();
		fixture_open(f);
		if (start(f, "tool", END_NEVER, NULL, &freed, &job, &err) < 0)
			_exit(1);
		while (strcmp(f->stage, "wait"))
			run_for(f, 10);
		if (write(told[1], "x", 1) != 1)
			_exit(1);
		loop_run(f->loop);
		_exit(0);
	}
	close(told[1]);
	assert_int_equal(read(told[0], &byte, 1), 1);
	close(told[0]);
	kill(daemon, SIGKILL);
	waitpid(daemon, NULL, 0);
	assert_int_equal(count_layers(f), 1); /* half a layer */
	fixture_open(f);
	assert_null(images_find(f->images, "tool", &err));
	assert_no_leftovers(f);
	assert_int_equal(count_layers(f), 0);
}

static void test_a_finished_draft_is_published_at_open(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	put_own(f, "aaaaaaaaaa", "base", 1000000, "", LAYERS("l1"));
	put_record(f, "pool/images/.new-bbbbbbbbbb", "bbbbbbbbbb", "whole", 2000000,
		",\"layers\":[\"l1/files\"]");
	put_record(f, "pool/images/.new-cccccccccc", "cccccccccc", "torn", 2000000,
		",\"layers\":[\"cccccccccc/upper\",\"l1/files\"]");
	put(f, "pool/images/.new-dddddddddd/image.json", "{\"id\":\"ddddddd");
	put_dir(f, "pool/layers/dddddddddd/upper");
	put_dir(f, "layers/.new-dddddddddd-x/files");
	put_dir(f, "layers/sha256:abc/files"); /* whole: for the next pull */
	fixture_reopen(f);
	assert_non_null(images_find(f->images, "whole", &err));
	assert_null(images_find(f->images, "torn", &err));
	assert_no_leftovers(f);
	assert_false(is_there(f, "pool/layers/dddddddddd"));
	assert_true(is_there(f, "layers/sha256:abc/files"));
}

static void test_the_first_of_two_equal_layers_stays(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	char *one, *two;
	int a, b;

	assert_false(layer_exists(f->images, "sha256:1"));
	assert_int_equal(layer_begin(f->images, "../x", &one, &a, &err), -1);
	assert_int_equal(layer_begin(f->images, ".x", &one, &a, &err), -1);
	assert_int_equal(layer_begin(f->images, "sha256:1", &one, &a, &err), 0);
	assert_int_equal(layer_begin(f->images, "sha256:1", &two, &b, &err), 0);
	close(openat(a, "first", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	assert_false(layer_exists(f->images, "sha256:1"));
	assert_int_equal(layer_publish(f->images, "sha256:1", one, 1, 1, &err), 0);
	assert_true(layer_exists(f->images, "sha256:1"));
	assert_int_equal(layer_publish(f->images, "sha256:1", two, 2, 2, &err), 0);
	assert_true(is_there(f, "layers/sha256:1/files/first"));
	assert_no_leftovers(f);
	close(a);
	close(b);
	free(one);
	free(two);
}

/* A job may have found a layer that is there; it must not go before the job is over. */
static void test_layers_wait_for_running_jobs(void **state)
{
	struct fixture *f = *state;
	struct image_job *job;
	struct err err = ERR_INIT;
	json_t *told;
	bool freed;

	put_own(f, "aaaaaaaaaa", "base", 1000000, "", LAYERS("l1"));
	fixture_reopen(f);
	assert_int_equal(start(f, "tool", END_NEVER, NULL, &freed, &job, &err), 0);
	assert_int_equal(images_remove(f->images, "aaaaaaaaaa", &err), 0);
	told = images_gc(f->images, false, &err);
	json_decref(told);
	assert_true(is_there(f, "layers/l1"));
	image_job_cancel(job);
	run_for(f, 200);
	assert_false(is_there(f, "layers/l1"));
}

/* ---- saving --------------------------------------------------------------------------------- */

static void put_box(struct fixture *f, const char *id)
{
	_cleanup_free_ char *upper = xasprintf("%s/pool/boxes/%s/upper", f->home, id);
	_cleanup_free_ char *gone = xasprintf("%s/gone", upper),
			    *over = xasprintf("%s/over", upper);
	_cleanup_free_ char *file = xasprintf("pool/boxes/%s/upper/etc/new", id);
	_cleanup_free_ char *work = xasprintf("pool/boxes/%s/work/work", id);
	_cleanup_free_ char *nested = xasprintf("pool/boxes/%s/containers/big", id);
	struct err err = ERR_INIT;

	assert_int_equal(pool_disk_make(f->pool, "boxes", id, 0, &err), 0);
	put(f, file, "saved");
	put_dir(f, work);
	put(f, nested, "x");
	assert_int_equal(mknod(gone, S_IFCHR, makedev(0, 0)), 0);
	assert_int_equal(mkdir(over, 0755), 0);
	assert_int_equal(setxattr(over, "trusted.overlay.opaque", "y", 1, 0), 0);
}

static const struct image *save(
	struct fixture *f, const char *name, const struct image *parent, const char *disk)
{
	struct image_save_spec spec = {
		.name = name, .parent = parent, .disk = disk, .origin = "saved from ada"
	};
	struct image_job *job;
	struct err err = ERR_INIT;

	if (image_save_start(f->images, &spec, &job_ops, f, &job, &err) < 0)
		fail_msg("%s", err.message);
	if (!wait_for_job(f))
		fail_msg("%s", f->err.message);
	return f->image;
}

static void check_files(const struct image *image)
{
	_cleanup_free_ char *file = xasprintf("%s/etc/new", image->layers[0]);
	_cleanup_free_ char *gone = xasprintf("%s/gone", image->layers[0]);
	_cleanup_free_ char *over = xasprintf("%s/over", image->layers[0]), *text = NULL;
	struct stat st;
	char value[8];

	assert_int_equal(file_read(AT_FDCWD, file, 100, &text, NULL, NULL), 0);
	assert_string_equal(text, "saved");
	assert_int_equal(lstat(gone, &st), 0);
	assert_true(S_ISCHR(st.st_mode) && st.st_rdev == 0);
	assert_int_equal(getxattr(over, "trusted.overlay.opaque", value, sizeof value), 1);
}

static void check_saved(const struct image *image)
{
	_cleanup_free_ char *work = xasprintf("%s/../work", image->layers[0]);

	check_files(image);
	assert_int_equal(access(work, F_OK), -1);
}

static void save_twice(struct fixture *f)
{
	const struct image *parent, *one, *two;
	struct err err = ERR_INIT;
	json_t *json;

	put_shared(f, "aaaaaaaaaa", "debian", 1000000);
	parent = images_find(f->images, "debian", &err);
	put_box(f, "box1");
	one = save(f, "golden", parent, "box1");
	check_saved(one);
	assert_string_equal(one->parent, "aaaaaaaaaa");
	assert_string_equal(one->origin, "saved from ada");
	assert_string_equal(one->layers[1], parent->layers[0]);
	put(f, "pool/boxes/box1/upper/etc/new", "later"); /* the box goes on */
	check_saved(one);
	put(f, "pool/boxes/box1/upper/etc/new", "saved");
	two = save(f, "", one, "box1");
	assert_string_equal(two->name, "");
	assert_int_equal(strv_len((const char *const *)two->layers), 3);
	check_saved(two);
	json_decref(image_json(f->images, two)); /* has it measured */
	run_for(f, 300);
	json = image_json(f->images, two);
	assert_int_equal(json_integer_value(json_object_get(json, "shared_bytes")) > 5000, 1);
	assert_true(json_integer_value(json_object_get(json, "files")) >= 8);
	assert_int_equal(json_integer_value(json_object_get(json, "size_bytes")),
		json_integer_value(json_object_get(json, "own_bytes")) +
			json_integer_value(json_object_get(json, "shared_bytes")));
	json_decref(json);
	assert_int_equal(images_remove(f->images, one->id, &err), -1);
	fixture_reopen(f);
	check_saved(images_find(f->images, "golden", &err));
	assert_no_leftovers(f);
}

static void test_saving_copies_the_upper(void **state)
{
	save_twice(*state);
}

static void test_saving_refuses_before_it_starts(void **state)
{
	struct fixture *f = *state;
	struct buf layers = BUF_INIT;
	struct image_save_spec spec = { .disk = "nobox", .origin = "x", .name = "y" };
	struct image_job *job;
	struct err err = ERR_INIT;

	put_dir(f, "layers/l1/files");
	buf_add_str(&layers, ",\"layers\":[\"l1/files\"");
	for (int i = 1; i < IMAGE_LAYERS_MAX; i++)
		buf_add_str(&layers, ",\"l1/files\"");
	buf_add_str(&layers, "]");
	put_record(f, "pool/images/aaaaaaaaaa", "aaaaaaaaaa", "tall", 1, buf_str(&layers));
	put_record(f, "pool/images/bbbbbbbbbb", "bbbbbbbbbb", "small", 1,
		",\"layers\":[\"l1/files\"]");
	buf_done(&layers);
	fixture_reopen(f);
	spec.parent = images_find(f->images, "small", &err);
	assert_int_equal(image_save_start(f->images, &spec, &job_ops, f, &job, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	put_box(f, "box1");
	spec.disk = "box1";
	spec.name = "Not A Name";
	assert_int_equal(image_save_start(f->images, &spec, &job_ops, f, &job, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	spec.name = "y";
	spec.parent = images_find(f->images, "tall", &err);
	assert_int_equal(image_save_start(f->images, &spec, &job_ops, f, &job, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_non_null(strstr(err.hint, "export"));
}

static void test_building_refuses_bad_requests_before_it_starts(void **state)
{
	static const char *const bad[][2] = { { "--help", NULL }, { "a/b", NULL }, { "x;y", NULL },
		{ "a,b", NULL }, { "?essential", NULL }, { "x", NULL }, { "git-", NULL },
		{ "Git", NULL } };
	struct fixture *f = *state;
	_cleanup_free_ char *path = xstrdup(getenv("PATH"));
	struct image_build_spec spec = { 0 };
	struct image_job *job;
	struct err err = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		spec.packages = bad[i];
		assert_int_equal(image_build_start(f->images, &spec, &job_ops, f, &job, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
	spec = (struct image_build_spec){ .name = "../x" };
	assert_int_equal(image_build_start(f->images, &spec, &job_ops, f, &job, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	setenv("PATH", "/nonexistent", 1);
	spec.name = NULL;
	assert_int_equal(image_build_start(f->images, &spec, &job_ops, f, &job, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.hint, "mmdebstrap"));
	setenv("PATH", path ? path : "", 1);
}

/* ---- on btrfs ------------------------------------------------------------------------------- */

static int set_up_loop(void **state)
{
	struct fixture *f;
	struct pool_config config;
	struct err err = ERR_INIT;

	if (fixture_set_up(state) < 0)
		return -1;
	f = *state;
	fixture_close(f);
	tree_remove(AT_FDCWD, f->home, NULL);
	mkdir(f->home, 0755);
	f->mode = "loop";
	config = (struct pool_config){
		.loop = f->loop, .home = f->home, .mode = f->mode, .size = UINT64_C(2) << 30
	};
	if (pool_open(&config, &f->pool, &err) < 0) {
		print_message("no pool in a loop file here: %s\n", err.message);
		f->pool = NULL;
		return 0;
	}
	return images_open(f->loop, f->pool, f->home, &f->images, &err);
}

static void test_saving_takes_a_snapshot(void **state)
{
	struct fixture *f = *state;

	if (!f->pool)
		skip();
	save_twice(f);
}

/* What the disk holds right after a save, without any other sync, is the image. */
static void test_a_saved_image_survives_a_power_cut(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *cut =
		xasprintf("cp --sparse=always %s/pool.img %s/cut.img", f->home, f->home);
	_cleanup_free_ char *from = xasprintf("%s/cut.img", f->home);
	_cleanup_free_ char *to = xasprintf("%s/pool.img", f->home);
	const struct image *image;
	struct err err = ERR_INIT;

	if (!f->pool)
		skip();
	put_shared(f, "aaaaaaaaaa", "debian", 1000000);
	put_box(f, "box1");
	save(f, "golden", images_find(f->images, "debian", &err), "box1");
	assert_int_equal(system(cut), 0);
	fixture_close(f);
	assert_int_equal(rename(from, to), 0);
	fixture_open(f);
	image = images_find(f->images, "golden", &err);
	assert_non_null(image);
	check_files(image);
	assert_no_leftovers(f);
}

static int compare_times(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* 512 MiB in a box: a save costs as much as for an empty one. */
static void test_saving_takes_no_longer_for_more(void **state)
{
	enum { RUNS = 21, MIB = 512 };
	struct fixture *f = *state;
	_cleanup_free_ char *big = xasprintf("%s/pool/boxes/box1/upper/big", f->home);
	_cleanup_free_ char *chunk = xcalloc(1, 1 << 20);
	const struct image *parent;
	int64_t took[RUNS];
	struct err err = ERR_INIT;
	int fd;

	if (!f->pool)
		skip();
	put_shared(f, "aaaaaaaaaa", "debian", 1000000);
	parent = images_find(f->images, "debian", &err);
	put_box(f, "box1");
	fd = open(big, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	random_bytes(chunk, 4096);
	for (int i = 0; i < MIB; i++)
		assert_int_equal(fd_write_all(fd, chunk, 1 << 20, &err), 0);
	close(fd);
	assert_int_equal(pool_sync(f->pool, &err), 0);
	for (int i = 0; i < RUNS; i++) {
		int64_t began = clock_mono_us();

		save(f, "golden", parent, "box1");
		took[i] = clock_mono_us() - began;
		run_for(f, 30);
	}
	qsort(took, RUNS, sizeof *took, compare_times);
	print_message("save of %d MiB: p50 %lld us, p95 %lld us\n", MIB, (long long)took[RUNS / 2],
		(long long)took[RUNS * 95 / 100]);
	assert_true(took[RUNS / 2] < 200 * 1000); /* far from a copy, also on a busy machine */
}

/* The pool lets no program run; a layer being built does, in its own mount namespace, and nowhere
 * else. */
static void test_programs_run_in_a_layer_being_built_only(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *dir = xasprintf("%s/pool/layers/x", f->home);
	_cleanup_free_ char *program = xasprintf("%s/true", dir), *copy = NULL;
	struct err err = ERR_INIT;
	pid_t child;
	int status;

	if (!f->pool)
		skip();
	assert_int_equal(pool_disk_make(f->pool, "layers", "x", 0, &err), 0);
	copy = xasprintf("cp /bin/true %s", program);
	assert_int_equal(system(copy), 0);
	assert_int_not_equal(system(program), 0);
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWNS) < 0 || folder_unlock(dir, &err) < 0 || system(program))
			_exit(1);
		folder_lock(dir);
		_exit(system(program) == 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_not_equal(system(program), 0);
}

/* mmdebstrap needs a mirror; this stands in for it and does what an installation does that a pool
 * forbids. */
static const char installer[] =
	"#!/bin/sh\n"
	"set -e\n"
	"for word; do case $word in bookworm|trixie|sid|forky) next=1 ;; *) [ -z \"$next\" ] || "
	"{ root=$word; break; } ;; esac; done\n"
	"[ -d \"$root\" ] && [ -z \"$(ls -A \"$root\")\" ]\n"
	"mkdir -p $root/etc $root/dev $root/var/log $root/var/cache/apt\n"
	"echo secret > $root/etc/resolv.conf\n"
	"cp /bin/true $root/true && $root/true\n"
	"mknod $root/dev/zero c 1 5 && head -c 1 $root/dev/zero > /dev/null\n"
	"echo '0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.'\n"
	"echo 'Unpacking dash (0.5) ...'\n";

static void test_a_build_runs_programs_and_lands_as_a_layer(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *bin = xasprintf("%s/bin", f->home), *old = xstrdup(getenv("PATH"));
	_cleanup_free_ char *path = xasprintf("%s:%s", bin, old ? old : "/usr/bin:/bin");
	_cleanup_free_ char *program = xasprintf("%s/mmdebstrap", bin), *resolv = NULL, *id = NULL;
	struct image_build_spec spec = { .name = "base", .minimal = true };
	const struct image *image;
	struct image_job *job;
	struct err err = ERR_INIT;

	if (!f->pool)
		skip();
	put(f, "bin/mmdebstrap", installer);
	assert_int_equal(chmod(program, 0755), 0);
	setenv("PATH", path, 1);
	if (image_build_start(f->images, &spec, &job_ops, f, &job, &err) < 0)
		fail_msg("%s", err.message);
	image = wait_for_job(f);
	setenv("PATH", old ? old : "", 1);
	if (!image)
		fail_msg("%s", f->err.message);
	assert_string_equal(image->name, "base");
	assert_non_null(strstr(image->origin, "mmdebstrap"));
	assert_int_equal(json_object_size(image->config), 0);
	assert_string_equal(json_string_value(json_array_get(image->packages, 0)), "procps");
	assert_true(image->size_bytes > 0 && image->files > 5);
	assert_string_equal(f->stage, "measure");
	resolv = xasprintf("%s/etc/resolv.conf", image->layers[0]);
	assert_int_equal(access(resolv, F_OK), -1);
	assert_no_leftovers(f);
	id = xstrdup(image->id);
	fixture_reopen(f);
	assert_non_null(images_find(f->images, id, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, fixture_set_up, fixture_tear_down)
#define WITH_LOOP(test)	 cmocka_unit_test_setup_teardown(test, set_up_loop, fixture_tear_down)
		WITH_STORE(test_a_job_makes_an_image),
		WITH_STORE(test_a_job_that_fails_leaves_nothing),
		WITH_STORE(test_a_cancelled_job_is_silent_and_leaves_nothing),
		WITH_STORE(test_a_killed_daemon_leaves_nothing_half_visible),
		WITH_STORE(test_a_finished_draft_is_published_at_open),
		WITH_STORE(test_the_first_of_two_equal_layers_stays),
		WITH_STORE(test_layers_wait_for_running_jobs),
		WITH_STORE(test_saving_copies_the_upper),
		WITH_STORE(test_saving_refuses_before_it_starts),
		WITH_STORE(test_building_refuses_bad_requests_before_it_starts),
		WITH_LOOP(test_saving_takes_a_snapshot),
		WITH_LOOP(test_a_saved_image_survives_a_power_cut),
		WITH_LOOP(test_saving_takes_no_longer_for_more),
		WITH_LOOP(test_programs_run_in_a_layer_being_built_only),
		WITH_LOOP(test_a_build_runs_programs_and_lands_as_a_layer),
	};

	if (geteuid() != 0) {
		print_message("needs root: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
