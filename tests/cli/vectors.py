# vectors.py - /v1/embeddings: numbers against those of the command line and of
# transformers, errors, clients that leave.  Environment: also text, a model
# that makes text.
import base64
import json
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from served import *

PATH = "/v1/embeddings"
CAT, DOG = "The cat sat on the mat.", "dogs"


def command(*texts):
    r = subprocess.run([GENAI, "embed", MODEL, "--json"], text=True,
                       input="\n".join(texts), capture_output=True)
    return json.loads(r.stdout)


def vectors(j):
    return [d["embedding"] for d in j["data"]]


def near(a, b):
    return len(a) == len(b) and all(
        abs(x - y) <= 1e-6 * max(1, abs(y)) for x, y in zip(a, b))


def answers(s):
    with open(os.path.join(MODEL, "truth.json")) as f:
        truth = json.load(f)
    want = command(CAT, DOG)
    status, j = s.post(PATH, model=NAME, input=CAT)
    same("a text", (status, j["object"], j["model"], [
        (d["object"], d["index"]) for d in j["data"]]),
         (200, "list", NAME, [("embedding", 0)]))
    check("is the command line's vector",
          near(vectors(j)[0], want["embeddings"][0]), j, want)
    check("and that of transformers", all(abs(x - y) < 1e-4 for x, y in zip(
        vectors(j)[0], truth[0]["own"])), j)
    same("usage", j["usage"], {"prompt_tokens": len(truth[0]["ids"]),
                               "total_tokens": len(truth[0]["ids"])})
    one = vectors(j)[0]
    _, j = s.post(PATH, input=[DOG, CAT, DOG])
    v = vectors(j)
    same("several: in order, each as alone",
         ([d["index"] for d in j["data"]], v[1], v[0] == v[2]),
         ([0, 1, 2], one, True))
    _, j = s.post(PATH, input=truth[0]["ids"])
    same("from ids", vectors(j), [one])
    _, j = s.post(PATH, input=[truth[0]["ids"], truth[1]["ids"]])
    check("and several of these", vectors(j)[0] == one and
          all(abs(x - y) < 1e-4 for x, y in zip(vectors(j)[1],
                                                truth[1]["own"])), j)
    for fmt in (None, "float"):
        same("encoding_format %s" % fmt, vectors(s.post(
            PATH, input=CAT, encoding_format=fmt)[1]), [one])
    _, j = s.post(PATH, input=CAT, encoding_format="base64")
    raw = base64.b64decode(vectors(j)[0], validate=True)
    check("base64 is float32, little-endian",
          near(struct.unpack("<%df" % len(one), raw), one), j)
    same("dimensions, where they are the model's", vectors(s.post(
        PATH, input=CAT, dimensions=len(one), user="x")[1]), [one])
    same("/tokenize", s.post("/tokenize", prompt=CAT)[1]["tokens"],
         truth[0]["ids"])
    same("/v1/models", [m["id"] for m in json.loads(
        s.get("/v1/models"))["data"]], [NAME])
    same("/health", s.get("/health"), '{"status":"ok"}')
    m = s.get("/metrics")
    check("/metrics counts", s.metric("genai_vectors_total") == 11 and
          s.metric("vllm:prompt_tokens_total") ==
          s.metric("genai_prompt_tokens_total") > 0 and
          s.metric("genai_request_seconds_count") == 8, m)


def refusals(s):
    # within the table of positions, but not within the model's length
    long = "the cat on the mat how many people " * 7
    for what, body, status, code, text in [
        ("no input", {}, 400, "invalid_type", "input"),
        ("an empty text", {"input": ""}, 400, "invalid_value", "text 0"),
        ("the second one empty", {"input": [CAT, ""]}, 400, "invalid_value",
         "text 1"),
        ("no texts", {"input": []}, 400, "invalid_type", "input"),
        ("no ids", {"input": [[]]}, 400, "invalid_type", "input"),
        ("a number", {"input": 3}, 400, "invalid_type", "input"),
        ("an object", {"input": {"text": CAT}}, 400, "invalid_type", "input"),
        ("mixed", {"input": [1, CAT]}, 400, "invalid_value", "item 1"),
        ("a negative id", {"input": [[-1]]}, 400, "invalid_value", "item 0"),
        ("an id that the model does not know", {"input": [[2, 3], [1000000]]},
         400, "invalid_value", "text 1: token 0 is 1000000"),
        ("too long", {"input": [CAT, long]}, 400, "context_length_exceeded",
         "58 tokens of text 1 are more than the 32"),
        ("too many texts", {"input": ["a"] * 2049}, 400, "invalid_value",
         "2048"),
        ("not a text of UTF-8", b'{"input":"\xff"}', 400, "invalid_json",
         "0xff"),
        ("no such form", {"input": CAT, "encoding_format": "int8"}, 400,
         "unsupported_value", "encoding_format"),
        ("a form that is a number", {"input": CAT, "encoding_format": 1}, 400,
         "unsupported_value", "encoding_format"),
        ("other dimensions", {"input": CAT, "dimensions": 8}, 400,
         "unsupported_value", "16"),
        ("a key that is none", {"input": CAT, "inputs": CAT}, 400,
         "unsupported_parameter", "did you mean input"),
        ("one of text", {"input": CAT, "max_tokens": 2}, 400,
         "unsupported_parameter", "max_tokens"),
        ("no such model", {"input": CAT, "model": "x"}, 404,
         "model_not_found", NAME),
    ]:
        got, _, b = s.ask("POST", PATH, body)
        e = json.loads(b)["error"]
        check("%s: %d" % (what, status), (got, e["code"]) == (status, code)
              and text in e["message"], got, b)
    for path, body in (("/v1/completions", {"prompt": "a"}),
                       ("/v1/chat/completions", {"messages": user("a")}),
                       ("/v1/responses", {"input": "a"})):
        status, j = s.post(path, **body)
        check("%s: it makes vectors" % path, status == 400 and
              j["error"]["code"] == "unsupported_value" and
              "/v1/embeddings" in j["error"]["message"], status, j)
    same("GET: 405", s.ask("GET", PATH)[0], 405)


def leave(s):
    many = {"input": [CAT] * 2048}
    k = s.raw()
    k.sendall(head(PATH, many))
    wait(lambda: s.metric("genai_vectors_waiting") == 1)
    k.close()
    wait(lambda: s.metric("genai_vectors_waiting") == 0)
    check("who leaves is not computed for any longer",
          s.metric("genai_vectors_waiting") == 0 and
          s.metric("genai_vectors_total") < 2048)
    got = [None] * 8

    def one(i):
        got[i] = vectors(s.post(PATH, input=["dogs " * (i + 1), CAT])[1])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    want = command(*["dogs " * (i + 1) for i in range(8)], CAT)["embeddings"]
    check("many at once: to each its own", all(
        near(g[0], want[i]) and near(g[1], want[8])
        for i, g in enumerate(got)), got)


def limits():
    with open("keys", "w") as f:
        f.write("secret\n")
    s = Server("--queue", "1", "--timeout", "1", "--api-keys", "keys",
               "--name", "mine")
    same("no key: 401", s.ask("POST", PATH, {"input": CAT})[0], 401)
    texts = [CAT] * 2048
    ks = [s.raw() for _ in range(8)]
    for k in ks:
        k.sendall(head(PATH, {"input": texts, "model": "mine"}).replace(
            b"\r\n\r\n", b"\r\nAuthorization: Bearer secret\r\n\r\n", 1))
    got = [k.recv(65536) for k in ks]
    full = [g for g in got if b'"queue_full"' in g]
    check("a full queue: 429", full and all(
        g.startswith(b"HTTP/1.1 429") for g in full) and all(
            g in full or g.startswith((b"HTTP/1.1 200", b"HTTP/1.1 504"))
            for g in got), [g[:200] for g in got])
    for k in ks:
        k.close()
    s.stop()
    s = Server()
    k = s.raw()
    k.sendall(head(PATH, {"input": texts}))
    wait(lambda: s.metric("genai_vectors_waiting") == 1)
    s.p.send_signal(signal.SIGTERM)
    got = b""
    while not got.endswith(b"}}"):
        b = k.recv(65536)
        if not b:
            break
        got += b
    check("SIGTERM: what was begun is ended", got.startswith(
        b"HTTP/1.1 200") and got.count(b'"index"') == 2048, got[:300])
    same("and the server with it", s.stop(0), (0, ""))
    s = Server()
    k = s.raw()
    k.sendall(head(PATH, {"input": texts}))
    wait(lambda: s.metric("genai_vectors_waiting") == 1)
    s.p.send_signal(signal.SIGTERM)
    time.sleep(0.02)
    s.p.send_signal(signal.SIGTERM)
    same("the second one: at once", s.stop(0), (0, ""))
    got = k.recv(65536)
    check("with 503, or what was done by then",
          got.startswith((b"HTTP/1.1 503", b"HTTP/1.1 200")), got[:300])


def device():
    fault = ["--set", "module.cpu_ref.fault="]
    want = command(*[CAT] * 40)["embeddings"]
    s = Server(*fault[:1], fault[1] + "copy:60")
    status, j = s.post(PATH, input=[CAT] * 40)
    check("a copy that fails: nobody feels it", status == 200 and all(
        near(v, w) for v, w in zip(vectors(j), want)), status, j)
    same("it was one", s.metric("genai_device_errors_total"), 1)
    same("and all is well", (s.get("/health"), s.metric("genai_healthy")),
         ('{"status":"ok"}', 1))
    same("it ends with 0", s.stop()[0], 0)
    for what in "stay", "exit":
        s = Server(*fault[:1], fault[1] + "lost:2000", "--device-lost", what)
        k = s.raw()
        k.sendall(head(PATH, {"input": [CAT] * 2048}).replace(
            b"Host: x", b"Host: x\r\nConnection: close"))
        got = answers_of(k)
        check(what + ": the device is lost: 503", is_refused(
            got, 503, "device_lost"), got)
        if what == "stay":
            status, _, b = s.ask("POST", PATH, {"input": CAT})
            check("stay: what comes after, too", is_refused(
                [(status, b)], 503, "device_lost"), status, b)
            same("stay: /health says it", s.ask("GET", "/health")[::2],
                 (503, b'{"status":"device lost"}'))
            same("stay: so do the metrics", s.metric("genai_healthy"), 0)
            same("stay: what needs no device is served",
                 s.post("/tokenize", prompt=CAT)[0], 200)
        try:
            status = s.p.wait(20 if what == "exit" else 0.2)
            err = s.p.stderr.read()
        except subprocess.TimeoutExpired:
            status, err = s.stop()
        check(what + ": how it ends", status == (1 if what == "exit" else 0)
              and err.count("lost") == (what == "exit"), status, err)


def others():
    s = Server(model=os.environ["text"])
    status, j = s.post(PATH, input=CAT)
    check("a model that makes text: 400", status == 400 and
          j["error"]["code"] == "unsupported_value" and
          "no model for embeddings" in j["error"]["message"], status, j)
    s.stop()
    shutil.copytree(MODEL, "none", copy_function=shutil.copyfile)
    os.remove("none/modules.json")
    p = subprocess.run([GENAI, "serve", "none", "--port", "0"], text=True,
                       capture_output=True)
    check("a folder that says no pooling: one line that says so",
          p.returncode == 1 and p.stderr.count("\n") == 1 and
          "no modules.json" in p.stderr, p)
    shutil.copytree(MODEL, "mute", copy_function=shutil.copyfile)
    os.remove("mute/tokenizer.json")
    s = Server(model="mute")
    same("without a tokenizer, ids", s.post(PATH, input=[2, 82, 3])[0], 200)
    status, j = s.post(PATH, input=CAT)
    check("and no texts", status == 400 and
          "no tokenizer" in j["error"]["message"], j)
    s.stop()


def page():
    with open(os.path.join(os.environ["top_srcdir"], "docs/SERVING.md")) as f:
        curls = [b for b in f.read().split("\n\n")
                 if b.startswith("    curl ") and PATH in b]
    s = Server()
    check("the page has it", curls)
    for c in curls:
        r = subprocess.run(c.replace("127.0.0.1:8080", "127.0.0.1:%d" %
                                     s.port), shell=True, capture_output=True,
                           text=True)
        check("the page: " + " ".join(c.split())[:60],
              '"embedding":[' in r.stdout or shutil.which("curl") is None, r)
    s.stop()


s = Server()
answers(s)
refusals(s)
same("it ends with 0 and without a word", s.stop(), (0, ""))
s = Server()
leave(s)
same("and this one", s.stop(), (0, ""))
limits()
device()
others()
page()
finish()
