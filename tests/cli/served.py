# served.py - a server to be tested and what asks it, with nothing but Python's
# own library.  Prints TAP.  Environment: genai, the program; model, a folder.
import atexit
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

GENAI, MODEL = os.environ["genai"], os.environ["model"]
NAME = os.path.basename(MODEL)
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
RESPONSES = "/v1/responses"
n_checks = 0


def check(what, good, *why):
    global n_checks
    n_checks += 1
    print("%sok %d - %s" % ("" if good else "not ", n_checks, what))
    if not good:
        for w in why:
            print("# " + repr(w)[:1500])
    sys.stdout.flush()


def same(what, got, want):
    check(what, got == want, got, want)


# Until something holds, or too long.
def wait(holds, within=20):
    end = time.time() + within
    while not holds() and time.time() < end:
        time.sleep(0.005)


def cli(*args):
    r = subprocess.run([GENAI, "generate", MODEL, "--json", *args],
                       capture_output=True, stdin=subprocess.DEVNULL)
    return json.loads(r.stdout)


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Server:
    # files: how many the process may have open
    def __init__(self, *options, path=None, model=MODEL, files=None):
        at = ["--socket", path] if path else ["--port", "0"]
        less = ["sh", "-c", 'ulimit -n %d; exec "$0" "$@"' % files] \
            if files else []
        self.path = path
        self.p = subprocess.Popen([*less, GENAI, "serve", model, *at,
                                   *options], stderr=subprocess.PIPE,
                                  text=True)
        atexit.register(self.p.kill)
        self.warning = ""
        self.line = self.p.stderr.readline()
        if self.line.startswith("genai: warning: "):
            self.warning = self.line
            self.line = self.p.stderr.readline()
        self.port = None if path else int(self.line.rsplit(":", 1)[1])

    def connect(self):
        if self.path:
            return Unix(self.path)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def raw(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return s

    # status, headers, body as bytes
    def ask(self, method, path, body=None, headers=None):
        c = self.connect()
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        h = {"Content-Type": "application/json"} if body is not None else {}
        h.update(headers or {})
        c.request(method, path, body, h)
        r = c.getresponse()
        got = r.status, r.headers, r.read()
        c.close()
        return got

    def get(self, path):
        return self.ask("GET", path)[2].decode()

    def post(self, path, **body):
        status, _, text = self.ask("POST", path, body)
        return status, json.loads(text)

    # all chunks of a stream
    def stream(self, path, **body):
        body["stream"] = True
        status, h, text = self.ask("POST", path, body)
        parts = text.decode().split("\n\n")
        if status != 200 or not h["Content-Type"].startswith(
                "text/event-stream") or parts[-2:] != ["data: [DONE]", ""]:
            return [{"not a stream": (status, text)}]
        return [json.loads(p[len("data: "):]) for p in parts[:-2]]

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        return None

    # The rows and blocks of all requests are free again.
    def idle(self, within=20):
        def free():
            return all(self.metric("genai_" + n) == 0 for n in (
                "sequences_running", "sequences_waiting", "blocks_used"))
        wait(free, within)
        return free()

    def stop(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        _, err = self.p.communicate(timeout=60)
        return self.p.returncode, err


# All that comes of a connection until it ends: statuses and bodies of answers
# that have a length.
def answers_of(k):
    got = b""
    try:
        while True:
            b = k.recv(65536)
            if not b:
                break
            got += b
    except ConnectionError:
        pass
    found = []
    while b"\r\n\r\n" in got:
        top, got = got.split(b"\r\n\r\n", 1)
        n = re.search(rb"(?i)content-length: (\d+)", top)
        n = int(n.group(1)) if n else 0
        found.append((int(top.split()[1]), got[:n]))
        got = got[n:]
    return found + [got] * bool(got)


# The one answer of a connection is an error of the API.
def is_refused(found, status, code):
    if len(found) != 1 or found[0][0] != status:
        return False
    e = json.loads(found[0][1])["error"]
    return e["code"] == code and set(e) == {"message", "type", "param", "code"}


def joined(chunks, index=0):
    text = ""
    for k in chunks:
        for c in k.get("choices", []):
            if c["index"] == index:
                text += c["text"] if "text" in c else \
                    c["delta"].get("content", "")
    return text


def user(text):
    return [{"role": "user", "content": text}]


def finishes(chunks):
    return [c["finish_reason"] for k in chunks for c in k.get("choices", [])
            if c["finish_reason"]]


def head(path, body):
    body = json.dumps(body).encode()
    return (b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
            b"\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
            + body)


# A folder whose last token spells a text; a bias makes the model write it.
def taught(folder, text, template):
    shutil.copytree(MODEL, folder, copy_function=shutil.copyfile)
    name = os.path.join(folder, "tokenizer.json")
    with open(name) as f:
        t = json.load(f)
    m = t["model"]
    last = max(m["vocab"], key=m["vocab"].get)
    m["vocab"] = {text if k == last else k: v for k, v in m["vocab"].items()}
    m["merges"] = [p for p in m["merges"]
                   if "".join(p if isinstance(p, list) else p.split(" "))
                   != last]
    with open(name, "w") as f:
        json.dump(t, f)
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(template)
    return folder


TEMPLATE = """\
{% if tools %}{{ tools | tojson }}{% endif %}\
{% for m in messages %}<|{{ m['role'] }}|>
{{ m['content'] }}{% for c in m['tool_calls'] %}CALL{% endfor %}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% if thinking %}<think>
{% endif %}{% endif %}"""


# That was all.
def finish():
    print("1..%d" % n_checks)
