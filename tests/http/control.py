#!/usr/bin/env python3
"""What is beside inference: repository, logging and trace settings, classification, request identity in answer and log,
packed answers.

control.py KERNSERVE
"""

import gzip
import json
import re
import struct
import sys
import time
import zlib

from daemon import Daemon, request, settle

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Run:
    def __init__(self, daemon):
        self.daemon, self.connection, self.wrong = daemon, daemon.connect(), 0

    def ask(self, method, target, body=b"", headers=()):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.connection.ask(request(method, target, headers, body))

    def want(self, name, expected, got):
        if expected != got:
            self.wrong += 1
        print("%s %s%s" % ("ok   " if expected == got else "WRONG", name, "" if expected == got else ": %r instead of %r" % (got, expected)))


def unsized(run, target):
    """A POST with neither length nor body, as the Python client sends it."""
    return run.connection.ask(("POST %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target).encode())


def repository(run):
    names = {m["name"] for m in json.loads(run.ask("GET", "/v2/models/stats").body)["model_stats"]}
    for name, answer in (("no body, no length", unsized(run, "/v2/repository/index")),
                         ("empty object", run.ask("POST", "/v2/repository/index", {})),
                         ("only the ready ones", run.ask("POST", "/v2/repository/index", {"ready": True})),
                         ("null is absent", run.ask("POST", "/v2/repository/index", {"ready": None}))):
        index = json.loads(answer.body)
        run.want("index, %s" % name, names, {m["name"] for m in index})
        run.want("index, %s: each is ready" % name, {("1", "READY", "")}, {(m["version"], m["state"], m["reason"]) for m in index})
    answer = run.ask("POST", "/v2/repository/index", {"ready": [[]]})
    run.want("index, ready is no boolean", (400, {"error": "Invalid value for 'ready': expected a boolean"}), (answer.status, json.loads(answer.body)))
    for verb, status, code in (("load", 200, None), ("unload", 409, "reserved")):
        answer = run.ask("POST", "/v2/repository/models/softmax/" + verb, {"parameters": {"unload_dependents": False}})
        run.want(verb, (status, code), (answer.status, answer.header("kernserve-error")))
    run.want("load: its body", b"", run.ask("POST", "/v2/repository/models/softmax/load", {}).body)
    run.want("load without body and length", 200, unsized(run, "/v2/repository/models/softmax/load").status)
    run.want("softmax is still ready", 200, run.ask("GET", "/v2/models/softmax/ready").status)


def logging(run):
    start = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default"}
    run.want("log settings", start, json.loads(run.ask("GET", "/v2/logging").body))
    answer = run.ask("POST", "/v2/logging", {"log_info": None, "log_verbose_level": 1, "log_format": "ISO8601"})
    changed = dict(start, log_verbose_level=1, log_format="ISO8601")
    run.want("log settings changed, null leaves alone", changed, json.loads(answer.body))
    for name, words, status in (("a file", {"log_file": "x"}, 501), ("a number for a flag", {"log_info": 1}, 400), ("a negative level", {"log_verbose_level": -1}, 400),
                                ("an unknown format", {"log_format": "xml"}, 400), ("a list", [], 400)):
        answer = run.ask("POST", "/v2/logging", dict(words, log_error=False) if words else words)
        run.want("log settings: " + name, status, answer.status)
        run.want("log settings: %s changes nothing" % name, changed, json.loads(run.ask("GET", "/v2/logging").body))
    run.ask("POST", "/v2/logging", {"log_info": False})
    run.ask("POST", "/v2/models/softmax/infer", one("softmax", [1, 2]), [("X-Request-Id", "silent")])
    run.want("log settings again", start, json.loads(run.ask("POST", "/v2/logging", {k: v for k, v in start.items() if k != "log_file"}).body))
    run.ask("POST", "/v2/models/softmax/infer", one("softmax", [1, 2]), [("X-Request-Id", "told")])
    run.want("with log_info there is a line for a request", True, bool(run.daemon.says('request_id="?told')))  # behind those of earlier ones
    run.want("without log_info there is none", False, "silent" in run.daemon.said())


def trace(run):
    for target in ("/v2/trace/setting", "/v2/models/softmax/trace/setting"):
        for method in ("GET", "POST"):
            answer = run.ask(method, target, {"trace_rate": "1"} if method == "POST" else b"")
            run.want("%s %s" % (method, target), (503, "the server does not support tracing"), (answer.status, json.loads(answer.body)["error"]))
    run.want("what is not there is not listed", False, "trace" in json.loads(run.ask("GET", "/v2").body)["extensions"])
    run.want("DELETE on a path of two methods", (405, "GET, HEAD, POST"), (lambda a: (a.status, a.header("allow")))(run.ask("DELETE", "/v2/logging")))


def one(model, data, datatype="FP32", shape=None, output=None, **parameters):
    document = {"inputs": [{"name": "INPUT0", "datatype": datatype, "shape": shape or [len(data)], "data": data}], "parameters": parameters}
    if output is not None:
        document["outputs"] = [{"name": "OUTPUT0", "parameters": output}]
    return document


def classes_of(answer):
    document = json.loads(answer.body[:int(answer.header("inference-header-content-length", len(answer.body)))])
    output = document["outputs"][0]
    if "data" in output:
        return output["datatype"], output["shape"], output["data"]
    blob, texts = answer.body[int(answer.header("inference-header-content-length", len(answer.body))):], []
    assert len(blob) == output["parameters"]["binary_data_size"]
    while blob:
        length = struct.unpack_from("<I", blob)[0]
        texts.append(blob[4:4 + length].decode())
        blob = blob[4 + length:]
    return output["datatype"], output["shape"], texts


def classification(run):
    data = [3.5, -1, 9.25, 0, 9.25, float("nan")]
    for output in ({"classification": 3}, {"classification": 3, "binary_data": True}):
        answer = run.ask("POST", "/v2/models/reduce/infer", one("reduce", data, "FP32", [6, 1], output, axis=1))
        run.want("the three largest, equal ones by index, %s" % output, ("BYTES", [3], ["9.250000:2", "9.250000:4", "3.500000:0"]), classes_of(answer))
        answer = run.ask("POST", "/v2/models/reduce/infer", one("reduce", data, "FP32", [6, 1], dict(output, classification=10 ** 18), axis=1))
        run.want("as many as there are, NaN last, %s" % output, ("BYTES", [6], "nan:5"), (lambda c: (c[0], c[1], c[2][-1].lstrip("-")))(classes_of(answer)))
    exact = [2 ** 63 - 2, 2 ** 63 - 1, -2 ** 63]
    answer = run.ask("POST", "/v2/models/reduce/infer", one("reduce", exact, "INT64", [3, 1], {"classification": 3}, axis=1, op="max"))
    run.want("64-bit integers are exact", ["%d.000000:1" % exact[1], "%d.000000:0" % exact[0], "%d.000000:2" % exact[2]], classes_of(answer)[2])
    answer = run.ask("POST", "/v2/models/reduce/infer", one("reduce", [1.5e308, -1.5e308], "FP64", [2, 1], {"classification": 2}, axis=1))
    run.want("the longest texts", ["%f:0" % 1.5e308, "%f:1" % -1.5e308], classes_of(answer)[2])
    answer = run.ask("POST", "/v2/models/reduce/infer", one("reduce", [], "FP32", [0, 1], {"classification": 2}, axis=1))
    run.want("of nothing", ("BYTES", [0], []), classes_of(answer))
    many = [(7919 * i) % 10007 / 8 for i in range(10007)]
    answer = run.ask("POST", "/v2/models/reduce/infer", one("reduce", many, "FP32", [10007, 1], {"classification": 10007}, axis=1))
    order = sorted(range(len(many)), key=lambda i: (-many[i], i))
    run.want("all of 10007", ["%f:%d" % (many[i], i) for i in order], classes_of(answer)[2])


def identity(run):
    answer = run.ask("GET", "/v2", headers=[("X-Request-Id", "mine-1")])
    run.want("the client's request id", "mine-1", answer.header("x-request-id"))
    made = [run.ask("GET", "/v2/nothing").header("x-request-id") for _ in range(2)]
    run.want("an id of our own, on errors too", True, all(re.fullmatch("[0-9a-f]{16}", m) for m in made) and made[0] != made[1])
    run.want("an id too long is replaced", True, bool(re.fullmatch("[0-9a-f]{16}", run.ask("GET", "/v2", headers=[("X-Request-Id", "x" * 129)]).header("x-request-id"))))
    parent = ("traceparent", "00-%s-b7ad6b7169203331-01" % TRACE)
    answer = run.ask("POST", "/v2/models/softmax/infer", one("softmax", [1, 2]), [("X-Request-Id", "logged-1"), parent])
    found = re.search(r"trace;desc=00-%s-([0-9a-f]{16})-01" % TRACE, answer.header("server-timing") or "")
    run.want("the trace in Server-Timing", True, bool(found))
    answer = run.ask("POST", "/v2/models/softmax/infer", one("softmax", [1, 2]))
    run.want("no trace where none came", False, "trace" in answer.header("server-timing"))
    run.ask("POST", "/v2/models/nope/infer", one("nope", [1]), [("X-Request-Id", "refused-1"), parent])
    run.ask("POST", "/v2/models/softmax/infer", one("softmax", [1], shape=[2]), [("X-Request-Id", "refused-2")])
    lines = {}
    end = time.monotonic() + 30
    while len(lines) < 4 and time.monotonic() < end:
        lines = {m.group(1): m.group(0) for m in re.finditer(r'request_id="?([a-z]+-\d).*', run.daemon.said())}
        time.sleep(0.05)
    run.want("each has its line in the log", {"mine-1", "logged-1", "refused-1", "refused-2"}, set(lines))
    run.want("the line names the trace", True, bool(found) and TRACE in lines["logged-1"] and found.group(1) in lines["logged-1"])
    run.want("the line of a refusal", True, TRACE in lines["refused-1"] and "status=404" in lines["refused-1"] and "status=400" in lines["refused-2"])


def compression(path):
    """Only inference answers are packed, only where the operator and the client want it."""
    words = one("softmax", [1.0] * 2000, "FP32", [1, 2000])
    binary = dict(words, outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}])
    unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}
    wrong = 0
    for options in (("--response-compression",), ()):
        with Daemon(path, "--pinned-bytes", "16M", *options) as daemon:
            run = Run(daemon)
            for accept, coding in (("gzip, deflate, br", "gzip"), ("deflate", "deflate"), ("br, *", None), ("gzip;q=0", None), ("identity", None)):
                coding = coding if options else None
                for document in (words, binary):
                    answer = run.ask("POST", "/v2/models/softmax/infer", document, [("Accept-Encoding", accept)])
                    name = "Accept-Encoding: %s, %s" % (accept, "allowed" if options else "not allowed")
                    run.want(name, (200, coding), (answer.status, answer.header("content-encoding")))
                    body = unpack[coding](answer.body)
                    head = int(answer.header("inference-header-content-length", len(body)))
                    output = json.loads(body[:head])["outputs"][0]
                    values = output.get("data") or list(struct.unpack("<2000f", body[head:]))
                    run.want(name + ": values", True, all(abs(v - 0.0005) < 1e-9 for v in values))
            for name, method, target, document, coding in (
                    ("a small answer is never packed", "POST", "/v2/models/softmax/infer", one("softmax", [1, 2]), None), ("an error is never packed", "POST", "/v2/models/softmax/infer", {}, None),
                    ("a document of the protocol is never packed", "GET", "/v2/models/stats", b"", None), ("the OpenAPI document is packed", "GET", "/openapi.json", b"", "gzip"), ("the metrics are packed", "GET", "/metrics", b"", "gzip")):
                run.want(name, coding, run.ask(method, target, document, [("Accept-Encoding", "gzip")]).header("content-encoding"))
            run.want("nothing is held", 0, settle(daemon))
            run.want("exit code", 0, daemon.stop())
            wrong += run.wrong
    return wrong


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: control.py KERNSERVE")
    wrong = compression(sys.argv[1])
    with Daemon(sys.argv[1], "--access-log", "on", "--pinned-bytes", "16M") as daemon:
        run = Run(daemon)
        for part in (repository, logging, trace, classification, identity):
            part(run)
        run.connection.close()
        run.want("exit code", 0, daemon.stop())
    return 1 if wrong or run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
