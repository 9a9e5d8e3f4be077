# router.py - what router.sh asks: answers through the router are those of a
# server; both work; what comes after one of them is killed is answered.
import atexit
import http.client
import json
import socket
import subprocess
import threading

from served import CHAT, Server, check, finish, joined, same, user, wait


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Router(Server):
    def __init__(self, servers):
        self.path = None
        self.port = free_port()
        urls = ["http://127.0.0.1:%d" % s.port for s in servers]
        self.p = subprocess.Popen(
            ["vllm-router", "--host", "127.0.0.1", "--port", str(self.port),
             "--prometheus-port", str(free_port()),
             "--policy", "round_robin",
             "--worker-urls", *urls],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.p.kill)
        wait(self.up, 60)

    def up(self):
        try:
            return self.ask("GET", "/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


def question(i):
    return dict(messages=user("number %d" % i), max_tokens=6, temperature=0)


# So many questions at once: status and text of each.
def all_of(server, count):
    got = [None] * count

    def one(i):
        try:
            status, a = server.post(CHAT, **question(i))
            got[i] = a["choices"][0]["message"]["content"] \
                if status == 200 else (status, a)
        except (OSError, ValueError, http.client.HTTPException) as e:
            got[i] = repr(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


servers = [Server("--name", "tiny"), Server("--name", "tiny")]
alone = Server("--name", "tiny")
want = all_of(alone, 24)
router = Router(servers)
check("the router is up", router.up())
same("24 chats at once: those of one server", all_of(router, 24), want)
done = [s.metric("genai_new_tokens_total") or 0 for s in servers]
check("both servers answered some", min(done) > 0, done)
same("a stream", joined(router.stream(CHAT, **question(3))), want[3])
status, a = router.post("/v1/completions", prompt="Once", max_tokens=4)
check("a completion", status == 200 and a["choices"][0]["text"], status, a)
status, a = router.post(CHAT, messages=user("a"), temperature=-1)
check("a refusal comes through", status == 400 and
      "-1 is not from 0 to 100" in json.dumps(a), status, a)
servers[0].p.kill()
servers[0].p.wait()
same("one is killed: what comes after it is answered by the other",
     all_of(router, 24), want)
finish()
