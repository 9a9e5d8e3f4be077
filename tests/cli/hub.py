"""A hub as huggingface.co is one, on a port of this machine:
hub.py FOLDER PORT-FILE LOG.  FOLDER/ORG/NAME has the files of a repository; what is
wrong with one is told by its NAME.  A line of LOG is a request, with what was asked
for and whether a token came with it."""
import hashlib
import http.server
import json
import os
import re
import sys
import time
import urllib.parse

root, port_file, log_file = sys.argv[1:]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
served = {}  # how often a path was asked for


def read(path):
    with open(path, "rb") as f:
        return f.read()


def siblings(repo):
    out = []
    top = os.path.join(root, repo)
    for folder, folders, names in os.walk(top):
        folders.sort()
        for n in sorted(names):
            path = os.path.join(folder, n)
            data = read(path)
            e = {"rfilename": os.path.relpath(path, top), "size": len(data),
                 "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if len(data) > 20000:
                e["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            out.append(e)
    return out


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def give(self, status, data, headers=()):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        auth = self.headers.get("Authorization")
        with open(log_file, "a") as f:
            f.write("%s %s %s\n" % (path, self.headers.get("Range", "-"), "token" if auth else "-"))
        served[path] = served.get(path, 0) + 1
        m = re.match(r"/api/models/([^/]+/([^/]+))/revision/(.*)", path)
        if m:
            return self.answer(m.group(1), m.group(2), auth)
        m = re.match(r"/(?:cdn/)?([^/]+/([^/]+))/resolve/%s/(.*)" % COMMIT, path)
        if not m:
            return self.give(404, b"no")
        self.file(*m.groups(), path, auth)

    def answer(self, repo, name, auth):
        if not os.path.isdir(os.path.join(root, repo)):
            return self.give(404, b'{"error":"Repository not found"}')
        if name == "private" and auth != "Bearer secret":
            return self.give(401, b"no")
        if name == "busy" and served[urllib.parse.unquote(self.path.split("?")[0])] < 3:
            return self.give(503, b"later")
        j = {"id": repo, "sha": COMMIT, "siblings": siblings(repo)}
        if name == "html":
            return self.give(200, b"<html>Welcome to this hotel's network</html>")
        if name == "outside":
            j["siblings"].append({"rfilename": "../../../x", "size": 1, "blobId": "0" * 40})
        if name == "hashless":
            del j["siblings"][0]["blobId"]
            j["siblings"][0].pop("lfs", None)
        if name == "commitless":
            j["sha"] = "../.."
        if name == "huge":
            for e in j["siblings"]:
                e["size"] = 1 << 60
        self.give(200, json.dumps(j).encode())

    def file(self, repo, name, file, path, auth):
        data = read(os.path.join(root, repo, file))
        if name == "moved" and not path.startswith("/cdn/"):
            # another host, which must not get the token
            return self.give(302, b"", [("Location", "http://localhost:%d/cdn%s" % (port, urllib.parse.quote(path)))])
        if name == "private" and auth != "Bearer secret":
            return self.give(403, b"no")
        big = len(data) > 20000
        if name == "lies" and big:
            data = data[:1000] + b"?" + data[1001:]
        if name == "longer" and big:
            data += b"more"
        first = 0
        m = re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
        if m and name != "rangeless":
            first = int(m.group(1))
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, len(data) - 1, len(data)))
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        cut = {"broken": 100000, "rangeless": 100000, "slow": 200000, "dead": 0}.get(name)
        if name == "rangeless" and served[path] > 2:
            cut = None
        if cut is not None and big and len(data) - first > cut:
            self.wfile.write(data[first:first + cut])
            self.wfile.flush()
            if name in ("slow", "dead"):
                time.sleep(3)
            self.close_connection = True
            return
        self.wfile.write(data[first:])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
server.daemon_threads = True
port = server.server_address[1]
with open(port_file + ".tmp", "w") as f:
    f.write(str(port))
os.rename(port_file + ".tmp", port_file)
server.serve_forever()
