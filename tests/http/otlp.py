#!/usr/bin/env python3
"""Spans of sampled requests reach an OpenTelemetry collector: otlp.py KERNSERVE. Exit code 77: this build, or this host, has no libcurl.

  - a request with a sampled traceparent is one span below the caller's, its phases are its children, and their times lie within
    it without a gap; one that is not sampled, or has no trace, is none
  - the fields and attributes of the environment arrive; a collector that fails, or hangs, costs requests nothing and is counted
  - wrong variables end the start with 78; others are warned of
With the package opentelemetry-proto each document is also read as its ExportTraceServiceRequest.
"""
import http.server
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from daemon import Daemon, check, comes_to, measured, metric, request, wrongs

try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
except ImportError:
    trace_service_pb2 = None

BODY = bytes(16)
TARGET = "/v2/models/softmax/infer?shape=4&datatype=FP32"


class Collector:
    """Keeps what comes; status and delay are those of its answers."""

    def __init__(self):
        self.documents, self.fields, self.status, self.delay = [], [], 200, 0.0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(collector.delay)
                collector.fields.append((self.path, dict(self.headers)))
                if collector.status == 200:
                    collector.documents.append(json.loads(body))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [span for document in self.documents for resource in document["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]


def environment(collector, **more):
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "rows", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b, x-other=1",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,deployment.environment=test%2Cone", **more}


def ask(connection, trace, flags="01", target=TARGET, body=BODY, request_id="id"):
    fields = [("X-Request-Id", request_id)] + ([("traceparent", "00-%s-00f067aa0ba902b7-%s" % (trace, flags))] if trace else [])
    return connection.ask(request("POST", target, fields, body))


def attributes(thing):
    return {one["key"]: list(one["value"].values())[0] for one in thing["attributes"]}


def check_request(spans, trace, answer, code=200):
    """Exactly one span of the request, below the caller's, and its phases in a row within it."""
    mine = [span for span in spans if span["traceId"] == trace]
    roots = [span for span in mine if span["parentSpanId"] == "00f067aa0ba902b7"]
    check(len(roots) == 1, "one span for trace", trace, "not", len(roots))
    if len(roots) != 1:
        return
    root, children = roots[0], [span for span in mine if span["parentSpanId"] == roots[0]["spanId"]]
    check(len(children) == len(mine) - 1 and len({span["spanId"] for span in mine}) == len(mine), "children, and ids of their own")
    said = attributes(root)
    check(root["kind"] == 2 and said["http.response.status_code"] == str(code), "kind, status", root)
    now = time.time_ns()
    check(now - 600e9 < int(root["startTimeUnixNano"]) <= int(root["endTimeUnixNano"]) <= now, "times of the day", root)
    at = int(root["startTimeUnixNano"])
    for child in children:
        check(int(child["startTimeUnixNano"]) == at and child["kind"] == 1, "a gap before", child["name"])
        at = int(child["endTimeUnixNano"])
    if code == 200:
        timing = dict(re.findall(r"(\w+);dur=([\d.]+)", answer.header("server-timing")))
        total = (int(root["endTimeUnixNano"]) - int(root["startTimeUnixNano"])) / 1e6
        check(abs(total - float(timing["total"])) < 0.002, "the total", total, timing["total"])
        check(at == int(root["endTimeUnixNano"]), "the phases end with the request")
        check(re.search("trace;desc=00-%s-%s-01" % (trace, root["spanId"]), answer.header("server-timing")), "the span's id in Server-Timing")
        check(said["kernserve.model"] == "softmax" and said["kernserve.in_bytes"] == "16" and said["http.response.body.size"] == "16", "attributes", said)
    else:
        check(not children and said["error.type"] == answer.header("kernserve-error"), "a request that did not run", said)


def exported(path):
    collector = Collector()
    with Daemon(path, "--backend", "cpu", "--threads", "2", "--pinned-bytes", "16M", environment=environment(collector, OTEL_BSP_SCHEDULE_DELAY="1")) as daemon:
        traces = ["%032x" % (0x1234 << 64 | i) for i in range(1, 41)]
        answers = {}
        for i, trace in enumerate(traces):
            with daemon.connect() as connection:
                answers[trace] = ask(connection, trace, request_id="id-%d" % i)
                ask(connection, "%032x" % (0x99 << 64 | i), flags="00")
                ask(connection, None)
        with daemon.connect() as connection:
            bad = ask(connection, "f" * 32, target="/v2/models/softmax/infer?shape=4&datatype=FP32&axis=9", request_id='"\\<')
            check(bad.status == 400, "a bad request", bad.status)
            large = ask(connection, "e" * 32, target="/v2/models/softmax/infer?shape=8192,1024&datatype=FP32", body=bytes(1 << 25))
            check(large.status == 200, "a large request", large.status)
        wanted = len(traces) + 2
        check(comes_to(lambda: metric(daemon.metrics(), "kernserve_spans_exported_total"), wanted) == wanted, "all are exported")
        spans = collector.spans()
        for trace, answer in answers.items():
            check_request(spans, trace, answer)
        check_request(spans, "f" * 32, bad, 400)
        check({span["traceId"] for span in spans} == set(traces) | {"f" * 32, "e" * 32}, "sampled ones alone")
        check({attributes(span).get("kernserve.request_id") for span in spans if span["kind"] == 2} >= {"id-0", "id-39", '"\\<'}, "request ids")
        resource = attributes(collector.documents[0]["resourceSpans"][0]["resource"])
        check(resource["service.name"] == "rows" and resource["deployment.environment"] == "test,one" and "service.version" in resource, "the resource", resource)
        path_, fields = collector.fields[0]
        check(path_ == "/v1/traces" and fields["x-key"] == "a b" and fields["x-other"] == "1" and fields["Content-Type"] == "application/json", path_, fields)
        check(daemon.says("no effect here.*OTEL_BSP_SCHEDULE_DELAY"), "a variable that does nothing is said")

        with daemon.connect() as connection:  # what was not sent yet is sent at the end
            ask(connection, "d" * 32)
        check(daemon.stop() == 0, "the exit code")
        check("d" * 32 in {span["traceId"] for span in collector.spans()}, "the last span")
    if trace_service_pb2:
        for document in collector.documents:  # its JSON reader takes ids as base64
            text = re.sub(r'"((?:trace|span|parentSpan)Id)": "([0-9a-f]+)"', lambda m: '"%s": "%s"' % (m[1], __import__("base64").b64encode(bytes.fromhex(m[2])).decode()), json.dumps(document))
            parsed = json_format.Parse(text, trace_service_pb2.ExportTraceServiceRequest())
            check(all(len(span.trace_id) == 16 and len(span.span_id) == 8 for span in parsed.resource_spans[0].scope_spans[0].spans), "ids of the right length")


def in_trouble(path):
    collector = Collector()
    collector.status, collector.delay = 500, 0.0
    with Daemon(path, "--backend", "cpu", "--threads", "1", "--pinned-bytes", "16M", environment=environment(collector)) as daemon:
        with daemon.connect() as connection:
            ask(connection, "a" * 32)
            check(comes_to(lambda: metric(daemon.metrics(), "kernserve_spans_failed_total"), 1) == 1, "a span that was sent in vain")
            check(daemon.says("spans cannot be exported.*the collector answered 500"), "the reason")
            collector.delay = 30.0  # it hangs: more spans than there is room for
            measured(daemon)
            times = {True: [], False: []}
            for i in range(7000):  # in turns: a busy host is as busy for either
                begun = time.perf_counter()
                ask(connection, "%032x" % (i + 1) if i % 4 else None)
                times[i % 4 > 0].append(time.perf_counter() - begun)
            traced, plain = (statistics.median(times[which]) for which in (True, False))
            print("median of a request: %.0f us traced with a collector that hangs, %.0f us not traced" % (traced * 1e6, plain * 1e6))
            check(traced < 3 * plain, "a collector that hangs slows requests down")
        begun = time.monotonic()
        code, took = daemon.stop(), time.monotonic() - begun
        check(code == 0 and took < 20, "it ends in time", code, took)  # which is not until the collector answers


def refused(path):
    for name, value in (("OTEL_EXPORTER_OTLP_ENDPOINT", "unix:/x"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%0d%0ac: d")):
        variables = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", name: value}
        done = subprocess.run([path, "--backend", "cpu", "--listen", "127.0.0.1:0", "--admin-listen", ""], env=variables, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        check(done.returncode == 78 and name in done.stdout, name, value, "rc", done.returncode, done.stdout[-300:])


def main():
    path = sys.argv[1]
    probe = subprocess.run([path, "--backend", "cpu", "--listen", "127.0.0.1:0", "--admin-listen", ""], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_TIMEOUT": "none"}, timeout=60)
    if "libcurl" in probe.stdout:
        print("this build, or this host, has no libcurl")
        return 77
    exported(path)
    in_trouble(path)
    refused(path)
    return wrongs() > 0


if __name__ == "__main__":
    sys.exit(main())
