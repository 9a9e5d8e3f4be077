// rates.c - what ceilings.c measured, kept in the folder of caches: once for a
// machine, a driver and a device, for MOST_DAYS.
#include "tools/rates.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/cache.h"

// The first line of a small file that begins with what.
static bool line_with(const char *path, const char *what, char *out, size_t cap)
{
	FILE *f = fopen(path, "re");
	bool ok = false;

	while (f && !ok && fgets(out, (int)cap, f))
		ok = !strncmp(out, what, strlen(what));
	if (f)
		fclose(f);
	out[ok ? strcspn(out, "\n") : 0] = 0;
	return ok;
}

// Whose rates they are.
static json_t *key_of(const struct genai_runtime *rt)
{
	const struct genai_stream_caps *caps = &rt->device.caps;
	bool cuda = !strcmp(caps->device_kind, "cuda");
	const char *device = genai_config_get(rt->config, "runtime", "device");
	struct utsname u = {0};
	char driver[256] = "";

	uname(&u);
	if (!line_with(cuda ? "/proc/driver/nvidia/version" : "/proc/cpuinfo",
		       cuda ? "NVRM" : "model name", driver, sizeof(driver)))
		snprintf(driver, sizeof(driver), "%s %s", u.sysname, u.release);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "kind",
			 caps->device_kind, "device", caps->device_name,
			 "number", device ? device : "0", "driver", driver,
			 "machine", u.nodename, "block_bytes",
			 (json_int_t)ceilings_block_bytes(&rt->device));
}

// The file of a key.
static bool path_of(struct cli *c, const json_t *key, char *out, size_t cap)
{
	const struct genai_error none = GENAI_ERROR_INIT;
	char folder[CACHE_PATH], *text;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	if (cache_folder(c, folder, sizeof(folder))) {
		c->err = none; // no folder: nothing is kept
		return false;
	}
	text = json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS);
	for (const char *p = text; p && *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
	snprintf(out, cap, "%s/" RATES_PREFIX "%016" PRIx64, folder, h);
	free(text);
	return text != NULL;
}

// Rates that can be: above 0, of which a floor can be made.
static bool rates_in(const json_t *j, struct ceilings *out)
{
	const double memory =
		json_number_value(json_object_get(j, "memory_bytes_per_s"));
	const double link =
		json_number_value(json_object_get(j, "link_bytes_per_s"));
	const double copy = json_number_value(json_object_get(j, "copy_s"));

	if (!(memory > 0) || !(link > 0) || !(copy >= 0))
		return false;
	out->memory_bytes_s = memory;
	out->link_bytes_s = link;
	out->copy_s = copy;
	return true;
}

bool rates_old(time_t measured)
{
	const time_t now = time(NULL);

	return measured > now || measured + RATES_DAYS * 86400 < now;
}

json_t *rates_read(const char *path, struct ceilings *out)
{
	json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);

	if (!j || !rates_in(j, out) ||
	    !json_is_object(json_object_get(j, "of"))) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static bool look_up(const char *path, const json_t *key, struct ceilings *out,
		    time_t *out_measured)
{
	struct stat st;
	json_t *j;
	bool same;

	if (stat(path, &st) || rates_old(st.st_mtime))
		return false;
	j = rates_read(path, out);
	same = j && json_equal(json_object_get(j, "of"), key);
	json_decref(j);
	*out_measured = st.st_mtime;
	return same;
}

static void keep(char *path, json_t *key, const struct ceilings *k)
{
	json_t *j = json_pack("{s:O, s:f, s:f, s:f}", "of", key,
			      "memory_bytes_per_s", k->memory_bytes_s,
			      "link_bytes_per_s", k->link_bytes_s, "copy_s",
			      k->copy_s);
	char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;

	char *end = strrchr(path, '/');
	bool made;

	*end = 0;
	made = cache_make(path);
	*end = '/';
	if (made && text)
		cache_write(path, text); // or it is measured again
	free(text);
	json_decref(j);
}

int32_t rates_of(struct cli *c, struct genai_runtime *rt, bool anew,
		 struct ceilings *out, time_t *out_measured)
{
	char path[CACHE_PATH + 64];
	json_t *key;
	bool named;
	int32_t rc = 0;

	*out_measured = 0;
	if (ceilings_known(rt, out))
		return 0;
	key = key_of(rt);
	named = key && path_of(c, key, path, sizeof(path));
	if (anew || !named || !look_up(path, key, out, out_measured)) {
		rc = ceilings_measure(rt, out, &c->err);
		*out_measured = time(NULL);
		if (!rc && named)
			keep(path, key, out);
	}
	json_decref(key);
	return rc;
}
