# ray_serve.py - what ray.sh asks of packaging/deploy/genai_ray.py.
import atexit
import http.client
import json
import os
import signal
import socket
import threading
import time

import ray
from ray import serve

import genai_ray
from served import CHAT, GENAI, MODEL, Server, check, finish, same, user, wait


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Front(Server):
    def __init__(self, port):
        self.path, self.port = None, port


# The processes of replicas, parents of the shells around our servers, and those.
def replicas():
    shells = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                args = f.read().split(b"\0")
            with open("/proc/%s/stat" % pid) as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if args[0] == b"sh" and MODEL.encode() in args and b"--socket" in args:
            shells[int(pid)] = parent
    # a shell's own child is a shell, too
    return {parent: pid for pid, parent in shells.items()
            if parent not in shells}


def question(i, n=200):
    return dict(messages=user("number %d" % i), max_tokens=n, temperature=0,
                ignore_eos=True)


# One whole answer, or what went wrong.
def whole(server, i):
    try:
        status, a = server.post(CHAT, **question(i))
        return a["choices"][0]["message"]["content"] if status == 200 \
            else (status, a)
    except (OSError, ValueError, http.client.HTTPException) as e:
        return repr(e)


# A stream's text, and the error that ended it or None.
def stream(server, i):
    try:
        status, _, text = server.ask("POST", CHAT,
                                     dict(question(i), stream=True))
    except (OSError, http.client.HTTPException) as e:
        return "", repr(e)
    got, failed = "", None
    if status != 200:
        return got, (status, text)
    for part in text.decode().split("\n\n"):
        if not part.startswith("data: {"):
            continue
        k = json.loads(part[len("data: "):])
        failed = k["error"]["message"] if "error" in k else failed
        for c in k.get("choices", []):
            got += c["delta"].get("content", "")
    return got, failed


def at_once(count, ask, server, meanwhile=None):
    got = [None] * count

    def one(i):
        got[i] = ask(server, i)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    if meanwhile:
        meanwhile()
    for t in threads:
        t.join()
    return got


alone = Server()
want = at_once(24, whole, alone)
alone.stop()
# few at once, so that a kill finds requests that wait or are computed
slow = "--sequences 2"
ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR",
         _temp_dir=os.environ["ray_folder"],
         log_to_driver=False)
atexit.register(ray.shutdown)
port = free_port()
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(genai_ray.app({"genai": GENAI, "model": MODEL, "replicas": "2",
                         "options": slow}))
front = Front(port)
same("it is healthy", front.ask("GET", "/health")[0], 200)
wait(lambda: len(replicas()) == 2, 60)
same("two replicas", len(replicas()), 2)
same("24 chats at once: those of one server", at_once(24, whole, front), want)
text, failed = stream(front, 5)
same("a stream", (text, failed), (want[5], None))
status, a = front.post(CHAT, messages=user("a"), temperature=-1)
check("a refusal comes through", status == 400 and
      "-1 is not from 0 to 100" in json.dumps(a), status, a)

before = replicas()
victim = sorted(before)[0]


def kill():
    time.sleep(0.2)
    os.kill(victim, signal.SIGKILL)


got = at_once(48, lambda s, i: whole(s, i % 24), front, kill)
same("one is killed: no answer is lost",
     [i for i in range(48) if got[i] != want[i % 24]], [])
begin = time.time()
wait(lambda: len(set(replicas()) - {victim}) == 2, 30)
took = time.time() - begin
check("it is back within 10 s: %.1f" % took, took < 10)
wait(lambda: not os.path.exists("/proc/%d" % before[victim]), 10)
check("its server went with it",
      not os.path.exists("/proc/%d" % before[victim]))

victim = sorted(replicas())[0]
got = at_once(48, lambda s, i: stream(s, i % 24), front, kill)
bad = [(i, g) for i, g in enumerate(got)
       if (g[1] is None and g[0] != want[i % 24]) or
       (g[1] is not None and g[1] != "the replica that answered is gone")]
same("streams are whole, or end with an error", bad, [])
print("# %d of 48 streams had begun there" %
      sum(g[1] is not None for g in got))
serve.shutdown()
wait(lambda: not replicas(), 20)
check("nothing is left", not replicas())
finish()
