// manual.c - the manual pages, from what help says: one table of options is all
// there is.
#include "tools/cli.h"

#include <ctype.h>
#include <string.h>

// Text that is no request and whose dashes are those that were typed.
static void put(const char *s)
{
	bool begin = true;

	for (; *s; s++) {
		if (begin && (*s == '.' || *s == '\''))
			fputs("\\&", stdout);
		if (*s == '\\')
			fputs("\\e", stdout);
		else if (*s == '-')
			fputs("\\-", stdout);
		else
			putchar(*s);
		begin = *s == '\n';
	}
}

static void title(const char *name)
{
	fputs(".TH ", stdout);
	for (; *name; name++)
		putchar(*name == '-' ? '-' : toupper((unsigned char)*name));
	printf(" 1 \"\" \"genai %s\" \"User Commands\"\n",
	       GENAI_VERSION_STRING);
}

static void option(const struct cli_option *o)
{
	fputs(".TP\n.B ", stdout);
	if (o->letter)
		printf("\\-%c%s", o->letter, o->name ? ", " : "");
	if (o->name) {
		fputs("\\-\\-", stdout);
		put(o->name);
	}
	if (o->arg) {
		fputs(" \\fI", stdout);
		put(o->arg);
		fputs("\\fR", stdout);
	}
	putchar('\n');
	put(o->help);
	putchar('\n');
}

static const char exit_status[] =
	".SH EXIT STATUS\n"
	".TP\n0\ndone\n"
	".TP\n1\nthe request failed\n"
	".TP\n2\nwrong usage or configuration\n"
	".TP\n130\ninterrupted; text printed so far stays\n";

void manual_command(const struct command *k)
{
	char name[64];

	snprintf(name, sizeof(name), "genai-%s", k->name);
	title(name);
	printf(".SH NAME\ngenai\\-%s \\- ", k->name);
	put(k->summary);
	printf("\n.SH SYNOPSIS\n.B genai %s\n", k->name);
	put(k->args);
	fputs("\n.SH OPTIONS\n", stdout);
	for (const struct cli_option *o = k->options; o->name || o->letter; o++)
		option(o);
	if (k->more) {
		fputs(".SH NOTES\n.nf\n", stdout);
		put(k->more);
		fputs(".fi\n", stdout);
	}
	fputs(".SH COMMON OPTIONS\nThose of\n.BR genai (1).\n", stdout);
	fputs(exit_status, stdout);
	fputs(".SH SEE ALSO\n.BR genai (1),\n.BR genai.ini (5)\n", stdout);
}

void manual(const struct command *const *commands)
{
	title("genai");
	fputs(".SH NAME\ngenai \\- run generative ONNX models whose weights "
	      "need not fit the device\n"
	      ".SH SYNOPSIS\n.B genai\n[\\fIoptions\\fR] \\fIcommand\\fR ...\n"
	      ".SH DESCRIPTION\n"
	      "Modules named in an INI file do the work: an executor, a stream "
	      "runtime, a pager\n"
	      "and a barrier.  Every choice gives the same tokens.  Results go "
	      "to standard output,\n"
	      "all else to standard error.\n"
	      ".SH COMMON OPTIONS\n"
	      ".TP\n.BI \\-\\-config \" FILE\"\n"
	      "the INI file; else \\fI./genai.ini\\fR, "
	      "\\fI$XDG_CONFIG_HOME/genai/genai.ini\\fR, the system's\n"
	      ".TP\n.BI \\-\\-set \" section.key=value\"\n"
	      "wins over the file; may be repeated\n"
	      ".TP\n.BR \\-\\-quiet \", \" \\-\\-verbose \", \" "
	      "\\-\\-no\\-progress\n"
	      "fewer or more messages\n"
	      ".TP\n.BR \\-\\-version \", \" \\-\\-help\n"
	      "what this is; what there is\n"
	      ".SH COMMANDS\n",
	      stdout);
	for (; *commands; commands++) {
		printf(".TP\n.BR genai\\-%s (1)\n", (*commands)->name);
		put((*commands)->summary);
		putchar('\n');
	}
	fputs(exit_status, stdout);
	fputs(".SH FILES\n.TP\n.I genai.ini\nthe configuration; see\n"
	      ".BR genai.ini (5)\n"
	      ".SH SEE ALSO\n.BR genai.ini (5),\n.BR genai\\-conform (1)\n",
	      stdout);
}
