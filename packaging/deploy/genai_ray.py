# genai_ray.py - replicas of genai serve as a Ray Serve application.
#
#     serve run genai_ray:app model=/srv/model replicas=2
#
# Each replica runs a server of its own behind a Unix socket. Requests that begin
# alike go to the same replica, whose cache has the beginning. One whose replica
# dies is asked again elsewhere, unless its stream has begun: that one ends with an
# error. docs/DEPLOYING.md.
import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tempfile

import aiohttp
from ray import serve
from ray.exceptions import RayError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

TRIES = 5
PREFIX_BYTES = 512  # of the prompt: requests that share them are alike


def error(status, text):
    return JSONResponse({"error": {"message": text, "type": "server_error",
                                   "param": None, "code": None}}, status)


@serve.deployment(max_ongoing_requests=64, health_check_period_s=1,
                  health_check_timeout_s=5, graceful_shutdown_timeout_s=620)
class Engine:
    def __init__(self, genai, model, options):
        self.folder = tempfile.mkdtemp(prefix="genai-ray-")
        self.path = os.path.join(self.folder, "genai.sock")
        # The server ends with us, however we end, and its folder goes: its
        # shell reads our pipe.
        self.p = subprocess.Popen(
            ["sh", "-c", 'exec 3<&0; "$@" & p=$!; '
             '(cat <&3; kill $p) >/dev/null 2>&1 & wait $p; rm -rf "$0"',
             self.folder, genai, "serve", model, "--socket", self.path,
             *options],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.p.stderr.readline().decode()
        if " at " not in line:
            raise RuntimeError((line + self.p.stderr.read().decode()).strip())
        self.session = None

    def __del__(self):
        self.p.stdin.close()
        self.p.wait()

    def client(self):
        if self.session is None:
            self.session = aiohttp.ClientSession(
                "http://genai", connector=aiohttp.UnixConnector(
                    self.path, limit=0),
                timeout=aiohttp.ClientTimeout(total=None))
        return self.session

    async def check_health(self):
        async with self.client().get("/health") as r:
            if r.status != 200:
                raise RuntimeError("the server answers %d" % r.status)

    # Ray sends a prefix where it was before: a replica names those it has seen.
    @serve.multiplexed(max_num_models_per_replica=256)
    async def seen(self, prefix):
        return prefix

    # The status and type of an answer, then its bytes.
    async def ask(self, method, path, headers, body):
        prefix = serve.get_multiplexed_model_id()
        if prefix:
            await self.seen(prefix)
        async with self.client().request(method, path, headers=headers,
                                         data=body) as r:
            yield r.status, r.headers.get("Content-Type", "")
            async for piece in r.content.iter_any():
                yield piece


@serve.deployment(max_ongoing_requests=1024)
class Front:
    def __init__(self, engines):
        self.engines = engines

    def send(self, request, body):
        headers = {k: v for k, v in request.headers.items() if k in (
            "content-type", "authorization")}
        path = request.url.path
        if request.url.query:
            path += "?" + request.url.query
        return self.engines.options(
            stream=True, multiplexed_model_id=prefix(body)).ask.remote(
                request.method, path, headers, body)

    async def __call__(self, request: Request):
        body = await request.body()
        for i in range(TRIES):
            pieces = self.send(request, body)
            try:
                status, kind = await pieces.__anext__()
                if kind.startswith("text/event-stream"):
                    # the first event: up to here it can be asked again
                    first = await pieces.__anext__()
                    return StreamingResponse(rest(first, pieces), status,
                                             media_type=kind)
                whole = b"".join([p async for p in pieces])
                return Response(whole, status, media_type=kind)
            except (RayError, aiohttp.ClientError, OSError):
                await asyncio.sleep(0.2 * i)
        return error(503, "no replica answers")


async def rest(first, pieces):
    yield first
    try:
        async for p in pieces:
            yield p
    except Exception:  # whatever it was, the stream cannot go on
        e = {"error": {"message": "the replica that answered is gone",
                       "type": "server_error", "param": None, "code": None}}
        yield b"data: " + json.dumps(e).encode() + b"\n\n"


# What the requests have in common that go to one replica; "": anything.
def prefix(body):
    try:
        b = json.loads(body)
        text = json.dumps(b.get("messages") or b.get("prompt") or "")
    except (ValueError, AttributeError):
        return ""
    return hashlib.sha256(text[:PREFIX_BYTES].encode()).hexdigest()[:16] \
        if text != '""' else ""


# model=FOLDER; replicas=N, or min_replicas=N max_replicas=N: as many as the load
# asks for; genai=PROGRAM; options="--sequences 32 ..."
def app(args):
    genai = args.get("genai") or shutil.which("genai")
    if not genai or "model" not in args:
        raise SystemExit("genai_ray: model=FOLDER, and a genai, are needed")
    how = {"num_replicas": int(args.get("replicas", 1))}
    if "max_replicas" in args:
        how = {"autoscaling_config": {
            "min_replicas": int(args.get("min_replicas", 1)),
            "max_replicas": int(args["max_replicas"]),
            "target_ongoing_requests": int(args.get("sequences", 16))}}
    if "gpus" in args:
        how["ray_actor_options"] = {"num_gpus": float(args["gpus"])}
    engines = Engine.options(**how).bind(
        genai, args["model"], args.get("options", "").split())
    return Front.bind(engines)
