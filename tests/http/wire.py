#!/usr/bin/env python3
"""What HTTP allows beside the usual: pipelines with errors among them, versions, odd fields, the last request of a connection;
and what every document has: its exact type and no spaces.

wire.py KERNSERVE
"""

import gzip
import json
import socket
import sys
import time

from daemon import Daemon, chunked, request, settle
from refusal_rows import GOOD_BODY, SOFTMAX, raw, tensor

DOCUMENTS = ["/v2", "/v2/", "/", "/v2/health/live", "/v2/health/ready", "/livez", "/readyz", "/healthz", "/v2/models/softmax",
             "/v2/models/softmax/versions/1", "/v2/models/softmax/ready", "/v2/models/softmax/config", "/v2/models/softmax/stats",
             "/v2/models/stats", "/v2/logging", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/openapi.json",
             "/v2/models/softmax/plan?shape=4"]
LENGTH = "Content-Length: %d" % len(GOOD_BODY)
POST = "POST " + SOFTMAX + " HTTP/1.1"
CHUNKS = b"%x\r\n%s\r\n0\r\n" % (len(GOOD_BODY), GOOD_BODY)

# name, bytes, the statuses that come back, in this order
TALKS = [
    ("three requests at once", request("POST", SOFTMAX, (), GOOD_BODY) * 3, [200, 200, 200]),
    ("errors between them", request("POST", SOFTMAX, (), b"{]") + request("GET", "/nope") + request("DELETE", "/v2") + request("POST", SOFTMAX, (), GOOD_BODY), [400, 404, 405, 200]),
    ("a body where none is wanted", request("GET", "/v2", (), b"hello") + request("GET", "/v2"), [200, 200]),
    ("empty lines before a request", b"\r\n\r\n" + request("GET", "/v2"), [200]),
    ("TE: trailers", raw(POST, "Host: localhost", LENGTH, "TE: trailers", body=GOOD_BODY), [200]),
    ("an upgrade that is not taken", raw("GET /v2 HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: h2c"), [200]),
    ("a chunk with an extension, a trailer", raw(POST, "Host: localhost", "Transfer-Encoding: chunked", body=CHUNKS.replace(b"\r\n", b";a=b\r\n", 1) + b"X: y\r\n\r\n") + request("GET", "/v2"), [200, 200]),
    ("chunks of one byte", chunked("POST", SOFTMAX, (), [bytes([b]) for b in GOOD_BODY]), [200]),
    ("Expect: 100-continue", raw(POST, "Host: localhost", LENGTH, "Expect: 100-continue", body=GOOD_BODY), [200]),
    ("a form's type", raw(POST, "Host: localhost", LENGTH, "Content-Type: application/x-www-form-urlencoded", body=GOOD_BODY), [200]),
    ("a type that is none", raw(POST, "Host: localhost", LENGTH, "Content-Type: ;;;", body=GOOD_BODY), [200]),
    ("names in any case", raw(POST, "HOST: LOCALHOST", "cOnTeNt-LeNgTh: %d" % len(GOOD_BODY), "INFERENCE-header-content-LENGTH: %d" % len(GOOD_BODY), body=GOOD_BODY), [200]),
    ("Host with a port, IPv6", raw("GET /v2 HTTP/1.1", "Host: [::1]:8000"), [200]),
    ("the absolute form, a path that is not there", request("GET", "http://localhost/v2") + request("GET", "/v2%23x"), [200, 404]),
    ("absolute forms", b"".join(request(m, t) for m, t in (("GET", "HTTP://LOCALHOST:8000/v2?a=b"), ("GET", "http://localhost"), ("GET", "http://localhost?a=b"), ("GET", "http://[::1]/v2"))) +
     raw("GET http://localhost/v2 HTTP/1.1", "Host: evil.example"), [200] * 5),
    ("an absolute form again and again", request("GET", "http://localhost/v2") * 3 + request("GET", "/v2"), [200] * 4),
    ("OPTIONS * twice", request("OPTIONS", "*") * 2, [200, 200]),
    ("gzip in chunks", chunked("POST", SOFTMAX, [("Content-Encoding", "gzip")], [bytes([b]) for b in gzip.compress(GOOD_BODY)]), [200]),
    ("TRACE, a method in lower case, OPTIONS *", request("TRACE", "/v2") + request("post", SOFTMAX, (), b"{}") + request("OPTIONS", "*"), [405, 405, 200]),
    ("white space behind values", raw(POST, "Host: localhost \t", LENGTH + "  ", "Content-Encoding: identity ", "Inference-Header-Content-Length:\t%d\t" % len(GOOD_BODY), "Expect: 100-continue \t", body=GOOD_BODY), [200]),
    ("white space behind chunked", raw(POST, "Host:localhost", "Transfer-Encoding:chunked \t", body=CHUNKS + b"\r\n"), [200]),
    ("extensions and trailers", raw(POST, "Host: localhost", "Transfer-Encoding: Chunked", body=CHUNKS.replace(b"\r\n", b' ; a = b;c;d="e\\"f;" ;x\r\n', 1) + b"X:\r\nY: z \r\n\r\n"), [200]),
    ("a size of 16 digits, a line of 1,024 bytes", raw(POST, "Host: localhost", "Transfer-Encoding: chunked", body=b"%016x;a=" % len(GOOD_BODY) + b"b" * 1005 + b"\r\n" + GOOD_BODY + b"\r\n0\r\n\r\n"), [200]),
    ("Content-Encoding: GZIP", request("POST", SOFTMAX, [("Content-Encoding", "GZIP")], gzip.compress(GOOD_BODY)), [200]),
    ("gzip of three members, one empty", request("POST", SOFTMAX, [("Content-Encoding", "gzip")], gzip.compress(GOOD_BODY[:20]) + gzip.compress(b"") + gzip.compress(GOOD_BODY[20:])), [200]),
    ("chunked, pipelined", (chunked("POST", SOFTMAX, (), [GOOD_BODY[:7], GOOD_BODY[7:]]) + request("GET", "/v2")) * 3, [200] * 6),
    ("a head of 15 KiB", raw(POST, "Host: localhost", LENGTH, *("X-%d: %s" % (i, "y" * 1000) for i in range(15)), body=GOOD_BODY) * 2, [200, 200]),
    ("HEAD where GET is", raw("HEAD /v2/health/ready HTTP/1.1", "Host: localhost"), [200]),
    ("50 brackets around a value, an empty id, no outputs named", request("POST", SOFTMAX, (), ('{"id":"","outputs":[],"inputs":[%s]}' % tensor("[1,1]", "[" * 50 + "7" + "]" * 50)).encode()), [200]),
]

wrong = 0


def want(name, expected, got):
    global wrong
    wrong += expected != got
    print("%s %s%s" % ("ok   " if expected == got else "WRONG", name, "" if expected == got else ": %r instead of %r" % (got, expected)))


def compact(text):
    """Whether no white space stands outside strings."""
    inside = escaped = False
    for c in text:
        if not inside and c in " \t\r\n":
            return False
        inside ^= c == '"' and not escaped
        escaped = inside and c == "\\" and not escaped
    return True


def talks(daemon):
    for name, data, statuses in TALKS:
        with daemon.connect() as connection:
            connection.send(data)
            method = "HEAD" if data.startswith(b"HEAD") else "GET"
            want(name, statuses, [connection.answer(method).status for _ in statuses])
            want(name + ": and then", 200, connection.ask(request("POST", SOFTMAX, (), GOOD_BODY)).status)
    with daemon.connect() as connection:
        answer = connection.ask(raw("POST " + SOFTMAX + " HTTP/1.0", LENGTH, body=GOOD_BODY))
        want("HTTP/1.0", (200, True), (answer.status, connection.closed_within(5)))
    with daemon.connect() as connection:  # it is given to the library for one request
        answer = connection.ask(raw("POST " + SOFTMAX + " HTTP/1.0", LENGTH, "Connection: keep-alive", body=GOOD_BODY) * 2)
        want("HTTP/1.0 that wants to stay", (200, True, True), (answer.status, answer.says_close(), connection.closed_within(5)))
    with daemon.connect() as connection:
        answer = connection.ask(request("OPTIONS", "*"))
        want("OPTIONS *", (200, "GET, HEAD, POST, PUT, DELETE, OPTIONS", b""), (answer.status, answer.header("allow"), answer.body))
    with daemon.connect() as connection:
        answer = connection.ask(request("POST", "/v2/models/reduce/infer?shape=2&datatype=FP32&axis=0&op=sum", (), bytes(8)))
        want("a scalar's shape", (200, "scalar"), (answer.status, answer.header("kernserve-shape")))
    with daemon.connect() as connection:
        answer = connection.ask(raw(POST, "Host: localhost", LENGTH, "Connection: close", body=GOOD_BODY))
        want("Connection: close", (200, True, True), (answer.status, answer.says_close(), connection.closed_within(5)))


def documents(daemon):
    with daemon.connect() as connection:
        for target in DOCUMENTS:
            answer = connection.ask(request("GET", target))
            text = answer.body.decode()
            json.loads(text)
            want(target, (200, "application/json", str(len(answer.body)), True),
                 (answer.status, answer.header("content-type"), answer.header("content-length"), compact(text)))


def names(path):
    with Daemon(path, "--threads", "1", "--pinned-bytes", "16M", "--accept-host", "models.example", "--server-name", "triton",
                "--max-requests-per-connection", "3") as daemon:
        with daemon.connect() as connection:
            answers = [connection.ask(raw("GET /v2 HTTP/1.1", "Host: models.example:1234")) for _ in range(3)]
            want("--accept-host, --server-name", [(200, "triton")] * 3, [(a.status, json.loads(a.body)["name"]) for a in answers])
            want("--max-requests-per-connection", [False, False, True], [a.says_close() for a in answers])
            want("closed behind the last", True, connection.closed_within(5))
        with narrow(daemon) as connection:  # whose next request comes while the last response is on its way
            for _ in range(2):
                connection.ask(request("GET", "/v2"))
            connection.socket.sendall(request("GET", "/openapi.json"))
            time.sleep(0.05)
            connection.socket.sendall(request("GET", "/v2"))
            time.sleep(0.05)
            answer = connection.answer("GET")
            want("the last response with a request behind it", (200, str(len(answer.body)), True), (answer.status, answer.header("content-length"), answer.says_close()))
        want("the daemon's end", 0, daemon.stop())


def narrow(daemon):
    """A connection that takes few bytes at a time, so that a response of some KiB is not the kernel's to deliver at once."""
    connection = daemon.connect()
    connection.socket.close()
    connection.socket = socket.socket()
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    connection.socket.connect((daemon.host, daemon.port))
    return connection


def nested(path):
    with Daemon(path, "--threads", "1", "--pinned-bytes", "16M", "--compat-models") as daemon, daemon.connect() as connection:
        for depth in (1, 16, 17, 100):
            body = '{"inputs":[%s]}' % tensor("[1]", "[" * depth + "7" + "]" * depth)
            answer = connection.ask(request("POST", "/v2/models/identity_fp32/infer", (), body.encode()))
            want("%d levels inside data of a compatibility model" % depth, (200, [7.0]), (answer.status, answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"]))
        want("the daemon's end", 0, daemon.stop())


def main():
    with Daemon(sys.argv[1], "--threads", "1", "--pinned-bytes", "16M") as daemon:
        talks(daemon)
        documents(daemon)
        want("pinned memory in use", 0, settle(daemon))
        want("the daemon's end", 0, daemon.stop())
    names(sys.argv[1])
    nested(sys.argv[1])
    print("%d wrong" % wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
