# serve.py - a client of genai serve: answers against those of the command line,
# errors, clients that misbehave.
import http.client
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from served import *
try:
    import jsonschema
except ImportError:
    jsonschema = None


# ---- what it answers ----

def answers(s):
    status, j = s.post(TEXT, model=NAME, prompt="hello world", max_tokens=8)
    want = cli("--prompt", "hello world", "-n", "8")
    same("a completion is the command line's", j["choices"][0]["text"],
         want["text"])
    same("its usage", j["usage"]["completion_tokens"], 8)
    same("its prompt", j["usage"]["prompt_tokens"], len(want["prompt_ids"]))
    same("it ends by length", j["choices"][0]["finish_reason"], "length")
    same("its kind", j["object"], "text_completion")
    _, k = s.post(TEXT, prompt=want["prompt_ids"], max_tokens=8)
    same("the same from ids", k["choices"], j["choices"])
    chunks = s.stream(TEXT, prompt="hello world", max_tokens=8)
    same("and in a stream", joined(chunks), want["text"])
    same("that ends once", finishes(chunks), ["length"])
    _, k = s.post(TEXT, prompt=["hello world", "other"], max_tokens=8)
    same("two prompts: two choices", [c["index"] for c in k["choices"]],
         [0, 1])
    same("the first of them", k["choices"][0]["text"], want["text"])
    same("and the second", k["choices"][1]["text"],
         cli("--prompt", "other", "-n", "8")["text"])
    _, k = s.post(TEXT, prompt="hello world", max_tokens=8, echo=True)
    same("echo", k["choices"][0]["text"], "hello world" + want["text"])
    _, k = s.post(TEXT, prompt="hello world", max_tokens=400, n=3, seed=7,
                  temperature=1.5)
    for i in range(3):
        w = cli("--prompt", "hello world", "-n", "400", "--seed", str(7 + i),
                "--temperature", "1.5")
        same("choice %d has the seed after" % i, k["choices"][i]["text"],
             w["text"])
        same("and its end", k["choices"][i]["finish_reason"],
             {"eos": "stop", "length": "length"}[w["finish_reason"]])
    sampling = dict(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01,
                    repetition_penalty=1.1, presence_penalty=0.5,
                    frequency_penalty=0.2, seed=3)
    flags = [x for k, v in sampling.items()
             for x in ("--" + k.replace("_", "-"), str(v))]
    _, k = s.post(TEXT, prompt="a b c", max_tokens=40, **sampling)
    same("every parameter of sampling", k["choices"][0]["text"],
         cli("--prompt", "a b c", "-n", "40", *flags)["text"])
    _, k = s.post(TEXT, prompt="a b c", max_tokens=40, **sampling)
    first = k["choices"][0]["text"]
    _, k = s.post(TEXT, prompt="a b c", max_tokens=40, **sampling)
    same("the same seed, the same text", k["choices"][0]["text"], first)


def chats(s):
    want = cli("--prompt", "hello", "--chat", "-n", "12")
    status, j = s.post(CHAT, messages=user("hello"), max_tokens=12)
    same("a chat is the command line's",
         j["choices"][0]["message"]["content"], want["text"])
    same("its kind", (j["object"], j["choices"][0]["message"]["role"]),
         ("chat.completion", "assistant"))
    chunks = s.stream(CHAT, messages=user("hello"), max_completion_tokens=12,
                      stream_options={"include_usage": True})
    same("in a stream", joined(chunks), want["text"])
    same("the role comes first, once",
         [i for i, k in enumerate(chunks) if k["choices"] and
          "role" in k["choices"][0]["delta"]], [0])
    same("usage comes last, without choices",
         (chunks[-1]["choices"], chunks[-1]["usage"]),
         ([], j["usage"] | {"prompt_tokens_details":
          chunks[-1]["usage"]["prompt_tokens_details"]}))
    same("and is null before", {k["usage"] is None for k in chunks[:-1]},
         {True})
    _, k = s.post(CHAT, max_tokens=12, messages=[
        {"role": "user", "content": [{"type": "text", "text": "hel"},
                                     {"type": "text", "text": "lo"}]}])
    same("parts of text are one text", k["choices"][0]["message"]["content"],
         want["text"])
    _, k = s.post(CHAT, messages=[{"role": "system", "content": "be brief"},
                                  *user("hello")], max_tokens=12)
    same("a system turn", k["choices"][0]["message"]["content"],
         cli("--prompt", "hello", "--system", "be brief", "-n", "12")["text"])
    ids = cli("--prompt", "hello", "--chat", "-n", "1")["prompt_ids"]
    same("/tokenize of messages",
         s.post("/tokenize", messages=user("hello"))[1]["tokens"], ids)
    _, k = s.post("/tokenize", prompt="hello world")
    same("/tokenize", (k["tokens"], k["count"]),
         (cli("--prompt", "hello world", "-n", "1")["prompt_ids"],
          len(k["tokens"])))
    same("/detokenize", s.post("/detokenize", tokens=k["tokens"])[1],
         {"prompt": "hello world"})
    same("a special token in a message is text", s.post(
        "/tokenize", messages=user("<|end|>"))[1]["count"] > len(ids), True)


def parameters(s):
    plain = s.post(TEXT, prompt="hello world", max_tokens=30)[1]
    text = plain["choices"][0]["text"]
    stop = text[6:9]
    _, k = s.post(TEXT, prompt="hello world", max_tokens=30, stop=stop)
    same("stop: the text ends before it",
         (k["choices"][0]["text"], k["choices"][0]["finish_reason"]),
         (text[:text.index(stop)], "stop"))
    chunks = s.stream(TEXT, prompt="hello world", max_tokens=30,
                      stop=["never there", stop])
    same("also in a stream", joined(chunks), text[:text.index(stop)])
    ids = cli("--prompt", "hello world", "-n", "30")["ids"]
    _, k = s.post(TEXT, prompt="hello world", max_tokens=30,
                  stop_token_ids=[ids[4]])
    same("stop_token_ids", (k["choices"][0]["finish_reason"],
                            text.startswith(k["choices"][0]["text"])),
         ("stop", True))
    _, k = s.post(TEXT, prompt="hello", max_tokens=3,
                  logit_bias={"300": 100})
    same("logit_bias", k["choices"][0]["text"],
         s.post("/detokenize", tokens=[300] * 3)[1]["prompt"])
    _, k = s.post(TEXT, prompt="hello", max_tokens=9, logit_bias={"0": 100})
    same("the end of text", (k["choices"][0]["text"],
                             k["choices"][0]["finish_reason"]), ("", "stop"))
    _, k = s.post(TEXT, prompt="hello", max_tokens=9, min_tokens=5,
                  logit_bias={"0": 100})
    check("min_tokens holds it back", k["usage"]["completion_tokens"] >= 5, k)
    _, k = s.post(TEXT, prompt="hello", max_tokens=9, ignore_eos=True,
                  logit_bias={"0": 100})
    same("ignore_eos goes on", (k["usage"]["completion_tokens"],
                                k["choices"][0]["finish_reason"]),
         (9, "length"))
    _, k = s.post(TEXT, prompt="hello world", max_tokens=4, logprobs=2)
    l = k["choices"][0]["logprobs"]
    same("logprobs of a completion", [len(l[x]) for x in (
        "tokens", "token_logprobs", "top_logprobs", "text_offset")], [4] * 4)
    check("the most probable token is on top",
          all(max(t.values()) == p for t, p in
              zip(l["top_logprobs"], l["token_logprobs"])), l)
    _, k = s.post(TEXT, prompt="hello world", max_tokens=4, logprobs=0,
                  echo=True)
    l = k["choices"][0]["logprobs"]
    check("with echo, those of the prompt, too",
          l["token_logprobs"][0] is None and
          len(l["tokens"]) == 4 + k["usage"]["prompt_tokens"] and
          all(x < 0 for x in l["token_logprobs"][1:]), l)
    body = dict(messages=user("hello"), max_tokens=5, logprobs=True,
                top_logprobs=3)
    _, k = s.post(CHAT, **body)
    l = k["choices"][0]["logprobs"]["content"]
    same("logprobs of a chat", [len(t["top_logprobs"]) for t in l], [3] * 5)
    chunks = s.stream(CHAT, **body)
    same("the same in a stream",
         [t for k in chunks for c in k["choices"] if c["logprobs"]
          for t in c["logprobs"]["content"]], l)
    _, k = s.post(TEXT, prompt="hello", max_tokens=100000)
    same("more tokens than there is room for: as many as there is",
         (k["choices"][0]["finish_reason"], k["usage"]["total_tokens"] <= 512),
         ("length", True)) if k["choices"][0]["finish_reason"] != "stop" else \
        check("or it ends before", True)


# ---- calls and reasoning ----

WRITTEN = {  # what templates make of a call, and a model then writes
    "hermes": ('<tool_call>{"name": "probe_fn"}</tool_call>',
               '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>'),
    "coder": ('<tool_call><function=probe_fn></function></tool_call>',
              '<tool_call><function=f><parameter=a>1</parameter></function>'
              '</tool_call>'),
    "mistral": ('[TOOL_CALLS]probe_fn[ARGS]{}', '[TOOL_CALLS]f[ARGS]{"a":1}'),
    "llama": ('{"name": "probe_fn", "parameters": {}}',
              '{"name":"f","parameters":{"a":1}}'),
    "python": ('<|tool_call_start|>[probe_fn()]<|tool_call_end|>',
               '<|tool_call_start|>[f(a=1)]<|tool_call_end|>'),
}


def calls():
    tools = [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties":
                                    {"a": {"type": "integer"}}}}}]
    body = dict(messages=user("hello"), max_tokens=1, tools=tools,
                logit_bias={"511": 100})
    for name, (shown, text) in WRITTEN.items():
        s = Server(model=taught(name, text, TEMPLATE.replace("CALL", shown)))
        _, k = s.post(CHAT, **body)
        c = k["choices"][0]["message"]
        same(name + ": a call",
             (c["content"], [t["function"]["name"] for t in c["tool_calls"]],
              [json.loads(t["function"]["arguments"])
               for t in c["tool_calls"]]), (None, ["f"], [{"a": 1}]))
        deltas = [c["delta"] for k in s.stream(CHAT, **body)
                  for c in k["choices"]]
        parts = [t for d in deltas for t in d.get("tool_calls", [])]
        same(name + ": in a stream",
             ([t["index"] for t in parts], parts[0]["function"]["name"],
              json.loads("".join(t["function"]["arguments"] for t in parts)),
              "".join(d.get("content") or "" for d in deltas)),
             ([0] * len(parts), "f", {"a": 1}, ""))
        _, k = s.post(CHAT, **(body | {"tool_choice": "none"}))
        c = k["choices"][0]["message"]
        same(name + ": none of them, then it is text",
             (c["content"], "tool_calls" in c), (text, False))
        again = user("hello") + [
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "x", "type": "function", "function":
                 {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "x", "content": "2"}]
        same(name + ": a turn with a call goes on",
             s.post(CHAT, **(body | {"messages": again}))[0], 200)
        response_calls(s, name)
        s.stop()
    s = Server(model=taught("think", "Hm.</think>Yes", TEMPLATE))
    body = dict(messages=user("hello"), max_tokens=1,
                logit_bias={"511": 100},
                chat_template_kwargs={"thinking": True})
    _, k = s.post(CHAT, **body)
    c = k["choices"][0]["message"]
    same("reasoning that the prompt began",
         (c.get("reasoning_content"), c["content"]), ("Hm.", "Yes"))
    deltas = [c["delta"] for k in s.stream(CHAT, **body)
              for c in k["choices"]]
    same("in a stream",
         ("".join(d.get("reasoning_content", "") for d in deltas),
          "".join(d.get("content", "") for d in deltas)), ("Hm.", "Yes"))
    _, k = s.post(CHAT, **(body | {"chat_template_kwargs": {}}))
    same("none was begun: all is content",
         k["choices"][0]["message"]["content"], "Hm.</think>Yes")
    s.stop()


# ---- structured output, where llguidance is ----

# PyPI's jsonschema where it is, else what is needed of one.
def matches(schema, v):
    if jsonschema:
        return jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.FormatChecker()).is_valid(v)
    kind = {"object": dict, "array": list, "string": str, "integer": int,
            "boolean": bool, "number": (int, float), "null": type(None)}
    if "enum" in schema:
        return v in schema["enum"]
    if "anyOf" in schema:
        return any(matches(s, v) for s in schema["anyOf"])
    if not isinstance(v, kind[schema["type"]]) or (
            isinstance(v, bool) and schema["type"] != "boolean"):
        return False
    if schema["type"] == "object":
        return set(schema["required"]) <= set(v) <= set(
            schema["properties"]) and all(
                matches(schema["properties"][k], x) for k, x in v.items())
    if schema["type"] == "array":
        return len(v) <= schema["maxItems"] and all(
            matches(schema["items"], x) for x in v)
    if schema["type"] == "string":
        return len(v) <= schema["maxLength"]
    if schema["type"] == "integer":
        return schema["minimum"] <= v <= schema["maximum"]
    return True


def a_schema(r, depth=0):
    kinds = ["string", "integer", "boolean", "null", "enum", "any"]
    if jsonschema:
        kinds += ["pattern", "date", "number", "const", "tuple"]
    kind = r.choice(kinds + ["object", "array"] * (2 - depth))
    if kind == "object":
        p = {"k%d" % i: a_schema(r, depth + 1) for i in range(r.randint(1, 3))}
        return {"type": "object", "properties": p, "required":
                [k for k in p if r.random() < 0.7],
                "additionalProperties": False}
    if kind == "array":
        return {"type": "array", "items": a_schema(r, depth + 1),
                "maxItems": r.randint(1, 3)}
    if kind == "string":
        return {"type": "string", "maxLength": r.randint(1, 8)}
    if kind == "integer":
        lo = r.randint(-50, 50)
        return {"type": "integer", "minimum": lo,
                "maximum": lo + r.randint(0, 100)}
    if kind == "enum":
        return {"enum": r.sample(["a", "b\"", 1, None, True, "\u00fc"], 3)}
    if kind == "pattern":
        return {"type": "string", "pattern": "^[a-f]{1,4}(-[0-9]{2})?$"}
    if kind == "date":
        return {"type": "string", "format": "date"}
    if kind == "number":
        return {"type": "number", "minimum": -2.5, "exclusiveMaximum": 7}
    if kind == "const":
        return {"const": {"x": [1, "y", None]}}
    if kind == "tuple":
        return {"type": "array", "prefixItems": [a_schema(r, 2)],
                "items": False, "minItems": 1}
    if kind == "any":
        return {"anyOf": [a_schema(r, 2), a_schema(r, 2)]}
    return {"type": kind}


def structured():
    so = os.environ.get("GENAI_LLGUIDANCE") or ""
    if not so:
        spec = importlib.util.find_spec("llguidance")
        so = spec and os.path.join(os.path.dirname(spec.origin),
                                   "_lib.abi3.so")
    if not so or not os.path.exists(so):
        print("# no llguidance here")
        return
    os.environ["GENAI_LLGUIDANCE"] = so
    s = Server("--max-body", "1000000")
    r = random.Random(1)
    wrong, ended = [], 0
    tight = {"x-guidance": {"whitespace_flexible": False}}
    for i in range(150):
        schema = a_schema(r)
        _, k = s.post(TEXT, prompt="value: ", max_tokens=300, seed=i,
                      temperature=1.5, response_format={
                          "type": "json_schema", "json_schema": {
                              "name": "x", "schema": schema | tight}})
        c = k.get("choices", [{}])[0]
        if c.get("finish_reason") != "stop":
            wrong.append((schema, k))
            continue
        ended += 1
        try:
            if not matches(schema, json.loads(c["text"])):
                wrong.append((schema, c["text"]))
        except ValueError:
            wrong.append((schema, c["text"]))
    same("150 schemas, drawn at temperature 1.5: each answer is one of its "
         "schema" + ", says jsonschema" * bool(jsonschema), (wrong[:3], ended), ([], 150))
    for kind, data, pattern in [
        ("regex", "[0-9]{3}-[a-f]{2}", "[0-9]{3}-[a-f]{2}"),
        ("grammar", 'start: "(" NUM ("," NUM)? ")"\nNUM: /[0-9]+/',
         r"\([0-9]+(,[0-9]+)?\)"),
        ("choice", ["yes", 'no "way"'], 'yes|no "way"'),
    ]:
        texts = [c["text"] for c in s.post(
            TEXT, prompt="a", max_tokens=100, n=8, temperature=1.5, seed=1,
            structured_outputs={kind: data})[1]["choices"]]
        check("structured_outputs." + kind,
              all(re.fullmatch(pattern, t) for t in texts), texts)
        chunks = s.stream(TEXT, prompt="a", max_tokens=100, n=8, seed=1,
                          temperature=1.5, structured_outputs={kind: data})
        same("in a stream", [joined(chunks, i) for i in range(8)], texts)
    _, k = s.post(CHAT, messages=user("a"), max_tokens=200, temperature=1,
                  seed=2, response_format={"type": "json_object"})
    check("json_object begins one", k["choices"][0]["message"]["content"]
          .lstrip().startswith("{"), k)
    flag = dict(prompt="a", max_tokens=100, seed=5, temperature=1.5)
    _, k = s.post(TEXT, structured_outputs={"regex": "[a-f]{4}"}, **flag)
    same("the command line's --regex", cli(
        "--prompt", "a", "-n", "100", "--seed", "5", "--temperature", "1.5",
        "--regex", "[a-f]{4}")["text"], k["choices"][0]["text"])
    schema = {"enum": [12, "x"]}
    with open("schema.json", "w") as f:
        json.dump(schema, f)
    check("--json-schema", json.loads(cli(
        "--prompt", "a", "--json-schema", "schema.json")["text"])
        in schema["enum"])
    with open("g.lark", "w") as f:
        f.write('start: "one" | "two"')
    check("--grammar", cli("--prompt", "a", "--grammar", "g.lark")["text"]
          in ("one", "two"))
    for what, format, text in [
        ("a regular expression that is none", {"regex": "(["}, "regex"),
        ("a grammar that is none", {"grammar": "start: x"}, "x"),
        ("a schema that is none", {"json": {"type": "thing"}}, "thing"),
        ("a keyword that cannot be done",
         {"json": {"unevaluatedProperties": False}}, "unevaluatedProperties"),
        ("one that nothing matches",
         {"json": {"allOf": [{"const": 1}, {"const": 2}]}}, "nsatisf"),
        ("one that is itself", {"json": {"$ref": "#"}}, "no text matches"),
        ("two that are each other", {"json": {"$defs": {
            "a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "$ref": "#/$defs/a"}}, "no text matches"),
        ("one that is very large", {"json": {"enum": list(range(20000))}},
         "more than the 65536"),
        ("one that explodes", {"json": {"allOf": [
            {"anyOf": [{"type": "string", "minLength": i * 10 + j}
                       for i in range(10)]} for j in range(10)]}}, "large"),
        ("a reference that is not there",
         {"json": {"$ref": "#/$defs/x"}}, "x"),
    ]:
        status, k = s.post(TEXT, prompt="a", structured_outputs=format)
        check(what + ": 400", status == 400 and text in k["error"]["message"],
              status, k)
    began = time.time()
    status, _ = s.post(TEXT, prompt="a", structured_outputs={
        "regex": "(" * 60 + "a" + "{50})" * 60})
    check("50 to the 60th repeats: an answer, soon",
          status in (200, 400) and time.time() - began < 20, status)
    # ids that end a text are no part of one, though they spell something
    shutil.copytree(MODEL, "ends", copy_function=shutil.copyfile)
    with open("ends/genai_config.json") as f:
        j = json.load(f)
    j["model"]["eos_token_id"] = [0] + list(range(300, 360))
    with open("ends/genai_config.json", "w") as f:
        json.dump(j, f)
    e = Server(model="ends")
    texts = [c["text"] for c in e.post(
        TEXT, prompt="a", max_tokens=100, n=32, temperature=1.5, seed=1,
        structured_outputs={"regex": "(the|quick|brown|fox ){12}"})[1][
            "choices"]]
    check("many ends of a text", all(re.fullmatch(
        "(the|quick|brown|fox ){12}", t) for t in texts), texts)
    e.stop()
    for wrap in '{"type":"array","items":%s}', '{"anyOf":[%s]}', \
            '{"allOf":[%s]}':
        a, b = wrap.split("%s")
        n = 600
        status = s.ask("POST", TEXT, '{"prompt":"a","max_tokens":4,'
                       '"structured_outputs":{"json":%s}}' % (
                           a * n + '{"type":"null"}' + b * n))[0]
        check("a schema %d deep: an answer" % n, status in (200, 400), status)
    same("ignore_eos does not go with it", s.post(
        TEXT, prompt="a", ignore_eos=True,
        structured_outputs={"regex": "a"})[0], 400)
    same("the server goes on", s.get("/health"), '{"status":"ok"}')
    same("it ends with 0", s.stop(), (0, ""))
    tools = [{"type": "function", "function": {
        "name": n, "parameters": p | tight}} for n, p in [
            ("f", {"type": "object", "properties":
                   {"a": {"enum": [1, 2]}}, "required": ["a"],
                   "additionalProperties": False}),
            ("g", {"type": "object", "properties":
                   {"b": {"type": "boolean"}}, "required": ["b"],
                   "additionalProperties": False})]]
    for form in "hermes", "coder", "llama", "mistral", "python":
        s = Server(model=form)
        refs = {"type": "object", "$defs": {"t": {"enum": ["#/$defs/t"]}},
                "properties": {"c": {"$ref": "#/$defs/t"}}, "required": ["c"],
                "additionalProperties": False}
        m = s.post(CHAT, messages=user("a"), max_tokens=150, tools=[
            {"type": "function", "function": {"name": "h", "parameters":
                                              refs | tight}}], tool_choice={
            "type": "function", "function": {"name": "h"}})[1]
        m = m.get("choices", [{"message": {}}])[0]["message"]
        args = [json.loads(c["function"]["arguments"])
                for c in m.get("tool_calls", [])]
        check(form + ": references of its schema",
              args == [{"c": "#/$defs/t"}], m)
        for choice, names in [
                ("required", "fg"),
                ({"type": "function", "function": {"name": "g"}}, "g")]:
            made = [c["message"].get("tool_calls") or [] for c in s.post(
                CHAT, messages=user("a"), max_tokens=150, n=6, seed=4,
                temperature=1.5, tools=tools, tool_choice=choice)[1].get(
                    "choices", [{"message": {}}])]
            args = [json.loads(m[0]["function"]["arguments"])
                    if len(m) == 1 else None for m in made]
            check("%s: a call is forced, of %s" % (form, names), all(
                m and m[0]["function"]["name"] in names and
                x in ([{"a": 1}, {"a": 2}]
                      if m[0]["function"]["name"] == "f" else
                      [{"b": True}, {"b": False}])
                for m, x in zip(made, args)), made)
        status, k = s.post(CHAT, messages=user("a"), tools=tools, tool_choice={
            "type": "function", "function": {"name": "h"}})
        check(form + ": of a tool that is not there",
              status == 400 and "h" in k["error"]["message"], k)
        s.stop()
    for what, f in [("no shared object", "/dev/null"), ("no file", "/none")]:
        os.environ["GENAI_LLGUIDANCE"] = f
        p = subprocess.run([GENAI, "generate", MODEL, "-p", "a", "--regex",
                            "a"], capture_output=True, text=True)
        check("llguidance: " + what, p.returncode != 0 and
              f in p.stderr and p.stderr.count("\n") == 1, p.stderr)


# ---- what it refuses ----

def refusals(s):
    long = [5] * 600
    deep = "[" * 10000
    for what, path, body, status, code, text in [
        ("no JSON", TEXT, "{", 400, "invalid_json", "line 1"),
        ("no object", TEXT, "[1]", 400, "invalid_json", "no JSON object"),
        ("nothing", TEXT, "", 400, "invalid_json", "no body"),
        ("not UTF-8", TEXT, b'{"prompt":"\xff"}', 400, "invalid_json", "0xff"),
        ("too deep", TEXT, deep, 400, "invalid_json", "depth"),
        ("a key twice", TEXT, '{"n":1,"n":2}', 400, "invalid_json", "n"),
        ("no prompt", TEXT, {}, 400, "invalid_value", "prompt"),
        ("an empty one", TEXT, {"prompt": ""}, 400, "invalid_value", "empty"),
        ("prompt: a number", TEXT, {"prompt": 1}, 400, "invalid_type",
         "prompt"),
        ("prompt: no id", TEXT, {"prompt": [1, 512]}, 400, "invalid_value",
         "item 1 is no id below 512"),
        ("prompt: mixed", TEXT, {"prompt": [1, "a"]}, 400, "invalid_value",
         "item 1"),
        ("too many choices", TEXT, {"prompt": ["a"] * 9, "n": 16}, 400,
         "invalid_value", "128"),
        ("over the context", TEXT, {"prompt": long}, 400,
         "context_length_exceeded", "600"),
        ("chat over it", CHAT, {"messages": user("a b c d e f g " * 300)}, 400,
         "context_length_exceeded", "512"),
        ("no such model", TEXT, {"model": "gpt", "prompt": "a"}, 404,
         "model_not_found", "gpt"),
        ("model: a number", TEXT, {"model": 1, "prompt": "a"}, 400,
         "invalid_type", "model"),
        ("a mistyped key", TEXT, {"prompt": "a", "temprature": 1}, 400,
         "unsupported_parameter", "did you mean temperature"),
        ("no hidden states", CHAT, {"messages": user("a"),
                                    "return_hidden_states": True}, 400,
         "unsupported_value", "only false"),
        ("reasoning as text", CHAT, {"messages": user("a"),
                                     "separate_reasoning": 0}, 400,
         "unsupported_value", "only true"),
        ("one of chats", TEXT, {"prompt": "a", "tools": []}, 400,
         "unsupported_parameter", "tools"),
        ("temperature: text", TEXT, {"prompt": "a", "temperature": "1"}, 400,
         "invalid_type", "temperature"),
        ("temperature: range", TEXT, {"prompt": "a", "temperature": -1}, 400,
         "invalid_value", "-1 is not from 0 to 100"),
        ("top_p: range", TEXT, {"prompt": "a", "top_p": 1.5}, 400,
         "invalid_value", "top_p"),
        ("n: range", TEXT, {"prompt": "a", "n": 0}, 400, "invalid_value",
         "n: 0"),
        ("n: a fraction", TEXT, {"prompt": "a", "n": 1.5}, 400,
         "invalid_type", "whole"),
        ("n: true", TEXT, {"prompt": "a", "n": True}, 400, "invalid_type",
         "whole"),
        ("a number too large", TEXT, '{"prompt":"a","seed":1e999}', 400,
         "invalid_json", "real number overflow"),
        ("max_tokens: 0", TEXT, {"prompt": "a", "max_tokens": 0}, 400,
         "invalid_value", "max_tokens"),
        ("two maxima", CHAT, {"messages": user("a"), "max_tokens": 1,
                              "max_completion_tokens": 2}, 400,
         "invalid_value", "differ"),
        ("best_of", TEXT, {"prompt": "a", "best_of": 2}, 400,
         "unsupported_parameter", "best_of"),
        ("suffix", TEXT, {"prompt": "a", "suffix": "b"}, 400,
         "unsupported_parameter", "suffix"),
        ("too many stops", TEXT, {"prompt": "a", "stop": ["x"] * 17}, 400,
         "invalid_value", "16"),
        ("an empty stop", TEXT, {"prompt": "a", "stop": [""]}, 400,
         "invalid_value", "none empty"),
        ("logit_bias: no id", TEXT, {"prompt": "a", "logit_bias": {"x": 1}},
         400, "invalid_value", "'x' is no id"),
        ("logit_bias: beyond", TEXT,
         {"prompt": "a", "logit_bias": {"512": 1}}, 400, "invalid_value",
         "512"),
        ("logit_bias: range", TEXT, {"prompt": "a", "logit_bias": {"1": 101}},
         400, "invalid_value", "100"),
        ("logprobs: range", TEXT, {"prompt": "a", "logprobs": 21}, 400,
         "invalid_value", "20"),
        ("stream_options alone", TEXT,
         {"prompt": "a", "stream_options": {}}, 400, "invalid_value",
         "stream"),
        ("top_logprobs alone", CHAT,
         {"messages": user("a"), "top_logprobs": 2}, 400, "invalid_value",
         "logprobs must be true"),
        ("no messages", CHAT, {"messages": []}, 400, "invalid_type",
         "messages"),
        ("no role", CHAT, {"messages": [{"content": "a"}]}, 400,
         "invalid_type", "messages[0]"),
        ("no content", CHAT, {"messages": [{"role": "user"}]}, 400,
         "invalid_type", "messages[0].content"),
        ("an image", CHAT, {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "x"}}]}]}, 400,
         "unsupported_value", "image_url"),
        ("a call that is forced in no known form", CHAT,
         {"messages": user("a"), "tools": [], "tool_choice": "required"}, 400,
         "unsupported_value", "tool_choice"),
        ("another choice", CHAT,
         {"messages": user("a"), "tools": [], "tool_choice": "any"}, 400,
         "unsupported_value", "tool_choice"),
        ("structured output", CHAT, {"messages": user("a"), "response_format":
                                     {"type": "json_object"}}, 400,
         "unsupported_parameter", "not installed: tools/install-llguidance"),
        ("no such format", CHAT, {"messages": user("a"), "response_format":
                                  {"type": "xml"}}, 400,
         "unsupported_value", "xml"),
        ("a format without a schema", CHAT, {
            "messages": user("a"), "response_format":
            {"type": "json_schema", "json_schema": {}}}, 400, "invalid_type",
         "schema"),
        ("no such structure", TEXT, {
            "prompt": "a", "structured_outputs": {"ebnf": "x"}}, 400,
         "unsupported_value", "ebnf"),
        ("two structures", TEXT, {
            "prompt": "a", "structured_outputs": {"regex": "x",
                                                  "grammar": "y"}}, 400,
         "invalid_value", "two things"),
        ("no body", TEXT, b"", 400, "invalid_json", "no body"),
        ("a key twice", TEXT, b'{"prompt": "a", "prompt": "b"}', 400,
         "invalid_json", "prompt"),
        ("a zero byte in a text", TEXT, {"prompt": "a\0b"}, 400,
         "invalid_json", "u0000"),
        ("half a character", TEXT, b'{"prompt": "\\ud800"}', 400,
         "invalid_json", "D800"),
        ("5000 arrays deep", TEXT, b'{"prompt": ' + b"[" * 5000 + b"]" * 5000
         + b"}", 400, "invalid_json", "depth"),
        ("500 deep", TEXT, b'{"prompt": ' + b"[" * 500 + b"]" * 500 + b"}",
         400, "invalid_value", "prompt"),
        ("two objects", TEXT, b'{"prompt": "a"}{}', 400, "invalid_json",
         "end of file"),
        ("no number", TEXT, b'{"prompt": "a", "temperature": 1e999}', 400,
         "invalid_json", "1e999"),
        ("a seed beyond 64 bits", TEXT,
         b'{"prompt": "a", "seed": 9223372036854775808}', 400, "invalid_json",
         "too big"),
        ("half a seed", TEXT, {"prompt": "a", "seed": 1.5}, 400,
         "invalid_type", "seed"),
        ("less than nothing", TEXT, {"prompt": "a", "max_tokens": -1}, 400,
         "invalid_value", "max_tokens"),
        ("more at least than at most", TEXT,
         {"prompt": "a", "min_tokens": 5, "max_tokens": 2}, 400,
         "invalid_value", "min_tokens: 5"),
        ("empty stops", TEXT, {"prompt": "a", "stop": ["", ""]}, 400,
         "invalid_value", "stop"),
        ("a stop that is no id", TEXT,
         {"prompt": "a", "stop_token_ids": [1, 512]}, 400, "invalid_value",
         "item 1 is no id below 512"),
        ("too many log probabilities", TEXT, {"prompt": "a", "logprobs": 21},
         400, "invalid_value", "0 to 20"),
        ("as a flag", TEXT, {"prompt": "a", "logprobs": True}, 400,
         "invalid_type", "logprobs"),
        ("a bias of +1", TEXT, {"prompt": "a", "logit_bias": {"+1": 1}}, 400,
         "invalid_value", "'+1' is no id"),
        ("tools that are a text", CHAT, {"messages": user("a"), "tools": "x"},
         400, "invalid_type", "an array"),
        ("a tool that is a number", CHAT, {"messages": user("a"),
                                           "tools": [1]},
         400, "invalid_type", "tools[0].function.name"),
        ("a tool that is no function", CHAT,
         {"messages": user("a"), "tools": [{"type": "web_search"}]}, 400,
         "unsupported_value", "web_search"),
        ("a schema that is none", CHAT,
         {"messages": user("a"), "tools": [
             {"type": "function", "function": {"name": "f",
                                               "parameters": "x"}}]}, 400,
         "invalid_type", "tools[0].function.parameters"),
        ("calls without a name", CHAT,
         {"messages": [{"role": "assistant", "tool_calls": [1]}]}, 400,
         "invalid_type", "messages[0].tool_calls[0]"),
        ("detokenize: no ids", "/detokenize", {"tokens": "a"}, 400,
         "invalid_type", "tokens"),
        ("tokenize: no text", "/tokenize", {"prompt": 1}, 400, "invalid_type",
         "prompt"),
    ]:
        got, _, b = s.ask("POST", path, body)
        e = json.loads(b).get("error", {})
        check("%s: %d" % (what, status), got == status and
              e.get("code") == code and text in e.get("message", "") and
              set(e) == {"message", "type", "param", "code"}, got, b)
    got, _, b = s.ask("POST", TEXT, '{"prompt":"a"}',
                      {"Content-Type": "text/plain"})
    same("another content type: 415", (got, json.loads(b)["error"]["code"]),
         (415, "unsupported_media_type"))
    same("another method: 405", s.ask("GET", TEXT)[0], 405)
    same("another path: 404", s.ask("GET", "/v2")[0], 404)
    status, _, b = s.ask("POST", TEXT, '{"prompt":"%s"}' % ("a" * 70000))
    check("a large body: 413", is_refused([(status, b)], 413, "too_large"), b)
    same("null is as if it were not there",
         s.ask("POST", TEXT, {"prompt": "a", "stop": None, "seed": None,
                              "xyz": None, "max_tokens": None})[0], 200)
    for what, bytes in [
        ("garbage", b"\x00\x01\xff\r\n\r\n"),
        ("no version", b"GET /\r\n\r\n"),
        ("a negative length", b"POST /v1/completions HTTP/1.1\r\n"
         b"Content-Length: -5\r\n\r\n"),
        ("a wrong chunk", b"POST /v1/completions HTTP/1.1\r\n"
         b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ("a header without end", b"GET / HTTP/1.1\r\nA: " + b"a" * 100000),
    ]:
        k = s.raw()
        k.sendall(bytes)
        k.shutdown(socket.SHUT_WR)
        got = answers_of(k)
        k.close()
        check("%s: an error in JSON, or an end" % what, not got or
              is_refused(got, 400, "invalid_http") or
              is_refused(got, 413, "too_large"), got)
    k = s.raw()
    k.sendall(b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n")
    check("an unknown method: 501 in JSON",
          is_refused(answers_of(k), 501, "method_not_allowed"))
    k.close()
    k = s.raw()
    k.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: "
              b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
              % TEXT.encode() + (b"1000\r\n" + b"a" * 4096 + b"\r\n") * 20)
    check("large in chunks: 413 in JSON",
          is_refused(answers_of(k), 413, "too_large"))
    k.close()
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    top = (b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
           b"\r\n" % TEXT.encode())
    length = b"Content-Length: %d\r\n" % len(body)
    for what, bytes, status, code in [
        ("two lengths", top + length + b"Content-Length: 5\r\n\r\n" + body,
         400, "invalid_http"),
        ("a length and chunks", top + length + b"Transfer-Encoding: chunked"
         b"\r\n\r\n0\r\n\r\n", 400, "invalid_http"),
        ("a coding that is not known", top + length +
         b"Transfer-Encoding: gzip\r\n\r\n" + body, 400, "invalid_http"),
        ("an expectation that is not known", top + length +
         b"Expect: 200-ok\r\n\r\n" + body, 417, "invalid_http"),
        ("a body that would be too large, before it is sent", top +
         b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n", 413,
         "too_large"),
        ("a head that is too large", b"GET / HTTP/1.1\r\nA: " + b"a" * 70000 +
         b"\r\n\r\n", 400, "invalid_http"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400,
         "invalid_http"),
        ("HTTP/0.1", b"GET /health HTTP/0.1\r\n\r\n", 505, "http_version"),
        ("HTTP/1.-11", b"GET /health HTTP/1.-11\r\n\r\n", 505,
         "http_version"),
        ("a method and a version that are none",
         b"GE# / HTTP/55555555555555551.1\r\n\r\n", 501,
         "method_not_allowed"),
    ]:
        k = s.raw()
        k.sendall(bytes)
        got = answers_of(k)
        check("%s: %d" % (what, status), is_refused(got, status, code), got)
        k.close()
    k = s.raw()
    k.sendall(head("/v2", {}) + b"no HTTP\r\n\r\n")
    got = answers_of(k)
    check("what follows an answer and is no HTTP: JSON, too", len(got) == 2 and
          got[0][0] == 404 and is_refused(got[1:], 400, "invalid_http"), got)
    k.close()
    k = s.raw()
    k.sendall((top + length + b"\r\n" + body) * 2 + top + length +
              b"Connection: close\r\n\r\n" + body)
    got = answers_of(k)
    same("three requests at once: three answers, in order",
         [(a, json.loads(b)["choices"][0]["finish_reason"]) for a, b in got],
         [(200, "length")] * 3)
    k.close()
    k = s.raw()
    k.sendall(top + length + b"Expect: 100-continue\r\n\r\n")
    same("100-continue: it may come", k.recv(4096),
         b"HTTP/1.1 100 Continue\r\n\r\n")
    k.sendall(body)
    check("and is answered", k.recv(4096).startswith(b"HTTP/1.1 200 "))
    k.close()
    k = s.raw()
    k.sendall(top + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(
        b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n")
    check("a body in chunks of a byte", k.recv(4096).startswith(
        b"HTTP/1.1 200 "))
    k.close()
    status, h, b = s.ask("HEAD", "/health")
    same("HEAD: as GET, without what it would bring",
         (status, h["Content-Length"], b), (200, "15", b""))
    for method in "OPTIONS", "PUT", "DELETE":
        status, h, b = s.ask(method, TEXT)
        check(method + ": 405, and what there is", h["Allow"] == "POST" and
              is_refused([(status, b)], 405, "method_not_allowed") and
              not h["Access-Control-Allow-Origin"], status, h, b)
    same("of a path that is read", s.ask("POST", "/health", {})[1]["Allow"],
         "GET, HEAD")
    k = s.raw()
    k.sendall(b"GET /\xff\xc3 HTTP/1.1\r\n\r\n")
    check("a path that is not UTF-8: 404", b" 404 " in k.recv(4096))
    k.close()
    message = head(TEXT, {"prompt": "a", "max_tokens": 1})
    r = random.Random(3)
    for _ in range(400):
        b = bytearray(message)
        for _ in range(r.randint(1, 6)):
            i = r.randrange(len(b))
            b[i:i + r.randint(0, 3)] = r.choices(
                b"\r\n :/0159\x00\xffAz%\"{", k=r.randint(0, 3))
        k = s.raw()
        k.settimeout(0.01)
        try:
            k.sendall(b)
            k.recv(4096)
        except OSError:
            pass
        k.close()
    same("and after 400 requests that were bent, the server goes on",
         s.get("/health"), '{"status":"ok"}')


# ---- clients that misbehave ----

def vanish(s):
    same("one connection is open", s.metric("genai_connections"), 1)
    files = len(os.listdir("/proc/%d/fd" % s.p.pid))
    busy = dict(prompt="hello", max_tokens=480, ignore_eos=True, n=16)
    k = s.raw()
    k.sendall(head(TEXT, busy | {"stream": True}))
    k.recv(100)
    k.close()
    check("a client that leaves in mid-stream frees its rows", s.idle())
    k = s.raw()
    k.sendall(head(TEXT, busy))
    wait(lambda: s.metric("genai_sequences_running"))
    k.close()
    check("one that waits for the whole answer, too", s.idle())
    ks = [s.raw() for _ in range(6)]
    for k in ks:
        k.sendall(head(TEXT, busy))
    wait(lambda: s.metric("genai_sequences_waiting"))
    for k in reversed(ks):
        k.close()
    check("and those that were queued", s.idle())
    k = s.raw()
    k.sendall(head(TEXT, busy)[:-5])
    k.close()
    made = s.metric("genai_new_tokens_total")
    k = s.raw()
    k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    k.sendall(head(CHAT, dict(messages=user("a"), n=32, stream=True,
                              ignore_eos=True, logprobs=True,
                              top_logprobs=20)))
    wait(lambda: s.metric("genai_new_tokens_total") > made)
    check("one that never reads is dropped", s.idle(60))
    k.close()
    wait(lambda: s.metric("genai_connections") == 1)
    same("no connection is left", s.metric("genai_connections"), 1)
    check("and no descriptor",
          len(os.listdir("/proc/%d/fd" % s.p.pid)) <= files)
    same("the server goes on", s.get("/health"), '{"status":"ok"}')


# A byte at a time until the server has enough of it.
def drip(s, first, rest):
    k = s.raw()
    k.sendall(first)
    k.settimeout(0.1)
    began = time.time()
    try:
        while time.time() < began + 20:
            k.send(rest)
            try:
                if not k.recv(1, socket.MSG_PEEK):
                    break
                k.settimeout(20)
                return time.time() - began, answers_of(k)
            except TimeoutError:
                pass
    except ConnectionError:
        pass
    finally:
        k.close()
    return time.time() - began, []


def slow():
    s = Server("--idle-timeout", "1", "--max-connections", "4")
    for what, first, rest in [
            ("a head", b"GET /health HTTP/1.1\r\nX-A: ", b"a"),
            ("a body", head(TEXT, {"prompt": "a" * 1000})[:-900], b"a")]:
        took, got = drip(s, first, rest)
        check(what + " a byte at a time: 408, soon", took < 8 and
              is_refused(got, 408, "request_timeout"), took, got)
    k = s.raw()
    same("one that says nothing is closed without a word", answers_of(k), [])
    k.close()
    ks = [s.raw() for _ in range(4)]
    wait(lambda: s.ask("GET", "/v1/models")[0] == 503)
    status, h, b = s.ask("GET", "/v1/models")
    check("one connection more than allowed: 503",
          is_refused([(status, b)], 503, "too_many_connections") and
          (h["Retry-After"], h["Connection"]) == ("1", "close"), status, b)
    same("but for /health", s.ask("GET", "/health")[0], 200)
    wait(lambda: s.ask("GET", "/v1/models")[0] == 200)
    same("and when those that idle are closed it is served",
         s.ask("GET", "/v1/models")[0], 200)
    for k in ks:
        k.close()
    same("it ends with 0", s.stop(), (0, ""))


# ---- crowds ----

def crowd():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    n = min(10000, hard - 400)
    long = dict(prompt="hello", max_tokens=480, ignore_eos=True, n=16,
                stream=True)
    s = Server("--max-connections", str(n + 8), "--idle-timeout", "600")
    begun = s.raw()
    begun.sendall(head(TEXT, long))
    ks = [s.raw() for _ in range(n)]
    wait(lambda: s.metric("genai_connections") == n + 2)
    same("%d connections at once" % n, s.metric("genai_connections"), n + 2)
    same("and a request", s.post(TEXT, prompt="a", max_tokens=2)[0], 200)
    for k in ks[::50]:
        k.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close"
                  b"\r\n\r\n")
    same("each of them may ask", {a for k in ks[::50] for a in answers_of(k)},
         {(200, b'{"status":"ok"}')})
    got = b""
    while not got.endswith(b"0\r\n\r\n"):
        got += begun.recv(1 << 20)
    same("what was begun before goes on to its end",
         got.count(b'"finish_reason":"length"'), 16)
    for k in ks + [begun]:
        k.close()
    wait(lambda: s.metric("genai_connections") == 1)
    same("and none is left", s.metric("genai_connections"), 1)
    same("it ends with 0", s.stop(), (0, ""))

    s = Server("--max-connections", "100", "--idle-timeout", "600")
    begun = s.raw()
    begun.sendall(head(TEXT, long))
    ks = [s.raw() for _ in range(99)]
    wait(lambda: s.ask("GET", "/v1/models")[0] == 503)
    found = []

    def ask(times):
        for _ in range(times):
            k = s.raw()
            k.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            found.append(is_refused(answers_of(k), 503,
                                    "too_many_connections"))
            k.close()

    threads = [threading.Thread(target=ask, args=(n // 16,))
               for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same("%d connections over the most: each a 503" % len(found),
         (len(found), set(found)), (n // 16 * 16, {True}))
    got = b""
    while not got.endswith(b"0\r\n\r\n"):
        got += begun.recv(1 << 20)
    same("which those that are served do not feel",
         got.count(b'"finish_reason":"length"'), 16)
    silent = [s.raw() for _ in range(400)]
    check("those that say nothing are told, too", all(
        is_refused(answers_of(k), 503, "too_many_connections")
        for k in silent))
    for k in ks + silent + [begun]:
        k.close()
    wait(lambda: s.ask("GET", "/v1/models")[0] == 200)
    same("with room there is service", s.ask("GET", "/v1/models")[0], 200)
    same("it ends with 0", s.stop(), (0, ""))

    s = Server("--max-connections", "1000", files=64)
    check("few files: it says how many connections that is",
          "ulimit -n" in s.warning and ", not 1000:" in s.warning, s.warning)
    ks = [s.raw() for _ in range(60)]
    time.sleep(0.3)

    def used():
        with open("/proc/%d/stat" % s.p.pid) as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    before = used()
    time.sleep(1)
    check("full of them it waits, and does not turn",
          used() - before < 0.3 * os.sysconf("SC_CLK_TCK"), used() - before)
    for k in ks:
        k.close()
    wait(lambda: s.ask("GET", "/v1/models")[0] == 200)
    same("and serves when they have left", s.ask("GET", "/v1/models")[0], 200)
    same("it ends with 0", s.stop(), (0, ""))


# ---- the device ----

# Streams and whole answers that are under way when it fails.
def beside(s):
    ks = []
    for stream in True, True, False:
        ks.append(s.raw())
        ks[-1].sendall(head(TEXT, dict(prompt="hello world", n=3, stream=stream,
                                       max_tokens=400, ignore_eos=True))
                       .replace(b"Host: x", b"Host: x\r\nConnection: close"))
    got = []
    for k in ks:
        b = b""
        while True:
            more = k.recv(1 << 16)
            if not more:
                break
            b += more
        got.append(b)
        k.close()
    return got


def device():
    fault = ["--set", "module.cpu_ref.fault="]
    want = cli("--prompt", "hello world", "-n", "400", "--ignore-eos")["text"]
    s = Server(*fault[:1], fault[1] + "copy:300")
    got = beside(s)
    text = json.loads(got[2].split(b"\r\n\r\n", 1)[1])["choices"]
    same("a copy that fails: the text is the command line's",
         [c["text"] for c in text], [want] * 3)
    same("no stream feels it", [g.count(b'"error"') for g in got], [0] * 3)
    same("it was one", s.metric("genai_device_errors_total"), 1)
    same("and all is well", s.get("/health"), '{"status":"ok"}')
    status, err = s.stop()
    same("it ends with 0", status, 0)
    for what in "stay", "exit":
        s = Server(*fault[:1], fault[1] + "lost:6000", "--device-lost", what)
        got = beside(s)
        same(what + ": the device is lost: a stream that was begun gets one "
             "error, and its end",
             [(g.count(b'"error":'), g.count(b"data: [DONE]"),
               b'"code":"device_lost"' in g, g.startswith(b"HTTP/1.1 200"))
              for g in got[:2]], [(1, 1, True, True)] * 2)
        status, body = got[2].split(b"\r\n\r\n", 1)
        check(what + ": an answer that was not, 503", is_refused(
            [(int(status.split()[1]), body)], 503, "device_lost"), got[2])
        if what == "stay":
            for path in TEXT, CHAT:
                status, _, b = s.ask("POST", path, {
                    "prompt": "a"} if path == TEXT else
                    {"messages": user("a")})
                check("stay: what comes after, too: " + path, is_refused(
                    [(status, b)], 503, "device_lost"), status, b)
            same("stay: /health says it", s.ask("GET", "/health")[::2],
                 (503, b'{"status":"device lost"}'))
            same("stay: what needs no device is served",
                 s.ask("GET", "/v1/models")[0], 200)
        try:
            status, err = s.p.wait(20 if what == "exit" else 0.2), ""
            err = s.p.stderr.read()
        except subprocess.TimeoutExpired:
            status, err = s.stop()
        check(what + ": how it ends", status == (1 if what == "exit" else 0)
              and err.count("lost") == (2 if what == "exit" else 1), status,
              err)
    r = subprocess.run([GENAI, "serve", MODEL, "--device-lost", "hope"],
                       capture_output=True, text=True)
    check("neither stay nor exit", r.returncode == 2 and
          "hope is neither stay nor exit" in r.stderr, r)


def queue():
    s = Server("--queue", "2", "--sequences", "1")
    body = head(TEXT, dict(prompt="hello", max_tokens=400, n=8,
                           ignore_eos=True))
    ks = [s.raw() for _ in range(2)]
    for k in ks:
        k.sendall(body)
    wait(lambda: s.metric("genai_sequences_waiting") >= 8)
    status, h, b = s.ask("POST", TEXT, {"prompt": "a"})
    same("a full queue: 429", (status, h["Retry-After"],
                               json.loads(b)["error"]["code"]),
         (429, "1", "queue_full"))
    for k in ks:
        k.close()
    check("which empties", s.idle())
    same("and takes again", s.ask("POST", TEXT, {"prompt": "a"})[0], 200)
    s.stop()
    s = Server("--timeout", "1", "--sequences", "1")
    status, b = s.post(TEXT, prompt="hello", max_tokens=500, n=128,
                       ignore_eos=True)
    same("what takes too long: 504", (status, b["error"]["code"])
         if status != 200 else status, (504, "timeout"))
    s.stop()


def keys():
    with open("keys", "w") as f:
        f.write("# two\nsecret-one\n\nsecret-two\n")
    s = Server("--api-keys", "keys", path="s.sock")
    for key, status in [(None, 401), ("Bearer wrong", 401), ("Bearer ", 401),
                        ("secret-one", 401), ("Bearer secret-on", 401),
                        ("Bearer secret-onex", 401),
                        ("Bearer secret-one", 200),
                        ("bearer secret-two", 200)]:
        h = {"Authorization": key} if key else {}
        got, _, b = s.ask("POST", "/tokenize", {"prompt": "a"}, h)
        same("key %s: %d" % (key, status), got, status)
    same("no key: nothing is told", s.ask("GET", "/nope")[0], 401)
    same("/health needs none", s.ask("GET", "/health")[0], 200)
    same("only the group may connect", os.stat("s.sock").st_mode & 0o777,
         0o660)
    same("it ends with 0", s.stop(), (0, ""))
    same("and takes its socket away", os.path.exists("s.sock"), False)
    with open("none", "w") as f:
        f.write("# none\n")
    with open("blank", "w") as f:
        f.write("one \n# two\none two\n")
    with open("zero", "wb") as f:
        f.write(b"one\ntw\0o\n")
    s, u = Server(), Server(path="used.sock")
    for what, options, text in [
        ("a port that is in use", ["--port", str(s.port)], str(s.port)),
        ("a port that is none", ["--port", "65536"], "65535"),
        ("a socket that is in use", ["--socket", "used.sock"], "in use"),
        ("a file in the socket's place", ["--socket", "none"], "in use"),
        ("a folder that is not there", ["--socket", "gone/s"], "gone/s"),
        ("a socket without a name", ["--socket", ""], "a path is needed"),
        ("a folder of keys", ["--api-keys", "/"], "/"),
        ("a key of two words", ["--api-keys", "blank"], "blank: key 1 has"),
        ("a zero byte in a key", ["--api-keys", "zero"], "zero: key 0 has"),
        ("no key in the file", ["--api-keys", "none"], "no key"),
        ("no file", ["--api-keys", "gone"], "gone"),
        ("no such host", ["--host", "256.1.1.1"], "256.1.1.1"),
        ("a path too long", ["--socket", "/" + "a" * 200], "107"),
    ]:
        p = subprocess.run([GENAI, "serve", MODEL, "--port", "0", *options],
                           capture_output=True, text=True)
        check(what, p.returncode in (1, 2) and p.stderr.count("\n") == 1 and
              text in p.stderr, p.returncode, p.stderr)
    same("whose they are is not disturbed",
         (s.get("/health"), u.get("/health")), ('{"status":"ok"}',) * 2)
    same("nor the file", open("none").read(), "# none\n")
    s.stop()
    u.stop()


def drain():
    s = Server()
    k = s.raw()
    k.sendall(head(TEXT, dict(prompt="hello", max_tokens=480, stream=True,
                              ignore_eos=True, n=8)))
    got = k.recv(100)
    s.p.send_signal(signal.SIGTERM)
    while True:
        b = k.recv(65536)
        if not b:
            break
        got += b
    check("SIGTERM: what was begun is ended",
          got.count(b'"finish_reason":"length"') == 8 and
          b"data: [DONE]" in got, got[-300:])
    same("and the server with it", s.stop(0), (0, ""))
    s = Server()
    k = s.raw()
    k.sendall(head(TEXT, dict(prompt="hello", max_tokens=480, n=128,
                              ignore_eos=True)))
    wait(lambda: s.metric("genai_sequences_running"))
    s.p.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    s.p.send_signal(signal.SIGTERM)
    got = k.recv(65536)
    check("the second one: 503", got.startswith(b"HTTP/1.1 503") or
          got.startswith(b"HTTP/1.1 200"), got)
    same("at once", s.stop(0), (0, ""))


# ---- /v1/responses ----

def events(s, **body):
    body["stream"] = True
    _, _, text = s.ask("POST", RESPONSES, body)
    got = []
    for block in text.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        got.append(json.loads(data[6:]))
        if name != "event: " + got[-1]["type"]:
            check("an event's name is its type", False, block)
    return got


def responses(s):
    want = cli("--prompt", "hello", "--chat", "-n", "12")["text"]
    status, r = s.post(RESPONSES, model=NAME, input="hello",
                       max_output_tokens=12, instructions=None)
    item = r["output"][0]
    same("a response is the command line's",
         (status, r["object"], len(r["output"]), item["type"], item["role"],
          item["content"][0]["text"]),
         (200, "response", 1, "message", "assistant", want))
    same("cut off, it says so",
         (r["status"], r["incomplete_details"], item["status"]),
         ("incomplete", {"reason": "max_output_tokens"}, "completed"))
    same("its usage", r["usage"]["output_tokens"], 12)
    got = events(s, input=[{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "hello"}]}], max_output_tokens=12)
    kinds = [e["type"].replace("response.", "") for e in got]
    same("in a stream, its events",
         [k for i, k in enumerate(kinds) if k != kinds[i - 1]],
         ["created", "in_progress", "output_item.added",
          "content_part.added", "output_text.delta", "output_text.done",
          "content_part.done", "output_item.done", "incomplete"])
    same("in order", [e["sequence_number"] for e in got],
         list(range(len(got))))
    same("the text in pieces", "".join(
        e["delta"] for e in got if e["type"].endswith(".delta")), want)
    same("and whole at the end",
         got[-1]["response"]["output"][0]["content"][0]["text"], want)
    a = s.post(RESPONSES, input="hello", instructions="be good",
               max_output_tokens=8)[1]
    b = s.post(CHAT, messages=[{"role": "system", "content": "be good"},
                               *user("hello")], max_tokens=8)[1]
    same("instructions are the system's turn",
         a["output"][0]["content"][0]["text"],
         b["choices"][0]["message"]["content"])
    for what, body, code, why in (
            ("nothing to answer", dict(input=[]), "invalid_type", "input"),
            ("what was kept before", dict(input="a", previous_response_id="x"),
             "unsupported_parameter", "previous_response_id"),
            ("an unknown item", dict(input=[{"type": "item_reference"}]),
             "unsupported_value", "item_reference"),
            ("an image", dict(input=[{"role": "user", "content": [
                {"type": "input_image"}]}]), "unsupported_value",
             "input_image"),
            ("a tool that is none", dict(input="a", tools=[
                {"type": "web_search"}]), "unsupported_value", "web_search"),
            ("tools in no array", dict(input="a", tools=3), "invalid_type",
             "tools"),
            ("text in no object", dict(input="a", text=3), "invalid_type",
             "text"),
            ("an output that is no text", dict(input=[
                {"type": "function_call_output", "call_id": "x",
                 "output": 3}]), "invalid_type", "input[0].output"),
            ("a number out of range", dict(input="a", temperature=-1),
             "invalid_value", "temperature")):
        status, j = s.post(RESPONSES, **body)
        check("refused: " + what, status == 400 and
              j["error"]["code"] == code and why in j["error"]["message"],
              status, j)


# A model that always writes the same call; tools as responses have them.
def response_calls(s, name):
    body = dict(input="hello", max_output_tokens=1, logit_bias={"511": 100},
                tools=[{"type": "function", "name": "f", "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}}}}])
    _, r = s.post(RESPONSES, **body)
    call = r["output"][-1]
    same(name + ": a call in a response",
         (call["type"], call["name"], json.loads(call["arguments"]),
          len(r["output"])), ("function_call", "f", {"a": 1}, 1))
    got = events(s, **body)
    done = [e for e in got
            if e["type"] == "response.function_call_arguments.done"]
    same(name + ": in its stream", (len(done), "".join(
        e["delta"] for e in got
        if e["type"] == "response.function_call_arguments.delta")),
        (1, done[0]["arguments"] if done else None))
    same(name + ": it goes on after a call", s.post(RESPONSES, **(body | {
        "input": [{"role": "user", "content": "hello"}, call,
                  {"type": "function_call_output",
                   "call_id": call.get("call_id"), "output": "2"}]}))[0], 200)


# ---- a tokenizer that lies elsewhere ----

def elsewhere():
    for folder, names in (
            ("bare", ("genai_config.json", "model.onnx", "model.onnx.data")),
            ("text", ("tokenizer.json", "tokenizer_config.json"))):
        os.makedirs(folder)
        for name in names:
            shutil.copy(os.path.join(MODEL, name), folder)
    with open("text/chat_template.jinja", "w") as f:
        f.write("{{ messages[0].content }}")
    s = Server("--tokenizer", "text", model="bare")
    same("text is of its tokenizer",
         s.post(TEXT, prompt="hello", max_tokens=8)[1]["choices"][0]["text"],
         cli("--prompt", "hello", "-n", "8")["text"])
    _, j = s.post(CHAT, messages=user("hello world"), max_tokens=1)
    same("and chats of its template", j["usage"]["prompt_tokens"],
         len(cli("--prompt", "hello world", "-n", "1")["prompt_ids"]))
    same("it ends", s.stop(), (0, ""))


# ---- many ----

def many():
    s = Server("--sequences", "16")
    jobs = [dict(prompt="the %s cat" % ("big " * (i % 7)), seed=i,
                 temperature=1.2, max_tokens=10 + 3 * (i % 11))
            for i in range(64)]
    got = [None] * 64

    def one(i):
        got[i] = s.stream(TEXT, **jobs[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wrong = []
    for i, j in enumerate(jobs):
        want = cli("--prompt", j["prompt"], "--seed", str(i), "--temperature",
                   "1.2", "-n", str(j["max_tokens"]))
        if joined(got[i]) != want["text"]:
            wrong.append((i, joined(got[i]), want["text"]))
    same("64 streaming clients: each has what the command line has alone",
         wrong, [])
    check("all is given back", s.idle())
    m = s.get("/metrics")
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc",
                 "vllm:generation_tokens_total",
                 "vllm:time_to_first_token_seconds_count",
                 "vllm:inter_token_latency_seconds_bucket",
                 "genai_link_bytes_total"):
        check("/metrics has %s" % name, "\n%s{" % name in m, m)
    same("first tokens were counted",
         s.metric("genai_first_token_seconds_count"), 64)
    same("it ends with 0", s.stop(), (0, ""))


# Many short requests over connections that stay, by the script for many more.
def flood():
    r = subprocess.run([sys.executable, "-B", os.path.join(
        os.environ["top_srcdir"], "tests/bench/serve_load.py"), "flood", GENAI,
        MODEL, "--requests", "1000", "--active", "32", "--idle", "64"],
        capture_output=True, text=True)
    check("1000 requests over 32 connections, beside 64 idle ones: none fails",
          r.returncode == 0 and "0 failed" in r.stdout, r)


# ---- the page: every command on it ----

def page():
    with open(os.path.join(os.environ["top_srcdir"], "docs/SERVING.md")) as f:
        text = f.read()
    with open(os.path.join(os.environ["top_srcdir"], "README.md")) as f:
        blocks = (text + f.read()).split("\n\n")
    serves, curls = [], []
    for b in blocks:
        # but for those of vectors.py
        if b.startswith("    curl ") and "/v1/embeddings" not in b:
            curls.append(b)
        if re.match(r"    (build/)?genai serve ", b):
            serves += b.splitlines()
    same("commands are found", (len(serves) >= 4, len(curls) >= 9),
         (True, True))
    for c in serves:
        c = re.sub(r"^ *(build/)?genai", '"$genai"', c)
        c = re.sub(r"DIR|build/model/\S*", '"$model"', c)
        c = re.sub(r"--port \d+", "", c)
        if "--socket" not in c:
            c += " --port 0"
        p = subprocess.Popen("exec " + c, shell=True, text=True,
                             stderr=subprocess.PIPE)
        line = p.stderr.readline()
        p.terminate()
        p.communicate()
        check("the page: " + c, " at " in line and p.returncode == 0, line)
    s = Server()
    for c in curls:
        c = c.replace("127.0.0.1:8080", "127.0.0.1:%d" % s.port)
        r = subprocess.run(c, shell=True, capture_output=True, text=True)
        check("the page: " + " ".join(c.split())[:70], r.returncode == 0 and
              r.stdout and '"error":{' not in r.stdout, r)
    generate = [b for b in blocks if b.startswith("    genai generate DIR ")
                and "--regex" in b]
    same("the command line with structure is found", len(generate), 1)
    c = re.sub(r"^ *genai", '"$genai"', generate[0]).replace("DIR", '"$model"')
    r = subprocess.run(c, shell=True, capture_output=True, text=True)
    colours = re.search('"([a-z|]+)"$', c).group(1)
    # without llguidance it is refused, as the page says
    check("the page: " + c, re.search("(%s)$" % colours, r.stdout.strip())
          if r.returncode == 0 else "tools/install-llguidance" in r.stderr, r)
    code = text.split("```python\n")[1].split("```")[0]
    if importlib.util.find_spec("openai"):
        r = subprocess.run([sys.executable, "-c", code.replace(
            "8080", str(s.port))], capture_output=True, text=True)
        check("the page: openai", r.returncode == 0 and r.stdout, r)
    s.stop()


# ---- the page at /: what it is, and in a browser where there is one ----

def site(s):
    status, h, text = s.ask("GET", "/")
    text = text.decode()
    same("the page", (status, h["Content-Type"]),
         (200, "text/html; charset=utf-8"))
    check("it takes nothing from elsewhere",
          "default-src 'none'" in h["Content-Security-Policy"] and
          not re.search(r"(src|href)=|https?://|@import|url\(", text))
    with open(os.path.join(os.environ["top_srcdir"],
                           "tools/serve/page.html")) as f:
        same("it is the file", text, f.read())
    missing = [n for n in re.findall(r'g\("(\w+)"\)', text)
               if s.metric("genai_" + n) is None]
    same("every number that it shows is one of /metrics", missing, [])
    driver, chrome = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not chrome:
        print("# no chromium and driver here")
        return
    browse(s, driver, chrome)


def browse(s, driver, chrome):
    k = socket.socket()
    k.bind(("127.0.0.1", 0))
    port = k.getsockname()[1]
    k.close()
    p = subprocess.Popen([driver, "--port=%d" % port],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(path, body=None, method="POST"):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request(method, path, json.dumps(body or {}))
        return json.loads(c.getresponse().read())["value"]

    def script(code):
        return ask(at + "/execute/sync", {"script": code, "args": []})

    def until(code):
        end = time.time() + 30
        while time.time() < end and not script(code):
            time.sleep(0.1)
        return script(code)

    try:
        for _ in range(100):
            try:
                ask("/status", method="GET")
                break
            except OSError:
                time.sleep(0.1)
        at = "/session/" + ask("/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": chrome, "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu",
                "--user-data-dir=" + os.path.abspath("chrome")]}}}}
        )["sessionId"]
        ask(at + "/url", {"url": "http://127.0.0.1:%d/" % s.port})
        for what in "hello", "and again":
            script("document.getElementById('text').value = '%s';"
                   "document.getElementById('most').value = 12;"
                   "document.getElementById('form').requestSubmit()" % what)
            until("return document.getElementById('send').textContent == "
                  "'Send'")
        turns = script("return [...document.querySelectorAll('.turn')]"
                       ".map(e => [e.className, e.textContent])")
        same("in a browser: two turns, and their answers",
             [t[0] for t in turns], ["turn user", "turn assistant"] * 2)
        same("the answer is the command line's", turns[1][1],
             cli("--prompt", "hello", "--chat", "-n", "12")["text"])
        check("the model's name is shown", until(
            "return document.getElementById('model').textContent"
            ".includes('%s')" % NAME))
        check("tokens are counted", until(
            "return +document.getElementById('made').textContent >= 24"))
        log = ask(at + "/se/log", {"type": "browser"})
        same("the browser has nothing to say",
             [x for x in log if "favicon" not in x["message"]], [])
        ask(at, method="DELETE")
    finally:
        p.terminate()
        p.wait()


s = Server("--max-body", "65536")
same("it says where it is", s.line, "genai: %s at http://127.0.0.1:%d\n"
     % (NAME, s.port))
same("/health", s.get("/health"), '{"status":"ok"}')
m = json.loads(s.get("/v1/models"))
same("/v1/models", [x["id"] for x in m["data"]], [NAME])
answers(s)
chats(s)
responses(s)
parameters(s)
refusals(s)
vanish(s)
site(s)
same("it ends with 0 and without a word", s.stop(), (0, ""))
calls()
slow()
crowd()
device()
queue()
keys()
page()
drain()
elsewhere()
many()
flood()
structured()
finish()
