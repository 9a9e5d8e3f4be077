// doctor.c - is this machine ready?  What is there, what is missing, what to
// change.
#include "tools/cli.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/pull/pull.h"
#include "tools/rates.h"

enum verdict { GOOD, NOTE, BAD };

struct doctor {
	struct cli *c;
	json_t *found;
	bool json, bad;
};

static void say(struct doctor *d, enum verdict v, const char *what,
		const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void say(struct doctor *d, enum verdict v, const char *what,
		const char *fmt, ...)
{
	static const char *const words[] = {"good", "note", "bad"};
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->bad |= v == BAD;
	if (d->json)
		json_array_append_new(d->found,
				      json_pack("{s:s, s:s, s:s%}", "verdict",
						words[v], "what", what, "text",
						text, strlen(text)));
	else
		printf("%-4s  %-14s %s\n", words[v], what, text);
}

// ---- files of the system ----

// The first line of a small file, without its end.
static bool line_of(const char *path, char *out, size_t cap)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(out, (int)cap, f);

	if (f)
		fclose(f);
	if (ok)
		out[strcspn(out, "\n")] = 0;
	return ok;
}

static uint64_t number_in(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	char line[256];
	uint64_t v = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)) &&
		    sscanf(line + strlen(key), " %" SCNu64, &v) == 1)
			break;
	if (f)
		fclose(f);
	return v;
}

// ---- the configuration ----

static void rates(struct doctor *d, struct genai_runtime *rt)
{
	struct ceilings k;
	time_t measured;

	if (rates_of(d->c, rt, true, &k, &measured)) {
		say(d, BAD, "rates", "%s", d->c->err.text);
		return;
	}
	say(d, GOOD, "rates",
	    "memory %.1f GB/s, the link to it %.1f GB/s, %.1f us a copy",
	    k.memory_bytes_s * 1e-9, k.link_bytes_s * 1e-9, k.copy_s * 1e6);
}

static void configuration(struct doctor *d)
{
	const struct genai_stream_caps *caps;
	struct genai_runtime *rt = NULL;
	const char *path;

	if (cli_runtime(d->c, &rt)) {
		say(d, BAD, "configuration", "%s", d->c->err.text);
		return;
	}
	path = genai_config_path(rt->config);
	say(d, GOOD, "configuration", "%s; %s with %s",
	    path ? path : "no file, the defaults", rt->executor.label,
	    rt->pager.label);
	caps = &rt->device.caps;
	if (rt->device.limit == UINT64_MAX)
		say(d, GOOD, "device", "%s", caps->device_name);
	else
		say(d, GOOD, "device", "%s; device_limit %.1f MiB",
		    caps->device_name, (double)rt->device.limit / 1048576);
	rates(d, rt);
	genai_close(rt);
}

// ---- NVIDIA ----

static bool module_there(struct doctor *d)
{
	const uint32_t before = d->c->n_sets;
	struct genai_runtime_options o = {.size = sizeof(o),
					  .sets = d->c->sets};
	struct genai_runtime *rt = NULL;
	bool there;

	if (cli_set(d->c, "runtime.stream", "cuda_ep") ||
	    cli_set(d->c, "runtime.barrier", "cuda_ep") ||
	    cli_set(d->c, "runtime.executor", "cuda_ep:eager"))
		return false;
	o.config_path = d->c->config_path;
	o.n_sets = d->c->n_sets;
	there = !genai_runtime_load(&o, &rt, &d->c->err);
	genai_close(rt);
	d->c->n_sets = before;
	return there;
}

// The link of a GPU below its best is often only asleep.
static void slot(struct doctor *d, const char *dir, const char *name)
{
	static const char *const files[] = {"current_link_speed",
					    "current_link_width",
					    "max_link_speed", "max_link_width"};
	char path[512], v[4][64];

	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s/%s", dir, name, files[i]);
		if (!line_of(path, v[i], sizeof(v[i])))
			return;
	}
	if (strcmp(v[1], v[3]))
		say(d, NOTE, "link",
		    "%s has %s lanes of %s: another slot, or a riser?", name,
		    v[1], v[3]);
	else
		say(d, GOOD, "link", "%s: %s lanes, %s now, %s at most", name,
		    v[1], v[0], v[2]);
}

static int slots(struct doctor *d)
{
	static const char dir[] = "/sys/bus/pci/devices";
	DIR *list = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (list && (e = readdir(list))) {
		char path[512], vendor[16], class[16];

		snprintf(path, sizeof(path), "%s/%s/vendor", dir, e->d_name);
		if (!line_of(path, vendor, sizeof(vendor)) ||
		    strcmp(vendor, "0x10de"))
			continue;
		snprintf(path, sizeof(path), "%s/%s/class", dir, e->d_name);
		if (!line_of(path, class, sizeof(class)) ||
		    strncmp(class, "0x03", 4))
			continue;
		n++;
		slot(d, dir, e->d_name);
	}
	if (list)
		closedir(list);
	return n;
}

static void nvidia(struct doctor *d)
{
	bool module = module_there(d);
	int gpus = slots(d);
	char line[256];

	if (!line_of("/proc/driver/nvidia/version", line, sizeof(line)))
		say(d, gpus ? BAD : NOTE, "driver",
		    gpus ? "there is a GPU, but the NVIDIA driver is not "
			   "loaded: install it, or modprobe nvidia"
			 : "no NVIDIA driver, and no GPU that is seen");
	else if (access("/dev/nvidia0", R_OK | W_OK))
		say(d, BAD, "driver",
		    "/dev/nvidia0 cannot be opened: in a container, pass the "
		    "device in; else the group of the user");
	else
		say(d, GOOD, "driver", "%s", line);
	if (!module)
		say(d, gpus ? BAD : NOTE, "cuda_ep", "%s", d->c->err.text);
	else
		say(d, GOOD, "cuda_ep",
		    "is here; conf/cuda-captured-async.ini uses it");
}

// ---- the host ----

static void memory(struct doctor *d)
{
	uint64_t all = number_in("/proc/meminfo", "MemTotal:") * 1024;
	uint64_t now = number_in("/proc/meminfo", "MemAvailable:") * 1024;
	char text[64] = "";
	uint64_t most = 0;

	say(d, GOOD, "memory", "%.1f GiB, %.1f of them available",
	    (double)all / 1073741824.0, (double)now / 1073741824.0);
	if (!line_of("/sys/fs/cgroup/memory.max", text, sizeof(text)) &&
	    !line_of("/sys/fs/cgroup/memory/memory.limit_in_bytes", text,
		     sizeof(text)))
		return;
	most = strtoull(text, NULL, 10);
	if (most && most < all)
		say(d, NOTE, "memory limit",
		    "this container or service may have %.1f GiB: weights "
		    "that are read from files count, and are read again when "
		    "they go; raise memory.max above the model",
		    (double)most / 1073741824.0);
}

static void processors(struct doctor *d)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	char text[64];
	double quota, period;

	if (line_of("/sys/fs/cgroup/cpu.max", text, sizeof(text)) &&
	    sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0 &&
	    quota / period < (double)n)
		say(d, NOTE, "processors",
		    "%ld, but this container or service may use %.1f: set "
		    "[module cpu_ref] threads to no more",
		    n, quota / period);
	else
		say(d, GOOD, "processors", "%ld", n);
}

static void locking(struct doctor *d)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r))
		return;
	if (r.rlim_cur == RLIM_INFINITY)
		say(d, GOOD, "locked memory", "no limit");
	else
		say(d, NOTE, "locked memory",
		    "%.1f MiB (ulimit -l): a driver that pins host memory for "
		    "the process is not bound by it, others are",
		    (double)r.rlim_cur / 1048576);
}

static void huge_pages(struct doctor *d)
{
	char text[128];

	if (!line_of("/sys/kernel/mm/transparent_hugepage/enabled", text,
		     sizeof(text)))
		return;
	if (strstr(text, "[never]"))
		say(d, NOTE, "huge pages",
		    "never: echo madvise > "
		    "/sys/kernel/mm/transparent_hugepage/enabled makes large "
		    "host memory quicker to reach");
	else
		say(d, GOOD, "huge pages", "%s", text);
}

// ---- files ----

// Of the kernel's linux/magic.h.
static const struct {
	uint64_t magic;
	const char *name;
	bool far;
} systems[] = {
	{0x6969, "NFS", true},	      {0xff534d42, "CIFS", true},
	{0xfe534d42, "SMB 2", true},  {0x65735546, "FUSE", true},
	{0x01021997, "9p", true},     {0xef53, "ext4", false},
	{0x58465342, "XFS", false},   {0x9123683e, "btrfs", false},
	{0x01021994, "tmpfs", false}, {0x794c7630, "overlay", false},
	{0x2fc12fc1, "ZFS", false},
};

static void place(struct doctor *d, const char *what, const char *dir)
{
	const char *name = "another file system";
	bool far = false;
	struct statfs s;
	double left;

	if (statfs(dir, &s)) {
		say(d, BAD, what, "%s: cannot be looked at", dir);
		return;
	}
	for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++)
		if (systems[i].magic == (uint64_t)(uint32_t)s.f_type) {
			name = systems[i].name;
			far = systems[i].far;
		}
	left = (double)s.f_bavail * (double)s.f_bsize / 1073741824.0;
	if (far)
		say(d, NOTE, what,
		    "%s is on %s: weights are read at its speed, and a file "
		    "that is cut there ends the program; copy it to a local "
		    "disk",
		    dir, name);
	else
		say(d, GOOD, what, "%s is on %s, %.1f GiB free", dir, name,
		    left);
}

static void model_place(struct doctor *d, const char *path)
{
	struct genai_error *err = &d->c->err;
	char hub[6000];

	if (pull_resolve(d->c, &path, hub, sizeof(hub)))
		say(d, BAD, "model", "%s", err->text);
	else
		place(d, "model", path);
	*err = (struct genai_error)GENAI_ERROR_INIT;
}

static void cache_place(struct doctor *d)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	const char *dir = cache && cache[0] == '/' ? cache : home;

	if (!dir || dir[0] != '/')
		say(d, NOTE, "cache",
		    "neither HOME nor XDG_CACHE_HOME: GGUF files have to be "
		    "imported by genai import");
	else
		place(d, "cache", dir);
}

// ---- the command ----

static struct {
	const char *model;
	bool json;
} args;

static const struct cli_option options[] = {
	{"model", 'm', CLI_TEXT, "DIR",
	 "a model, whose place is looked at, too", &args.model},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &args.json},
	{0}};

static int run(struct cli *c, int argc, char **argv)
{
	struct doctor d = {.c = c};
	int at = cli_options(c, options, argc, argv);

	if (at < 0)
		return -at;
	if (at + 1 == argc && !args.model)
		args.model = argv[at];
	else if (at < argc)
		return cli_usage(c, "doctor takes one model, or none");
	d.json = args.json;
	d.found = json_array();
	configuration(&d);
	nvidia(&d);
	memory(&d);
	processors(&d);
	locking(&d);
	huge_pages(&d);
	if (args.model)
		model_place(&d, args.model);
	cache_place(&d);
	if (d.json)
		cli_print_json(json_pack("{s:b, s:O}", "ready", !d.bad,
					 "checks", d.found));
	json_decref(d.found);
	return d.bad ? EXIT_REQUEST : 0;
}

const struct command cmd_doctor = {
	"doctor",
	run,
	"[DIR]",
	"is this machine ready, and what to change",
	options,
	"It looks at configuration, device and its rates, driver, slots, "
	"memory and its\n"
	"limits, huge pages and file systems.\n"};
