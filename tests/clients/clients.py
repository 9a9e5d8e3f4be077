# clients.py - what people have, against genai serve: OpenAI's package (whole,
# streams, async, tools, parse), litellm, langchain-openai, instructor, the
# conformance tests of llm-comply, lm-eval's local-completions.  A package that
# is not there is left out, and said.  Environment: as served.py; vectors, a
# model for embeddings.
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import warnings

sys.path.insert(1, os.path.join(os.environ["top_srcdir"], "tests/cli"))
from served import *

warnings.simplefilter("ignore")
CALL = '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>'
SHOWN = '<tool_call>{"name": "probe_fn"}</tool_call>'
TOOL = {"type": "function", "function": {
    "name": "f", "description": "one", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}}}}


def have(name):
    if importlib.util.find_spec(name):
        return True
    print("# no module %s here" % name)
    return False


def refused(what, kind, call, code):
    try:
        call()
        check(what, False)
    except kind as e:
        same(what, e.code, code)


# ---- openai ----

def plain(s, openai):
    c = openai.OpenAI(base_url=s.url, api_key="none", max_retries=0)
    chat = dict(model=NAME, messages=user("hello"), max_tokens=12)
    want = cli("--prompt", "hello", "--chat", "-n", "12")["text"]
    r = c.chat.completions.create(**chat)
    same("openai: a chat", r.choices[0].message.content, want)
    text = ""
    for k in c.chat.completions.create(stream=True, stream_options={
            "include_usage": True}, **chat):
        text += (k.choices[0].delta.content or "") if k.choices else ""
        last = k
    same("openai: a stream", (text, last.usage.completion_tokens), (want, 12))
    with c.chat.completions.stream(**chat) as events:
        same("openai: its events", [e.content for e in events
                                    if e.type == "content.done"], [want])
    r = c.chat.completions.create(logprobs=True, top_logprobs=2, n=2, seed=1,
                                  temperature=1.0, **chat)
    same("openai: choices and log probabilities",
         [len(k.logprobs.content) for k in r.choices], [12, 12])
    same("openai: a completion", c.completions.create(
        model=NAME, prompt="hello world", max_tokens=8).choices[0].text,
        cli("--prompt", "hello world", "-n", "8")["text"])
    same("openai: models", [m.id for m in c.models.list()], [NAME])
    r = c.responses.create(model=NAME, input="hello", max_output_tokens=12)
    same("openai: a response", r.output_text, want)
    got = list(c.responses.create(model=NAME, input="hello", stream=True,
                                  max_output_tokens=12))
    same("openai: its stream", got[-1].response.output_text, want)
    refused("openai: an unknown model", openai.NotFoundError,
            lambda: c.completions.create(model="gpt", prompt="a"),
            "model_not_found")
    refused("openai: a bad request", openai.BadRequestError,
            lambda: c.completions.create(model=NAME, prompt="a", n=0),
            "invalid_value")
    refused("openai: no embeddings here", openai.BadRequestError,
            lambda: c.embeddings.create(model=NAME, input="a"),
            "unsupported_value")

    async def many():
        a = openai.AsyncOpenAI(base_url=s.url, api_key="none", max_retries=0)

        async def streamed():
            text = ""
            async for k in await a.chat.completions.create(stream=True,
                                                           **chat):
                text += k.choices[0].delta.content or ""
            return text

        one = a.chat.completions.create(**chat)
        r = await asyncio.gather(one, *[streamed() for _ in range(8)])
        await a.close()
        return [r[0].choices[0].message.content, *r[1:]]

    same("openai, async: one, and eight streams at once",
         asyncio.run(many()), [want] * 9)


def tools(s, openai):
    c = openai.OpenAI(base_url=s.url, api_key="none", max_retries=0)
    chat = dict(model=s.name, messages=user("hello"), max_tokens=1,
                tools=[TOOL], logit_bias={"511": 100})
    m = c.chat.completions.create(**chat).choices[0]
    call = m.message.tool_calls[0]
    same("openai: a call", (call.function.name, json.loads(
        call.function.arguments)), ("f", {"a": 1}))
    with c.chat.completions.stream(**chat) as events:
        done = [e for e in events
                if e.type == "tool_calls.function.arguments.done"]
    same("openai: a call in a stream",
         [(e.name, json.loads(e.arguments)) for e in done], [("f", {"a": 1})])
    r = c.chat.completions.create(**(chat | {"messages": [
        *user("hello"), m.message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "2"}]}))
    check("openai: and what it gave", r.choices[0].message)


def vectors(openai):
    s = Server(model=os.environ["vectors"])
    name = os.path.basename(os.environ["vectors"])
    at = "http://127.0.0.1:%d/v1" % s.port
    c = openai.OpenAI(base_url=at, api_key="none", max_retries=0)
    with open(os.path.join(os.environ["vectors"], "truth.json")) as f:
        truth = json.load(f)

    def near(v, i):
        return len(v) == len(truth[i]["own"]) and all(
            abs(x - y) < 1e-4 for x, y in zip(v, truth[i]["own"]))

    texts = [t["text"] for t in truth[:2]]
    for form in {}, {"encoding_format": "float"}, \
            {"encoding_format": "base64"}:
        r = c.embeddings.create(model=name, input=texts, **form)
        v = [d.embedding for d in r.data]
        if form.get("encoding_format") == "base64":
            import array
            import base64
            v = [array.array("f", base64.b64decode(x)).tolist() for x in v]
        check("openai: embeddings %s" % form, near(v[0], 0) and near(v[1], 1),
              r)
    refused("openai: embeddings of nothing", openai.BadRequestError,
            lambda: c.embeddings.create(model=name, input=""),
            "invalid_value")
    refused("openai: no chat here", openai.BadRequestError,
            lambda: c.chat.completions.create(model=name,
                                              messages=user("a")),
            "unsupported_value")
    if have("litellm"):
        import litellm
        r = litellm.embedding(model="openai/" + name, input=texts,
                              api_base=at, api_key="none")
        check("litellm: embeddings", near(r.data[1]["embedding"], 1), r)
    if have("langchain_openai"):
        from langchain_openai import OpenAIEmbeddings
        e = OpenAIEmbeddings(model=name, base_url=at, api_key="none",
                             check_embedding_ctx_length=False)
        check("langchain: embeddings", near(e.embed_query(texts[1]), 1) and
              near(e.embed_documents(texts)[0], 0))
    same("it ends with 0", s.stop(), (0, ""))


# ---- structures ----

def a_model():
    from enum import Enum

    import pydantic

    class Colour(str, Enum):
        red = "red"
        green = "green"

    class Thing(pydantic.BaseModel, extra="forbid"):
        colour: Colour
        big: bool

    return Thing


def structures(s, openai):
    Thing = a_model()
    at = dict(base_url=s.url, api_key="none", max_retries=0)
    c = openai.OpenAI(**at)
    chat = dict(model=s.name, messages=user("a thing"), max_tokens=200,
                temperature=1.0, seed=3)
    r = c.chat.completions.parse(response_format=Thing, **chat)
    check("openai: parse", isinstance(r.choices[0].message.parsed, Thing), r)
    r = c.responses.parse(model=s.name, input="a thing", text_format=Thing,
                          max_output_tokens=200, temperature=1.0)
    check("openai: parse of a response", isinstance(r.output_parsed, Thing), r)
    tool = openai.pydantic_function_tool(Thing)
    r = c.chat.completions.parse(tools=[tool], tool_choice="required", **chat)
    check("openai: parse of a call", isinstance(
        r.choices[0].message.tool_calls[0].function.parsed_arguments, Thing),
        r)
    if have("litellm"):
        import litellm
        r = litellm.completion(**(chat | {"model": "openai/" + s.name}),
                               api_base=s.url, api_key="none",
                               response_format=Thing)
        check("litellm: a structure", Thing.model_validate_json(
            r.choices[0].message.content), r)
    if have("langchain_openai"):
        from langchain_openai import ChatOpenAI
        m = ChatOpenAI(model=s.name, max_tokens=200, temperature=1.0, seed=3,
                       **at)
        for how in "json_schema", "function_calling":
            r = m.with_structured_output(Thing, method=how).invoke("a thing")
            check("langchain: a structure by " + how, isinstance(r, Thing), r)
    if have("instructor"):
        import instructor
        for mode in instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA:
            i = instructor.from_openai(openai.OpenAI(**at), mode=mode)
            r = i.chat.completions.create(response_model=Thing, max_retries=0,
                                          **chat)
            check("instructor: %s" % mode, isinstance(r, Thing), r)


# ---- others ----

def litellm_plain(s):
    import litellm
    litellm.suppress_debug_info = True
    want = cli("--prompt", "hello", "--chat", "-n", "12")["text"]
    chat = dict(model="openai/" + NAME, messages=user("hello"), max_tokens=12,
                api_base=s.url, api_key="none")
    same("litellm: a chat", litellm.completion(
        **chat).choices[0].message.content, want)
    same("litellm: a stream", "".join(
        k.choices[0].delta.content or ""
        for k in litellm.completion(stream=True, **chat)), want)
    same("litellm, async", asyncio.run(
        litellm.acompletion(**chat)).choices[0].message.content, want)
    same("litellm: a text", litellm.text_completion(
        model="text-completion-openai/" + NAME, prompt="hello world",
        max_tokens=8, api_base=s.url, api_key="none").choices[0].text,
        cli("--prompt", "hello world", "-n", "8")["text"])
    try:
        litellm.completion(**(chat | {"temperature": 1000}))
        check("litellm: a bad request", False)
    except litellm.BadRequestError as e:
        check("litellm: a bad request", "from 0 to 100" in str(e), e)


def langchain_plain(s):
    from langchain_openai import ChatOpenAI
    want = cli("--prompt", "hello", "--chat", "-n", "12")["text"]
    m = ChatOpenAI(model=NAME, base_url=s.url, api_key="none", max_retries=0,
                   max_tokens=12)
    same("langchain: a chat", m.invoke("hello").content, want)
    same("langchain: a stream", "".join(
        k.content for k in m.stream("hello")), want)
    same("langchain: a batch", [r.content for r in m.batch(["hello"] * 4)],
         [want] * 4)
    same("langchain, async", asyncio.run(m.ainvoke("hello")).content, want)


def langchain_tools(s):
    from langchain_openai import ChatOpenAI
    m = ChatOpenAI(model=s.name, base_url=s.url, api_key="none", max_tokens=1,
                   logit_bias={511: 100}).bind_tools([TOOL])
    same("langchain: a call", [(c["name"], c["args"]) for c in m.invoke(
        "hello").tool_calls], [("f", {"a": 1})])


# What it tests that is otherwise here, and why.
EXCEPT = {
    "chat-image-input": "no model that sees",
    "image-input": "no model that sees",
    "chat-error-handling": "a body need not name the model",
    "error-handling": "a body need not name the model",
}


def comply(s):
    for form in "openai-chat", "open-responses":
        r = subprocess.run(
            [sys.executable, "-m", "llm_comply.cli", "--format", form, "-u",
             s.url, "-k", "none", "-m", s.name, "--json"],
            capture_output=True, text=True)
        results = json.loads(r.stdout)["results"]
        for t in results:
            if t["status"] == "skipped" or t["id"] in EXCEPT:
                print("# llm-comply, %s: %s: %s" % (
                    form, t["id"], EXCEPT.get(t["id"], t["status"])))
            else:
                check("llm-comply, %s: %s" % (form, t["id"]),
                      t["status"] == "passed", t)
        check("llm-comply, %s: there were some" % form, len(results) > 8)


TASK = """\
task: fixture
dataset_path: json
dataset_kwargs:
  data_files:
    test: %s
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs:
  max_gen_toks: 8
  until: ["\\n\\n"]
metric_list:
  - metric: exact_match
"""


# A local task whose targets are the command line's answers, but for one: the
# score is known.
def evaluate(s):
    os.makedirs("task")
    questions = ["hello world", "the quick brown fox", "a b c", "one two"]
    with open("task/data.jsonl", "w") as f:
        for i, q in enumerate(questions):
            text = cli("--prompt", q, "-n", "8", "--stop", "\n\n")["text"]
            f.write(json.dumps({"q": q, "a": text if i else "no"}) + "\n")
    with open("task/fixture.yaml", "w") as f:
        f.write(TASK % os.path.abspath("task/data.jsonl"))
    env = dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
               HF_HOME=os.path.abspath("hf"))
    r = subprocess.run(
        [sys.executable, "-m", "lm_eval", "run", "--model",
         "local-completions", "--model_args",
         "model=%s,base_url=%s/completions,tokenizer_backend=None,"
         "num_concurrent=4" % (NAME, s.url), "--include_path", "task",
         "--tasks", "fixture", "--output_path", "out"],
        capture_output=True, text=True, env=env)
    scores = []
    for folder, _, names in os.walk("out"):
        for n in names:
            with open(os.path.join(folder, n)) as f:
                scores.append(json.load(f)["results"]["fixture"])
    same("lm-eval: three of four answers are the command line's",
         [x.get("exact_match,none") for x in scores], [0.75])
    if not scores:
        print("# " + r.stderr[-3000:].replace("\n", "\n# "))


def served(*options, **more):
    s = Server(*options, **more)
    s.url = "http://127.0.0.1:%d/v1" % s.port
    s.name = os.path.basename(more.get("model", MODEL))
    return s


def caller():
    taught("caller", CALL, TEMPLATE.replace("CALL", SHOWN))
    return "caller"


# One whose texts end soon: many tokens are such ends, none of which spells a
# single character, and many others end a text within JSON.  Tools are not told:
# their schemas are longer than its context.
def brief():
    taught("brief", "zz", TEMPLATE.replace("CALL", SHOWN).replace(
        "{{ tools | tojson }}", "T"))
    with open("brief/genai_config.json") as f:
        j = json.load(f)
    j["model"]["eos_token_id"] = [0] + list(range(300, 512, 4))
    with open("brief/genai_config.json", "w") as f:
        json.dump(j, f)
    with open("brief/tokenizer.json") as f:
        j = json.load(f)
    m = j["model"]
    gone = {k for k, v in m["vocab"].items() if v >= 300 and v % 4 == 1}
    m["vocab"] = {'%d"' % v if k in gone else k: v
                  for k, v in m["vocab"].items()}
    parts = [p if isinstance(p, list) else p.split(" ") for p in m["merges"]]
    m["merges"] = [p for p in parts
                   if not gone & {p[0], p[1], p[0] + p[1]}]
    with open("brief/tokenizer.json", "w") as f:
        json.dump(j, f)
    return "brief"


os.environ["OPENAI_API_KEY"] = "none"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up of prices
llg = importlib.util.find_spec("llguidance")
if llg:
    os.environ["GENAI_LLGUIDANCE"] = os.path.join(
        os.path.dirname(llg.origin), "_lib.abi3.so")
if have("openai"):
    import openai
    s = served()
    plain(s, openai)
    if have("litellm"):
        litellm_plain(s)
    if have("langchain_openai"):
        langchain_plain(s)
    if have("lm_eval"):
        evaluate(s)
    same("it ends with 0 and without a word", s.stop(), (0, ""))
    s = served(model=caller())
    tools(s, openai)
    if have("langchain_openai"):
        langchain_tools(s)
    s.stop()
    vectors(openai)
    s = served(model=brief())
    if llg:
        structures(s, openai)
    else:
        print("# no llguidance here")
    if have("llm_comply") and llg:
        comply(s)
    same("and this one", s.stop(), (0, ""))
    finish()
else:
    print("1..0 # SKIP no module openai")
