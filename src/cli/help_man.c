/* help_man.c - manual pages, printed from the table of commands: box.1 and one for each command */
#include "base/alloc.h"
#include "base/file.h"
#include "cli/help_internal.h"
#include <errno.h>
#include <sys/stat.h>

/* Escapes for troff: a backslash, and a dot or quote at the start of a line. */
static void put_text(const char *text, FILE *out)
{
	for (bool begins = true; *text; text++) {
		if (begins && (*text == '.' || *text == '\''))
			fputs("\\&", out);
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			fputc(*text, out);
		begins = *text == '\n';
	}
}

static void put_title(const char *name, FILE *out)
{
	fprintf(out, ".\\\" Printed by 'box help --man' from the table of commands.\n.TH ");
	for (; *name; name++)
		fputc(*name >= 'a' && *name <= 'z' ? *name & ~0x20
			: *name == ' '		   ? '-'
						   : *name,
			out);
	fprintf(out, " 1 \"\" \"box " BOX_VERSION "\" \"Boxyard\"\n");
}

static void put_flags(const struct flag *flag, FILE *out)
{
	for (; flag && flag->name; flag++) {
		fprintf(out, ".TP\n");
		if (flag->letter)
			fprintf(out, "\\fB\\-%c\\fR, ", flag->letter);
		fprintf(out, "\\fB\\-\\-");
		put_text(flag->name, out);
		fprintf(out, "\\fR");
		if (flag->value) {
			fprintf(out, " \\fI");
			put_text(flag->value, out);
			fprintf(out, "\\fR");
		}
		fputc('\n', out);
		put_text(flag->help, out);
		fputc('\n', out);
	}
}

/* Prints lines unchanged. */
static void put_lines(const char *heading, const char *text, FILE *out)
{
	fprintf(out, ".SH %s\n.nf\n", heading);
	put_text(text, out);
	fprintf(out, ".fi\n");
}

static void put_examples(const char *examples, FILE *out)
{
	fprintf(out, ".SH EXAMPLES\n");
	for (const char *p = examples; *p; p = strchr(p, '\n') + 1) {
		size_t command = strcspn(p, "\t");
		_cleanup_free_ char *line = xstrndup(p, command);
		_cleanup_free_ char *comment =
			xstrndup(p + command + 1, strcspn(p + command + 1, "\n"));

		fprintf(out, ".TP\n");
		put_text(line, out);
		fputc('\n', out);
		put_text(comment, out);
		fputc('\n', out);
	}
}

static void put_command(const struct command *command, FILE *out)
{
	_cleanup_free_ char *title = xasprintf("box %s", command->name);

	put_title(title, out);
	fprintf(out, ".SH NAME\n");
	for (const char *p = title; *p; p++)
		fprintf(out, *p == ' ' ? "\\-" : "%c", *p);
	fprintf(out, " \\- ");
	put_text(command->summary, out);
	fprintf(out, "\n.SH SYNOPSIS\n.B %s\n", title);
	put_text(command->usage, out);
	if (command->text) {
		fprintf(out, "\n.SH DESCRIPTION\n");
		put_text(command->text, out);
	}
	fprintf(out, "\n.SH OPTIONS\n");
	put_flags(command->flags, out);
	put_flags(common_flags, out);
	if (command->examples)
		put_examples(command->examples, out);
	fprintf(out, ".SH SEE ALSO\n.BR box (1)\n");
}

static void put_overview(FILE *out)
{
	put_title("box", out);
	fprintf(out, ".SH NAME\nbox \\- a computer of its own for every agent\n"
		     ".SH SYNOPSIS\n.B box\nCOMMAND [OPTION...] [WORD...]\n.SH COMMANDS\n");
	for (const struct command *command = NULL; (command = command_next(command));) {
		if (command->options & (CMD_GROUP | CMD_HIDDEN))
			continue;
		fprintf(out, ".TP\n\\fBbox %s\\fR ", command->name);
		put_text(command->usage, out);
		fputc('\n', out);
		put_text(command->summary, out);
		fputc('\n', out);
	}
	fprintf(out, ".SH OPTIONS\nEvery command takes these:\n");
	put_flags(common_flags, out);
	put_lines("EXIT STATUS", help_exit_codes, out);
	put_lines("ENVIRONMENT", help_environment, out);
	fprintf(out, ".SH FILES\n.TP\n/etc/boxyard.conf\nsettings of the daemon\n"
		     ".TP\n/var/lib/boxyard\nits state\n.TP\n/run/boxyard\nits sockets\n");
}

static int write_page(
	const char *dir, const char *name, const struct command *command, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s.1", dir, name);
	FILE *out;
	bool bad;

	for (char *p = path + strlen(dir); *p; p++)
		*p = *p == ' ' ? '-' : *p;
	out = fopen(path, "we");
	if (!out)
		return err_sys(err, errno, "open '%s'", path);
	if (command)
		put_command(command, out);
	else
		put_overview(out);
	bad = ferror(out);
	return fclose(out) || bad ? err_sys(err, errno, "write '%s'", path) : 0;
}

int help_write_man(const char *dir, struct err *err)
{
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make folder '%s'", dir);
	if (write_page(dir, "box", NULL, err) < 0)
		return -1;
	for (const struct command *command = NULL; (command = command_next(command));) {
		_cleanup_free_ char *name = xasprintf("box %s", command->name);

		if (!(command->options & (CMD_GROUP | CMD_HIDDEN)) &&
			write_page(dir, name, command, err) < 0)
			return -1;
	}
	return 0;
}
