#!/usr/bin/env python3
"""The access log: 300 requests of every kind against their lines, what sampling and --access-log-min leave out, that 100,000 scans
leave few lines and an exact count of the others, names of tokens, and the steps of a request that asks for them.

logs.py KERNSERVE
"""
import collections
import json
import os
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Connection, Daemon, chunked, check, comes_to, daemon_path, request, wrongs  # noqa: E402

OPTIONS = ("--backend", "cpu", "--pinned-bytes", "16M", "--log-format", "json", "--access-log", "on")
RAW = "/v2/models/softmax/infer?shape=2,64&datatype=FP32"
BODY = bytes(512)
FAULTS_MAX = 100  # lines a second
SCANS = 100000
SLOW_S = 0.2
SECRET = "0123456789abcdef-secret"


def lines(daemon, msg="request"):
    """Those that have come whole: the daemon may be in the middle of the last one."""
    whole = daemon.said().rpartition("\n")[0]
    return [line for line in map(json.loads, whole.splitlines()) if line["msg"] == msg]


class Kind:
    """A request, and what its line must say; wire: as it is sent."""

    def __init__(self, name, wire, status, route, where="data", method="GET", **fields):
        self.name, self.wire, self.status, self.route, self.where, self.method, self.fields = name, wire, status, route, where, method, fields


def named(method, target, body=b"", *headers):
    return lambda name: request(method, target, [("X-Request-Id", name), *headers], body)


def kinds():
    one = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}]}).encode()
    raw = dict(method="POST", model="softmax", in_bytes=512, reader="plain")
    trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    return [
        Kind("raw", named("POST", RAW, BODY), 200, "infer", format="raw", batch=1, lane=0, **raw),
        Kind("json", named("POST", "/v2/models/softmax/infer", one, trace), 200, "infer", format="json", method="POST", model="softmax", in_bytes=len(one), trace_id=trace[1][3:35]),
        Kind("chunked", lambda name: chunked("POST", RAW, [("X-Request-Id", name)], [BODY[:100], BODY[100:]]), 200, "infer", format="raw", **raw),
        Kind("forwarded", named("POST", RAW, BODY, ("X-Forwarded-For", "10.0.0.1, 10.0.0.2"), ("X-Forwarded-For", "10.0.0.3,\t10.0.0.4\x80")), 200, "infer", forwarded="10.0.0.4?", **raw),
        Kind("slow", named("POST", RAW, BODY), 200, "infer", format="raw", **raw),
        Kind("bad shape", named("POST", RAW.replace("64", "65"), BODY), 400, "infer", code="binary_size", **raw),
        Kind("unknown model", named("POST", RAW.replace("softmax", "nothing"), BODY), 404, "infer", code="model", method="POST"),
        Kind("unknown path", named("GET", "/.env%20" + "x" * 100 + "?secret=1"), 404, "other", code="path", path=("/.env%20" + "x" * 100)[:64]),
        Kind("quoted path", named("GET", '/"\\' + "'"), 404, "other", code="path", path='/"\\' + "'"),
        Kind("foreign host", lambda name: b"GET /v2 HTTP/1.1\r\nHost: evil.example\r\nX-Request-Id: %s\r\n\r\n" % name.encode(), 421, "server_metadata", code="host"),
        Kind("method", named("DELETE", "/v2"), 405, "server_metadata", method="DELETE", code="method"),
        Kind("live", named("GET", "/v2/health/live"), 200, "live"),
        Kind("metadata", named("GET", "/v2/models/softmax"), 200, "model_metadata", model="softmax"),
        Kind("head", named("HEAD", "/v2/models/softmax"), 200, "model_metadata", method="HEAD", model="softmax", out_bytes=None),
        Kind("metrics", named("GET", "/metrics"), 200, "metrics"),
        Kind("old", lambda name: b"GET /v2 HTTP/1.0\r\nX-Request-Id: %s\r\n\r\n" % name.encode(), 200, "server_metadata", reader="libmicrohttpd"),
        Kind("admin", named("GET", "/metrics"), 200, "metrics", where="admin", shard=None),
        Kind("admin path", named("GET", "/wp-login.php"), 404, "other", where="admin", code="path", path="/wp-login.php", shard=None),
        Kind("bare line feed", lambda _: b"GET /v2 HTTP/1.1\nHost: localhost\r\n\r\n", 400, "other", code="request_line", method=None),
        Kind("two lengths", lambda _: b"POST /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400, "other", method="POST", code="framing", path="/v2"),
        Kind("list", named("POST", "/v2/repository/index", b"{}"), 200, "repository", method="POST", in_bytes=2),
    ]


def send(daemon, kind, name):
    """The response, the socket's own name, how long it took."""
    s = socket.create_connection((daemon.host, daemon.port if kind.where == "data" else daemon.admin_port), timeout=30)
    connection = Connection.__new__(Connection)
    connection.socket, connection.rest, connection.eof = s, b"", False
    begun = time.monotonic()
    wire = kind.wire(name)
    if kind.name == "slow":
        connection.send(wire[:-1])
        time.sleep(SLOW_S)
    answer = connection.ask(wire[-1:] if kind.name == "slow" else wire, kind.method or "GET")
    took_us = (time.monotonic() - begun) * 1e6
    remote = "%s:%d" % s.getsockname()
    connection.close()
    return answer, remote, took_us


def agrees(kind, answer, remote, took_us, line):
    want = {"status": kind.status, "route": kind.route, "method": kind.method, "remote": remote, "out_bytes": len(answer.body) or None, "shard": 0, "code": None, "path": None,
            "forwarded": None, "model": None, "token": None, "aborted": None, "tls": None, **kind.fields}
    for field, value in want.items():
        check(line.get(field) == value, kind.name, field, "is", line.get(field), "instead of", value, line)
    # What the client measures has its own share of the host in it, which on a busy host is more than the request's.
    check(kind.name != "slow" or 0.8e6 * SLOW_S <= line["total_us"] <= took_us + 20000, kind.name, "took", took_us, "us, its line says", line["total_us"])
    phases = [line[name] for name in line if name.endswith("_us") and name != "total_us"]
    if kind.route == "infer" and kind.status == 200:
        check(abs(sum(phases) - line["total_us"]) <= 0.05 * line["total_us"] + len(phases), kind.name, "phases add up to", sum(phases), "of", line["total_us"])
    for name, value in line.items():
        check(value != "" and (value != 0 or name.endswith("_us") or name in ("shard", "lane")), kind.name, "a field that is absent stands there:", name)


def every_kind():
    with Daemon(daemon_path(), *OPTIONS, "--threads", "1") as daemon:
        check(daemon.says(r'"serves":"http://127.0.0.1:%d, metrics and health http://127.0.0.1:%d"}' % (daemon.port, daemon.admin_port)), "the start line names the listeners")
        every, sent = kinds(), {}
        for n in range(300):
            kind = every[n % len(every)]
            if n % 100 == 0:
                time.sleep(1.1)  # faults of a hundred requests are fewer than a second's lines
            answer, remote, took_us = send(daemon, kind, "test-%d" % n)
            check(answer.status == kind.status, kind.name, answer)
            sent[answer.header("x-request-id")] = (kind, answer, remote, took_us)
        check(len(sent) == 300, "300 requests have as many ids")
        check(comes_to(lambda: len([line for line in lines(daemon) if line["request_id"] in sent]), 300) == 300, "300 lines")
        for line in lines(daemon):
            if line["request_id"] in sent:
                agrees(*sent[line["request_id"]], line)
        gone(daemon)
        check(daemon.stop() == 0, "the exit code")


def gone(daemon):
    """A client that leaves amid its body."""
    s = socket.create_connection((daemon.host, daemon.port))
    s.sendall(request("POST", RAW, [("X-Request-Id", "gone")], BODY)[:-1])
    time.sleep(0.05)
    s.close()
    check(comes_to(lambda: [(line.get("aborted"), line.get("status")) for line in lines(daemon) if line["request_id"] == "gone"], [("receive", None)]) == [("receive", None)],
          "a client that left amid its body has a line")


def scans():
    """Faults: bounded lines, and every one of them counted."""
    with Daemon(daemon_path(), *OPTIONS, "--threads", "2") as daemon:
        one = request("GET", "/admin.php")
        batch, begun = 500, time.monotonic()
        with daemon.connect(60) as connection:
            for _ in range(SCANS // batch):
                connection.send(one * batch)
                for _ in range(batch):
                    connection.answer()
        seconds = time.monotonic() - begun

        def of_scans():
            return [line for line in lines(daemon) if line.get("path") == "/admin.php"]

        def left_out():
            return sum(line["lines"] for line in lines(daemon, "request lines left out"))
        check(comes_to(lambda: len(of_scans()) + left_out(), SCANS) == SCANS, len(of_scans()), "lines and", left_out(), "left out of", SCANS)
        check(FAULTS_MAX <= len(of_scans()) <= FAULTS_MAX * (seconds + 2), len(of_scans()), "lines in", seconds, "s")
        check(len(lines(daemon, "request lines left out")) <= seconds + 2, "one line a second about those left out")
        before, last = left_out(), 3 * FAULTS_MAX
        with daemon.connect() as connection:
            connection.send(request("GET", "/last") * last)
            for _ in range(last):
                connection.answer()
        check(daemon.stop() == 0, "the exit code")
        written = len([line for line in lines(daemon) if line.get("path") == "/last"])
        check(written + left_out() - before == last, "those of the last second are counted at the end:", written, left_out() - before)


def sampling():
    with Daemon(daemon_path(), *OPTIONS, "--threads", "1", "--access-log-sample", "10") as daemon:
        with daemon.connect() as connection:
            for _ in range(100):
                connection.ask(request("POST", RAW, (), BODY))
            for _ in range(20):
                connection.ask(request("GET", "/v2"))
                connection.ask(request("POST", RAW, (), b"x"))
        want = {("infer", 200): 10, ("infer", 400): 20, ("server_metadata", 200): 20}
        check(comes_to(lambda: {key: n for key, n in collections.Counter((line["route"], line["status"]) for line in lines(daemon)).items() if key in want}, want) == want, "one in ten of infer's 200s")
        check(daemon.stop() == 0, "the exit code")
    with Daemon(daemon_path(), *OPTIONS, "--threads", "1", "--access-log-min", "60s") as daemon:
        with daemon.connect() as connection:
            for target, body in ((RAW, BODY), (RAW, b"x")):
                connection.ask(request("POST", target, (), body))
        check(daemon.says('"status":400'), "a fault has its line")
        check(not [line for line in lines(daemon) if line["status"] == 200], "what was quick has none")
        check(daemon.stop() == 0, "the exit code")


def steps(daemon, name):
    return [line["step"] for line in lines(daemon, "request step") if line["request_id"] == name]


def tokens():
    """Names in the log, and steps for the operator alone."""
    every = ["head", "format", "slot", "plan", "launch", "response"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens")
        with open(path, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("alice:%s rights=infer\nroot:%s\nbare\n" % (SECRET, SECRET[::-1]))
        with Daemon(daemon_path(), *OPTIONS, "--threads", "1", "--token-file", path) as daemon:
            with daemon.connect() as connection:
                for name, secret, status in (("alice", SECRET, 200), ("root", SECRET[::-1], 200), ("default", "bare", 200), ("none", "alice:" + SECRET, 401)):
                    headers = [("Authorization", "Bearer " + secret), ("X-Request-Id", "by-" + name), ("Kernserve-Debug", "1")]
                    check(connection.ask(request("POST", RAW, headers, BODY)).status == status, name)
                connection.ask(request("GET", "/v2/health/live", [("X-Request-Id", "health"), ("Kernserve-Debug", "1")]))
            check(comes_to(lambda: {line["request_id"]: line.get("token") for line in lines(daemon)}.get("health", "absent"), None) is None, "health has a line")
            names = {line["request_id"]: line.get("token") for line in lines(daemon)}
            check([names.get("by-" + name) for name in ("alice", "root", "default", "none")] == ["alice", "root", "default", None], names)
            check(SECRET not in daemon.said() and SECRET[::-1] not in daemon.said(), "no secret is logged")
            check([steps(daemon, "by-" + name) for name in ("alice", "root", "default", "none")] == [[], every, every, []], "steps are the operator's", steps(daemon, "by-root"))
            check(steps(daemon, "health") == [], "health needs no token, and shows no steps")
            check(daemon.stop() == 0, "the exit code")
    with Daemon(daemon_path(), *OPTIONS[:-1], "off", "--threads", "1") as daemon:
        with daemon.connect() as connection:
            for name, debug in (("on", "1"), ("off", "0")):
                connection.ask(request("POST", RAW, [("X-Request-Id", name), ("Kernserve-Debug", debug)], BODY))
            connection.ask(request("POST", RAW, [("X-Request-Id", "bad"), ("Kernserve-Debug", "1")], b"x"))
        check(comes_to(lambda: (steps(daemon, "on"), steps(daemon, "off"), steps(daemon, "bad")[-1:]), (every, [], ["response"])) == (every, [], ["response"]), "steps", steps(daemon, "bad"))
        check(not lines(daemon), "there is no access log")
        check(daemon.stop() == 0, "the exit code")


for part in (every_kind, scans, sampling, tokens):
    part()
sys.exit(wrongs() > 0)
