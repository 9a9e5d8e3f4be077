/* rates.h - rates of devices that were measured, kept beside the imports. */
#ifndef GENAI_TOOLS_RATES_H
#define GENAI_TOOLS_RATES_H

#include <jansson.h>
#include <time.h>

#include "tools/ceilings.h"
#include "tools/cli.h"

#define RATES_PREFIX "rates-" /* of files in the folder */
#define RATES_DAYS 30	      /* so long they are believed */

/* The ceilings of the device: those that were kept or, if anew, or there are
 * none of this machine, driver and device that are younger than RATES_DAYS,
 * measured and kept.  out_measured: when; 0 where the device says them itself.
 * What cannot be kept is no error. */
int32_t rates_of(struct cli *c, struct genai_runtime *rt, bool anew,
		 struct ceilings *out, time_t *out_measured);

/* A file of them, for who lists it: an object with "of", the key; NULL if it is
 * none.  The caller's. */
json_t *rates_read(const char *path, struct ceilings *out);
bool rates_old(time_t measured);

#endif
