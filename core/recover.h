/* recover.h - a device that failed, made usable again.
 * Owns: the order of it.  Does not know: what uses the device (struct
 * genai_user of runtime.h says what each of them does). */
#ifndef GENAI_CORE_RECOVER_H
#define GENAI_CORE_RECOVER_H

#include "core/runtime.h"

/* Everything quiet, poison cleared, pagers reset, and whoever lost work by it
 * back where it was; but for, who began it, sees to itself.  If it fails,
 * rt->unclear is set until it does not. */
int32_t genai_recover(struct genai_runtime *rt,
		      const struct genai_user *but_for,
		      struct genai_error *err);

#endif
