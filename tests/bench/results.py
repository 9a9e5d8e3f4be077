"""results.py - what genai bench measured, commit by commit.

    genai bench DIR ... | results.py add --commit HASH --date DAY --model NAME
    results.py table    # the table of docs/PERFORMANCE.md, anew
    results.py check    # is it that one?  TAP

docs/results.tsv keeps a line for each row of genai bench; the table is made from
it.  add reads the rows as they are printed; --device where the heading is missing,
--with for what the configuration has besides.
"""
import argparse
import os
import re
import sys

TOP = os.environ.get("top_srcdir") or os.path.join(os.path.dirname(__file__), "../..")
DATA = os.path.join(TOP, "docs/results.tsv")
PAGE = os.path.join(TOP, "docs/PERFORMANCE.md")
COLUMNS = ("date commit device model with executor pager budget prompt depth "
           "prompt_s decode_s spread share").split()
BEGIN = "<!-- docs/results.tsv, by tests/bench/results.py table -->"
END = "<!-- end -->"
ROW = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+\S+\s+(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+"
                 r"\(([\d.]+-[\d.]+)\)(?:\s+\S+){5,6}\s+([\d.]+)%(.*)$")


def load():
    lines = open(DATA, encoding="utf-8").read().splitlines()
    if not lines or lines[0].split("\t") != COLUMNS:
        sys.exit(f"{DATA}: line 1: not the names of the columns")
    rows = []
    for n, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(COLUMNS):
            sys.exit(f"{DATA}: line {n}: {len(fields)} fields, not {len(COLUMNS)}")
        rows.append(dict(zip(COLUMNS, fields)))
    return rows


def add(o):
    device, rows = o.device, []
    for line in sys.stdin:
        line = line.rstrip("\n")
        m = re.match(r"(.+?); memory .* GB/s, link", line)
        if m:
            device = m[1]
        m = ROW.match(line)
        if not m:
            continue
        if m[10].strip():
            sys.exit(f"a row that does not count: {line}")
        rows.append(dict(zip(COLUMNS, (o.date, o.commit, device, o.model, getattr(o, "with"),
                                       m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9]))))
    if not rows or not device:
        sys.exit("no rows of genai bench" if not rows else "--device: the heading is missing")
    if any("\t" in v or "|" in v for r in rows for v in r.values()):
        sys.exit("a field has a tab or a bar in it")
    with open(DATA, "a", encoding="utf-8") as f:
        for r in rows:
            f.write("\t".join(r[c] for c in COLUMNS) + "\n")


def number(text):
    return f"{float(text):,.{0 if float(text) >= 1000 else 1}f}"


def table():
    # the same measurement at different commits stands together, the newest first
    def what(r):
        return (r["device"], r["model"], r["with"], r["budget"], r["executor"], r["pager"],
                int(r["prompt"]), int(r["depth"]))
    rows = load()
    first = {}
    for r in rows:
        first.setdefault(what(r), len(first))
    order = sorted(range(len(rows)), key=lambda i: (first[what(rows[i])], -i))
    out = ["| model | with | budget | executor, pager | prompt, depth | commit | prompt/s | decode/s | of the floor |",
           "|---|---|---|---|---|---|---|---|---|"]
    last = None
    for i in order:
        r = rows[i]
        same = what(r) == last
        last = what(r)
        cells = ([""] * 5 if same else
                 [r["model"], r["with"], r["budget"], f"{r['executor']}, {r['pager']}",
                  f"{r['prompt']}, {r['depth']}"])
        cells += [f"{r['commit']}, {r['date']}", number(r["prompt_s"]),
                  f"{number(r['decode_s'])} ({r['spread']})", r["share"] and f"{r['share']} %"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def page():
    text = open(PAGE, encoding="utf-8").read()
    a, b = text.find(BEGIN), text.find(END)
    if a < 0 or b < a:
        sys.exit(f"{PAGE}: no place for the table")
    return text, text[:a] + BEGIN + "\n\n" + table() + "\n\n" + text[b:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=("add", "table", "check"))
    for name in ("commit", "date", "model", "device", "with"):
        p.add_argument("--" + name, default="")
    o = p.parse_args()
    if o.command == "add":
        for name in ("commit", "date", "model"):
            if not getattr(o, name):
                p.error(f"add: --{name} is needed")
        add(o)
    old, new = page()
    if o.command == "check":
        print("1..1\n" + ("" if old == new else "not ") +
              "ok 1 - the table of docs/PERFORMANCE.md is that of docs/results.tsv")
        return 0
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(new)
    return 0


sys.exit(main())
