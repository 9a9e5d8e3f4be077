// py_names.c - the names of Python that the shared object of llguidance's wheel
// must find before it is loaded.  Its llg_ functions call none of them; one
// that is called all the same ends the program with its name.
#include "tools/constrain/py_names.h"

#include <stdio.h>
#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))

#define DATA(name)                                                             \
	SHOWN extern char name[1024];                                          \
	char name[1024] __attribute__((aligned(16)));
PY_DATA(DATA)

#define CALL(name)                                                             \
	SHOWN void name(void);                                                 \
	void name(void)                                                        \
	{                                                                      \
		fputs("genai: error: llguidance called " #name "\n", stderr);  \
		abort();                                                       \
	}
PY_CALLS(CALL)
