#!/usr/bin/env python3
"""Copy tokenizer folders here, with a sample of their recorded cases:
    trim.py FOLDER...
tokenizer.json is compressed; golden.json keeps every case about added tokens
up to a number, and some of each other group; streams are not kept (the test
compares their concatenation, which is decode_skip)."""
import gzip
import json
import os
import sys

ADDED, OTHER, LONG = 40, 4, 400

for src in sys.argv[1:]:
    name = os.path.basename(src.rstrip("/"))
    os.makedirs(name, exist_ok=True)
    path = os.path.join(src, "tokenizer.json")
    data = (open(path, "rb").read() if os.path.exists(path)
            else gzip.open(path + ".gz").read())
    with open(name + "/tokenizer.json.gz", "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))
    g = json.load(open(os.path.join(src, "golden.json")))
    seen, keep = {}, []
    for c in g["cases"]:
        n = seen.get(c["group"], 0)
        if n >= (ADDED if c["group"] == "added" else OTHER):
            continue
        if len(c["text"]) > LONG:
            continue
        seen[c["group"]] = n + 1
        c.pop("stream", None)
        keep.append(c)
    g = {"reference": g["ground_truth"], "cases": keep,
         "long": [{k: v for k, v in c.items() if k in (
             "long", "ids_sha256", "ids_special_sha256",
             "decode_skip_sha256")} for c in g["long"] if "100k" not in
             c["long"]]}
    with open(name + "/golden.json", "w") as f:
        f.write('{"reference": %s,\n"cases": [\n' % json.dumps(g["reference"]))
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in g["cases"]))
        f.write('\n],\n"long": [\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":"))
                           for c in g["long"]))
        f.write("\n]}\n")
