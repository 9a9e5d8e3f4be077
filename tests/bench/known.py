#!/usr/bin/env python3
"""known.py - what the engine does not compute again, and what it guesses.

usage: known.py GENAI DIR

Processor time of genai batch on cpu_ref, one thread, less that of a request of
one token: a prompt of 4,000 tokens alone, and what it costs a second time; ten
prompts of which 900 words of 1,000 are the same, with and without the beginning
found.  Then tokens a second by the simulated clock, a quarter of the weights on
the device, of a text that repeats, with and without guesses.
"""
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

WORDS = ("the a of river stone light green tower small market walked under bridge "
         "quiet morning letters paper window garden seven boats").split()
CODE = """static void put_%s(struct blocks *p, uint32_t b)
{
	p->v[b].older = p->%s;
	p->v[b].newer = NONE;
	if (p->%s != NONE)
		p->v[p->%s].newer = b;
	else
		p->oldest = b;
	p->%s = b;
}

"""
SET = ["runtime.executor=cpu_ref:captured", "module.cpu_ref.threads=1"]
ALONE = ["--sequences", "1"]  # so that the first is there when the second comes
CLOCK = ["runtime.context=1024", "runtime.pager=pager_async", "runtime.weight_budget=25%",
         "module.cpu_ref.clock=simulated",
         "module.cpu_ref.link_bytes_per_s=54000000000", "module.cpu_ref.memory_bytes_per_s=3300000000000"]


def words(n, r):
    return " ".join(r.choice(WORDS) for _ in range(n))


def batch(genai, folder, lines, sets, *more):
    """Processor seconds, the answers, the last line that was said."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    try:
        a = resource.getrusage(resource.RUSAGE_CHILDREN)
        p = subprocess.run([genai, "--verbose"] + ["--set=" + s for s in sets] +
                           ["batch", folder, f.name, "--greedy", "--ignore-eos", *more],
                           capture_output=True, text=True)
        b = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        os.unlink(f.name)
    if p.returncode:
        sys.exit(p.stderr)
    answers = [[c["ids"] for c in json.loads(line)["choices"]] for line in p.stdout.splitlines()]
    return b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime, answers, p.stderr.strip().split("\n")[-1]


def main(genai, folder):
    start = batch(genai, folder, [{"prompt": "a", "max_tokens": 1}], SET, *ALONE)[0]
    r = random.Random(1)
    long = words(3990, r)
    two = [{"prompt": long + end, "max_tokens": 1} for end in (" first", " second")]
    one = batch(genai, folder, two[:1], SET, *ALONE)[0]
    both = batch(genai, folder, two, SET, *ALONE)[0]
    print("4,000 tokens: %.2f s; a second time: %.2f s" % (one - start, both - one), flush=True)
    shared = words(900, r)
    ten = [{"prompt": shared + " " + words(100, random.Random(100 + i)), "max_tokens": 16} for i in range(10)]
    known, a, _ = batch(genai, folder, ten, SET, *ALONE)
    new, b, _ = batch(genai, folder, [dict(t, salt=str(i)) for i, t in enumerate(ten)], SET, *ALONE)
    if a != b:
        sys.exit("known beginnings: other tokens")
    print("ten of 1,000 words, 900 the same: %.2f s; nothing found: %.2f s: %.2f times"
          % (known - start, new - start, (new - start) / (known - start)), flush=True)
    code = "".join(CODE % ((n,) * 5) for n in ("newest", "last"))
    text = [{"prompt": "A file:\n\n" + code + "The same file, with one comment added:\n\n", "max_tokens": 256}]
    rates = []
    for guesses in ("off", "8"):
        _, ids, said = batch(genai, folder, text, SET + CLOCK, "--speculation", guesses)
        rates.append((ids, float(said.split()[1])))
    if rates[0][0] != rates[1][0]:
        sys.exit("guesses: other tokens")
    print("text that repeats: %.1f tokens/s, with guesses %.1f: %.2f times"
          % (rates[0][1], rates[1][1], rates[1][1] / rates[0][1]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
