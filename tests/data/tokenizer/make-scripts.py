#!/usr/bin/env python3
"""make-scripts.py > core/text/tokenizer/tok_script_table.h

The script of every character as the pre-tokenizer UnicodeScripts of the PyPI package
tokenizers sees it, found by asking it where it cuts.  Its last line is the hash that
check_tokenizer compares."""
from tokenizers import pre_tokenizers

pre = pre_tokenizers.UnicodeScripts()
LAST = 0x110000


def cuts(text):
    return [p[1][0] for p in pre.pre_tokenize_str(text)][1:]


def kind(c):
    """0: any (stays with what came before), 1 Latin, 2 Cyrillic, 3 another."""
    x = chr(c)
    a, b = cuts("a" + x + "\u044f"), cuts("\u044f" + x + "a")
    if a == [2] and b == [2]:
        return 0
    if a == [2] and b == [1]:
        return 1
    if a == [1] and b == [2]:
        return 2
    return 3


runs = []  # first, last, kind
for c in range(LAST):
    if 0xD800 <= c < 0xE000:
        k = 0
    else:
        k = kind(c)
    if runs and runs[-1][2] == k and not (k == 3 and cuts(chr(c - 1) + chr(c))):
        runs[-1][1] = c
    else:
        runs.append([c, c, k])
reps = []  # of scripts of kind 3
for r in runs:
    if r[2] != 3:
        continue
    for i, rep in enumerate(reps):
        if not cuts(rep + chr(r[0])):
            r[2] = 3 + i
            break
    else:
        reps.append(chr(r[0]))
        r[2] = 2 + len(reps)
h = 0xCBF29CE484222325
for first, last, k in runs:
    for v in [k] * (last - first + 1):
        h = (h ^ v) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
print("// tok_script_table.h - the script of every character; made by")
print("// tests/data/tokenizer/make-scripts.py.")
print("static const struct script_range {")
print("\tuint32_t first, last;\n\tuint8_t script;\n} ranges[] = {")
for first, last, k in runs:
    if k:
        print("\t{0x%x, 0x%x, %d}," % (first, last, k))
print("};")
import sys
sys.stderr.write("%d scripts, hash 0x%016x\n" % (len(reps) + 2, h))
