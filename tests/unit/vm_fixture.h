/* vm_fixture.h - a real VM for tests: QEMU by hand, a small image, the daemon's side of both ports
 *
 * The image is busybox and nothing else; the kernel is where scripts/vm-kernel put it. */
#pragma once
#include "base/err.h"
#include "engine/vm/control.h"
#include "link/link.h"
#include <sys/types.h>

struct loop;
struct qmp;

/* One machine. Its folder holds disk, sockets and console. */
struct vm {
	struct loop *loop;
	char *dir;
	pid_t pid;
	struct qmp *qmp;
	struct control *control;
	struct link *link;
	unsigned ready, failed, link_ready, link_lost, ended;
	struct err err;
	char shutdown[32]; /* reason of QEMU's event */
};

/* The network card of machines started from now on is at the end of this tap; -1: of a network of
 * QEMU's own. */
extern int vm_tap;

/* What all machines of a test share. False: something is missing, and was told. */
bool vm_world_open(void);
void vm_world_close(void);
const char *vm_world_dir(void);

/* state: a file of a captured machine, whose disk is copied; NULL: boots. disk: false: an empty one
 * without a file system. */
struct vm *vm_start(struct loop *loop, const char *name, const char *state, bool disk);
void vm_free(struct vm *vm);
/* Runs the loop until *what is at least value; fails the test after seconds. */
void vm_wait(struct vm *vm, const unsigned *what, unsigned value, unsigned seconds);
void vm_tell(struct vm *vm, enum control_kind kind, const char *hostname);
void vm_connect(struct vm *vm); /* the link; waits for its hello */
/* The output of a shell command in it, yours. */
char *vm_run(struct vm *vm, const char *command);
/* What box-init's SFTP server answers to the bytes of request. */
struct buf vm_sftp(struct vm *vm, const char *user, const void *request, size_t len);
void vm_make_disk(struct vm *vm); /* a file system on the disk of one started without */
/* A command of QEMU's monitor, waited for. */
void vm_qmp(struct vm *vm, const char *command, const char *arguments);
void vm_go_on(struct vm *vm); /* of one with a state, when that is loaded */
/* It stands still, and its state is in a file. */
void vm_capture(struct vm *vm, const char *state);
