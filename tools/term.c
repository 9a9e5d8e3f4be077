// term.c - lines from a person at a terminal, with libedit.
#include "tools/term.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "tools/cli.h"

#define PASTE_BEGIN L"\033[200~"
#define PASTE_END L"\033[201~"

struct term {
	EditLine *el;
	HistoryW *history;
	const char *const *words;
	wchar_t prompt[64];
	bool utf8; // the terminal's character set
	mbstate_t in;
};

// ---- characters ----

// The user's character set.  Where none is set, UTF-8: bytes that the C locale
// has no characters for would be dropped by the editor.
static bool set_locale(void)
{
	const char *set;

	if (!setlocale(LC_CTYPE, ""))
		setlocale(LC_CTYPE, "C");
	set = nl_langinfo(CODESET);
	if (!strcmp(set, "ANSI_X3.4-1968") && setlocale(LC_CTYPE, "C.UTF-8"))
		set = nl_langinfo(CODESET);
	return !strcmp(set, "UTF-8");
}

static size_t put_utf8(char *out, uint32_t cp)
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 63));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 63));
		out[2] = (char)(0x80 | (cp & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 63));
	out[2] = (char)(0x80 | (cp >> 6 & 63));
	out[3] = (char)(0x80 | (cp & 63));
	return 4;
}

static char *to_utf8(const wchar_t *s, size_t n)
{
	char *out = malloc(4 * n + 1);
	size_t at = 0;

	for (size_t i = 0; out && i < n; i++)
		at += put_utf8(out + at, (uint32_t)s[i]);
	if (out)
		out[at] = 0;
	return out;
}

void term_print(struct term *t, const char *text, size_t n)
{
	if (t->utf8) {
		fwrite(text, 1, n, stdout);
		fflush(stdout);
		return;
	}
	for (size_t i = 0; i < n;) {
		unsigned char b = (unsigned char)text[i++];
		uint32_t cp = b < 0x80	 ? b
			      : b < 0xe0 ? b & 31
			      : b < 0xf0 ? b & 15
					 : b & 7;
		char out[MB_LEN_MAX];
		mbstate_t state = {0};
		size_t bytes;

		while (i < n && ((unsigned char)text[i] & 0xc0) == 0x80)
			cp = cp << 6 | ((unsigned char)text[i++] & 63);
		bytes = wcrtomb(out, (wchar_t)cp, &state);
		if (bytes == (size_t)-1)
			putchar('?');
		else
			fwrite(out, 1, bytes, stdout);
	}
	fflush(stdout);
}

// ---- what the editor calls ----

static struct term *term_of(EditLine *el)
{
	void *t = NULL;

	el_wget(el, EL_CLIENTDATA, &t);
	return t;
}

// One character; a signal that is not SIGINT is none of ours.
static int get(EditLine *el, wchar_t *out)
{
	struct term *t = term_of(el);

	for (;;) {
		char byte;
		ssize_t n = read(STDIN_FILENO, &byte, 1);
		size_t k;

		if (n < 0 && errno == EINTR && !cli_interrupted)
			continue;
		if (n <= 0)
			return (int)n;
		k = mbrtowc(out, &byte, 1, &t->in);
		if (k == (size_t)-2)
			continue;
		if (k != (size_t)-1)
			return 1;
		memset(&t->in, 0, sizeof(t->in)); // no character: left out
	}
}

static wchar_t *prompt(EditLine *el)
{
	return term_of(el)->prompt;
}

// A pasted block comes between two marks: its line ends are part of the text.
static unsigned char paste(EditLine *el, int ch)
{
	size_t cap = 256, n = 0, end = wcslen(PASTE_END);
	wchar_t *text = malloc(cap * sizeof(*text));
	wchar_t c;

	(void)ch;
	while (text && el_wgetc(el, &c) == 1) {
		if (n + 2 > cap) {
			wchar_t *more = realloc(text, 2 * cap * sizeof(*text));

			if (!more)
				break;
			text = more;
			cap *= 2;
		}
		text[n++] = c == L'\r' ? L'\n' : c;
		if (n >= end && !wmemcmp(text + n - end, PASTE_END, end)) {
			n -= end;
			break;
		}
	}
	while (n && text[n - 1] == L'\n')
		n--;
	if (text) {
		text[n] = 0;
		if (n)
			el_winsertstr(el, text);
	}
	free(text);
	return CC_REFRESH;
}

static unsigned char line_end(EditLine *el, int ch)
{
	(void)ch;
	return el_winsertstr(el, L"\n") ? CC_ERROR : CC_REFRESH;
}

static unsigned char complete(EditLine *el, int ch)
{
	const LineInfoW *l = el_wline(el);
	size_t n = (size_t)(l->cursor - l->buffer);
	const char *found = NULL;
	wchar_t rest[64];

	(void)ch;
	for (const char *const *w = term_of(el)->words; *w; w++) {
		size_t i = 0;

		while (i < n && (*w)[i] && l->buffer[i] == (wchar_t)(*w)[i])
			i++;
		if (i < n)
			continue;
		if (found)
			return CC_ERROR;
		found = *w;
	}
	if (!found || !n || swprintf(rest, 64, L"%s ", found + n) < 0)
		return CC_ERROR;
	el_winsertstr(el, rest);
	return CC_REFRESH;
}

// ---- lines of other days ----

// $XDG_STATE_HOME/genai/chat_history, whose folders are made if make.
static bool history_path(char *out, size_t cap, bool make)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;

	if (state && *state == '/')
		n = snprintf(out, cap, "%s/genai/chat_history", state);
	else if (home && *home == '/')
		n = snprintf(out, cap, "%s/.local/state/genai/chat_history",
			     home);
	else
		return false;
	if (n >= (int)cap)
		return false;
	for (char *p = strchr(out + 1, '/'); make && p;
	     p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(out, 0700) && errno != EEXIST)
			return false;
		*p = '/';
	}
	return true;
}

// Nobody else's to read.  What cannot be kept is not: nothing depends on it.
static void keep_history(struct term *t)
{
	char path[4200];
	HistEventW event;
	int fd;

	if (!history_path(path, sizeof(path), true))
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	close(fd);
	history_w(t->history, &event, H_SAVE, path);
}

// ---- life ----

struct term *term_open(const char *const *words)
{
	char path[4200];
	struct term *t = calloc(1, sizeof(*t));
	HistEventW event;

	if (!t)
		return NULL;
	t->words = words;
	t->utf8 = set_locale();
	t->el = el_init("genai", stdin, stdout, stderr);
	t->history = history_winit();
	if (!t->el || !t->history) {
		term_close(t);
		return NULL;
	}
	history_w(t->history, &event, H_SETSIZE, 1000);
	history_w(t->history, &event, H_SETUNIQUE, 1);
	if (history_path(path, sizeof(path), false))
		history_w(t->history, &event, H_LOAD, path);
	el_wset(t->el, EL_CLIENTDATA, t);
	el_wset(t->el, EL_GETCFN, get);
	el_wset(t->el, EL_PROMPT, prompt);
	el_wset(t->el, EL_EDITOR, L"emacs");
	el_wset(t->el, EL_HIST, history_w, t->history);
	el_wset(t->el, EL_ADDFN, L"paste", L"insert a pasted block", paste);
	el_wset(t->el, EL_BIND, PASTE_BEGIN, L"paste", NULL);
	el_wset(t->el, EL_ADDFN, L"line-end", L"begin another line", line_end);
	el_wset(t->el, EL_BIND, L"\033\r", L"line-end", NULL);
	el_wset(t->el, EL_BIND, L"\033\n", L"line-end", NULL);
	el_wset(t->el, EL_ADDFN, L"complete", L"complete a command", complete);
	el_wset(t->el, EL_BIND, L"\t", L"complete", NULL);
	el_source(t->el, NULL);
	return t;
}

void term_close(struct term *t)
{
	if (!t)
		return;
	if (t->history && t->el)
		keep_history(t);
	if (t->history)
		history_wend(t->history);
	if (t->el)
		el_end(t->el);
	free(t);
}

char *term_line(struct term *t, const char *text, bool *interrupted)
{
	HistEventW event;
	const wchar_t *line;
	int n = 0;

	*interrupted = false;
	swprintf(t->prompt, sizeof(t->prompt) / sizeof(t->prompt[0]), L"%s",
		 text);
	el_resize(t->el);
	fputs("\033[?2004h", stdout); // tell pasted text from typed
	fflush(stdout);
	line = el_wgets(t->el, &n);
	fputs("\033[?2004l", stdout);
	fflush(stdout);
	if (!line || n <= 0) {
		*interrupted = cli_interrupted;
		return NULL;
	}
	if (line[n - 1] == L'\n')
		n--;
	if (n)
		history_w(t->history, &event, H_ENTER, line);
	return to_utf8(line, (size_t)n);
}
