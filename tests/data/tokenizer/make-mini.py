#!/usr/bin/env python3
"""Write mini.json: small tokenizers, one per feature, and what the reference
(Python package tokenizers) makes of them.  Needed only to record anew:
    make-mini.py "$(cat charsmap.b64)" > mini.json"""
import json
import random
import sys
import tokenizers
from tokenizers import Tokenizer

BYTES = {"<0x%02X>" % i: i for i in range(256)}
# Spells every word as bytes, with a | after it: shows what the stages before
# the model made of the text.
SPELL = {"type": "BPE", "dropout": None, "unk_token": None,
         "continuing_subword_prefix": None, "end_of_word_suffix": "|",
         "fuse_unk": False, "byte_fallback": True, "ignore_merges": False,
         "vocab": BYTES, "merges": []}
out = []


def doc(model=SPELL, norm=None, pre=None, post=None, dec=None, added=()):
    if model is SPELL:
        dec = {"type": "Sequence", "decoders": [{"type": "ByteFallback"},
                                                {"type": "Fuse"}]}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": list(added), "normalizer": norm,
            "pre_tokenizer": pre, "post_processor": post, "decoder": dec,
            "model": model}


def bpe(vocab, merges, **more):
    m = dict(SPELL, vocab={t: i for i, t in enumerate(vocab)}, merges=merges,
             end_of_word_suffix=None, byte_fallback=False)
    m.update(more)
    return m


def added(content, id, **flags):
    a = {"id": id, "content": content, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": False}
    a.update(flags)
    return a


def record(name, d, texts=(), idlists=()):
    t = Tokenizer.from_str(json.dumps(d))
    cases = []
    for x in texts:
        a = t.encode(x, add_special_tokens=False).ids
        b = t.encode(x, add_special_tokens=True).ids
        c = {"text": x, "ids_special": b, "decode_skip": t.decode(b)}
        keep = t.decode(b, skip_special_tokens=False)
        if a != b:
            c["ids"] = a
        if keep != c["decode_skip"]:
            c["decode_keep"] = keep
        t.encode_special_tokens = True
        s = t.encode(x, add_special_tokens=False).ids
        t.encode_special_tokens = False
        if s != a:
            c["ids_specials_as_text"] = s
        cases.append(c)
    for ids in idlists:
        try:
            cases.append({"ids_special": ids,
                          "decode_skip": t.decode(ids),
                          "decode_keep": t.decode(ids,
                                                  skip_special_tokens=False)})
        except BaseException as e:  # the reference panics in a few
            print(name, ids, e, file=sys.stderr)
    if d["model"] is SPELL:
        d["model"] = "spell"
    d = {k: v for k, v in d.items() if v}
    out.append({"name": name, "tokenizer": d, "cases": cases})


# --- merges, in both spellings, and with a blank inside a token
V = ["a", "b", "c", "ab", "abc", "bc", "ca"]
for name, m in (("string", ["a b", "ab c", "b c", "c a"]),
                ("pair", [["a", "b"], ["ab", "c"], ["b", "c"], ["c", "a"]])):
    record("merges as " + name, doc(bpe(V, m)),
           ["abc", "abcabc", "bcabca", "cababc", "aabbcc", "xaby", ""])
record("merge with a blank inside",
       doc(bpe(["a", " ", "b", "a ", "a b"], [["a", " "], ["a ", "b"]])),
       ["a b", "aa b", " a b ", "ab"])
record("merge of equal result and stale candidates",
       doc(bpe(["a", "aa", "aaa", "aaaa"], [["a", "a"], ["aa", "aa"],
                                            ["aa", "a"], ["a", "aa"],
                                            ["aaa", "a"]])),
       ["a" * n for n in range(1, 12)])

# --- options of BPE
U = ["<unk>", "a", "b", "ab", "\u00e9"]
for fuse in (False, True):
    record("fuse_unk %s" % fuse,
           doc(bpe(U, [["a", "b"]], unk_token="<unk>", fuse_unk=fuse)),
           ["xx", "axxb", "abxyzab", "\U0001f600\u4e16a", "xaxbx"])
record("no unk_token", doc(bpe(U, [["a", "b"]])), ["xx", "axb", "\u4e16ab"])
record("ignore_merges", doc(bpe(["a", "b", "c", "abc", "ab"], [["a", "b"]],
                                ignore_merges=True)),
       ["abc", "abca", "ab", "abcabc"])
record("without ignore_merges",
       doc(bpe(["a", "b", "c", "abc", "ab"], [["a", "b"]])), ["abc", "abca"])
record("prefix and suffix",
       doc(bpe(["a", "b", "##a", "##b", "##b</w>", "a</w>", "ab</w>", "ab",
                "##a</w>", "<unk>"],
               [["a", "##b</w>"], ["a", "##b"]],
               continuing_subword_prefix="##", end_of_word_suffix="</w>",
               unk_token="<unk>"),
           pre={"type": "Whitespace"}, dec={"type": "BPEDecoder",
                                            "suffix": "</w>"}),
       ["ab", "a b", "aba", "abab ab", "xa", "a x b", "b"],
       [[5, 6, 6], [4, 0, 1, 5], [5], [], [5, 5, 5], [0, 5, 0]])
part = ["<unk>", "a"] + ["<0x%02X>" % i for i in (0xc3, 0xa9, 0x78)]
record("some byte tokens",
       doc(bpe(part, [], byte_fallback=True, unk_token="<unk>")),
       ["\u00e9", "x", "y", "ay\u00e9a", "y\u00e9y", "\u00e8x"])
record("byte-token spellings",
       doc(bpe(["<0x-1>", "<0xZZ>", "<0x1>", "<0x100>", "<0x61>", "<0x6a>"],
               [], byte_fallback=True), dec={"type": "ByteFallback"}),
       ["a", "j", "b"], [[0, 1, 2, 3, 4, 5], [4, 4], [5]])

# --- added tokens
M = bpe(["a", "b", "x", "y", "t", "<", ">", " ", "\n"], [])
T = ["a  <t>  b", "x<t>y", "<t>", "<t><t>", " <t> <t> ", "a\n<t>\nb",
     "\u00e9<t>b", "a_<t>_", "a <t>b", "<t", "<<t>>"]
for l in (False, True):
    for r in (False, True):
        for w in (False, True):
            for sp in (False, True):
                record("added lstrip %s rstrip %s single %s special %s"
                       % (l, r, w, sp),
                       doc(M, added=[added("<t>", 9, lstrip=l, rstrip=r,
                                           single_word=w, special=sp)]), T)
record("added overlap",
       doc(M, added=[added("ab", 9), added("abx", 10), added("bx", 11),
                     added("  ", 12), added("t", 13, rstrip=True),
                     added("y", 14, lstrip=True)]),
       ["ababx", "abxbx", "t   a", "t  ", "a   y", "tt  y", "bxab"])
record("added normalized",
       doc(SPELL, norm={"type": "Lowercase"},
           added=[added("FOO", 256, normalized=True),
                  added("Bar", 257, normalized=False),
                  added("QUX", 258, normalized=True, special=True),
                  added("Zap", 259, special=True)]),
       ["foo FOO Foo", "bar Bar BAR", "qux QUX Qux", "zap Zap", "FOOBarQUXZap"],
       [[256, 257, 258, 259], [97]])

# --- normalizers
N = ["\u00e9", "e\u0301", "\ufb01", "\uff08", "\u00bd", "\u1100\u1161\u11a8",
     "\uac01", "Kant\u014d", "\u1e9b\u0323", "\u0130I\u0131", "a\u0327\u0301",
     "q\u0307\u0323", "\u2126", "\u00c5\u212b", " a ", "\u3000x\u3000",
     "", " ", "STRASSE\u1e9e", "\u03a3\u03b1\u03c2", "a\u0000b\u200b\ufeffc",
     "\u4f60a\u597d", "x\u0085\u180ey", "ab  cd   ef", "aaab"]
for n in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
          "ByteLevel"):
    record("normalizer " + n, doc(norm={"type": n}), N)
for l in (False, True):
    for r in (False, True):
        record("Strip %s %s" % (l, r),
               doc(norm={"type": "Strip", "strip_left": l, "strip_right": r}),
               N[14:18])
for pat, to in (({"String": " "}, "\u2581"), ({"String": "aa"}, "b"),
                ({"Regex": " {2,}"}, "_"), ({"Regex": "a*"}, "-"),
                ({"Regex": "\\s+"}, ""), ({"Regex": "(?i)A+"}, "z")):
    record("Replace %s" % pat, doc(norm={"type": "Replace", "pattern": pat,
                                         "content": to}), N[14:])
record("Prepend", doc(norm={"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"},
    {"type": "Sequence", "normalizers": [{"type": "NFC"}]}]}), N)
for i in range(16):
    record("BertNormalizer %d" % i, doc(norm={
        "type": "BertNormalizer", "clean_text": bool(i & 1),
        "handle_chinese_chars": bool(i & 2),
        "strip_accents": [None, True][i >> 2 & 1], "lowercase": bool(i & 8)}),
        N)
# Long runs of marks, in every order of their classes.
rng = random.Random(1)
MARKS = ["a" + "".join(chr(rng.randrange(0x300, 0x370)) for _ in range(n))
         for n in (2, 3, 10, 300)]
for n in ("NFC", "NFD", "NFKC", "NFKD"):
    record("marks " + n, doc(norm={"type": n}), MARKS)
# charsmap.b64 is a small double array: a -> "bc", ab -> "" (never reached),
# U+00E9 and its decomposition -> "e", CR LF and U+3000 -> " ".
if len(sys.argv) > 1:
    record("Precompiled", doc(norm={"type": "Precompiled",
                                    "precompiled_charsmap": sys.argv[1]}),
           N + ["ab", "ba", "a\u0301", "caf\u00e9", "\r\n"])

# --- pre-tokenizers
P = ["", " ", "a", "Hello, world!", "  two  blanks ", "a1b22c333", "it's I'LL",
     "x\ty\n\nz ", "\u4f60\u597d,\u4e16\u754c", "caf\u00e9\u0301 \u0e01\u0e34",
     "...!?", "a_b-c d", "\u00a0\u3000\u180e x", "12 345 6\u0663\u00bd\u2167",
     "\u30fc\u3042\u30a2\u6f22\u5b57abc\u0434", "$1+2=3^~", "\u2581a\u2581 b"]
for b in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
          "Contiguous"):
    for inv in (False, True):
        for pat in ({"String": " "}, {"Regex": "[aeiou]|\\p{P}"},
                    {"Regex": "a*"}):
            record("Split %s %s %s" % (b, inv, pat),
                   doc(pre={"type": "Split", "pattern": pat, "behavior": b,
                            "invert": inv}), P)
    record("Punctuation " + b, doc(pre={"type": "Punctuation",
                                        "behavior": b}), P)
for p in ({"type": "Digits", "individual_digits": True},
          {"type": "Digits", "individual_digits": False},
          {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
          {"type": "BertPreTokenizer"}, {"type": "UnicodeScripts"},
          {"type": "CharDelimiterSplit", "delimiter": "l"},
          {"type": "FixedLength", "length": 3},
          {"type": "ByteLevel", "add_prefix_space": False,
           "trim_offsets": True, "use_regex": False}):
    record("pre %s" % json.dumps(p), doc(pre=p), P)
for prefix in (False, True):
    record("ByteLevel %s" % prefix,
           doc(pre={"type": "Sequence", "pretokenizers": [
               {"type": "Digits", "individual_digits": True},
               {"type": "ByteLevel", "add_prefix_space": prefix,
                "trim_offsets": True, "use_regex": True}]}), P)
for scheme in ("always", "first", "never"):
    for split in (False, True):
        record("Metaspace %s %s" % (scheme, split),
               doc(pre={"type": "Metaspace", "replacement": "\u2581",
                        "prepend_scheme": scheme, "split": split},
                   added=[added("<s>", 256, special=True)]),
               P + ["text", " text", "  text", "<s>text", "<s> text",
                    "text<s>text", "<s>", "\u2581text"])
record("Metaspace after Strip",
       doc(norm={"type": "Strip", "strip_left": True, "strip_right": False},
           pre={"type": "Metaspace", "replacement": "\u2581",
                "prepend_scheme": "first", "split": True}),
       ["text", " text", "  two words"])

# --- the regex dialect
R = ["[^(\\s|[.,!?\u2026\u3002])]+", "[\\p{L}&&[^\\p{Han}]]+|\\p{Han}+",
     "[a-z&&[^aeiou]]+", "[^a-z&&[^0-9]]+", "[a-c[x-z]]+", "[a[^b-z]]+",
     "\\p{N}{1,3}", "\\p{N}{1,2}+", "a{,2}", "\\h+", "\\H+", "[\\h_]+",
     "\\s+", "\\S+", "[\\S]+", "[^\\S ]+", "\\w+", "\\W+", "\\d+", "\\D+",
     "(?i:'s|'ll)", "(?i)LL", "^.", ".$", "\\Ab?", "\\u4f60", "\\x{4f60}",
     "[\\u4e00-\\u9fff]+", "\\p{Lu}|\\p{^L}+", "\\P{L}+", "\\p{Letter}+",
     "\\p{Hiragana}+", "\\p{White_Space}+", "\\p{Alpha}+", "(?<=a).", "(?!b).",
     "(?<!a)b", "(?>a+)b", "a++b?", "a*?b", "(?:ab)+", "(a)(b)?", "[]a]+",
     "[a\\]\\-]+", "{", "a{x", "\\.", "[.]+", "\\n", "\\t", "\\r\\n|\\R",
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*", "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+",
     "\\b\\w", "\\B.", "x|", "\\v", "[\\n\\v]+", "\\p{P}", "\\p{S}", "[\\p{P}\\p{S}]+"]
D = P + ["aabbab", "abc_xyz.", "a,b|c(d)\u3002", "A\nb\r\nC\u000b", "]a-]{a{x"]
for r in R:
    record("regex " + r, doc(pre={"type": "Split", "pattern": {"Regex": r},
                                  "behavior": "Isolated", "invert": False}), D)

# --- the other models
W = {w: i for i, w in enumerate(["[UNK]", "a", "ab", "##b", "##c", "abc",
                                 "##bcd", "\u4f60", "##\u597d", "[CLS]",
                                 "[SEP]", ".", ",", "do", "not", "'", "s"])}
wp = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": W,
      "continuing_subword_prefix": "##", "max_input_chars_per_word": 6}
record("WordPiece", doc(wp, pre={"type": "BertPreTokenizer"},
                        dec={"type": "WordPiece", "prefix": "##",
                             "cleanup": True},
                        post={"type": "BertProcessing", "sep": ["[SEP]", 10],
                              "cls": ["[CLS]", 9]}),
       ["ab", "abcd", "abcbcd", "abbbbbb", "abx", "\u4f60\u597d", "a b ab",
        "", "abc,a."],
       [[13, 14], [3, 1], [1, 15, 16], [1, 11, 12], [], [1, 13, 14, 11]])
record("WordLevel", doc({"type": "WordLevel", "vocab": W,
                         "unk_token": "[UNK]"},
                        pre={"type": "WhitespaceSplit"}),
       ["a ab abc", "x", "", "a  x  b"], [[0, 1, 2], [1]])
for fb in (False, True):
    pieces = [["<unk>", 0.0], ["a", -1.5], ["b", -2.0], ["ab", -2.5],
              ["aba", -3.25], ["\u4f60", -4.0], ["c", -1e-3]]
    if fb:
        pieces += [["<0x%02X>" % i, -9.5] for i in range(256)]
    record("Unigram %s" % fb, doc({"type": "Unigram", "unk_id": 0,
                                   "vocab": pieces, "byte_fallback": fb}),
           ["ab", "aba", "ababa", "abababc", "xyz", "axyb", "\u4f60\u597d\u4f60",
            "", "cccc", "xax"])

# --- post-processors
one = {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "x", "type_id": 0}}],
       "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [7, 8],
                                  "tokens": ["t", ">"]},
                          "x": {"id": "x", "ids": [2], "tokens": ["x"]}}}
rob = {"type": "RobertaProcessing", "sep": ["y", 3], "cls": ["t", 4],
       "trim_offsets": True, "add_prefix_space": True}
bl = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
      "use_regex": True}
for name, post in (("template", one), ("roberta", rob), ("bytes", bl),
                   ("both", {"type": "Sequence", "processors": [bl, one]})):
    record("post " + name, doc(M, post=post), ["ab", "", "a b"])

# --- decoders
B = {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
     "continuing_subword_prefix": None, "end_of_word_suffix": None,
     "byte_fallback": True, "merges": [],
     "vocab": dict(BYTES, **{"\u2581": 256, "\u2581a": 257, "b\u2581": 258,
                             " ": 259, "  x": 260, "\u0120h": 261,
                             "\u00e4\u00bd": 262, "\u0142": 263,
                             "\u2581\u2581": 264, "##c": 265, "d</w>": 266,
                             "\ufffd": 267, "x  ": 268})}
I = [[0xea, 0xb9, 0xb0], [0xea, 0xb9], [257, 0xea, 0xb9, 257], [97, 0xff, 98],
     [256, 257], [257, 257], [264, 258, 256], [259, 260], [260, 268, 259],
     [261, 262, 263, 261], [262], [263, 262, 97], [265, 266, 265], [266, 266],
     [266], [267, 0xc3, 0xa9, 0xc3], [], [0xf0, 0x9f, 0x98, 0x80, 257],
     [268, 268], [259, 259, 259], [0xc3, 257, 0xa9], [269, 257], [257, 269]]
sp = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
st = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
for name, dec in (
        ("none", None), ("ByteLevel", dict(bl)), ("Fuse", {"type": "Fuse"}),
        ("ByteFallback", {"type": "ByteFallback"}),
        ("llama", {"type": "Sequence", "decoders": [
            sp, {"type": "ByteFallback"}, {"type": "Fuse"}, st]}),
        ("gemma", {"type": "Sequence", "decoders": [
            sp, {"type": "ByteFallback"}, {"type": "Fuse"}]}),
        ("strip each", dict(st, stop=1)),
        ("strip ends", {"type": "Sequence", "decoders": [
            {"type": "Fuse"}, dict(st, start=2, stop=2)]}),
        ("bytes then replace", {"type": "Sequence", "decoders": [
            dict(bl), {"type": "Replace", "pattern": {"Regex": " +h?"},
                       "content": "_"}]}),
        ("bytes then strip", {"type": "Sequence", "decoders": [dict(bl), st]}),
        ("fuse then bytes", {"type": "Sequence", "decoders": [
            {"type": "Fuse"}, dict(bl)]}),
        ("metaspace always", {"type": "Metaspace", "replacement": "\u2581",
                              "prepend_scheme": "always", "split": True}),
        ("metaspace never", {"type": "Metaspace", "replacement": "\u2581",
                             "prepend_scheme": "never", "split": True}),
        ("wordpiece", {"type": "WordPiece", "prefix": "##",
                       "cleanup": False}),
        ("suffix", {"type": "BPEDecoder", "suffix": "</w>"}),
        ("suffix then fuse", {"type": "Sequence", "decoders": [
            {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Fuse"}, st]})):
    record("decoder " + name, doc(B, dec=dec,
                                  added=[added("<s>", 269, special=True)]),
           idlists=I)
    out[-1]["tokenizer"]["model"] = "marks"

print('{"reference": "tokenizers %s",\n"spell": %s,\n"marks": %s,\n"tokenizers": [' %
      (tokenizers.__version__, json.dumps(SPELL, separators=(",", ":")),
       json.dumps(B, separators=(",", ":"))))
print(",\n".join(json.dumps(o, separators=(",", ":")) for o in out))
print("]}")
