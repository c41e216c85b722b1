#!/usr/bin/env python3
"""NVIDIA's perf_analyzer against the daemon: each way to run it ends with a report whose figures can be true.

perf_analyzer.py KERNSERVE PERF_ANALYZER [OPTION-OF-KERNSERVE...]
Queue and compute of the server must not exceed what the client waited, and the counts must agree.
Where there is a GPU, also with CUDA shared memory, and the metrics are those of that GPU.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from daemon import Daemon, libraries, metric, request

SHAPE = ("--shape", "INPUT0:8,256")
# A fixed number of requests, or where that is not taken windows whose spread may be what a busy machine makes it.
ONE = ("--request-count", "300")
LOADS = ("-p", "200", "-r", "3", "-s", "900")
RUNS = (
    ("default", SHAPE),
    ("asynchronous", SHAPE + ("-a", "--concurrency-range", "8")),
    ("concurrency 1 to 16", SHAPE + ("--concurrency-range", "1:16:4")),
    ("request rate", SHAPE + ("--request-rate-range", "200:400:200", "--request-distribution", "poisson")),
    ("system shared memory", SHAPE + ("--shared-memory", "system", "--output-shared-memory-size", "8192")),
    ("JSON", ("--shape", "INPUT0:1,256", "--input-tensor-format", "json")),
    ("FP16", SHAPE + ("-m", "softmax_fp16")),
    ("two inputs", ("-m", "matmul", "--shape", "INPUT0:16,32", "--shape", "INPUT1:32,8")),
    ("a model of one's own", ("-m", "mine", "--shape", "x:256")),
    ("its batches", ("-m", "mine", "--shape", "x:256", "-b", "8", "--concurrency-range", "4")),
    ("a version by its number, zeros", SHAPE + ("-x", "1", "--input-data", "zero")),
)
ON_A_GPU = (("CUDA shared memory", SHAPE + ("--shared-memory", "cuda", "--output-shared-memory-size", "8192")),)
SECONDS, RUNS_AT_MOST = 60, 3  # some 5 s are enough
METRICS = SHAPE + ("--collect-metrics", "--metrics-interval", "200")


def reports(text):
    """(client count, client us, server count, server us, its parts) of each load in the output."""
    for part in re.split(r"Request concurrency:|Request Rate:", text):
        if "Client:" not in part:
            continue
        client = re.search(r"Client:.*?Request count: (\d+).*?Avg latency: (\d+) usec", part, re.S)
        server = re.search(r"Server:.*?Inference count: (\d+).*?Avg request latency: (\d+) usec \(overhead (\d+) usec \+ queue (\d+) usec \+ "
                           r"compute input (\d+) usec \+ compute infer (\d+) usec \+ compute output (\d+) usec\)", part, re.S)
        if not client or not server:
            yield None
        else:
            yield int(client.group(1)), int(client.group(2)), int(server.group(1)), int(server.group(2)), [int(g) for g in server.groups()[2:]]


def fault_of(code, output, loads):
    if code:
        return "exit code %d" % code
    found = list(reports(output))
    if len(found) != loads or None in found:
        return "%d reports of %d" % (len([f for f in found if f]), loads)
    for count, us, server_count, server_us, parts in found:
        if abs(sum(parts) - server_us) > len(parts):
            return "%d us are not the sum of %s" % (server_us, parts)
        if sum(parts[1:]) > us or server_us > us:
            return "the server's %d us %s exceed the client's %d us" % (server_us, parts, us)
        if not 0.9 < server_count / count < 1.1:
            return "%d inferences for %d requests" % (server_count, count)
    return None


def start(path, *options, environment=None):
    return Daemon(path, "--allow-client-shm", "--pinned-bytes", "64M", *options, environment=environment)


def answers_all(daemon):
    """Whether no request waits for the daemon: within a second some were answered, or there are none."""
    def answered(text):
        return metric(text, "kernserve_http_requests_total", handler="infer", code="200") or 0
    before = daemon.metrics()
    time.sleep(1)
    now = daemon.metrics()
    return answered(now) > answered(before) or metric(now, "kernserve_inference_requests_in_flight") == 0


def output_of(command, daemon, name):
    """Exit code and output. On a busy host perf_analyzer 2.60 now and then (once in some 700 runs) goes on with one load for ever,
    while each of its requests is answered: then it is run again."""
    for _ in range(RUNS_AT_MOST):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                output = process.communicate(timeout=SECONDS)[0]
                return process.returncode, output
            except subprocess.TimeoutExpired:
                answered = answers_all(daemon)
                process.kill()
                output = process.communicate()[0]
        print("again %s: no end within %d s, %s" % (name, SECONDS, "each request answered" if answered else "requests wait"))
        if not answered:
            break
    return 1, output


def run(program, daemon, name, options):
    """Whether it went wrong."""
    metrics = ("--metrics-url", "127.0.0.1:%d/metrics" % daemon.admin_port) if "--collect-metrics" in options else ()
    command = [program, "-m", "softmax", "-u", "127.0.0.1:%d" % daemon.port, *metrics,
               *(LOADS if any("range" in option for option in options) else ONE), *options]
    code, output = output_of(command, daemon, name)
    fault = fault_of(code, output, {"concurrency 1 to 16": 4, "request rate": 2}.get(name, 1))
    if metrics and not fault and ("WARNING" in output or "Avg GPU Utilization" not in output):
        fault = "the metrics have not all been read"
    rates = " ".join(re.findall(r"throughput: ([0-9.]+ infer/sec, latency \d+ usec)", output))
    print("%-5s %s: %s" % ("WRONG" if fault else "ok", name, fault or rates))
    if fault:
        print(output[-2000:])
    return fault is not None


def load_model(daemon):
    """One of one's own, with batches: softmax of a row."""
    definition = {"format": 1, "max_batch": 64, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
                  "nodes": [{"name": "best", "op": "softmax", "inputs": ["x"], "outputs": ["p"]}], "outputs": [{"name": "p"}]}
    with daemon.connect(30) as connection:
        answer = connection.ask(request("PUT", "/v2/models/mine", (), json.dumps(definition).encode()))
    if answer is None or answer.status != 201:
        print("WRONG a model of one's own: %r" % answer)


def gpu_here():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


def main():
    if len(sys.argv) < 3:
        raise SystemExit("usage: perf_analyzer.py KERNSERVE PERF_ANALYZER [OPTION-OF-KERNSERVE...]")
    wrong, gpu = 0, gpu_here()
    with start(sys.argv[1], *sys.argv[3:]) as daemon:
        load_model(daemon)
        for name, options in RUNS + (ON_A_GPU if gpu else ()):
            wrong += run(sys.argv[2], daemon, name, options)
        wrong += daemon.stop() != 0
    if not gpu:
        print("skip  %s: no GPU" % ", ".join(name for name, _ in ON_A_GPU))
    tests = os.path.join(os.path.dirname(sys.argv[1]), "tests")  # where a device can be had that a made library tells of
    path, environment = (sys.argv[1], None) if gpu else (os.path.join(tests, "kernserve_streaming"), libraries(os.path.join(tests, "nvml")))
    with start(path, "--triton-metrics", environment=environment) as daemon:
        wrong += run(sys.argv[2], daemon, "metrics", METRICS)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
