# serve_load.py - what genai serve takes and costs.
#   serve_load.py flood GENAI DIR [--requests N] [--active N] [--idle N]
#     short requests over connections that stay, beside some that do nothing:
#     errors, and the server's memory as it goes
#   serve_load.py rates GENAI DIR [--repeat N]
#     one model by the engine (genai bench) and by the server, in turn: tokens a
#     second and a second of processor time, the first token; 64 streams; shared
#     beginnings
# --config FILE and --set KEY=VALUE, as genai has them, say what runs the model;
# without either it is cpu_ref:captured on two threads.  Nothing but Python's own
# library is needed.
# Prints lines of figures; the status is 1 if a request failed.
import argparse
import asyncio
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import time

failures = []


# genai with what it is told of the device.
def command(a, *more):
    config = ["--config", a.config] if a.config else []
    sets = a.set or ([] if a.config else [
        "module.cpu_ref.threads=2", "runtime.executor=cpu_ref:captured"])
    return [a.genai, *config, *more, *[x for s in sets for x in ("--set", s)]]


class Server:
    def __init__(self, a, *options):
        self.p = subprocess.Popen(command(a, "serve", a.model, "--port", "0",
                                          *options), stderr=subprocess.PIPE,
                                  text=True)
        line = self.p.stderr.readline()
        if " at http://" not in line:
            sys.exit("serve_load.py: " + line + self.p.stderr.read())
        self.port = int(line.rsplit(":", 1)[1])

    def memory(self):  # KiB
        with open("/proc/%d/status" % self.p.pid) as f:
            return int(re.search(r"VmRSS:\s*(\d+)", f.read()).group(1))

    def cpu(self):  # seconds of its threads so far
        with open("/proc/%d/stat" % self.p.pid) as f:
            t = f.read().rsplit(")", 1)[1].split()
        return (int(t[11]) + int(t[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.p.terminate()
        rest = self.p.communicate(timeout=60)[1]
        if self.p.returncode or rest:
            failures.append("the server ended with %d: %s" % (
                self.p.returncode, rest))


class Connection:
    def __init__(self, server):
        self.server = server

    async def open(self):
        self.r, self.w = await asyncio.open_connection(
            "127.0.0.1", self.server.port, limit=1 << 24)
        return self

    # When each event came, or the body.
    async def ask(self, **body):
        text = json.dumps(body).encode()
        self.w.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                     b"Content-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(text) + text)
        head = await self.r.readuntil(b"\r\n\r\n")
        times = []
        if b"chunked" in head:
            while True:
                n = int(await self.r.readline(), 16)
                piece = await self.r.readexactly(n + 2)
                if not n:
                    break
                times.append((time.perf_counter(), piece))
        else:
            n = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
            piece = await self.r.readexactly(n)
            times.append((time.perf_counter(), piece))
        if not head.startswith(b"HTTP/1.1 200") or any(
                b'"error"' in p for _, p in times):
            failures.append((head, times[:1]))
        return times


# ---- flood ----

async def flood(a):
    s = Server(a, "--max-connections",
               str(a.active + a.idle + 16), "--idle-timeout", "86400",
               "--queue", "4096")
    idle = [await Connection(s).open() for _ in range(a.idle)]
    active = [await Connection(s).open() for _ in range(a.active)]
    begun, left, memory = time.time(), [a.requests], []
    step = max(1, a.requests // 10)

    async def one(c, r):
        while left[0]:
            left[0] -= 1
            done = a.requests - left[0]
            if done % step == 0:
                memory.append(s.memory())
            kind = r.randrange(3)
            await c.ask(prompt="the %s cat %d" % ("big " * r.randrange(6),
                                                  r.randrange(50)),
                        max_tokens=1 + r.randrange(6), stream=kind == 1,
                        n=1 + (kind == 2), seed=done, temperature=1.0)

    await asyncio.gather(*[one(c, random.Random(i))
                           for i, c in enumerate(active)])
    took = time.time() - begun
    for c in idle + active:
        c.w.close()
    print("%d requests over %d connections beside %d idle ones: %.0f s, "
          "%.0f a second; %d failed" % (a.requests, a.active, a.idle, took,
                                        a.requests / took, len(failures)))
    print("resident after each tenth, MiB: " + " ".join(
        "%.1f" % (m / 1024) for m in memory))
    s.stop()


# ---- rates ----

KINDS, PROMPT, NEW = 8, 128, 64


# Those of genai bench.
def prompts(vocab):
    x, all = 12345, []
    for _ in range(KINDS):
        ids = []
        for _ in range(PROMPT):
            x = (x * 6364136223846793005 + 1442695040888963407) % 2 ** 64
            ids.append((x >> 33) % vocab)
        all.append(ids)
    return all


def engine(a, n):
    began = os.times()
    r = subprocess.run(command(
        a, "bench", a.model, "--sequences", str(n), "-p", str(PROMPT), "-n",
        str(NEW), "-r", "1", "--json", "/dev/stdout"), capture_output=True,
        text=True)
    end = os.times()
    text = r.stdout[r.stdout.index("\n{") if "\n{" in r.stdout
                    else r.stdout.index("{"):]
    row = json.JSONDecoder().raw_decode(text.strip())[0]
    row = row["rows"][0] if "rows" in row else row
    cpu = (end.children_user + end.children_system - began.children_user -
           began.children_system)
    return row["tok_s"], row["first_s"], cpu


async def served(s, all, n, **more):
    cs = [await Connection(s).open() for _ in range(n)]
    begun = time.perf_counter()
    got = await asyncio.gather(*[
        c.ask(prompt=all[i % len(all)], max_tokens=NEW, ignore_eos=True,
              temperature=0, cache_salt=str(time.time()) + str(i), **more)
        for i, c in enumerate(cs)])
    took = time.perf_counter() - begun
    for c in cs:
        c.w.close()
    return took, [g[0][0] - begun for g in got], got


def say(what, values, unit):
    print("%-58s %9.2f (%.2f-%.2f) %s" % (
        what, statistics.median(values), min(values), max(values), unit))


async def rates(a):
    s = Server(a, "--sequences", "64")
    with open(os.path.join(a.model, "genai_config.json")) as f:
        vocab = json.load(f)["model"]["vocab_size"]
    all = prompts(vocab)
    await served(s, all, 1)
    theirs, ours, first, ours_first, cpu = [], [], [], [], []
    for _ in range(a.repeat):
        theirs.append(engine(a, 16)[0])
        before = s.cpu()
        ours.append(16 * NEW / (await served(s, all, 16))[0])
        cpu.append(16 * NEW / (s.cpu() - before))
        first.append(engine(a, 1)[1] * 1e3)
        ours_first.append((await served(s, all, 1, stream=True))[1][0] * 1e3)
    say("16 requests, the engine's", theirs, "tokens/s")
    say("16 requests, the server's", ours, "tokens/s")
    say("the server over the engine, in pairs",
        [100 * x / y for x, y in zip(ours, theirs)], "%")
    say("the server's, of processor time", cpu, "tokens/s")
    say("one request's first token, the engine's", first, "ms")
    say("one request's first token, the server's", ours_first, "ms")

    r = random.Random(1)
    mixed = [[r.randrange(vocab) for _ in range(r.randrange(4, 200))]
             for _ in range(64)]
    ratios, middles, lasts = [], [], []
    for _ in range(max(1, a.repeat // 2)):
        _, _, got = await served(s, mixed, 64, stream=True)
        gaps = sorted(b[0] - x[0] for g in got
                      for x, b in zip(g[:-2], g[1:-1]))
        middles.append(statistics.median(gaps) * 1e3)
        lasts.append(gaps[len(gaps) * 99 // 100] * 1e3)
        ratios.append(lasts[-1] / middles[-1])
    say("64 streams: between two tokens, median", middles, "ms")
    say("64 streams: between two tokens, p99", lasts, "ms")
    say("64 streams: p99 over the median", ratios, "")

    async def shared(salted):
        salt = str(time.time())
        cs = [await Connection(s).open() for _ in range(16)]
        start = [r.randrange(vocab) for _ in range(900)]
        if not salted:  # the shared part is known from a turn before
            await cs[0].ask(prompt=start, max_tokens=1, cache_salt=salt)
        begun = time.perf_counter()
        await asyncio.gather(*[
            c.ask(prompt=start + [r.randrange(vocab) for _ in range(100)],
                  max_tokens=16, ignore_eos=True, temperature=0,
                  cache_salt=salt + (str(i) if salted else ""))
            for i, c in enumerate(cs)])
        for c in cs:
            c.w.close()
        return 16 * 16 / (time.perf_counter() - begun)

    none, found = [], []
    for _ in range(max(1, a.repeat // 2)):
        none.append(await shared(True))
        found.append(await shared(False))
    say("16 prompts of 1000, nothing found", none, "tokens/s")
    say("16 prompts of 1000, 900 of them known", found, "tokens/s")
    say("times as many, in pairs", [x / y for x, y in zip(found, none)], "")

    long = [r.randrange(vocab) for _ in range(4000)]
    c = await Connection(s).open()
    cold, warm = [], []
    for i in range(max(1, a.repeat // 2)):
        for v in cold, warm:
            begun = time.perf_counter()
            got = await c.ask(prompt=long, max_tokens=2, stream=True,
                              temperature=0, ignore_eos=True,
                              cache_salt="long%d" % i)
            v.append((got[0][0] - begun) * 1e3)
    c.w.close()
    say("a prompt of 4000: first token, new", cold, "ms")
    say("a prompt of 4000: first token, seen before", warm, "ms")
    s.stop()


p = argparse.ArgumentParser()
p.add_argument("what", choices=["flood", "rates"])
p.add_argument("genai")
p.add_argument("model")
p.add_argument("--requests", type=int, default=100000)
p.add_argument("--active", type=int, default=256)
p.add_argument("--idle", type=int, default=1000)
p.add_argument("--repeat", type=int, default=5)
p.add_argument("--config")
p.add_argument("--set", action="append", metavar="KEY=VALUE")
args = p.parse_args()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
sys.stdout.reconfigure(line_buffering=True)
asyncio.run(flood(args) if args.what == "flood" else rates(args))
for f in failures[:5]:
    print("failed: %r" % (f,))
sys.exit(1 if failures else 0)
