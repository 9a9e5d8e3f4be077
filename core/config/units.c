// units.c - numbers of the configuration, with and without units.  By hand, so
// that the locale, signs and exponents have no say.
#include "core/config/config.h"

#include <string.h>
#include <strings.h>

#include "core/base/error.h"

// Digits at *p into *out_v; *p moves behind them.
static int32_t digits(const char **p, uint64_t *out_v, struct genai_error *err)
{
	const char *s = *p;
	uint64_t v = 0;

	if (*s < '0' || *s > '9')
		return genai_fail(err, GENAI_E_CONFIG,
				  "expected a whole number of at least 0");
	for (; *s >= '0' && *s <= '9'; s++) {
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return genai_fail(err, GENAI_E_CONFIG,
					  "number exceeds 64 bits");
	}
	*p = s;
	*out_v = v;
	return 0;
}

int32_t genai_parse_u64(const char *text, uint64_t *out_v,
			struct genai_error *err)
{
	uint64_t v;
	int32_t rc = digits(&text, &v, err);

	if (rc)
		return rc;
	if (*text)
		return genai_fail(err, GENAI_E_CONFIG,
				  "expected a whole number, found '%.16s' "
				  "behind it",
				  text);
	*out_v = v;
	return 0;
}

// "12", "12.5": the part before '%'.  frac points at the '.' or the '%'.
static int32_t percent(uint64_t whole, const char *frac, double *out_percent,
		       struct genai_error *err)
{
	double p = (double)whole, scale = 0.1;

	if (*frac == '.')
		for (frac++; *frac >= '0' && *frac <= '9'; frac++) {
			p += scale * (*frac - '0');
			scale /= 10;
		}
	if (strcmp(frac, "%") != 0)
		return genai_fail(err, GENAI_E_CONFIG,
				  "expected a whole number with a unit, or a "
				  "percentage");
	if (p > 100)
		return genai_fail(err, GENAI_E_CONFIG, "more than 100%%");
	*out_percent = p;
	return 0;
}

static const struct {
	const char *name;
	uint64_t bytes;
} units[] = {
	{"", 1},
	{"B", 1},
	{"KiB", UINT64_C(1) << 10},
	{"MiB", UINT64_C(1) << 20},
	{"GiB", UINT64_C(1) << 30},
	{"TiB", UINT64_C(1) << 40},
	{"kB", 1000},
	{"MB", 1000000},
	{"GB", 1000000000},
	{"TB", UINT64_C(1000000000000)},
};

int32_t genai_parse_bytes(const char *text, uint64_t *out_bytes,
			  double *out_percent, struct genai_error *err)
{
	const char *p = text;
	uint64_t v;
	size_t i;
	int32_t rc = digits(&p, &v, err);

	if (rc)
		return rc;
	if (*p == '.' || *p == '%') {
		rc = percent(v, p, out_percent, err);
		if (!rc)
			*out_bytes = 0;
		return rc;
	}
	while (*p == ' ' || *p == '\t')
		p++;
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcasecmp(p, units[i].name) == 0)
			break;
	if (i == sizeof(units) / sizeof(units[0]))
		return genai_fail(err, GENAI_E_CONFIG,
				  "unknown unit '%.16s': B, KiB, MiB, GiB, TiB "
				  "(powers of 1024), kB, MB, GB, TB (powers of "
				  "1000)",
				  p);
	if (__builtin_mul_overflow(v, units[i].bytes, &v))
		return genai_fail(err, GENAI_E_CONFIG,
				  "more bytes than 64 bits can count");
	*out_bytes = v;
	*out_percent = -1;
	return 0;
}

int32_t genai_parse_bool(const char *text, int32_t *out_v,
			 struct genai_error *err)
{
	static const char *const words[] = {"off", "on",  "false", "true",
					    "no",  "yes", "0",	   "1"};
	int32_t i;

	for (i = 0; i < 8; i++)
		if (strcasecmp(text, words[i]) == 0) {
			*out_v = i & 1;
			return 0;
		}
	return genai_fail(err, GENAI_E_CONFIG,
			  "expected on or off (true/false, yes/no, 1/0)");
}
