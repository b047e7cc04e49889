/* seccomp.c - see seccomp.h */
#include "sys/seccomp.h"
#include "base/alloc.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct seccomp_program {
	struct sock_fprog fprog;
	struct sock_filter *code; /* owned */
};

static int add_rules(scmp_filter_ctx filter, bool allow, const struct seccomp_rule *rules,
	size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		const struct seccomp_rule *rule = &rules[i];
		const struct scmp_arg_cmp cmp[] = {
			SCMP_CMP(rule->arg, SCMP_CMP_MASKED_EQ, rule->mask, rule->value),
			SCMP_CMP(rule->also_arg, SCMP_CMP_MASKED_EQ, 0xffffffff, rule->also_value),
		};
		int status = seccomp_rule_add_array(filter,
			allow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO((unsigned)rule->answer), rule->call,
			rule->masked ? 1 + rule->also : 0, cmp);

		if (status < 0)
			return err_sys(err, -status, "seccomp rule for system call %d", rule->call);
	}
	return 0;
}

static int export_code(scmp_filter_ctx filter, struct seccomp_program **ret, struct err *err)
{
	_cleanup_close_ int fd = memfd_create("seccomp", MFD_CLOEXEC);
	struct seccomp_program *program;
	off_t size;
	int status;

	if (fd < 0)
		return err_sys(err, errno, "memfd_create");
	status = seccomp_export_bpf(filter, fd);
	size = lseek(fd, 0, SEEK_END);
	if (status < 0 || size <= 0 || (size_t)size / sizeof(struct sock_filter) > BPF_MAXINSNS)
		return err_set(err, ERR_SYSTEM, "cannot export the seccomp program");
	program = xnew(struct seccomp_program);
	program->code = xcalloc(1, (size_t)size);
	if (pread(fd, program->code, (size_t)size, 0) != size) {
		seccomp_program_free(program);
		return err_sys(err, errno, "read the seccomp program");
	}
	program->fprog.len = (unsigned short)((size_t)size / sizeof *program->code);
	program->fprog.filter = program->code;
	*ret = program;
	return 0;
}

static int program_new(uint32_t otherwise, const struct seccomp_rule *rules, size_t count,
	struct seccomp_program **ret, struct err *err)
{
	scmp_filter_ctx filter = seccomp_init(otherwise);
	int status;

	if (!filter)
		return err_set(err, ERR_SYSTEM, "seccomp_init failed");
	seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	/* Builds a binary search tree over the numbers instead of a chain of comparisons. */
	seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	status = add_rules(filter, otherwise != SCMP_ACT_ALLOW, rules, count, err);
	if (status == 0)
		status = export_code(filter, ret, err);
	seccomp_release(filter);
	return status;
}

int seccomp_program_new(const struct seccomp_rule *rules, size_t count,
	struct seccomp_program **ret, struct err *err)
{
	return program_new(SCMP_ACT_ALLOW, rules, count, ret, err);
}

int seccomp_program_new_only(const struct seccomp_rule *rules, size_t count,
	struct seccomp_program **ret, struct err *err)
{
	return program_new(SCMP_ACT_KILL_PROCESS, rules, count, ret, err);
}

void seccomp_program_free(struct seccomp_program *program)
{
	if (!program)
		return;
	free(program->code);
	free(program);
}

int seccomp_program_install(const struct seccomp_program *program, struct err *err)
{
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program->fprog) < 0)
		return err_sys(err, errno, "install the seccomp filter");
	return 0;
}
