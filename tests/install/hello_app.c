// hello_app.c - the smallest application, built against the installed library:
// opens a runtime with a configuration that cannot work, and reads why.
#include <stdio.h>
#include <string.h>

#include <genai/genai.h>

int main(int argc, char **argv)
{
	struct genai_runtime_options options = {.size = sizeof(options)};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime *rt = NULL;

	options.config_path = argc > 1 ? argv[1] : "/nonexistent.ini";
	if (genai_open(&options, &rt, &err) == 0) {
		genai_close(rt);
		puts("open");
		return 0;
	}
	puts(err.text);
	return err.code == GENAI_E_CONFIG ? 0 : 1;
}
